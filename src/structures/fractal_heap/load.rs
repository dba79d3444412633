//! Header, indirect blocks and huge object index of a fractal heap.

use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::indirect::Entry;
use crate::format::fractal_heap::{Geometry, Header, IdFormat, IndirectBlock, header, huge, id, indirect};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::structures::btree2::BTree2;
use std::borrow::Cow;
use std::mem::size_of;
use std::sync::Arc;

/// Files with pages keep huge objects with the elements (H5FDdevelop.h: H5FD_MEM_FHEAP_HUGE_OBJ).
pub(super) const HUGE_KIND: SpaceKind = SpaceKind::GlobalHeap;

/// Bytes announced of a block: of most blocks of links all.
const BLOCK_BYTES_EXPECTED: u64 = 16 << 10;

/// Header of a heap and what follows from it.
#[derive(Debug)]
pub(super) struct Heap {
    pub address: Address,
    pub header: Header,
    pub geometry: Geometry,
    pub ids: IdFormat,
}

/// Place of an indirect block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndirectRef {
    pub address: Address,
    pub rows: u32,
    /// Offset in the heap's address space.
    pub offset: u64,
}

/// Place of a direct block. It is stored filtered unless `mask` excludes all filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectRef {
    pub address: Address,
    /// Offset in the heap's address space.
    pub offset: u64,
    /// Bytes without filters.
    pub size: u64,
    /// Bytes in the file.
    pub stored: u64,
    pub mask: u32,
}

/// Returns the entry of an indirect block in a row and column.
pub(super) type EntryOf<'a> = dyn FnMut(IndirectRef, u32, u64) -> Result<Option<Entry>> + 'a;

impl Heap {
    /// Reads the header at `address`, past the cache.
    pub fn load(store: &Store, address: Address) -> Result<Heap> {
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
        Ok(Heap { address, header, geometry, ids })
    }

    /// The heap from the store's cache, or read into it.
    pub fn cached(store: &Store, address: Address) -> Result<Arc<Heap>> {
        store.cached(address, |store| {
            let heap = Self::load(store, address)?;
            let filters = heap.header.filters.as_ref().map_or(0, |f| f.pipeline.len());
            Ok((heap, size_of::<Heap>().saturating_add(Header::size(store.ctx())).saturating_add(filters)))
        })
    }

    /// Error about the heap itself.
    pub fn corrupt(&self, detail: impl Into<Cow<'static, str>>) -> Error {
        Error::corrupt(header::NAME, self.address, detail)
    }

    /// Error about a heap ID.
    pub fn corrupt_id(&self, detail: impl Into<Cow<'static, str>>) -> Error {
        Error::corrupt(id::NAME, self.address, detail)
    }

    /// Errors: no managed object can have this offset and length.
    pub fn check_managed(&self, offset: u64, length: u64) -> Result<()> {
        let h = &self.header;
        let most = h.table.max_direct_size.min(u64::from(h.max_managed_size));
        if offset == 0 || offset > h.statistics.managed_size || length == 0 || length > most {
            return Err(self.corrupt_id(format!("{length} bytes at heap offset {offset}")));
        }
        Ok(())
    }

    /// The direct block that holds heap offset `offset`.
    pub fn locate(&self, offset: u64, entry_of: &mut EntryOf<'_>) -> Result<DirectRef> {
        let (h, g) = (&self.header, &self.geometry);
        let missing = || self.corrupt_id(format!("heap offset {offset} is in no block"));
        if h.table.root_rows == 0 {
            let size = h.table.start_block_size;
            if offset >= size || !h.table.root.is_defined() {
                return Err(missing());
            }
            let (stored, mask) = h.filters.as_ref().map_or((size, 0), |f| (f.root_size, f.root_mask));
            return Ok(DirectRef { address: h.table.root, offset: 0, size, stored, mask });
        }
        let mut block = IndirectRef { address: h.table.root, rows: u32::from(h.table.root_rows), offset: 0 };
        // A child has fewer rows than its parent: at most 64 turns.
        loop {
            let (row, column) = offset.checked_sub(block.offset).and_then(|o| g.locate(o)).ok_or_else(missing)?;
            let at = g.block_offset(row, column).and_then(|o| o.checked_add(block.offset)).ok_or_else(missing)?;
            let entry = entry_of(block, row, column)?.filter(|e| e.address.is_defined()).ok_or_else(missing)?;
            if row < g.max_direct_rows {
                let size = g.block_size(row).ok_or_else(missing)?;
                let stored = if g.filtered { entry.size } else { size };
                return Ok(DirectRef { address: entry.address, offset: at, size, stored, mask: entry.mask });
            }
            let rows = g.child_rows(row).filter(|&n| n < block.rows).ok_or_else(missing)?;
            block = IndirectRef { address: entry.address, rows, offset: at };
        }
    }

    /// The indirect block at `at` from the store's cache, or read into it. Errors: damage; the
    /// block belongs elsewhere.
    pub fn indirect(&self, store: &Store, at: IndirectRef) -> Result<Arc<IndirectBlock>> {
        let block = store.cached(at.address, |store| {
            let bytes = store.read(at.address, self.geometry.indirect_size(at.rows), indirect::NAME)?;
            let block = IndirectBlock::decode(&bytes, at.address, at.rows, &self.geometry)?;
            let charge = block.entries.len().saturating_mul(size_of::<Entry>()).saturating_add(64);
            Ok((block, charge))
        })?;
        self.check_indirect(&block, at)?;
        Ok(block)
    }

    /// Announces the blocks of the root's entries, which a walk over all objects will read.
    pub fn announce(&self, store: &Store) {
        let root = &self.header.table;
        let at = IndirectRef { address: root.root, rows: u32::from(root.root_rows), offset: 0 };
        if store.driver().is_remote()
            && at.rows > 0
            && let Ok(block) = self.indirect(store, at)
        {
            store.announce(block.entries.iter().map(|entry| entry.address), BLOCK_BYTES_EXPECTED);
        }
    }

    /// Errors: `block`, found at `at`, belongs elsewhere.
    pub fn check_indirect(&self, block: &IndirectBlock, at: IndirectRef) -> Result<()> {
        if block.heap == self.address && block.offset == at.offset && block.rows == at.rows {
            return Ok(());
        }
        let detail = format!("it is at heap offset {} of {}, must be at {} of {}", block.offset, block.heap, at.offset, self.address);
        Err(Error::corrupt(indirect::NAME, at.address, detail))
    }
}

/// Opens the huge object B-tree at `tree`. Errors: its records are not of type `record_type`.
pub(super) fn huge_tree(store: &Store, tree: Address, record_type: u8) -> Result<Arc<BTree2>> {
    let found = BTree2::open(store, tree)?;
    if found.record_type() == record_type {
        return Ok(found);
    }
    Err(Error::corrupt(huge::NAME, tree, format!("B-tree of type {}, must be {record_type}", found.record_type())))
}
