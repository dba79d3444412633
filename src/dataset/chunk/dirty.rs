//! Chunks that were changed and are not in the file yet: the write-back side of the chunk cache.
//!
//! Readers look here first. Written out first are chunks whose every byte was written or that nobody has
//! touched for longest, as in libhdf5's chunk cache (H5D__chunk_cache_prune): a chunk that was filled is
//! unlikely to be written again.
//!
//! One that is too large for memory has its bytes in a temporary file (`plain`); there are few of those, and they have a bound of their own.
//!
//! While an operation is under way it is kept in mind what its changes take away, so that they can be taken back with the
//! rest of it.

use super::cache::ChunkKey;
use super::pieces::{ByteGrid, Touched};
use super::plain::Plain;
use crate::base::{Address, Error, Result};
use foldhash::{HashMap, HashMapExt};
use lru::LruCache;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A changed chunk.
#[derive(Debug)]
pub struct DirtyChunk {
    bytes: RwLock<Vec<u8>>,
    /// Where its bytes are instead, if it is too large for memory.
    file: Option<Plain>,
    /// Raised by each change; in a file, before and after it.
    version: AtomicU64,
    /// Bytes written so far; more than its size when some were written twice.
    written: AtomicU64,
    /// It was in no index when it was put in.
    added: bool,
}

/// Memory that keeping a chunk takes beside its bytes: chunks may be of single elements.
const KEEPING: u64 = 256;

/// The chunks, and the numbers of those of each dataset.
struct Kept {
    chunks: LruCache<ChunkKey, Arc<DirtyChunk>>,
    numbers: HashMap<u64, Numbers>,
}

/// Chunks of one dataset.
#[derive(Default)]
struct Numbers {
    all: BTreeSet<u64>,
    /// Bytes of those that are in no index.
    added: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { chunks: LruCache::unbounded(), numbers: HashMap::new() }
    }
}

impl Kept {
    fn has(&self, dataset: u64) -> bool {
        self.numbers.contains_key(&dataset)
    }
}

/// What taking an operation back needs to know.
#[derive(Default)]
struct Before {
    /// What it put in or took out, as it was before.
    chunks: HashMap<ChunkKey, Option<Arc<DirtyChunk>>>,
    /// Bytes of chunks that were there before, in the order in which they were changed: where they begin and what they were.
    bytes: Vec<(Arc<DirtyChunk>, usize, Vec<u8>)>,
}

/// See the module's description.
#[derive(Default)]
pub struct DirtyChunks {
    kept: Mutex<Kept>,
    bytes: AtomicU64,
    /// Bytes of those in files, and how many these are.
    in_files: AtomicU64,
    files: AtomicU64,
    /// Most that they were.
    most: AtomicU64,
    /// Of the operation under way.
    before: Mutex<Option<Before>>,
}

impl DirtyChunks {
    /// True when no chunk waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Memory of all chunks, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The most memory that all chunks ever took, bytes.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// True when chunks of `dataset` wait.
    pub fn has(&self, dataset: u64) -> bool {
        !self.is_empty() && self.kept.lock().has(dataset)
    }

    /// The changed chunk `key`.
    pub fn get(&self, key: ChunkKey) -> Option<Arc<DirtyChunk>> {
        if self.is_empty() {
            return None;
        }
        self.kept.lock().chunks.get(&key).cloned()
    }

    /// True when `chunk` is still the changed chunk `key`, in the state `version`.
    pub fn is_current(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, version: u64) -> bool {
        let kept = self.kept.lock();
        kept.chunks.peek(&key).is_some_and(|c| Arc::ptr_eq(c, chunk)) && chunk.version.load(Ordering::Acquire) == version
    }

    /// True when `chunk` is still the changed chunk `key`, in whatever state.
    pub fn is_there(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>) -> bool {
        self.kept.lock().chunks.peek(&key).is_some_and(|c| Arc::ptr_eq(c, chunk))
    }

    /// An operation begins: its changes may be taken back.
    pub fn begin(&self) {
        *self.before.lock() = Some(Before::default());
    }

    /// The operation ends; unless it was `done`, its changes are taken back.
    pub fn end(&self, done: bool) {
        let before = self.before.lock().take().unwrap_or_default();
        if done {
            return;
        }
        for (chunk, at, old) in before.bytes.into_iter().rev() {
            if let Err(e) = chunk.put(at, &old, 0) {
                tracing::error!("a change of a chunk that failed cannot be taken back: {e}");
            }
        }
        for (key, chunk) in before.chunks {
            match chunk {
                None => drop(self.take(key)),
                Some(chunk) => drop(self.put(key, chunk)),
            }
        }
    }

