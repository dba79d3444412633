//! The tree of the objects below a prefix of an object store, which is only read.
//!
//! A folder is a prefix; it has no properties, and is there as long as it is asked for. Answers of
//! the store are kept for [`LISTING_TIME`]: a listing, and what one name refers to.

use super::files::{Content, Folder, Name, Tree};
use super::spec::MirrorSpec;
use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::file::Status;
use crate::file::memory::MemoryFile;
use crate::fs::open::{
    self, Entry, Found, Identity, LocatedContainer, ObjectError, Objects, OpenError, Recognized, Shared, UsedDirectory, Version,
};
use crate::fs::types::Statfs;
use crate::fs::{MountSpec, Operations};
use lru::LruCache;
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long a listing and the answer to a look-up are used.
pub const LISTING_TIME: Duration = Duration::from_secs(2);
/// Blocks of objects have this part of the cache, decoded chunks have the rest.
const BLOCKS_DIVISOR: u64 = 4;
/// Listings kept.
const LISTINGS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Names kept that were looked up without a listing.
const NAMES_MAX: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();
/// First bytes of an object, in which its superblock is found if it begins at 0, 512, 1024, 2048 or
/// 4096.
const HEAD_BYTES: u64 = 4096 + 512;
/// Endings of names that are listed as containers before their first bytes are read.
const ENDINGS: [&[u8]; 8] = [b".h5", b".hdf5", b".hdf", b".he5", b".nc", b".nc4", b".nxs", b".mat"];
/// Longest name that the kernel takes, bytes.
const NAME_MAX: usize = 255;

/// Names of a folder.
type Names = Arc<BTreeMap<String, Found>>;

/// Answers of the store by key, with the time of the request.
struct Kept {
    listings: Mutex<LruCache<String, (Instant, Names)>>,
    names: Mutex<LruCache<String, (Instant, Option<Found>)>>,
}

/// See the module's description.
pub struct ObjectTree(Arc<Inner>);

struct Inner {
    objects: Arc<dyn Objects>,
    /// The URL.
    root: PathBuf,
    kept: Kept,
    uid: u32,
    gid: u32,
    file_mode: u16,
    dir_mode: u16,
    /// Modification time of folders.
    began: SystemTime,
}

impl ObjectTree {
    /// The tree of `objects`, shown as `spec` states.
    pub fn new(objects: Arc<dyn Objects>, spec: &MirrorSpec) -> ObjectTree {
        let kept = Kept { listings: Mutex::new(lru_cache(LISTINGS_MAX)), names: Mutex::new(lru_cache(NAMES_MAX)) };
        let MountSpec { uid, gid, file_mode, dir_mode, .. } = spec.container;
        let root = spec.root.clone();
        ObjectTree(Arc::new(Inner { objects, root, kept, uid, gid, file_mode, dir_mode, began: SystemTime::now() }))
    }
}

impl Inner {
    fn url(&self, key: &str) -> PathBuf {
        PathBuf::from(format!("{}/{key}", self.root.display().to_string().trim_end_matches('/')))
    }

    /// Logs a failed request; returns its errno. An object that was replaced is looked up again.
    fn failed(&self, what: &str, key: &str, e: &ObjectError) -> io::Error {
        if e.errno == libc::ESTALE {
            self.kept.listings.lock().clear();
            self.kept.names.lock().clear();
        } else {
            tracing::warn!("cannot {what} {}: {}", escaped(&self.url(key)), e.message);
        }
        io::Error::from_raw_os_error(e.errno)
    }

    /// The names of `folder`, listed if that was not done just now.
    fn listing(&self, folder: &str) -> Result<Names, ObjectError> {
        if let Some(names) = self.known_listing(folder) {
            return Ok(names);
        }
        let asked = Instant::now();
        let mut names = BTreeMap::new();
        for (name, found) in self.objects.list(folder)? {
            // Of an object and a prefix with one name the prefix is shown if the object is empty.
            let is_weaker = |there: &Found| match (there, &found) {
                (Found::Object(there), Found::Prefix) => there.len == 0,
                (Found::Prefix, Found::Object(object)) => object.len > 0,
                _ => false,
            };
            if names.get(&name).is_none_or(is_weaker) {
                names.insert(name, found);
            }
        }
        let names: Names = Arc::new(names);
        self.kept.listings.lock().put(folder.to_owned(), (asked, names.clone()));
        Ok(names)
    }

    fn known_listing(&self, folder: &str) -> Option<Names> {
        let mut listings = self.kept.listings.lock();
        listings.get(folder).filter(|(asked, _)| asked.elapsed() < LISTING_TIME).map(|(_, names)| names.clone())
    }

