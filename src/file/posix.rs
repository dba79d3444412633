//! Driver over an open file descriptor, read with `pread`.

use super::{FileDriver, Identity, Status, WriteDriver, follower_locks};
use crate::base::waiting;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
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
/// When the system has taken a lease away (by default after 45 s), and how often that is looked for.
const LEASE_ENDS: Duration = Duration::from_secs(50);
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// File systems whose answer about a lease is that of a server, which gives none to whom it has not promised to tell of others.
const REMOTE: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
/// `fcntl`: which signal tells that another program waits for a lease.
const F_SETSIG: libc::c_int = 10;

impl PosixFile {
    /// Opens `path` read-only.
    pub fn open(path: &Path) -> io::Result<Self> {
        waiting::may_wait();
        Self::open_by(path, OpenOptions::new().read(true), 0)
    }

    /// As `options` have it, with `flags`. Whatever has the name, it is not waited for: nobody may be at the other end of a pipe.
    fn open_by(path: &Path, options: &mut OpenOptions, flags: i32) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY);
        Self::from_file(after_leases(|| options.open(path))?)
    }

    /// Opens `path` read-only, through no symbolic link. Whoever may put other files in its place cannot have any opened
    /// that they could not name themselves.
    pub fn open_again(path: &Path) -> io::Result<Self> {
        use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
        waiting::may_wait();
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let fd = after_leases(|| whole(|| openat2(AT_FDCWD, path, how)).map_err(io::Error::from))?;
        Self::from_file(fd.into())
    }

    /// Opens the regular file `path` as `options` have it; through no symbolic link, and nothing of another kind.
    pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<Self> {
        let regular = |kind: FileType| if kind.is_file() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        // Looked at before, since to open a device may do something.
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => regular(found?.file_type())?,
        }
        let file = Self::open_by(path, options, libc::O_NOFOLLOW)?;
        regular(file.file.metadata()?.file_type())?;
        Ok(file)
    }

    /// Opens `path` for reading and writing.
    pub fn open_writable(path: &Path) -> io::Result<Self> {
        Self::open_by(path, OpenOptions::new().read(true).write(true), 0)
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

    /// The name that the file has now, if the system tells one.
    pub fn name_now(&self) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
        self.has_name(&name).then_some(name)
    }

    /// True if `name` is the file's.
    pub fn has_name(&self, name: &Path) -> bool {
        let own = self.status().map(|s| s.identity).ok();
        own.is_some() && status_of(name).map(|s| s.identity) == own
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

fn status(m: &Metadata) -> Status {
    Status {
        identity: Identity { device: m.dev(), inode: m.ino() },
        len: m.len(),
        allocated: m.blocks().saturating_mul(512),
        atime: time(m.atime(), m.atime_nsec()),
        mtime: time(m.mtime(), m.mtime_nsec()),
        ctime: time(m.ctime(), m.ctime_nsec()),
    }
}

/// What the file named `path` is like; `None` where that leads to none that can be opened, a symbolic link included.
pub fn status_of(path: &Path) -> Option<Status> {
    waiting::may_wait();
    let m = std::fs::symlink_metadata(path).ok()?;
    can_be_opened(&m.file_type()).then(|| status(&m))
}

/// Calls again what a signal interrupted. The standard library does so by itself in all that is called here through it, syncs included.
fn whole<T>(call: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(nix::errno::Errno::EINTR) => {}
            done => return done,
        }
    }
}

/// Opens what another program may have a lease on. Who opens without waiting is told so, and asks again until it is given back, or
/// the system has taken it away.
fn after_leases<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match open() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed() < LEASE_ENDS => std::thread::sleep(ASK_AGAIN),
            done => return done,
        }
    }
}

fn can_be_opened(kind: &FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_file() || kind.is_block_device()
}

impl FileDriver for PosixFile {
    fn status(&self) -> io::Result<Status> {
        self.file.metadata().map(|m| status(&m))
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
        match whole(|| nix::fcntl::fallocate(self.file.as_fd(), nix::fcntl::FallocateFlags::empty(), 0, len)) {
            Err(nix::errno::Errno::EOPNOTSUPP) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn provide(&self, offset: u64, len: u64) -> io::Result<bool> {
        waiting::may_wait();
        let large = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let (offset, len) = (i64::try_from(offset).map_err(large)?, i64::try_from(len).map_err(large)?);
        match whole(|| nix::fcntl::fallocate(self.file.as_fd(), nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len)) {
            Ok(()) => Ok(true),
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => Ok(false),
            Err(e) => Err(e.into()),
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

    /// Regression: to open a pipe waited for somebody at its other end.
    #[test]
    fn what_is_no_file_is_refused_at_once() {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        let dir = tempfile::tempdir().unwrap();
        let (path, pipe, link) = (dir.path().join("f"), dir.path().join("pipe"), dir.path().join("link"));
        std::fs::write(&path, "file").unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let code = |opened: io::Result<PosixFile>| opened.err().and_then(|e| e.raw_os_error()).unwrap_or(0);
        let regular = |path: &Path| code(PosixFile::open_regular(path, OpenOptions::new().read(true).write(true)));
        for open in [PosixFile::open, PosixFile::open_again, PosixFile::open_writable] {
            assert_eq!(code(open(&pipe)), libc::EINVAL);
            assert_eq!(code(open(dir.path())), libc::EISDIR);
            let file = open(&path).unwrap();
            assert!(!OFlag::from_bits_retain(fcntl(file.file.as_fd(), FcntlArg::F_GETFL).unwrap()).contains(OFlag::O_NONBLOCK));
        }
        assert_eq!((code(PosixFile::open(&link)), regular(&path)), (0, 0));
        for other in [&pipe, &link, dir.path(), Path::new("/dev/null")] {
            assert_eq!(regular(other), libc::EINVAL, "{}", other.display());
        }
        assert_eq!(regular(&dir.path().join("none")), libc::ENOENT);
    }

    #[test]
    fn a_file_that_is_open_for_writing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "file").unwrap();
        let (file, reader) = (PosixFile::open(&path).unwrap(), PosixFile::open(&path).unwrap());
        assert!(!file.is_written());
        let writer = PosixFile::open_writable(&path).unwrap();
        assert!(file.is_written() && reader.is_written());
        drop(writer);
        assert!(!file.is_written() && !reader.is_written());
    }

    #[test]
    fn whoever_opens_a_file_while_it_is_asked_who_writes_it_disturbs_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "file").unwrap();
        let file = PosixFile::open(&path).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| (0..5000).for_each(|_| drop(OpenOptions::new().write(true).open(&path).unwrap())));
            for _ in 0..5000 {
                file.is_written();
            }
        });
        assert!(!file.is_written());
    }
}
