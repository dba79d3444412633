//! Lookup of objects of a fractal heap by heap ID.
//!
//! A managed object costs a lookup of its direct block and of each indirect block on the path to
//! it. Decoded blocks stay in the store's cache, so that listing a dense group reads each block
//! once.

use super::load::{DirectRef, Heap, huge_tree};

use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::header::{Filters, NAME};
use crate::format::fractal_heap::{DirectBlock, Header, HeapId, HugeRecord, direct, huge};
use crate::meta::Store;
use crate::structures::extent;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

/// Decodes the filtered blocks and objects of a heap.
pub type Decode = crate::meta::store::Unfilter;

/// Bytes of direct blocks above which single objects are read instead of whole blocks. An index
/// lists objects in the order of name hashes, so that blocks of a large heap would evict each
/// other.
const WHOLE_BLOCKS_HEAP_BYTES_MAX: u64 = 8 << 20;

/// An open fractal heap.
pub struct FractalHeap {
    /// Cached without filter code, so that every user of the file shares it.
    heap: Arc<Heap>,
    decode: Option<Arc<Decode>>,
}

/// A direct block of a large heap whose checksum was compared; its bytes are not cached.
#[derive(Debug)]
struct CheckedDirect {
    spec: DirectRef,
    heap: Address,
    offset: u64,
}

#[derive(Debug)]
struct CachedDirect {
    spec: DirectRef,
    block: DirectBlock,
}

impl fmt::Debug for FractalHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heap.fmt(f)
    }
}

impl FractalHeap {
    /// Opens the heap whose header is at `address`, with the store's decoder of filters.
    pub fn open(store: &Store, address: Address) -> Result<Arc<FractalHeap>> {
        Ok(Arc::new(FractalHeap { heap: Heap::cached(store, address)?, decode: store.unfilter().cloned() }))
    }

    /// Opens the heap whose header is at `address`; `decode` decodes its filters, if it has any.
    pub fn open_with_filters(store: &Store, address: Address, decode: Arc<Decode>) -> Result<Arc<FractalHeap>> {
        Ok(Arc::new(FractalHeap { heap: Heap::cached(store, address)?, decode: Some(decode) }))
    }

    /// Announces blocks that a walk over all objects will read.
    pub fn announce(&self, store: &Store) {
        self.heap.announce(store);
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.heap.header
    }

    /// The object that `id` names. `id` has the heap's ID length, or at least the bytes that the
    /// object's kind uses. Errors: corrupt (no such object), unsupported (filters without decoder),
    /// limit (over 64 MiB).
    pub fn object(&self, store: &Store, id: &[u8]) -> Result<Vec<u8>> {
        match self.heap.ids.decode(id)? {
            HeapId::Managed { offset, length } => self.managed(store, offset, length),
            HeapId::Tiny(data) => Ok(data),
            HeapId::HugeDirect { address, length, mask, size } => self.huge(store, &HugeRecord { address, length, mask, size, key: 0 }),
            HeapId::HugeIndirect { key } => {
                let record = self.huge_record(store, key)?;
                self.huge(store, &record)
            }
        }
    }

    fn managed(&self, store: &Store, offset: u64, length: u64) -> Result<Vec<u8>> {
        let (heap, h) = (&self.heap, &self.heap.header);
        heap.check_managed(offset, length)?;
        let at =
            heap.locate(offset, &mut |block, row, column| Ok(heap.indirect(store, block)?.entry(row, column, &heap.geometry).copied()))?;
        if h.filters.is_none() && h.statistics.allocated_size > WHOLE_BLOCKS_HEAP_BYTES_MAX {
            return self.managed_large(store, &at, offset, length);
        }
        let block = self.direct(store, &at)?;
        let object = block.block.object(offset, length, &self.heap.geometry);
        let object = object.ok_or_else(|| self.heap.corrupt_id(format!("{length} bytes at heap offset {offset} exceed their block")))?;
        Ok(object.to_vec())
    }

    /// Reads only the object. The checksum of its block is compared once, while the cache records
    /// that.
    fn managed_large(&self, store: &Store, spec: &DirectRef, offset: u64, length: u64) -> Result<Vec<u8>> {
        let checked = store.cached(spec.address, |store| {
            let block = self.load_direct(store, spec)?;
            let checked = CheckedDirect { spec: *spec, heap: block.heap, offset: block.offset };
            Ok((checked, size_of::<CheckedDirect>()))
        })?;
        self.check_direct(spec, &checked.spec, checked.heap, checked.offset)?;
        let leaves = || self.heap.corrupt_id(format!("{length} bytes at heap offset {offset} exceed their block"));
        let start = offset.checked_sub(spec.offset).filter(|&s| s >= self.heap.geometry.direct_overhead() as u64).ok_or_else(leaves)?;
        if start.checked_add(length).is_none_or(|end| end > spec.size) {
            return Err(leaves());
        }
        store.read(spec.address.checked_add(start).ok_or_else(leaves)?, length, direct::NAME)
    }

