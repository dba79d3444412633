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
//!
//! Containers that are mounted together share one memory ([`ChunkCache::sharing`]): one budget, and
//! the least recently used chunk of all goes first.

mod claims;

pub(crate) use claims::{Claim, Loading};

use super::disk_cache::DiskCache;
use super::image::{ChunkImage, Image};
use super::key::{CacheKey, ChunkKey, DatasetKey};
use crate::base::{Address, Error, Result, waiting};
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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
    /// True if the chunk is in `CacheState::consumed`. Changed only under the cache's lock.
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

/// A cached chunk: in memory, or in the disk cache.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// In memory.
    Chunk(Arc<Chunk>),
    /// Decoded earlier and evicted to the disk cache.
    OnDisk,
}

#[derive(Default)]
struct Pending {
    done: Mutex<Option<Result<Arc<Chunk>>>>,
    ready: Condvar,
}

impl Pending {
    /// Waits until the decode ends.
    fn wait(&self) -> Result<Arc<Chunk>> {
        waiting::may_wait();
        let mut done = self.done.lock();
        loop {
            if let Some(result) = done.as_ref() {
                return result.clone();
            }
            self.ready.wait(&mut done);
        }
    }
}

enum Slot {
    Ready(Arc<Chunk>),
    Loading(Arc<Pending>),
}

/// Number of a cache within its memory, and key in the cache.
type Key = (u32, CacheKey);

struct CacheState {
    slots: LruCache<Key, Slot>,
    /// Keys of consumed chunks, oldest first; some may have been evicted.
    consumed: VecDeque<Key>,
    consumed_bytes: u64,
    /// Bytes of ready chunks and reservations of loading ones.
    bytes: u64,
}

