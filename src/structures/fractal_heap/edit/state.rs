//! One change of a fractal heap: what was read, and what to write at the end.

use super::holes::Holes;
use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::header::NAME;
use crate::format::fractal_heap::{DirectBlock, IndirectBlock, direct};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::structures::fractal_heap::load::{HUGE_KIND, Heap, IndirectRef};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// Place of a direct block.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectBlockPlace {
    pub address: Address,
    /// Offset in the heap's address space.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// True if the block was allocated during this change: its bytes are not a block yet.
    pub new: bool,
}

/// Cache entry: the checksum of a direct block of this many bytes was compared.
struct VerifiedBytes(u64);

/// Indirect blocks read during a change, by address, and whether they were changed.
#[derive(Default)]
pub(super) struct IndirectBlocks(pub BTreeMap<u64, (IndirectBlock, bool)>);

impl IndirectBlocks {
    /// The indirect block at `at`, read if it is not present. Errors: damage; it belongs elsewhere.
    pub fn get(&mut self, store: &Store, heap: &Heap, at: IndirectRef) -> Result<&mut (IndirectBlock, bool)> {
        let found = match self.0.entry(at.address.0) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => e.insert((IndirectBlock::clone(&*heap.indirect(store, at)?), false)),
        };
        heap.check_indirect(&found.0, at)?;
        Ok(found)
    }
}

/// A change under way. [`Edit::finish`] writes blocks, holes and header.
pub(super) struct Edit<'s> {
    pub store: &'s Store,
    pub heap: Heap,
    pub indirect: IndirectBlocks,
    holes: Option<Holes>,
    pub writes: Vec<(Address, Vec<u8>)>,
    /// Direct blocks and their changed parts.
    direct: Vec<(Address, Vec<u8>, [Range<usize>; 2])>,
    /// Extents allocated during this change.
    allocated: Vec<(Address, u64)>,
    /// Extents to free when the change is written.
    pub freed: Vec<(Address, u64)>,
    /// Huge objects allocated during this change.
    pub huge_allocated: Vec<(Address, u64)>,
    /// Huge objects to free when the change is written.
    pub huge_freed: Vec<(Address, u64)>,
}

impl<'s> Edit<'s> {
    /// Reads the heap at `at`. Errors: a heap with I/O filters; damage.
    pub fn open(store: &'s Store, at: Address) -> Result<Self> {
        let heap = Heap::load(store, at)?;
        if heap.header.filters.is_some() {
            return Err(Error::unsupported(NAME, at, "a heap with I/O filters cannot be changed"));
        }
        if heap.geometry.direct_overhead() as u64 >= heap.header.table.start_block_size {
            return Err(heap.corrupt("direct blocks too small for any object"));
        }
        Ok(Edit {
            store,
            heap,
            indirect: IndirectBlocks::default(),
            holes: None,
            writes: Vec::new(),
            direct: Vec::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
            huge_allocated: Vec::new(),
            huge_freed: Vec::new(),
        })
    }

    /// Allocates `len` bytes of metadata; an error of the change frees them.
    pub fn allocate(&mut self, len: u64) -> Result<Address> {
        let address = self.store.allocate(len, SpaceKind::Metadata)?;
        self.allocated.push((address, len));
        Ok(address)
    }

    /// The holes, read at first use.
    pub fn holes(&mut self) -> Result<&mut Holes> {
        let holes = match self.holes.take() {
            Some(holes) => holes,
            None => Holes::read(self.store, &self.heap.header)?,
        };
        Ok(self.holes.insert(holes))
    }

