//! Memory and temporary files for decoding chunks, which all connectors of a container share.

use crate::dataset::chunk::chunk_files::ChunkFiles;
use crate::dataset::chunk::gate::{Gate, Permit};
use crate::dataset::chunk::temporary;
use crate::iod::Extent;
use std::sync::atomic::{AtomicU64, Ordering};

/// Least memory of concurrent decodes, bytes.
const DECODING_MIN_BYTES: u64 = 128 << 20;
/// Smallest chunk whose decode needs a permit, bytes.
const GATED_MIN_BYTES: u64 = 1 << 20;
/// Chunks up to this size are decoded in memory whatever the cache size, bytes.
const MEMORY_MIN_BYTES: u64 = 32 << 20;
/// Chunks up to this size are decoded whole whatever the cache size, if their filters or a writer
/// need it, bytes.
const WHOLE_MIN_BYTES: u64 = 64 << 20;
/// Size of the temporary files, in multiples of the cache.
const FILES_FACTOR: u64 = 16;
/// Least size of the temporary files, bytes.
const FILES_MIN_BYTES: u64 = 256 << 20;

/// Memory and files that all connectors of a container share.
pub(super) struct Decoding {
    gate: Gate,
    pub files: ChunkFiles<(u64, Extent)>,
    /// Bytes of the cache of decoded chunks.
    cache_bytes: AtomicU64,
}

impl Decoding {
    pub fn new(cache_bytes: u64) -> Decoding {
        let files = cache_bytes.saturating_mul(FILES_FACTOR).max(FILES_MIN_BYTES).min(temporary::free_space() / 2);
        let gate = Gate::new((cache_bytes / 8).max(DECODING_MIN_BYTES));
        Decoding { gate, files: ChunkFiles::new(files), cache_bytes: AtomicU64::new(cache_bytes) }
    }

    pub fn set_cache_bytes(&self, bytes: u64) {
        self.cache_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Waits until `bytes` may be decoded. The caller waits for no other thread meanwhile.
    pub fn enter(&self, bytes: u64) -> Option<Permit<'_>> {
        (bytes >= GATED_MIN_BYTES).then(|| self.gate.enter(bytes))
    }

    /// Bytes of the cache of decoded chunks.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_bytes.load(Ordering::Relaxed)
    }

    /// True if a chunk of `len` decoded bytes is kept in a temporary file.
    pub fn is_large(&self, len: u64) -> bool {
        len > MEMORY_MIN_BYTES.max(self.cache_bytes.load(Ordering::Relaxed) / 4)
    }

    /// Largest chunk that is decoded in memory.
    pub fn whole_max(&self) -> u64 {
        WHOLE_MIN_BYTES.max(self.cache_bytes.load(Ordering::Relaxed) / 4)
    }
}
