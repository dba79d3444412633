//! Driver over an open file descriptor, read with `pread`.

use super::directory::Entry;
use super::{FileDriver, Identity, Status, WriteDriver, follower_locks};
use crate::base::waiting;
use nix::sys::stat::{FileStat, fstat};
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A regular file (or block device) of the host.
#[derive(Debug)]
pub struct PosixFile {
    file: File,
    /// How many more hints are passed on before reads must prove slow again.
    hints: AtomicU32,
}

/// Reads of at least this many bytes are timed.
const TIMED: usize = 64 << 10;
/// A read slower than this came from a device, not from memory: nanoseconds per KiB.
const SLOW: u128 = 1_000;
/// Hints passed on after a slow read. A hint walks the page cache, which costs 1/20 of reading it.
const HINTS: u32 = 64;
/// How long the lease of another process may delay an `open`. The kernel would wait 45 s.
const LEASE_WAIT: Duration = Duration::from_secs(3);
/// How often such an `open` is tried.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// File systems whose answer about a lease is that of a server, which gives none to whom it has not promised to tell of others.
const REMOTE: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
/// `fcntl`: which signal tells that another program waits for a lease.
const F_SETSIG: libc::c_int = 10;

impl PosixFile {
    /// Opens the same file once more, for reading and writing, whatever names it has now.
    pub fn reopen_writable(&self) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        waiting::may_wait();
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        Self::from_file(after_leases(|| options.open(&link))?)
    }

    /// Takes libhdf5's lock: an exclusive `flock`. An error of `EWOULDBLOCK`: somebody holds one.
    pub fn lock_exclusive(&self) -> io::Result<()> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }

    /// True when any program of this machine, this one included, has the file open for writing, with or without a lock. `self`
    /// must be open for reading only. False where the system does not tell: on network file systems, of the files of others.
    pub fn is_written(&self) -> bool {
        let remote = nix::sys::statfs::fstatfs(self.file.as_fd()).is_ok_and(|s| REMOTE.contains(&(s.filesystem_type().0 as u32)));
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
        // Whoever opens the file for writing just now has the system send a signal: not SIGIO, which would end this program, but
        // one that does nothing.
        match set(F_SETSIG, libc::SIGURG).and_then(|()| set(libc::F_SETLEASE, libc::F_RDLCK)) {
            Ok(()) => {
                // They wait until it is given back.
                let _ = set(libc::F_SETLEASE, libc::F_UNLCK);
                false
            }
            Err(e) => e.raw_os_error() == Some(libc::EAGAIN),
        }
    }

    /// The path that the file has now, if any. The caller checks that it leads to this file.
    pub fn path_now(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Owner, mode, number of links, identity and times.
    pub fn entry(&self) -> io::Result<Entry> {
        Ok(Entry::from_stat(&fstat(self.file.as_fd())?))
    }

    /// Gives the file to `uid` and `gid`.
    pub fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))
    }

    /// Sets the permission bits.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
    }

    /// Total and available space of the file system that it lies on: (length of the file, bytes available).
    pub fn free_space(&self) -> Option<(u64, u64)> {
        let free = nix::sys::statvfs::fstatvfs(self.file.as_fd()).ok()?;
        let free = free.blocks_available().saturating_mul(free.fragment_size());
        Some((self.status().ok()?.len, free))
    }

    /// The same open file again: a lock on it lasts until both are closed.
    pub fn again(&self) -> io::Result<Self> {
        Self::from_file(self.file.try_clone()?)
    }

    /// Wraps an open descriptor; a directory, pipe or socket is refused.
    pub fn from_file(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        if !can_be_opened(&kind) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // It was opened without waiting, but what is read is waited for.
        let _ = nix::fcntl::fcntl(file.as_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()));
        Ok(PosixFile { file, hints: AtomicU32::new(0) })
    }

    /// As `read_at`, for a thread that tells before it waits: for a device, not for bytes that are in memory.
    fn read_watched(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let done = self.read_in_memory(buf, offset);
        let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) else { return Ok(done) };
        waiting::may_wait();
        Ok(done.saturating_add(self.read_at(rest, offset.saturating_add(done as u64))?))
    }

    /// The first hole at or behind `offset`, which the end of the file counts as.
    fn hole_from(&self, offset: u64) -> Option<u64> {
        use nix::unistd::{Whence, lseek};
        lseek(self.file.as_fd(), i64::try_from(offset).ok()?, Whence::SeekHole).ok().and_then(|end| u64::try_from(end).ok())
    }

    /// Reads what the page cache has; how many bytes.
    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> usize {
        let Ok(offset) = libc::off_t::try_from(offset) else { return 0 };
        let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        // SAFETY: one part, which is `buf`, borrowed for the call; the descriptor lives as long as `self`.
        let n = unsafe { libc::preadv2(self.file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
        usize::try_from(n).unwrap_or(0).min(buf.len())
    }
}

fn time(sec: i64, nsec: i64) -> SystemTime {
    let nanos = Duration::from_nanos(u64::try_from(nsec).unwrap_or(0));
    let whole = Duration::from_secs(sec.unsigned_abs());
    let base = if sec >= 0 { SystemTime::UNIX_EPOCH.checked_add(whole) } else { SystemTime::UNIX_EPOCH.checked_sub(whole) };
    base.and_then(|t| t.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The status that a `stat` call returned.
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

/// Repeats a system call that a signal interrupted. The standard library does so by itself.
pub fn uninterrupted<T>(call: impl Fn() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(nix::errno::Errno::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

/// Retries an `open` that fails because another process holds a lease, for `LEASE_WAIT`. The open must be non-blocking.
pub fn after_leases<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match open() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed() < LEASE_WAIT => std::thread::sleep(LEASE_RETRY_INTERVAL),
            done => return done,
        }
    }
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
        if waiting::is_watched() {
            return self.read_watched(buf, offset);
        }
        let start = (buf.len() >= TIMED).then(Instant::now);
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if start.is_some_and(|s| s.elapsed().as_nanos() > SLOW.saturating_mul((done / 1024) as u128)) {
            self.hints.store(HINTS, Ordering::Relaxed);
        }
        Ok(done)
    }

    fn hole_end(&self, offset: u64) -> Option<u64> {
        use nix::unistd::{Whence, lseek};
        // The descriptor's own position is used by nothing else.
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
        // A hint: its failure changes nothing.
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
        match uninterrupted(|| nix::fcntl::fallocate(self.file.as_fd(), nix::fcntl::FallocateFlags::empty(), 0, len)) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            done => done,
        }
    }

    fn provide(&self, offset: u64, len: u64) -> io::Result<bool> {
        waiting::may_wait();
        let large = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let (offset, len) = (i64::try_from(offset).map_err(large)?, i64::try_from(len).map_err(large)?);
        match uninterrupted(|| nix::fcntl::fallocate(self.file.as_fd(), nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len)) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn stored_to(&self, offset: u64) -> Option<u64> {
        waiting::may_wait();
        let end = self.hole_from(offset).filter(|end| *end > offset)?;
        let now = self.status().ok()?;
        // A file system that knows of no holes tells none, and that all is data up to the end.
        let unlike = end >= now.len && now.allocated < now.len && self.hole_from(0).is_none_or(|first| first >= now.len);
        (!unlike).then_some(end)
    }

    fn begin_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // SAFETY: the call takes numbers only, and the descriptor lives as long as `self`. A hint: a failure changes nothing.
        unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn sync(&self) -> io::Result<()> {
        waiting::may_wait();
        // The length counts as data that reading needs.
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
    fn whoever_opens_a_file_while_it_is_asked_who_writes_it_disturbs_nobody() {
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