    /// What `name` in `folder` refers to: by a listing that is known, else by a request for it.
    fn find(&self, folder: &str, name: &str) -> Result<Option<Found>, ObjectError> {
        if let Some(names) = self.known_listing(folder) {
            return Ok(names.get(name).cloned());
        }
        let key = joined(folder, name);
        if let Some((_, found)) = self.kept.names.lock().get(&key).filter(|(asked, _)| asked.elapsed() < LISTING_TIME) {
            return Ok(found.clone());
        }
        let asked = Instant::now();
        let found = match self.objects.find(&key)? {
            Some(version) if version.len > 0 => Some(Found::Object(version)),
            // An empty object may stand for a prefix.
            object => match self.listing(&key)?.is_empty() {
                true => object.map(Found::Object),
                false => Some(Found::Prefix),
            },
        };
        self.kept.names.lock().put(key, (asked, found.clone()));
        Ok(found)
    }

    fn folder_entry(&self, folder: &str) -> Entry {
        let (identity, time) = (self.objects.identity_of(folder), self.began);
        let status = Status { identity, len: 0, allocated: 0, atime: time, mtime: time, ctime: time };
        Entry { status, mode: libc::S_IFDIR | u32::from(self.dir_mode), links: 1, uid: self.uid, gid: self.gid }
    }

    fn object_entry(&self, version: &Version) -> Entry {
        let Version { identity, len, modified: time, .. } = *version;
        let status = Status { identity, len, allocated: len, atime: time, mtime: time, ctime: time };
        Entry { status, mode: libc::S_IFREG | u32::from(self.file_mode), links: 1, uid: self.uid, gid: self.gid }
    }
}

/// The key of `name` in `folder`.
fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

impl Tree for ObjectTree {
    fn path(&self) -> io::Result<PathBuf> {
        Ok(self.0.root.clone())
    }

    fn used(&self, _written: bool) -> io::Result<Vec<UsedDirectory>> {
        let used = self.0.objects.used()?;
        Ok(used.into_iter().map(|(directory, written)| UsedDirectory { directory, written, tree: false }).collect())
    }

    fn check(&self) -> Result<(), OpenError> {
        let failed = |e: ObjectError| OpenError::Remote { path: self.0.root.clone(), message: e.message };
        match self.0.listing("").map_err(failed)?.is_empty() {
            false => Ok(()),
            true => Err(OpenError::Remote { path: self.0.root.clone(), message: "no object has this prefix; check the URL".into() }),
        }
    }

    fn folder(&self, path: &[Vec<u8>]) -> io::Result<(Box<dyn Folder>, Entry)> {
        let names: Result<Vec<&str>, _> = path.iter().map(|name| std::str::from_utf8(name)).collect();
        let key = names.map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))?.join("/");
        let entry = self.0.folder_entry(&key);
        Ok((Box::new(ObjectFolder { tree: self.0.clone(), key }), entry))
    }

    fn space(&self) -> io::Result<Statfs> {
        Ok(Statfs { block_size: 4096, blocks: 0, free: 0, files: 0, name_max: NAME_MAX as u32 })
    }

    fn has_host_files(&self) -> bool {
        false
    }

    fn lists_attributes(&self) -> bool {
        false
    }

    fn divide_cache(&self, bytes: u64) -> u64 {
        let blocks = bytes / BLOCKS_DIVISOR;
        self.0.objects.set_memory(blocks);
        bytes.saturating_sub(blocks)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.objects.counters()
    }
}

/// A folder of the tree.
struct ObjectFolder {
    tree: Arc<Inner>,
    key: String,
}

impl ObjectFolder {
    /// Key and version of the object `name`, which has `identity`.
    fn object(&self, name: &OsStr, identity: Identity) -> io::Result<(String, Version)> {
        let stale = || io::Error::from_raw_os_error(libc::ESTALE);
        let name = name.to_str().ok_or_else(stale)?;
        match self.tree.find(&self.key, name).map_err(|e| self.tree.failed("look up", &self.key, &e))? {
            Some(Found::Object(version)) if version.identity == identity => Ok((joined(&self.key, name), version)),
            _ => Err(stale()),
        }
    }
}

