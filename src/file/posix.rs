//! Driver over an open file descriptor, read with `pread`.

use super::directory::Entry;
use super::syscall::{after_leases, status, uninterrupted};
use super::{FileDriver, Status, WriteDriver, follower_locks};
use crate::base::waiting;
use nix::fcntl::FallocateFlags;
use nix::sys::stat::fstat;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A regular file (or block device) of the host.
#[derive(Debug)]
pub struct PosixFile {
    file: File,
    /// Read-ahead hints to pass on before a read must be slow again.
    hints: AtomicU32,
}

/// Smallest read that is timed, bytes.
const TIMED_READ_BYTES: usize = 64 << 10;
/// Speed above which a read came from the page cache, nanoseconds per KiB.
const SLOW_NANOS_PER_KIB: u128 = 1_000;
/// Hints passed on after a slow read. A hint walks the page cache, at 1/20 of the cost of a read.
const HINTS_AFTER_SLOW_READ: u32 = 64;

/// Magic numbers of network file systems, whose servers grant leases by rules of their own.
const NETWORK_FILE_SYSTEMS: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
/// `fcntl` command: sets the signal sent when another process waits for a lease.
const F_SETSIG: libc::c_int = 10;

/// Starts writeback of `len` bytes of a file from `offset`. A hint: failures are harmless.
pub(super) fn begin_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the call takes numbers only, and the descriptor lives as long as `file`.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

impl PosixFile {
    /// Opens the same file again for reading and writing, independent of its names.
    pub fn reopen_writable(&self) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        waiting::may_wait();
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        Self::from_file(after_leases(|| options.open(&link))?)
    }

    /// Takes libhdf5's lock, an exclusive `flock`. Error: `EWOULDBLOCK` if another process holds a
    /// lock.
    pub fn lock_exclusive(&self) -> io::Result<()> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }

    /// Replaces the lock of [`PosixFile::lock_exclusive`] by a shared one, with which readers may
    /// lock the file.
    pub fn share_lock(&self) -> io::Result<()> {
        match self.file.try_lock_shared() {
            Ok(()) => Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }

    /// True if any process of this machine, including this one, has the file open for writing, with
    /// or without a lock. `self` must be open for reading only. False if the system cannot answer:
    /// on network file systems, for files of other users.
    pub fn is_written(&self) -> bool {
        let remote =
            nix::sys::statfs::fstatfs(self.file.as_fd()).is_ok_and(|s| NETWORK_FILE_SYSTEMS.contains(&(s.filesystem_type().0 as u32)));
        if remote {
            return false;
        }
        let set = |command: libc::c_int, value: libc::c_int| {
            // SAFETY: these commands take a number, and the descriptor lives as long as `self`.
            match unsafe { libc::fcntl(self.file.as_raw_fd(), command, value) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // A process that opens the file for writing now triggers a signal: SIGURG, which is
        // ignored, instead of SIGIO, which would end this program.
        match set(F_SETSIG, libc::SIGURG).and_then(|()| set(libc::F_SETLEASE, libc::F_RDLCK)) {
            Ok(()) => {
                // Processes that wait for the lease continue.
                let _ = set(libc::F_SETLEASE, libc::F_UNLCK);
                false
            }
            Err(e) => e.raw_os_error() == Some(libc::EAGAIN),
        }
    }

    /// Present path of the file, if any. The caller checks that it leads to this file.
    pub fn path_now(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Owner, mode, number of links, identity and times.
    pub fn entry(&self) -> io::Result<Entry> {
        Ok(Entry::from_stat(&fstat(self.file.as_fd())?))
    }

    /// Sets owner and group of the file.
    pub fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))
    }

    /// Sets the permission bits.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
    }

    /// Length of the file and available bytes of its file system.
    pub fn free_space(&self) -> Option<(u64, u64)> {
        let free = nix::sys::statvfs::fstatvfs(self.file.as_fd()).ok()?;
        let free = free.blocks_available().saturating_mul(free.fragment_size());
        Some((self.status().ok()?.len, free))
    }

    /// True if the file is on a FUSE file system.
    pub fn is_on_fuse(&self) -> io::Result<bool> {
        Ok(nix::sys::statfs::fstatfs(self.file.as_fd())?.filesystem_type() == nix::sys::statfs::FUSE_SUPER_MAGIC)
    }

    /// False if the file system cannot do that.
    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<bool> {
        waiting::may_wait();
        let large = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let (offset, len) = (i64::try_from(offset).map_err(large)?, i64::try_from(len).map_err(large)?);
        match uninterrupted(|| nix::fcntl::fallocate(self.file.as_fd(), flags, offset, len)) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Duplicates the descriptor; a lock lasts until both are closed.
    pub fn again(&self) -> io::Result<Self> {
        Self::from_file(self.file.try_clone()?)
    }

    /// Wraps an open descriptor. Errors: a directory, pipe or socket.
    pub fn from_file(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        if !can_be_opened(&kind) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // It was opened with O_NONBLOCK; reads may block.
        let _ = nix::fcntl::fcntl(file.as_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()));
        Ok(PosixFile { file, hints: AtomicU32::new(0) })
    }

    /// Reads like `read_at`, but reports to `base::waiting` before it waits for a device.
    fn read_watched(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let done = self.read_cached(buf, offset).unwrap_or(0);
        let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) else { return Ok(done) };
        waiting::may_wait();
        Ok(done.saturating_add(self.read_at(rest, offset.saturating_add(done as u64))?))
    }

    /// Start of the first hole at or after `offset`; EOF counts as a hole.
    fn hole_from(&self, offset: u64) -> Option<u64> {
        use nix::unistd::{Whence, lseek};
        lseek(self.file.as_fd(), i64::try_from(offset).ok()?, Whence::SeekHole).ok().and_then(|end| u64::try_from(end).ok())
    }

    fn read_cached(&self, buf: &mut [u8], offset: u64) -> Option<usize> {
        read_cached(&self.file, buf, offset)
    }
}

