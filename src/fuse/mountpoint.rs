//! The directory that a mount covers: resolved once, held by a descriptor, and mounted on by that
//! descriptor.
//!
//! A user who may write to the directory that a mountpoint is in can exchange the mountpoint for a
//! symbolic link at any time. So a link at the end of the path is followed only if root or the
//! caller owns it, and mount(2) gets the descriptor of the directory that was found. fusermount3
//! takes only a path: what it mounted on is checked afterwards.

use super::mounts::{self, Mount};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, fstat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Symbolic links followed at the end of a path, as by the kernel.
const LINKS_MAX: usize = 40;

/// A link that another user may change, and that user.
#[derive(Debug, thiserror::Error)]
#[error("it is a symbolic link of the user {0}; name the directory itself")]
struct ForeignLink(u32);

/// Absolute path of a mountpoint without symbolic links. Sends no request to the file system
/// mounted there, which may be dead or hang. Errors: `PermissionDenied` for a link of another user
/// at the end of the path.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let (parent, name) = mounts::split(&path)?;
        let Some(name) = name else { return Ok(parent) };
        let directory = nix::fcntl::open(&parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        match link_at(&directory, name)? {
            None => return Ok(parent.join(name)),
            // Relative to the directory that the link is in.
            Some(target) => path = parent.join(target),
        }
    }
    Err(Errno::ELOOP.into())
}

/// Target of the symbolic link `name` in `directory`; `None` if it is anything else or absent.
fn link_at(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<PathBuf>> {
    let found = match openat(directory, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    // By the descriptor: another link may have the name by now.
    let target = match readlinkat(&found, OsStr::new("")) {
        Ok(target) => target,
        Err(Errno::ENOENT | Errno::EINVAL) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let owner = fstat(&found)?.st_uid;
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, ForeignLink(owner)));
    }
    Ok(Some(target.into()))
}

/// An open directory to mount on.
#[derive(Debug)]
pub struct Mountpoint {
    path: PathBuf,
    /// Opened with `O_PATH`; stays the directory below when it is mounted on.
    fd: OwnedFd,
}

impl Mountpoint {
    /// Opens the directory at `path`, which is absolute and without symbolic links. Errors:
    /// `ENOTDIR` for anything but a directory, `ELOOP` if a part of it has become a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let fd = match openat2(AT_FDCWD, path, how) {
            // Before Linux 5.6, or refused by a seccomp filter that does not know it.
            Err(Errno::ENOSYS | Errno::EPERM) => openat(AT_FDCWD, path, flags | OFlag::O_NOFOLLOW, Mode::empty())?,
            opened => opened?,
        };
        Ok(Mountpoint { path: path.to_owned(), fd })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this directory, even after it was renamed.
    pub fn pinned(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string())
    }

    /// Type and permissions.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(fstat(&self.fd)?.st_mode)
    }

    /// Where the directory is now.
    pub fn now_at(&self) -> io::Result<PathBuf> {
        std::fs::read_link(self.pinned())
    }

    /// The h5dir mount that covers this directory, if it is still at its path.
    pub fn covered(&self) -> io::Result<Option<Mount>> {
        if self.now_at()? != self.path {
            return Ok(None);
        }
        Ok(mounts::top_at(&self.path)?.filter(Mount::is_ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn place() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().canonicalize().unwrap();
        std::fs::create_dir(full.join("mnt")).unwrap();
        (dir, full)
    }

    #[test]
    fn links_of_the_caller_are_resolved() {
        let (_dir, full) = place();
        symlink("mnt/", full.join("relative")).unwrap();
        symlink(full.join("relative"), full.join("absolute")).unwrap();
        symlink("circle", full.join("circle")).unwrap();
        for name in ["mnt", "mnt/./", "relative", "relative/", "absolute"] {
            assert_eq!(resolve(&full.join(name)).unwrap(), full.join("mnt"), "{name}");
        }
        assert_eq!(resolve(&full.join("absent")).unwrap(), full.join("absent"));
        assert_eq!(resolve(Path::new("/")).unwrap(), Path::new("/"));
        assert_eq!(resolve(&full.join("mnt/..")).unwrap(), full);
        assert_eq!(resolve(&full.join("circle")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(resolve(&full.join("absent/x")).is_err());
    }

    #[test]
    fn links_of_other_users_are_refused() {
        let (_dir, full) = place();
        symlink("mnt", full.join("link")).unwrap();
        symlink("link", full.join("own")).unwrap();
        if std::os::unix::fs::lchown(full.join("link"), Some(65_534), None).is_err() {
            return assert!(!nix::unistd::geteuid().is_root());
        }
        for name in ["link", "link/", "link/.", "own"] {
            let e = resolve(&full.join(name)).unwrap_err();
            assert_eq!(e.to_string(), "it is a symbolic link of the user 65534; name the directory itself", "{name}");
        }
    }

    #[test]
    fn a_mountpoint_that_moved_or_became_a_link_is_noticed() {
        let (_dir, full) = place();
        let mountpoint = Mountpoint::open(&full.join("mnt")).unwrap();
        assert_eq!(mountpoint.now_at().unwrap(), full.join("mnt"));
        std::fs::rename(full.join("mnt"), full.join("moved")).unwrap();
        assert_eq!(mountpoint.now_at().unwrap(), full.join("moved"));
        assert_eq!(mountpoint.covered().unwrap(), None);
        symlink("moved", full.join("mnt")).unwrap();
        std::fs::create_dir(full.join("moved/sub")).unwrap();
        for name in ["mnt", "mnt/sub"] {
            assert_eq!(Mountpoint::open(&full.join(name)).unwrap_err().raw_os_error(), Some(libc::ELOOP), "{name}");
        }
        std::fs::write(full.join("file"), "").unwrap();
        assert_eq!(Mountpoint::open(&full.join("file")).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    }
}
