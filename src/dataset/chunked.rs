//! Chunked layout: requests to chunks, chunks through cache, filters and index.

use super::chunk::cache::{ChunkKey, Found};
use super::chunk::map::{AllocationMap, MapBudget};
use super::chunk::pieces::{ByteGrid, Piece, Touched};
use super::chunk::spool::{Spooled, StreamPlan};
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::{ChunkIndex, ChunkRecord};
use super::storage::{DatasetBytes, Seek, Storage};
use crate::base::{Address, Error, Result, limits};
use crate::filter::pipeline::Pipeline;
use crate::meta::Store;
use parking_lot::Mutex;
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Bytes of one request handled at a time: bounds the pieces held.
const SLICE_BYTES: usize = 1 << 20;
/// Up to this many pieces of an unfiltered chunk are read straight from the file.
const DIRECT_PIECES: usize = 4;

/// Rows of chunks that one slice of a request may cross: bounds the pieces of tiny chunks.
const SLICE_ROWS: u64 = 8192;
/// Chunks up to this many bytes are decoded in memory whatever the cache.
const WHOLE_MIN: u64 = 64 << 20;
/// Chunks up to this many bytes are inflated to a temporary file whatever the cache.
const STREAMED_MIN: u64 = 2 << 30;
/// Largest ratio of a chunk's bytes to its stored bytes at which it may take a good part of the cache.
const RATIO_MAX: u64 = 64;
/// Stored bytes that a chunk may have beyond twice its own.
const STORED_SLACK: u64 = 1 << 20;
/// Chunks of fewer bytes are decoded without asking for leave.
const GATED_MIN: u64 = 4 << 20;

/// A chunked dataset's storage.
pub struct Chunked {
    /// Number of the dataset in the chunk cache.
    pub number: u64,
    /// Geometry.
    pub grid: ByteGrid,
    /// Where chunks lie.
    pub index: Box<dyn ChunkIndex>,
    /// Filters.
    pub pipeline: Pipeline,
    /// Chunks that reach over the dataset's edge are stored unfiltered.
    pub raw_edges: bool,
    /// Allocated chunks, found when first asked for: `None` inside = too many to keep.
    pub map: OnceLock<Result<AllocationMap>>,
    /// Memory for the map.
    pub maps: Arc<MapBudget>,
    /// Held while the map is made, so that it is made once.
    pub map_lock: Mutex<()>,
}

/// A chunk's bytes, from wherever they are.
enum Source {
    Fill,
    Memory(Arc<super::chunk::cache::Chunk>),
    Spilled(u64),
    Spooled(Arc<Spooled>),
    Direct(ChunkRecord),
}

/// Bytes to be read straight from the file; neighbours are read together, or small chunks would cost a
/// system call each.
struct DirectRun {
    at: Address,
    from: usize,
    len: usize,
}

impl Default for DirectRun {
    fn default() -> Self {
        DirectRun { at: Address::UNDEF, from: 0, len: 0 }
    }
}

impl DirectRun {
    fn add(&mut self, store: &Store, at: Address, p: &Piece, buf: &mut [u8]) -> Result<()> {
        let follows =
            self.len > 0 && self.from.checked_add(self.len) == Some(p.in_buffer) && self.at.checked_add(self.len as u64) == Some(at);
        if follows {
            self.len = self.len.saturating_add(p.len);
            return Ok(());
        }
        self.flush(store, buf)?;
        *self = DirectRun { at, from: p.in_buffer, len: p.len };
        Ok(())
    }

    fn flush(&mut self, store: &Store, buf: &mut [u8]) -> Result<()> {
        let run = std::mem::take(self);
        match buf.get_mut(run.from..run.from.saturating_add(run.len)) {
            Some(part) if run.len > 0 => store.read_raw(run.at, part),
            _ => Ok(()),
        }
    }
}

