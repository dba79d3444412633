//! Decoded chunks on disk: an unlinked temporary file, so that a slab of chunks wider than the
//! cache is decoded once, not again for every row that crosses it.
//!
//! Bounded: when full, the oldest entries give way (the file is a ring). Where no temporary file
//! can be had, nothing is spilled and chunks are decoded again: slower, never wrong.

use super::cache::ChunkKey;
use super::temporary;
use crate::base::{Address, Error, Result};
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smaller chunks are decoded again: cheaper than to remember where they are.
const CHUNK_MIN: u64 = 4096;
/// Most chunks remembered.
const CHUNKS_MAX: usize = 1 << 18;

#[derive(Default)]
struct State {
    file: Option<std::sync::Arc<File>>,
    failed: bool,
    index: HashMap<ChunkKey, u64>,
    /// Entries in ring order: key, offset, length.
    ring: VecDeque<(ChunkKey, u64, u64)>,
    /// Where the next entry goes.
    head: u64,
    /// Length of the file.
    len: u64,
    /// Regions being written (start, end): not given to anyone else meanwhile.
    writing: Vec<(u64, u64)>,
}

/// The spill file.
pub struct Spill {
    state: Mutex<State>,
    capacity: u64,
    /// What other temporary files leave of the capacity.
    limit: AtomicU64,
}

impl Spill {
    /// At most `capacity` bytes; 0 turns it off. Nothing is created before the first entry.
    pub fn new(capacity: u64) -> Self {
        Spill { state: Mutex::new(State::default()), capacity, limit: AtomicU64::new(capacity) }
    }

    /// Leaves all but `bytes` of its capacity to other temporary files. A longer file is given up.
    pub fn limit(&self, bytes: u64) {
        self.limit.store(bytes.min(self.capacity), Ordering::Release);
        let mut state = self.state.lock();
        if state.len > bytes {
            *state = State { failed: state.failed, ..State::default() };
        }
    }

    /// Bytes it may hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Offset of the chunk in the file, if it is there.
    pub fn find(&self, key: ChunkKey) -> Option<u64> {
        if self.capacity == 0 {
            return None;
        }
        self.state.lock().index.get(&key).copied()
    }

    /// Stores a chunk, unless it is there or cannot fit.
    pub fn put(&self, key: ChunkKey, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let Some((file, offset)) = self.allocate(key, len) else { return };
        if let Err(e) = file.write_all_at(bytes, offset) {
            tracing::warn!("spill file: {e}; chunks are decoded again from now on");
            let mut state = self.state.lock();
            *state = State { failed: true, ..State::default() };
            return;
        }
        // Published only now: a reader that finds it may read it.
        let mut state = self.state.lock();
        state.writing.retain(|(start, _)| *start != offset);
        // The newest entries are at the back, and this one was among them a moment ago.
        if state.ring.iter().rev().any(|(k, at, _)| *k == key && *at == offset) {
            state.index.insert(key, offset);
        }
    }

    fn allocate(&self, key: ChunkKey, len: u64) -> Option<(std::sync::Arc<File>, u64)> {
        let limit = self.limit.load(Ordering::Acquire);
        if len < CHUNK_MIN || len > limit {
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
                    tracing::warn!("no spill file: {e}; chunks wider than the cache are decoded again");
                    state.failed = true;
                    return None;
                }
            }
        }
        let offset = if state.head.saturating_add(len) > limit { 0 } else { state.head };
        let end = offset.saturating_add(len);
        // A slow writer still has these bytes: this chunk is decoded again if it is wanted again.
        if state.writing.iter().any(|(a, b)| *a < end && offset < *b) {
            return None;
        }
        // The ring's oldest entries lie just ahead of the head.
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

    /// Reads `buf` at `within` of the entry at `offset`. The caller must check [`Spill::find`]
    /// afterwards: an entry that moved meanwhile may have been overwritten.
    pub fn read(&self, offset: u64, within: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.state.lock().file.clone();
        let file = file.ok_or(Error::Io { operation: "read the spill file", address: Address(offset), errno: libc::EIO })?;
        file.read_exact_at(buf, offset.saturating_add(within)).map_err(|e| Error::io("read the spill file", Address(offset), &e))
    }

    /// Forgets the chunk `key`.
    pub fn remove(&self, key: ChunkKey) {
        self.state.lock().index.remove(&key);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.state.lock().ring.iter().map(|(_, _, len)| *len).sum()
    }

    /// Forgets every chunk of `dataset`.
    pub fn forget(&self, dataset: u64) {
        self.state.lock().index.retain(|k, _| k.dataset != dataset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { dataset: 3, chunk }
    }

    #[test]
    fn the_ring_keeps_what_it_says_it_keeps() {
        let s = Spill::new(100_000);
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
        s.forget(3);
        assert!(s.find(key(99)).is_none());
    }

    #[test]
    fn too_large_and_off() {
        let s = Spill::new(5000);
        s.put(key(1), &[0; 5001]);
        s.put(key(1), &[0; 10]);
        assert!(s.find(key(1)).is_none());
        let s = Spill::new(0);
        s.put(key(1), &[0; 5000]);
        assert!(s.find(key(1)).is_none());
    }

    /// One budget for all temporary files: what others take, the ring gives up.
    #[test]
    fn a_limit_bounds_the_file() {
        let s = Spill::new(100_000);
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
