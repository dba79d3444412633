//! Objects of a fractal heap by heap ID.
//!
//! A managed object costs one look at each indirect block on the way and one at its direct block;
//! decoded blocks are kept in the store's cache, so walking a dense group reads each block once.

use super::btree2::BTree2;
use super::extent;
use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::header::{Filters, NAME};
use crate::format::fractal_heap::{
    DirectBlock, Geometry, Header, HeapId, HugeRecord, IdFormat, IndirectBlock, direct, header, huge, id, indirect,
};
use crate::meta::Store;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

/// Undoes the filters of a heap.
pub type Decode = crate::meta::store::Unfilter;

/// Bytes of direct blocks from which on a heap is read object by object: its index lists objects in
/// the order of name hashes, which would push blocks in and out of the cache at every step.
const LARGE_HEAP: u64 = 8 << 20;

/// An open fractal heap.
pub struct FractalHeap {
    core: Arc<Core>,
    decode: Option<Arc<Decode>>,
}

/// What is cached of a heap: no filter code, so that every user of the file shares it.
#[derive(Debug)]
struct Core {
    address: Address,
    header: Header,
    geometry: Geometry,
    ids: IdFormat,
}

/// A block that holds `stored` bytes in the file, filtered unless `mask` excludes all filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockSpec {
    address: Address,
    /// Offset in the heap's address space.
    offset: u64,
    /// Bytes after filtering is undone.
    size: u64,
    stored: u64,
    mask: u32,
}

/// A direct block of a large heap, known to be good; its bytes are not kept.
#[derive(Debug)]
struct CheckedDirect {
    spec: BlockSpec,
    heap: Address,
    offset: u64,
}

#[derive(Debug)]
struct CachedDirect {
    spec: BlockSpec,
    block: DirectBlock,
}

impl fmt::Debug for FractalHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl FractalHeap {
    /// Opens the heap whose header is at `address`; the store says how its filters are undone.
    pub fn open(store: &Store, address: Address) -> Result<Arc<FractalHeap>> {
        Ok(Arc::new(FractalHeap { core: Core::open(store, address)?, decode: store.unfilter().cloned() }))
    }

    /// Opens the heap at `address`; `decode` undoes its filters, if it has any.
    pub fn open_with_filters(store: &Store, address: Address, decode: Arc<Decode>) -> Result<Arc<FractalHeap>> {
        Ok(Arc::new(FractalHeap { core: Core::open(store, address)?, decode: Some(decode) }))
    }

    /// The header as found.
    pub fn header(&self) -> &Header {
        &self.core.header
    }

    /// The object named by `id` (at least the heap's ID length, or as much of it as the object's kind needs).
    /// Errors: corrupt (no such object), unsupported (filters without decoder), limit (over 64 MiB).
    pub fn object(&self, store: &Store, id: &[u8]) -> Result<Vec<u8>> {
        match self.core.ids.decode(id)? {
            HeapId::Managed { offset, length } => self.managed(store, offset, length),
            HeapId::Tiny(data) => Ok(data),
            HeapId::HugeDirect { address, length, mask, size } => self.huge(store, &HugeRecord { address, length, mask, size, key: 0 }),
            HeapId::HugeIndirect { key } => {
                let record = self.huge_record(store, key)?;
                self.huge(store, &record)
            }
        }
    }

    fn corrupt_id(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::corrupt(id::NAME, self.core.address, detail)
    }

    fn managed(&self, store: &Store, offset: u64, length: u64) -> Result<Vec<u8>> {
        let h = &self.core.header;
        let most = h.table.max_direct_size.min(u64::from(h.max_managed_size));
        if offset == 0 || offset > h.statistics.managed_size || length == 0 || length > most {
            return Err(self.corrupt_id(format!("{length} bytes at heap offset {offset}")));
        }
        let spec = self.locate(store, offset)?;
        if h.filters.is_none() && h.statistics.allocated_size > LARGE_HEAP {
            return self.managed_large(store, &spec, offset, length);
        }
        let block = self.direct(store, &spec)?;
        let object = block.block.object(offset, length, &self.core.geometry);
        let object = object.ok_or_else(|| self.corrupt_id(format!("{length} bytes at heap offset {offset} leave their block")))?;
        Ok(object.to_vec())
    }

