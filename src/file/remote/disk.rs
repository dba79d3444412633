//! Blocks of an object in the directory of the disk cache, kept after the daemon ends.
//!
//! A file has the blocks of one transfer as its pieces. Its name has the key of the version of the
//! object, and says which blocks the file should have.

use super::blocks::{BLOCK_BYTES, Block};
use super::cache_directory::{BLOCKS_SUFFIX, CacheDirectory};
use super::cache_file::{self, CacheKey, PIECES_MAX, Pieces};
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use lru::LruCache;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Files kept open.
const OPEN_FILES: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Blocks of one version of an object.
pub(super) struct DiskCache {
    directory: Arc<CacheDirectory>,
    /// Of the object and its version.
    key: CacheKey,
    /// Files by the blocks that they should have.
    index: Mutex<HashMap<u64, Name>>,
    open: Mutex<LruCache<Name, Arc<Pieces>>>,
}

/// What the name of a file says after its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    first: u64,
    blocks: u64,
}

impl Name {
    fn text(self, key: &CacheKey) -> String {
        format!("{key}-{:x}-{:x}{BLOCKS_SUFFIX}", self.first, self.blocks)
    }

    /// What `name` says; `None` if it has another key than `key`, which is hexadecimal.
    fn parse(name: &[u8], key: &str) -> Option<Name> {
        let text = std::str::from_utf8(name).ok()?.strip_prefix(key)?.strip_prefix('-')?.strip_suffix(BLOCKS_SUFFIX)?;
        let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let name = Name { first: parts.next()??, blocks: parts.next()?? };
        let is_range = (1..=PIECES_MAX).contains(&name.blocks) && name.first.checked_add(name.blocks).is_some();
        (parts.next().is_none() && is_range).then_some(name)
    }
}

impl DiskCache {
    /// Blocks of the version `key` of an object in `directory`.
    pub(super) fn open(directory: Arc<CacheDirectory>, key: CacheKey) -> DiskCache {
        directory.count();
        let (own, mut index) = (key.to_string(), HashMap::new());
        directory.each_name(&mut |name| {
            if let Some(name) = Name::parse(name, &own) {
                index.extend((name.first..name.first.saturating_add(name.blocks)).map(|block| (block, name)));
            }
        });
        let open = Mutex::new(lru_cache(OPEN_FILES));
        DiskCache { directory, key, index: Mutex::new(index), open }
    }

    /// True if a file should have block `number`.
    pub(super) fn has(&self, number: u64) -> bool {
        self.index.lock().contains_key(&number)
    }

    /// Reads block `number`; `None` if there is none. A file that is damaged is removed.
    pub(super) fn read(&self, number: u64) -> Option<Block> {
        let name = self.index.lock().get(&number).copied()?;
        let block = self.pieces(name).and_then(|pieces| pieces.piece(number.checked_sub(name.first)?));
        if block.is_none() {
            self.discard(name);
        }
        block.map(Block::new)
    }

    fn discard(&self, name: Name) {
        let text = name.text(&self.key);
        tracing::debug!("the file {text} of the disk cache is damaged or gone");
        self.forget(name);
        self.directory.remove(&text);
    }

    fn forget(&self, name: Name) {
        self.open.lock().pop(&name);
        self.index.lock().retain(|_, other| *other != name);
    }

    /// The file `name`, if its header is right.
    fn pieces(&self, name: Name) -> Option<Arc<Pieces>> {
        if let Some(pieces) = self.open.lock().get(&name) {
            return Some(pieces.clone());
        }
        let pieces = Pieces::open(&self.directory, &name.text(&self.key), &self.key, name.first, name.blocks, BLOCK_BYTES)?;
        self.directory.touch(pieces.file());
        let pieces = Arc::new(pieces);
        self.open.lock().put(name, pieces.clone());
        Some(pieces)
    }

