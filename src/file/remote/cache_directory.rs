//! The directory of the disk cache: files of several kinds under one limit.
//!
//! A file is written under a temporary name and renamed, and never changed. The time of its last
//! use is its modification time. Several daemons may use one directory: each counts the files of
//! all when it opened the directory, and after it wrote a sixteenth of the limit. Above the limit,
//! the files used longest ago are removed, whatever their kind. Files with other names stay.

use crate::base::locks::Mutex;
use crate::file::directory::Directory;
use crate::file::host_path;
use nix::dir::Dir;
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::{Mode, fstat, futimens};
use nix::sys::time::TimeSpec;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// End of the names of files of blocks.
pub const BLOCKS_SUFFIX: &str = ".h5dir-blocks";
/// End of the names of files of extents.
pub const EXTENT_SUFFIX: &str = ".h5dir-extent";
/// Start of the names of files that are being written.
const TEMPORARY: &str = "tmp-";
/// Age at which a temporary file belongs to no writer.
const TEMPORARY_AGE: Duration = Duration::from_secs(3600);
/// Files that a sweep reads the sizes of, at most.
const SWEEP_FILES_MAX: usize = 1 << 20;
/// Part of the limit after which the files of all daemons are counted again.
const RECOUNT_DIVISOR: u64 = 16;
/// Part of the limit that one file may have.
const FILE_DIVISOR: u64 = 4;
/// A file of few bytes has this many on disk, bytes.
const DISK_BLOCK_BYTES: u64 = 4096;

/// See the module's description.
pub struct CacheDirectory {
    directory: Directory,
    limit: u64,
    /// It was swept.
    is_counted: AtomicBool,
    /// Bytes of all files at the last sweep, and of those written since by this process.
    total: AtomicU64,
    /// Bytes written since the last sweep.
    written: AtomicU64,
    /// Held by a sweep.
    sweeping: Mutex<()>,
}

/// A file that a sweep found.
struct Found {
    /// When it was used last; the epoch for one that is to be removed.
    used: SystemTime,
    bytes: u64,
    name: Vec<u8>,
}

impl CacheDirectory {
    /// Opens `path`, which is created if it is missing, for files of at most `limit` bytes.
    ///
    /// Errors: it belongs to another user, or other users may use it.
    pub fn open(path: &Path, limit: u64) -> io::Result<CacheDirectory> {
        let directory = host_path::directory_or_create(path, Mode::S_IRWXU)?;
        let status = fstat(directory.as_fd())?;
        if status.st_uid != nix::unistd::geteuid().as_raw() || status.st_mode & 0o077 != 0 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let (total, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(CacheDirectory { directory, limit, is_counted: AtomicBool::new(false), total, written, sweeping: Mutex::new(()) })
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Calls `f` with the names of all files.
    pub fn each_name(&self, f: &mut dyn FnMut(&[u8])) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(mut dir) = Dir::openat(self.directory.as_fd(), ".", flags, Mode::empty()) else { return };
        for entry in dir.iter().take(SWEEP_FILES_MAX).flatten() {
            f(entry.file_name().to_bytes());
        }
    }

    /// The file `name` and its length; `None` if there is none, or another user may write it.
    pub fn file(&self, name: &str) -> Option<(File, u64)> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = self.directory.open_file(OsStr::new(name), flags, Mode::empty()).ok()?;
        let status = file.metadata().ok()?;
        let is_ours = status.uid() == nix::unistd::geteuid().as_raw() && status.mode() & 0o022 == 0;
        (status.is_file() && is_ours).then_some((file, status.len()))
    }

    /// Records that `file` is used now.
    pub fn touch(&self, file: &File) {
        // A file that is not marked is removed earlier.
        let _ = futimens(file.as_fd(), &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
    }

    /// Removes the file `name`.
    pub fn remove(&self, name: &str) {
        // Another daemon may have removed it.
        let _ = self.directory.remove(OsStr::new(name));
    }

    /// True if a file of `bytes` bytes may be kept.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.limit / FILE_DIVISOR
    }

