//! What all datasets of a mount share: chunk cache, decode threads, and access to other files.

use super::chunk::cache::ChunkCache;
use super::chunk::dirty::DirtyChunks;
use super::chunk::gate::Gate;
use super::chunk::map::MapBudget;
use super::chunk::spool::Spools;
use super::chunk::tally::Tally;
use super::chunk::temporary;
use crate::base::{Error, Result, buffers};
use crate::file::{FileDriver, WriteDriver};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least memory of the decodes that run at the same time, bytes.
const DECODING_MIN: u64 = 128 << 20;
/// Memory of all allocation maps, bytes.
const MAPS_BYTES: u64 = 48 << 20;
/// Chunks that may be changed whatever the size of the cache, bytes.
const CHANGED_CHUNK_MIN: u64 = 64 << 20;
/// Chunks that may be in memory for a moment whatever the size of the cache, though few bytes are stored of them, bytes.
const WHOLE_CHUNK_MIN: u64 = 96 << 20;
/// Changed chunks in files.
const CHANGED_FILES: u64 = 16;
/// Least and most bytes of spare buffers kept beside the cache.
const SPARE_BYTES: (usize, usize) = (4 << 20, 64 << 20);

/// Shared by every reader of a mount.
pub struct Environment {
    /// Decoded chunks.
    pub cache: ChunkCache,
    /// Changed chunks that are not in their files yet.
    pub dirty: DirtyChunks,
    /// Decoded chunks that are too large for memory.
    pub spools: Spools,
    /// Stored bytes of datasets that are changed.
    pub stored: Tally,
    /// Memory of the decodes that run.
    pub decoding: Gate,
    /// Memory of all allocation maps.
    pub maps: Arc<MapBudget>,
    /// Threads that decode chunks of one request in parallel and read ahead.
    pub pool: Arc<rayon::ThreadPool>,
    /// Read-ahead tasks queued or running, bytes of decoded chunks.
    pub ahead_bytes: AtomicU64,
    /// Chunks that were encoded from files.
    pub streamed: AtomicU64,
    /// Chunks that may be changed in memory whatever the size of the cache, bytes.
    pub changed_chunk_min: u64,
    /// Chunks that may be in memory for a moment whatever the size of the cache, bytes.
    pub whole_chunk_min: u64,
    /// Chunks that were copied as they are stored, without decoding them.
    pub copied: AtomicU64,
    next_number: AtomicU64,
}

impl Environment {
    /// `cache_bytes` of chunk cache, `spill_bytes` of temporary files (at most half of what is free for them), at most `threads` decoders (0 = any
    /// number): one per core, as decoding waits for nothing.
    pub fn new(cache_bytes: u64, spill_bytes: u64, threads: usize) -> Result<Environment> {
        let spill_bytes = spill_bytes.min(temporary::free_space() / 2);
        // Enough for the chunks of a slab that are released together, little beside the cache.
        buffers::keep(usize::try_from(cache_bytes / 16).unwrap_or(usize::MAX).clamp(SPARE_BYTES.0, SPARE_BYTES.1));
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores } else { threads.min(cores) };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("decode-{i}"))
            // A chunk read ahead that panics is met again, and answered, by the reader that wants it.
            .panic_handler(|_| tracing::error!("a decode thread panicked"))
            .build()
            .map_err(|_| Error::Io { operation: "start decode threads", address: crate::base::Address(0), errno: libc::EAGAIN })?;
        Ok(Self::with_pool(cache_bytes, spill_bytes, Arc::new(pool)))
    }

    /// As `new`, with decoders that another environment may use as well.
    pub fn with_pool(cache_bytes: u64, spill_bytes: u64, pool: Arc<rayon::ThreadPool>) -> Environment {
        Environment {
            cache: ChunkCache::new(cache_bytes, spill_bytes),
            dirty: DirtyChunks::default(),
            stored: Tally::default(),
            spools: Spools::new(spill_bytes),
            decoding: Gate::new((cache_bytes / 8).max(DECODING_MIN)),
            maps: Arc::new(MapBudget::new(MAPS_BYTES)),
            pool,
            ahead_bytes: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            changed_chunk_min: CHANGED_CHUNK_MIN,
            whole_chunk_min: WHOLE_CHUNK_MIN,
            next_number: AtomicU64::new(1),
        }
    }

    /// One of the same bounds that knows no chunks, for what takes the place of the datasets that use this one. It goes on with its
    /// threads and counters.
    pub fn renewed(&self) -> Environment {
        let (budget, spill) = (self.cache.budget(), self.cache.spill().capacity());
        Environment {
            cache: ChunkCache::counting(budget, spill, self.cache.counters.clone()),
            maps: self.maps.clone(),
            next_number: AtomicU64::new(self.next_number.load(Ordering::Relaxed)),
            ..Self::with_pool(budget, spill, self.pool.clone())
        }
    }

    /// Leaves the spill file what the other temporary files do not take, with one of `more` bytes that is about to be made.
    pub fn share_temporary_space(&self, more: u64) {
        let others = self.spools.bytes().saturating_add(self.dirty.in_files().0).saturating_add(more);
        self.cache.spill().limit(self.spools.capacity().saturating_sub(others));
    }

    /// Forgets every chunk of `dataset`, changed ones too: it is gone, and its number may be another one's soon.
    pub fn forget(&self, dataset: u64) {
        self.dirty.forget(dataset);
        self.cache.forget(dataset);
        self.spools.forget(dataset);
        self.stored.forget(dataset);
    }

    /// Largest chunk that is changed in memory, decoded: what of the cache is for changed chunks, 64 MiB at least.
    pub fn changed_chunk_max(&self) -> u64 {
        (self.cache.budget() / 4).max(self.changed_chunk_min)
    }

    /// Largest chunk that is in memory for a moment when its filters take it as a whole, and next to nothing is stored of it. What is
    /// changed by way of files is no larger, and so can be read again.
    pub fn whole_chunk_max(&self) -> u64 {
        (self.cache.budget() / 4).max(self.whole_chunk_min)
    }

    /// True when one operation has put so many chunks into files that it must not go on.
    pub fn files_are_too_many(&self) -> bool {
        self.dirty.in_files().1 >= CHANGED_FILES.saturating_mul(4)
    }

    /// True when as many changed chunks wait in files as may, or more.
    pub fn files_are_full(&self) -> bool {
        let (bytes, files) = self.dirty.in_files();
        files > CHANGED_FILES || bytes > self.spools.capacity()
    }

    /// A number no other dataset of this process has.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

/// Opens the raw files that an external-file layout names.
pub trait RawFiles: Send + Sync {
    /// The file `name` as stored, confined; [`Error::Missing`] when it cannot be had.
    fn open_raw(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>>;

    /// The same for writing, made if it is not there; `EPERM` where that is not wanted. What is written is made durable with the
    /// next commit.
    fn open_raw_for_writing(&self, _name: &[u8]) -> Result<Arc<dyn WriteDriver>> {
        Err(Error::refused(libc::EPERM, "raw data in other files is written only with --external-write and --external-root"))
    }
}
