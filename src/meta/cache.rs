//! Bounded LRU cache of decoded metadata (B-tree nodes, heap blocks, object headers), by address.
//!
//! Sharded to reduce lock contention. No lock is held while an entry is loaded, so two threads may
//! load the same entry at once: both results are equal, the later one is kept.
//!
//! A listing reads many entries once (the object headers of a hundred thousand datasets). They
//! would evict all other entries, and would be freed long after they have left the processor's
//! caches. Such entries enter a short probation queue first, and are promoted to the LRU list only
//! if they are hit often.
//!
//! In a writable file, each entry records the byte ranges it was decoded from, so that a write
//! invalidates it.

use super::dependencies::{Index, Key, Reads, Sources};
use crate::base::{Address, Result};
// The low bits of fast hashes divide neighbouring addresses unevenly in some processes.
use crate::base::locks::Mutex;
use foldhash::quality::RandomState;
use lru::LruCache;
use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// Part of the budget that large entries have besides it: 1 / this.
const LARGE_PART: usize = 4;
/// Entries on probation in each shard.
const PROBATION_ENTRIES: usize = 8;
/// Larger entries, bytes, skip probation: loading them again costs more.
const PROBATION_BYTES_MAX: usize = 8 << 10;
/// Hits after which an entry on probation is promoted. A listing hits each entry two or three
/// times.
const PROMOTE_AFTER_HITS: u32 = 6;

/// What a load returns: the value and the bytes to charge, and the byte ranges that it read.
pub type Loaded<T> = (Result<(T, usize)>, Option<Sources>);

struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    /// Byte ranges it was decoded from; `None` in a read-only file.
    sources: Option<Sources>,
}

struct Shard {
    map: LruCache<Key, Entry>,
    bytes: usize,
    /// Entries on probation with their hits, oldest first.
    probation: VecDeque<(Key, Entry, u32)>,
}

impl Default for Shard {
    fn default() -> Self {
        Shard { map: LruCache::unbounded(), bytes: 0, probation: VecDeque::new() }
    }
}

impl Shard {
    /// Inserts an entry; returns evicted entries, for the caller to free after unlocking.
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
        let (_, entry, times) = self.probation.iter_mut().rev().find(|(k, _, _)| k == key)?;
        *times = times.saturating_add(1);
        Some(entry)
    }

    /// Removes an entry; returns it, for the caller to free after unlocking.
    fn remove(&mut self, key: &Key) -> Option<Entry> {
        if let Some(at) = self.probation.iter().position(|(k, _, _)| k == key) {
            return self.probation.remove(at).map(|(_, entry, _)| entry);
        }
        let old = self.map.pop(key)?;
        self.bytes = self.bytes.saturating_sub(old.bytes);
        Some(old)
    }
}

/// Metadata cache with a byte budget; each loader states the bytes its entry is charged with.
pub struct MetadataCache {
    shards: Vec<Mutex<Shard>>,
    /// Entries of more than the bytes of a shard.
    large: Mutex<Shard>,
    /// True if there are any.
    has_large: AtomicBool,
    /// Most bytes of one shard.
    budget: AtomicUsize,
    hasher: RandomState,
    /// Incremented by an invalidation that loads under way may have missed.
    generation: AtomicU64,
    /// Entries by the byte ranges they were decoded from; `None` in a read-only file.
    index: Option<Mutex<Index>>,
}