impl CacheState {
    fn mark_consumed(&mut self, key: Key, chunk: &Chunk) {
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
    fn pop_consumed(&mut self) -> Option<(Key, Arc<Chunk>)> {
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

/// Memory of one or more caches.
struct Memory {
    state: Mutex<CacheState>,
    budget: AtomicU64,
    unread: Arc<AtomicU64>,
    /// Number of the next cache.
    next: AtomicU32,
}

/// Cache of decoded chunks within a byte budget.
pub(crate) struct ChunkCache {
    memory: Arc<Memory>,
    /// Number of this cache within the memory.
    number: u32,
    disk_cache: DiskCache,
    /// Counts of hits, decodes, waits and evictions.
    pub(crate) counters: Arc<Counters>,
}

impl Drop for ChunkCache {
    fn drop(&mut self) {
        if Arc::strong_count(&self.memory) > 1 {
            self.forget_all(|_| true);
        }
    }
}

/// Budget reserved for a decode by its owner, for which other readers of the chunk wait. Dropped
/// unfinished, it is released and they get an error.
pub(crate) struct Reservation<'a> {
    cache: &'a ChunkCache,
    key: Key,
    charge: u64,
    /// The chunk is within the budget.
    keep: bool,
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
    /// Ends the decode: the chunk is cached, or waiting readers get the error.
    pub(crate) fn finish(mut self, decoded: Result<Image>) -> Result<Arc<Chunk>> {
        match decoded {
            Ok(image) => {
                let chunk = Arc::new(Chunk::new(image, &self.cache.memory.unread));
                self.succeed(&chunk);
                Ok(chunk)
            }
            Err(e) => {
                self.fail(e.clone());
                Err(e)
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.finished = true;
        {
            let mut state = self.cache.memory.state.lock();
            if matches!(state.slots.peek(&self.key), Some(Slot::Loading(p)) if Arc::ptr_eq(p, &self.pending)) {
                state.slots.pop(&self.key);
            }
            state.bytes = state.bytes.saturating_sub(self.charge);
        }
        self.publish(Err(error));
    }

    fn succeed(&mut self, chunk: &Arc<Chunk>) {
        self.finished = true;
        {
            let mut state = self.cache.memory.state.lock();
            let size = charged_bytes(chunk.image.memory());
            let is_ours = matches!(state.slots.peek(&self.key), Some(Slot::Loading(p)) if Arc::ptr_eq(p, &self.pending));
            state.bytes = state.bytes.saturating_sub(self.charge);
            if is_ours && self.keep {
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
        let state = CacheState { slots: LruCache::unbounded(), consumed: VecDeque::new(), consumed_bytes: 0, bytes: 0 };
        let memory = Memory { state: Mutex::new(state), budget: AtomicU64::new(budget), unread: Arc::default(), next: AtomicU32::new(1) };
        ChunkCache { memory: Arc::new(memory), number: 0, disk_cache: DiskCache::new(disk_cache_bytes), counters: Arc::default() }
    }

    /// An empty cache in the same memory, with its own disk cache and the same counters.
    pub(crate) fn sharing(&self, disk_cache_bytes: u64) -> Self {
        let number = self.memory.next.fetch_add(1, Ordering::Relaxed);
        ChunkCache { memory: self.memory.clone(), number, disk_cache: DiskCache::new(disk_cache_bytes), counters: self.counters.clone() }
    }

    fn key(&self, key: impl Into<CacheKey>) -> Key {
        (self.number, key.into())
    }

    /// The budget, bytes.
    pub(crate) fn budget(&self) -> u64 {
        self.memory.budget.load(Ordering::Relaxed)
    }

    /// Changes the budget of the memory, and evicts chunks that exceed it.
    pub(crate) fn set_budget(&self, bytes: u64) {
        self.memory.budget.store(bytes, Ordering::Relaxed);
        let victims = self.make_room(&mut self.memory.state.lock(), 0);
        self.save_unfinished(victims);
    }

    /// Bytes of cached chunks and of reservations.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.state.lock().bytes
    }

    /// Bytes of cached chunks that have not been read: those decoded by read-ahead.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.memory.unread.load(Ordering::Relaxed)
    }

    /// Counts `n` bytes of `chunk` copied to a reader; evicts surplus consumed chunks.
    pub(crate) fn record_read(&self, key: impl Into<CacheKey>, chunk: &Arc<Chunk>, n: u64) {
        let key = self.key(key);
        if !chunk.record_read(n) {
            return;
        }
        let limit = CONSUMED_MAX_BYTES.min(self.budget() / 4);
        let mut evicted = Vec::new();
        let mut state = self.memory.state.lock();
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
        let key = self.key(key);
        let mut state = self.memory.state.lock();
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
        self.disk_cache.remove(key.1);
    }

    /// Drops every chunk: any may be stale.
    pub(crate) fn clear(&self) {
        self.forget_all(|_| true);
    }

    /// The disk cache, which holds evicted chunks.
    pub(crate) fn disk_cache(&self) -> &DiskCache {
        &self.disk_cache
    }

    /// True when the chunk is in memory, being decoded, or in the disk cache.
    pub(crate) fn contains(&self, key: impl Into<CacheKey>) -> bool {
        let key = self.key(key);
        self.memory.state.lock().slots.contains(&key) || self.disk_cache.find(key.1).is_some()
    }

    /// Looks up several chunks under one lock; `None` for those not in memory.
    pub(crate) fn ready(&self, keys: impl Iterator<Item = ChunkKey>) -> Vec<Option<Arc<Chunk>>> {
        let mut state = self.memory.state.lock();
        let found: Vec<_> = keys
            .map(|key| match state.slots.get(&self.key(key)) {
                Some(Slot::Ready(chunk)) => Some(chunk.clone()),
                _ => None,
            })
            .collect();
        drop(state);
        self.counters.hits.fetch_add(found.iter().flatten().count() as u64, Ordering::Relaxed);
        found
    }

    /// Returns the chunk `key` of `size` decoded bytes; calls `load` to decode it on a miss.
    ///
    /// Waits if another thread is decoding the chunk.
    pub(crate) fn get(&self, key: impl Into<CacheKey>, size: u64, load: impl FnOnce() -> Result<Image>) -> Result<Found> {
        let key = self.key(key);
        let pending = {
            let mut state = self.memory.state.lock();
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
        if self.disk_cache.find(key.1).is_some() {
            self.counters.disk_cache_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Found::OnDisk);
        }
        self.load(key, size, load)
    }

    fn wait(&self, pending: &Pending) -> Result<Found> {
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        pending.wait().map(Found::Chunk)
    }

    fn load(&self, key: Key, size: u64, load: impl FnOnce() -> Result<Image>) -> Result<Found> {
        waiting::may_wait();
        let mut victims = Vec::new();
        let reservation = {
            let mut state = self.memory.state.lock();
            match state.slots.get(&key) {
                // Another thread loaded it between the two locks.
                Some(Slot::Ready(chunk)) => return Ok(Found::Chunk(chunk.clone())),
                Some(Slot::Loading(p)) => {
                    let p = p.clone();
                    drop(state);
                    return self.wait(&p);
                }
                None => self.reserve_slot(&mut state, key, size, &mut victims),
            }
        };
        self.save_unfinished(victims);
        self.count_decode(&reservation);
        reservation.finish(load()).map(Found::Chunk)
    }

    fn count_decode(&self, reservation: &Reservation<'_>) {
        self.counters.decodes.fetch_add(1, Ordering::Relaxed);
        if !reservation.keep {
            self.counters.unkept.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the chunk `key`, which has no slot, one that is being decoded.
    fn reserve_slot(&self, state: &mut CacheState, key: Key, size: u64, victims: &mut Vec<(Key, Arc<Chunk>)>) -> Reservation<'_> {
        let size = charged_bytes(size);
        let keep = size <= self.budget();
        if keep {
            victims.append(&mut self.make_room(state, size));
        }
        let pending = Arc::new(Pending::default());
        state.slots.put(key, Slot::Loading(pending.clone()));
        state.bytes = state.bytes.saturating_add(size);
        Reservation { cache: self, key, charge: size, keep, pending, finished: false }
    }

    /// Adds a chunk that is known, unless it is cached or being decoded.
    pub(crate) fn insert(&self, key: CacheKey, image: Image) -> Option<Arc<Chunk>> {
        let mut victims = Vec::new();
        let reservation = {
            let mut state = self.memory.state.lock();
            let key = self.key(key);
            (!state.slots.contains(&key)).then(|| self.reserve_slot(&mut state, key, image.memory(), &mut victims))
        };
        self.save_unfinished(victims);
        reservation?.finish(Ok(image)).ok()
    }

    /// Evicts ready chunks until `size` more bytes fit: consumed ones, then the least recently
    /// used.
    fn make_room(&self, state: &mut CacheState, size: u64) -> Vec<(Key, Arc<Chunk>)> {
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

    /// Writes evicted chunks of this cache that were read in part to its disk cache: they will be
    /// read again.
    fn save_unfinished(&self, victims: Vec<(Key, Arc<Chunk>)>) {
        for ((_, key), chunk) in victims.into_iter().filter(|((number, _), _)| *number == self.number) {
            if key.goes_to_disk()
                && !chunk.is_consumed()
                && chunk.bytes_read.load(Ordering::Relaxed) > 0
                && let Some(bytes) = chunk.image.dense()
            {
                self.disk_cache.put(key, bytes);
            }
        }
    }

    /// Drops every chunk of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        self.forget_all(|key| key.dataset() == dataset);
    }

    /// Drops every chunk whose key `stale` accepts.
    fn forget_all(&self, stale: impl Fn(&CacheKey) -> bool) {
        let mut state = self.memory.state.lock();
        let ours = |(number, key): &Key| *number == self.number && stale(key);
        let keys: Vec<_> = state.slots.iter().filter(|(k, _)| ours(k)).map(|(k, _)| *k).collect();
        let mut removed = Vec::with_capacity(keys.len());
        for key in keys {
            // A chunk being decoded keeps its reservation until its loader ends.
            if let Some(Slot::Ready(chunk)) = state.slots.pop(&key) {
                state.subtract(&chunk);
                removed.push(chunk);
            }
        }
        drop(state);
        // Freed without the lock.
        drop(removed);
        self.disk_cache.forget_all(stale);
    }
}

#[cfg(test)]
mod tests;