/// Reads from the page cache only; returns the bytes read. `None`: the file system has no such
/// reads.
pub fn read_cached(file: &File, buf: &mut [u8], offset: u64) -> Option<usize> {
    let Ok(offset) = libc::off_t::try_from(offset) else { return Some(0) };
    let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: one part, which is `buf`, borrowed for the call; the descriptor lives as long as
    // `file`.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
    if n < 0 && nix::errno::Errno::last() == nix::errno::Errno::EOPNOTSUPP {
        return None;
    }
    Some(usize::try_from(n).unwrap_or(0).min(buf.len()))
}

fn can_be_opened(kind: &FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_file() || kind.is_block_device()
}

impl AsFd for PosixFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl FileDriver for PosixFile {
    fn status(&self) -> io::Result<Status> {
        Ok(status(&fstat(self.file.as_fd())?))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if waiting::is_armed() {
            return self.read_watched(buf, offset);
        }
        let start = (buf.len() >= TIMED_READ_BYTES).then(Instant::now);
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if start.is_some_and(|s| s.elapsed().as_nanos() > SLOW_NANOS_PER_KIB.saturating_mul((done / 1024) as u128)) {
            self.hints.store(HINTS_AFTER_SLOW_READ, Ordering::Relaxed);
        }
        Ok(done)
    }

    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_cached(buf, offset).map_or_else(|| self.read_at(buf, offset), Ok)
    }

    fn hole_end(&self, offset: u64) -> Option<u64> {
        use nix::unistd::{Whence, lseek};
        // No other code uses the descriptor's position.
        let at = i64::try_from(offset).ok()?;
        let end = match lseek(self.file.as_fd(), at, Whence::SeekData) {
            Ok(data) => u64::try_from(data).ok()?,
            Err(nix::errno::Errno::ENXIO) => self.file.metadata().ok()?.len(),
            Err(_) => return None,
        };
        (end > offset).then_some(end)
    }

    fn advise(&self, offset: u64, len: u64) {
        if self.hints.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err() {
            return;
        }
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // A hint: a failure is harmless.
        let _ = nix::fcntl::posix_fadvise(self.file.as_fd(), offset, len, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_WILLNEED);
    }

    fn announce_follower(&self) {
        follower_locks::announce_follower(self.file.as_fd());
    }

    fn is_changed_by_mount(&self) -> bool {
        follower_locks::is_changed(self.file.as_fd())
    }
}

impl WriteDriver for PosixFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        waiting::may_wait();
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        waiting::may_wait();
        self.file.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        waiting::may_wait();
        let len = i64::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        match uninterrupted(|| nix::fcntl::fallocate(self.file.as_fd(), FallocateFlags::empty(), 0, len)) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            done => done,
        }
    }

    fn allocate_storage(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.fallocate(FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len)
    }

    fn release_storage(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len).map(drop)
    }

    fn storage_end(&self, offset: u64) -> Option<u64> {
        waiting::may_wait();
        let end = self.hole_from(offset).filter(|end| *end > offset)?;
        let now = self.status().ok()?;
        // A file system without hole detection reports data up to EOF.
        let unlike = end >= now.len && now.allocated < now.len && self.hole_from(0).is_none_or(|first| first >= now.len);
        (!unlike).then_some(end)
    }

    fn begin_writeback(&self, offset: u64, len: u64) {
        begin_writeback(self.file.as_fd(), offset, len);
    }

    fn sync(&self) -> io::Result<()> {
        waiting::may_wait();
        // fdatasync includes the length.
        self.file.sync_data()
    }

    fn announce_writer(&self) {
        follower_locks::announce_writer(self.file.as_fd());
    }

    fn is_followed(&self) -> bool {
        follower_locks::is_followed(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::host_file::HostFile;

    #[test]
    fn a_file_that_is_open_for_writing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "file").unwrap();
        let open = || HostFile::open(&path).unwrap().reader().unwrap();
        let (file, reader) = (open(), open());
        assert!(!file.is_written());
        let writer = file.reopen_writable().unwrap();
        assert!(file.is_written() && reader.is_written());
        drop(writer);
        assert!(!file.is_written() && !reader.is_written());
    }

    #[test]
    fn an_open_during_the_check_for_writers_does_not_fail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "file").unwrap();
        let file = HostFile::open(&path).unwrap().reader().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| (0..5000).for_each(|_| drop(OpenOptions::new().write(true).open(&path).unwrap())));
            for _ in 0..5000 {
                file.is_written();
            }
        });
        assert!(!file.is_written());
    }
}
