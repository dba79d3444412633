//! Changes of the names in a host directory.

use super::directory::{Directory, Entry};
use super::syscall::uninterrupted;
use crate::base::waiting;
use nix::dir::{Dir, Type};
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A name of a directory, as the directory itself states it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The name.
    pub name: OsString,
    /// It is a regular file, or may be one; the others are known not to be.
    pub may_be_file: bool,
}

/// A file by descriptor, whatever becomes of its names.
#[derive(Debug)]
pub struct Pinned(OwnedFd);

impl Pinned {
    /// The file that is open as `file`.
    pub fn of(file: &impl AsFd) -> io::Result<Pinned> {
        Ok(Pinned(file.as_fd().try_clone_to_owned()?))
    }

    /// Sets owner and group; `None` leaves one as it is.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        Ok(fchownat(self.0.as_fd(), "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::AT_EMPTY_PATH)?)
    }

    /// Its properties.
    pub fn entry(&self) -> io::Result<Entry> {
        Ok(Entry::from_stat(&fstat(self.0.as_fd())?))
    }

    /// A path that leads to it in this process.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

impl Directory {
    /// The file that `name` refers to, by descriptor; symbolic links are not followed.
    pub fn pin(&self, name: &OsStr) -> io::Result<Pinned> {
        waiting::may_wait();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Pinned(uninterrupted(|| openat(self.as_fd(), name, flags, Mode::empty()))?))
    }

    /// Its names, except `.` and `..`.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        waiting::may_wait();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut dir = Dir::from_fd(uninterrupted(|| openat(self.as_fd(), ".", flags, Mode::empty()))?)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                let may_be_file = matches!(entry.file_type(), None | Some(Type::File));
                names.push(Listed { name: name.to_owned(), may_be_file });
            }
        }
        Ok(names)
    }

    /// Creates the directory `name`.
    pub fn make_directory(&self, name: &OsStr, mode: Mode) -> io::Result<()> {
        waiting::may_wait();
        Ok(mkdirat(self.as_fd(), name, mode)?)
    }

    /// Creates the symbolic link `name` to `target`.
    pub fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        waiting::may_wait();
        Ok(symlinkat(target, self.as_fd(), name)?)
    }

    /// Gives `file` the name `name`, too.
    pub fn link(&self, name: &OsStr, file: &Pinned) -> io::Result<()> {
        waiting::may_wait();
        Ok(linkat(AT_FDCWD, &file.path(), self.as_fd(), name, AtFlags::AT_SYMLINK_FOLLOW)?)
    }

    /// Removes the empty directory `name`.
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        waiting::may_wait();
        Ok(unlinkat(self.as_fd(), name, UnlinkatFlags::RemoveDir)?)
    }

    /// Moves `name` to `new` of `to`; `flags` are those of renameat2(2).
    pub fn rename(&self, name: &OsStr, to: &Directory, new: &OsStr, flags: u32) -> io::Result<()> {
        waiting::may_wait();
        let flags = RenameFlags::from_bits(flags).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(renameat2(self.as_fd(), name, to.as_fd(), new, flags)?)
    }
}
