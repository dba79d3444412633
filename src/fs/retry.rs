//! Repeats requests that meet a change of the container by another process.

use super::errno::errno;
use super::mounted::Mounted;
use super::types::{Errno, FsResult};
use crate::base::Error;

/// Attempts of a request that meets changes, or cannot read something just then.
pub const ATTEMPTS: u32 = 3;

/// An error of an answer.
pub trait Failure {
    /// True if something could not be read: a change under way may be the cause.
    fn is_unreadable(&self) -> bool;
}

impl Failure for Errno {
    fn is_unreadable(&self) -> bool {
        *self == Errno(libc::EIO)
    }
}

impl Failure for Error {
    fn is_unreadable(&self) -> bool {
        errno(self).is_unreadable()
    }
}

/// The answer of `f` in one state of the container. `undo` reverts what a discarded answer did.
pub fn consistent<T, E: Failure>(mounted: &Mounted, f: impl Fn() -> Result<T, E>, undo: impl Fn(&T)) -> Result<T, E> {
    let Some(follow) = mounted.connector.follow() else { return f() };
    for _ in 1..ATTEMPTS {
        let state = follow.state();
        let result = f();
        match &result {
            Ok(answer) if follow.state() == state && !follow.is_intact() => {
                undo(answer);
                mounted.check_changed(follow, true);
            }
            _ if follow.state() == state && !result.as_ref().is_err_and(Failure::is_unreadable) => return result,
            Ok(answer) => undo(answer),
            Err(e) if e.is_unreadable() && follow.state() == state && !mounted.check_changed(follow, true) => return result,
            Err(_) => {}
        }
    }
    f()
}

/// The bytes that `f` reads. They need not be of one state: the kernel drops them anyway. Errors:
/// `EIO` where the file changes so fast that the bytes may be those of another object.
pub fn readable<T>(mounted: &Mounted, mut f: impl FnMut() -> FsResult<T>) -> FsResult<T> {
    let Some(follow) = mounted.connector.follow() else { return f() };
    for _ in 0..ATTEMPTS {
        match f() {
            Ok(_) if !follow.is_intact() => drop(mounted.check_changed(follow, true)),
            Err(Errno(libc::EIO)) if mounted.check_again() => {}
            result => return result,
        }
    }
    Err(Errno(libc::EIO))
}
