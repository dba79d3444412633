//! Bytes of packs of a container in the directory of the disk cache, kept after the daemon ends.
//!
//! A file has the bytes of one range of an object that never changes, as one piece.

use super::cache_directory::{CacheDirectory, EXTENT_SUFFIX};
use super::cache_file::{self, CacheKey, Pieces};
use crate::file::store::RangeCache;
use std::sync::Arc;

/// See the module's description.
pub(super) struct ExtentCache {
    directory: Arc<CacheDirectory>,
    /// Of the store, and of the prefix in it.
    store: CacheKey,
}

impl ExtentCache {
    /// The cache in `directory` of bytes of `store`.
    pub(super) fn open(directory: Arc<CacheDirectory>, store: CacheKey) -> ExtentCache {
        ExtentCache { directory, store }
    }

    /// Key and name of the file of `name`.
    fn file(&self, name: &str) -> (CacheKey, String) {
        let key = self.store.with(name.as_bytes());
        (key, format!("{key}{EXTENT_SUFFIX}"))
    }
}

impl RangeCache for ExtentCache {
    fn get(&self, name: &str, len: u32) -> Option<Vec<u8>> {
        self.directory.count();
        let (key, file) = self.file(name);
        let pieces = Pieces::open(&self.directory, &file, &key, 0, 1, len.into());
        let bytes = pieces.as_ref().and_then(|pieces| pieces.piece(0)).filter(|bytes| bytes.len() == len as usize);
        match (&bytes, pieces) {
            (Some(_), Some(pieces)) => self.directory.touch(pieces.file()),
            _ => self.directory.remove(&file),
        }
        bytes
    }

    fn discard(&self, name: &str) {
        self.directory.remove(&self.file(name).1);
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let (key, file) = self.file(name);
        if self.directory.fits(bytes.len() as u64)
            && let Err(e) = cache_file::write(&self.directory, &file, &key, 0, &[bytes])
        {
            tracing::debug!("cannot write to the disk cache: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn cache(path: &Path, limit: u64, store: &str) -> ExtentCache {
        ExtentCache::open(Arc::new(CacheDirectory::open(path, limit).unwrap()), CacheKey::of([store.as_bytes()]))
    }

    #[test]
    fn extents_outlive_their_cache_and_belong_to_a_store() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        cache(&path, 1 << 20, "s").put("a", &[7; 5000]);
        let again = cache(&path, 1 << 20, "s");
        assert_eq!(again.get("a", 5000), Some(vec![7; 5000]));
        assert_eq!((again.get("b", 5000), cache(&path, 1 << 20, "t").get("a", 5000)), (None, None));
        // The file of another store, under the name of this one.
        cache(&path, 1 << 20, "t").put("a", &[8; 5000]);
        std::fs::rename(path.join(cache(&path, 1 << 20, "t").file("a").1), path.join(again.file("a").1)).unwrap();
        assert_eq!(again.get("a", 5000), None);
        again.put("a", &[7; 5000]);
        again.discard("a");
        assert_eq!(again.get("a", 5000), None);
    }

    #[test]
    fn damaged_extents_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let cache = cache(&path, 1 << 20, "s");
        let file = path.join(cache.file("a").1);
        for at in [0, 20, 45, 52, 55, 59, 70, 100, 130, 5000] {
            cache.put("a", &[7; 5000]);
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[at] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            assert!(cache.get("a", 5000).is_none() && !file.exists(), "{at}");
        }
        cache.put("a", &[7; 5000]);
        assert!(cache.get("a", 4999).is_none() && !file.exists());
    }

    #[test]
    fn extents_used_longest_ago_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let disk = cache(&path, 100_000, "s");
        for n in 0..40u8 {
            disk.put(&format!("e{n}"), &[n; 8000]);
        }
        let bytes: u64 = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!((50_000..=110_000).contains(&bytes), "{bytes}");
        assert!(disk.get("e0", 8000).is_none() && disk.get("e39", 8000) == Some(vec![39; 8000]));
        disk.put("large", &[1; 60_000]);
        assert!(disk.get("large", 60_000).is_none());
        std::fs::write(path.join("other"), "kept").unwrap();
        std::fs::write(path.join("tmp-1"), "new").unwrap();
        // A file of an earlier version.
        std::fs::write(path.join(format!("0123-1-2{EXTENT_SUFFIX}")), "old").unwrap();
        assert_eq!(cache(&path, 0, "s").get("e39", 8000), None);
        let mut left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, ["other", "tmp-1"]);
    }
}
