//! The chunks of a dataset that are values of the map: which ones there are, where they are, and
//! how they are decoded.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::decoding::{StoredValue, ValueLocation, chunk_key};
use super::image::Body;
use super::state::State;
use crate::base::Result;
use crate::dataset::chunk::cache::Chunk;
use crate::dataset::chunk::changed::SharedImage;
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::pieces::{ByteGrid, ChunkPieces};
use crate::dataset::chunk::present::{PresentChunks, VisitNumber};
use crate::dataset::chunk::reading::{self, ChunkFinder, ChunkLocation, ClaimedChunk, FoundChunk};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::iod::{Cell, Data, Extent, keys};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// The chunks of a dataset at a state, encoded or not.
#[derive(Clone, Copy)]
pub(super) struct ValueChunks<'a> {
    /// Reads the chunks from packs.
    pub reader: &'a ChunkReader,
    /// The state with the values.
    pub state: &'a State,
    /// The dataset at that state.
    pub d: &'a Dataset,
}

/// Where the bytes of a chunk are. All of it stays as it is when the state changes.
pub(super) enum Source {
    /// A chunk that is not encoded.
    Image(SharedImage),
    /// An encoded chunk.
    Cell(Cell),
    /// There is no such chunk.
    Nothing,
}

impl Source {
    /// Where the bytes of the chunk `key` are.
    pub fn of(state: &State, key: &[u8]) -> Result<Source> {
        match state.changes.get(key).map(|c| &c.body) {
            Some(Body::Dirty(chunk)) => Ok(Source::Image(chunk.chunk.now())),
            _ => Ok(state.get(key)?.map_or(Source::Nothing, Source::Cell)),
        }
    }
}

impl<'a> ValueChunks<'a> {
    /// True if a request has all bytes of a chunk in one piece, and they can be read to the
    /// request's buffer as they are stored.
    fn is_read_whole(self, extent: &Extent, t: &ChunkPieces) -> bool {
        let ([piece], d) = (t.pieces.as_slice(), self.d) else { return false };
        let bytes = d.grid.chunk_bytes();
        let whole = piece.rows == 1 && piece.len as u64 == bytes && u64::from(extent.len) == bytes;
        whole && d.pipeline.is_empty() && !d.knows_defined() && self.reader.container.is_at_hand(extent)
    }

    /// Where the chunk in a cell is, of which `t` are pieces; fetches nothing.
    pub fn find_cell(self, cell: &Cell, t: &ChunkPieces) -> Result<FoundChunk<'a, StoredValue, SharedImage>> {
        let (reader, d, mask) = (self.reader, self.d, cell.mask);
        let extent = match &cell.data {
            Data::Extent(extent) => *extent,
            Data::Inline(_) => return reader.image(d, cell).map(FoundChunk::Location),
        };
        if reader.is_large(d, cell.len()) {
            return Ok(FoundChunk::File(Box::new(move || reader.decoded_file(d, &extent, mask))));
        }
        reader.check_whole(d, cell.len())?;
        let (key, stored) = (chunk_key(d, &extent), StoredValue { extent, mask });
        Ok(match self.is_read_whole(&extent, t) && !reader.env.cache.contains(key) {
            true => FoundChunk::Location(ChunkLocation::Direct(stored)),
            false => FoundChunk::Cached { key, len: d.decoded_len(cell.len()), stored },
        })
    }
}

impl<'a> ChunkFinder<'a> for ValueChunks<'a> {
    type Stored = StoredValue;
    type Changed = SharedImage;

    fn grid(self) -> &'a ByteGrid {
        &self.d.grid
    }

    fn env(self) -> &'a Environment {
        &self.reader.env
    }

    fn fill(self) -> &'a FillPattern {
        &self.d.pattern
    }

    /// The map says under which key the cache has a chunk.
    fn in_memory(self, batch: &[ChunkPieces]) -> Vec<Option<ValueLocation>> {
        batch.iter().map(|_| None).collect()
    }

    fn find(self, t: &ChunkPieces) -> Result<FoundChunk<'a, StoredValue, SharedImage>> {
        match Source::of(self.state, &self.d.chunk_key(t.chunk))? {
            Source::Image(image) => Ok(FoundChunk::Location(ChunkLocation::Changed(image))),
            Source::Nothing => Ok(FoundChunk::Location(ChunkLocation::Fill)),
            Source::Cell(cell) => self.find_cell(&cell, t),
        }
    }

    fn decode(self, claimed: Vec<ClaimedChunk<'a, StoredValue>>) -> Vec<Result<Arc<Chunk>>> {
        self.reader.fetch(self.d, claimed)
    }

    fn copy_changed(self, image: &SharedImage, t: &ChunkPieces, buf: &mut [u8]) -> Result<()> {
        match FileImage::of(image.image()) {
            Some(image) => reading::copy_stored(&self.d.grid, t, buf, &|at, part| image.file().read(at, part)),
            None => image.check(image.image().scatter(&self.d.grid, t, buf), self.d.id),
        }
    }
}

impl PresentChunks for ValueChunks<'_> {
    fn grid(&self) -> &ByteGrid {
        &self.d.grid
    }

    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
        let (grid, d) = (&self.d.grid, self.d);
        if from >= grid.chunks() {
            return Ok(());
        }
        let keys = (Bound::Included(d.chunk_key(from)), keys::of_kind(d.id, keys::CHUNK).1);
        let _ = self.state.scan(&keys, &mut |key, _| match keys::scaled(key).and_then(|scaled| grid.linear(&scaled)) {
            Some(number) => f(number),
            None => Ok(ControlFlow::Continue(())),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{empty, open, spec};
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, DatasetSpec, Form};
    use crate::dataset::layout::Seek;
    use crate::iod::keys;

    /// Holes beside a chunk in the same rows of chunks were data.
    #[test]
    fn data_and_holes_are_exact_to_the_chunk_in_every_dimension() {
        let c = open(&empty());
        let spec = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![2, 3])), ..spec("u1", &[7, 10]) };
        let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
        let content = c.content(id, Form::Main).unwrap();
        let mut data = [false; 70];
        let check = |data: &[bool; 70]| {
            for at in 0..70 {
                let next = |wanted: bool| (at..70).find(|n| data[*n] == wanted).map(|n| n as u64);
                assert_eq!(content.seek(at as u64, Seek::Data).unwrap(), next(true), "data from {at}");
                assert_eq!(content.seek(at as u64, Seek::Hole).unwrap(), Some(next(false).unwrap_or(70)), "hole from {at}");
                let written = next(true).map(|start| start..(start as usize..70).find(|n| !data[*n]).unwrap_or(70) as u64);
                assert_eq!(content.written(at as u64).unwrap(), written);
            }
        };
        check(&data);
        for (row, column) in [(5, 4), (0, 9), (6, 0), (3, 7)] {
            c.write(id, row * 10 + column, &[7]).unwrap();
            let (rows, columns) = (row / 2 * 2..(row / 2 + 1) * 2, column / 3 * 3..(column / 3 + 1) * 3);
            rows.filter(|r| *r < 7).for_each(|r| columns.clone().filter(|c| *c < 10).for_each(|c| data[(r * 10 + c) as usize] = true));
            check(&data);
        }
        Edit::commit(&*c).unwrap();
        check(&data);
        // A chunk of zeros is removed.
        c.zero(id, 60, 3).unwrap();
        data[60..63].fill(false);
        check(&data);
        Edit::commit(&*c).unwrap();
        check(&data);
        assert!(c.states.shown().get(&keys::chunk(id.serial(), &[3, 0])).unwrap().is_none());
    }
}
