//! Unlinked temporary files: the kernel frees them when they are closed, however the process ends.

use crate::file::directory::Directory;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The directory of temporary files, which is resolved once.
static DIRECTORY: OnceLock<Directory> = OnceLock::new();

/// The directory of temporary files: `TMPDIR`, or /var/tmp, which is on a disk.
pub(crate) fn directory() -> io::Result<Directory> {
    if let Some(directory) = DIRECTORY.get() {
        return Ok(directory.clone());
    }
    let path = std::env::var_os("TMPDIR").filter(|d| !d.is_empty()).map_or_else(|| "/var/tmp".into(), PathBuf::from);
    let directory = Directory::open(&path)?;
    Ok(DIRECTORY.get_or_init(|| directory).clone())
}

/// Creates an unlinked temporary file with mode 0600.
pub(crate) fn file() -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
    Ok(openat(directory()?.as_fd(), ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

/// Free bytes of the directory's file system; 0 if unknown.
pub(crate) fn free_space() -> u64 {
    let status = directory().and_then(|directory| Ok(fstatvfs(directory.as_fd())?));
    status.map_or(0, |free| free.blocks_available().saturating_mul(free.fragment_size()))
}
