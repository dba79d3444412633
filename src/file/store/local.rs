//! A folder of the host as a store: an object is a file, `a/b` is the file `b` in the folder `a`.
//!
//! A file is written under a temporary name, and then linked (`create`) or renamed (`put`) to its
//! name. `create` syncs the files of earlier `put` calls and their folders, then its own. Names are
//! resolved one component at a time below the descriptor of the folder, and symbolic links are
//! refused. Who may use the folder may use all in it: its mode decides, not the umask.

use super::{ObjectStore, ReadBytes, names};
use crate::base::io_pieces::each_piece;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::base::{buffers, waiting};
use crate::file::directory::Directory;
use crate::file::posix::begin_writeback;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::linkat;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mode of new folders, without the bits that the folder of the store lacks.
const FOLDER_MODE: u32 = 0o2777;
/// Mode of new files, without the bits that the folder of the store lacks.
const FILE_MODE: u32 = 0o444;
/// Begin of temporary names; no name of a key begins like this.
const TEMPORARY: &str = ".tmp-";
/// Files that `put` leaves unsynced, at most.
const UNSYNCED_MAX: usize = 64;
/// Open files that are kept.
const KEPT_FILES: usize = 64;

/// See the module's description.
pub struct LocalStore {
    root: Directory,
    /// Mode of the folder.
    mode: u32,
    /// Number of the next temporary name.
    number: AtomicU64,
    /// Random part of temporary names.
    nonce: u64,
    /// Files of packs that were read last. Objects never change, so they stay right.
    open: Mutex<lru::LruCache<String, std::sync::Arc<File>>>,
    unsynced: Mutex<Vec<Unsynced>>,
    /// A sync failed: the kernel reports that once, and bytes may be lost.
    is_failed: AtomicBool,
    counters: [AtomicU64; 3],
}

/// A file that `put` did not sync.
struct Unsynced {
    key: String,
    file: File,
    folder: Directory,
}

