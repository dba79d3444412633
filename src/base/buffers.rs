//! A process-wide pool of large byte buffers: reuse avoids a page fault per 4 KiB of each new
//! buffer.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes the pool holds.
static POOL_BYTES_MAX: AtomicUsize = AtomicUsize::new(4 << 20);
/// Smaller buffers are not pooled: the allocator reuses them itself.
const BUFFER_BYTES_MIN: usize = 16 << 10;
/// Buffers [`take`] examines for a fit, newest first.
const EXAMINED_BUFFERS_MAX: usize = 64;

struct Pool {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { buffers: VecDeque::new(), bytes: 0 });

/// Sets the capacity of the pool to `bytes`, for the whole process.
pub fn keep(bytes: usize) {
    POOL_BYTES_MAX.store(bytes, Ordering::Relaxed);
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
