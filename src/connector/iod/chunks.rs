//! Chunks of an open container, with caches; reading elements.

use super::access::IodConnector;
use super::chunk_reader::ChunkReader;
use super::coalesce::groups_to_decode;
use super::dataset::Dataset;
use super::decoding::{Decoded, HELD_BYTES, chunk_key, permit};
use super::image::{Body, SharedImage, Unencoded};
use super::running::Running;
use super::state::State;
use crate::base::Result;
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::iod::{Cell, Data, Extent};
use std::ops::Range;
use std::sync::Arc;

/// Rows of chunks in one slice of a request.
const SLICE_ROWS: u64 = 16384;
/// Longest chunk without filters that requests of sequential readers have as a whole, bytes.
const FILLED_BYTES_MAX: u64 = 1 << 20;
/// Threads that read ahead, at most.
const READERS_AHEAD_MAX: usize = 16;

impl ChunkReader {
    /// A chunk in a cell, decoded in memory. Errors: it is too large for the memory.
    pub(super) fn image(&self, d: &Dataset, cell: &Cell) -> Result<Decoded> {
        self.check_whole(d, cell.len())?;
        let (decode, weight) = (|bytes: Vec<u8>| d.decode(bytes, cell.mask), d.decoding_bytes(cell.len()));
        match &cell.data {
            Data::Inline(bytes) => {
                let _permit = permit(&self.env, weight);
                decode(bytes.to_vec()).map(Unencoded).map(Arc::new).map(Decoded::Memory)
            }
            Data::Extent(extent) => self.cached(chunk_key(d, extent), d.decoded_len(cell.len()), &|| {
                let _permit = permit(&self.env, weight);
                self.container.read_within("chunk", extent, cell.len()).and_then(decode)
            }),
        }
    }

    /// The chunk `key` of the cache; calls `load` for one that it does not have, of about `len`
    /// bytes.
    pub(super) fn cached(&self, key: CacheKey, len: u64, load: &dyn Fn() -> Result<Image>) -> Result<Decoded> {
        match self.env.cache.get(key, len, load)? {
            Found::Chunk(chunk) => Ok(Decoded::Cached(chunk)),
            // Extents are not evicted to it.
            Found::OnDisk => load().map(Unencoded).map(Arc::new).map(Decoded::Memory),
        }
    }