impl Chunked {
    /// Fills `buf` from byte `offset`; the range lies inside the dataset.
    pub fn read(&self, env: &Environment, store: &Store, fill: &FillPattern, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let holes = self.hole_at(at).min(rest.len());
            if holes > 0 {
                let (hole, tail) = rest.split_at_mut(holes);
                fill.fill(at, hole);
                (at, rest) = (at.saturating_add(holes as u64), tail);
                continue;
            }
            let (slice, tail) = rest.split_at_mut(self.slice_bytes(SLICE_BYTES).min(rest.len()));
            self.read_slice(env, store, fill, at, slice)?;
            (at, rest) = (at.saturating_add(slice.len() as u64), tail);
        }
        Ok(())
    }

    /// Bytes from `offset` on of which a map, if it was made, says that they lie in no allocated chunk.
    fn hole_at(&self, offset: u64) -> usize {
        let Some(Ok(map)) = self.map.get() else { return 0 };
        let next = map.next_data(&self.grid, offset).unwrap_or(u64::MAX);
        usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX)
    }

    /// Bytes of a request handled at a time, at most `most`.
    fn slice_bytes(&self, most: usize) -> usize {
        let rows = self.grid.row_bytes().saturating_mul(SLICE_ROWS);
        usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, most)
    }

    fn read_slice(&self, env: &Environment, store: &Store, fill: &FillPattern, offset: u64, buf: &mut [u8]) -> Result<()> {
        let touched = self.grid.touched(offset, buf.len());
        // Chunks held at once stay within a quarter of the cache.
        let per_batch = (env.cache.budget() / 4 / self.grid.chunk_bytes().max(1)).clamp(1, 1 << 16) as usize;
        let mut direct = DirectRun::default();
        for batch in touched.chunks(per_batch) {
            if let [only] = batch {
                let source = self.source(env, store, only)?;
                self.copy(env, store, fill, offset, only, source, buf, &mut direct)?;
                continue;
            }
            let sources: Vec<Result<Source>> = if batch.iter().all(|t| env.cache.contains(self.key(t.chunk))) {
                batch.iter().map(|t| self.source(env, store, t)).collect()
            } else {
                env.pool.install(|| batch.par_iter().map(|t| self.source(env, store, t)).collect())
            };
            for (t, source) in batch.iter().zip(sources) {
                self.copy(env, store, fill, offset, t, source?, buf, &mut direct)?;
            }
        }
        direct.flush(store, buf)
    }

    fn key(&self, chunk: u64) -> ChunkKey {
        ChunkKey { dataset: self.number, chunk }
    }

    /// True when the chunk's stored bytes are its elements.
    fn is_raw(&self, scaled: &[u64]) -> bool {
        self.pipeline.is_empty() || (self.raw_edges && self.grid.is_edge(scaled))
    }

    fn source(&self, env: &Environment, store: &Store, t: &Touched) -> Result<Source> {
        let key = self.key(t.chunk);
        let mut record = None;
        if !env.cache.contains(key) {
            let scaled = self.grid.scaled(t.chunk);
            let Some(found) = self.index.lookup(store, &scaled)? else { return Ok(Source::Fill) };
            let raw = self.is_raw(&scaled);
            if raw && (t.pieces.len() <= DIRECT_PIECES || self.grid.chunk_bytes() > env.cache.budget() / 4) {
                return Ok(Source::Direct(found));
            }
            if !raw && let Some(source) = self.oversized(env, store, key, found)? {
                return Ok(source);
            }
            record = Some((found, raw));
        }
        let found = env.cache.get(key, self.grid.chunk_bytes(), || {
            let (found, raw) = match record {
                Some(r) => r,
                None => {
                    // It was in the cache a moment ago and has been evicted since.
                    let scaled = self.grid.scaled(t.chunk);
                    let lost = || Error::corrupt("chunk index", Address::UNDEF, "a chunk is no longer there");
                    (self.index.lookup(store, &scaled)?.ok_or_else(lost)?, self.is_raw(&scaled))
                }
            };
            let bytes = self.grid.chunk_bytes();
            let weight = bytes.saturating_mul(2).saturating_add(found.size);
            let _permit = (bytes >= GATED_MIN).then(|| env.decoding.enter(weight));
            self.decode(store, found, raw)
        })?;
        Ok(match found {
            Found::Chunk(c) => Source::Memory(c),
            Found::Spilled(at) => Source::Spilled(at),
        })
    }

    /// The source of a chunk that is too large to be decoded in memory; `None` when it is not.
    /// What memory it may take depends on the cache and on how many stored bytes stand for it.
    fn oversized(&self, env: &Environment, store: &Store, key: ChunkKey, record: ChunkRecord) -> Result<Option<Source>> {
        let (bytes, budget) = (self.grid.chunk_bytes(), env.cache.budget());
        let part = if record.size.saturating_mul(RATIO_MAX) >= bytes { 4 } else { 16 };
        if bytes <= WHOLE_MIN.max(budget / part) {
            return Ok(None);
        }
        let skipped = |i: usize| u32::try_from(i).ok().and_then(|i| record.filter_mask.checked_shr(i)).unwrap_or(0) & 1 != 0;
        if record.size == bytes && (0..self.pipeline.filters.len()).all(skipped) {
            return Ok(Some(Source::Direct(record)));
        }
        let refuse = |need: u64| {
            let detail = format!("chunks of {bytes} bytes: too large for the caches, a --cache-size of {need} would do");
            Err(Error::limit("chunk", record.address, detail))
        };
        let Some(plan) = StreamPlan::of(&self.pipeline, record.filter_mask, bytes) else { return refuse(bytes.saturating_mul(part)) };
        if bytes > STREAMED_MIN.max(budget) || bytes > env.spools.capacity() {
            return refuse(bytes);
        }
        self.check_stored(store, record, record.size)?;
        let mut read = |from: u64, buf: &mut [u8]| store.read_raw(record.address.checked_add(from).unwrap_or(Address::UNDEF), buf);
        let make = || {
            env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
            Spooled::make(plan, bytes, record.size, &mut read, record.address)
        };
        env.spools.get(key, bytes, make).map(|s| Some(Source::Spooled(s)))
    }

    /// Reads and decodes one chunk.
    pub fn decode(&self, store: &Store, record: ChunkRecord, raw: bool) -> Result<Vec<u8>> {
        let bytes = self.grid.chunk_bytes();
        if bytes > limits::CHUNK_BYTES_MAX {
            return Err(Error::limit("chunk", record.address, format!("{bytes} bytes in one chunk")));
        }
        let size = usize::try_from(bytes).map_err(|_| Error::limit("chunk", record.address, "size"))?;
        let stored = self.stored(store, record, if raw { Some(bytes) } else { None })?;
        if raw {
            return Ok(stored);
        }
        self.pipeline.decode(stored, record.filter_mask, size).map_err(|e| match e {
            crate::filter::FilterError::Unknown { .. } | crate::filter::FilterError::Unsupported { .. } => {
                Error::unsupported("chunk", record.address, e.to_string())
            }
            _ => Error::corrupt("chunk", record.address, e.to_string()),
        })
    }

    /// The stored bytes of a chunk; `exactly` when they must be that many.
    pub fn stored(&self, store: &Store, record: ChunkRecord, exactly: Option<u64>) -> Result<Vec<u8>> {
        let len = exactly.unwrap_or(record.size);
        self.check_stored(store, record, len)?;
        let mut stored = vec![0; usize::try_from(len).map_err(|_| Error::limit("chunk", record.address, "stored size"))?];
        store.read_raw(record.address, &mut stored)?;
        Ok(stored)
    }

    /// `len` stored bytes lie in the file and are not many more than the chunk's: no filter of use makes it longer.
    fn check_stored(&self, store: &Store, record: ChunkRecord, len: u64) -> Result<()> {
        if record.address.0.checked_add(len).is_none_or(|end| store.len().is_ok_and(|l| end > l)) {
            return Err(Error::corrupt("chunk", record.address, format!("{len} stored bytes reach past the end of the file")));
        }
        let most = self.grid.chunk_bytes().saturating_mul(2).saturating_add(STORED_SLACK);
        if len > limits::CHUNK_BYTES_MAX || len > most {
            return Err(Error::limit("chunk", record.address, format!("{len} stored bytes for {} of a chunk", self.grid.chunk_bytes())));
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn copy(
        &self,
        env: &Environment,
        store: &Store,
        fill: &FillPattern,
        offset: u64,
        t: &Touched,
        source: Source,
        buf: &mut [u8],
        direct: &mut DirectRun,
    ) -> Result<()> {
        let target = |buf: &mut [u8], p: &Piece, f: &mut dyn FnMut(&mut [u8]) -> Result<()>| match buf
            .get_mut(p.in_buffer..p.in_buffer.saturating_add(p.len))
        {
            Some(part) => f(part),
            None => Ok(()),
        };
        match source {
            Source::Fill => {
                for p in &t.pieces {
                    target(buf, p, &mut |part| {
                        fill.fill(offset.saturating_add(p.in_buffer as u64), part);
                        Ok(())
                    })?;
                }
            }
            Source::Memory(chunk) => {
                let mut served = 0u64;
                for p in &t.pieces {
                    let from = usize::try_from(p.in_chunk).unwrap_or(usize::MAX);
                    let bytes = from.checked_add(p.len).and_then(|end| chunk.bytes().get(from..end));
                    let bytes = bytes.ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say"))?;
                    target(buf, p, &mut |part| {
                        part.copy_from_slice(bytes);
                        Ok(())
                    })?;
                    served = served.saturating_add(p.len as u64);
                }
                chunk.note_served(served);
            }
            Source::Spooled(chunk) => {
                for p in &t.pieces {
                    target(buf, p, &mut |part| chunk.read(p.in_chunk, part))?;
                }
            }
            Source::Direct(record) => {
                for p in &t.pieces {
                    direct.add(store, record.address.checked_add(p.in_chunk).unwrap_or(Address::UNDEF), p, buf)?;
                }
            }
            Source::Spilled(at) => {
                for p in &t.pieces {
                    target(buf, p, &mut |part| env.cache.spill().read(at, p.in_chunk, part))?;
                }
                // The ring may have overwritten the entry meanwhile: then read it again.
                if env.cache.spill().find(self.key(t.chunk)) != Some(at) {
                    let source = self.source(env, store, t)?;
                    return self.copy(env, store, fill, offset, t, source, buf, direct);
                }
            }
        }
        Ok(())
    }

    /// Allocated chunks, listed once.
    pub fn map(&self, store: &Store) -> Result<&AllocationMap> {
        if self.map.get().is_none() {
            let _once = self.map_lock.lock();
            self.map.get_or_init(|| AllocationMap::build(&*self.index, store, &self.grid, &self.maps));
        }
        match self.map.get() {
            Some(Ok(m)) => Ok(m),
            Some(Err(e)) => Err(e.clone()),
            None => Err(Error::corrupt("chunk index", Address::UNDEF, "no allocation map")),
        }
    }

    /// Stored bytes of all chunks.
    pub fn allocated(&self, store: &Store) -> Result<u64> {
        Ok(self.map(store)?.stored_bytes)
    }

    /// Next data or hole at or after `offset`.
    pub fn seek(&self, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let map = self.map(store)?;
        Ok(match what {
            Seek::Data => map.next_data(&self.grid, offset),
            Seek::Hole => Some(map.next_hole(&self.grid, offset)),
        })
    }
}

/// Decodes, in the background, filtered chunks of bytes `offset .. offset + len` that nobody has yet.
pub fn read_ahead(dataset: &Arc<DatasetBytes>, env: &Arc<Environment>, offset: u64, len: u64) {
    let Storage::Chunked(c) = &dataset.storage else { return };
    if c.pipeline.is_empty() || c.grid.chunk_bytes() > (env.cache.budget() / 8).min(WHOLE_MIN) {
        return;
    }
    let len = usize::try_from(len.min(dataset.size.saturating_sub(offset))).unwrap_or(0).min(c.slice_bytes(4 * SLICE_BYTES));
    for t in c.grid.touched(offset, len) {
        if env.cache.contains(c.key(t.chunk)) {
            continue;
        }
        let bytes = c.grid.chunk_bytes();
        // At most an eighth of the cache is filled ahead of its readers.
        if env.ahead_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > env.cache.budget() / 8 {
            env.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        let charge = AheadCharge { env: env.clone(), bytes };
        let dataset = dataset.clone();
        env.pool.spawn(move || {
            if let Storage::Chunked(c) = &dataset.storage {
                // A failure is met, and told, by the reader that wants the chunk.
                let _ = c.source(&charge.env, &dataset.store, &Touched { chunk: t.chunk, pieces: t.pieces });
            }
            drop(charge);
        });
    }
}

struct AheadCharge {
    env: Arc<Environment>,
    bytes: u64,
}

impl Drop for AheadCharge {
    fn drop(&mut self) {
        self.env.ahead_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
