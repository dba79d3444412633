//! Chunked layout: requests to chunks, chunks through cache, filters and index.

use super::chunk::cache::{Chunk, ChunkKey, Found};
use super::chunk::map::AllocationMap;
use super::chunk::pieces::{ByteGrid, Touched};
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::{ChunkIndex, ChunkRecord};
use super::storage::{DatasetBytes, Seek, Storage};
use crate::base::{Address, Error, Result, buffers, limits};
use crate::filter::pipeline::Pipeline;
use crate::meta::Store;
use parking_lot::Mutex;
use rayon::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one request handled at a time: bounds the pieces held.
const SLICE_BYTES: usize = 1 << 20;
/// Up to this many stretches of an unfiltered chunk are read one by one straight from the file.
const DIRECT_STRETCHES: usize = 4;
/// A range of a stored or spilled chunk is read as a whole when it is at most this many times what is
/// wanted of it.
const COVERING_FACTOR: u64 = 2;
/// Stretches up to this length go through a buffer of the thread's own.
const SHORT: usize = 64 << 10;
/// How far ahead of a sequential reader chunks are decoded at least, bytes.
const AHEAD: u64 = 4 << 20;

thread_local! {
    /// A short stretch of a stored chunk on its way to the reader, at most [`SHORT`] bytes.
    static COVERING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

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
    /// Held while the map is made, so that it is made once.
    pub map_lock: Mutex<()>,
}

/// A chunk's bytes, from wherever they are.
enum Source {
    Fill,
    Memory(Arc<Chunk>),
    Spilled(u64),
    Direct(ChunkRecord),
}

impl Chunked {
    /// Fills `buf` from byte `offset`; the range lies inside the dataset.
    pub fn read(&self, env: &Environment, store: &Store, fill: &FillPattern, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut at = offset;
        for slice in buf.chunks_mut(SLICE_BYTES) {
            self.read_slice(env, store, fill, at, slice)?;
            at = at.saturating_add(slice.len() as u64);
        }
        Ok(())
    }

    fn read_slice(&self, env: &Environment, store: &Store, fill: &FillPattern, offset: u64, buf: &mut [u8]) -> Result<()> {
        let touched = self.grid.touched(offset, buf.len());
        // Chunks held at once stay within a quarter of the cache.
        let per_batch = (env.cache.budget() / 4 / self.grid.chunk_bytes().max(1)).clamp(1, 1 << 16) as usize;
        for batch in touched.chunks(per_batch) {
            let mut ready = env.cache.ready(batch.iter().map(|t| self.key(t.chunk)));
            self.decode_missing(env, store, batch, &mut ready)?;
            for (t, chunk) in batch.iter().zip(ready) {
                let source = match chunk {
                    Some(chunk) => Source::Memory(chunk),
                    None => self.source(env, store, t)?,
                };
                self.copy(env, store, fill, offset, t, source, buf)?;
            }
        }
        Ok(())
    }

