//! State shared by all datasets of a mount: chunk caches, dirty chunks, decode threads.

use super::chunk::cache::ChunkCache;
use super::chunk::chunk_files::ChunkFiles;
use super::chunk::dirty::DirtyChunks;
use super::chunk::file_image::FilesInUse;
use super::chunk::gate::Gate;
use super::chunk::key::{ChunkKey, DatasetKey};
use super::chunk::stored_size::StoredSizes;
use super::chunk::temporary;
use crate::base::{Error, Result, buffers};
use crate::file::{FileDriver, WriteDriver};
use crate::meta::METADATA_CACHE_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least budget of concurrent decodes, bytes.
const DECODING_MIN_BYTES: u64 = 128 << 20;
/// Budget of long forms that are made at a time, bytes.
const FORMS_BYTES: u64 = 64 << 20;
/// Chunks up to this size are changed in memory whatever the cache size, bytes.
const DIRTY_CHUNK_MIN_BYTES: u64 = 64 << 20;
/// Chunks up to this size may be decoded whole whatever the cache size, bytes.
const WHOLE_CHUNK_MIN_BYTES: u64 = 96 << 20;
/// Dirty chunks in temporary files above which they are written back.
const DIRTY_FILES_MAX: u64 = 16;

/// Caches, dirty chunks, budgets and threads of a mount.
pub struct Environment {
    /// Decoded chunks.
    pub(crate) cache: ChunkCache,
    /// Changed chunks that are not in the container file yet.
    pub(crate) dirty: DirtyChunks,
    /// Decoded chunks in temporary files: those too large for memory.
    pub(crate) chunk_files: ChunkFiles,
    /// Changed chunks in temporary files.
    pub(crate) images: Arc<FilesInUse>,
    /// Stored bytes of datasets that have been changed.
    pub(crate) stored: StoredSizes,
    /// Bounds the memory of concurrent decodes.
    pub(crate) decoding: Gate,
    /// Bounds the memory of long forms of variable-length elements that are made at a time. A
    /// thread enters it before it waits for any chunk, and never with a permit of `decoding`.
    pub(crate) forms: Gate,
    /// Threads that decode chunks of one request in parallel and read ahead.
    pub pool: Arc<rayon::ThreadPool>,
    /// Decoded bytes of the chunks in queued or running read-ahead tasks.
    pub(crate) read_ahead_bytes: AtomicU64,
    /// Count of chunks encoded from temporary files.
    pub(crate) streamed: AtomicU64,
    /// Chunks up to this size are changed in memory whatever the cache size, bytes.
    pub(crate) changed_chunk_min: u64,
    /// Chunks up to this size may be decoded whole whatever the cache size, bytes.
    pub(crate) whole_chunk_min: u64,
    /// Most bytes of decoded metadata of one file.
    pub(crate) metadata_bytes: usize,
    /// Count of chunks copied in stored form, without decoding.
    pub(crate) copied: AtomicU64,
}