    /// The direct block that holds heap offset `offset`.
    fn locate(&self, store: &Store, offset: u64) -> Result<BlockSpec> {
        let (h, g) = (&self.core.header, &self.core.geometry);
        if h.table.root_rows == 0 {
            let size = h.table.start_block_size;
            let (stored, mask) = h.filters.as_ref().map_or((size, 0), |f| (f.root_size, f.root_mask));
            return Ok(BlockSpec { address: h.table.root, offset: 0, size, stored, mask });
        }
        let missing = || self.corrupt_id(format!("heap offset {offset} is in no block"));
        let (mut address, mut rows, mut start) = (h.table.root, u32::from(h.table.root_rows), 0u64);
        // A child has fewer rows than its parent: at most 64 turns.
        loop {
            let block = self.indirect(store, address, rows, start)?;
            let (row, column) = offset.checked_sub(start).and_then(|o| g.locate(o)).ok_or_else(missing)?;
            let entry = block.entry(row, column, g).filter(|e| e.address.is_defined()).ok_or_else(missing)?;
            let at = g.block_offset(row, column).and_then(|o| o.checked_add(start)).ok_or_else(missing)?;
            if row < g.max_direct_rows {
                let size = g.block_size(row).ok_or_else(missing)?;
                let stored = if g.filtered { entry.size } else { size };
                return Ok(BlockSpec { address: entry.address, offset: at, size, stored, mask: entry.mask });
            }
            let below = g.child_rows(row).filter(|&n| n < rows).ok_or_else(missing)?;
            (address, rows, start) = (entry.address, below, at);
        }
    }

    fn indirect(&self, store: &Store, address: Address, rows: u32, offset: u64) -> Result<Arc<IndirectBlock>> {
        let block = indirect_block(store, address, rows, &self.core.geometry)?;
        if block.heap == self.core.address && block.offset == offset && block.rows == rows {
            Ok(block)
        } else {
            let detail = format!("it is at heap offset {} of {}, must be at {offset} of {}", block.offset, block.heap, self.core.address);
            Err(Error::corrupt(indirect::NAME, address, detail))
        }
    }

    /// Checks the block once (while the check is remembered), then reads only the object.
    fn managed_large(&self, store: &Store, spec: &BlockSpec, offset: u64, length: u64) -> Result<Vec<u8>> {
        let checked = store.cached(spec.address, || {
            let block = self.load_direct(store, spec)?;
            let checked = CheckedDirect { spec: *spec, heap: block.heap, offset: block.offset };
            Ok((checked, size_of::<CheckedDirect>()))
        })?;
        self.check_direct(spec, &checked.spec, checked.heap, checked.offset)?;
        let leaves = || self.corrupt_id(format!("{length} bytes at heap offset {offset} leave their block"));
        let start = offset.checked_sub(spec.offset).filter(|&s| s >= self.core.geometry.direct_overhead() as u64).ok_or_else(leaves)?;
        if start.checked_add(length).is_none_or(|end| end > spec.size) {
            return Err(leaves());
        }
        store.read(spec.address.checked_add(start).ok_or_else(leaves)?, length, direct::NAME)
    }

    fn direct(&self, store: &Store, spec: &BlockSpec) -> Result<Arc<CachedDirect>> {
        let found = store.cached(spec.address, || {
            let block = self.load_direct(store, spec)?;
            let charge = block.bytes.len().saturating_add(size_of::<CachedDirect>());
            Ok((CachedDirect { spec: *spec, block }, charge))
        })?;
        self.check_direct(spec, &found.spec, found.block.heap, found.block.offset)?;
        Ok(found)
    }

    fn load_direct(&self, store: &Store, spec: &BlockSpec) -> Result<DirectBlock> {
        let stored = store.read(spec.address, spec.stored, direct::NAME)?;
        DirectBlock::decode(self.unfilter(stored, spec.mask, spec.size)?, spec.address, &self.core.geometry)
    }

    /// The block found (perhaps in the cache, put there by way of another pointer) is the one wanted.
    fn check_direct(&self, want: &BlockSpec, found: &BlockSpec, heap: Address, offset: u64) -> Result<()> {
        if heap == self.core.address && offset == want.offset && found == want {
            return Ok(());
        }
        let detail = format!("it is at heap offset {offset} of {heap}, must be at {} of {}", want.offset, self.core.address);
        Err(Error::corrupt(direct::NAME, want.address, detail))
    }