    /// Fetches the chunks of a dataset with bytes in `range` that are in no cache, by threads.
    /// False: enough threads do that already.
    pub(super) fn fetch_ahead(self: &Arc<Self>, state: &State, d: &Arc<Dataset>, range: Range<u64>) -> Result<bool> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0).min(slice_bytes(d));
        let mut missing = Vec::new();
        for chunk in d.grid.pieces(range.start, len) {
            let Some(cell) = state.get(&d.chunk_key(chunk.chunk))? else { continue };
            if let Data::Extent(extent) = &cell.data
                && !self.is_large(d, &cell)
                && !self.env.cache.contains(chunk_key(d, extent))
                // The kernel reads packs ahead.
                && (u64::from(extent.len) > FILLED_BYTES_MAX || self.place_of_whole(d, extent, &chunk).is_none())
            {
                missing.push(cell);
            }
        }
        if missing.is_empty() {
            return Ok(true);
        }
        let groups = groups_to_decode(d, &missing);
        for part in groups.chunks(groups.len().div_ceil(READERS_AHEAD_MAX / 2).max(1)) {
            let (reader, d, part) = (self.clone(), d.clone(), part.to_vec());
            let Some(running) = Running::one_of(&self.ahead, READERS_AHEAD_MAX) else { return Ok(false) };
            let fetch = move || {
                let _running = running;
                for group in &part {
                    reader.fetch_group(&d, group);
                }
            };
            if std::thread::Builder::new().name("h5dir-ahead".into()).spawn(fetch).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The chunk `source`, fetched and decoded if need be.
    pub(super) fn resolved(&self, d: &Dataset, source: Source) -> Result<Decoded> {
        match source {
            Source::Image(image) => Ok(Decoded::Memory(image)),
            Source::Cell(cell) => self.decoded(d, &cell),
            Source::Nothing => Ok(Decoded::Absent),
        }
    }

    /// A chunk, to be changed; a blank one if there is no such chunk.
    pub(super) fn chunk(&self, state: &State, d: &Dataset, key: &[u8]) -> Result<SharedImage> {
        match Source::of(state, key)? {
            Source::Image(image) => Ok(image),
            Source::Cell(cell) => self.image(d, &cell)?.into_image(d),
            Source::Nothing => d.blank(false),
        }
    }

    /// Fills the front of `buf` with the bytes of a dataset from `offset`; returns how many.
    pub(super) fn read_elements(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = d.readable(offset, buf.len());
        let mut at = offset;
        for part in buf.get_mut(..n).unwrap_or_default().chunks_mut(slice_bytes(d)) {
            for chunk in d.grid.pieces(at, part.len()) {
                let decoded = self.resolved(d, Source::of(state, &d.chunk_key(chunk.chunk))?)?;
                decoded.scatter(d, &chunk, part)?;
            }
            at = at.saturating_add(part.len() as u64);
        }
        Ok(n)
    }

    /// As [`Self::read_elements`], with the chunks of a slice fetched and decoded together.
    pub(super) fn read_together(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = d.readable(offset, buf.len());
        let mut at = offset;
        for slice in buf.get_mut(..n).unwrap_or_default().chunks_mut(slice_bytes(d)) {
            self.read_slice(state, d, at, slice)?;
            at = at.saturating_add(slice.len() as u64);
        }
        Ok(n)
    }

    /// Where a request has all bytes of a chunk of `d` in one piece, if they can be read to that
    /// place as they are stored.
    fn place_of_whole(&self, d: &Dataset, extent: &Extent, chunk: &ChunkPieces) -> Option<Range<usize>> {
        let [piece] = chunk.pieces.as_slice() else { return None };
        let bytes = d.grid.chunk_bytes();
        let whole = piece.rows == 1 && piece.len as u64 == bytes && u64::from(extent.len) == bytes;
        let stored_so = d.pipeline.is_empty() && !d.knows_defined() && self.container.is_at_hand(extent);
        (whole && stored_so).then(|| piece.in_buffer..piece.in_buffer.saturating_add(piece.len))
    }

    /// Reads a chunk from the store to `buf`. False, and nothing is done: it is in the cache, or
    /// only parts of it are read, or its stored form is another one.
    fn fill_whole(&self, d: &Dataset, source: &Source, chunk: &ChunkPieces, buf: &mut [u8]) -> Result<bool> {
        let Some(extent) = source.extent() else { return Ok(false) };
        let place = self.place_of_whole(d, extent, chunk).filter(|_| !self.env.cache.contains(chunk_key(d, extent)));
        let Some(target) = place.and_then(|place| buf.get_mut(place)) else { return Ok(false) };
        self.container.fill(extent, target).map(|()| true)
    }

    /// Fills `buf` with the bytes of a dataset from `offset`, all of which it has.
    fn read_slice(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut located = Vec::new();
        for chunk in d.grid.pieces(offset, buf.len()) {
            let source = Source::of(state, &d.chunk_key(chunk.chunk))?;
            if !self.fill_whole(d, &source, &chunk, buf)? {
                located.push((source, chunk));
            }
        }
        let mut located = located.into_iter().peekable();
        while located.peek().is_some() {
            // As many chunks as one reader may hold.
            let (mut part, mut cells, mut held) = (Vec::new(), Vec::new(), 0u64);
            while let Some((source, chunk)) = located.next_if(|_| held < HELD_BYTES) {
                if let Source::Cell(cell) = &source {
                    held = held.saturating_add(d.decoded_len(cell.len()));
                    cells.push(cell.clone());
                }
                part.push((source, chunk));
            }
            let mut fetched = self.fetch_several(d, &cells);
            for (source, pieces) in part {
                let key = source.extent().map(|extent| chunk_key(d, extent));
                let there = source.extent().and_then(|extent| fetched.remove(extent));
                let decoded = there.map_or_else(|| self.resolved(d, source), |chunk| chunk.map(Decoded::Cached))?;
                decoded.scatter(d, &pieces, buf)?;
                if let (Some(key), Decoded::Cached(chunk)) = (key, &decoded) {
                    self.env.cache.record_read(key, chunk, pieces.bytes());
                }
            }
        }
        Ok(())
    }
}

impl IodConnector {
    /// The dataset `id`, from the cache or decoded.
    pub(super) fn dataset_of(&self, state: &State, id: u64) -> Result<Arc<Dataset>> {
        self.derived.dataset(state, id)
    }

    /// Fetches and decodes the chunks of which a write leaves bytes as they are, so that other
    /// writers do not wait for that. The write finds errors again.
    pub(super) fn fetch_for_write(&self, id: u64, offset: u64, len: usize) -> Result<()> {
        let state = self.states.shown();
        let d = self.dataset_of(&state, id)?;
        let n = d.readable(offset, len);
        let mut sources = Vec::new();
        for chunk in d.grid.pieces(offset, n).iter().filter(|chunk| chunk.bytes() < d.grid.chunk_bytes()) {
            sources.push(Source::of(&state, &d.chunk_key(chunk.chunk))?);
        }
        let fetch = |source| if let Source::Cell(cell) = source { self.chunks.image(&d, &cell).map(drop) } else { Ok(()) };
        sources.into_iter().try_for_each(fetch)
    }
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
    /// Where an encoded chunk is stored.
    fn extent(&self) -> Option<&Extent> {
        match self {
            Source::Cell(Cell { data: Data::Extent(extent), .. }) => Some(extent),
            _ => None,
        }
    }

    /// That of the chunk `key`.
    pub fn of(state: &State, key: &[u8]) -> Result<Source> {
        match state.changes.get(key).map(|c| &c.body) {
            Some(Body::Dirty(chunk)) => Ok(Source::Image(chunk.now())),
            _ => Ok(state.get(key)?.map_or(Source::Nothing, Source::Cell)),
        }
    }
}

/// Bytes of a request that are read at a time, to bound the number of pieces of tiny chunks.
fn slice_bytes(d: &Dataset) -> usize {
    usize::try_from(d.grid.row_bytes().saturating_mul(SLICE_ROWS)).unwrap_or(usize::MAX).max(1)
}
