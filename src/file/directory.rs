//! A host directory by descriptor; names in it are single components, never resolved as paths.

use super::Status;
use super::syscall::{self, after_leases, uninterrupted};
use crate::base::waiting;
use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Directory(Arc<OwnedFd>);

/// The file that a name in a directory refers to; symbolic links are not followed.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Identity, length and times.
    pub status: Status,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group owner.
    pub gid: u32,
}

impl Entry {
    /// Converts the result of a `stat` call.
    pub fn from_stat(stat: &FileStat) -> Entry {
        // The field's width differs between platforms.
        #[allow(clippy::unnecessary_cast)]
        let links = stat.st_nlink as u64;
        Entry { status: syscall::status(stat), mode: stat.st_mode, links, uid: stat.st_uid, gid: stat.st_gid }
    }

    /// The properties of an open file.
    pub fn of(file: &impl AsFd) -> io::Result<Entry> {
        Ok(Entry::from_stat(&fstat(file.as_fd())?))
    }

    fn kind(&self) -> SFlag {
        SFlag::from_bits_truncate(self.mode) & SFlag::S_IFMT
    }

    /// True for a regular file.
    pub fn is_regular(&self) -> bool {
        self.kind() == SFlag::S_IFREG
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == SFlag::S_IFDIR
    }

    /// True for a regular file or a block device, which can hold a container.
    pub fn is_openable(&self) -> bool {
        matches!(self.kind(), SFlag::S_IFREG | SFlag::S_IFBLK)
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind() == SFlag::S_IFLNK
    }

    /// The file type in words.
    pub fn kind_name(&self) -> &'static str {
        match self.kind() {
            SFlag::S_IFREG => "regular file",
            SFlag::S_IFDIR => "directory",
            SFlag::S_IFLNK => "symbolic link",
            SFlag::S_IFIFO => "FIFO",
            SFlag::S_IFSOCK => "socket",
            _ => "device",
        }
    }
}

impl Directory {
    /// Opens `/` or `.`, where paths begin.
    pub(super) fn start(path: &str) -> io::Result<Directory> {
        waiting::may_wait();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Directory(Arc::new(uninterrupted(|| openat(AT_FDCWD, path, flags, Mode::empty()))?)))
    }

    /// Opens the directory `name` in it; a symbolic link is refused (`ELOOP`).
    pub fn enter(&self, name: &OsStr) -> io::Result<Directory> {
        waiting::may_wait();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // With O_DIRECTORY an automounter mounts what belongs there.
        match uninterrupted(|| openat(self.0.as_fd(), name, flags | OFlag::O_DIRECTORY, Mode::empty())) {
            // A symbolic link or a file.
            Err(e) if e.raw_os_error() == Some(libc::ENOTDIR) => {}
            opened => return Ok(Directory(Arc::new(opened?))),
        }
        let fd = uninterrupted(|| openat(self.0.as_fd(), name, flags, Mode::empty()))?;
        let entry = Entry::from_stat(&fstat(fd.as_fd())?);
        if entry.is_directory() {
            return Ok(Directory(Arc::new(fd)));
        }
        Err(io::Error::from_raw_os_error(if entry.is_symlink() { libc::ELOOP } else { libc::ENOTDIR }))
    }

    /// Opens the directory `relative` beneath it; symbolic links in the path are refused (`ELOOP`).
    /// An empty path is the directory itself.
    pub fn descend(&self, relative: &Path) -> io::Result<Directory> {
        if relative.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        waiting::may_wait();
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(resolve);
        Ok(Directory(Arc::new(uninterrupted(|| openat2(self.0.as_fd(), relative, how))?)))
    }

    /// Present path, for messages and to compare directories.
    pub fn path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// The file that `name` refers to, if any.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        waiting::may_wait();
        match fstatat(self.0.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Entry::from_stat(&stat))),
            Err(nix::errno::Errno::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The target of the symbolic link `name`.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(readlinkat(self.0.as_fd(), name)?)
    }

    /// Opens `name` with `flags`, and with `mode` if it is created. Refuses symbolic links
    /// (`ELOOP`). Does not block on a FIFO; waits up to 3 s for the lease of another process.
    pub fn open_file(&self, name: &OsStr, flags: OFlag, mode: Mode) -> io::Result<File> {
        waiting::may_wait();
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let fd = after_leases(|| uninterrupted(|| openat(self.0.as_fd(), name, flags, mode)))?;
        Ok(fd.into())
    }

    /// The first `most` names in it, but for `.` and `..`.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        waiting::may_wait();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing = Dir::from_fd(uninterrupted(|| openat(self.0.as_fd(), ".", flags, Mode::empty()))?)?;
        let names = listing.iter().map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()));
        names.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")).take(most).collect()
    }

    /// Removes the file `name`.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        waiting::may_wait();
        Ok(unlinkat(self.0.as_fd(), name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> io::Result<()> {
        waiting::may_wait();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(uninterrupted(|| openat(self.0.as_fd(), ".", flags, Mode::empty()))?).sync_all()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
