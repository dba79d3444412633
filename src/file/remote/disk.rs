//! Blocks of an object in the directory of the disk cache: checksummed, kept after the daemon ends.
//!
//! A file has the blocks of one transfer. Its name says which blocks it should have; its header has
//! the object, the version and a checksum of each block, and only they count.
//!
//! ```text
//! magic 8 | first block 8 | blocks 4 | length of the last 4 | length of the version text 4
//! version text | checksum of each block 4 each | checksum of all before 4 | blocks
//! ```

use super::blocks::{BLOCK_BYTES, Block};
use crate::base::checksum::lookup3;
use crate::file::cache_directory::{BLOCKS_SUFFIX, CacheDirectory};
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"h5dirB01";
const FIXED_BYTES: usize = 28;
/// Longest version text, bytes.
const VERSION_BYTES_MAX: usize = 1 << 14;
/// Most blocks of a file.
const BLOCKS_MAX: u64 = 1 << 12;
/// Files kept open.
const OPEN_FILES: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// Blocks of one version of an object.
pub(super) struct DiskCache {
    directory: Arc<CacheDirectory>,
    /// Object and version.
    version: String,
    /// Files by the blocks that they should have.
    index: Mutex<HashMap<u64, Name>>,
    open: Mutex<LruCache<Name, Arc<Stored>>>,
}

/// What the name of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    /// Hash of the version text.
    key: u64,
    first: u64,
    blocks: u64,
}

impl Name {
    fn text(self) -> String {
        format!("{:016x}-{:x}-{:x}{BLOCKS_SUFFIX}", self.key, self.first, self.blocks)
    }

    fn parse(name: &[u8]) -> Option<Name> {
        let text = std::str::from_utf8(name).ok()?.strip_suffix(BLOCKS_SUFFIX)?;
        let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let name = Name { key: parts.next()??, first: parts.next()??, blocks: parts.next()?? };
        (parts.next().is_none() && (1..=BLOCKS_MAX).contains(&name.blocks) && name.first.checked_add(name.blocks).is_some()).then_some(name)
    }
}

/// An open file whose header is right.
struct Stored {
    file: File,
    checksums: Vec<u32>,
    data: u64,
    last_bytes: u64,
}

fn key(version: &str) -> u64 {
    u64::from(lookup3(version.as_bytes(), 3)) << 32 | u64::from(lookup3(version.as_bytes(), 4))
}

fn header(version: &str, first: u64, blocks: &[Block]) -> Option<Vec<u8>> {
    let number = |n: usize| u32::try_from(n).ok().map(u32::to_le_bytes);
    let mut out = MAGIC.to_vec();
    out.extend(first.to_le_bytes());
    out.extend(number(blocks.len())?);
    out.extend(number(blocks.last()?.len())?);
    out.extend(number(version.len())?);
    out.extend(version.as_bytes());
    blocks.iter().for_each(|block| out.extend(lookup3(block, 0).to_le_bytes()));
    out.extend(lookup3(&out, 0).to_le_bytes());
    Some(out)
}

impl DiskCache {
    /// Blocks of `version` in `directory`.
    pub(super) fn open(directory: Arc<CacheDirectory>, version: &str) -> Option<DiskCache> {
        if version.len() > VERSION_BYTES_MAX {
            return None;
        }
        directory.count();
        let own = key(version);
        let mut index = HashMap::new();
        directory.each_name(&mut |name| {
            if let Some(name) = Name::parse(name).filter(|name| name.key == own) {
                index.extend((name.first..name.first.saturating_add(name.blocks)).map(|block| (block, name)));
            }
        });
        let open = Mutex::new(LruCache::new(OPEN_FILES));
        Some(DiskCache { directory, version: version.to_owned(), index: Mutex::new(index), open })
    }

    /// True if a file should have block `number`.
    pub(super) fn has(&self, number: u64) -> bool {
        self.index.lock().contains_key(&number)
    }

    /// Reads block `number`; `None` if there is none. A file that is damaged is removed.
    pub(super) fn read(&self, number: u64) -> Option<Block> {
        let name = self.index.lock().get(&number).copied()?;
        let block = self.stored(name).and_then(|stored| stored.block(number.checked_sub(name.first)?));
        if block.is_none() {
            self.discard(name);
        }
        block
    }

    fn discard(&self, name: Name) {
        tracing::debug!("the file {} of the disk cache is damaged or gone", name.text());
        self.forget(name);
        self.directory.remove(&name.text());
    }

    fn forget(&self, name: Name) {
        self.open.lock().pop(&name);
        self.index.lock().retain(|_, other| *other != name);
    }