impl MetadataCache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        MetadataCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            large: Mutex::default(),
            has_large: AtomicBool::new(false),
            budget: AtomicUsize::new(bytes / SHARDS),
            hasher: RandomState::default(),
            generation: AtomicU64::new(0),
            index: None,
        }
    }

    /// Limits the cache to `bytes` bytes, from the next entry on.
    pub fn limit(&self, bytes: usize) {
        self.budget.store(bytes / SHARDS, Ordering::Relaxed);
    }

    fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// A cache of at most `bytes` bytes that records the sources of entries, so that
    /// [`MetadataCache::invalidate`] drops only affected ones.
    pub fn tracking(bytes: usize) -> Self {
        MetadataCache { index: Some(Mutex::default()), ..MetadataCache::new(bytes) }
    }

    /// True if it records the sources of entries.
    pub fn tracks_sources(&self) -> bool {
        self.index.is_some()
    }

    /// Records the sources of an entry about to be inserted; clears the cache if the index is full.
    fn index_sources(&self, key: Key, sources: Option<&Sources>) {
        if let (Some(index), Some(sources)) = (&self.index, sources)
            && !index.lock().insert(key, sources)
        {
            self.clear();
        }
    }

    /// Drops the entries decoded from bytes of `range`, which were overwritten.
    ///
    /// `settled` promises that no load of these bytes is under way; otherwise such loads are not
    /// cached.
    pub fn invalidate(&self, range: &Range<u64>, settled: bool) {
        let Some(index) = &self.index else { return self.clear() };
        if !settled {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let gone = index.lock().invalidate(range);
        for key in gone {
            drop(self.remove(&key));
        }
    }

    fn shard(&self, key: &Key) -> Option<&Mutex<Shard>> {
        let i = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards.get(i)
    }

    /// The shard for an entry of `bytes` bytes, and its most bytes; `None`: the entry is not kept.
    fn shard_for(&self, key: &Key, bytes: usize) -> Option<(&Mutex<Shard>, usize)> {
        let budget = self.budget();
        if bytes <= budget {
            return self.shard(key).map(|shard| (shard, budget));
        }
        let large = budget.saturating_mul(SHARDS / LARGE_PART);
        if bytes > large {
            return None;
        }
        self.has_large.store(true, Ordering::Release);
        Some((&self.large, large))
    }

    fn remove(&self, key: &Key) -> [Option<Entry>; 2] {
        let large = self.has_large.load(Ordering::Acquire).then(|| self.large.lock().remove(key)).flatten();
        [self.shard(key).and_then(|shard| shard.lock().remove(key)), large]
    }

    fn find<T: Send + Sync + 'static>(&self, key: &Key, reads: Option<&Reads>) -> Option<Arc<T>> {
        let of = |e: &Entry| (Arc::clone(&e.value), e.sources.clone());
        let large = || self.has_large.load(Ordering::Acquire).then(|| self.large.lock().get(key).map(of)).flatten();
        let found = self.shard(key)?.lock().get(key).map(of);
        let (value, sources) = found.or_else(large)?;
        if let (Some(reads), Some(sources)) = (reads, sources) {
            reads.add_sources(&sources);
        }
        value.downcast::<T>().ok()
    }

    /// Returns the entry of type `T` at `address`; loads it with `load` (value, bytes to charge,
    /// and what both were decoded from if sources are tracked) if absent. Adds the sources of an
    /// entry that is present to `reads`.
    pub fn get_or_load<T: Send + Sync + 'static>(
        &self,
        address: Address,
        reads: Option<&Reads>,
        load: impl FnOnce() -> Loaded<T>,
    ) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key, reads) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (loaded, sources) = load();
        let (value, bytes) = loaded?;
        let value = Arc::new(value);
        if let Some((shard, budget)) = self.shard_for(&key, bytes) {
            self.index_sources(key, sources.as_ref());
            let mut shard = shard.lock();
            if self.generation.load(Ordering::Acquire) == generation {
                let gone = shard.put(key, Entry { value: value.clone(), bytes, sources }, budget);
                drop(shard);
                drop(gone);
            }
        }
        Ok(value)
    }

    /// Inserts an entry decoded from `ranges`, which the caller has just written.
    pub fn keep<T: Send + Sync + 'static>(&self, address: Address, value: T, bytes: usize, ranges: &[Range<u64>]) {
        let key = (address, TypeId::of::<T>());
        let sources = self.index.is_some().then(|| Sources::from(ranges));
        let generation = self.generation.load(Ordering::Acquire);
        // One of another size may be in another shard.
        if bytes > self.budget() || self.has_large.load(Ordering::Acquire) {
            drop(self.remove(&key));
        }
        let Some((shard, budget)) = self.shard_for(&key, bytes) else { return };
        self.index_sources(key, sources.as_ref());
        let mut shard = shard.lock();
        if self.generation.load(Ordering::Acquire) == generation {
            let gone = shard.put(key, Entry { value: Arc::new(value), bytes, sources }, budget);
            drop(shard);
            drop(gone);
        }
    }

    /// Removes and returns the entry of type `T` at `address`, if the cache holds the only
    /// reference to it.
    pub fn take<T: Send + Sync + 'static>(&self, address: Address) -> Option<T> {
        let key = (address, TypeId::of::<T>());
        let entry = self.remove(&key).into_iter().flatten().next()?;
        Arc::try_unwrap(entry.value.downcast::<T>().ok()?).ok()
    }

    /// Like [`MetadataCache::get_or_load`], but a loaded entry starts on probation.
    pub fn get_or_load_on_probation<T: Send + Sync + 'static>(
        &self,
        address: Address,
        reads: Option<&Reads>,
        load: impl FnOnce() -> Loaded<T>,
    ) -> Result<Arc<T>> {
        let key = (address, TypeId::of::<T>());
        if let Some(value) = self.find(&key, reads) {
            return Ok(value);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let (loaded, sources) = load();
        let (value, bytes) = loaded?;
        let value = Arc::new(value);
        let Some((shard, budget)) = self.shard_for(&key, bytes) else { return Ok(value) };
        self.index_sources(key, sources.as_ref());
        let entry = Entry { value: value.clone(), bytes, sources };
        let mut shard = shard.lock();
        if self.generation.load(Ordering::Acquire) != generation {
            return Ok(value);
        }
        let gone = if bytes > PROBATION_BYTES_MAX {
            shard.put(key, entry, budget)
        } else {
            shard.probation.push_back((key, entry, 0));
            let old = if shard.probation.len() > PROBATION_ENTRIES { shard.probation.pop_front() } else { None };
            match old {
                Some((key, entry, times)) if times >= PROMOTE_AFTER_HITS => shard.put(key, entry, budget),
                Some((_, entry, _)) => vec![entry],
                None => Vec::new(),
            }
        };
        drop(shard);
        drop(gone);
        Ok(value)
    }

    /// Drops all entries; loads under way are not cached.
    pub fn clear(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(index) = &self.index {
            index.lock().clear();
        }
        for shard in self.shards.iter().chain(std::iter::once(&self.large)) {
            let mut shard = shard.lock();
            shard.map.clear();
            shard.probation.clear();
            shard.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_on_probation_are_evicted_or_promoted() {
        let cache = MetadataCache::new(1 << 20);
        let get = |a: u64| cache.get_or_load_on_probation(Address(a), None, || (Ok((a, 100)), None)).unwrap();
        let loaded = |a: u64| {
            let mut loaded = false;
            cache
                .get_or_load_on_probation(Address(a), None, || (loaded = true, (Ok((a, 100)), None)).1)
                .map(|v| assert_eq!(*v, a))
                .unwrap();
            loaded
        };
        for _ in 0..=PROMOTE_AFTER_HITS {
            get(1);
        }
        get(2);
        assert!(!loaded(2));
        (1000..2000).for_each(|a| drop(get(a)));
        assert!(loaded(2) && !loaded(1));
        // Large entries skip probation.
        cache.get_or_load_on_probation(Address(3), None, || (Ok((3u64, PROBATION_BYTES_MAX + 1)), None)).unwrap();
        (1000..2000).for_each(|a| drop(get(a)));
        assert!(!loaded(3));
        cache.clear();
        assert!(loaded(1) && loaded(3));
    }

    #[test]
    fn kept_entries_are_invalidated_by_writes() {
        let cache = MetadataCache::tracking(1 << 20);
        let is = |cache: &MetadataCache, n: u64| *cache.get_or_load(Address(8), None, || (Ok((0u64, 8)), Some([].into()))).unwrap() == n;
        cache.keep(Address(8), 1u64, 8, std::slice::from_ref(&(8..520)));
        cache.invalidate(&(0..8), false);
        assert!(is(&cache, 1));
        cache.keep(Address(8), 2u64, 8, &[1000..1008, 8..520]);
        assert!(is(&cache, 2), "the last one counts");
        cache.invalidate(&(519..600), false);
        assert!(is(&cache, 0));
    }

    #[test]
    fn large_entries_are_kept_and_invalidated() {
        let cache = MetadataCache::tracking(SHARDS * 1000);
        let get = |n: u64, bytes| *cache.get_or_load(Address(8), None, || (Ok((n, bytes)), Some([].into()))).unwrap();
        assert_eq!((get(1, 3000), get(2, 3000)), (1, 1));
        cache.keep(Address(8), 3u64, 10, std::slice::from_ref(&(8..16)));
        assert_eq!(get(4, 10), 3, "the last one counts");
        cache.keep(Address(8), 5u64, 4000, std::slice::from_ref(&(8..16)));
        assert_eq!(get(6, 10), 5);
        cache.invalidate(&(15..16), false);
        assert_eq!((get(7, 4001), get(8, 4000), get(9, 10)), (7, 8, 8));
        assert_eq!(cache.take::<u64>(Address(8)), Some(8));
        (0..10u64).for_each(|n| cache.keep(Address(n), n, 3000, &[]));
        assert!(cache.large.lock().bytes <= 4000);
    }

    #[test]
    fn the_budget_holds() {
        let cache = MetadataCache::new(SHARDS * 1000);
        for a in 0..1000 {
            cache.get_or_load(Address(a), None, || (Ok((a, 300)), None)).unwrap();
        }
        for shard in &cache.shards {
            let shard = shard.lock();
            assert!(shard.bytes <= 1000 && shard.bytes == 300 * shard.map.len());
        }
    }
}
