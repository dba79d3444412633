//! What the mount tests share: a place that is always unmounted, waiting, the built command.

use h5dir::fuse::{mounts, unmount};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waits for `condition`, up to 10 s.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "timed out waiting: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether one of ours is mounted at `path`.
pub fn is_mounted(path: &Path) -> bool {
    mounts::top_at(&path.canonicalize().unwrap_or_else(|_| path.to_owned())).unwrap().is_some_and(|m| m.is_ours())
}

/// A temporary directory that is unmounted, however dead, before it is removed.
pub struct Place(TempDir);

impl Place {
    /// A new one, with a mountpoint `mnt` in it.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("h5dir-test-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Place(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// The mountpoint.
    pub fn mnt(&self) -> PathBuf {
        self.dir().canonicalize().unwrap().join("mnt")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while unmount::unmount(&self.0.path().join("mnt"), true).is_ok() {}
    }
}

/// The built command with these arguments.
pub fn h5dir(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_h5dir"));
    command.args(args).stdin(Stdio::null()).env_remove("H5DIR_LOG").env_remove("NOTIFY_SOCKET");
    command
}

/// Runs to the end: exit code and standard error.
pub fn run(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8(stderr).unwrap())
}