impl Folder for ObjectFolder {
    fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        if name == "." {
            return Ok(Some(self.tree.folder_entry(&self.key)));
        }
        let Some(name) = name.to_str() else { return Ok(None) };
        let found = self.tree.find(&self.key, name).map_err(|e| self.tree.failed("look up", &joined(&self.key, name), &e))?;
        Ok(found.map(|found| match found {
            Found::Object(version) => self.tree.object_entry(&version),
            Found::Prefix => self.tree.folder_entry(&joined(&self.key, name)),
        }))
    }

    fn list(&self) -> io::Result<Vec<Name>> {
        let names = self.tree.listing(&self.key).map_err(|e| self.tree.failed("list", &self.key, &e))?;
        let shown = names.iter().filter(|(name, _)| name.len() <= NAME_MAX);
        Ok(shown
            .map(|(name, found)| {
                let (entry, may_be_file) = match found {
                    Found::Object(version) => (self.tree.object_entry(version), true),
                    Found::Prefix => (self.tree.folder_entry(&joined(&self.key, name)), false),
                };
                Name { name: OsString::from(name), may_be_file, entry: Some(entry) }
            })
            .collect())
    }

    fn read_link(&self, _name: &OsStr) -> io::Result<OsString> {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn recognize(&self, name: &OsStr, entry: &Entry) -> io::Result<Recognized> {
        let (key, version) = self.object(name, entry.status.identity)?;
        let head = self.tree.objects.head(&key, &version, HEAD_BYTES).map_err(|e| self.tree.failed("read", &key, &e))?;
        open::recognize_bytes(&MemoryFile::new(head), &self.tree.url(&key))
    }

    fn guess(&self, name: &OsStr) -> Option<Recognized> {
        let name = name.as_encoded_bytes().to_ascii_lowercase();
        let is_container = ENDINGS.iter().any(|ending| name.ends_with(ending));
        Some(if is_container { Recognized::Container } else { Recognized::Other })
    }

    fn open(&self, name: &OsStr, entry: &Entry, _flags: OFlag) -> io::Result<(Content, Entry)> {
        let (key, version) = self.object(name, entry.status.identity)?;
        if version.len == 0 {
            return Ok((Content::Bytes(Arc::new(MemoryFile::new([]))), *entry));
        }
        let driver = self.tree.objects.open(&key, &version).map_err(|e| self.tree.failed("open", &key, &e))?;
        Ok((Content::Bytes(driver), *entry))
    }

    /// By its URL: the version of the object is the one that is there when it is opened.
    fn locate(&self, _name: &OsStr, _identity: Identity, spec: &MountSpec) -> Result<LocatedContainer, OpenError> {
        open::locate(spec)
    }

    fn container(&self, name: &OsStr, identity: Identity, spec: &MountSpec, shared: &Shared) -> Result<Arc<dyn Operations>, OpenError> {
        let io = |source| OpenError::Open { path: spec.file.clone(), source };
        let (key, version) = self.object(name, identity).map_err(io)?;
        let driver = self.tree.objects.open(&key, &version).map_err(|e| io(self.tree.failed("open", &key, &e)))?;
        open::open_bytes(spec, driver, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::open::FileDriver;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::UNIX_EPOCH;

    /// Objects in memory, and the requests for them.
    #[derive(Default)]
    struct Store {
        objects: Mutex<BTreeMap<String, Vec<u8>>>,
        requests: AtomicU64,
    }

    impl Store {
        fn put(&self, key: &str, bytes: &[u8]) {
            self.objects.lock().insert(key.into(), bytes.into());
        }

        fn version(key: &str, bytes: &[u8]) -> Version {
            let hash = bytes.iter().chain(key.as_bytes()).fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
            Version { identity: Identity { device: 1, inode: hash }, len: bytes.len() as u64, modified: UNIX_EPOCH, etag: None }
        }
    }

    impl Objects for Store {
        fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>> {
            Ok(Vec::new())
        }

        fn identity_of(&self, folder: &str) -> Identity {
            Identity { device: 2, inode: folder.len() as u64 }
        }

        fn list(&self, folder: &str) -> Result<Vec<(String, Found)>, ObjectError> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let begin = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            let objects = self.objects.lock();
            let below = objects.iter().filter_map(|(key, bytes)| Some((key, key.strip_prefix(&begin)?, bytes)));
            Ok(below
                .map(|(key, name, bytes)| match name.split_once('/') {
                    Some((name, _)) => (name.to_owned(), Found::Prefix),
                    None => (name.to_owned(), Found::Object(Self::version(key, bytes))),
                })
                .collect())
        }

        fn find(&self, key: &str) -> Result<Option<Version>, ObjectError> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            Ok(self.objects.lock().get(key).map(|bytes| Self::version(key, bytes)))
        }

        fn head(&self, key: &str, _version: &Version, len: u64) -> Result<Vec<u8>, ObjectError> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let objects = self.objects.lock();
            Ok(objects.get(key).map(|bytes| bytes.iter().take(len as usize).copied().collect()).unwrap_or_default())
        }

        fn open(&self, key: &str, _version: &Version) -> Result<Arc<dyn FileDriver>, ObjectError> {
            let bytes = self.objects.lock().get(key).cloned();
            let absent = || ObjectError { errno: libc::ENOENT, message: "none".into() };
            Ok(Arc::new(MemoryFile::new(bytes.ok_or_else(absent)?)))
        }

        fn set_memory(&self, _bytes: u64) {}

        fn counters(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }
    }

    fn tree() -> (Arc<Store>, ObjectTree) {
        let store = Arc::new(Store::default());
        for (key, bytes) in [("a.h5", "\u{89}HDF"), ("d", ""), ("d/x", "x"), ("d/e/y", "y"), ("f", "f"), ("f/hidden", "h"), ("empty", "")] {
            store.put(key, bytes.as_bytes());
        }
        let spec = super::super::mirror_fs::tests::spec(Path::new("s3://bucket/p/"));
        (store.clone(), ObjectTree::new(store, &spec))
    }

    fn names(tree: &ObjectTree, path: &[&str]) -> Vec<(String, bool)> {
        let path: Vec<Vec<u8>> = path.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listed = tree.folder(&path).unwrap().0.list().unwrap();
        listed.into_iter().map(|name| (name.name.into_string().unwrap(), name.entry.unwrap().is_directory())).collect()
    }

    fn pairs(all: &[(&str, bool)]) -> Vec<(String, bool)> {
        all.iter().map(|(name, is_directory)| ((*name).to_owned(), *is_directory)).collect()
    }

    #[test]
    fn keys_are_paths_and_empty_objects_give_way_to_prefixes() {
        let (_, tree) = tree();
        assert_eq!(names(&tree, &[]), pairs(&[("a.h5", false), ("d", true), ("empty", false), ("f", false)]));
        assert_eq!(names(&tree, &["d"]), pairs(&[("e", true), ("x", false)]));
        assert_eq!(names(&tree, &["d", "e"]), pairs(&[("y", false)]));
    }

    #[test]
    fn a_name_is_the_same_with_and_without_a_listing() {
        let (store, listed) = tree();
        names(&listed, &[]);
        let unlisted = tree().1;
        for name in ["a.h5", "d", "empty", "f", "none"] {
            let kind = |tree: &ObjectTree| {
                let entry = tree.folder(&[]).unwrap().0.entry(OsStr::new(name)).unwrap();
                entry.map(|entry| (entry.is_directory(), entry.status.len, entry.status.identity))
            };
            assert_eq!(kind(&listed), kind(&unlisted), "{name}");
        }
        // All of that took the one listing.
        assert_eq!(store.requests.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn requests_are_not_repeated_soon() {
        let (store, tree) = tree();
        let folder = tree.folder(&[]).unwrap().0;
        let count = || store.requests.swap(0, Ordering::Relaxed);
        for _ in 0..3 {
            folder.entry(OsStr::new("a.h5")).unwrap().unwrap();
        }
        assert_eq!(count(), 1, "an object that is not empty takes one request");
        folder.entry(OsStr::new("d")).unwrap().unwrap();
        names(&tree, &["d"]);
        assert_eq!(count(), 2, "a prefix takes one more, which lists it");
        // A replaced object is another one, and is found once the listing is forgotten.
        let before = folder.entry(OsStr::new("a.h5")).unwrap().unwrap();
        store.put("a.h5", b"other");
        tree.0.failed("read", "a.h5", &ObjectError { errno: libc::ESTALE, message: String::new() });
        let after = folder.entry(OsStr::new("a.h5")).unwrap().unwrap();
        assert_ne!(before.status.identity, after.status.identity);
        assert_eq!(folder.recognize(OsStr::new("a.h5"), &before).err().and_then(|e| e.raw_os_error()), Some(libc::ESTALE));
        assert_eq!(folder.recognize(OsStr::new("a.h5"), &after).unwrap(), Recognized::Other);
    }

    #[test]
    fn endings_decide_in_a_listing() {
        let (_, tree) = tree();
        let folder = tree.folder(&[]).unwrap().0;
        for (name, guess) in
            [("x.H5", Recognized::Container), ("x.nc", Recognized::Container), ("x.txt", Recognized::Other), ("h5", Recognized::Other)]
        {
            assert_eq!(folder.guess(OsStr::new(name)), Some(guess), "{name}");
        }
    }
}
