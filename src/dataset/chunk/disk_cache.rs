//! The disk cache: decoded chunks evicted from memory, in an unlinked temporary file.
//!
//! Rows that cross a slab of chunks wider than the chunk cache read the slab from here instead of
//! decoding it for every row.
//!
//! The file is a ring: new entries overwrite the oldest ones. Without a temporary file, evicted
//! chunks are decoded again.

use super::key::CacheKey;
use super::temporary;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use foldhash::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smallest chunk cached, bytes; decoding a smaller one costs less than an entry.
const CHUNK_MIN_BYTES: u64 = 4096;
/// Most entries.
const CHUNKS_MAX: usize = 1 << 18;

#[derive(Default)]
struct RingState {
    file: Option<std::sync::Arc<File>>,
    /// A temporary file could not be created or written; the cache stays empty.
    failed: bool,
    index: HashMap<CacheKey, u64>,
    /// Entries in ring order: key, offset, length.
    ring: VecDeque<(CacheKey, u64, u64)>,
    /// Offset of the next entry.
    head: u64,
    /// Length of the file.
    len: u64,
    /// Ranges being written (start, end); not reallocated meanwhile.
    writing: Vec<(u64, u64)>,
}

/// Ring of evicted chunks in a temporary file.
pub(crate) struct DiskCache {
    state: Mutex<RingState>,
    capacity: u64,
    /// Capacity less the space of other temporary files, bytes.
    limit: AtomicU64,
}

impl DiskCache {
    /// A cache of at most `capacity` bytes; 0 turns it off. The first entry creates the file.
    pub(crate) fn new(capacity: u64) -> Self {
        DiskCache { state: Mutex::new(RingState::default()), capacity, limit: AtomicU64::new(capacity) }
    }

    /// Limits the file to `bytes` (at most the capacity). Drops a longer file and all entries.
    pub(crate) fn limit(&self, bytes: u64) {
        self.limit.store(bytes.min(self.capacity), Ordering::Release);
        let mut state = self.state.lock();
        if state.len > bytes {
            *state = RingState { failed: state.failed, ..RingState::default() };
        }
    }

    /// Most bytes, before other temporary files are subtracted.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Offset of the chunk in the file, if it is cached.
    pub(crate) fn find(&self, key: CacheKey) -> Option<u64> {
        if self.capacity == 0 {
            return None;
        }
        self.state.lock().index.get(&key).copied()
    }

    /// Adds a chunk, unless it is cached or does not fit.
    pub(crate) fn put(&self, key: CacheKey, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let Some((file, offset)) = self.allocate(key, len) else { return };
        if let Err(e) = file.write_all_at(bytes, offset) {
            tracing::warn!("cannot write the temporary file of the disk cache: {e}; evicted chunks will be decoded again");
            let mut state = self.state.lock();
            *state = RingState { failed: true, ..RingState::default() };
            return;
        }
        // Published after the write: readers may read every entry they find.
        let mut state = self.state.lock();
        state.writing.retain(|(start, _)| *start != offset);
        // Newest entries are at the back. The ring may have dropped this one meanwhile.
        if state.ring.iter().rev().any(|(k, at, _)| *k == key && *at == offset) {
            state.index.insert(key, offset);
        }
    }