    fn direct(&self, store: &Store, spec: &DirectRef) -> Result<Arc<CachedDirect>> {
        let found = store.cached(spec.address, |store| {
            let block = self.load_direct(store, spec)?;
            let charge = block.bytes.len().saturating_add(size_of::<CachedDirect>());
            Ok((CachedDirect { spec: *spec, block }, charge))
        })?;
        self.check_direct(spec, &found.spec, found.block.heap, found.block.offset)?;
        Ok(found)
    }

    fn load_direct(&self, store: &Store, spec: &DirectRef) -> Result<DirectBlock> {
        let stored = store.read(spec.address, spec.stored, direct::NAME)?;
        DirectBlock::decode(self.unfilter(stored, spec.mask, spec.size)?, spec.address, &self.heap.geometry)
    }

    /// Errors: the block found, perhaps cached for another pointer, is not the block `want`.
    fn check_direct(&self, want: &DirectRef, found: &DirectRef, heap: Address, offset: u64) -> Result<()> {
        if heap == self.heap.address && offset == want.offset && found == want {
            return Ok(());
        }
        let detail = format!("it is at heap offset {offset} of {heap}, must be at {} of {}", want.offset, self.heap.address);
        Err(Error::corrupt(direct::NAME, want.address, detail))
    }

    /// Decodes the heap's filters; returns exactly `size` bytes.
    fn unfilter(&self, stored: Vec<u8>, mask: u32, size: u64) -> Result<Vec<u8>> {
        let Some(Filters { pipeline, .. }) = &self.heap.header.filters else { return Ok(stored) };
        let decode = self.decode.as_ref();
        let decode =
            decode.ok_or_else(|| Error::unsupported(NAME, self.heap.address, "heap with I/O filters, opened without a decoder"))?;
        let size = usize::try_from(size).map_err(|_| Error::limit(NAME, self.heap.address, "object size"))?;
        let bytes = decode(pipeline, stored, mask, size)?;
        if bytes.len() == size {
            Ok(bytes)
        } else {
            Err(self.heap.corrupt_id(format!("{} bytes after filtering, must be {size}", bytes.len())))
        }
    }

    fn huge_record(&self, store: &Store, key: u64) -> Result<HugeRecord> {
        let (address, ctx) = (self.heap.header.huge_btree, store.ctx());
        if !address.is_defined() {
            return Err(self.heap.corrupt_id("a huge object in a heap without a huge object B-tree"));
        }
        let kind = if self.heap.geometry.filtered { 2 } else { 1 };
        let tree = huge_tree(store, address, kind)?;
        let found = tree.find(store, &mut |r| Ok(HugeRecord::decode(r, kind, address, ctx)?.key.cmp(&key)))?;
        let found = found.ok_or_else(|| self.heap.corrupt_id(format!("no huge object {key}")))?;
        HugeRecord::decode(&found, kind, address, ctx)
    }

    fn huge(&self, store: &Store, record: &HugeRecord) -> Result<Vec<u8>> {
        if record.size > extent::OBJECT_BYTES_MAX {
            return Err(Error::limit(huge::NAME, record.address, format!("{} bytes in one object", record.size)));
        }
        let stored = extent::read(store, record.address, record.length, huge::NAME)?;
        self.unfilter(stored, record.mask, record.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../../../tests/fixtures/heaps/links60.h5");

    /// The fixture, with a heap header that states `allocated` bytes.
    fn store(allocated: u64) -> (Store, Arc<FractalHeap>) {
        let at = FILE.windows(4).position(|w| w == b"FRHP").unwrap();
        let store = Store::over_bytes(FILE);
        let mut header = Header::decode(&FILE[at..], Address(at as u64), store.ctx()).unwrap();
        header.statistics.allocated_size = allocated;
        let bytes = header.encode(store.ctx()).unwrap();
        let mut file = FILE.to_vec();
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        let store = Store::over_bytes(file);
        let heap = FractalHeap::open(&store, Address(at as u64)).unwrap();
        (store, heap)
    }

    fn managed(heap: &FractalHeap, offset: u64, length: u64) -> Vec<u8> {
        heap.heap.ids.encode(&HeapId::Managed { offset, length }).unwrap()
    }

    /// Every offset and many lengths: a large heap gives the same objects as a small one.
    #[test]
    fn large_heaps_give_the_same_objects() {
        let (small_store, small) = store(1000);
        let (large_store, large) = store(WHOLE_BLOCKS_HEAP_BYTES_MAX + 1);
        let mut good = 0;
        for offset in 0..3000 {
            for length in [0, 1, 30, 491, 492, 4097] {
                let id = managed(&small, offset, length);
                let want = small.object(&small_store, &id);
                assert_eq!(large.object(&large_store, &id), want, "{length} at {offset}");
                good += usize::from(want.is_ok());
            }
        }
        assert!(good > 3000);
    }

    #[test]
    fn a_block_of_another_heap_is_refused() {
        let (store, heap) = store(1000);
        let id = managed(&heap, 600, 10);
        heap.object(&store, &id).unwrap();
        let mut inner = Heap::load(&store, heap.heap.address).unwrap();
        inner.address = Address(1);
        let other = FractalHeap { heap: Arc::new(inner), decode: None };
        assert!(other.object(&store, &id).is_err());
    }
}
