//! Chunked layout: requests to chunks, chunks through cache, filters and index.

use super::chunk::cache::{Chunk, ChunkKey, Found};
use super::chunk::dirty::DirtyChunk;
use super::chunk::map::{AllocationMap, MapBudget};
use super::chunk::pieces::{ByteGrid, Piece, Touched};
use super::chunk::spool::{Spooled, StreamPlan};
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::{ChunkIndex, ChunkRecord};
use super::storage::{DatasetBytes, Storage};
use crate::base::{Address, Error, Result, buffers, limits};
use crate::filter::pipeline::Pipeline;
use crate::meta::Store;
use parking_lot::Mutex;
use rayon::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

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
/// Bytes of chunks that one thread takes at a time: waking it costs as much as a small chunk.
const AHEAD_TASK: u64 = 256 << 10;
/// Chunks looked at for one such request.
const AHEAD_CHUNKS: u64 = 1024;

thread_local! {
    /// A short stretch of a stored chunk on its way to the reader, at most [`SHORT`] bytes.
    static COVERING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Rows of chunks that one slice of a request may cross: bounds the pieces of tiny chunks.
const SLICE_ROWS: u64 = 8192;
/// Chunks up to this many bytes are decoded in memory whatever the cache.
const WHOLE_MIN: u64 = 64 << 20;
/// Chunks up to this many bytes are inflated to a temporary file whatever the cache.
pub(super) const STREAMED_MIN: u64 = 2 << 30;
/// Chunks up to this many bytes are decoded in memory for a moment when there is no other way.
const INDIVISIBLE_MAX: u64 = 2 << 30;
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
    /// Every chunk has its place, and stays there.
    pub is_implicit: bool,
    /// Allocated chunks, found when first asked for: `None` inside = too many to keep.
    pub map: OnceLock<Result<AllocationMap>>,
    /// Memory for the map.
    pub maps: Arc<MapBudget>,
    /// Held while the map is made, so that it is made once.
    pub map_lock: Mutex<()>,
}

