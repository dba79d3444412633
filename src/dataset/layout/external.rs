//! External layout: the elements are in segments of other files.

use super::contiguous;
use super::parts::Parts;
use super::traits::{DatasetBytes, Description, Layout, Operation, Progress, Written};
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::creation::{CreateLayout, Creation, MESSAGE_MAX_BYTES, NewLayout};
use crate::dataset::elsewhere::{self, Elsewhere, Segment};
use crate::dataset::environment::{Environment, RawFiles};
use crate::file::FileDriver;
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::message::external_files::{ExternalFiles, Slot};
use crate::format::object_header::kind;
use crate::meta::{Store, extent};
use crate::structures::local_heap::{self, LocalHeap};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Name of the layout.
pub(super) const NAME: &str = "external";
/// Files kept open for one dataset, to spare descriptors when there are thousands of segments.
const OPEN_FILES_MAX: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// A dataset in external files, which are opened at the first read.
struct External {
    /// Local heap of the file names.
    names: Address,
    segments: Vec<Segment>,
    opened: Mutex<LruCache<Vec<u8>, Arc<dyn FileDriver>>>,
    files: Arc<dyn RawFiles>,
}

impl External {
    /// A dataset in `segments`, opened through `files`. The local heap at `names` has their names.
    fn new(names: Address, segments: Vec<Segment>, files: Arc<dyn RawFiles>) -> Self {
        External { names, segments, opened: Mutex::new(lru_cache(OPEN_FILES_MAX)), files }
    }

    /// Reads bytes from `offset`. Bytes past a file's EOF read as zeros, as in libhdf5.
    fn read_segments(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut start = 0u64;
        let mut done = 0usize;
        for segment in &self.segments {
            let end = segment.size.map_or(u64::MAX, |n| start.saturating_add(n));
            let at = offset.saturating_add(done as u64);
            if at < end && done < buf.len() {
                let n = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(buf.len().saturating_sub(done));
                let Some(part) = buf.get_mut(done..done.saturating_add(n)) else { break };
                let from = segment.offset.checked_add(at.saturating_sub(start));
                let from = from.ok_or_else(|| Error::corrupt("external data files message", Address::UNDEF, "a segment ends past 2^64"))?;
                let file = self.file(segment)?;
                let got = file.read_at(part, from).map_err(|e| Error::io("read an external raw file", Address(from), &e))?;
                if let Some(rest) = part.get_mut(got..) {
                    rest.fill(0);
                }
                done = done.saturating_add(n);
            }
            start = end;
        }
        if done < buf.len() {
            return Err(Error::corrupt("external data files message", Address::UNDEF, "the segments are shorter than the dataset"));
        }
        Ok(())
    }

    /// Writes `bytes` at `offset` in place; after an error a part may be written.
    fn write_segments(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut start, mut at, mut rest) = (0u64, offset, bytes);
        for segment in &self.segments {
            let end = segment.size.map_or(u64::MAX, |n| start.saturating_add(n));
            if at < end && !rest.is_empty() {
                let n = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(rest.len());
                let (part, tail) = rest.split_at(n);
                let past_limit = || Error::corrupt("external data files message", Address::UNDEF, "a segment ends past 2^63");
                let to = segment.offset.checked_add(at.saturating_sub(start)).ok_or_else(past_limit)?;
                to.checked_add(n as u64).filter(|e| i64::try_from(*e).is_ok()).ok_or_else(past_limit)?;
                let file = self.files.open_raw_for_writing(&segment.name)?;
                file.write_at(part, to).map_err(|e| Error::io("write an external raw file", Address(to), &e))?;
                (at, rest) = (at.saturating_add(n as u64), tail);
            }
            start = end;
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::refused(libc::EPERM, "the segments are shorter than the dataset")) }
    }

    fn file(&self, segment: &Segment) -> Result<Arc<dyn FileDriver>> {
        if let Some(f) = self.opened.lock().get(&segment.name) {
            return Ok(f.clone());
        }
        // Opened without the lock: two threads may open the file twice; the later one is cached.
        let f = self.files.open_raw(&segment.name)?;
        self.opened.lock().put(segment.name.clone(), f.clone());
        Ok(f)
    }
}

