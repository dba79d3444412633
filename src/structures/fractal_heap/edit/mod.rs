//! Changes to a fractal heap: create, insert, remove, replace, delete.
//!
//! ```text
//! tiny:    up to ID length - 1 bytes; in the ID
//! managed: up to the largest managed size; in the smallest hole that fits, else in a new block
//! huge:    larger; by itself in the file
//! ```
//!
//! The header's counts are those that libhdf5 keeps: free space is the capacity of all direct
//! blocks of the table (allocated or not) without the managed objects; the iterator is the heap
//! offset of the next block. The heap's free-space manager holds the holes. A direct block that
//! becomes empty stays, as one hole; a heap that becomes empty frees all blocks. Heaps with I/O
//! filters cannot be changed. H5.format.4.0, "Fractal Heap", "Free-space Manager".
//!
//! `state` is one change and what it writes, `table` the doubling table, `holes` the free-space
//! manager, `huge` the huge objects.

mod holes;
mod huge;
mod state;
mod table;

use state::{DirectBlockPlace, Edit};

use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::header::{DoublingTable, FLAG_CHECKSUM, NAME, Statistics};
use crate::format::fractal_heap::{Geometry, Header, HeapId};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::structures::extent::free_all;
use crate::structures::fractal_heap::extents::extents;

/// Longest object of a normal tiny ID, bytes.
const TINY_BYTES_MAX: usize = 16;

/// Parameters of a new heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapParams {
    /// Bytes of a heap ID.
    pub id_length: u16,
    /// Largest managed object, bytes.
    pub max_managed_size: u32,
    /// Blocks in a row of the doubling table, a power of two.
    pub width: u16,
    /// Bytes of the smallest direct block, a power of two.
    pub start_block_size: u64,
    /// Bytes of the largest direct block, a power of two.
    pub max_direct_size: u64,
    /// Bits of an offset in the heap.
    pub max_heap_bits: u16,
    /// Rows of a new root indirect block.
    pub start_root_rows: u16,
    /// True if direct blocks have a checksum.
    pub checksum: bool,
}

impl HeapParams {
    /// Heap of a dense group as libhdf5 creates it, except for the largest block: libhdf5 uses 64
    /// KiB, and every new link would compute a checksum over all of it.
    pub const LINKS: HeapParams = HeapParams {
        id_length: 7,
        max_managed_size: 4096,
        width: 4,
        start_block_size: 512,
        max_direct_size: 8192,
        max_heap_bits: 32,
        start_root_rows: 1,
        checksum: true,
    };
    /// Heap of dense attributes as libhdf5 creates it, except for the largest block.
    pub const ATTRIBUTES: HeapParams = HeapParams { id_length: 8, start_block_size: 1024, max_heap_bits: 40, ..Self::LINKS };

    fn header(&self) -> Header {
        Header {
            id_length: self.id_length,
            flags: if self.checksum { FLAG_CHECKSUM } else { 0 },
            max_managed_size: self.max_managed_size,
            next_huge_id: 0,
            huge_btree: Address::UNDEF,
            free_space: 0,
            free_space_manager: Address::UNDEF,
            statistics: Statistics::default(),
            table: DoublingTable {
                width: self.width,
                start_block_size: self.start_block_size,
                max_direct_size: self.max_direct_size,
                max_heap_bits: self.max_heap_bits,
                start_root_rows: self.start_root_rows,
                root: Address::UNDEF,
                root_rows: 0,
            },
            filters: None,
        }
    }
}

/// Creates an empty heap. Errors: inconsistent parameters, ENOSPC.
pub fn create(store: &Store, params: &HeapParams) -> Result<Address> {
    let header = params.header();
    let g = Geometry::new(&header, Address::UNDEF, store.ctx())?;
    let largest = u64::from(params.max_managed_size).saturating_add(g.direct_overhead() as u64);
    let id = 1usize.saturating_add(g.offset_size).saturating_add(g.length_size);
    if largest > params.max_direct_size || usize::from(params.id_length) < id {
        return Err(Error::unsupported(NAME, Address::UNDEF, "objects larger than blocks, or IDs too short for offsets"));
    }
    store.put(&header.encode(store.ctx())?, SpaceKind::Metadata)
}

/// Inserts `object`; returns its heap ID, of the heap's ID length. Errors, before anything is
/// written: an empty object, a heap with filters, damage.
pub fn insert(store: &Store, heap: Address, object: &[u8]) -> Result<Vec<u8>> {
    let mut edit = Edit::open(store, heap)?;
    let result = edit.insert(object);
    edit.finish(result)
}

/// Removes the object that `id` names. Errors: no such object, a heap with filters, damage.
pub fn remove(store: &Store, heap: Address, id: &[u8]) -> Result<()> {
    let mut edit = Edit::open(store, heap)?;
    let result = edit.remove(id);
    edit.finish(result)
}