    fn note(&self, key: ChunkKey, was: Option<Arc<DirtyChunk>>) {
        if let Some(before) = &mut *self.before.lock() {
            before.chunks.entry(key).or_insert(was);
        }
    }

    /// Bytes of a chunk are about to be changed, from `at` on so many: they come back when the operation is taken back.
    pub fn keep_bytes(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, at: usize, len: usize) -> Result<()> {
        if let Some(before) = &mut *self.before.lock()
            && !before.chunks.contains_key(&key)
        {
            let mut old = vec![0; len.min(usize::try_from(chunk.len()).unwrap_or(usize::MAX).saturating_sub(at))];
            chunk.get(at as u64, &mut old)?;
            before.bytes.push((chunk.clone(), at, old));
        }
        Ok(())
    }

    /// Adds a chunk, of which `written` bytes are new. `added`: it is in no index.
    pub fn insert(&self, key: ChunkKey, bytes: Vec<u8>, written: u64, added: bool) {
        self.enter(key, DirtyChunk { bytes: RwLock::new(bytes), file: None, version: AtomicU64::new(0), written: written.into(), added });
    }

    /// The same with bytes in a file.
    pub fn insert_file(&self, key: ChunkKey, file: Plain, written: u64, added: bool) {
        let bytes = RwLock::default();
        self.enter(key, DirtyChunk { bytes, file: Some(file), version: AtomicU64::new(0), written: written.into(), added });
    }

    fn enter(&self, key: ChunkKey, chunk: DirtyChunk) {
        let old = self.put(key, Arc::new(chunk));
        self.note(key, old);
    }

    /// Bytes of the chunks in files, and how many these are.
    pub fn in_files(&self) -> (u64, u64) {
        (self.in_files.load(Ordering::Acquire), self.files.load(Ordering::Acquire))
    }

