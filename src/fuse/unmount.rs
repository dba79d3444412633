//! Unmounting: `umount2` where permitted, otherwise the set-user-ID helper `fusermount3`.

use super::mounts::{self, Mount};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Most dead mounts stacked at one place that are removed.
const STALE_MAX: usize = 16;
/// The helper, by name or where it may be when PATH lacks it.
const HELPERS: [&str; 5] = ["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3", "fusermount", "/bin/fusermount"];

/// Why a mount could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Nothing is mounted there.
    #[error("nothing is mounted there")]
    NotMounted,
    /// Files on it are open, or it is the working directory of a process.
    #[error("it is in use")]
    Busy,
    /// Not permitted without the helper, which is not installed.
    #[error("only root may do that without the program fusermount3, which is not installed")]
    NoHelper,
    /// The helper refused.
    #[error("fusermount3 refused: {0}")]
    Helper(String),
    /// The kernel refused.
    #[error("{0}")]
    System(io::Error),
}

/// Removes the upper mount at `mountpoint`; `lazy` detaches it even while files on it are open.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, lazy);
    match umount2(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => by_helper(mountpoint, lazy),
        Err(Errno::EBUSY) => Err(UnmountError::Busy),
        Err(Errno::EINVAL | Errno::ENOENT) => Err(UnmountError::NotMounted),
        Err(e) => Err(UnmountError::System(e.into())),
    }
}

/// True if the set-user-ID helper is installed.
pub(super) fn has_helper() -> bool {
    let runs = |helper| Command::new(helper).arg("-V").stdin(Stdio::null()).output().is_ok();
    HELPERS.into_iter().any(runs)
}

fn by_helper(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint).stdin(Stdio::null());
        match command.output() {
            // A directory of PATH that the user may not search is EACCES.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => continue,
            Err(e) => return Err(UnmountError::System(e)),
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(if text.contains("busy") { UnmountError::Busy } else { UnmountError::Helper(text) });
            }
        }
    }
    Err(UnmountError::NoHelper)
}

/// True if the daemon of the mount at `mountpoint` is gone. Attributes of the root may come
/// from the kernel's cache, so the question is one that always reaches the daemon.
pub fn is_dead(mountpoint: &Path) -> bool {
    matches!(nix::sys::statvfs::statvfs(mountpoint), Err(Errno::ENOTCONN | Errno::ECONNABORTED))
}

/// Removes mounts at `mountpoint` whose daemon has ended; returns them.
pub fn clean_stale(mountpoint: &Path) -> Result<Vec<Mount>, UnmountError> {
    let mut cleaned = Vec::new();
    while cleaned.len() < STALE_MAX {
        match mounts::top_at(mountpoint).map_err(UnmountError::System)? {
            Some(mount) if mount.is_fuse() && is_dead(mountpoint) => {
                unmount(mountpoint, true)?;
                cleaned.push(mount);
            }
            _ => break,
        }
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_directory_is_not_mounted_and_has_nothing_stale() {
        let dir = tempfile::tempdir().unwrap();
        assert!(clean_stale(dir.path()).unwrap().is_empty());
        assert!(matches!(unmount(dir.path(), false), Err(UnmountError::NotMounted | UnmountError::Helper(_))));
    }
}