    fn allocate(&self, key: CacheKey, len: u64) -> Option<(std::sync::Arc<File>, u64)> {
        let limit = self.limit.load(Ordering::Acquire);
        if len < CHUNK_MIN_BYTES || len > limit {
            return None;
        }
        let mut state = self.state.lock();
        if state.failed || state.index.contains_key(&key) {
            return None;
        }
        if state.file.is_none() {
            match temporary::file() {
                Ok(f) => state.file = Some(std::sync::Arc::new(f)),
                Err(e) => {
                    tracing::warn!("cannot create the temporary file of the disk cache: {e}; evicted chunks will be decoded again");
                    state.failed = true;
                    return None;
                }
            }
        }
        let offset = if state.head.saturating_add(len) > limit { 0 } else { state.head };
        let end = offset.saturating_add(len);
        // Another thread is still writing to this range: the chunk is not cached.
        if state.writing.iter().any(|(a, b)| *a < end && offset < *b) {
            return None;
        }
        // The oldest entries of the ring follow the head.
        while let Some(&(old, at, old_len)) = state.ring.front() {
            let overlaps = at < end && offset < at.saturating_add(old_len);
            let wrapped_past = offset == 0 && at >= state.head;
            if !overlaps && !wrapped_past && state.ring.len() < CHUNKS_MAX {
                break;
            }
            state.ring.pop_front();
            if state.index.get(&old) == Some(&at) {
                state.index.remove(&old);
            }
        }
        state.head = end;
        state.len = state.len.max(end);
        state.writing.push((offset, end));
        state.ring.push_back((key, offset, len));
        state.file.clone().map(|f| (f, offset))
    }

    /// Fills `buf` from `within` of the entry at `offset`. The caller must call [`DiskCache::find`]
    /// again afterwards: if the offset differs, the bytes may have been overwritten.
    pub(crate) fn read(&self, offset: u64, within: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.state.lock().file.clone();
        let file = file.ok_or(Error::Io { operation: "read the disk cache", address: Address(offset), errno: libc::EIO })?;
        file.read_exact_at(buf, offset.saturating_add(within)).map_err(|e| Error::io("read the disk cache", Address(offset), &e))
    }

    /// Drops the chunk `key`.
    pub(crate) fn remove(&self, key: CacheKey) {
        self.state.lock().index.remove(&key);
    }

    /// Bytes of the ring's entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().ring.iter().map(|(_, _, len)| *len).sum()
    }

    /// Drops every chunk whose key `stale` accepts.
    pub(crate) fn forget_all(&self, stale: impl Fn(&CacheKey) -> bool) {
        self.state.lock().index.retain(|k, _| !stale(k));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::chunk::key::ChunkKey;

    fn key(chunk: u64) -> CacheKey {
        CacheKey::Chunk(ChunkKey { dataset: 3.into(), chunk })
    }

    #[test]
    fn found_entries_are_intact() {
        let s = DiskCache::new(100_000);
        for i in 0..100u64 {
            let len = 9000 + (i % 7) * 2000;
            s.put(key(i), &vec![i as u8; len as usize]);
            assert!(s.bytes() <= 100_000);
            for j in 0..=i {
                if let Some(at) = s.find(key(j)) {
                    let mut b = vec![0; (9000 + (j % 7) * 2000) as usize];
                    s.read(at, 0, &mut b).unwrap();
                    assert!(b.iter().all(|x| *x == j as u8), "{j} after {i}");
                }
            }
            assert!(s.find(key(i)).is_some());
        }
        s.forget_all(|k| k.dataset() == 3.into());
        assert!(s.find(key(99)).is_none());
    }

    #[test]
    fn too_large_and_off() {
        let s = DiskCache::new(5000);
        s.put(key(1), &[0; 5001]);
        s.put(key(1), &[0; 10]);
        assert!(s.find(key(1)).is_none());
        let s = DiskCache::new(0);
        s.put(key(1), &[0; 5000]);
        assert!(s.find(key(1)).is_none());
    }

    /// All temporary files share one budget.
    #[test]
    fn a_limit_bounds_the_file() {
        let s = DiskCache::new(100_000);
        let fill = || (0..10).for_each(|i| s.put(key(i), &[1; 20_000]));
        fill();
        assert!(s.bytes() > 60_000);
        s.limit(50_000);
        assert_eq!((s.bytes(), s.find(key(9))), (0, None));
        fill();
        assert!((1..=50_000).contains(&s.bytes()));
        s.limit(u64::MAX);
        fill();
        assert!((60_000..=100_000).contains(&s.bytes()));
        s.limit(0);
        fill();
        assert_eq!(s.bytes(), 0);
    }
}
