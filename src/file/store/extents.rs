//! Bytes of packs in a directory: bounded, and kept after the daemon ends.
//!
//! A file has the bytes of one range of an object that never changes. It is written under a
//! temporary name and renamed. Its reader checks the bytes by their checksum. Several daemons may
//! use one directory.

use crate::file::directory::Directory;
use nix::dir::Dir;
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// End of the names of complete files, and start of those of temporary ones.
const SUFFIX: &str = ".h5dir-extent";
const TEMPORARY: &str = "tmp-extent-";
/// Age at which a temporary file belongs to no writer.
const TEMPORARY_AGE: Duration = Duration::from_secs(3600);
/// Files that a sweep reads the sizes of, at most.
const SWEEP_FILES_MAX: usize = 1 << 20;

/// See the module's description.
pub struct ExtentCache {
    directory: Directory,
    limit: u64,
    /// Bytes of all files since the last sweep, at least.
    total: AtomicU64,
}

impl ExtentCache {
    /// The cache in `directory`, of at most `limit` bytes.
    pub fn open(directory: Directory, limit: u64) -> ExtentCache {
        let cache = ExtentCache { directory, limit, total: AtomicU64::new(0) };
        cache.sweep();
        cache
    }

    /// The bytes under `name`, if there are `len`. The caller checks them.
    pub fn get(&self, name: &str, len: u32) -> Option<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = self.directory.open_file(OsStr::new(&format!("{name}{SUFFIX}")), flags, Mode::empty()).ok()?;
        let status = file.metadata().ok()?;
        if !status.is_file() || status.len() != u64::from(len) {
            return None;
        }
        let mut bytes = Vec::with_capacity(len as usize);
        (&file).take(len.into()).read_to_end(&mut bytes).ok()?;
        // Files used longest ago go first.
        let _ = nix::sys::stat::futimens(file.as_fd(), &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
        (bytes.len() == len as usize).then_some(bytes)
    }

    /// Removes the file of damaged bytes.
    pub fn discard(&self, name: &str) {
        // Another daemon may have removed it.
        let _ = self.directory.remove(OsStr::new(&format!("{name}{SUFFIX}")));
    }

    /// Keeps bytes under `name`. Errors are logged only: a cache may lack bytes.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if len > self.limit / 4 {
            return;
        }
        if let Err(e) = self.try_put(name, bytes) {
            tracing::debug!("cannot write to the disk cache: {e}");
            return;
        }
        if self.total.fetch_add(len, Ordering::Relaxed).saturating_add(len) > self.limit {
            self.sweep();
        }
    }

    fn try_put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| io::ErrorKind::Other)?;
        let temporary = format!("{TEMPORARY}{:016x}", u64::from_le_bytes(random));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let mut file: File = self.directory.open_file(OsStr::new(&temporary), flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let name = format!("{name}{SUFFIX}");
        let mut write = || {
            file.write_all(bytes)?;
            Ok(renameat(self.directory.as_fd(), temporary.as_str(), self.directory.as_fd(), name.as_str())?)
        };
        write().inspect_err(|_: &io::Error| drop(self.directory.remove(OsStr::new(&temporary))))
    }

    /// Removes the files used longest ago, until nine tenths of the limit are left.
    fn sweep(&self) {
        let mut files: Vec<(SystemTime, u64, Vec<u8>)> = Vec::new();
        let mut total = 0u64;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(mut dir) = Dir::openat(self.directory.as_fd(), ".", flags, Mode::empty()) else { return };
        for entry in dir.iter().take(SWEEP_FILES_MAX).flatten() {
            let name = entry.file_name().to_bytes();
            let is_temporary = name.starts_with(TEMPORARY.as_bytes());
            if !is_temporary && !name.ends_with(SUFFIX.as_bytes()) {
                continue;
            }
            let opened = self.directory.open_file(OsStr::from_bytes(name), OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty());
            let Ok(status) = opened.and_then(|file| file.metadata()) else { continue };
            let modified = status.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let age = SystemTime::now().duration_since(modified).unwrap_or_default();
            if is_temporary && age < TEMPORARY_AGE {
                continue;
            }
            let bytes = status.blocks().saturating_mul(512).max(status.len());
            total = total.saturating_add(bytes);
            files.push((if is_temporary { SystemTime::UNIX_EPOCH } else { modified }, bytes, name.to_vec()));
        }
        files.sort_unstable();
        let is_over = total > self.limit;
        for (modified, bytes, name) in files {
            if modified != SystemTime::UNIX_EPOCH && (!is_over || total <= self.limit / 10 * 9) {
                break;
            }
            // Another daemon may have removed it.
            let _ = self.directory.remove(OsStr::from_bytes(&name));
            total = total.saturating_sub(bytes);
        }
        self.total.store(total, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(path: &std::path::Path, limit: u64) -> ExtentCache {
        ExtentCache::open(Directory::open(path).unwrap(), limit)
    }

    #[test]
    fn extents_outlive_their_cache() {
        let dir = tempfile::tempdir().unwrap();
        cache(dir.path(), 1 << 20).put("a", &[7; 5000]);
        let again = cache(dir.path(), 1 << 20);
        assert_eq!(again.get("a", 5000), Some(vec![7; 5000]));
        assert_eq!((again.get("a", 4999), again.get("b", 5000)), (None, None));
        again.discard("a");
        assert_eq!(again.get("a", 5000), None);
    }

    #[test]
    fn extents_used_longest_ago_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = cache(dir.path(), 100_000);
        for n in 0..40u8 {
            disk.put(&format!("e{n}"), &[n; 8192]);
        }
        let bytes: u64 = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!((50_000..=110_000).contains(&bytes), "{bytes}");
        assert!(disk.get("e0", 8192).is_none() && disk.get("e39", 8192) == Some(vec![39; 8192]));
        disk.put("large", &[1; 60_000]);
        assert!(disk.get("large", 60_000).is_none());
        std::fs::write(dir.path().join("other"), "kept").unwrap();
        std::fs::write(dir.path().join("tmp-extent-1"), "new").unwrap();
        cache(dir.path(), 0);
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, ["other", "tmp-extent-1"]);
    }
}
