//! Stored bytes of the datasets that are changed: counted once, then followed, so that `st_blocks` of a file that grows does
//! not take a walk of its index each time.

use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

/// Datasets remembered.
const DATASETS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// See the module's description. Datasets are told by their numbers in the chunk cache.
#[derive(Debug)]
pub struct Tally(Mutex<LruCache<u64, u64>>);

impl Default for Tally {
    fn default() -> Self {
        Tally(Mutex::new(LruCache::new(DATASETS_MAX)))
    }
}

impl Tally {
    /// Stored bytes of `dataset`, if they are known.
    pub fn get(&self, dataset: u64) -> Option<u64> {
        self.0.lock().get(&dataset).copied()
    }

    /// They were counted.
    pub fn set(&self, dataset: u64, bytes: u64) {
        self.0.lock().put(dataset, bytes);
    }

    /// A chunk of `new` stored bytes took the place of one of `old`; none: 0.
    pub fn change(&self, dataset: u64, new: u64, old: u64) {
        if let Some(bytes) = self.0.lock().get_mut(&dataset) {
            *bytes = bytes.saturating_add(new).saturating_sub(old);
        }
    }

    /// They are not known any more.
    pub fn forget(&self, dataset: u64) {
        self.0.lock().pop(&dataset);
    }

    /// None is known any more.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
