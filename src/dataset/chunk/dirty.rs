//! Chunks that were changed and are not in the file yet: the write-back side of the chunk cache.
//!
//! Readers look here first. Written out first are chunks whose every byte was written or that nobody has
//! touched for longest, as in libhdf5's chunk cache (H5D__chunk_cache_prune): a chunk that was filled is
//! unlikely to be written again.

use super::cache::ChunkKey;
use lru::LruCache;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A changed chunk.
#[derive(Debug)]
pub struct DirtyChunk {
    bytes: RwLock<Vec<u8>>,
    /// Raised by each change.
    version: AtomicU64,
    /// Bytes written so far; more than its size when some were written twice.
    written: AtomicU64,
}

/// The chunks, and how many each dataset has.
struct Kept {
    chunks: LruCache<ChunkKey, Arc<DirtyChunk>>,
    counts: HashMap<u64, usize>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { chunks: LruCache::unbounded(), counts: HashMap::new() }
    }
}

impl Kept {
    fn has(&self, dataset: u64) -> bool {
        self.counts.contains_key(&dataset)
    }
}

/// See the module's description.
#[derive(Default)]
pub struct DirtyChunks {
    kept: Mutex<Kept>,
    bytes: AtomicU64,
}

impl DirtyChunks {
    /// True when no chunk waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
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

    /// Adds a chunk, of which `written` bytes are new.
    pub fn insert(&self, key: ChunkKey, bytes: Vec<u8>, written: u64) {
        let size = bytes.len() as u64;
        let chunk = Arc::new(DirtyChunk { bytes: RwLock::new(bytes), version: AtomicU64::new(0), written: AtomicU64::new(written) });
        let mut kept = self.kept.lock();
        self.bytes.fetch_add(size.max(1), Ordering::AcqRel);
        match kept.chunks.put(key, chunk) {
            Some(old) => {
                self.bytes.fetch_sub((old.bytes.read().len() as u64).max(1), Ordering::AcqRel);
            }
            None => {
                let count = kept.counts.entry(key.dataset).or_insert(0);
                *count = count.saturating_add(1);
            }
        }
    }

    /// Takes a chunk out: it is in the file now, or no longer wanted.
    pub fn remove(&self, key: ChunkKey) {
        let mut kept = self.kept.lock();
        let Some(old) = kept.chunks.pop(&key) else { return };
        self.bytes.fetch_sub((old.bytes.read().len() as u64).max(1), Ordering::AcqRel);
        if let Some(count) = kept.counts.get_mut(&key.dataset) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                kept.counts.remove(&key.dataset);
            }
        }
    }

    /// The changed chunks of `dataset`, by number.
    pub fn of(&self, dataset: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let kept = self.kept.lock();
        if !kept.has(dataset) {
            return Vec::new();
        }
        let mut found: Vec<_> = kept.chunks.iter().filter(|(k, _)| k.dataset == dataset).map(|(k, c)| (*k, c.clone())).collect();
        found.sort_unstable_by_key(|(k, _)| k.chunk);
        found
    }

    /// Datasets with changed chunks.
    pub fn datasets(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.kept.lock().counts.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// About `wanted` bytes of chunks to be written out: full ones first, then the least recently used.
    pub fn choose(&self, wanted: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let mut all: Vec<_> = self.kept.lock().chunks.iter().map(|(k, c)| (*k, c.clone())).collect();
        // Oldest first, then, keeping that order, the full ones before the others.
        all.reverse();
        all.sort_by_key(|(_, c)| !c.is_full());
        let mut sum = 0u64;
        all.retain(|(_, c)| {
            let take = sum < wanted;
            sum = sum.saturating_add(c.bytes.read().len() as u64);
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
    /// Its bytes, decoded.
    pub fn bytes(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read()
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

    /// Changes its bytes, `written` of them, by `f`.
    pub fn change<T>(&self, written: u64, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut bytes = self.bytes.write();
        self.version.fetch_add(1, Ordering::AcqRel);
        self.written.fetch_add(written, Ordering::Relaxed);
        f(&mut bytes)
    }

    /// True when at least as many bytes were written as it has.
    pub fn is_full(&self) -> bool {
        self.written.load(Ordering::Relaxed) >= self.bytes.read().len() as u64
    }
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
            d.insert(key(n), vec![n as u8; 100], if n == 3 { 100 } else { 7 });
        }
        d.get(key(1));
        assert_eq!(d.bytes(), 400);
        let order: Vec<u64> = d.choose(250).iter().map(|(k, _)| k.chunk).collect();
        assert_eq!(order, [3, 2, 14]);
        assert_eq!(d.datasets(), [0, 1]);
        d.insert(key(2), vec![9; 50], 50);
        assert_eq!((d.bytes(), d.of(0).len()), (350, 3));
        assert!(d.has(0) && d.has(1) && !d.has(2));
        d.forget(0);
        assert!(!d.has(0));
        assert_eq!(d.bytes(), 100);
        d.remove(key(14));
        assert!(d.is_empty());
    }
}
