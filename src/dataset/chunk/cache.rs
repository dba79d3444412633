//! The chunk cache: decoded chunks of every dataset, one byte budget, one decode per chunk.
//!
//! A thread that misses reserves the chunk's bytes (evicting the least recently used ones), then
//! decodes with no lock held; others that want the same chunk wait for it. Chunks above the budget
//! are handed out without being kept. Bytes being decoded count against the budget, so the total
//! in memory stays within it however many threads decode.
//!
//! A chunk that was read to its end is in the kernel's page cache and rarely asked for again: of
//! those only [`CONSUMED_BYTES`] are kept, so that sequential reading uses the same memory again
//! (which the processor's caches still hold) instead of filling the budget with fresh pages.

use super::spill::Spill;
use crate::base::{Address, Error, Result, buffers, waiting};
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Chunks that were read to their ends are kept up to this many bytes, and to a quarter of the budget.
const CONSUMED_BYTES: u64 = 16 << 20;

/// What an entry takes beside its bytes: many tiny chunks are mostly that.
const ENTRY: u64 = 256;

fn charge(len: u64) -> u64 {
    len.saturating_add(ENTRY)
}

/// Which chunk: dataset number (unique in the process), linear chunk number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// Unique number of the open dataset.
    pub dataset: u64,
    /// Row-major number of the chunk.
    pub chunk: u64,
}

/// A decoded chunk and how much of it was read since it was decoded.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    served: AtomicU64,
    /// Whether it is among the consumed ones; changed under the cache's lock only.
    counted: AtomicBool,
    /// Bytes of chunks that nobody has read yet, of the whole cache.
    unread: Arc<AtomicU64>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.served.load(Ordering::Relaxed) == 0 {
            self.unread.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
        }
        buffers::give(std::mem::take(&mut self.bytes));
    }
}

impl Chunk {
    /// Decoded bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn new(bytes: Vec<u8>, unread: &Arc<AtomicU64>) -> Self {
        unread.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Chunk { bytes, served: AtomicU64::new(0), counted: AtomicBool::new(false), unread: unread.clone() }
    }

    /// Notes that `n` of its bytes were copied to a reader; true when these were the last ones.
    fn note_served(&self, n: u64) -> bool {
        let size = self.bytes.len() as u64;
        let before = self.served.fetch_add(n, Ordering::Relaxed);
        if before == 0 && n > 0 {
            self.unread.fetch_sub(size, Ordering::Relaxed);
        }
        before < size && before.saturating_add(n) >= size
    }

    fn is_consumed(&self) -> bool {
        self.served.load(Ordering::Relaxed) >= self.bytes.len() as u64
    }
}

/// What a caller gets: the chunk in memory, or its place in the spill file.
#[derive(Debug, Clone)]
pub enum Found {
    /// In memory.
    Chunk(Arc<Chunk>),
    /// Decoded earlier, now at this offset of the spill file.
    Spilled(u64),
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
    slots: LruCache<ChunkKey, Slot>,
    /// Chunks read to their ends, in that order; some may be gone.
    consumed: VecDeque<ChunkKey>,
    consumed_bytes: u64,
    /// Bytes of ready chunks and reservations of loading ones.
    bytes: u64,
}

impl State {
    fn note_consumed(&mut self, key: ChunkKey, chunk: &Chunk) {
        if chunk.counted.swap(true, Ordering::Relaxed) {
            return;
        }
        // Keys of chunks that were evicted otherwise stay behind.
        if self.consumed.len() > self.slots.len().saturating_mul(2).saturating_add(64) {
            let slots = &self.slots;
            self.consumed.retain(|k| slots.contains(k));
        }
        self.consumed.push_back(key);
        self.consumed_bytes = self.consumed_bytes.saturating_add(chunk.bytes.len() as u64);
    }

    /// Takes out the chunk that was read to its end first.
    fn pop_consumed(&mut self) -> Option<(ChunkKey, Arc<Chunk>)> {
        while let Some(key) = self.consumed.pop_front() {
            if matches!(self.slots.peek(&key), Some(Slot::Ready(c)) if c.counted.load(Ordering::Relaxed))
                && let Some(Slot::Ready(chunk)) = self.slots.pop(&key)
            {
                self.gone(&chunk);
                return Some((key, chunk));
            }
        }
        None
    }

