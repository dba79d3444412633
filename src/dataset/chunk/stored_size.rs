//! Stored bytes of datasets, for `st_blocks`.
//!
//! They are counted or estimated once and then updated by each change: `stat` of a growing file
//! walks no index.

use super::key::DatasetKey;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Most datasets in the cache.
const DATASETS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Stored bytes of one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredSize {
    /// All stored chunks, bytes.
    pub(crate) bytes: u64,
    /// The chunks were counted. Otherwise an estimate, to which exact changes were added.
    pub(crate) is_exact: bool,
}

/// Stored bytes of datasets, an LRU cache.
#[derive(Debug)]
pub(crate) struct StoredSizes(Mutex<LruCache<DatasetKey, StoredSize>>);

impl Default for StoredSizes {
    fn default() -> Self {
        StoredSizes(Mutex::new(lru_cache(DATASETS_MAX)))
    }
}

impl StoredSizes {
    /// Stored bytes of `dataset`, if known.
    pub(crate) fn get(&self, dataset: DatasetKey) -> Option<StoredSize> {
        self.0.lock().get(&dataset).copied()
    }

    /// Sets the stored bytes of `dataset`. An estimate replaces no exact number.
    pub(crate) fn set(&self, dataset: DatasetKey, size: StoredSize) {
        let mut sizes = self.0.lock();
        if size.is_exact || sizes.get(&dataset).is_none_or(|known| !known.is_exact) {
            sizes.put(dataset, size);
        }
    }

    /// Updates a known number: a chunk of `old` stored bytes was replaced by one of `new`; 0: no
    /// chunk.
    pub(crate) fn change(&self, dataset: DatasetKey, new: u64, old: u64) {
        if let Some(size) = self.0.lock().get_mut(&dataset) {
            size.bytes = size.bytes.saturating_add(new).saturating_sub(old);
        }
    }

    /// Drops the number of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        self.0.lock().pop(&dataset);
    }

    /// Drops all numbers.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