    /// Writes the change; on an error of the change frees what it allocated.
    pub fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        let result = result.and_then(|value| self.stage().map(|()| value));
        let (extents, huge, result) = match result {
            Ok(value) => {
                // Direct blocks and holes go first: they enter the cache when they are written, and
                // later writes drop them again where a damaged file has two structures at one
                // address.
                for (address, bytes, changed) in &self.direct {
                    for part in changed.iter().filter(|part| !part.is_empty()) {
                        let (at, part) = (address.0.saturating_add(part.start as u64), bytes.get(part.clone()).unwrap_or_default());
                        self.store.write(Address(at), part)?;
                    }
                    let size = bytes.len() as u64;
                    self.store.keep(*address, VerifiedBytes(size), size_of::<VerifiedBytes>(), &[(*address, size)]);
                }
                if let Some(holes) = self.holes {
                    holes.write(self.store)?;
                }
                for (address, bytes) in &self.writes {
                    self.store.write(*address, bytes)?;
                }
                (self.freed, self.huge_freed, Ok(value))
            }
            Err(error) => (self.allocated, self.huge_allocated, Err(error)),
        };
        extents.into_iter().try_for_each(|(address, len)| self.store.free(address, len))?;
        huge.into_iter().try_for_each(|(address, len)| self.store.free_kind(address, len, HUGE_KIND))?;
        result
    }

    /// Queues changed indirect blocks, holes and the header to be written.
    fn stage(&mut self) -> Result<()> {
        let changed = self.indirect.0.iter().filter(|(_, (_, changed))| *changed);
        self.writes.extend(changed.map(|(&at, (block, _))| (Address(at), block.encode(&self.heap.geometry))));
        if let Some(mut holes) = self.holes.take() {
            let (allocated, store) = (&mut self.allocated, self.store);
            let mut allocate = |len: u64| {
                let address = store.allocate(len, SpaceKind::Metadata)?;
                allocated.push((address, len));
                Ok(address)
            };
            holes.stage(store, &mut allocate, &mut self.freed)?;
            self.heap.header.free_space_manager = holes.address();
            self.holes = Some(holes);
        }
        self.writes.push((self.heap.address, self.heap.header.encode(self.store.ctx())?));
        Ok(())
    }

    /// Writes `object` at heap offset `offset` into the block `place`.
    pub fn write_object(&mut self, place: &DirectBlockPlace, offset: u64, object: &[u8]) -> Result<()> {
        let (g, at) = (&self.heap.geometry, self.heap.address);
        let block = if place.new {
            let size = usize::try_from(place.size).unwrap_or(usize::MAX);
            let bytes = DirectBlock::encode(at, place.offset, &[], size, g);
            bytes.map(|bytes| DirectBlock { heap: at, offset: place.offset, bytes })
        } else {
            Some(self.read_direct(place)?)
        };
        let block = block.filter(|b| b.heap == at && b.offset == place.offset);
        let mut block = block.ok_or_else(|| Error::corrupt(direct::NAME, place.address, "it belongs elsewhere"))?;
        let written = block.put(offset, object, g);
        written.ok_or_else(|| self.heap.corrupt_id(format!("{} bytes at heap offset {offset} exceed their block", object.len())))?;
        let start = usize::try_from(offset.saturating_sub(place.offset)).unwrap_or(usize::MAX);
        let (len, object) = (block.bytes.len(), start..start.saturating_add(object.len()));
        let changed = if place.new { [0..len, 0..0] } else { [0..g.direct_overhead(), object] };
        self.direct.push((place.address, block.bytes, changed));
        Ok(())
    }

    /// Reads the block at `place`; compares its checksum unless the cache records that.
    fn read_direct(&self, place: &DirectBlockPlace) -> Result<DirectBlock> {
        let (store, at, g) = (self.store, place.address, &self.heap.geometry);
        let read = |store: &Store| store.read(at, place.size, direct::NAME);
        let mut block = None;
        let verified = store.cached(at, |store| {
            block = Some(DirectBlock::decode(read(store)?, at, g)?);
            Ok((VerifiedBytes(place.size), size_of::<VerifiedBytes>()))
        })?;
        match block {
            Some(block) => Ok(block),
            None if verified.0 == place.size => DirectBlock::decode_sound(read(store)?, at, g),
            None => DirectBlock::decode(read(store)?, at, g),
        }
    }
}
