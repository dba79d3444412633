//! Files of the disk cache: pieces of an object with their SHA-256, under a key.
//!
//! A key is the SHA-256 of the store, of the user that reads it, and of the object: what one store
//! sent is never read for another. The hashes are those of the bytes at the time they were stored.
//!
//! ```text
//! magic 8 | key 32 | number of the first piece 8 | number of pieces 4
//! bytes of each piece but the last 4 | bytes of the last 4
//! SHA-256 of each piece 32 each | SHA-256 of all before 32 | pieces
//! ```

use super::cache_directory::CacheDirectory;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN, digest};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"h5dirC01";
const FIXED_BYTES: usize = 60;
/// Most pieces of a file.
pub(super) const PIECES_MAX: u64 = 1 << 12;

type Hash = [u8; SHA256_OUTPUT_LEN];

fn sha256(bytes: &[u8]) -> Hash {
    <Hash>::try_from(digest(&SHA256, bytes).as_ref()).unwrap_or_default()
}

/// Names a store, or an object of a store, by a SHA-256. Displays as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CacheKey(Hash);

impl CacheKey {
    /// The key of `parts`. Their lengths are hashed, too: other divisions have other keys.
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> CacheKey {
        let mut hash = Context::new(&SHA256);
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        CacheKey(<Hash>::try_from(hash.finish().as_ref()).unwrap_or_default())
    }

    /// The key of `part` of what this key names.
    pub(super) fn with(&self, part: &[u8]) -> CacheKey {
        CacheKey::of([self.0.as_slice(), part])
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An open file whose header is right.
pub(super) struct Pieces {
    file: File,
    hashes: Vec<Hash>,
    /// Offset of the first piece.
    data: u64,
    piece_bytes: u32,
    last_bytes: u32,
}

/// Writes `pieces` of `key` from number `first` on as the file `name`. All but the last have the
/// same length. Returns the names of files that were removed to make room.
pub(super) fn write(directory: &CacheDirectory, name: &str, key: &CacheKey, first: u64, pieces: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
    let number = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let mut header = MAGIC.to_vec();
    header.extend(key.0);
    header.extend(first.to_le_bytes());
    header.extend(number(pieces.len())?);
    header.extend(number(pieces.first().map_or(0, |piece| piece.len()))?);
    header.extend(number(pieces.last().map_or(0, |piece| piece.len()))?);
    pieces.iter().for_each(|piece| header.extend(sha256(piece)));
    header.extend(sha256(&header));
    let mut parts = vec![header.as_slice()];
    parts.extend(pieces);
    directory.write(name, &parts)
}

impl Pieces {
    /// Opens the file `name`, which should have `count` pieces of `key` from number `first` on, of
    /// at most `max` bytes each; `None` if it has not.
    pub(super) fn open(directory: &CacheDirectory, name: &str, key: &CacheKey, first: u64, count: u64, max: u64) -> Option<Pieces> {
        if count > PIECES_MAX {
            return None;
        }
        let (file, len) = directory.file(name)?;
        let hashed = FIXED_BYTES.checked_add(usize::try_from(count).ok()?.checked_mul(SHA256_OUTPUT_LEN)?)?;
        let size = hashed.checked_add(SHA256_OUTPUT_LEN)?;
        let data = u64::try_from(size).ok().filter(|size| *size <= len)?;
        let mut all = vec![0; size];
        file.read_exact_at(&mut all, 0).ok()?;
        let (header, hash) = all.split_at_checked(hashed)?;
        let rest = header.strip_prefix(MAGIC)?.strip_prefix(&key.0)?.strip_prefix(&first.to_le_bytes())?;
        let (numbers, hashes) = rest.split_at_checked(12)?;
        let number = |at: usize| Some(u32::from_le_bytes(numbers.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let (pieces, piece_bytes, last_bytes) = (number(0)?, number(4)?, number(8)?);
        let is_right = u64::from(pieces) == count && u64::from(piece_bytes.max(last_bytes)) <= max && sha256(header) == *hash;
        let hashes = hashes.chunks_exact(SHA256_OUTPUT_LEN).filter_map(|hash| hash.try_into().ok()).collect();
        is_right.then_some(Pieces { file, hashes, data, piece_bytes, last_bytes })
    }

    /// Piece `index` of the file, if it is as it was stored.
    pub(super) fn piece(&self, index: u64) -> Option<Vec<u8>> {
        let hash = self.hashes.get(usize::try_from(index).ok()?)?;
        let is_last = index.checked_add(1)? == self.hashes.len() as u64;
        let len = if is_last { self.last_bytes } else { self.piece_bytes };
        let offset = self.data.checked_add(index.checked_mul(self.piece_bytes.into())?)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        (sha256(&bytes) == *hash).then_some(bytes)
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_each_part_and_its_place() {
        let of = |parts: &[&str]| CacheKey::of(parts.iter().map(|part| part.as_bytes())).to_string();
        let keys = [of(&["a", "b"]), of(&["ab", ""]), of(&["ab"]), of(&["b", "a"]), of(&[]), CacheKey::of([]).with(b"a").to_string()];
        for (n, key) in keys.iter().enumerate() {
            assert!(key.len() == 64 && !keys[..n].contains(key), "{n}");
        }
        // SHA-256 of nothing, as FIPS 180-4 has it.
        assert!(of(&[]).starts_with("e3b0c44298fc1c14"));
    }

    /// Bytes that agree in short checksums of their object are refused like all others.
    #[test]
    fn a_file_is_read_for_its_key_and_place_only_and_until_a_byte_changes() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cache");
        let directory = CacheDirectory::open(&path, 1 << 20).unwrap();
        let (key, other) = (CacheKey::of([]), CacheKey::of([b"other".as_slice()]));
        let pieces: [&[u8]; 3] = [&[1; 500], &[2; 500], &[3; 20]];
        write(&directory, "f", &key, 7, &pieces).unwrap();
        let open = |key, first, count, max| Pieces::open(&directory, "f", key, first, count, max);
        let found = open(&key, 7, 3, 500).unwrap();
        assert_eq!([0, 1, 2].map(|n| found.piece(n).unwrap()), pieces.map(<[u8]>::to_vec));
        assert!(found.piece(3).is_none() && found.piece(u64::MAX).is_none());
        for (key, first, count, max) in
            [(&other, 7, 3, 500), (&key, 8, 3, 500), (&key, 7, 2, 500), (&key, 7, 3, 499), (&key, 7, 1 << 40, 500)]
        {
            assert!(open(key, first, count, max).is_none(), "{first} {count} {max}");
        }
        let good = std::fs::read(path.join("f")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(path.join("f"), &bad).unwrap();
            let read: Vec<_> = open(&key, 7, 3, 500).map_or(vec![None], |found| [0, 1, 2].map(|n| found.piece(n)).into());
            assert!(read.contains(&None), "{at}");
        }
    }
}
