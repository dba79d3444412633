//! Locks by which mounts of one file detect each other: following mounts and one writing mount.
//!
//! They are open file description locks on two bytes past any EOF, so that they conflict neither
//! with libhdf5's `flock` nor with bytes of the file. A following mount holds a shared lock on one
//! byte, a writing mount an exclusive lock on the other. On file systems without such locks the
//! mounts do not detect each other.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offset of the byte that following mounts lock.
const FOLLOWER_BYTE: i64 = i64::MAX - 2;
/// Offset of the byte that a writing mount locks.
const WRITER_BYTE: i64 = i64::MAX - 1;

fn lock(kind: i32, byte: i64) -> libc::flock {
    // An open file description lock names no process.
    libc::flock { l_type: kind as libc::c_short, l_whence: libc::SEEK_SET as libc::c_short, l_start: byte, l_len: 1, l_pid: 0 }
}

fn set(file: BorrowedFd<'_>, kind: i32, byte: i64) {
    let lock = lock(kind, byte);
    // SAFETY: the command reads one `flock`, which lives here, and the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == -1 {
        tracing::debug!("cannot lock the file for other mounts: {}", io::Error::last_os_error());
    }
}

/// True if a lock of `kind` on `byte` would conflict with a lock of another open file.
fn meets(file: BorrowedFd<'_>, kind: i32, byte: i64) -> bool {
    let mut lock = lock(kind, byte);
    // SAFETY: the command reads and writes one `flock`, which lives here, and the descriptor is
    // open.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked != -1 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Announces a follower of `file`, until its open file description is closed.
pub fn announce_follower(file: BorrowedFd<'_>) {
    set(file, libc::F_RDLCK, FOLLOWER_BYTE);
}

/// True while a mount of this machine follows `file`.
pub fn is_followed(file: BorrowedFd<'_>) -> bool {
    meets(file, libc::F_WRLCK, FOLLOWER_BYTE)
}

/// Announces a writer of `file`, which must be open for writing.
pub fn announce_writer(file: BorrowedFd<'_>) {
    set(file, libc::F_WRLCK, WRITER_BYTE);
}

/// True while a mount changes `file`.
pub fn is_changed(file: BorrowedFd<'_>) -> bool {
    meets(file, libc::F_RDLCK, WRITER_BYTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn mounts_of_one_file_know_of_each_other_as_long_as_they_have_it_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || std::fs::OpenOptions::new().read(true).write(true).open(file.path()).unwrap();
        let (writer, reader, other) = (open(), std::fs::File::open(file.path()).unwrap(), std::fs::File::open(file.path()).unwrap());
        assert!(!is_followed(writer.as_fd()) && !is_changed(reader.as_fd()));
        announce_writer(writer.as_fd());
        announce_follower(reader.as_fd());
        announce_follower(other.as_fd());
        assert!(is_followed(writer.as_fd()) && is_changed(reader.as_fd()) && is_changed(other.as_fd()));
        drop(reader);
        assert!(is_followed(writer.as_fd()));
        drop(writer);
        assert!(!is_changed(other.as_fd()));
        drop(other);
        assert!(!is_followed(open().as_fd()));
    }
}
