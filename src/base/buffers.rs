//! A process-wide pool of large byte buffers: reuse avoids a page fault per 4 KiB of each new
//! buffer.

use crate::base::locks::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Least and largest capacity of the pool, bytes.
const CAPACITIES: (usize, usize) = (4 << 20, 64 << 20);
/// Most bytes the pool holds.
static POOL_BYTES_MAX: AtomicUsize = AtomicUsize::new(CAPACITIES.0);
/// Smaller buffers are not pooled: the allocator reuses them itself.
const BUFFER_BYTES_MIN: usize = 16 << 10;
/// Buffers [`take`] examines for a fit, newest first.
const EXAMINED_BUFFERS_MAX: usize = 64;

struct Pool {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { buffers: VecDeque::new(), bytes: 0 });

/// Sets the capacity of the pool beside a cache of `cache_bytes`, for the whole process.
pub fn keep_beside(cache_bytes: u64) {
    // Enough for the chunks of a slab that are released together, little beside the cache.
    let bytes = usize::try_from(cache_bytes / 16).unwrap_or(usize::MAX);
    POOL_BYTES_MAX.store(bytes.clamp(CAPACITIES.0, CAPACITIES.1), Ordering::Relaxed);
}

/// An empty buffer with a capacity of `wanted` to `most` bytes from the pool, or a new one.
pub fn empty(wanted: usize, most: usize) -> Vec<u8> {
    let mut buffer = take(wanted, most).unwrap_or_default();
    buffer.clear();
    buffer
}

/// Takes a pooled buffer with a capacity of `wanted` to `most` bytes; `None` if there is none.
///
/// The content is arbitrary bytes of this process's earlier work: the caller clears or overwrites
/// it.
pub fn take(wanted: usize, most: usize) -> Option<Vec<u8>> {
    if wanted < BUFFER_BYTES_MIN {
        return None;
    }
    let mut pool = POOL.lock();
    // Newest first: those are still in the processor's caches.
    let found = pool.buffers.iter().rev().take(EXAMINED_BUFFERS_MAX).position(|b| b.capacity() >= wanted && b.capacity() <= most)?;
    let buffer = pool.buffers.len().checked_sub(found.saturating_add(1)).and_then(|i| pool.buffers.remove(i))?;
    pool.bytes = pool.bytes.saturating_sub(buffer.capacity());
    Some(buffer)
}

/// Returns a buffer to the pool, or frees it if it is smaller than the minimum or larger than the
/// pool.
pub fn give(buffer: Vec<u8>) {
    let size = buffer.capacity();
    let most = POOL_BYTES_MAX.load(Ordering::Relaxed);
    if !(BUFFER_BYTES_MIN..=most).contains(&size) {
        return;
    }
    let mut dropped = Vec::new();
    let mut pool = POOL.lock();
    // The oldest buffers are evicted: their sizes are the least likely to be requested again.
    while pool.bytes.saturating_add(size) > most {
        let Some(old) = pool.buffers.pop_front() else { break };
        pool.bytes = pool.bytes.saturating_sub(old.capacity());
        dropped.push(old);
    }
    pool.bytes = pool.bytes.saturating_add(size);
    pool.buffers.push_back(buffer);
    drop(pool);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_within_bounds() {
        // A size that no other test uses.
        let size = (1 << 20) + 4711;
        give(vec![7; size]);
        assert!(take(size + 1, size + 2).is_none());
        assert_eq!(take(size, size).map(|b| b.capacity()), Some(size));
        assert!(take(size, size).is_none());
        let most = POOL_BYTES_MAX.load(Ordering::Relaxed);
        give(vec![0; most + 1]);
        for _ in 0..40 {
            give(Vec::with_capacity(size));
        }
        assert!(POOL.lock().bytes <= most);
    }
}