    fn count_file(&self, chunk: &DirtyChunk, more: bool) {
        let Some(file) = &chunk.file else { return };
        if more {
            self.in_files.fetch_add(file.len(), Ordering::AcqRel);
            self.files.fetch_add(1, Ordering::AcqRel);
        } else {
            self.in_files.fetch_sub(file.len(), Ordering::AcqRel);
            self.files.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn put(&self, key: ChunkKey, chunk: Arc<DirtyChunk>) -> Option<Arc<DirtyChunk>> {
        let added = chunk.added();
        let mut kept = self.kept.lock();
        let bytes = self.bytes.fetch_add(chunk.memory(), Ordering::AcqRel).saturating_add(chunk.memory());
        self.most.fetch_max(bytes, Ordering::Relaxed);
        self.count_file(&chunk, true);
        let old = kept.chunks.put(key, chunk);
        if let Some(old) = &old {
            self.bytes.fetch_sub(old.memory(), Ordering::AcqRel);
            self.count_file(old, false);
        }
        let numbers = kept.numbers.entry(key.dataset).or_default();
        numbers.all.insert(key.chunk);
        numbers.added = numbers.added.saturating_add(added).saturating_sub(old.as_ref().map_or(0, |old| old.added()));
        old
    }

    /// Takes a chunk out: it is in the file now, or no longer wanted.
    pub fn remove(&self, key: ChunkKey) {
        if let Some(old) = self.take(key) {
            self.note(key, Some(old));
        }
    }

    fn take(&self, key: ChunkKey) -> Option<Arc<DirtyChunk>> {
        let mut kept = self.kept.lock();
        let old = kept.chunks.pop(&key)?;
        self.bytes.fetch_sub(old.memory(), Ordering::AcqRel);
        self.count_file(&old, false);
        if let Some(numbers) = kept.numbers.get_mut(&key.dataset) {
            numbers.all.remove(&key.chunk);
            numbers.added = numbers.added.saturating_sub(old.added());
            if numbers.all.is_empty() {
                kept.numbers.remove(&key.dataset);
            }
        }
        Some(old)
    }

    /// The changed chunks of `dataset`, by number.
    pub fn of(&self, dataset: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let kept = self.kept.lock();
        let keys = kept.numbers.get(&dataset).into_iter().flat_map(|n| &n.all).map(|&chunk| ChunkKey { dataset, chunk });
        keys.filter_map(|key| kept.chunks.peek(&key).map(|c| (key, c.clone()))).collect()
    }

    /// Bytes of the changed chunks of `dataset` that are in no index.
    pub fn added(&self, dataset: u64) -> u64 {
        if self.is_empty() { 0 } else { self.kept.lock().numbers.get(&dataset).map_or(0, |n| n.added) }
    }

    /// Datasets with changed chunks.
    pub fn datasets(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.kept.lock().numbers.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// About `wanted` bytes of chunks in memory to be written out: full ones first, then the least recently used.
    pub fn choose(&self, wanted: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        self.select(wanted, |c| c.file.is_none())
    }

    /// The same of chunks in files.
    pub fn choose_files(&self, wanted: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        if self.in_files().1 == 0 { Vec::new() } else { self.select(wanted, |c| c.file.is_some()) }
    }

    fn select(&self, wanted: u64, which: impl Fn(&DirtyChunk) -> bool) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let mut all: Vec<_> = self.kept.lock().chunks.iter().filter(|(_, c)| which(c)).map(|(k, c)| (*k, c.clone())).collect();
        // Oldest first, then, keeping that order, the full ones before the others.
        all.reverse();
        all.sort_by_key(|(_, c)| !c.is_full());
        let mut sum = 0u64;
        all.retain(|(_, c)| {
            let take = sum < wanted;
            sum = sum.saturating_add(c.len().max(c.memory()));
            take
        });
        all
    }

    /// Forgets all chunks of `dataset`.
    pub fn forget(&self, dataset: u64) {
        for (key, _) in self.of(dataset) {
            self.remove(key);
        }
    }
}

impl DirtyChunk {
    /// Its bytes, decoded; none of a chunk in a file.
    pub fn bytes(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read()
    }

    /// Where its bytes are, if they are not in memory.
    pub fn file(&self) -> Option<&Plain> {
        self.file.as_ref()
    }

    /// Its bytes in all.
    pub fn len(&self) -> u64 {
        self.file.as_ref().map_or_else(|| self.bytes.read().len() as u64, Plain::len)
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when it was in no index when it was put in.
    pub fn is_added(&self) -> bool {
        self.added
    }

    /// Bytes that an index will have more with it.
    fn added(&self) -> u64 {
        if self.added { self.len() } else { 0 }
    }

    /// Memory it takes, bytes.
    fn memory(&self) -> u64 {
        (self.bytes.read().len() as u64).saturating_add(KEEPING)
    }

    /// The state its bytes are in.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A copy of its bytes, and the state they are of.
    pub fn snapshot(&self) -> (Vec<u8>, u64) {
        let bytes = self.bytes.read();
        (bytes.clone(), self.version.load(Ordering::Acquire))
    }

    /// Fills `buf` with the bytes from `at` on.
    pub fn get(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        if let Some(file) = &self.file {
            return file.read(at, buf);
        }
        let bytes = self.bytes.read();
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        buf.copy_from_slice(from.checked_add(buf.len()).and_then(|end| bytes.get(from..end)).ok_or_else(short)?);
        Ok(())
    }

    /// Puts bytes at `at`, `written` of them new.
    fn put(&self, at: usize, new: &[u8], written: u64) -> Result<()> {
        if let Some(file) = &self.file {
            return self.around(written, || file.write(at as u64, new));
        }
        self.change(written, |bytes| at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end)).map(|b| b.copy_from_slice(new)))
            .ok_or_else(short)
    }

    /// Puts those of the bytes `from` that belong to it into their places.
    pub fn gather(&self, grid: &ByteGrid, t: &Touched, from: &[u8]) -> Result<()> {
        let Some(file) = &self.file else {
            return self.change(t.bytes(), |bytes| grid.gather(t, from, bytes)).ok_or_else(short);
        };
        self.around(t.bytes(), || {
            for p in &t.pieces {
                for (at, begin) in grid.rows(p) {
                    file.write(at, from.get(begin..begin.saturating_add(p.len)).ok_or_else(short)?)?;
                }
            }
            Ok(())
        })
    }

    /// True when all these stretches, beginnings and lengths, are zeros.
    pub fn is_zero(&self, parts: &[(usize, usize)]) -> Result<bool> {
        if let Some(file) = &self.file {
            for (at, len) in parts {
                if !file.is_zero(*at as u64, *len as u64)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let bytes = self.bytes.read();
        Ok(parts.iter().all(|(at, len)| bytes.get(*at..at.saturating_add(*len)).is_some_and(|b| b.iter().all(|b| *b == 0))))
    }

    /// Makes these stretches zeros.
    pub fn clear(&self, parts: &[(usize, usize)]) -> Result<()> {
        if let Some(file) = &self.file {
            return self.around(0, || parts.iter().try_for_each(|(at, len)| file.clear(*at as u64, *len as u64)));
        }
        self.change(0, |bytes| {
            for (at, len) in parts {
                if let Some(part) = bytes.get_mut(*at..at.saturating_add(*len)) {
                    part.fill(0);
                }
            }
        });
        Ok(())
    }

    /// A change of a file: who encodes it meanwhile must find out, whenever that began.
    fn around(&self, written: u64, f: impl FnOnce() -> Result<()>) -> Result<()> {
        self.version.fetch_add(1, Ordering::AcqRel);
        let done = f();
        self.version.fetch_add(1, Ordering::AcqRel);
        self.written.fetch_add(written, Ordering::Relaxed);
        done
    }

    /// Changes its bytes, `written` of them, by `f`; those of a chunk in memory.
    pub fn change<T>(&self, written: u64, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut bytes = self.bytes.write();
        self.version.fetch_add(1, Ordering::AcqRel);
        self.written.fetch_add(written, Ordering::Relaxed);
        f(&mut bytes)
    }

    /// True when at least as many bytes were written as it has.
    pub fn is_full(&self) -> bool {
        self.written.load(Ordering::Relaxed) >= self.len()
    }
}

fn short() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { dataset: chunk / 10, chunk }
    }

    #[test]
    fn full_chunks_go_first_then_the_oldest() {
        let d = DirtyChunks::default();
        assert!(d.is_empty() && d.get(key(1)).is_none());
        for n in [1, 2, 3, 14] {
            d.insert(key(n), vec![n as u8; 100], if n == 3 { 100 } else { 7 }, true);
        }
        d.get(key(1));
        assert_eq!(d.bytes(), 4 * (100 + KEEPING));
        let order: Vec<u64> = d.choose(2 * (100 + KEEPING) + 1).iter().map(|(k, _)| k.chunk).collect();
        assert_eq!(order, [3, 2, 14]);
        assert_eq!(d.datasets(), [0, 1]);
        d.insert(key(2), vec![9; 50], 50, true);
        assert_eq!((d.bytes(), d.of(0).len()), (350 + 4 * KEEPING, 3));
        assert!(d.has(0) && d.has(1) && !d.has(2));
        d.forget(0);
        assert!(!d.has(0));
        assert_eq!(d.bytes(), 100 + KEEPING);
        d.remove(key(14));
        assert!(d.is_empty());
    }

    #[test]
    fn chunks_of_single_elements_do_not_fill_the_memory() {
        let d = DirtyChunks::default();
        (0..1000).for_each(|n| d.insert(ChunkKey { dataset: 1, chunk: n }, vec![0; 8], 8, true));
        assert!(d.bytes() > 100_000, "an entry takes far more than its eight bytes");
    }

    #[test]
    fn what_an_operation_did_is_taken_back() {
        let d = DirtyChunks::default();
        for n in [1, 2, 3] {
            d.insert(key(n), vec![n as u8; 8], 8, true);
        }
        let all = || d.of(0).into_iter().map(|(k, c)| (k.chunk, c.bytes.read().clone())).collect::<Vec<_>>();
        let before = all();
        for done in [false, true] {
            d.begin();
            let one = d.get(key(1)).unwrap();
            d.keep_bytes(key(1), &one, 6, 2).unwrap();
            one.bytes.write()[6..].fill(9);
            d.insert(key(2), vec![7; 100], 0, true);
            d.remove(key(3));
            d.insert(key(4), vec![4; 8], 0, true);
            d.remove(key(4));
            d.insert(key(5), vec![5; 8], 0, true);
            d.forget(0);
            d.insert(key(6), vec![6; 8], 0, true);
            d.end(done);
            if !done {
                assert_eq!((all(), d.bytes()), (before.clone(), 24 + 3 * KEEPING));
            }
        }
        assert_eq!((all(), d.bytes()), (vec![(6, vec![6; 8])], 8 + KEEPING));
        d.remove(key(6));
        d.end(false);
        assert!(d.is_empty(), "outside of operations nothing comes back");
    }
}