    /// Writes the file `name`. Returns the names of files that were removed to make room.
    pub fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| io::ErrorKind::Other)?;
        let temporary = format!("{TEMPORARY}{:016x}", u64::from_le_bytes(random));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let mut file = self.directory.open_file(OsStr::new(&temporary), flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let mut write = || {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            Ok(renameat(self.directory.as_fd(), temporary.as_str(), self.directory.as_fd(), name)?)
        };
        write().inspect_err(|_: &io::Error| self.remove(&temporary))?;
        let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        let bytes = bytes.checked_next_multiple_of(DISK_BLOCK_BYTES).unwrap_or(bytes);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let written = self.written.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        Ok(if total > self.limit || written > self.limit / RECOUNT_DIVISOR { self.sweep() } else { Vec::new() })
    }

    /// Counts the files, and removes those beyond the limit, if that was not done before.
    pub fn count(&self) {
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            self.sweep();
        }
    }

    /// Removes the files used longest ago until nine tenths of the limit are left, if there are
    /// more bytes than the limit. Returns their names.
    fn sweep(&self) -> Vec<Vec<u8>> {
        let Some(_sweeping) = self.sweeping.try_lock() else { return Vec::new() };
        self.written.store(0, Ordering::Relaxed);
        let mut files = self.files();
        files.sort_unstable_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
        let mut total = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.bytes));
        let is_over = total > self.limit;
        let mut removed = Vec::new();
        for file in files {
            if file.used != SystemTime::UNIX_EPOCH && (!is_over || total <= self.limit / 10 * 9) {
                break;
            }
            // Another daemon may have removed it.
            let _ = self.directory.remove(OsStr::from_bytes(&file.name));
            total = total.saturating_sub(file.bytes);
            removed.push(file.name);
        }
        self.total.store(total, Ordering::Relaxed);
        removed
    }

    /// The files of the cache, without those that may be in the making.
    fn files(&self) -> Vec<Found> {
        let mut files = Vec::new();
        self.each_name(&mut |name| {
            let is_temporary = name.starts_with(TEMPORARY.as_bytes());
            let is_complete = [BLOCKS_SUFFIX, EXTENT_SUFFIX].iter().any(|suffix| name.ends_with(suffix.as_bytes()));
            if !is_temporary && !is_complete {
                return;
            }
            let opened = self.directory.open_file(OsStr::from_bytes(name), OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty());
            let Ok(status) = opened.and_then(|file| file.metadata()) else { return };
            let modified = status.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let age = SystemTime::now().duration_since(modified).unwrap_or_default();
            if is_temporary && age < TEMPORARY_AGE {
                return;
            }
            let bytes = status.blocks().saturating_mul(512).max(status.len());
            files.push(Found { used: if is_temporary { SystemTime::UNIX_EPOCH } else { modified }, bytes, name: name.to_vec() });
        });
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const KIB: u64 = 1 << 10;

    fn bytes_in(path: &Path) -> u64 {
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn a_directory_that_others_may_use_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let opened = CacheDirectory::open(&path, 1).map(drop);
        assert!(opened.is_ok() && path.metadata().unwrap().permissions().mode() & 0o777 == 0o700);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(CacheDirectory::open(&path, 1).err().unwrap().raw_os_error(), Some(libc::EPERM));
    }

    /// Two mounts that write files of both kinds keep to one limit.
    #[test]
    fn all_kinds_of_files_of_all_daemons_are_under_one_limit() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let limit = 256 * KIB;
        let caches = [EXTENT_SUFFIX, BLOCKS_SUFFIX].map(|suffix| (CacheDirectory::open(&path, limit).unwrap(), suffix));
        for n in 0..200 {
            for (cache, suffix) in &caches {
                cache.write(&format!("{n:03}{suffix}"), &[&[7; 2 << 10], &[8; 2 << 10]]).unwrap();
                assert!(bytes_in(&path) <= limit + limit / 8, "{n}: {}", bytes_in(&path));
            }
        }
        assert!(bytes_in(&path) > limit / 2);
        // Of either kind, the newest files are there.
        for (cache, suffix) in &caches {
            assert_eq!(cache.file(&format!("199{suffix}")).unwrap().1, 4 * KIB);
            assert!(cache.file(&format!("000{suffix}")).is_none());
        }
    }

    #[test]
    fn files_used_longest_ago_go_first_whatever_their_kind() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let cache = CacheDirectory::open(&path, 1 << 30).unwrap();
        let names = [format!("b{EXTENT_SUFFIX}"), format!("a{BLOCKS_SUFFIX}"), format!("c{EXTENT_SUFFIX}"), format!("d{BLOCKS_SUFFIX}")];
        for (age, name) in names.iter().enumerate() {
            cache.write(name, &[&[1; 64 << 10]]).unwrap();
            let (file, _) = cache.file(name).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(1000 - 100 * age as u64)).unwrap();
        }
        let (oldest, _) = cache.file(&names[0]).unwrap();
        cache.touch(&oldest);
        std::fs::write(path.join("other"), "kept").unwrap();
        std::fs::write(path.join("tmp-1"), "new").unwrap();
        CacheDirectory::open(&path, 200 * KIB).unwrap().count();
        let mut left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, [names[0].as_str(), names[3].as_str(), "other", "tmp-1"]);
    }
}
