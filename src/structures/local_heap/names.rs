//! Single strings of a local heap, read a page at a time.
//!
//! The data segment of a group with a million links takes tens of megabytes, more than the metadata
//! cache keeps of one entry, so a lookup must not read all of it. Only the pages that a string lies
//! on are read; each is cached.

use super::load::load_header;
use crate::base::{Address, Error, Result, limits};
use crate::format::local_heap::{Header, NAME};
use crate::meta::Store;
use std::cmp::Ordering;

/// Bytes read and cached at once.
const PAGE_BYTES: u64 = 4096;

/// A page of a data segment; shorter at the end of the segment or of the file.
struct Page(Vec<u8>);

/// The data segment of a local heap as a source of NUL-terminated strings.
#[derive(Debug, Clone, Copy)]
pub struct HeapNames {
    heap: Address,
    data: Address,
    size: u64,
}

impl HeapNames {
    /// Reads the header of the local heap at `heap`.
    pub fn open(store: &Store, heap: Address) -> Result<Self> {
        let found = store.cached(heap, |store| {
            let names = HeapNames::of(heap, &load_header(store, heap)?);
            Ok((names, size_of::<HeapNames>()))
        })?;
        Ok(*found)
    }

    /// The strings of the heap at `heap`, whose header is `header`.
    pub(super) fn of(heap: Address, header: &Header) -> Self {
        HeapNames { heap, data: header.segment, size: header.segment_size }
    }

    /// The string at `offset` of the data segment, up to a NUL or the end of the segment.
    pub fn name(&self, store: &Store, offset: u64) -> Result<Vec<u8>> {
        let mut name = Vec::new();
        self.walk(store, offset, &mut |part| {
            name.extend_from_slice(part);
            true
        })?;
        Ok(name)
    }

    /// Bytes of the string at `offset` of the data segment, up to a NUL or the end of the segment.
    pub fn length(&self, store: &Store, offset: u64) -> Result<usize> {
        let mut length = 0usize;
        self.walk(store, offset, &mut |part| {
            length = length.saturating_add(part.len());
            true
        })?;
        Ok(length)
    }

    /// Order of the string at `offset` relative to `key` (which holds no NUL), by bytes as `strcmp`
    /// does.
    pub fn compare(&self, store: &Store, offset: u64, key: &[u8]) -> Result<Ordering> {
        let mut rest = key;
        let mut order = Ordering::Equal;
        self.walk(store, offset, &mut |part| {
            let (head, tail) = rest.split_at(part.len().min(rest.len()));
            order = part.cmp(head);
            rest = tail;
            order == Ordering::Equal
        })?;
        Ok(if order == Ordering::Equal && !rest.is_empty() { Ordering::Less } else { order })
    }

    /// Calls `f` with the pieces of the string at `offset` until the string ends or `f` returns
    /// false.
    fn walk(&self, store: &Store, offset: u64, f: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let corrupt = |detail: String| Error::corrupt(NAME, self.heap, detail);
        if offset >= self.size {
            return Err(corrupt(format!("offset {offset} of a name in a data segment of {} bytes", self.size)));
        }
        let mut at = offset;
        let mut left = limits::HEAP_NAME_MAX;
        while at < self.size {
            let page = self.page(store, at / PAGE_BYTES)?;
            let from = usize::try_from(at % PAGE_BYTES).unwrap_or(0);
            let part = page.0.get(from..).filter(|p| !p.is_empty());
            let Some(part) = part else { return Err(corrupt(format!("the file ends within the name at offset {offset}"))) };
            let end = part.iter().position(|&b| b == 0);
            let piece = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
            left = left
                .checked_sub(piece.len())
                .ok_or_else(|| Error::limit(NAME, self.heap, format!("name at offset {offset} exceeds {} bytes", limits::HEAP_NAME_MAX)))?;
            if !f(piece) || end.is_some() {
                break;
            }
            at = at.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    fn page(&self, store: &Store, index: u64) -> Result<std::sync::Arc<Page>> {
        let start = index.saturating_mul(PAGE_BYTES);
        let len = self.size.saturating_sub(start).min(PAGE_BYTES);
        let beyond = || Error::corrupt(NAME, self.heap, "the data segment exceeds 2^64 bytes");
        let address = self.data.checked_add(start).ok_or_else(beyond)?;
        let page = store.cached(address, |store| {
            let bytes = store.read_upto(address, len, NAME)?;
            let charge = bytes.len().saturating_add(64);
            Ok((Page(bytes), charge))
        })?;
        // Two heaps of a hostile file may claim one address with different lengths.
        if page.0.len() as u64 > len {
            let bytes = page.0.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default().to_vec();
            return Ok(std::sync::Arc::new(Page(bytes)));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Context, Writer};

    /// A heap at 0 whose data segment, at 32, holds `data`, of which it claims `size` bytes.
    fn heap(data: &[u8], size: u64) -> Store {
        let mut w = Writer::new();
        w.bytes(b"HEAP").u8(0).zeros(3).length(size, &Context::DEFAULT).length(1, &Context::DEFAULT).addr(Address(32), &Context::DEFAULT);
        w.bytes(data);
        Store::over_bytes(w.into_bytes())
    }

    #[test]
    fn names_across_pages() {
        let mut data = vec![b'x'; 10_000];
        data[0] = 0;
        data[4000] = 0;
        data[4096] = 0;
        data[9_990] = 0;
        let store = heap(&data, 10_000);
        let names = HeapNames::open(&store, Address(0)).unwrap();
        assert_eq!(names.name(&store, 0).unwrap(), b"");
        assert_eq!(names.name(&store, 4001).unwrap().len(), 95);
        assert_eq!(names.name(&store, 4097).unwrap().len(), 9_990 - 4097);
        assert_eq!(names.name(&store, 9_991).unwrap(), b"xxxxxxxxx", "the segment's end ends the name");
        assert!(names.name(&store, 10_000).is_err());
        assert!(names.name(&store, u64::MAX).is_err());
        let long = vec![b'x'; 9_990 - 4097];
        assert_eq!(names.compare(&store, 4097, &long).unwrap(), Ordering::Equal);
        assert_eq!(names.compare(&store, 4097, &long[1..]).unwrap(), Ordering::Greater);
        assert_eq!(names.compare(&store, 4097, &[&long[..], b"a"].concat()).unwrap(), Ordering::Less);
        assert_eq!(names.compare(&store, 4097, b"y").unwrap(), Ordering::Less);
        assert_eq!(names.compare(&store, 4097, b"w").unwrap(), Ordering::Greater);
        assert_eq!(names.compare(&store, 0, b"").unwrap(), Ordering::Equal);
        assert_eq!(names.compare(&store, 0, b"a").unwrap(), Ordering::Less);
    }

    #[test]
    fn lying_sizes() {
        let store = heap(b"abc", 1 << 40);
        let names = HeapNames::open(&store, Address(0)).unwrap();
        assert!(names.name(&store, 0).is_err(), "the file ends within the name");
        assert!(names.name(&store, 1 << 39).is_err());
        let store = heap(&vec![b'a'; limits::HEAP_NAME_MAX + 1], 1 << 40);
        let names = HeapNames::open(&store, Address(0)).unwrap();
        assert!(matches!(names.name(&store, 0), Err(Error::Limit { .. })));
        assert!(HeapNames::open(&store, Address(3)).is_err());
        assert!(HeapNames::open(&store, Address::UNDEF).is_err());
    }
}
