//! Bounded cache of decoded metadata (B-tree nodes, heap blocks, object headers), by address.
//!
//! Sharded so that threads rarely meet; no lock is held while an entry is loaded, so two threads
//! may load the same entry at once: both results are the same, the later one is kept.
//!
//! What a listing passes by once (the object headers of a hundred thousand datasets) would push out all
//! else, and would be freed long after the processor's caches have forgotten it. Such entries first wait
//! in a short queue, and move to the cache proper when they are asked for again and again.

use crate::base::{Address, Result};
use lru::LruCache;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;
/// Entries on trial in each shard.
const TRIALS: usize = 8;
/// Entries of more bytes are not tried but kept: loading them costs more.
const TRIAL_BYTES: usize = 8 << 10;
/// Times that an entry on trial must be asked for to be kept. A listing asks two or three times.
const PROVEN: u32 = 6;

type Key = (Address, TypeId);

struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

struct Shard {
    map: LruCache<Key, Entry>,
    bytes: usize,
    /// Entries on trial, oldest first, each with the times it was asked for.
    trial: VecDeque<(Key, Entry, u32)>,
}

impl Shard {
    /// Adds an entry; entries that fell out of the budget are returned, to be freed without the lock.
    fn put(&mut self, key: Key, entry: Entry, budget: usize) -> Vec<Entry> {
        self.bytes = self.bytes.saturating_add(entry.bytes);
        let mut gone: Vec<Entry> = self.map.push(key, entry).map(|(_, old)| old).into_iter().collect();
        self.bytes = self.bytes.saturating_sub(gone.iter().map(|e| e.bytes).sum());
        while self.bytes > budget {
            let Some((_, old)) = self.map.pop_lru() else { break };
            self.bytes = self.bytes.saturating_sub(old.bytes);
            gone.push(old);
        }
        gone
    }

    fn get(&mut self, key: &Key) -> Option<Arc<dyn Any + Send + Sync>> {
        if let Some(e) = self.map.get(key) {
            return Some(Arc::clone(&e.value));
        }
        let (_, entry, times) = self.trial.iter_mut().rev().find(|(k, _, _)| k == key)?;
        *times = times.saturating_add(1);
        Some(Arc::clone(&entry.value))
    }
}

/// Cache with a byte budget; the charge of an entry is what its loader states.
pub struct MetadataCache {
    shards: Vec<Mutex<Shard>>,
    budget: usize,
    hasher: RandomState,
    /// Raised whenever what was read before may be out of date.
    generation: AtomicU64,
}

impl MetadataCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard { map: LruCache::unbounded(), bytes: 0, trial: VecDeque::new() })).collect();
        MetadataCache { shards, budget: bytes / SHARDS, hasher: RandomState::new(), generation: AtomicU64::new(0) }
    }

    fn shard(&self, key: &Key) -> Option<&Mutex<Shard>> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards.get(i)
    }

    fn find<T: Send + Sync + 'static>(&self, key: &Key) -> Option<Arc<T>> {
        let hit = self.shard(key)?.lock().get(key);
        hit.and_then(|v| v.downcast::<T>().ok())
    }

    /// The entry of type `T` at `address`, loaded by `load` (value, bytes to charge) if absent.
    pub fn get_or_load<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (value, bytes) = load()?;
        let value = Arc::new(value);
        if let Some(shard) = self.shard(&key).filter(|_| bytes <= self.budget) {
            let mut shard = shard.lock();
            if self.generation.load(Ordering::Acquire) == generation {
                let gone = shard.put(key, Entry { value: value.clone(), bytes }, self.budget);
                drop(shard);
                drop(gone);
            }
        }
        Ok(value)
    }

    /// The same for entries most of which are wanted only for a moment: kept on trial first.
    pub fn get_or_try<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (value, bytes) = load()?;
        let value = Arc::new(value);
        let Some(shard) = self.shard(&key).filter(|_| bytes <= self.budget) else { return Ok(value) };
        let entry = Entry { value: value.clone(), bytes };
        let mut shard = shard.lock();
        if self.generation.load(Ordering::Acquire) != generation {
            return Ok(value);
        }
        let gone = if bytes > TRIAL_BYTES {
            shard.put(key, entry, self.budget)
        } else {
            shard.trial.push_back((key, entry, 0));
            let old = if shard.trial.len() > TRIALS { shard.trial.pop_front() } else { None };
            match old {
                Some((key, entry, times)) if times >= PROVEN => shard.put(key, entry, self.budget),
                Some((_, entry, _)) => vec![entry],
                None => Vec::new(),
            }
        };
        drop(shard);
        drop(gone);
        Ok(value)
    }

    /// Forgets everything, also what is being loaded now.
    pub fn clear(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.map.clear();
            shard.trial.clear();
            shard.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_on_trial_go_or_are_kept() {
        let cache = MetadataCache::new(1 << 20);
        let get = |a: u64| cache.get_or_try(Address(a), || Ok((a, 100))).unwrap();
        let loaded = |a: u64| {
            let mut loaded = false;
            cache.get_or_try(Address(a), || (loaded = true, Ok((a, 100))).1).map(|v| assert_eq!(*v, a)).unwrap();
            loaded
        };
        for _ in 0..=PROVEN {
            get(1);
        }
        get(2);
        assert!(!loaded(2));
        (1000..2000).for_each(|a| drop(get(a)));
        assert!(loaded(2) && !loaded(1));
        // Large ones are kept at once.
        cache.get_or_try(Address(3), || Ok((3u64, TRIAL_BYTES + 1))).unwrap();
        (1000..2000).for_each(|a| drop(get(a)));
        assert!(!loaded(3));
        cache.clear();
        assert!(loaded(1) && loaded(3));
    }

    #[test]
    fn the_budget_holds() {
        let cache = MetadataCache::new(SHARDS * 1000);
        for a in 0..1000 {
            cache.get_or_load(Address(a), || Ok((a, 300))).unwrap();
        }
        for shard in &cache.shards {
            let shard = shard.lock();
            assert!(shard.bytes <= 1000 && shard.bytes == 300 * shard.map.len());
        }
    }
}
