//! Threads of which few run at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread of a kind of which few run at once. It counts until this is dropped, also by a panic.
pub(super) struct Running(Arc<AtomicUsize>);

impl Running {
    /// One more of those that `count` counts, if fewer than `most` run.
    pub(super) fn one_of(count: &Arc<AtomicUsize>, most: usize) -> Option<Running> {
        let more = |n: usize| n.checked_add(1).filter(|n| *n <= most);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Running(count.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_of_a_kind_run_also_after_a_panic() {
        let count = Arc::new(AtomicUsize::new(0));
        let two: Vec<_> = (0..2).map(|_| Running::one_of(&count, 2).unwrap()).collect();
        assert!(Running::one_of(&count, 2).is_none());
        drop(two);
        let running = Running::one_of(&count, 1).unwrap();
        let thread = std::thread::spawn(move || {
            let _running = running;
            panic!("as the test wants");
        });
        assert!(thread.join().is_err() && Running::one_of(&count, 1).is_some());
    }
}
