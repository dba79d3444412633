//! Bounds the memory of concurrent decodes.

use crate::base::waiting;
use parking_lot::{Condvar, Mutex};

/// Semaphore that counts bytes.
#[derive(Debug)]
pub(crate) struct Gate {
    free: Mutex<u64>,
    freed: Condvar,
    capacity: u64,
}

/// Bytes acquired from a gate; released when dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    gate: &'a Gate,
    bytes: u64,
}

impl Gate {
    /// A gate of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Gate { free: Mutex::new(capacity), freed: Condvar::new(), capacity }
    }

    /// Waits for `bytes` (at most the capacity) and acquires them.
    ///
    /// To avoid deadlock, a thread that holds a permit must not wait for a thread that needs one.
    pub(crate) fn enter(&self, bytes: u64) -> Permit<'_> {
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
