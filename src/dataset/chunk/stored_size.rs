//! Stored bytes of changed datasets, for `st_blocks`.
//!
//! They are counted once and then updated by each change: `stat` of a growing file walks no index.

use super::key::DatasetKey;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// Most datasets in the cache.
const DATASETS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Stored bytes of datasets, an LRU cache.
#[derive(Debug)]
pub(crate) struct StoredSizes(Mutex<LruCache<DatasetKey, u64>>);

impl Default for StoredSizes {
    fn default() -> Self {
        StoredSizes(Mutex::new(LruCache::new(DATASETS_MAX)))
    }
}

impl StoredSizes {
    /// Stored bytes of `dataset`, if known.
    pub(crate) fn get(&self, dataset: DatasetKey) -> Option<u64> {
        self.0.lock().get(&dataset).copied()
    }

    /// Sets the stored bytes of `dataset` to a new count.
    pub(crate) fn set(&self, dataset: DatasetKey, bytes: u64) {
        self.0.lock().put(dataset, bytes);
    }

    /// Updates a known count: a chunk of `old` stored bytes was replaced by one of `new`; 0: no
    /// chunk.
    pub(crate) fn change(&self, dataset: DatasetKey, new: u64, old: u64) {
        if let Some(bytes) = self.0.lock().get_mut(&dataset) {
            *bytes = bytes.saturating_add(new).saturating_sub(old);
        }
    }

    /// Drops the count of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        self.0.lock().pop(&dataset);
    }

    /// Drops all counts.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