/// Creates datasets in raw files.
pub(super) struct Create;

fn segments_of(creation: &Creation) -> Result<&[Segment]> {
    match &creation.elsewhere {
        Some(Elsewhere::Files(segments)) => Ok(segments),
        _ => Err(Error::refused(
            libc::EINVAL,
            "layout external needs its files: \"external\": [{\"file\": NAME, \"offset\": 0, \"size\": N}]",
        )),
    }
}

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn grows(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        2
    }

    fn check(&self, creation: &Creation) -> Result<()> {
        let segments = segments_of(creation)?;
        if creation.datatype.contains_vlen() {
            return Err(Error::refused(libc::EINVAL, "variable-length elements cannot be in external files"));
        }
        let max = creation.max();
        // As in libhdf5 (H5D__contig_construct): only the slowest dimension grows.
        if max.iter().zip(&creation.dims).skip(1).any(|(max, now)| *max != Some(*now)) {
            return Err(Error::refused(libc::EINVAL, "of a dataset in external files only the first dimension can grow"));
        }
        let most = max.iter().try_fold(creation.datatype.element_size(), |n, d| Some(n.saturating_mul((*d)?)));
        elsewhere::check_segments(segments, creation.bytes().unwrap_or(u64::MAX), most)
    }

    fn message(&self, ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        contiguous::new().kind.message(ctx, superblock_version, creation)
    }

    /// Names are in a local heap; the first one in it is empty, as in libhdf5.
    fn store(&self, store: &Store, creation: &Creation, messages: &mut Vec<(u16, u8, Vec<u8>)>) -> Result<()> {
        let segments = segments_of(creation)?;
        let bytes = segments.iter().map(|s| (s.name.len() as u64).saturating_add(16)).fold(16, u64::saturating_add);
        let heap = local_heap::edit::create(store, bytes)?;
        local_heap::edit::insert(store, heap, b"")?;
        let mut slots = Vec::new();
        for s in segments {
            let name_offset = local_heap::edit::insert(store, heap, &s.name)?;
            slots.push(Slot { name_offset, file_offset: s.offset, size: s.size });
        }
        let allocated = u16::try_from(slots.len()).map_err(|_| Error::refused(libc::EINVAL, "more than 65535 external files"))?;
        let body = ExternalFiles { allocated, heap, slots }.encode(store.ctx());
        if body.len() > MESSAGE_MAX_BYTES {
            return Err(Error::refused(libc::EINVAL, "the list of external files is longer than 64 KiB"));
        }
        let at = messages.iter().position(|m| m.0 == kind::DATA_LAYOUT).unwrap_or(messages.len());
        messages.insert(at, (kind::EXTERNAL_FILES, 0, body));
        Ok(())
    }
}

/// Opens the layout if the message is contiguous and the header has an external files message.
pub(super) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    if !matches!(parts.message.class, Class::Contiguous { .. }) {
        return Ok(None);
    }
    let Some(body) = parts.surroundings.message(kind::EXTERNAL_FILES)? else { return Ok(None) };
    let message = ExternalFiles::decode(&body, parts.store.ctx(), parts.header)?;
    let heap = LocalHeap::open(parts.store, message.heap)?;
    let segment =
        |s: &Slot| -> Result<Segment> { Ok(Segment { name: heap.name(s.name_offset)?.to_vec(), offset: s.file_offset, size: s.size }) };
    let segments = message.slots.iter().map(segment).collect::<Result<Vec<_>>>()?;
    Ok(Some(Box::new(External::new(message.heap, segments, parts.surroundings.raw_files()))))
}

