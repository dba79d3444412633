//! Bytes of packs in the directory of the disk cache, kept after the daemon ends.
//!
//! A file has the bytes of one range of an object that never changes. Its reader checks the bytes
//! by their checksum.

use crate::file::cache_directory::{CacheDirectory, EXTENT_SUFFIX};
use std::io::Read;
use std::sync::Arc;

/// See the module's description.
pub struct ExtentCache(Arc<CacheDirectory>);

impl ExtentCache {
    /// The cache in `directory`.
    pub fn open(directory: Arc<CacheDirectory>) -> ExtentCache {
        directory.count();
        ExtentCache(directory)
    }

    fn file_name(name: &str) -> String {
        format!("{name}{EXTENT_SUFFIX}")
    }

    /// The bytes under `name`, if there are `len`. The caller checks them.
    pub fn get(&self, name: &str, len: u32) -> Option<Vec<u8>> {
        let (file, _) = self.0.file(&Self::file_name(name)).filter(|(_, stored)| *stored == u64::from(len))?;
        let mut bytes = Vec::with_capacity(len as usize);
        (&file).take(len.into()).read_to_end(&mut bytes).ok()?;
        self.0.touch(&file);
        (bytes.len() == len as usize).then_some(bytes)
    }

    /// Removes the file of damaged bytes.
    pub fn discard(&self, name: &str) {
        self.0.remove(&Self::file_name(name));
    }

    /// Keeps bytes under `name`. Errors are logged only: a cache may lack bytes.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        if self.0.fits(bytes.len() as u64)
            && let Err(e) = self.0.write(&Self::file_name(name), &[bytes])
        {
            tracing::debug!("cannot write to the disk cache: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(path: &std::path::Path, limit: u64) -> ExtentCache {
        ExtentCache::open(Arc::new(CacheDirectory::open(path, limit).unwrap()))
    }

    #[test]
    fn extents_outlive_their_cache() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        cache(&path, 1 << 20).put("a", &[7; 5000]);
        let again = cache(&path, 1 << 20);
        assert_eq!(again.get("a", 5000), Some(vec![7; 5000]));
        assert_eq!((again.get("a", 4999), again.get("b", 5000)), (None, None));
        again.discard("a");
        assert_eq!(again.get("a", 5000), None);
    }

    #[test]
    fn extents_used_longest_ago_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let disk = cache(&path, 100_000);
        for n in 0..40u8 {
            disk.put(&format!("e{n}"), &[n; 8192]);
        }
        let bytes: u64 = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!((50_000..=110_000).contains(&bytes), "{bytes}");
        assert!(disk.get("e0", 8192).is_none() && disk.get("e39", 8192) == Some(vec![39; 8192]));
        disk.put("large", &[1; 60_000]);
        assert!(disk.get("large", 60_000).is_none());
        std::fs::write(path.join("other"), "kept").unwrap();
        std::fs::write(path.join("tmp-1"), "new").unwrap();
        cache(&path, 0);
        let mut left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, ["other", "tmp-1"]);
    }
}
