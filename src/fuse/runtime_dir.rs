//! The private directory that holds the sockets of running daemons.
//!
//! ```text
//! root    /run/h5dir
//! users   $XDG_RUNTIME_DIR/h5dir; /run/user/UID/h5dir where that is not usable
//! both    /tmp/h5dir-UID where no other is usable (su, cron, containers, user namespaces); UID is
//!         the number outside of the user namespace
//! ```
//!
//! A directory is used only if it and its parent belong to the expected user and no other user may
//! write to them. In `/tmp`, where all users may create names, the sticky bit keeps other users
//! from exchanging the directory; one that another user made first is refused. The directory is
//! held by a descriptor, and its entries are reached through `/proc/self/fd`: a path is looked up
//! once, and its length does not limit the address of a socket.

use crate::base::escape::escaped;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mounts;

/// Name of the directory.
const NAME: &str = "h5dir";
/// Directory of last resort, in which all users may create names.
const SHARED: &str = "/tmp";
/// Entries read of one directory.
const ENTRIES_MAX: usize = 4096;
/// Mode bits by which users other than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// An open directory of sockets.
#[derive(Debug)]
pub struct RuntimeDir {
    /// Opened with `O_PATH`.
    fd: OwnedFd,
    owner: u32,
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn effective_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The directories that the sockets of `user` may be in, below their parents.
fn places(user: u32) -> Vec<(PathBuf, String)> {
    let private = private_parents(user).into_iter().map(|parent| (parent, NAME.to_owned()));
    private.chain([(SHARED.into(), format!("{NAME}-{}", outside(user)))]).collect()
}

/// Number of `user` outside this user namespace, in which several users may be root.
fn outside(user: u32) -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|n| n.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    let found = ranges.filter_map(|(inside, outside, len)| {
        let at = user.checked_sub(inside).filter(|at| *at < len)?;
        outside.checked_add(at)
    });
    found.min().unwrap_or(user)
}

/// Directories that only `user` may write to.
fn private_parents(user: u32) -> Vec<PathBuf> {
    if user == 0 {
        return vec!["/run".into()];
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The variable is that of the caller.
    let named = named.filter(|path| path.is_absolute() && user == effective_user());
    named.into_iter().chain([format!("/run/user/{user}").into()]).collect()
}

impl RuntimeDir {
    /// The directory of the caller, created if absent.
    pub fn create() -> io::Result<Self> {
        let user = effective_user();
        let mut result = Err(io::ErrorKind::NotFound.into());
        for (parent, name) in places(user) {
            result = Self::open_named(&parent, &name, user, true);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The directories where the daemon of a mount that belongs to `owner` may be announced.
    pub fn of_mount(owner: Option<u32>) -> Vec<Self> {
        let user = effective_user();
        // Root serves mounts of its own, and unmounts those of users.
        let users = [Some(user), owner.filter(|owner| user == 0 && *owner != 0)];
        let opened = users
            .into_iter()
            .flatten()
            .flat_map(|user| places(user).into_iter().map(move |(parent, name)| Self::open_named(&parent, &name, user, false)));
        let mut all: Vec<Self> = Vec::new();
        for dir in opened.flatten() {
            let identity = dir.identity();
            if !all.iter().any(|other| other.identity() == identity) {
                all.push(dir);
            }
        }
        all
    }

    /// The directory in `parent`; `create`: created if absent.
    #[cfg(test)]
    pub(super) fn open(parent: &Path, owner: u32, create: bool) -> io::Result<Self> {
        Self::open_named(parent, NAME, owner, create)
    }

    /// The directory `name` in `parent`; `create`: created if absent.
    pub(super) fn open_named(parent: &Path, name: &str, owner: u32, create: bool) -> io::Result<Self> {
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let above = nix::fcntl::open(parent, directory, Mode::empty())?;
        if parent == Path::new(SHARED) {
            check_shared(&above)?
        } else {
            check(&above, owner)?
        }
        if create {
            match mkdirat(&above, name, Mode::S_IRWXU) {
                Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let fd = openat(&above, name, directory | OFlag::O_NOFOLLOW, Mode::empty())?;
        check(&fd, owner)?;
        Ok(RuntimeDir { fd, owner })
    }

    /// The user it belongs to.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    fn identity(&self) -> Option<(u64, u64)> {
        fstat(&self.fd).ok().map(|s| (s.st_dev, s.st_ino))
    }

    /// A path of the entry `name`, for this process while this is open.
    pub fn path(&self, name: &OsStr) -> PathBuf {
        Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string()).join(name)
    }

    /// Names that begin with `prefix`, of the first [`ENTRIES_MAX`] entries.
    pub fn names(&self, prefix: &str) -> Vec<OsString> {
        let entries = fs::read_dir(self.path(OsStr::new("."))).into_iter().flatten().take(ENTRIES_MAX).flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name()).filter(|name| name.as_bytes().starts_with(prefix.as_bytes())).collect();
        names.sort();
        names
    }

    /// Renames the entry `from` to `to`.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(nix::fcntl::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes the entry `name`; without permission it stays.
    pub fn remove(&self, name: &OsStr) {
        if let Err(e) = nix::unistd::unlinkat(&self.fd, name, nix::unistd::UnlinkatFlags::NoRemoveDir) {
            tracing::debug!("the socket {} stays: {e}", escaped(&name));
        }
    }
}

/// Checks that the directory belongs to `owner`, that no other user may write to it, and that
/// reading its entries cannot block.
fn check(directory: &OwnedFd, owner: u32) -> io::Result<()> {
    // Before any request: the file system may be served by another user, or by this process, whose
    // event loops have not started.
    let foreign = owner != effective_user();
    if mount_of(directory)?.map_or(foreign, |m| m.is_ours() || (foreign && m.is_fuse())) {
        return Err(refused("a FUSE daemon serves its file system"));
    }
    let stat = fstat(directory)?;
    if stat.st_uid != owner {
        return Err(refused("it belongs to another user"));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        return Err(refused("other users may write to it"));
    }
    Ok(())
}

/// Checks that only the owner of an entry of the directory may rename or remove it, and that
/// reading its entries cannot block.
fn check_shared(directory: &OwnedFd) -> io::Result<()> {
    if mount_of(directory)?.is_none_or(|m| m.is_fuse()) {
        return Err(refused("a FUSE daemon serves its file system"));
    }
    let stat = fstat(directory)?;
    // Root of the machine, which a user namespace may not have.
    let by_root = stat.st_uid == 0 || Some(stat.st_uid) == overflow_user();
    if !by_root || stat.st_mode & OTHERS_WRITE != 0 && stat.st_mode & libc::S_ISVTX == 0 {
        return Err(refused("other users may exchange its entries"));
    }
    Ok(())
}

/// The user that those who have no number in this user namespace are shown as.
fn overflow_user() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// The mount that a file is on; `None` for one outside of the mount table: detached, or above a
/// chroot. The descriptor keeps its mount, so the answer stays true.
fn mount_of(fd: &OwnedFd) -> io::Result<Option<mounts::Mount>> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    Ok(id.map(mounts::by_id).transpose()?.flatten())
}
