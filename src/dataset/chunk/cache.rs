//! The chunk cache: decoded chunks of every dataset, one byte budget, one decode per chunk.
//!
//! A thread that misses reserves the chunk's bytes (evicting the least recently used chunks), then
//! decodes with no lock held. Other readers of the chunk wait for the decode. Chunks above the
//! budget are returned but not cached. Bytes being decoded count against the budget, so memory use
//! stays within it however many threads decode.
//!
//! A consumed chunk (all bytes read) is in the kernel's page cache and rarely read again. The cache
//! keeps only [`CONSUMED_MAX_BYTES`] of them: sequential reads then reuse memory that is still in
//! the processor's caches, instead of filling the budget with fresh pages.

use super::disk_cache::DiskCache;
use super::image::{ChunkImage, Image};
use super::key::{CacheKey, ChunkKey, DatasetKey};
use crate::base::{Address, Error, Result, waiting};
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most bytes of consumed chunks kept; at most a quarter of the budget.
const CONSUMED_MAX_BYTES: u64 = 16 << 20;

/// Memory of an entry besides the chunk's bytes; most of the memory of tiny chunks.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

fn charged_bytes(len: u64) -> u64 {
    len.saturating_add(ENTRY_OVERHEAD_BYTES)
}

/// A decoded chunk and the count of its bytes read since.
#[derive(Debug)]
pub(crate) struct Chunk {
    image: Image,
    bytes_read: AtomicU64,
    /// True if the chunk is in `State::consumed`. Changed only under the cache's lock.
    is_consumed_listed: AtomicBool,
    /// Bytes of all unread chunks of the cache.
    unread: Arc<AtomicU64>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.bytes_read.load(Ordering::Relaxed) == 0 {
            self.unread.fetch_sub(self.image.element_bytes(), Ordering::Relaxed);
        }
    }
}

impl Chunk {
    /// The decoded chunk.
    pub(crate) fn image(&self) -> &dyn ChunkImage {
        &*self.image
    }

    fn new(image: Image, unread: &Arc<AtomicU64>) -> Self {
        unread.fetch_add(image.element_bytes(), Ordering::Relaxed);
        Chunk { image, bytes_read: AtomicU64::new(0), is_consumed_listed: AtomicBool::new(false), unread: unread.clone() }
    }

    /// Counts `n` bytes copied to a reader; true when they make the chunk consumed.
    fn record_read(&self, n: u64) -> bool {
        let size = self.image.element_bytes();
        let before = self.bytes_read.fetch_add(n, Ordering::Relaxed);
        if before == 0 && n > 0 {
            self.unread.fetch_sub(size, Ordering::Relaxed);
        }
        before < size && before.saturating_add(n) >= size
    }

    fn is_consumed(&self) -> bool {
        self.bytes_read.load(Ordering::Relaxed) >= self.image.element_bytes()
    }
}

/// A cached chunk: in memory, or its offset in the disk cache.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// In memory.
    Chunk(Arc<Chunk>),
    /// Decoded earlier and evicted to this offset of the disk cache.
    OnDisk(u64),
}

#[derive(Default)]
struct Pending {
    done: Mutex<Option<Result<Arc<Chunk>>>>,
    ready: Condvar,
}

enum Slot {
    Ready(Arc<Chunk>),
    Loading(Arc<Pending>),
}

struct State {
    slots: LruCache<CacheKey, Slot>,
    /// Keys of consumed chunks, oldest first; some may have been evicted.
    consumed: VecDeque<CacheKey>,
    consumed_bytes: u64,
    /// Bytes of ready chunks and reservations of loading ones.
    bytes: u64,
}

impl State {
    fn mark_consumed(&mut self, key: CacheKey, chunk: &Chunk) {
        if chunk.is_consumed_listed.swap(true, Ordering::Relaxed) {
            return;
        }
        // Drops keys of chunks evicted by other paths.
        if self.consumed.len() > self.slots.len().saturating_mul(2).saturating_add(64) {
            let slots = &self.slots;
            self.consumed.retain(|k| slots.contains(k));
        }
        self.consumed.push_back(key);
        self.consumed_bytes = self.consumed_bytes.saturating_add(chunk.image.memory());
    }

