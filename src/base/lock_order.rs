//! Checks in debug builds that a thread acquires the locks of a mount in one order.
//!
//! Locks of the same rank may be held together, but no lock twice: a reader that locks again would
//! wait for itself once a writer waits between.

#[cfg(debug_assertions)]
use std::cell::RefCell;

/// The locks, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Names of the file system.
    Names,
    /// One write to other files at a time.
    OtherFiles,
    /// One operation or commit at a time.
    Writers,
    /// Structures of the container.
    Structures,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: RefCell<Vec<(Rank, usize)>> = const { RefCell::new(Vec::new()) };
}

/// A lock that this thread holds.
#[derive(Debug)]
struct Held {
    #[cfg(debug_assertions)]
    lock: (Rank, usize),
    /// Is dropped by the thread that made it.
    _thread: std::marker::PhantomData<std::sync::MutexGuard<'static, ()>>,
}

impl Held {
    /// Records that this thread is about to acquire lock `id` (its address) of `rank`. Panics in
    /// debug builds if it holds the same lock, or one that comes after it.
    fn acquire(rank: Rank, id: usize) -> Held {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            debug_assert!(held.iter().all(|(other, _)| *other <= rank), "{rank:?} is acquired after {held:?}");
            debug_assert!(!held.contains(&(rank, id)), "{rank:?} is acquired twice");
            held.push((rank, id));
        });
        #[cfg(not(debug_assertions))]
        let _ = (rank, id);
        Held {
            #[cfg(debug_assertions)]
            lock: (rank, id),
            _thread: std::marker::PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(i) = held.iter().rposition(|lock| *lock == self.lock) {
                held.remove(i);
            }
        });
    }
}

/// A lock guard that was acquired in order.
#[derive(Debug)]
pub(crate) struct Locked<G> {
    _guard: G,
    _held: Held,
}

impl<G> Locked<G> {
    /// Acquires the lock `of`, which has `rank`, by `lock`.
    pub(crate) fn acquire<L>(rank: Rank, of: &L, lock: impl FnOnce() -> G) -> Self {
        let held = Held::acquire(rank, std::ptr::from_ref(of).addr());
        Locked { _guard: lock(), _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_acquired_out_of_order_is_found() {
        let names = Held::acquire(Rank::Names, 1);
        let structures = Held::acquire(Rank::Structures, 2);
        drop(Held::acquire(Rank::Structures, 3));
        assert!(std::panic::catch_unwind(|| Held::acquire(Rank::Writers, 4)).is_err());
        drop(structures);
        drop(Held::acquire(Rank::Writers, 4));
        drop(names);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_acquired_twice_is_found() {
        let of_one = Held::acquire(Rank::Structures, 1);
        let of_another = Held::acquire(Rank::Structures, 2);
        assert!(std::panic::catch_unwind(|| Held::acquire(Rank::Structures, 1)).is_err());
        drop(of_one);
        drop(Held::acquire(Rank::Structures, 1));
        drop(of_another);
    }
}
