//! Spare byte buffers: large ones are used again instead of going back to the system, where each new
//! one costs a page fault per 4 KiB.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of spare buffers kept at most.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(4 << 20);
/// Smaller buffers are left to the allocator.
const LEAST: usize = 16 << 10;
/// Buffers looked at for one that fits.
const LOOKED_AT: usize = 64;

struct Spare {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: VecDeque::new(), bytes: 0 });

/// From now on `bytes` of spare buffers are kept at most, for the whole process.
pub fn keep(bytes: usize) {
    KEPT_BYTES.store(bytes, Ordering::Relaxed);
}

/// A spare buffer of at least `wanted` and at most `most` bytes of capacity; its content is arbitrary
/// bytes of this process's earlier work, so the caller clears or overwrites it. `None` = no such buffer.
pub fn take(wanted: usize, most: usize) -> Option<Vec<u8>> {
    if wanted < LEAST {
        return None;
    }
    let mut spare = SPARE.lock();
    // The latest are looked at: they are still in the processor's caches.
    let found = spare.buffers.iter().rev().take(LOOKED_AT).position(|b| b.capacity() >= wanted && b.capacity() <= most)?;
    let buffer = spare.buffers.len().checked_sub(found.saturating_add(1)).and_then(|i| spare.buffers.remove(i))?;
    spare.bytes = spare.bytes.saturating_sub(buffer.capacity());
    Some(buffer)
}

/// Gives a buffer back; kept for [`take`] or freed.
pub fn give(buffer: Vec<u8>) {
    let size = buffer.capacity();
    let most = KEPT_BYTES.load(Ordering::Relaxed);
    if !(LEAST..=most).contains(&size) {
        return;
    }
    let mut dropped = Vec::new();
    let mut spare = SPARE.lock();
    // The oldest go: their sizes are wanted no more.
    while spare.bytes.saturating_add(size) > most {
        let Some(old) = spare.buffers.pop_front() else { break };
        spare.bytes = spare.bytes.saturating_sub(old.capacity());
        dropped.push(old);
    }
    spare.bytes = spare.bytes.saturating_add(size);
    spare.buffers.push_back(buffer);
    drop(spare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_within_bounds() {
        // A size no other test uses.
        let size = (1 << 20) + 4711;
        give(vec![7; size]);
        assert!(take(size + 1, size + 2).is_none());
        assert_eq!(take(size, size).map(|b| b.capacity()), Some(size));
        assert!(take(size, size).is_none());
        let most = KEPT_BYTES.load(Ordering::Relaxed);
        give(vec![0; most + 1]);
        for _ in 0..40 {
            give(Vec::with_capacity(size));
        }
        assert!(SPARE.lock().bytes <= most);
    }
}