    /// Settles the sums for a chunk taken out of `slots`.
    fn gone(&mut self, chunk: &Chunk) {
        let size = chunk.bytes.len() as u64;
        self.bytes = self.bytes.saturating_sub(charge(size));
        if chunk.counted.load(Ordering::Relaxed) {
            self.consumed_bytes = self.consumed_bytes.saturating_sub(size);
        }
    }
}

/// Counters, for `.h5dir/status`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests answered from memory.
    pub hits: AtomicU64,
    /// Chunks decoded.
    pub decodes: AtomicU64,
    /// Requests that waited for another thread's decode.
    pub waits: AtomicU64,
    /// Chunks evicted.
    pub evictions: AtomicU64,
    /// Chunks handed out without being kept.
    pub unkept: AtomicU64,
    /// Requests answered from the spill file.
    pub spill_hits: AtomicU64,
}

/// See the module's description.
pub struct ChunkCache {
    state: Mutex<State>,
    budget: u64,
    spill: Spill,
    unread: Arc<AtomicU64>,
    /// What happened so far.
    pub counters: Arc<Counters>,
}

/// Removes a reservation if the loader fails or panics, and wakes whoever waits.
struct Reservation<'a> {
    cache: &'a ChunkCache,
    key: ChunkKey,
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
            let size = charge(chunk.bytes.len() as u64);
            let mine = matches!(state.slots.peek(&self.key), Some(Slot::Loading(p)) if Arc::ptr_eq(p, &self.pending));
            state.bytes = state.bytes.saturating_sub(self.charge);
            if mine && keep {
                state.slots.put(self.key, Slot::Ready(chunk.clone()));
                state.bytes = state.bytes.saturating_add(size);
            } else if mine {
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
    /// A cache of `budget` bytes, spilling to at most `spill_bytes` of temporary file.
    pub fn new(budget: u64, spill_bytes: u64) -> Self {
        Self::counting(budget, spill_bytes, Arc::default())
    }

    /// The same, which goes on counting with `counters`.
    pub fn counting(budget: u64, spill_bytes: u64, counters: Arc<Counters>) -> Self {
        ChunkCache {
            state: Mutex::new(State { slots: LruCache::unbounded(), consumed: VecDeque::new(), consumed_bytes: 0, bytes: 0 }),
            budget,
            spill: Spill::new(spill_bytes),
            unread: Arc::default(),
            counters,
        }
    }

    /// The budget, bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes held or reserved now.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Bytes of chunks in memory that nobody has read yet: the ones decoded ahead of a reader.
    pub fn unread_bytes(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Notes that `n` bytes of `chunk` were copied to a reader.
    pub fn note_served(&self, key: ChunkKey, chunk: &Arc<Chunk>, n: u64) {
        if !chunk.note_served(n) {
            return;
        }
        let limit = CONSUMED_BYTES.min(self.budget / 4);
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        if !matches!(state.slots.peek(&key), Some(Slot::Ready(c)) if Arc::ptr_eq(c, chunk)) {
            return;
        }
        state.note_consumed(key, chunk);
        while state.consumed_bytes > limit {
            let Some(chunk) = state.pop_consumed() else { break };
            gone.push(chunk);
        }
        drop(state);
        // Freed without the lock.
        drop(gone);
    }

    /// Forgets the chunk `key`: its stored bytes are out of date.
    pub fn remove(&self, key: ChunkKey) {
        let mut state = self.state.lock();
        let gone = match state.slots.pop(&key) {
            Some(Slot::Ready(chunk)) => {
                state.gone(&chunk);
                Some(chunk)
            }
            // Whoever decodes it finds that it is not wanted any more.
            _ => None,
        };
        drop(state);
        drop(gone);
        self.spill.remove(key);
    }

    /// Forgets every chunk: what they were decoded from may be out of date.
    pub fn clear(&self) {
        let datasets: std::collections::HashSet<u64> = self.state.lock().slots.iter().map(|(k, _)| k.dataset).collect();
        datasets.into_iter().for_each(|dataset| self.forget(dataset));
    }

    /// The spill file.
    pub fn spill(&self) -> &Spill {
        &self.spill
    }

    /// True when the chunk is in memory, being decoded, or spilled.
    pub fn contains(&self, key: ChunkKey) -> bool {
        self.state.lock().slots.contains(&key) || self.spill.find(key).is_some()
    }

    /// The chunks of `keys` that are in memory, in one step; `None` for the others.
    pub fn ready(&self, keys: impl Iterator<Item = ChunkKey>) -> Vec<Option<Arc<Chunk>>> {
        let mut state = self.state.lock();
        let found: Vec<_> = keys
            .map(|key| match state.slots.get(&key) {
                Some(Slot::Ready(chunk)) => Some(chunk.clone()),
                _ => None,
            })
            .collect();
        drop(state);
        self.counters.hits.fetch_add(found.iter().flatten().count() as u64, Ordering::Relaxed);
        found
    }

    /// True when the chunk is being decoded or in the spill file.
    pub fn is_under_way(&self, key: ChunkKey) -> bool {
        matches!(self.state.lock().slots.peek(&key), Some(Slot::Loading(_))) || self.spill.find(key).is_some()
    }

    /// The chunk `key` of `size` decoded bytes; `load` decodes it if nobody has or does.
    pub fn get(&self, key: ChunkKey, size: u64, load: impl FnOnce() -> Result<Vec<u8>>) -> Result<Found> {
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
        if let Some(offset) = self.spill.find(key) {
            self.counters.spill_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Found::Spilled(offset));
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

    fn load(&self, key: ChunkKey, size: u64, load: impl FnOnce() -> Result<Vec<u8>>) -> Result<Found> {
        waiting::may_wait();
        let pending = Arc::new(Pending::default());
        let size = charge(size);
        let keep = size <= self.budget;
        let victims = {
            let mut state = self.state.lock();
            match state.slots.get(&key) {
                // Another thread came first between the two locks.
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
        self.spill_unfinished(victims);
        self.counters.decodes.fetch_add(1, Ordering::Relaxed);
        if !keep {
            self.counters.unkept.fetch_add(1, Ordering::Relaxed);
        }
        match load() {
            Ok(bytes) => {
                let chunk = Arc::new(Chunk::new(bytes, &self.unread));
                reservation.succeed(&chunk, keep);
                Ok(Found::Chunk(chunk))
            }
            Err(e) => {
                reservation.fail(e.clone());
                Err(e)
            }
        }
    }

    /// Evicts ready chunks until `size` more bytes fit: consumed ones, then the least recently used.
    fn make_room(&self, state: &mut State, size: u64) -> Vec<(ChunkKey, Arc<Chunk>)> {
        let mut victims = Vec::new();
        let mut loading = Vec::new();
        while state.bytes.saturating_add(size) > self.budget {
            if let Some((key, chunk)) = state.pop_consumed() {
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                victims.push((key, chunk));
                continue;
            }
            match state.slots.pop_lru() {
                Some((key, Slot::Ready(chunk))) => {
                    state.gone(&chunk);
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

    /// Keeps what was decoded but not read to the end: it will be asked for again.
    fn spill_unfinished(&self, victims: Vec<(ChunkKey, Arc<Chunk>)>) {
        for (key, chunk) in victims {
            if !chunk.is_consumed() && chunk.served.load(Ordering::Relaxed) > 0 {
                self.spill.put(key, &chunk.bytes);
            }
        }
    }

    /// Forgets every chunk of `dataset`.
    pub fn forget(&self, dataset: u64) {
        let mut state = self.state.lock();
        let keys: Vec<_> = state.slots.iter().filter(|(k, _)| k.dataset == dataset).map(|(k, _)| *k).collect();
        for key in keys {
            // A chunk being decoded keeps its reservation until its loader ends.
            if let Some(Slot::Ready(chunk)) = state.slots.pop(&key) {
                state.gone(&chunk);
            }
        }
        drop(state);
        self.spill.forget(dataset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { dataset: 1, chunk }
    }

    fn bytes(f: Found) -> Vec<u8> {
        match f {
            Found::Chunk(c) => c.bytes().to_vec(),
            Found::Spilled(_) => panic!("in the spill file"),
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
                        Ok(vec![9; 100])
                    });
                    assert_eq!(bytes(c.unwrap()), [9; 100]);
                });
            }
        });
        assert_eq!(cache.counters.decodes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes() {
        let budget = 10 * charge(100);
        let cache = ChunkCache::new(budget, 0);
        for i in 0..30 {
            cache.get(key(i), 100, || Ok(vec![i as u8; 100])).unwrap();
            assert!(cache.bytes() <= budget);
        }
        assert!(!cache.contains(key(19)) && cache.contains(key(20)) && cache.contains(key(29)));
    }

    /// Regression: a cache of a gigabyte held hundreds of millions of one-byte chunks.
    #[test]
    fn tiny_chunks_count_for_what_they_take() {
        let cache = ChunkCache::new(100_000, 0);
        for i in 0..2000 {
            cache.get(key(i), 1, || Ok(vec![1])).unwrap();
        }
        assert!(cache.state.lock().slots.len() < 500);
    }

    #[test]
    fn chunks_read_to_their_ends_go_first() {
        let cache = ChunkCache::new(1_010_000, 0);
        for i in 0..6 {
            let Found::Chunk(c) = cache.get(key(i), 100_000, || Ok(vec![1; 100_000])).unwrap() else { panic!("spilled") };
            assert_eq!(cache.unread_bytes(), if i == 0 { 100_000 } else { 200_000 });
            if i > 0 {
                cache.note_served(key(i), &c, 60_000);
                cache.note_served(key(i), &c, 40_000);
                cache.note_served(key(i), &c, 40_000);
            } else {
                cache.note_served(key(i), &c, 60_000);
                let unread = cache.get(key(99), 100_000, || Ok(vec![1; 100_000]));
                drop(unread);
            }
        }
        // A quarter of the budget: two of them.
        let held: Vec<u64> = (0..6).filter(|i| cache.contains(key(*i))).collect();
        assert_eq!((held, cache.bytes()), (vec![0, 4, 5], 4 * charge(100_000)));
        cache.get(key(7), 700_000, || Ok(vec![1; 700_000])).unwrap();
        let held: Vec<u64> = (0..8).filter(|i| cache.contains(key(*i))).collect();
        assert_eq!((held, cache.bytes()), (vec![0, 5, 7], 3 * charge(100_000) + charge(700_000)));
    }

    #[test]
    fn too_large_is_served_and_not_kept() {
        let cache = ChunkCache::new(50, 0);
        assert_eq!(bytes(cache.get(key(1), 100, || Ok(vec![1; 100])).unwrap()).len(), 100);
        assert!(!cache.contains(key(1)) && cache.bytes() == 0);
    }

    #[test]
    fn a_failure_reaches_everyone_and_is_tried_again() {
        let cache = ChunkCache::new(1000, 0);
        let e = Error::corrupt("chunk", Address(5), "bad");
        assert_eq!(cache.get(key(1), 10, || Err(e.clone())).err(), Some(e));
        assert_eq!(cache.bytes(), 0);
        assert_eq!(bytes(cache.get(key(1), 10, || Ok(vec![3; 10])).unwrap()), [3; 10]);
    }

    #[test]
    fn a_panicking_decoder_leaves_no_reservation() {
        let cache = ChunkCache::new(1000, 0);
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get(key(1), 10, || panic!("decoder"))));
        assert!(r.is_err() && cache.bytes() == 0 && !cache.contains(key(1)));
    }

    #[test]
    fn a_chunk_read_in_part_goes_to_the_spill_file() {
        let cache = ChunkCache::new(10_000, 1 << 20);
        let Found::Chunk(c) = cache.get(key(1), 9000, || Ok(vec![5; 9000])).unwrap() else { panic!("spilled") };
        cache.note_served(key(1), &c, 10);
        cache.get(key(2), 9000, || Ok(vec![6; 9000])).unwrap();
        let Found::Spilled(at) = cache.get(key(1), 9000, || panic!("decoded again")).unwrap() else { panic!("in memory") };
        let mut b = [0; 4];
        cache.spill().read(at, 100, &mut b).unwrap();
        assert_eq!(b, [5; 4]);
    }
}
