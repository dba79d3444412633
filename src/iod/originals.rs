//! Originals: files outside of the container that have bytes of chunks (`cp --link`).
//!
//! ```text
//! object o/NUMBER  "H5IODO1\n" | name length u16 | name | checksum u32
//! ```
//!
//! A number is an object id that no object has. The name is as those of external links. An original
//! may be moved, appended to or replaced by an equal file: the checksum of each extent decides
//! whether its bytes are still there.

use super::cell::Extent;
use super::keys;
use super::sealed;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::base::{Address, Error, Result};
use crate::file::store::ObjectStore;
use crate::file::{FileDriver, read_all};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

const SIGNATURE: &[u8; 8] = b"H5IODO1\n";
/// What messages call an original.
pub(super) const STRUCTURE: &str = "original";
/// Longest name, bytes.
const NAME_MAX: usize = 4096;
/// Longest object, bytes.
const OBJECT_MAX_BYTES: u64 = 8192;
/// Files that are kept open.
const KEPT_FILES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Opens originals.
pub trait OriginalFiles: Send + Sync {
    /// The file `name`, for reading.
    fn open(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>>;
}

/// An open original.
struct OpenOriginal {
    name: String,
    file: Arc<dyn FileDriver>,
}

/// The originals of a container.
pub(super) struct Originals {
    /// Unset: none is opened.
    files: OnceLock<Arc<dyn OriginalFiles>>,
    open: Mutex<LruCache<u64, Arc<OpenOriginal>>>,
    paths: Mutex<LruCache<u64, Vec<u8>>>,
}

impl Default for Originals {
    fn default() -> Self {
        Originals { files: OnceLock::new(), open: Mutex::new(lru_cache(KEPT_FILES)), paths: Mutex::new(lru_cache(KEPT_FILES)) }
    }
}

/// The object of an original. Errors: the name is too long.
pub(super) fn encode(name: &[u8]) -> Result<Vec<u8>> {
    if name.len() > NAME_MAX {
        return Err(Error::refused(libc::ENAMETOOLONG, "the path of the file is too long for a container"));
    }
    let mut w = sealed::begin(SIGNATURE);
    w.uint(name.len() as u64, 2).bytes(name);
    Ok(sealed::end(w))
}

fn decode(bytes: &[u8], number: u64) -> Result<Vec<u8>> {
    let mut r = sealed::open(bytes, SIGNATURE, STRUCTURE, number)?;
    let len = usize::from(r.u16()?);
    let name = r.bytes(len)?.to_vec();
    sealed::finish(&r)?;
    if name.is_empty() || name.len() > NAME_MAX { Err(r.corrupt("its name has a wrong length")) } else { Ok(name) }
}

impl Originals {
    /// Has originals opened by `files`.
    pub(super) fn set_files(&self, files: Arc<dyn OriginalFiles>) {
        let _ = self.files.set(files);
    }

    /// Name of an original.
    pub(super) fn path(&self, store: &dyn ObjectStore, number: u64) -> Result<Vec<u8>> {
        if let Some(path) = self.paths.lock().get(&number) {
            return Ok(path.clone());
        }
        let read = store.get(&keys::original_name(number), 0..OBJECT_MAX_BYTES);
        let path = decode(&read.map_err(|e| Error::io("read an original", Address(number), &e))?, number)?;
        self.paths.lock().put(number, path.clone());
        Ok(path)
    }

    /// Length of an original, bytes.
    pub(super) fn len(&self, store: &dyn ObjectStore, number: u64) -> Result<u64> {
        let status = self.original(store, number)?.file.status();
        Ok(status.map_err(|e| Error::io("stat", Address(number), &e))?.len)
    }

    fn original(&self, store: &dyn ObjectStore, number: u64) -> Result<Arc<OpenOriginal>> {
        if let Some(found) = self.open.lock().get(&number) {
            return Ok(found.clone());
        }
        let path = self.path(store, number)?;
        let name = String::from_utf8_lossy(&path).into_owned();
        let closed =
            || Error::Missing { what: STRUCTURE, name: name.clone(), reason: "other files are not opened (--external=off)".into() };
        let file = self.files.get().ok_or_else(closed)?.open(&path)?;
        let original = Arc::new(OpenOriginal { name, file });
        self.open.lock().put(number, original.clone());
        Ok(original)
    }