impl Unsynced {
    /// The key of its folder.
    fn folder_key(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl LocalStore {
    /// The store in the folder `path`, which exists.
    pub fn open(path: &Path) -> io::Result<LocalStore> {
        LocalStore::of(Directory::open(path)?)
    }

    /// The store in a folder.
    pub fn of(root: Directory) -> io::Result<LocalStore> {
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|_| io::Error::from_raw_os_error(libc::EIO))?;
        let mode = fstat(root.as_fd())?.st_mode;
        let kept = std::num::NonZeroUsize::new(KEPT_FILES).unwrap_or(std::num::NonZeroUsize::MIN);
        Ok(LocalStore {
            root,
            mode,
            number: AtomicU64::new(0),
            nonce: u64::from_le_bytes(random),
            open: Mutex::new(lru_cache(kept)),
            unsynced: Mutex::new(Vec::new()),
            is_failed: AtomicBool::new(false),
            counters: Default::default(),
        })
    }

    /// The folder.
    pub fn root(&self) -> &Directory {
        &self.root
    }

    /// The folder of a key and the name in it. `make`: makes missing folders.
    fn place(&self, key: &str, make: bool) -> io::Result<(Directory, OsString)> {
        let names = names(key)?;
        let (last, folders) = names.split_last().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mut at = self.root.clone();
        for folder in folders {
            let name = OsStr::new(folder);
            at = match at.enter(name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && make => self.make_folder(&at, name)?,
                entered => entered?,
            };
        }
        Ok((at, OsString::from(last)))
    }

    /// Makes a temporary file, which `write` writes; returns its name. `sync`: it is durable.
    fn write_temporary(&self, folder: &Directory, write: &dyn Fn(&mut File) -> io::Result<()>, sync: bool) -> io::Result<(OsString, File)> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!("{TEMPORARY}{:016x}-{number}", self.nonce));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mode = Mode::from_bits_truncate(FILE_MODE & self.mode | 0o400);
        let mut file = folder.open_file(&name, flags, mode)?;
        // Where modes cannot be changed, the file has that of the umask.
        let _ = fchmod(&file, mode);
        let written = write(&mut file).and_then(|()| if sync { file.sync_all() } else { Ok(()) });
        if let Err(e) = written {
            let _ = folder.remove(&name);
            return Err(e);
        }
        Ok((name, file))
    }

    /// Syncs the files of earlier `put` calls, and their folders. After an error no object is
    /// created any more.
    fn sync_earlier(&self) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        if self.is_failed.load(Ordering::Acquire) {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        let mut synced = "";
        for one in unsynced.iter() {
            // Packs of one session have one folder.
            let again = synced == one.folder_key();
            if let Err(e) = one.file.sync_all().and_then(|()| if again { Ok(()) } else { one.folder.sync() }) {
                self.is_failed.store(true, Ordering::Release);
                return Err(e);
            }
            synced = one.folder_key();
        }
        unsynced.clear();
        Ok(())
    }

    fn make_folder(&self, parent: &Directory, name: &OsStr) -> io::Result<Directory> {
        let mode = Mode::from_bits_truncate(FOLDER_MODE & self.mode | 0o700);
        match mkdirat(parent.as_fd(), name, mode) {
            Ok(()) => {
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                // As in `write_temporary`.
                let _ = openat(parent.as_fd(), name, flags, Mode::empty()).and_then(|folder| fchmod(folder, mode));
                parent.sync()?;
            }
            Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        parent.enter(name)
    }

    /// Stores an object of `len` bytes, which `write` writes to its file.
    fn put_written(&self, key: &str, len: u64, write: &dyn Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
        let (folder, name) = self.place(key, true)?;
        let (temporary, file) = self.write_temporary(&folder, write, false)?;
        // The commit has less to wait for.
        begin_writeback(file.as_fd(), 0, len);
        self.count(0, usize::try_from(len).unwrap_or(usize::MAX));
        self.open.lock().pop(key);
        if let Err(e) = renameat(folder.as_fd(), temporary.as_os_str(), folder.as_fd(), name.as_os_str()) {
            let _ = folder.remove(&temporary);
            return Err(e.into());
        }
        let many = {
            let mut unsynced = self.unsynced.lock();
            unsynced.push(Unsynced { key: key.to_owned(), file, folder });
            unsynced.len() >= UNSYNCED_MAX
        };
        if many { self.sync_earlier() } else { Ok(()) }
    }

    fn file(&self, key: &str) -> io::Result<std::sync::Arc<File>> {
        if let Some(file) = self.open.lock().get(key) {
            return Ok(file.clone());
        }
        let (folder, name) = self.place(key, false)?;
        let file = std::sync::Arc::new(folder.open_file(&name, OFlag::O_RDONLY, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // Only packs are read several times.
        if key.starts_with("d/") {
            self.open.lock().put(key.to_owned(), file.clone());
        }
        Ok(file)
    }

    fn count(&self, received: usize, sent: usize) {
        let [requests, bytes_in, bytes_out] = &self.counters;
        requests.fetch_add(1, Ordering::Relaxed);
        bytes_in.fetch_add(received as u64, Ordering::Relaxed);
        bytes_out.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

/// Reads `len` bytes from `offset`. Errors: the file ends before.
fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    // All of the capacity is read.
    let mut bytes = buffers::empty(len, len.saturating_add(len / 8));
    bytes.try_reserve_exact(len)?;
    while bytes.len() < len {
        let at = offset.saturating_add(bytes.len() as u64);
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl ObjectStore for LocalStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        waiting::may_wait();
        let file = self.file(key)?;
        let end = range.end.min(file.metadata()?.len());
        let len = usize::try_from(end.saturating_sub(range.start)).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        let bytes = read_at(&file, range.start, len)?;
        self.count(len, 0);
        Ok(bytes)
    }

    fn fill(&self, key: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        waiting::may_wait();
        // pread(2) takes no offset that no file has.
        if offset.checked_add(buf.len() as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file(key)?.read_exact_at(buf, offset)?;
        self.count(buf.len(), 0);
        Ok(())
    }

    fn get_several(&self, key: &str, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        ranges.iter().map(|range| self.get(key, range.clone())).collect()
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.put_written(key, bytes.len() as u64, &|file| file.write_all(bytes))
    }

    fn put_from(&self, key: &str, len: u64, read: &ReadBytes<'_>) -> io::Result<()> {
        self.put_written(key, len, &|file| each_piece(len, &read, &mut |piece| file.write_all(piece)))
    }

    fn settle(&self) -> io::Result<()> {
        self.sync_earlier()
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let (folder, name) = self.place(key, true)?;
        self.count(0, bytes.len());
        if folder.entry(&name)?.is_some() {
            return Ok(false);
        }
        self.sync_earlier()?;
        let (temporary, _) = self.write_temporary(&folder, &|file| file.write_all(bytes), true)?;
        let linked = linkat(folder.as_fd(), temporary.as_os_str(), folder.as_fd(), name.as_os_str(), AtFlags::empty());
        let _ = folder.remove(&temporary);
        match linked {
            Ok(()) => match folder.sync() {
                Ok(()) => Ok(true),
                Err(e) => {
                    self.is_failed.store(true, Ordering::Release);
                    Err(e)
                }
            },
            Err(Errno::EEXIST) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        waiting::may_wait();
        self.count(0, 0);
        let (folder, name) = match self.place(&format!("{prefix}x"), false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        drop(name);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing = nix::dir::Dir::from_fd(openat(folder.as_fd(), ".", flags, Mode::empty())?)?;
        let mut keys = Vec::new();
        for entry in listing.iter() {
            let entry = entry?;
            let Ok(name) = std::str::from_utf8(OsStr::from_bytes(entry.file_name().to_bytes()).as_bytes()) else { continue };
            let key = format!("{prefix}{name}");
            if key.as_str() > after && names(&key).is_ok() {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.count(0, 0);
        let (folder, name) = match self.place(key, false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        Ok(folder.entry(&name)?.filter(|entry| entry.is_regular()).map(|entry| entry.status.len))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.count(0, 0);
        // An open file would keep its room.
        self.open.lock().pop(key);
        self.unsynced.lock().retain(|one| one.key != key);
        let (folder, name) = match self.place(key, false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        match folder.remove(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn is_near(&self) -> bool {
        true
    }

    // The fields' width differs between platforms.
    #[allow(clippy::useless_conversion)]
    fn space(&self) -> Option<(u64, u64)> {
        let stat = nix::sys::statvfs::fstatvfs(File::from(openat(self.root.as_fd(), ".", OFlag::O_RDONLY, Mode::empty()).ok()?)).ok()?;
        let block = u64::from(stat.fragment_size());
        let used = u64::from(stat.blocks()).saturating_sub(u64::from(stat.blocks_free()));
        Some((used.saturating_mul(block), u64::from(stat.blocks_available()).saturating_mul(block)))
    }

    fn counters(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.counters.get(i).map_or(0, |n: &AtomicU64| n.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, LocalStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn objects_are_created_once_and_listed_in_order() {
        let (dir, store) = store();
        assert!(store.create("v/02", b"two").unwrap());
        assert!(!store.create("v/02", b"other").unwrap());
        assert!(store.create("v/01", b"one").unwrap());
        store.put("d/1/0", b"pack").unwrap();
        assert_eq!(store.get("v/02", 1..99).unwrap(), b"wo");
        assert_eq!(store.list_after("v/", "").unwrap(), ["v/01", "v/02"]);
        assert_eq!(store.list_after("v/", "v/01").unwrap(), ["v/02"]);
        assert_eq!(store.list_after("c/", "").unwrap(), Vec::<String>::new());
        assert_eq!((store.head("d/1/0").unwrap(), store.head("d/1/1").unwrap()), (Some(4), None));
        store.delete("v/01").unwrap();
        store.delete("v/01").unwrap();
        assert_eq!(store.get("v/01", 0..1).unwrap_err().kind(), io::ErrorKind::NotFound);
        let left: Vec<_> = std::fs::read_dir(dir.path().join("v")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["02"], "no temporary file is left");
        super::super::probe::check(&store).unwrap();
    }

    /// Regression: a daemon has the umask 077, and what it stored could be read by its user only.
    /// A usual umask, 022, lacks a bit of 2775.
    #[test]
    fn the_mode_of_the_folder_is_that_of_all_in_it() {
        use std::os::unix::fs::PermissionsExt;
        for (root, folder, file) in [(0o755, 0o755, 0o444), (0o2775, 0o2775, 0o444), (0o700, 0o700, 0o400), (0o750, 0o750, 0o440)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(root)).unwrap();
            let store = LocalStore::open(dir.path()).unwrap();
            store.create("v/1", b"record").unwrap();
            store.put("d/1/0", b"pack").unwrap();
            let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!(["v", "d", "d/1"].map(mode), [folder; 3], "{root:o}");
            assert_eq!(["v/1", "d/1/0"].map(mode), [file; 2], "{root:o}");
        }
    }

    #[test]
    fn symbolic_links_and_other_names_are_refused() {
        let (dir, store) = store();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), b"secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("x"), dir.path().join("iod")).unwrap();
        assert_eq!(store.get("d/x", 0..9).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(store.put("d/y", b"").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(store.get("iod", 0..9).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(store.get("../x", 0..9).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(store.head("iod").unwrap(), None);
    }
}
