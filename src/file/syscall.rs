//! System calls on files: retries, and conversion of `stat` results.

use super::{Identity, Status};
use nix::sys::stat::FileStat;
use std::io;
use std::time::{Duration, Instant, SystemTime};

/// Longest delay of an `open` by the lease of another process. The kernel would wait 45 s.
const LEASE_WAIT: Duration = Duration::from_secs(3);
/// Interval between attempts of such an `open`.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(2);

fn time(sec: i64, nsec: i64) -> SystemTime {
    let nanos = Duration::from_nanos(u64::try_from(nsec).unwrap_or(0));
    let whole = Duration::from_secs(sec.unsigned_abs());
    let base = if sec >= 0 { SystemTime::UNIX_EPOCH.checked_add(whole) } else { SystemTime::UNIX_EPOCH.checked_sub(whole) };
    base.and_then(|t| t.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Converts the result of a `stat` call.
pub fn status(stat: &FileStat) -> Status {
    Status {
        identity: Identity { device: stat.st_dev, inode: stat.st_ino },
        len: u64::try_from(stat.st_size).unwrap_or(0),
        allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Repeats a system call that a signal interrupted.
pub fn uninterrupted<T>(call: impl Fn() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(nix::errno::Errno::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

/// Retries a non-blocking `open` that fails because of another process's lease, for up to
/// `LEASE_WAIT`.
pub fn after_leases<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match open() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed() < LEASE_WAIT => std::thread::sleep(LEASE_RETRY_INTERVAL),
            done => return done,
        }
    }
}
