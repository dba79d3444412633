//! Bounded cache of decoded metadata (B-tree nodes, heap blocks, object headers), by address.
//!
//! Sharded so that threads rarely meet; no lock is held while an entry is loaded, so two threads
//! may load the same entry at once: both results are the same, the later one is kept.

use crate::base::{Address, Result};
use lru::LruCache;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

const SHARDS: usize = 16;

type Key = (Address, TypeId);

struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

struct Shard {
    map: LruCache<Key, Entry>,
    bytes: usize,
}

/// Cache with a byte budget; the charge of an entry is what its loader states.
pub struct MetadataCache {
    shards: Vec<Mutex<Shard>>,
    budget: usize,
    hasher: RandomState,
}

impl MetadataCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard { map: LruCache::unbounded(), bytes: 0 })).collect();
        MetadataCache { shards, budget: bytes / SHARDS, hasher: RandomState::new() }
    }

    fn shard(&self, key: &Key) -> Option<&Mutex<Shard>> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards.get(i)
    }

    /// The entry of type `T` at `address`, loaded by `load` (value, bytes to charge) if absent.
    pub fn get_or_load<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        let shard = self.shard(&key);
        if let Some(shard) = shard {
            let hit = shard.lock().map.get(&key).map(|e| Arc::clone(&e.value));
            if let Some(value) = hit.and_then(|v| v.downcast::<T>().ok()) {
                return Ok(value);
            }
        }
        let (value, bytes) = load()?;
        let value = Arc::new(value);
        if let Some(shard) = shard.filter(|_| bytes <= self.budget) {
            let mut shard = shard.lock();
            if let Some(old) = shard.map.put(key, Entry { value: value.clone(), bytes }) {
                shard.bytes = shard.bytes.saturating_sub(old.bytes);
            }
            shard.bytes = shard.bytes.saturating_add(bytes);
            while shard.bytes > self.budget {
                let Some((_, old)) = shard.map.pop_lru() else { break };
                shard.bytes = shard.bytes.saturating_sub(old.bytes);
            }
        }
        Ok(value)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.map.clear();
            shard.bytes = 0;
        }
    }
}
