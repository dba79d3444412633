//! Long work in parts: the lock of readers is held during a part, and released between two.

use super::NativeConnector;
use super::access::Access;
use crate::base::Result;
use crate::base::locks::Mutex;
use std::sync::{Arc, OnceLock};

/// How often work begins again, because what it is for changed, before all of it is done with the
/// lock.
const BEGINNINGS_MAX: usize = 4;

/// What one pass over all elements makes, in parts.
pub(super) struct Made<T, P> {
    done: OnceLock<Result<T>>,
    /// The pass that has begun.
    under_way: Mutex<Option<P>>,
}

impl<T, P> Default for Made<T, P> {
    fn default() -> Self {
        Made { done: OnceLock::new(), under_way: Mutex::new(None) }
    }
}

impl<T, P> Made<T, P> {
    /// What was made; `None`: not all parts are.
    pub fn get(&self) -> Option<&Result<T>> {
        self.done.get()
    }

    /// Runs the next part: `begin` creates the pass, `part` continues it. Returns true once the
    /// pass has ended. Waits for a thread that runs a part.
    pub fn advance(&self, begin: impl FnOnce() -> Result<P>, part: impl FnOnce(P) -> Result<Next<T, P>>) -> bool {
        let mut under_way = self.under_way.lock();
        if self.done.get().is_some() {
            return true;
        }
        let pass = under_way.take().map_or_else(begin, Ok);
        let result = match pass.and_then(part) {
            Ok(Next::Pass(pass)) => {
                *under_way = Some(pass);
                return false;
            }
            Ok(Next::Done(made)) => Ok(made),
            Err(e) => Err(e),
        };
        let _ = self.done.set(result);
        true
    }
}

/// What follows a part of a pass.
pub(super) enum Next<T, P> {
    Pass(P),
    Done(T),
}

impl NativeConnector {
    /// What `current` returns, after its long work, and the access with which nothing changes it.
    /// `part` does the next part of the work, and returns true if nothing is left.
    pub(super) fn prepared<T: ?Sized>(
        &self,
        current: &dyn Fn(&Access<'_>) -> Result<Arc<T>>,
        part: &dyn Fn(&T) -> bool,
    ) -> Result<(Access<'_>, Arc<T>)> {
        let (mut begun, mut left): (Option<Arc<T>>, _) = (None, BEGINNINGS_MAX);
        loop {
            let access = self.access();
            let now = current(&access)?;
            if begun.replace(now.clone()).is_some_and(|begun| !Arc::ptr_eq(&begun, &now)) {
                left = left.saturating_sub(1);
            }
            if left == 0 || part(&now) {
                return Ok((access, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::fault_tests::writable;
    use super::*;
    use crate::base::{Address, Error};
    use crate::file::fault::{Fault, Plan};
    use std::cell::RefCell;

    #[test]
    fn parts_end_with_what_is_made_or_with_an_error() {
        let made = Made::<u32, u32>::default();
        let part = |n| Ok(if n < 3 { Next::Pass(n + 1) } else { Next::Done(n * 10) });
        let parts = (1..10).find(|_| made.advance(|| Ok(0), part));
        assert_eq!((parts, made.get()), (Some(4), Some(&Ok(30))));
        assert!(made.advance(|| panic!("begun again"), |_| panic!("gone on with")));
        let bad = Error::corrupt("chunk", Address(1), "bad");
        let made = Made::<u32, u32>::default();
        assert!(made.advance(|| Ok(0), |_| Err(bad.clone())));
        assert_eq!(made.get(), Some(&Err(bad)));
    }

    #[test]
    fn work_for_what_changes_again_and_again_is_done_with_the_lock() {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let (mut parts, steady) = (RefCell::new(0), Arc::new(7));
        let part = |_: &u32| {
            *parts.borrow_mut() += 1;
            *parts.borrow() >= 20
        };
        let (access, found) = c.prepared(&|_| Ok(steady.clone()), &part).unwrap();
        assert!(Arc::ptr_eq(&found, &steady));
        drop(access);
        assert_eq!(std::mem::take(parts.get_mut()), 20);
        let part = |_: &u32| {
            *parts.borrow_mut() += 1;
            false
        };
        drop(c.prepared(&|_| Ok(Arc::new(7)), &part).unwrap());
        assert_eq!(parts.into_inner(), BEGINNINGS_MAX);
    }
}