    /// Decodes in parallel those of several chunks that nobody has or decodes yet.
    fn decode_missing(&self, env: &Environment, store: &Store, batch: &[Touched], ready: &mut [Option<Arc<Chunk>>]) -> Result<()> {
        if self.pipeline.is_empty() {
            return Ok(());
        }
        let missing: Vec<_> = batch.iter().zip(ready).filter(|(t, r)| r.is_none() && !env.cache.is_under_way(self.key(t.chunk))).collect();
        if missing.len() < 2 {
            return Ok(());
        }
        let decode = |(t, slot): (&Touched, &mut Option<Arc<Chunk>>)| {
            if let Source::Memory(chunk) = self.source(env, store, t)? {
                *slot = Some(chunk);
            }
            Ok(())
        };
        env.pool.install(|| missing.into_par_iter().map(decode).collect())
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
            if raw && (t.stretches() <= DIRECT_STRETCHES || self.is_dense(t) || self.grid.chunk_bytes() > env.cache.budget() / 4) {
                return Ok(Source::Direct(found));
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
            self.decode(store, found, raw)
        })?;
        Ok(match found {
            Found::Chunk(c) => Source::Memory(c),
            Found::Spilled(at) => Source::Spilled(at),
        })
    }

    /// Reads and decodes one chunk.
    pub fn decode(&self, store: &Store, record: ChunkRecord, raw: bool) -> Result<Vec<u8>> {
        let bytes = self.grid.chunk_bytes();
        if bytes > limits::CHUNK_BYTES_MAX {
            return Err(Error::limit("chunk", record.address, format!("{bytes} bytes in one chunk")));
        }
        let size = usize::try_from(bytes).map_err(|_| Error::limit("chunk", record.address, "size"))?;
        let len = self.stored_len(store, if raw { ChunkRecord { size: bytes, ..record } } else { record })?;
        if raw {
            let mut kept = buffers::take(len, len.saturating_add(len / 16)).unwrap_or_else(|| vec![0; len]);
            kept.resize(len, 0);
            store.read_raw(record.address, &mut kept)?;
            return Ok(kept);
        }
        // Only for a moment: a larger buffer does as well, and keeps its length so as not to be cleared.
        let most = len.saturating_mul(4).max(1 << 20);
        let mut stored = buffers::take(len, most).unwrap_or_else(|| vec![0; len]);
        stored.resize(stored.len().max(len), 0);
        let read = stored.get_mut(..len).unwrap_or_default();
        let result = store.read_raw(record.address, read).and_then(|()| {
            self.pipeline.decode(read, record.filter_mask, size).map_err(|e| match e {
                crate::filter::FilterError::Unknown { .. } | crate::filter::FilterError::Unsupported { .. } => {
                    Error::unsupported("chunk", record.address, e.to_string())
                }
                _ => Error::corrupt("chunk", record.address, e.to_string()),
            })
        });
        buffers::give(stored);
        result
    }

    /// Length of a filtered chunk's stored bytes, which lie inside the file.
    fn stored_len(&self, store: &Store, record: ChunkRecord) -> Result<usize> {
        let len = record.size;
        if len > limits::CHUNK_BYTES_MAX || record.address.0.checked_add(len).is_none_or(|end| store.len().is_ok_and(|l| end > l)) {
            return Err(Error::corrupt("chunk", record.address, format!("{len} stored bytes reach past the end of the file")));
        }
        usize::try_from(len).map_err(|_| Error::limit("chunk", record.address, "stored size"))
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
    ) -> Result<()> {
        match source {
            Source::Fill => {
                for p in &t.pieces {
                    for (_, at) in self.grid.rows(p) {
                        if let Some(part) = buf.get_mut(at..at.saturating_add(p.len)) {
                            fill.fill(offset.saturating_add(at as u64), part);
                        }
                    }
                }
            }
            Source::Memory(chunk) => {
                let short = || Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say");
                self.grid.scatter(t, chunk.bytes(), 0, buf).ok_or_else(short)?;
                env.cache.note_served(self.key(t.chunk), &chunk, t.bytes());
            }
            Source::Direct(record) => {
                let read = |at: u64, part: &mut [u8]| store.read_raw(record.address.checked_add(at).unwrap_or(Address::UNDEF), part);
                self.copy_stored(t, buf, &read)?;
            }
            Source::Spilled(at) => {
                self.copy_stored(t, buf, &|within, part| env.cache.spill().read(at, within, part))?;
                // The ring may have overwritten the entry meanwhile: then read it again.
                if env.cache.spill().find(self.key(t.chunk)) != Some(at) {
                    let source = self.source(env, store, t)?;
                    return self.copy(env, store, fill, offset, t, source, buf);
                }
            }
        }
        Ok(())
    }

    /// True when most of the range that covers the pieces is wanted.
    fn is_dense(&self, t: &Touched) -> bool {
        let range = self.grid.covering(t);
        range.end.saturating_sub(range.start) <= t.bytes().saturating_mul(COVERING_FACTOR)
    }

    /// Copies the pieces of a chunk that lies in a file; `read` fills a buffer from an offset in the chunk.
    fn copy_stored(&self, t: &Touched, buf: &mut [u8], read: &dyn Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
        let range = self.grid.covering(t);
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        if t.stretches() > 1 && self.is_dense(t) {
            let through = |scratch: &mut Vec<u8>, buf: &mut [u8]| {
                scratch.resize(scratch.len().max(len), 0);
                let part = scratch.get_mut(..len).unwrap_or_default();
                read(range.start, part)?;
                self.grid.scatter(t, part, range.start, buf).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "pieces beyond it"))
            };
            if len <= SHORT {
                return COVERING.with_borrow_mut(|scratch| through(scratch, buf));
            }
            let mut scratch = buffers::take(len, len.saturating_mul(4)).unwrap_or_else(|| vec![0; len]);
            let result = through(&mut scratch, buf);
            buffers::give(scratch);
            return result;
        }
        for p in &t.pieces {
            for (at, to) in self.grid.rows(p) {
                if let Some(part) = buf.get_mut(to..to.saturating_add(p.len)) {
                    read(at, part)?;
                }
            }
        }
        Ok(())
    }

    /// Allocated chunks, listed once.
    pub fn map(&self, store: &Store) -> Result<&AllocationMap> {
        if self.map.get().is_none() {
            let _once = self.map_lock.lock();
            self.map.get_or_init(|| AllocationMap::build(&*self.index, store, &self.grid));
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

/// Starts to decode, in the background, filtered chunks that begin at byte `from` or later and before what
/// a sequential reader at byte `at` will soon want. Returns up to where that was done.
///
/// A reader of a slab of chunks meets each of them at its front and is done with all of them only at its
/// end: the next slab is decoded while this one is copied, if the cache has room for both.
pub fn read_ahead(dataset: &Arc<DatasetBytes>, env: &Arc<Environment>, at: u64, from: u64) -> u64 {
    let Storage::Chunked(c) = &dataset.storage else { return from };
    let (bytes, budget) = (c.grid.chunk_bytes(), env.cache.budget());
    if c.pipeline.is_empty() || bytes > budget / 8 {
        return from;
    }
    let slab = c.grid.slab_bytes();
    let window = if slab <= budget / 4 { slab.max(AHEAD) } else { AHEAD };
    let end = at.saturating_add(window).min(dataset.size);
    for chunk in c.grid.first_chunk_from(from)..c.grid.first_chunk_from(end) {
        if env.cache.contains(c.key(chunk)) {
            continue;
        }
        // At most a quarter of the cache is filled ahead of its readers.
        let ahead = env.ahead_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let charge = AheadCharge { env: env.clone(), bytes };
        if ahead.saturating_add(env.cache.unread_bytes()) > budget / 4 {
            return c.grid.first_byte_in(chunk, 0).unwrap_or(from);
        }
        let dataset = dataset.clone();
        env.pool.spawn(move || {
            if let Storage::Chunked(c) = &dataset.storage {
                // A failure is met, and told, by the reader that wants the chunk.
                let _ = c.source(&charge.env, &dataset.store, &Touched { chunk, pieces: Vec::new() });
            }
            drop(charge);
        });
    }
    end
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

/// Counts datasets so that each has a number of its own in the cache.
pub static NUMBERS: AtomicU64 = AtomicU64::new(1);
