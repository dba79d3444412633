//! Unlinked temporary files: the kernel frees them when they are closed, however the process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The directory of temporary files: `TMPDIR`, or /var/tmp, which is on a disk.
pub(crate) fn directory() -> PathBuf {
    std::env::var_os("TMPDIR").filter(|d| !d.is_empty()).map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

/// Creates an unlinked temporary file with mode 0600.
pub(crate) fn file() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).open(directory())
}

/// Free bytes of the directory's file system; 0 if unknown.
pub(crate) fn free_space() -> u64 {
    let free = nix::sys::statvfs::statvfs(&directory());
    free.map_or(0, |free| free.blocks_available().saturating_mul(free.fragment_size()))
}
