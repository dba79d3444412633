//! A thread that serves others tells before it may have to wait: for a device, a lock, another thread.
//!
//! Whoever runs the thread can have another one serve meanwhile. What waits calls [`may_wait`] first; in a thread that nobody
//! watches it does nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is done when a watched thread may have to wait.
pub type Told = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    static TOLD: RefCell<Option<Told>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Whom this thread tells; `None`: nobody any more.
pub fn tell(told: Option<Told>) {
    WATCHED.set(false);
    TOLD.replace(told);
}

/// Has this thread tell the next time that it may have to wait, once.
pub fn watch(on: bool) {
    WATCHED.set(on);
}

/// True while this thread would tell.
pub fn is_watched() -> bool {
    WATCHED.get()
}

/// To be called before what may take long.
pub fn may_wait() {
    if WATCHED.replace(false) {
        TOLD.with_borrow(|told| told.iter().for_each(|told| told()));
    }
}

/// How long is tried what most often succeeds soon.
const SOON: Duration = Duration::from_micros(40);

/// Tries again and again for a short while: to sleep, and to be awakened, takes longer than most changes.
pub fn soon<T>(mut f: impl FnMut() -> Option<T>) -> Option<T> {
    if let Some(done) = f() {
        return Some(done);
    }
    let start = Instant::now();
    while start.elapsed() < SOON {
        (0..50).for_each(|_| std::hint::spin_loop());
        if let Some(done) = f() {
            return Some(done);
        }
    }
    None
}

/// Takes a lock: soon by `now`, or by `wait`, which may sleep.
pub fn take<T>(now: impl FnMut() -> Option<T>, wait: impl FnOnce() -> T) -> T {
    soon(now).unwrap_or_else(|| {
        may_wait();
        wait()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_watched_thread_tells_once() {
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        may_wait();
        tell(Some(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })));
        may_wait();
        assert_eq!((count.load(Ordering::Relaxed), is_watched()), (0, false));
        watch(true);
        assert!(is_watched());
        may_wait();
        may_wait();
        std::thread::spawn(may_wait).join().unwrap();
        assert_eq!((count.load(Ordering::Relaxed), is_watched()), (1, false));
        watch(true);
        tell(None);
        may_wait();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