/// A chunk's bytes, from wherever they are.
pub(super) enum Source {
    Fill,
    Memory(Arc<Chunk>),
    Changed(Arc<DirtyChunk>),
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
            // The map knows nothing of chunks that are not in the file yet.
            let holes = if env.dirty.has(self.number) { 0 } else { self.hole_at(at).min(rest.len()) };
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
            if env.dirty.has(self.number) && batch.iter().any(|t| env.dirty.get(self.key(t.chunk)).is_some()) {
                self.read_changed(env, store, fill, offset, batch, buf, &mut direct)?;
                continue;
            }
            let mut ready = match self.pipeline.is_empty() && batch.iter().all(|t| self.is_dense(t)) {
                // These are never in the cache.
                true => vec![None; batch.len()],
                false => env.cache.ready(batch.iter().map(|t| self.key(t.chunk))),
            };
            self.decode_missing(env, store, batch, &mut ready)?;
            for (t, chunk) in batch.iter().zip(ready) {
                let source = match chunk {
                    Some(chunk) => Source::Memory(chunk),
                    None => self.source(env, store, t)?,
                };
                self.copy(env, store, fill, offset, t, source, buf, &mut direct)?;
            }
        }
        direct.flush(store, buf)
    }

    /// Reads a batch some of whose chunks are not in the file yet.
    #[allow(clippy::too_many_arguments)]
    fn read_changed(
        &self,
        env: &Environment,
        store: &Store,
        fill: &FillPattern,
        offset: u64,
        batch: &[Touched],
        buf: &mut [u8],
        direct: &mut DirectRun,
    ) -> Result<()> {
        for t in batch {
            let source = match env.dirty.get(self.key(t.chunk)) {
                Some(chunk) => Source::Changed(chunk),
                None => self.source(env, store, t)?,
            };
            self.copy(env, store, fill, offset, t, source, buf, direct)?;
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

    /// The chunk's key in the caches.
    pub fn key(&self, chunk: u64) -> ChunkKey {
        ChunkKey { dataset: self.number, chunk }
    }

    /// True when the chunk's stored bytes are its elements.
    pub fn is_raw(&self, scaled: &[u64]) -> bool {
        self.pipeline.is_empty() || (self.raw_edges && self.grid.is_edge(scaled))
    }

    /// Bytes that a chunk takes in the file. What a changed extent makes of a partial chunk waits in memory: the record is of what
    /// was stored under the extent before.
    pub fn stored_size(&self, record: ChunkRecord) -> u64 {
        if self.pipeline.is_empty() { self.grid.chunk_bytes() } else { record.size }
    }

    /// True when the elements of a chunk can be changed where they are stored.
    pub fn is_in_place(&self, scaled: &[u64], record: ChunkRecord) -> bool {
        self.is_raw(scaled) && self.stored_size(record) == self.grid.chunk_bytes()
    }

    fn source(&self, env: &Environment, store: &Store, t: &Touched) -> Result<Source> {
        let key = self.key(t.chunk);
        let mut record = None;
        if self.pipeline.is_empty() && self.is_dense(t) {
            let found = self.index.lookup(store, &self.grid.scaled(t.chunk))?;
            return Ok(found.map_or(Source::Fill, Source::Direct));
        }
        if !env.cache.contains(key) {
            let scaled = self.grid.scaled(t.chunk);
            let Some(found) = self.index.lookup(store, &scaled)? else { return Ok(Source::Fill) };
            let raw = self.is_raw(&scaled);
            if raw && (t.stretches() <= DIRECT_STRETCHES || self.is_dense(t) || self.grid.chunk_bytes() > env.cache.budget() / 4) {
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
    pub(super) fn oversized(&self, env: &Environment, store: &Store, key: ChunkKey, record: ChunkRecord) -> Result<Option<Source>> {
        let (bytes, budget) = (self.grid.chunk_bytes(), env.cache.budget());
        let part = if record.size.saturating_mul(RATIO_MAX) >= bytes { 2 } else { 16 };
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
        let Some(plan) = StreamPlan::of(&self.pipeline, record.filter_mask, bytes) else {
            let (most, times) = if part == 2 { (INDIVISIBLE_MAX, 2) } else { (env.whole_chunk_max(), 4) };
            if bytes > most {
                return refuse(bytes.saturating_mul(times));
            }
            if bytes > env.spools.capacity() {
                return Ok(None);
            }
            return env.spools.get(key, bytes, || self.spool_whole(env, store, record)).map(|s| Some(Source::Spooled(s)));
        };
        if bytes > STREAMED_MIN.max(budget) || bytes > env.spools.capacity() {
            return refuse(bytes);
        }
        self.spooled(env, store, key, record, plan).map(|s| Some(Source::Spooled(s)))
    }

    /// Decodes a chunk in memory and moves it to a file, so that the next row need not decode it again.
    fn spool_whole(&self, env: &Environment, store: &Store, record: ChunkRecord) -> Result<Spooled> {
        let weight = self.grid.chunk_bytes().saturating_mul(2).saturating_add(record.size);
        let _permit = env.decoding.enter(weight);
        env.share_temporary_space(0);
        env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
        Spooled::keep(&self.decode(store, record, false)?, record.address)
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

    /// Length of a chunk's stored bytes, which lie inside the file.
    fn stored_len(&self, store: &Store, record: ChunkRecord) -> Result<usize> {
        self.check_stored(store, record, record.size)?;
        usize::try_from(record.size).map_err(|_| Error::limit("chunk", record.address, "stored size"))
    }

    /// `len` stored bytes lie in the file and are not many more than the chunk's: no filter of use makes it longer.
    pub(super) fn check_stored(&self, store: &Store, record: ChunkRecord, len: u64) -> Result<()> {
        if record.address.0.checked_add(len).is_none_or(|end| store.file_len().is_ok_and(|l| end > l)) {
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
            Source::Changed(chunk) if chunk.file().is_some() => self.copy_stored(t, buf, &|at, part| chunk.get(at, part))?,
            Source::Changed(chunk) => {
                let short = || Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say");
                self.grid.scatter(t, &chunk.bytes(), 0, buf).ok_or_else(short)?;
            }
            Source::Spooled(chunk) => {
                for p in &t.pieces {
                    for (at, to) in self.grid.rows(p) {
                        if let Some(part) = buf.get_mut(to..to.saturating_add(p.len)) {
                            chunk.read(at, part)?;
                        }
                    }
                }
            }
            Source::Direct(record) => {
                // One stretch may continue the one before it; several are gathered here.
                if let [p] = t.pieces.as_slice()
                    && p.rows == 1
                {
                    return direct.add(store, record.address.checked_add(p.in_chunk).unwrap_or(Address::UNDEF), p, buf);
                }
                let read = |at: u64, part: &mut [u8]| store.read_raw(record.address.checked_add(at).unwrap_or(Address::UNDEF), part);
                self.copy_stored(t, buf, &read)?;
            }
            Source::Spilled(at) => {
                let read = self.copy_stored(t, buf, &|within, part| env.cache.spill().read(at, within, part));
                if let Err(e) = &read {
                    tracing::warn!("{e}; the chunk is decoded again");
                    env.cache.spill().remove(self.key(t.chunk));
                }
                // The ring may have overwritten the entry meanwhile: then read it again.
                if read.is_err() || env.cache.spill().find(self.key(t.chunk)) != Some(at) {
                    let source = self.source(env, store, t)?;
                    return self.copy(env, store, fill, offset, t, source, buf, direct);
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
            self.map.get_or_init(|| AllocationMap::build(&*self.index, store, &self.grid, &self.maps));
        }
        match self.map.get() {
            Some(Ok(m)) => Ok(m),
            Some(Err(e)) => Err(e.clone()),
            None => Err(Error::corrupt("chunk index", Address::UNDEF, "no allocation map")),
        }
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
    if c.pipeline.is_empty() || bytes > (budget / 8).min(WHOLE_MIN) {
        return from;
    }
    let slab = c.grid.slab_bytes();
    let window = if slab <= budget / 4 { slab.max(AHEAD) } else { AHEAD };
    let end = at.saturating_add(window).min(dataset.size);
    let first = c.grid.first_chunk_from(from);
    let mut task = AheadTask::new(dataset, env);
    let mut done = end;
    for chunk in first..c.grid.first_chunk_from(end) {
        // At most a quarter of the cache is filled ahead of its readers.
        let full = |task: &AheadTask| task.queued().saturating_add(env.cache.unread_bytes()).saturating_add(bytes) > budget / 4;
        if chunk.saturating_sub(first) > AHEAD_CHUNKS || full(&task) {
            done = c.grid.first_byte_in(chunk, 0).unwrap_or(from);
            break;
        }
        if !env.cache.contains(c.key(chunk)) {
            task.add(chunk, bytes);
            if task.bytes >= AHEAD_TASK {
                std::mem::replace(&mut task, AheadTask::new(dataset, env)).start();
            }
        }
    }
    task.start();
    done
}

/// Chunks that one thread decodes ahead of a reader.
struct AheadTask {
    dataset: Arc<DatasetBytes>,
    env: Arc<Environment>,
    chunks: Vec<u64>,
    bytes: u64,
}

impl AheadTask {
    fn new(dataset: &Arc<DatasetBytes>, env: &Arc<Environment>) -> Self {
        AheadTask { dataset: dataset.clone(), env: env.clone(), chunks: Vec::new(), bytes: 0 }
    }

    /// Bytes of all chunks that are to be decoded ahead.
    fn queued(&self) -> u64 {
        self.env.ahead_bytes.load(Ordering::Relaxed)
    }

    fn add(&mut self, chunk: u64, bytes: u64) {
        self.chunks.push(chunk);
        self.bytes = self.bytes.saturating_add(bytes);
        self.env.ahead_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn start(self) {
        if self.chunks.is_empty() {
            return;
        }
        self.env.clone().pool.spawn(move || {
            if let Storage::Chunked(c) = &self.dataset.storage {
                for &chunk in &self.chunks {
                    // A failure is met, and told, by the reader that wants the chunk.
                    let _ = c.source(&self.env, &self.dataset.store, &Touched { chunk, pieces: Vec::new() });
                }
            }
        });
    }
}

impl Drop for AheadTask {
    fn drop(&mut self) {
        self.env.ahead_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