    /// Removes the chunk that was consumed first.
    fn pop_consumed(&mut self) -> Option<(CacheKey, Arc<Chunk>)> {
        while let Some(key) = self.consumed.pop_front() {
            if matches!(self.slots.peek(&key), Some(Slot::Ready(c)) if c.is_consumed_listed.load(Ordering::Relaxed))
                && let Some(Slot::Ready(chunk)) = self.slots.pop(&key)
            {
                self.subtract(&chunk);
                return Some((key, chunk));
            }
        }
        None
    }

    /// Subtracts a chunk removed from `slots` from the sums.
    fn subtract(&mut self, chunk: &Chunk) {
        let size = chunk.image.memory();
        self.bytes = self.bytes.saturating_sub(charged_bytes(size));
        if chunk.is_consumed_listed.load(Ordering::Relaxed) {
            self.consumed_bytes = self.consumed_bytes.saturating_sub(size);
        }
    }
}

/// Counters shown in `.h5dir/status`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests answered from memory.
    pub(crate) hits: AtomicU64,
    /// Chunks decoded.
    pub(crate) decodes: AtomicU64,
    /// Requests that waited for another thread's decode.
    pub(crate) waits: AtomicU64,
    /// Chunks evicted.
    pub(crate) evictions: AtomicU64,
    /// Chunks above the budget, returned without being cached.
    pub(crate) unkept: AtomicU64,
    /// Requests answered from the disk cache.
    pub(crate) disk_cache_hits: AtomicU64,
}

/// Cache of decoded chunks within a byte budget.
pub(crate) struct ChunkCache {
    state: Mutex<State>,
    budget: AtomicU64,
    disk_cache: DiskCache,
    unread: Arc<AtomicU64>,
    /// Counts of hits, decodes, waits and evictions.
    pub(crate) counters: Arc<Counters>,
}

/// Budget reserved for a decode. Dropped unfinished, it is released and waiting readers get an
/// error.
struct Reservation<'a> {
    cache: &'a ChunkCache,
    key: CacheKey,
    charge: u64,
    pending: Arc<Pending>,
    finished: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.fail(Error::corrupt("chunk", Address::UNDEF, "decoding ended without a result"));
        }
    }
}

impl Reservation<'_> {
    fn fail(&mut self, error: Error) {
        self.finished = true;
        {
            let mut state = self.cache.state.lock();
            if matches!(state.slots.peek(&self.key), Some(Slot::Loading(p)) if Arc::ptr_eq(p, &self.pending)) {
                state.slots.pop(&self.key);
            }
            state.bytes = state.bytes.saturating_sub(self.charge);
        }
        self.publish(Err(error));
    }

    fn succeed(&mut self, chunk: &Arc<Chunk>, keep: bool) {
        self.finished = true;
        {
            let mut state = self.cache.state.lock();
            let size = charged_bytes(chunk.image.memory());
            let is_ours = matches!(state.slots.peek(&self.key), Some(Slot::Loading(p)) if Arc::ptr_eq(p, &self.pending));
            state.bytes = state.bytes.saturating_sub(self.charge);
            if is_ours && keep {
                state.slots.put(self.key, Slot::Ready(chunk.clone()));
                state.bytes = state.bytes.saturating_add(size);
            } else if is_ours {
                state.slots.pop(&self.key);
            }
        }
        self.publish(Ok(chunk.clone()));
    }

    fn publish(&self, result: Result<Arc<Chunk>>) {
        *self.pending.done.lock() = Some(result);
        self.pending.ready.notify_all();
    }
}

impl ChunkCache {
    /// Creates a cache of `budget` bytes that evicts to a temporary file of at most
    /// `disk_cache_bytes`.
    pub(crate) fn new(budget: u64, disk_cache_bytes: u64) -> Self {
        Self::with_counters(budget, disk_cache_bytes, Arc::default())
    }

    /// Creates a cache of `budget` bytes that continues `counters`.
    pub(crate) fn with_counters(budget: u64, disk_cache_bytes: u64, counters: Arc<Counters>) -> Self {
        ChunkCache {
            state: Mutex::new(State { slots: LruCache::unbounded(), consumed: VecDeque::new(), consumed_bytes: 0, bytes: 0 }),
            budget: AtomicU64::new(budget),
            disk_cache: DiskCache::new(disk_cache_bytes),
            unread: Arc::default(),
            counters,
        }
    }