    /// The bytes in the place of each of `extents`, of the original `number`: fewer where the file
    /// ends before.
    pub(super) fn fetch(&self, store: &dyn ObjectStore, number: u64, extents: &[&Extent]) -> Result<Vec<Vec<u8>>> {
        let original = self.original(store, number)?;
        let error = |e| Error::io("read an original", Address(number), &e);
        let end = original.file.extent().map_err(error)?.0;
        let range = |e: &&Extent| e.offset..e.offset.saturating_add(e.len.into()).min(end).max(e.offset);
        let ranges: Vec<Range<u64>> = extents.iter().map(range).collect();
        original.file.announce(&ranges);
        let read = |range: &Range<u64>| {
            let mut bytes = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
            let n = read_all(&*original.file, &mut bytes, range.start).map_err(error)?;
            bytes.truncate(n);
            Ok(bytes)
        };
        ranges.iter().map(read).collect()
    }

    /// The error of an extent whose bytes are not in its original.
    pub(super) fn changed(&self, store: &dyn ObjectStore, number: u64, extent: &Extent) -> Error {
        let name = self.original(store, number).map_or_else(|_| keys::original_name(number), |original| original.name.clone());
        let what = format!("{} bytes of {name} are not those that were linked: the file was changed or replaced", extent.len);
        Error::corrupt(STRUCTURE, Address(extent.offset), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::memory::GrowingFile;
    use crate::file::store::memory::MemoryStore;
    use crate::iod::Objects;
    use crate::iod::cell::{Cell, Data};

    struct One(Arc<GrowingFile>);

    impl OriginalFiles for One {
        fn open(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
            assert_eq!(name, b"run.h5");
            Ok(self.0.clone())
        }
    }

    fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn bytes_come_from_the_original_while_they_are_those_that_were_linked() {
        let data: Vec<u8> = (0..60_000u32).map(|n| (n % 251) as u8).collect();
        let file = Arc::new(GrowingFile::new(data.clone()));
        let store = MemoryStore::default();
        let objects = Objects::new(Arc::new(store.clone()), crate::iod::rules::Rules::default());
        objects.create_original(7, b"run.h5").unwrap();
        objects.create_original(7, b"run.h5").unwrap();
        assert!(text(objects.create_original(7, b"other.h5")).contains("its number"));
        let extents = [Extent::in_original(7, 100, &data[100..5100]).unwrap(), Extent::in_original(7, 59_000, &data[59_000..]).unwrap()];
        assert_eq!((extents[0].original(), extents[0].len), (Some(7), 5000));
        assert!(text(objects.read(&extents[0])).contains("--external=off"));
        objects.set_original_files(Arc::new(One(file.clone())));
        let read = |objects: &Objects| objects.read_many(&extents).unwrap().into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(read(&objects), [&data[100..5100], &data[59_000..]]);
        assert_eq!(objects.original_len(7).unwrap(), 60_000);
        // The rest of the file is of no matter.
        use crate::file::WriteDriver;
        file.write_at(&[1; 50], 0).unwrap();
        file.write_at(&[1; 50], 60_000).unwrap();
        assert_eq!(read(&objects), [&data[100..5100], &data[59_000..]]);
        file.write_at(&[9], 200).unwrap();
        let changed = text(objects.read(&extents[0]));
        assert!(changed.contains("5000 bytes of run.h5") && objects.read(&extents[1]).is_ok(), "{changed}");
        file.set_len(59_500).unwrap();
        assert!(objects.read(&extents[1]).is_err());
        store.put(&keys::original_name(8), b"damaged").unwrap();
        let lost = Extent::in_original(8, 0, b"bytes").unwrap();
        assert!(objects.read(&lost).is_err() && objects.read(&Extent::in_original(9, 0, b"bytes").unwrap()).is_err());
    }

    #[test]
    fn cells_keep_originals_and_refuse_other_numbers() {
        use crate::format::{Reader, Writer};
        let extent = Extent::in_original(77, 1 << 40, b"bytes").unwrap();
        let cell = Cell { mask: 3, data: Data::Extent(extent) };
        let mut w = Writer::new();
        cell.write(&mut w);
        let bytes = w.into_bytes();
        assert_eq!((bytes.len(), bytes[0]), (cell.size(), 2));
        let read = |bytes: &[u8]| Cell::read(&mut Reader::new(bytes, "cell", Address(0)));
        assert_eq!(read(&bytes).unwrap(), cell);
        let mut wrong = bytes.clone();
        wrong[12] = 0x80;
        assert!(text(read(&wrong)).contains("past 2^63"));
        wrong[12] = 0;
        wrong[13..21].fill(0xff);
        assert!(text(read(&wrong)).contains("ends past"));
        assert_eq!(decode(&encode(b"x").unwrap(), 1).unwrap(), b"x");
        assert!(decode(&encode(b"").unwrap(), 1).is_err() && encode(&[b'x'; 5000]).is_err());
    }
}
