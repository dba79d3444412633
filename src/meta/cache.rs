//! Bounded cache of decoded metadata (B-tree nodes, heap blocks, object headers), by address.
//!
//! Sharded so that threads rarely meet; no lock is held while an entry is loaded, so two threads
//! may load the same entry at once: both results are the same, the later one is kept.
//!
//! What a listing passes by once (the object headers of a hundred thousand datasets) would push out all
//! else, and would be freed long after the processor's caches have forgotten it. Such entries first wait
//! in a short queue, and move to the cache proper when they are asked for again and again.
//!
//! Of a file that is changed, each entry is kept with the ranges of bytes it was made of.

use super::trace::{self, Index, Sources};
use crate::base::{Address, Result};
use foldhash::fast::RandomState;
use lru::LruCache;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;
/// Entries on trial in each shard.
const TRIALS: usize = 8;
/// Entries of more bytes are not tried but kept: loading them costs more.
const TRIAL_BYTES: usize = 8 << 10;
/// Times that an entry on trial must be asked for to be kept. A listing asks two or three times.
const PROVEN: u32 = 6;

/// Of an entry: where it is, what it is.
pub type Key = (Address, TypeId);

struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    /// Of a file that is changed.
    sources: Option<Sources>,
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

    fn get(&mut self, key: &Key) -> Option<&Entry> {
        if self.map.contains(key) {
            return self.map.get(key);
        }
        let (_, entry, times) = self.trial.iter_mut().rev().find(|(k, _, _)| k == key)?;
        *times = times.saturating_add(1);
        Some(entry)
    }

    /// Drops the entry; it is returned, to be freed without the lock.
    fn remove(&mut self, key: &Key) -> Option<Entry> {
        if let Some(at) = self.trial.iter().position(|(k, _, _)| k == key) {
            return self.trial.remove(at).map(|(_, entry, _)| entry);
        }
        let old = self.map.pop(key)?;
        self.bytes = self.bytes.saturating_sub(old.bytes);
        Some(old)
    }
}

/// Cache with a byte budget; the charge of an entry is what its loader states.
pub struct MetadataCache {
    shards: Vec<Mutex<Shard>>,
    budget: usize,
    hasher: RandomState,
    /// Raised whenever what was read before may be out of date.
    generation: AtomicU64,
    /// Of a file that is changed: which entries go with which bytes.
    index: Option<Mutex<Index>>,
}

impl MetadataCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard { map: LruCache::unbounded(), bytes: 0, trial: VecDeque::new() })).collect();
        MetadataCache { shards, budget: bytes / SHARDS, hasher: RandomState::default(), generation: AtomicU64::new(0), index: None }
    }

    /// From now on [`MetadataCache::touch`] knows what to forget.
    pub fn trace(&mut self) {
        self.clear();
        self.index = Some(Mutex::default());
    }

    /// Loads an entry; what it was made of, if that matters.
    fn load<T>(&self, load: impl FnOnce() -> Result<(T, usize)>) -> (Result<(T, usize)>, Option<Sources>) {
        if self.index.is_none() {
            return (load(), None);
        }
        let (loaded, sources) = trace::traced(load);
        (loaded, Some(sources))
    }

    /// Notes what an entry that is about to be kept was made of.
    fn note(&self, key: Key, sources: Option<&Sources>) {
        if let (Some(index), Some(sources)) = (&self.index, sources)
            && !index.lock().insert(key, sources)
        {
            self.clear();
        }
    }

    /// Forgets what was made of the bytes of `range`, which have changed. `settled`: nobody can be reading them.
    pub fn touch(&self, range: &Range<u64>, settled: bool) {
        let Some(index) = &self.index else { return self.clear() };
        if !settled {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let gone = index.lock().touched(range);
        for key in gone {
            let entry = self.shard(&key).and_then(|shard| shard.lock().remove(&key));
            drop(entry);
        }
    }

    fn shard(&self, key: &Key) -> Option<&Mutex<Shard>> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards.get(i)
    }

    fn find<T: Send + Sync + 'static>(&self, key: &Key) -> Option<Arc<T>> {
        let (value, sources) = self.shard(key)?.lock().get(key).map(|e| (Arc::clone(&e.value), e.sources.clone()))?;
        if let Some(sources) = sources {
            trace::note_all(&sources);
        }
        value.downcast::<T>().ok()
    }

    /// The entry of type `T` at `address`, loaded by `load` (value, bytes to charge) if absent.
    pub fn get_or_load<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (loaded, sources) = self.load(load);
        let (value, bytes) = loaded?;
        let value = Arc::new(value);
        if let Some(shard) = self.shard(&key).filter(|_| bytes <= self.budget) {
            self.note(key, sources.as_ref());
            let mut shard = shard.lock();
            if self.generation.load(Ordering::Acquire) == generation {
                let gone = shard.put(key, Entry { value: value.clone(), bytes, sources }, self.budget);
                drop(shard);
                drop(gone);
            }
        }
        Ok(value)
    }

    /// Keeps an entry that is made of the bytes of `ranges`, just written by its maker: they need not be read again.
    pub fn keep<T: Send + Sync + 'static>(&self, address: Address, value: T, bytes: usize, ranges: &[Range<u64>]) {
        let key = (address, TypeId::of::<T>());
        let sources = self.index.is_some().then(|| Sources::from(ranges));
        let generation = self.generation.load(Ordering::Acquire);
        let Some(shard) = self.shard(&key).filter(|_| bytes <= self.budget) else { return };
        self.note(key, sources.as_ref());
        let mut shard = shard.lock();
        if self.generation.load(Ordering::Acquire) == generation {
            let gone = shard.put(key, Entry { value: Arc::new(value), bytes, sources }, self.budget);
            drop(shard);
            drop(gone);
        }
    }

    /// Takes out the entry of type `T` at `address`, if nobody else has it: to be changed, and kept again.
    pub fn take<T: Send + Sync + 'static>(&self, address: Address) -> Option<T> {
        let key = (address, TypeId::of::<T>());
        let entry = self.shard(&key)?.lock().remove(&key)?;
        Arc::try_unwrap(entry.value.downcast::<T>().ok()?).ok()
    }

    /// As [`MetadataCache::get_or_load`], for entries most of which are wanted only for a moment: kept on trial first.
    pub fn get_or_try<T: Send + Sync + 'static>(&self, address: Address, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (loaded, sources) = self.load(load);
        let (value, bytes) = loaded?;
        let value = Arc::new(value);
        let Some(shard) = self.shard(&key).filter(|_| bytes <= self.budget) else { return Ok(value) };
        self.note(key, sources.as_ref());
        let entry = Entry { value: value.clone(), bytes, sources };
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
        if let Some(index) = &self.index {
            index.lock().clear();
        }
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
    fn what_is_kept_goes_with_its_bytes() {
        let mut cache = MetadataCache::new(1 << 20);
        cache.trace();
        let is = |cache: &MetadataCache, n: u64| *cache.get_or_load(Address(8), || Ok((0u64, 8))).unwrap() == n;
        cache.keep(Address(8), 1u64, 8, std::slice::from_ref(&(8..520)));
        cache.touch(&(0..8), false);
        assert!(is(&cache, 1));
        cache.keep(Address(8), 2u64, 8, &[1000..1008, 8..520]);
        assert!(is(&cache, 2), "the last one counts");
        cache.touch(&(519..600), false);
        assert!(is(&cache, 0));
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