    /// The budget, bytes.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Changes the budget, and evicts chunks that exceed it.
    pub(crate) fn set_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Relaxed);
        let victims = self.make_room(&mut self.state.lock(), 0);
        self.save_unfinished(victims);
    }

    /// Bytes of cached chunks and of reservations.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Bytes of cached chunks that have not been read: those decoded by read-ahead.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Counts `n` bytes of `chunk` copied to a reader; evicts surplus consumed chunks.
    pub(crate) fn record_read(&self, key: impl Into<CacheKey>, chunk: &Arc<Chunk>, n: u64) {
        let key = key.into();
        if !chunk.record_read(n) {
            return;
        }
        let limit = CONSUMED_MAX_BYTES.min(self.budget() / 4);
        let mut evicted = Vec::new();
        let mut state = self.state.lock();
        if !matches!(state.slots.peek(&key), Some(Slot::Ready(c)) if Arc::ptr_eq(c, chunk)) {
            return;
        }
        state.mark_consumed(key, chunk);
        while state.consumed_bytes > limit {
            let Some(chunk) = state.pop_consumed() else { break };
            evicted.push(chunk);
        }
        drop(state);
        // Freed without the lock.
        drop(evicted);
    }

    /// Drops the chunk `key`, which is stale.
    pub(crate) fn remove(&self, key: impl Into<CacheKey>) {
        let key = key.into();
        let mut state = self.state.lock();
        let removed = match state.slots.pop(&key) {
            Some(Slot::Ready(chunk)) => {
                state.subtract(&chunk);
                Some(chunk)
            }
            // The decoding thread finds its slot gone and does not cache the chunk.
            _ => None,
        };
        drop(state);
        drop(removed);
        self.disk_cache.remove(key);
    }

    /// Drops every chunk: any may be stale.
    pub(crate) fn clear(&self) {
        let datasets: std::collections::HashSet<DatasetKey> = self.state.lock().slots.iter().map(|(k, _)| k.dataset()).collect();
        datasets.into_iter().for_each(|dataset| self.forget(dataset));
    }

    /// The disk cache, which holds evicted chunks.
    pub(crate) fn disk_cache(&self) -> &DiskCache {
        &self.disk_cache
    }

    /// True when the chunk is in memory, being decoded, or in the disk cache.
    pub(crate) fn contains(&self, key: impl Into<CacheKey>) -> bool {
        let key = key.into();
        self.state.lock().slots.contains(&key) || self.disk_cache.find(key).is_some()
    }

    /// Looks up several chunks under one lock; `None` for those not in memory.
    pub(crate) fn ready(&self, keys: impl Iterator<Item = ChunkKey>) -> Vec<Option<Arc<Chunk>>> {
        let mut state = self.state.lock();
        let found: Vec<_> = keys
            .map(|key| match state.slots.get(&CacheKey::Chunk(key)) {
                Some(Slot::Ready(chunk)) => Some(chunk.clone()),
                _ => None,
            })
            .collect();
        drop(state);
        self.counters.hits.fetch_add(found.iter().flatten().count() as u64, Ordering::Relaxed);
        found
    }

    /// True when the chunk is being decoded or in the disk cache.
    pub(crate) fn is_loading_or_on_disk(&self, key: impl Into<CacheKey>) -> bool {
        let key = key.into();
        matches!(self.state.lock().slots.peek(&key), Some(Slot::Loading(_))) || self.disk_cache.find(key).is_some()
    }

    /// Returns the chunk `key` of `size` decoded bytes; calls `load` to decode it on a miss.
    ///
    /// Waits if another thread is decoding the chunk.
    pub(crate) fn get(&self, key: impl Into<CacheKey>, size: u64, load: impl FnOnce() -> Result<Image>) -> Result<Found> {
        let key = key.into();
        let pending = {
            let mut state = self.state.lock();
            match state.slots.get(&key) {
                Some(Slot::Ready(chunk)) => {
                    self.counters.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(Found::Chunk(chunk.clone()));
                }
                Some(Slot::Loading(p)) => Some(p.clone()),
                None => None,
            }
        };
        if let Some(pending) = pending {
            return self.wait(&pending);
        }
        if let Some(offset) = self.disk_cache.find(key) {
            self.counters.disk_cache_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Found::OnDisk(offset));
        }
        self.load(key, size, load)
    }

    fn wait(&self, pending: &Pending) -> Result<Found> {
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        waiting::may_wait();
        let mut done = pending.done.lock();
        loop {
            if let Some(result) = done.as_ref() {
                return result.clone().map(Found::Chunk);
            }
            pending.ready.wait(&mut done);
        }
    }

    fn load(&self, key: CacheKey, size: u64, load: impl FnOnce() -> Result<Image>) -> Result<Found> {
        waiting::may_wait();
        let pending = Arc::new(Pending::default());
        let size = charged_bytes(size);
        let keep = size <= self.budget();
        let victims = {
            let mut state = self.state.lock();
            match state.slots.get(&key) {
                // Another thread loaded it between the two locks.
                Some(Slot::Ready(chunk)) => return Ok(Found::Chunk(chunk.clone())),
                Some(Slot::Loading(p)) => {
                    let p = p.clone();
                    drop(state);
                    return self.wait(&p);
                }
                None => {}
            }
            let victims = if keep { self.make_room(&mut state, size) } else { Vec::new() };
            state.slots.put(key, Slot::Loading(pending.clone()));
            state.bytes = state.bytes.saturating_add(size);
            victims
        };
        let mut reservation = Reservation { cache: self, key, charge: size, pending, finished: false };
        self.save_unfinished(victims);
        self.counters.decodes.fetch_add(1, Ordering::Relaxed);
        if !keep {
            self.counters.unkept.fetch_add(1, Ordering::Relaxed);
        }
        match load() {
            Ok(image) => {
                let chunk = Arc::new(Chunk::new(image, &self.unread));
                reservation.succeed(&chunk, keep);
                Ok(Found::Chunk(chunk))
            }
            Err(e) => {
                reservation.fail(e.clone());
                Err(e)
            }
        }
    }

    /// Evicts ready chunks until `size` more bytes fit: consumed ones, then the least recently
    /// used.
    fn make_room(&self, state: &mut State, size: u64) -> Vec<(CacheKey, Arc<Chunk>)> {
        let mut victims = Vec::new();
        let mut loading = Vec::new();
        let budget = self.budget();
        while state.bytes.saturating_add(size) > budget {
            if let Some((key, chunk)) = state.pop_consumed() {
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                victims.push((key, chunk));
                continue;
            }
            match state.slots.pop_lru() {
                Some((key, Slot::Ready(chunk))) => {
                    state.subtract(&chunk);
                    self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                    victims.push((key, chunk));
                }
                Some((key, slot)) => loading.push((key, slot)),
                None => break,
            }
        }
        for (key, slot) in loading {
            state.slots.put(key, slot);
        }
        victims
    }

    /// Writes evicted chunks that were read in part to the disk cache: they will be read again.
    fn save_unfinished(&self, victims: Vec<(CacheKey, Arc<Chunk>)>) {
        for (key, chunk) in victims {
            if !chunk.is_consumed()
                && chunk.bytes_read.load(Ordering::Relaxed) > 0
                && let Some(bytes) = chunk.image.dense()
            {
                self.disk_cache.put(key, bytes);
            }
        }
    }

    /// Drops every chunk of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        let mut state = self.state.lock();
        let keys: Vec<_> = state.slots.iter().filter(|(k, _)| k.dataset() == dataset).map(|(k, _)| *k).collect();
        for key in keys {
            // A chunk being decoded keeps its reservation until its loader ends.
            if let Some(Slot::Ready(chunk)) = state.slots.pop(&key) {
                state.subtract(&chunk);
            }
        }
        drop(state);
        self.disk_cache.forget(dataset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::chunk::image::DenseImage;
    use std::sync::Barrier;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { dataset: 1.into(), chunk }
    }

    fn bytes(f: Found) -> Vec<u8> {
        match f {
            Found::Chunk(c) => c.image().dense().unwrap().to_vec(),
            Found::OnDisk(_) => panic!("on disk"),
        }
    }

    #[test]
    fn one_decode_however_many_wait() {
        let cache = ChunkCache::new(1 << 20, 0);
        let barrier = Barrier::new(8);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    barrier.wait();
                    let c = cache.get(key(7), 100, || {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(DenseImage::boxed(vec![9; 100]))
                    });
                    assert_eq!(bytes(c.unwrap()), [9; 100]);
                });
            }
        });
        assert_eq!(cache.counters.decodes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes() {
        let budget = 10 * charged_bytes(100);
        let cache = ChunkCache::new(budget, 0);
        for i in 0..30 {
            cache.get(key(i), 100, || Ok(DenseImage::boxed(vec![i as u8; 100]))).unwrap();
            assert!(cache.bytes() <= budget);
        }
        assert!(!cache.contains(key(19)) && cache.contains(key(20)) && cache.contains(key(29)));
    }

    /// Regression: a cache of a gigabyte held hundreds of millions of one-byte chunks.
    #[test]
    fn tiny_chunks_count_for_what_they_take() {
        let cache = ChunkCache::new(100_000, 0);
        for i in 0..2000 {
            cache.get(key(i), 1, || Ok(DenseImage::boxed(vec![1]))).unwrap();
        }
        assert!(cache.state.lock().slots.len() < 500);
    }

    #[test]
    fn chunks_read_to_their_ends_go_first() {
        let cache = ChunkCache::new(1_010_000, 0);
        for i in 0..6 {
            let Found::Chunk(c) = cache.get(key(i), 100_000, || Ok(DenseImage::boxed(vec![1; 100_000]))).unwrap() else {
                panic!("on disk")
            };
            assert_eq!(cache.unread_bytes(), if i == 0 { 100_000 } else { 200_000 });
            if i > 0 {
                cache.record_read(key(i), &c, 60_000);
                cache.record_read(key(i), &c, 40_000);
                cache.record_read(key(i), &c, 40_000);
            } else {
                cache.record_read(key(i), &c, 60_000);
                let unread = cache.get(key(99), 100_000, || Ok(DenseImage::boxed(vec![1; 100_000])));
                drop(unread);
            }
        }
        // A quarter of the budget: two of them.
        let held: Vec<u64> = (0..6).filter(|i| cache.contains(key(*i))).collect();
        assert_eq!((held, cache.bytes()), (vec![0, 4, 5], 4 * charged_bytes(100_000)));
        cache.get(key(7), 700_000, || Ok(DenseImage::boxed(vec![1; 700_000]))).unwrap();
        let held: Vec<u64> = (0..8).filter(|i| cache.contains(key(*i))).collect();
        assert_eq!((held, cache.bytes()), (vec![0, 5, 7], 3 * charged_bytes(100_000) + charged_bytes(700_000)));
    }

    #[test]
    fn too_large_is_served_and_not_kept() {
        let cache = ChunkCache::new(50, 0);
        assert_eq!(bytes(cache.get(key(1), 100, || Ok(DenseImage::boxed(vec![1; 100]))).unwrap()).len(), 100);
        assert!(!cache.contains(key(1)) && cache.bytes() == 0);
    }

    #[test]
    fn a_failure_reaches_everyone_and_is_tried_again() {
        let cache = ChunkCache::new(1000, 0);
        let e = Error::corrupt("chunk", Address(5), "bad");
        assert_eq!(cache.get(key(1), 10, || Err(e.clone())).err(), Some(e));
        assert_eq!(cache.bytes(), 0);
        assert_eq!(bytes(cache.get(key(1), 10, || Ok(DenseImage::boxed(vec![3; 10]))).unwrap()), [3; 10]);
    }

    #[test]
    fn a_panicking_decoder_leaves_no_reservation() {
        let cache = ChunkCache::new(1000, 0);
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get(key(1), 10, || panic!("decoder"))));
        assert!(r.is_err() && cache.bytes() == 0 && !cache.contains(key(1)));
    }

    #[test]
    fn a_chunk_read_in_part_goes_to_the_disk_cache() {
        let cache = ChunkCache::new(10_000, 1 << 20);
        let Found::Chunk(c) = cache.get(key(1), 9000, || Ok(DenseImage::boxed(vec![5; 9000]))).unwrap() else { panic!("on disk") };
        cache.record_read(key(1), &c, 10);
        cache.get(key(2), 9000, || Ok(DenseImage::boxed(vec![6; 9000]))).unwrap();
        let Found::OnDisk(at) = cache.get(key(1), 9000, || panic!("decoded again")).unwrap() else { panic!("in memory") };
        let mut b = [0; 4];
        cache.disk_cache().read(at, 100, &mut b).unwrap();
        assert_eq!(b, [5; 4]);
    }
}
