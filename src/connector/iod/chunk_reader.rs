//! What reads the chunks of an open container: its state. Its methods are in `chunks`, `coalesce`
//! and `decoding`.

use crate::dataset::environment::Environment;
use crate::iod::Container;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Reads chunks of a container, which lie at extents that never change, by the chunk cache.
pub(super) struct ChunkReader {
    /// Has the stored bytes.
    pub container: Arc<Container>,
    /// Has the chunk cache; memory, temporary files and threads for decoding.
    pub env: Arc<Environment>,
    /// Threads that read ahead.
    pub ahead: Arc<AtomicUsize>,
}

impl ChunkReader {
    /// Reads chunks of `container` into the cache of `env`.
    pub fn new(container: Arc<Container>, env: Arc<Environment>) -> Arc<ChunkReader> {
        Arc::new(ChunkReader { container, env, ahead: Arc::default() })
    }

    /// Reads chunks of another container with the same means.
    pub fn of(&self, container: Arc<Container>) -> Arc<ChunkReader> {
        Arc::new(ChunkReader { container, env: self.env.clone(), ahead: self.ahead.clone() })
    }

    /// Bytes that are read ahead of a sequential reader: an eighth of the cache.
    pub(super) fn ahead_bytes(&self) -> u64 {
        (self.env.cache.budget() / 8).clamp(1 << 20, 32 << 20)
    }
}
