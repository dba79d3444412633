//! Checks in debug builds that a thread acquires the locks of a mount in one order.
//!
//! Locks of the same rank may be held together: a reader may lock again.

#[cfg(debug_assertions)]
use std::cell::RefCell;

/// The locks, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Names of the file system.
    Names,
    /// One operation or commit at a time.
    Writers,
    /// Structures of the container.
    Structures,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

/// A lock that this thread holds.
#[derive(Debug)]
struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    /// Belongs to the thread that made it.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Held {
    /// Records that this thread is about to acquire a lock of `rank`. Panics in debug builds if it
    /// holds a lock that comes after it.
    fn acquire(rank: Rank) -> Held {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            debug_assert!(held.iter().all(|other| *other <= rank), "{rank:?} is acquired after {held:?}");
            held.push(rank);
        });
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Held {
            #[cfg(debug_assertions)]
            rank,
            _thread: std::marker::PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(i) = held.iter().rposition(|rank| *rank == self.rank) {
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
    /// Acquires a lock of `rank`.
    pub(crate) fn acquire(rank: Rank, lock: impl FnOnce() -> G) -> Self {
        let held = Held::acquire(rank);
        Locked { _guard: lock(), _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_acquired_out_of_order_is_found() {
        let names = Held::acquire(Rank::Names);
        let structures = Held::acquire(Rank::Structures);
        drop(Held::acquire(Rank::Structures));
        assert!(std::panic::catch_unwind(|| Held::acquire(Rank::Writers)).is_err());
        drop(structures);
        drop(Held::acquire(Rank::Writers));
        drop(names);
    }
}
