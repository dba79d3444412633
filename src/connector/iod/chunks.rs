//! Chunks of an open container, with caches; reading elements.

use super::access::IodConnector;
use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::decoding::{HELD_BYTES, StoredValue, ValueLocation, chunk_key, permit};
use super::running::Running;
use super::state::State;
use super::value_chunks::{Source, ValueChunks};
use crate::base::Result;
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::changed::{SharedImage, Unencoded};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::dataset::chunk::reading::{self, ChunkLocation, FoundChunk};
use crate::iod::{Cell, Data};
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
    pub(super) fn image(&self, d: &Dataset, cell: &Cell) -> Result<ValueLocation> {
        self.check_whole(d, cell.len())?;
        let (decode, weight) = (|bytes: Vec<u8>| d.decode(bytes, cell.mask), d.decoding_bytes(cell.len()));
        match &cell.data {
            Data::Inline(bytes) => {
                let _permit = permit(&self.env, weight);
                decode(bytes.to_vec()).map(Unencoded::shared).map(ChunkLocation::Changed)
            }
            Data::Extent(extent) => self.cached(chunk_key(d, extent), d.decoded_len(cell.len()), &|| {
                let _permit = permit(&self.env, weight);
                self.container.read_within("chunk", extent, cell.len()).and_then(decode)
            }),
        }
    }

    /// The chunk `key` of the cache; calls `load` for one that it does not have, of about `len`
    /// bytes.
    pub(super) fn cached(&self, key: CacheKey, len: u64, load: &dyn Fn() -> Result<Image>) -> Result<ValueLocation> {
        match self.env.cache.get(key, len, load)? {
            Found::Chunk(chunk) => Ok(ChunkLocation::Memory(key, chunk)),
            // Extents are not evicted to it.
            Found::OnDisk => load().map(Unencoded::shared).map(ChunkLocation::Changed),
        }
    }

    /// Fetches the chunks of a dataset with bytes in `range` that are in no cache, by threads.
    /// False: enough threads do that already.
    pub(super) fn fetch_ahead(self: &Arc<Self>, state: &State, d: &Arc<Dataset>, range: Range<u64>) -> Result<bool> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0).min(slice_bytes(d));
        let chunks = ValueChunks { reader: self, state, d };
        let mut missing = Vec::new();
        for t in d.grid.pieces(range.start, len) {
            // Values in records need no request.
            let Source::Cell(cell @ Cell { data: Data::Extent(_), .. }) = Source::of(state, &d.chunk_key(t.chunk))? else { continue };
            match chunks.find_cell(&cell, &t)? {
                FoundChunk::Cached { key, stored, .. } if !self.env.cache.contains(key) => missing.push(stored),
                // The kernel reads packs ahead.
                FoundChunk::Location(ChunkLocation::Direct(stored)) if u64::from(stored.extent.len) > FILLED_BYTES_MAX => {
                    missing.push(stored)
                }
                _ => {}
            }
        }
        let mut groups = self.groups(d, missing).into_iter().peekable();
        let at_once = groups.len().div_ceil(READERS_AHEAD_MAX / 2).max(1);
        while groups.peek().is_some() {
            let part: Vec<Vec<StoredValue>> = groups.by_ref().take(at_once).collect();
            let (reader, d) = (self.clone(), d.clone());
            let Some(running) = Running::one_of(&self.ahead, READERS_AHEAD_MAX) else { return Ok(false) };
            let fetch = move || {
                let _running = running;
                part.into_iter().for_each(|group| reader.fetch_missing(&d, group));
            };
            if std::thread::Builder::new().name("h5dir-ahead".into()).spawn(fetch).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where the chunk in a cell is, fetched and decoded if need be.
    pub(super) fn location_of(&self, d: &Dataset, cell: &Cell) -> Result<ValueLocation> {
        match &cell.data {
            Data::Extent(extent) if self.is_large(d, cell.len()) => self.decoded_file(d, extent, cell.mask).map(ChunkLocation::ChunkFile),
            _ => self.image(d, cell),
        }
    }

    /// Where the chunk `number` is, fetched and decoded if need be.
    pub(super) fn location(&self, state: &State, d: &Dataset, number: u64) -> Result<ValueLocation> {
        reading::location(ValueChunks { reader: self, state, d }, &ChunkPieces { chunk: number, pieces: Vec::new() })
    }

    /// A chunk, to be changed; a blank one if there is no such chunk.
    pub(super) fn chunk(&self, state: &State, d: &Dataset, key: &[u8]) -> Result<SharedImage> {
        match Source::of(state, key)? {
            Source::Image(image) => Ok(image),
            Source::Cell(cell) => self.to_change(d, &cell),
            Source::Nothing => self.blank(d, false),
        }
    }

    /// The chunk in a cell, to be changed in memory.
    pub(super) fn in_memory(&self, d: &Dataset, cell: &Cell) -> Result<SharedImage> {
        match self.image(d, cell)? {
            ChunkLocation::Changed(image) => Ok(image),
            location => location.image().map_or_else(|| d.blank(false), |image| Ok(Unencoded::shared(image.duplicate()))),
        }
    }

    /// Fills the front of `buf` with the bytes of a dataset from `offset`, chunk by chunk; returns
    /// how many.
    pub(super) fn read_elements(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read(ValueChunks { reader: self, state, d }, 1, offset, buf)
    }

    /// As [`Self::read_elements`], with several chunks fetched and decoded together: as many as one
    /// reader may hold.
    pub(super) fn read_together(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let held = usize::try_from(HELD_BYTES / d.grid.chunk_bytes().max(1)).unwrap_or(usize::MAX);
        self.read(ValueChunks { reader: self, state, d }, held, offset, buf)
    }

    fn read(&self, chunks: ValueChunks<'_>, most: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (d, mut at) = (chunks.d, offset);
        let n = d.readable(offset, buf.len());
        let mut direct = |stored: StoredValue, t: &ChunkPieces, buf: &mut [u8]| {
            let place = t.pieces.first().map(|piece| piece.in_buffer..piece.in_buffer.saturating_add(piece.len));
            place.and_then(|place| buf.get_mut(place)).map_or(Ok(()), |target| self.container.fill(&stored.extent, target))
        };
        for slice in buf.get_mut(..n).unwrap_or_default().chunks_mut(slice_bytes(d)) {
            let pieces = d.grid.pieces(at, slice.len());
            let next = at.saturating_add(slice.len() as u64);
            reading::read(chunks, &pieces, (most, false), (at, slice), &mut direct)?;
            at = next;
        }
        Ok(n)
    }
}

impl IodConnector {
    /// Fetches and decodes the chunks of which a write leaves bytes as they are, so that other
    /// writers do not wait for that. The write finds errors again.
    pub(super) fn fetch_for_write(&self, id: u64, offset: u64, len: usize) -> Result<()> {
        let state = self.states.shown();
        let d = self.objects.dataset_of(&state, id)?;
        let n = d.readable(offset, len);
        let mut sources = Vec::new();
        for chunk in d.grid.pieces(offset, n).iter().filter(|chunk| chunk.bytes() < d.grid.chunk_bytes()) {
            sources.push(Source::of(&state, &d.chunk_key(chunk.chunk))?);
        }
        let fetch = |source| match source {
            Source::Cell(cell) => self.chunks.location_of(&d, &cell).map(drop),
            Source::Image(_) | Source::Nothing => Ok(()),
        };
        sources.into_iter().try_for_each(fetch)
    }
}

/// Bytes of a request that are read at a time, to bound the number of pieces of tiny chunks.
fn slice_bytes(d: &Dataset) -> usize {
    usize::try_from(d.grid.row_bytes().saturating_mul(SLICE_ROWS)).unwrap_or(usize::MAX).max(1)
}
