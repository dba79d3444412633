//! Bounds the memory of all decodes that run at the same time.

use crate::base::waiting;
use parking_lot::{Condvar, Mutex};

/// Bytes that may be in use, and who waits for them.
#[derive(Debug)]
pub struct Gate {
    free: Mutex<u64>,
    freed: Condvar,
    capacity: u64,
}

/// Bytes taken; given back when dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    gate: &'a Gate,
    bytes: u64,
}

impl Gate {
    /// Lets through `capacity` bytes at a time.
    pub fn new(capacity: u64) -> Self {
        Gate { free: Mutex::new(capacity), freed: Condvar::new(), capacity }
    }

    /// Waits until `bytes` (or all there are) can be taken. Whoever holds a permit must not wait for
    /// somebody who needs another one.
    pub fn enter(&self, bytes: u64) -> Permit<'_> {
        let bytes = bytes.min(self.capacity);
        let mut free = self.free.lock();
        if *free < bytes {
            waiting::may_wait();
        }
        while *free < bytes {
            self.freed.wait(&mut free);
        }
        *free = free.saturating_sub(bytes);
        Permit { gate: self, bytes }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut free = self.gate.free.lock();
        *free = free.saturating_add(self.bytes);
        drop(free);
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_than_the_capacity_at_a_time() {
        let gate = Gate::new(100);
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|s| {
            for i in 0..8 {
                let (gate, inside, most) = (&gate, &inside, &most);
                s.spawn(move || {
                    for n in 0..50 {
                        let bytes = (i * 7 + n) % 60 + 1;
                        let _permit = gate.enter(bytes);
                        most.fetch_max(inside.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                        inside.fetch_sub(bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 100);
        drop(gate.enter(1000));
        assert_eq!(*gate.free.lock(), 100);
    }
}