    /// `stored` with the heap's filters undone; exactly `size` bytes.
    fn unfilter(&self, stored: Vec<u8>, mask: u32, size: u64) -> Result<Vec<u8>> {
        let Some(Filters { pipeline, .. }) = &self.core.header.filters else { return Ok(stored) };
        let decode = self.decode.as_ref();
        let decode =
            decode.ok_or_else(|| Error::unsupported(NAME, self.core.address, "heap with I/O filters, opened without a decoder"))?;
        let size = usize::try_from(size).map_err(|_| Error::limit(NAME, self.core.address, "object size"))?;
        let bytes = decode(pipeline, stored, mask, size)?;
        if bytes.len() == size { Ok(bytes) } else { Err(self.corrupt_id(format!("{} bytes after filtering, must be {size}", bytes.len()))) }
    }

    fn huge_record(&self, store: &Store, key: u64) -> Result<HugeRecord> {
        let (address, ctx) = (self.core.header.huge_btree, store.ctx());
        if !address.is_defined() {
            return Err(self.corrupt_id("a huge object in a heap without a huge object B-tree"));
        }
        let tree = BTree2::open(store, address)?;
        let kind = if self.core.geometry.filtered { 2 } else { 1 };
        if tree.record_type() != kind {
            return Err(Error::corrupt(huge::NAME, address, format!("B-tree of type {}, must be {kind}", tree.record_type())));
        }
        let found = tree.find(store, &mut |r| Ok(HugeRecord::decode(r, kind, address, ctx)?.key.cmp(&key)))?;
        let found = found.ok_or_else(|| self.corrupt_id(format!("no huge object {key}")))?;
        HugeRecord::decode(&found, kind, address, ctx)
    }

    fn huge(&self, store: &Store, record: &HugeRecord) -> Result<Vec<u8>> {
        if record.size > extent::OBJECT_MAX {
            return Err(Error::limit(huge::NAME, record.address, format!("{} bytes in one object", record.size)));
        }
        let stored = extent::read(store, record.address, record.length, huge::NAME)?;
        self.unfilter(stored, record.mask, record.size)
    }
}

impl Core {
    fn open(store: &Store, address: Address) -> Result<Arc<Core>> {
        store.cached(address, || {
            let ctx = store.ctx();
            let fixed = Header::size(ctx);
            let mut bytes = store.read(address, fixed as u64, header::NAME)?;
            let size = Header::encoded_size(&bytes, address, ctx)?;
            if size > fixed {
                bytes = store.read(address, size as u64, header::NAME)?;
            }
            let header = Header::decode(&bytes, address, ctx)?;
            let geometry = Geometry::new(&header, address, ctx)?;
            let ids = IdFormat::new(&header, &geometry, address);
            let charge = size_of::<Core>().saturating_add(size);
            Ok((Core { address, header, geometry, ids }, charge))
        })
    }
}

/// The indirect block at `address`, from the store's cache or read; the caller checks that it is the one that must be there.
pub(in crate::container) fn indirect_block(store: &Store, address: Address, rows: u32, g: &Geometry) -> Result<Arc<IndirectBlock>> {
    store.cached(address, || {
        let bytes = store.read(address, g.indirect_size(rows), indirect::NAME)?;
        let block = IndirectBlock::decode(&bytes, address, rows, g)?;
        let charge = block.entries.len().saturating_mul(size_of::<indirect::Entry>()).saturating_add(64);
        Ok((block, charge))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../../tests/fixtures/heaps/links60.h5");

    /// The fixture, its heap said to be of `allocated` bytes.
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
        heap.core.ids.encode(&HeapId::Managed { offset, length }).unwrap()
    }

    /// Every offset and many lengths: a large heap gives what a small one gives.
    #[test]
    fn large_heaps_are_read_alike() {
        let (small_store, small) = store(1000);
        let (large_store, large) = store(LARGE_HEAP + 1);
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
        let core = Core { address: Address(1), ..copy(&heap.core) };
        let other = FractalHeap { core: Arc::new(core), decode: None };
        assert!(other.object(&store, &id).is_err());
    }

    fn copy(c: &Core) -> Core {
        Core { address: c.address, header: c.header.clone(), geometry: c.geometry.clone(), ids: c.ids.clone() }
    }
}