impl Environment {
    /// Creates empty caches and the decode threads.
    ///
    /// `cache_bytes`: chunk cache. `temporary_bytes`: temporary files; capped at half of the free
    /// space. `threads`: decoders, at most one per core, as decoding does not block; 0 is one per
    /// core.
    pub fn new(cache_bytes: u64, temporary_bytes: u64, threads: usize) -> Result<Environment> {
        let temporary_bytes = temporary_bytes.min(temporary::free_space() / 2);
        buffers::keep_beside(cache_bytes);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores } else { threads.min(cores) };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("decode-{i}"))
            // The reader of a chunk whose read-ahead panicked decodes it again and gets the error.
            .panic_handler(|_| tracing::error!("a decode thread panicked"))
            .build()
            .map_err(|_| Error::Io { operation: "start decode threads", address: crate::base::Address(0), errno: libc::EAGAIN })?;
        Ok(Self::with_pool(cache_bytes, temporary_bytes, Arc::new(pool)))
    }

    /// Creates empty caches that decode on the threads of `pool`, which environments may share.
    pub fn with_pool(cache_bytes: u64, temporary_bytes: u64, pool: Arc<rayon::ThreadPool>) -> Environment {
        Environment {
            cache: ChunkCache::new(cache_bytes, temporary_bytes),
            dirty: DirtyChunks::default(),
            images: Arc::default(),
            stored: StoredSizes::default(),
            chunk_files: ChunkFiles::new(temporary_bytes),
            decoding: Gate::new((cache_bytes / 8).max(DECODING_MIN_BYTES)),
            forms: Gate::new(FORMS_BYTES),
            pool,
            read_ahead_bytes: AtomicU64::new(0),
            metadata_bytes: METADATA_CACHE_BYTES,
            copied: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            changed_chunk_min: DIRTY_CHUNK_MIN_BYTES,
            whole_chunk_min: WHOLE_CHUNK_MIN_BYTES,
        }
    }

    /// An environment with the same bounds, threads and counters, but empty caches: for a file
    /// opened again because another process changed it.
    pub(crate) fn with_empty_caches(&self) -> Environment {
        let (budget, temporary_bytes) = (self.cache.budget(), self.cache.disk_cache().capacity());
        Environment {
            cache: self.cache.sharing(temporary_bytes),
            metadata_bytes: self.metadata_bytes,
            ..Self::with_pool(budget, temporary_bytes, self.pool.clone())
        }
    }

    /// An environment for another container that is mounted with those of this one: the same
    /// threads, counters and memory for decoded chunks. `temporary_bytes`: its temporary files.
    /// `metadata_bytes`: decoded metadata of each of its files.
    pub fn sharing(&self, temporary_bytes: u64, metadata_bytes: usize) -> Environment {
        let temporary_bytes = temporary_bytes.min(temporary::free_space() / 2);
        Environment {
            cache: self.cache.sharing(temporary_bytes),
            metadata_bytes,
            ..Self::with_pool(self.cache.budget(), temporary_bytes, self.pool.clone())
        }
    }

    /// Counters, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.cache.counters;
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        vec![
            ("cache_budget_bytes", self.cache.budget()),
            ("cache_bytes", self.cache.bytes()),
            ("cache_hits", n(&c.hits)),
            ("cache_waits", n(&c.waits)),
            ("cache_evictions", n(&c.evictions)),
            ("chunks_decoded", n(&c.decodes)),
            ("chunks_copied", n(&self.copied)),
            ("chunks_not_kept", n(&c.unkept)),
            ("spill_bytes", self.cache.disk_cache().bytes()),
            ("spill_hits", n(&c.disk_cache_hits)),
        ]
    }

    /// Limits the disk cache to the space that other temporary files leave, including one of
    /// `more` bytes that the caller creates next.
    pub(crate) fn share_temporary_space(&self, more: u64) {
        let used = self.chunk_files.bytes().saturating_add(self.images.now().1).saturating_add(more);
        self.cache.disk_cache().limit(self.chunk_files.capacity().saturating_sub(used));
    }

    /// Drops dirty chunks that were written back, and stale decoded copies of them.
    pub(crate) fn flushed(&self, chunks: impl IntoIterator<Item = ChunkKey>) {
        for key in chunks {
            self.cache.remove(key);
            self.chunk_files.remove(key);
            self.dirty.remove(key);
        }
    }

    /// Drops everything decoded: the addresses by which it is known may be reused.
    pub(crate) fn forget_decoded(&self) {
        self.cache.clear();
        self.chunk_files.clear();
    }

    /// Drops the decoded chunks of a dataset whose chunks have other numbers now.
    pub(crate) fn forget_decoded_of(&self, dataset: DatasetKey) {
        self.cache.forget(dataset);
        self.chunk_files.forget(dataset);
    }

    /// Drops every chunk of a deleted dataset, dirty ones too: its address may be reused.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        self.dirty.forget(dataset);
        self.cache.forget(dataset);
        self.chunk_files.forget(dataset);
        self.stored.forget(dataset);
    }

    /// Largest chunk that is changed in memory, decoded bytes: a quarter of the cache, at least 64
    /// MiB.
    pub(crate) fn changed_chunk_max(&self) -> u64 {
        (self.cache.budget() / 4).max(self.changed_chunk_min)
    }

    /// Largest highly compressed chunk that is decoded whole in memory, decoded bytes.
    ///
    /// Chunks changed in temporary files are not larger, so that they can be read again.
    pub(crate) fn whole_chunk_max(&self) -> u64 {
        (self.cache.budget() / 4).max(self.whole_chunk_min)
    }

    /// True when one operation must fail because it has put too many chunks into temporary files.
    pub(crate) fn files_are_too_many(&self) -> bool {
        self.images.now().0 >= DIRTY_FILES_MAX.saturating_mul(4)
    }

    /// True when dirty chunks in temporary files exceed their number or space and must be written
    /// back.
    pub(crate) fn files_are_full(&self) -> bool {
        let (files, bytes) = self.images.now();
        files > DIRTY_FILES_MAX || bytes > self.chunk_files.capacity()
    }
}

/// Opens the raw files that an external-file layout names.
pub(crate) trait RawFiles: Send + Sync {
    /// Opens the file whose stored name is `name`, confined. [`Error::Missing`] if it cannot be
    /// opened.
    fn open_raw(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>>;

    /// Opens a raw file for writing, and creates it if it does not exist.
    ///
    /// `EPERM` without --external-write. The next commit makes the writes durable.
    fn open_raw_for_writing(&self, _name: &[u8]) -> Result<Arc<dyn WriteDriver>> {
        Err(Error::refused(libc::EPERM, "raw data in other files is written only with --external-write and --external-root"))
    }
}