    /// Writes the blocks from number `first` on. Errors are logged only: a cache may lack blocks.
    pub(super) fn write(&self, first: u64, blocks: &[Block]) {
        let name = Name { first, blocks: blocks.len() as u64 };
        let bytes = blocks.iter().map(|block| block.len() as u64).sum::<u64>();
        let is_kept = (first..first.saturating_add(name.blocks)).all(|number| self.has(number));
        if is_kept || blocks.is_empty() || name.blocks > PIECES_MAX || !self.directory.fits(bytes) {
            return;
        }
        match self.try_write(name, blocks) {
            Ok(removed) => {
                self.index.lock().extend((first..first.saturating_add(name.blocks)).map(|number| (number, name)));
                let own = self.key.to_string();
                removed.iter().filter_map(|name| Name::parse(name, &own)).for_each(|name| self.forget(name));
            }
            Err(e) => tracing::debug!("cannot write to the disk cache: {e}"),
        }
    }

    /// Writes the file `name`. Returns the names of files that were removed to make room.
    fn try_write(&self, name: Name, blocks: &[Block]) -> io::Result<Vec<Vec<u8>>> {
        let pieces: Vec<&[u8]> = blocks.iter().map(|block| block.as_slice()).collect();
        cache_file::write(&self.directory, &name.text(&self.key), &self.key, name.first, &pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn block(byte: u8) -> Block {
        vec![byte; BLOCK_BYTES as usize].into()
    }

    fn key(version: &str) -> CacheKey {
        CacheKey::of([version.as_bytes()])
    }

    fn cache(path: &Path, limit: u64, version: &str) -> DiskCache {
        DiskCache::open(Arc::new(CacheDirectory::open(path, limit).unwrap()), key(version))
    }

    fn only_file(path: &Path) -> std::path::PathBuf {
        std::fs::read_dir(path).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn blocks_outlive_their_cache_and_belong_to_a_version() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        cache(&path, 1 << 30, "a").write(5, &[block(1), vec![2; 10].into()]);
        let again = cache(&path, 1 << 30, "a");
        assert_eq!((again.read(5), again.read(6)), (Some(block(1)), Some(vec![2; 10].into())));
        assert!(!again.has(4) && again.read(7).is_none());
        assert!(!cache(&path, 1 << 30, "b").has(5));
        // A file under a name of another version, with its own content.
        let other = Name { first: 5, blocks: 2 }.text(&key("b"));
        std::fs::rename(only_file(&path), path.join(other)).unwrap();
        let hostile = cache(&path, 1 << 30, "b");
        assert!(hostile.has(5) && hostile.read(5).is_none() && !hostile.has(5));
    }

    #[test]
    fn damaged_files_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        for at in [0, 9, 41, 49, 53, 57, 61, 100, 40_000] {
            let disk = cache(&path, 1 << 30, "a");
            disk.write(0, &[block(1)]);
            let file = std::fs::File::options().write(true).open(only_file(&path)).unwrap();
            file.write_all_at(&[0xee], at).unwrap();
            assert!(disk.read(0).is_none() && !disk.has(0), "{at}");
            assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "{at}");
        }
        let disk = cache(&path, 1 << 30, "a");
        disk.write(0, &[block(1)]);
        std::fs::File::options().write(true).open(only_file(&path)).unwrap().set_len(30_000).unwrap();
        assert!(disk.read(0).is_none());
    }

    #[test]
    fn files_used_longest_ago_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let disk = cache(&path, 10 * BLOCK_BYTES, "a");
        for n in 0..30 {
            disk.write(n, &[block(1)]);
        }
        let bytes: u64 = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!((4 * BLOCK_BYTES..=11 * BLOCK_BYTES).contains(&bytes), "{bytes}");
        assert!(!disk.has(0) && disk.read(29).is_some());
        std::fs::write(path.join("other"), "kept").unwrap();
        cache(&path, 0, "a");
        assert_eq!(only_file(&path).file_name().unwrap(), "other");
    }
}