/// Overwrites the object that `id` names with one of the same length. Writes nothing and returns
/// false if it has another length or is in the ID itself.
pub fn replace_same_size(store: &Store, heap: Address, id: &[u8], object: &[u8]) -> Result<bool> {
    let mut edit = Edit::open(store, heap)?;
    match edit.heap.ids.decode(id)? {
        HeapId::Tiny(_) => Ok(false),
        HeapId::Managed { length, .. } if length != object.len() as u64 => Ok(false),
        HeapId::Managed { offset, length } => {
            let place = edit.managed(offset, length)?;
            let result = edit.write_object(&place, offset, object).map(|()| true);
            edit.finish(result)
        }
        other => {
            let record = edit.huge_record(&other)?;
            if record.length != object.len() as u64 {
                return Ok(false);
            }
            store.write(record.address, object)?;
            Ok(true)
        }
    }
}

/// Frees the heap with all its objects. Errors: a heap with filters, damage.
pub fn delete_heap(store: &Store, heap: Address) -> Result<()> {
    Edit::open(store, heap)?;
    free_all(store, |visit| extents(store, heap, visit))
}

impl Edit<'_> {
    fn insert(&mut self, object: &[u8]) -> Result<Vec<u8>> {
        let len = object.len() as u64;
        let room = usize::from(self.heap.header.id_length).saturating_sub(1);
        let tiny = if room > TINY_BYTES_MAX.saturating_add(1) { room.saturating_sub(1) } else { room.min(TINY_BYTES_MAX) };
        let s = &mut self.heap.header.statistics;
        if len == 0 {
            Err(self.heap.corrupt_id("an object of 0 bytes"))
        } else if len > u64::from(self.heap.header.max_managed_size) {
            self.insert_huge(object)
        } else if object.len() <= tiny {
            s.tiny_objects = s.tiny_objects.saturating_add(1);
            s.tiny_size = s.tiny_size.saturating_add(len);
            self.heap.ids.encode(&HeapId::Tiny(object.to_vec()))
        } else {
            self.insert_managed(object)
        }
    }

    fn insert_managed(&mut self, object: &[u8]) -> Result<Vec<u8>> {
        let length = object.len() as u64;
        let (place, offset) = match self.holes()?.take(length) {
            Some(offset) => (self.locate(offset)?, offset),
            None => {
                let place = self.next_block(length)?;
                let overhead = self.heap.geometry.direct_overhead() as u64;
                let offset = place.offset.saturating_add(overhead);
                let rest = place.size.saturating_sub(overhead).checked_sub(length).ok_or_else(|| self.heap.corrupt("a block too small"))?;
                self.holes()?.add(offset.saturating_add(length), rest)?;
                (place, offset)
            }
        };
        self.write_object(&place, offset, object)?;
        let free = self.heap.header.free_space.checked_sub(length);
        self.heap.header.free_space = free.ok_or_else(|| self.heap.corrupt("its free space is less than that of its blocks"))?;
        let s = &mut self.heap.header.statistics;
        s.managed_objects = s.managed_objects.saturating_add(1);
        self.heap.ids.encode(&HeapId::Managed { offset, length })
    }

    /// The block of the managed object with this offset and length. Errors: no such object can
    /// exist.
    fn managed(&mut self, offset: u64, length: u64) -> Result<DirectBlockPlace> {
        self.heap.check_managed(offset, length)?;
        let place = self.locate(offset)?;
        let start = offset.saturating_sub(place.offset);
        let end = start.saturating_add(length);
        if start < self.heap.geometry.direct_overhead() as u64 || end > place.size {
            return Err(self.heap.corrupt_id(format!("{length} bytes at heap offset {offset} exceed their block")));
        }
        Ok(place)
    }

    fn remove(&mut self, id: &[u8]) -> Result<()> {
        match self.heap.ids.decode(id)? {
            HeapId::Managed { offset, length } => {
                self.managed(offset, length)?;
                self.holes()?.add(offset, length)?;
                self.heap.header.free_space = self.heap.header.free_space.saturating_add(length);
                let s = &mut self.heap.header.statistics;
                s.managed_objects = s.managed_objects.saturating_sub(1);
                if s.managed_objects == 0 { self.empty() } else { Ok(()) }
            }
            HeapId::Tiny(data) => {
                let s = &mut self.heap.header.statistics;
                s.tiny_objects = s.tiny_objects.saturating_sub(1);
                s.tiny_size = s.tiny_size.saturating_sub(data.len() as u64);
                Ok(())
            }
            other => self.remove_huge(&other),
        }
    }

    /// Frees all blocks and holes, after the last managed object was removed.
    fn empty(&mut self) -> Result<()> {
        let extents = self.block_extents()?;
        self.freed.extend(extents);
        self.indirect.0.clear();
        self.holes()?.clear();
        self.heap.header.free_space = 0;
        (self.heap.header.table.root, self.heap.header.table.root_rows) = (Address::UNDEF, 0);
        let s = &mut self.heap.header.statistics;
        (s.managed_size, s.allocated_size, s.iterator) = (0, 0, 0);
        Ok(())
    }
}

#[cfg(test)]
pub(in crate::structures) use tests::audit;

#[cfg(test)]
mod tests;
