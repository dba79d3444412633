//! Changes to a fractal heap: create, insert, remove, replace, delete.
//!
//! ```text
//! object of up to ID length - 1 bytes: tiny, in the ID    | up to the largest managed size: managed, in the
//! smallest hole of a direct block that holds it, else in a new block | larger: huge, by itself in the file
//! ```
//!
//! The header's counts are those that libhdf5 keeps: free space is all that the direct blocks of the table
//! could hold (allocated or not) without what is held; the iterator is where the next block goes. Holes are
//! kept in the heap's free-space manager. A direct block that becomes empty stays, as one hole; a heap that
//! becomes empty gives all blocks back. Heaps with I/O filters are not changed.
//! H5.format.4.0, "Fractal Heap", "Free-space Manager".

mod blocks;
mod holes;
mod huge;

use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::fractal_heap::header::{DoublingTable, FLAG_CHECKSUM, NAME, Statistics};
use crate::format::fractal_heap::{DirectBlock, Geometry, Header, HeapId, IdFormat, IndirectBlock, direct, id};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use holes::Holes;
use std::collections::BTreeMap;
use std::ops::Range;

/// Longest object of a normal tiny ID.
const TINY_SHORT: usize = 16;

/// How a new heap is made.
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
    /// Whether direct blocks have a checksum.
    pub checksum: bool,
}

impl HeapParams {
    /// As libhdf5 makes the heaps of dense groups, but for the largest block: libhdf5's has 64 KiB, and its checksum covers all
    /// of it, which each new link would have to pay for.
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
    /// As libhdf5 makes the heaps of densely stored attributes, with smaller largest blocks, too.
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

/// Creates an empty heap. Errors: parameters that do not fit together, no space.
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

/// Puts `object` in the heap; the ID by which it is found (of the heap's ID length). Errors: an empty object,
/// a heap with filters, damage; nothing was written then.
pub fn insert(store: &Store, heap: Address, object: &[u8]) -> Result<Vec<u8>> {
    let mut edit = Edit::open(store, heap)?;
    let result = edit.insert(object);
    edit.finish(result)
}

/// Removes the object named by `id`. Errors: no such object, a heap with filters, damage.
pub fn remove(store: &Store, heap: Address, id: &[u8]) -> Result<()> {
    let mut edit = Edit::open(store, heap)?;
    let result = edit.remove(id);
    edit.finish(result)
}

/// Overwrites the object named by `id` with one of the same length. False, and nothing is written, when it
/// has another length or is in the ID itself.
pub fn replace_same_size(store: &Store, heap: Address, id: &[u8], object: &[u8]) -> Result<bool> {
    let mut edit = Edit::open(store, heap)?;
    match edit.ids.decode(id)? {
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

/// Gives back the heap with all it holds.
pub fn delete_heap(store: &Store, heap: Address) -> Result<()> {
    let mut edit = Edit::open(store, heap)?;
    let mut extents = edit.block_extents()?;
    let huge = edit.huge_extents()?;
    let g = edit.geometry.clone();
    extents.extend(edit.holes()?.extents(&g));
    extents.push((heap, edit.header_size));
    if edit.header.huge_btree.is_defined() {
        super::btree2_edit::delete_tree(store, edit.header.huge_btree)?;
    }
    huge.into_iter().try_for_each(|(address, len)| store.free_kind(address, len, huge::KIND))?;
    extents.into_iter().try_for_each(|(address, len)| store.free(address, len))
}

/// A direct block.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: Address,
    /// Offset in the heap's address space.
    offset: u64,
    /// Bytes.
    size: u64,
    /// True when the block was allocated just now: its bytes are not yet a block.
    new: bool,
}

/// Tells, in the store's cache, that the checksum of a direct block of so many bytes is right.
struct Sound(u64);

/// One change under way: blocks, holes and header are written by `finish`.
struct Edit<'s> {
    store: &'s Store,
    at: Address,
    header_size: u64,
    header: Header,
    geometry: Geometry,
    ids: IdFormat,
    /// Indirect blocks looked at, and whether they were changed.
    indirect: BTreeMap<u64, (IndirectBlock, bool)>,
    holes: Option<Holes>,
    writes: Vec<(Address, Vec<u8>)>,
    /// Direct blocks, with the parts of them that are others now.
    direct: Vec<(Address, Vec<u8>, [Range<usize>; 2])>,
    taken: Vec<(Address, u64)>,
    freed: Vec<(Address, u64)>,
    /// The same of huge objects.
    huge_taken: Vec<(Address, u64)>,
    huge_freed: Vec<(Address, u64)>,
}

impl<'s> Edit<'s> {
    fn open(store: &'s Store, at: Address) -> Result<Self> {
        let ctx: &Context = store.ctx();
        let prefix = store.read(at, 9, NAME)?;
        let header_size = Header::encoded_size(&prefix, at, ctx)? as u64;
        if header_size > Header::size(ctx) as u64 {
            return Err(Error::unsupported(NAME, at, "a heap with I/O filters cannot be changed"));
        }
        let header = Header::decode(&store.read(at, header_size, NAME)?, at, ctx)?;
        let geometry = Geometry::new(&header, at, ctx)?;
        let ids = IdFormat::new(&header, &geometry, at);
        if geometry.direct_overhead() as u64 >= header.table.start_block_size {
            return Err(Error::corrupt(NAME, at, "direct blocks too small for any object"));
        }
        Ok(Edit {
            store,
            at,
            header_size,
            header,
            geometry,
            ids,
            indirect: BTreeMap::new(),
            holes: None,
            writes: Vec::new(),
            direct: Vec::new(),
            taken: Vec::new(),
            freed: Vec::new(),
            huge_taken: Vec::new(),
            huge_freed: Vec::new(),
        })
    }

    fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::corrupt(NAME, self.at, detail)
    }

    fn no_object(&self, detail: String) -> Error {
        Error::corrupt(id::NAME, self.at, detail)
    }

    fn allocate(&mut self, len: u64) -> Result<Address> {
        let address = self.store.allocate(len, SpaceKind::Metadata)?;
        self.taken.push((address, len));
        Ok(address)
    }

    /// Writes what was changed, or gives back what was taken.
    fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        let result = result.and_then(|value| self.stage().map(|()| value));
        let (extents, huge, result) = match result {
            Ok(value) => {
                // First what is known again when it is written: where a damaged file has two structures in one place, it is forgotten.
                for (address, bytes, changed) in &self.direct {
                    for part in changed.iter().filter(|part| !part.is_empty()) {
                        let (at, part) = (address.0.saturating_add(part.start as u64), bytes.get(part.clone()).unwrap_or_default());
                        self.store.write(Address(at), part)?;
                    }
                    let size = bytes.len() as u64;
                    self.store.keep(*address, Sound(size), size_of::<Sound>(), &[(*address, size)]);
                }
                if let Some(holes) = self.holes {
                    holes.write(self.store, &self.geometry)?;
                }
                for (address, bytes) in &self.writes {
                    self.store.write(*address, bytes)?;
                }
                (self.freed, self.huge_freed, Ok(value))
            }
            Err(error) => (self.taken, self.huge_taken, Err(error)),
        };
        extents.into_iter().try_for_each(|(address, len)| self.store.free(address, len))?;
        huge.into_iter().try_for_each(|(address, len)| self.store.free_kind(address, len, huge::KIND))?;
        result
    }

    fn stage(&mut self) -> Result<()> {
        let changed = self.indirect.iter().filter(|(_, (_, changed))| *changed);
        self.writes.extend(changed.map(|(&at, (block, _))| (Address(at), block.encode(&self.geometry))));
        if let Some(mut holes) = self.holes.take() {
            holes.stage(self)?;
            self.holes = Some(holes);
        }
        self.writes.push((self.at, self.header.encode(self.store.ctx())?));
        Ok(())
    }

    fn insert(&mut self, object: &[u8]) -> Result<Vec<u8>> {
        let len = object.len() as u64;
        let room = usize::from(self.header.id_length).saturating_sub(1);
        let tiny = if room > TINY_SHORT.saturating_add(1) { room.saturating_sub(1) } else { room.min(TINY_SHORT) };
        let s = &mut self.header.statistics;
        if len == 0 {
            Err(self.no_object("an object of 0 bytes".into()))
        } else if len > u64::from(self.header.max_managed_size) {
            self.insert_huge(object)
        } else if object.len() <= tiny {
            s.tiny_objects = s.tiny_objects.saturating_add(1);
            s.tiny_size = s.tiny_size.saturating_add(len);
            self.ids.encode(&HeapId::Tiny(object.to_vec()))
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
                let overhead = self.geometry.direct_overhead() as u64;
                let offset = place.offset.saturating_add(overhead);
                let rest = place.size.saturating_sub(overhead).checked_sub(length).ok_or_else(|| self.corrupt("a block too small"))?;
                self.holes()?.add(offset.saturating_add(length), rest)?;
                (place, offset)
            }
        };
        self.write_object(&place, offset, object)?;
        let free = self.header.free_space.checked_sub(length);
        self.header.free_space = free.ok_or_else(|| self.corrupt("less free space than its blocks have"))?;
        let s = &mut self.header.statistics;
        s.managed_objects = s.managed_objects.saturating_add(1);
        self.ids.encode(&HeapId::Managed { offset, length })
    }

    /// Puts `object` at heap offset `offset`, in the block `place`.
    fn write_object(&mut self, place: &Place, offset: u64, object: &[u8]) -> Result<()> {
        let g = &self.geometry;
        let block = if place.new {
            let size = usize::try_from(place.size).unwrap_or(usize::MAX);
            let bytes = DirectBlock::encode(self.at, place.offset, &[], size, g);
            bytes.map(|bytes| DirectBlock { heap: self.at, offset: place.offset, bytes })
        } else {
            Some(self.read_direct(place)?)
        };
        let block = block.filter(|b| b.heap == self.at && b.offset == place.offset);
        let mut block = block.ok_or_else(|| Error::corrupt(direct::NAME, place.address, "it belongs elsewhere"))?;
        let fits = block.put(offset, object, g);
        fits.ok_or_else(|| self.no_object(format!("{} bytes at heap offset {offset} leave their block", object.len())))?;
        let start = usize::try_from(offset.saturating_sub(place.offset)).unwrap_or(usize::MAX);
        let (len, object) = (block.bytes.len(), start..start.saturating_add(object.len()));
        let changed = if place.new { [0..len, 0..0] } else { [0..self.geometry.direct_overhead(), object] };
        self.direct.push((place.address, block.bytes, changed));
        Ok(())
    }

    fn read_direct(&self, place: &Place) -> Result<DirectBlock> {
        let (store, at, g) = (self.store, place.address, &self.geometry);
        let read = || store.read(at, place.size, direct::NAME);
        let mut block = None;
        let sound = store.cached(at, || {
            block = Some(DirectBlock::decode(read()?, at, g)?);
            Ok((Sound(place.size), size_of::<Sound>()))
        })?;
        match block {
            Some(block) => Ok(block),
            None if sound.0 == place.size => DirectBlock::decode_sound(read()?, at, g),
            None => DirectBlock::decode(read()?, at, g),
        }
    }

    /// The block of a managed object, when the ID says of one that may be.
    fn managed(&mut self, offset: u64, length: u64) -> Result<Place> {
        let h = &self.header;
        let most = h.table.max_direct_size.min(u64::from(h.max_managed_size));
        if offset == 0 || offset > h.statistics.managed_size || length == 0 || length > most || !h.table.root.is_defined() {
            return Err(self.no_object(format!("{length} bytes at heap offset {offset}")));
        }
        let place = self.locate(offset)?;
        let start = offset.saturating_sub(place.offset);
        let end = start.saturating_add(length);
        if start < self.geometry.direct_overhead() as u64 || end > place.size {
            return Err(self.no_object(format!("{length} bytes at heap offset {offset} leave their block")));
        }
        Ok(place)
    }

    fn remove(&mut self, id: &[u8]) -> Result<()> {
        match self.ids.decode(id)? {
            HeapId::Managed { offset, length } => {
                self.managed(offset, length)?;
                self.holes()?.add(offset, length)?;
                self.header.free_space = self.header.free_space.saturating_add(length);
                let s = &mut self.header.statistics;
                s.managed_objects = s.managed_objects.saturating_sub(1);
                if s.managed_objects == 0 { self.empty() } else { Ok(()) }
            }
            HeapId::Tiny(data) => {
                let s = &mut self.header.statistics;
                s.tiny_objects = s.tiny_objects.saturating_sub(1);
                s.tiny_size = s.tiny_size.saturating_sub(data.len() as u64);
                Ok(())
            }
            other => self.remove_huge(&other),
        }
    }

    /// No managed object is left: all blocks and holes are given back.
    fn empty(&mut self) -> Result<()> {
        let extents = self.block_extents()?;
        self.freed.extend(extents);
        self.indirect.clear();
        self.holes()?.clear();
        self.header.free_space = 0;
        (self.header.table.root, self.header.table.root_rows) = (Address::UNDEF, 0);
        let s = &mut self.header.statistics;
        (s.managed_size, s.allocated_size, s.iterator) = (0, 0, 0);
        Ok(())
    }

    /// The holes, read when first asked for.
    fn holes(&mut self) -> Result<&mut Holes> {
        let holes = match self.holes.take() {
            Some(holes) => holes,
            None => Holes::read(self.store, self.header.free_space_manager, &self.header, &self.geometry)?,
        };
        Ok(self.holes.insert(holes))
    }
}

#[cfg(test)]
pub(super) use tests::audit;

#[cfg(test)]
mod tests;
