//! Announces operations that may block, so that an event loop's other threads can take over its
//! requests.
//!
//! A thread registers a hook and arms it per request. Code that may block on a device, a lock or
//! another thread calls [`may_wait`] first, which runs an armed hook once; on other threads it does
//! nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Called on an armed thread before it may block.
pub type WaitHook = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    static HOOK: RefCell<Option<WaitHook>> = const { RefCell::new(None) };
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Sets this thread's hook, not armed; `None` removes it.
pub fn set_hook(hook: Option<WaitHook>) {
    ARMED.set(false);
    HOOK.replace(hook);
}

/// Arms or disarms this thread's hook: the next [`may_wait`] runs it once.
pub fn arm(on: bool) {
    ARMED.set(on);
}

/// True while this thread's hook is armed.
pub fn is_armed() -> bool {
    ARMED.get()
}

/// Runs this thread's hook if it is armed. Call before an operation that may block.
pub fn may_wait() {
    if ARMED.replace(false) {
        HOOK.with_borrow(|hook| hook.iter().for_each(|hook| hook()));
    }
}

/// How long [`spin`] retries.
const SPIN_TIME: Duration = Duration::from_micros(40);

/// Retries `f` for a short time: to park and wake a thread takes longer than most operations
/// awaited.
fn spin<T>(mut f: impl FnMut() -> Option<T>) -> Option<T> {
    if let Some(done) = f() {
        return Some(done);
    }
    let start = Instant::now();
    while start.elapsed() < SPIN_TIME {
        (0..50).for_each(|_| std::hint::spin_loop());
        if let Some(done) = f() {
            return Some(done);
        }
    }
    None
}

/// Acquires a lock: retries `now` for a short time, then calls `wait`, which may block.
pub fn take<T>(now: impl FnMut() -> Option<T>, wait: impl FnOnce() -> T) -> T {
    spin(now).unwrap_or_else(|| {
        may_wait();
        wait()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_armed_hook_runs_once() {
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        may_wait();
        set_hook(Some(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })));
        may_wait();
        assert_eq!((count.load(Ordering::Relaxed), is_armed()), (0, false));
        arm(true);
        assert!(is_armed());
        may_wait();
        may_wait();
        std::thread::spawn(may_wait).join().unwrap();
        assert_eq!((count.load(Ordering::Relaxed), is_armed()), (1, false));
        arm(true);
        set_hook(None);
        may_wait();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