impl Layout for External {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Contiguous
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description { external: Some(self.segments.clone()), ..Description::default() }
    }

    fn for_copy(&self) -> NewLayout {
        contiguous::new()
    }

    fn read(&self, _data: &DatasetBytes, _env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_segments(offset, buf)
    }

    fn allocated(&self, data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(data.size)
    }

    fn is_in_file(&self) -> bool {
        false
    }

    fn resizes(&self) -> bool {
        true
    }

    /// Bytes past the extent stay in their files, as with libhdf5.
    fn resize(&self, op: &Operation<'_>, next: &[u64]) -> Result<Option<DataLayout>> {
        let room = self.segments.iter().try_fold(0u64, |n, segment| Some(n.saturating_add(segment.size?)));
        let wanted = next.iter().fold(op.data.element_size, |n, d| n.saturating_mul(*d));
        match room.filter(|room| wanted > *room) {
            Some(room) => Err(Error::refused(libc::EFBIG, format!("the external files have room for {room} bytes"))),
            None => Ok(None),
        }
    }

    fn write(&self, _op: &Operation<'_>, offset: u64, bytes: &[u8], _undone: bool) -> Result<Written> {
        self.write_segments(offset, bytes)?;
        Ok(Written { len: bytes.len(), layout: None })
    }

    fn extents(&self, op: &Operation<'_>, visit: &mut extent::Visit<'_>) -> Result<()> {
        local_heap::extents(&op.data.store, self.names, visit)
    }

    fn elsewhere(&self, _data: &DatasetBytes) -> Result<Option<Elsewhere>> {
        Ok(Some(Elsewhere::Files(self.segments.clone())))
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &std::ops::Range<u64>, _from: u64) -> Result<Progress> {
        Err(Error::refused(libc::EOPNOTSUPP, "the dataset's elements are in other files: no space can be allocated"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::memory::MemoryFile;

    struct Two;
    impl RawFiles for Two {
        fn open_raw(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
            match name {
                b"a" => Ok(Arc::new(MemoryFile::new(*b"..abc"))),
                b"b" => Ok(Arc::new(MemoryFile::new(*b"DE"))),
                _ => Err(Error::Missing { what: "raw file", name: String::new(), reason: "test".into() }),
            }
        }
    }

    fn segment(name: &[u8], offset: u64, size: Option<u64>) -> Segment {
        Segment { name: name.to_vec(), offset, size }
    }

    #[test]
    fn segments_in_order_and_short_files_read_zero() {
        let e = External::new(Address::UNDEF, vec![segment(b"a", 2, Some(3)), segment(b"b", 0, Some(4))], Arc::new(Two));
        let mut b = [9; 7];
        e.read_segments(0, &mut b).unwrap();
        assert_eq!(&b, b"abcDE\0\0");
        let mut b = [9; 3];
        e.read_segments(2, &mut b).unwrap();
        assert_eq!(&b, b"cDE");
        assert!(e.read_segments(5, &mut b).is_err(), "past the last segment");
    }

    /// Regression: every one of thousands of segments kept its own descriptor.
    #[test]
    fn few_files_are_kept_open() {
        let e = External::new(
            Address::UNDEF,
            (0..100).map(|i| segment(if i % 2 == 0 { b"a" } else { b"b" }, 0, Some(1))).collect(),
            Arc::new(Two),
        );
        e.read_segments(0, &mut [0; 100]).unwrap();
        assert_eq!(e.opened.lock().len(), 2);
    }

    #[test]
    fn a_missing_file_fails_only_what_it_supplies() {
        let e = External::new(Address::UNDEF, vec![segment(b"a", 2, Some(3)), segment(b"gone", 0, None)], Arc::new(Two));
        let mut b = [0; 3];
        assert!(e.read_segments(0, &mut b).is_ok());
        assert!(matches!(e.read_segments(1, &mut b), Err(Error::Missing { .. })));
    }
}
