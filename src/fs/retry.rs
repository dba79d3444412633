//! Repeats requests that meet a change of the container by another process.

use super::mounted::Mounted;
use super::types::{Errno, FsResult};

/// Attempts of a request that meets changes, or cannot read something just then.
pub const ATTEMPTS: u32 = 3;

/// The answer of `f` in one state of the container. `undo` reverts what a discarded answer did.
pub fn consistent<T>(mounted: &Mounted, f: impl Fn() -> FsResult<T>, undo: impl Fn(&T)) -> FsResult<T> {
    let Some(follow) = mounted.connector.follow() else { return f() };
    for _ in 1..ATTEMPTS {
        let state = follow.state();
        let result = f();
        match &result {
            Ok(answer) if follow.state() == state && !follow.is_intact() => {
                undo(answer);
                mounted.check_changed(follow, true);
            }
            _ if follow.state() == state && !matches!(result, Err(Errno(libc::EIO))) => return result,
            Ok(answer) => undo(answer),
            Err(Errno(libc::EIO)) if follow.state() == state && !mounted.check_changed(follow, true) => return result,
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