    /// The file `name`, if its header is right.
    fn stored(&self, name: Name) -> Option<Arc<Stored>> {
        if let Some(stored) = self.open.lock().get(&name) {
            return Some(stored.clone());
        }
        let (file, _) = self.directory.file(&name.text())?;
        let mut fixed = [0; FIXED_BYTES];
        file.read_exact_at(&mut fixed, 0).ok()?;
        let number = |at: usize| Some(u64::from(u32::from_le_bytes(fixed.get(at..at.checked_add(4)?)?.try_into().ok()?)));
        let first = u64::from_le_bytes(fixed.get(8..16)?.try_into().ok()?);
        let (blocks, last_bytes, version) = (number(16)?, number(20)?, number(24)?);
        let is_ours = fixed.starts_with(MAGIC) && (first, blocks) == (name.first, name.blocks) && version == self.version.len() as u64;
        if !is_ours || last_bytes > BLOCK_BYTES {
            return None;
        }
        let size = FIXED_BYTES.checked_add(self.version.len())?.checked_add(usize::try_from(blocks).ok()?.checked_mul(4)?)?;
        let mut all = vec![0; size.checked_add(4)?];
        file.read_exact_at(&mut all, 0).ok()?;
        let (header, sum) = all.split_at_checked(size)?;
        let sums = header.get(FIXED_BYTES..)?.strip_prefix(self.version.as_bytes())?;
        if lookup3(header, 0).to_le_bytes() != sum {
            return None;
        }
        let checksums = sums.chunks_exact(4).filter_map(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?))).collect();
        self.directory.touch(&file);
        let stored = Arc::new(Stored { file, checksums, data: size as u64 + 4, last_bytes });
        self.open.lock().put(name, stored.clone());
        Some(stored)
    }

    /// Writes the blocks from number `first` on. Errors are logged only: a cache may lack blocks.
    pub(super) fn write(&self, first: u64, blocks: &[Block]) {
        let name = Name { key: key(&self.version), first, blocks: blocks.len() as u64 };
        let bytes = blocks.iter().map(|block| block.len() as u64).sum::<u64>();
        let is_kept = (first..first.saturating_add(name.blocks)).all(|number| self.has(number));
        if is_kept || blocks.is_empty() || name.blocks > BLOCKS_MAX || !self.directory.fits(bytes) {
            return;
        }
        match self.try_write(name, blocks) {
            Ok(removed) => {
                self.index.lock().extend((first..first.saturating_add(name.blocks)).map(|number| (number, name)));
                removed.iter().filter_map(|name| Name::parse(name)).for_each(|name| self.forget(name));
            }
            Err(e) => tracing::debug!("cannot write to the disk cache: {e}"),
        }
    }

    /// Writes the file `name`. Returns the names of files that were removed to make room.
    fn try_write(&self, name: Name, blocks: &[Block]) -> io::Result<Vec<Vec<u8>>> {
        let header = header(&self.version, name.first, blocks).ok_or(io::ErrorKind::InvalidInput)?;
        let mut parts: Vec<&[u8]> = vec![&header];
        parts.extend(blocks.iter().map(|block| block.as_slice()));
        self.directory.write(&name.text(), &parts)
    }
}

impl Stored {
    /// Block `index` of the file, if its checksum is right.
    fn block(&self, index: u64) -> Option<Block> {
        let checksum = *self.checksums.get(usize::try_from(index).ok()?)?;
        let is_last = index.checked_add(1)? == self.checksums.len() as u64;
        let mut bytes = vec![0; usize::try_from(if is_last { self.last_bytes } else { BLOCK_BYTES }).ok()?];
        self.file.read_exact_at(&mut bytes, self.data.checked_add(index.checked_mul(BLOCK_BYTES)?)?).ok()?;
        (lookup3(&bytes, 0) == checksum).then(|| bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn block(byte: u8) -> Block {
        vec![byte; BLOCK_BYTES as usize].into()
    }

    fn cache(path: &Path, limit: u64, version: &str) -> DiskCache {
        DiskCache::open(Arc::new(CacheDirectory::open(path, limit).unwrap()), version).unwrap()
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
        let other = Name { key: key("b"), first: 5, blocks: 2 };
        std::fs::rename(only_file(&path), path.join(other.text())).unwrap();
        let hostile = cache(&path, 1 << 30, "b");
        assert!(hostile.has(5) && hostile.read(5).is_none() && !hostile.has(5));
    }

    #[test]
    fn damaged_files_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        for at in [0, 9, 17, 21, 25, 29, 34, 100, 40_000] {
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
