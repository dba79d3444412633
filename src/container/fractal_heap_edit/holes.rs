//! The holes of a fractal heap: its free-space manager in memory.

use super::Edit;
use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::{FreeSpaceHeader, Geometry, Header, Section, free_space};
use crate::meta::Store;

/// The sections of one heap.
#[derive(Debug)]
pub(super) struct Holes {
    /// Where the manager is; undefined when there is none.
    address: Address,
    header: FreeSpaceHeader,
    /// All stored sections, in the order of the list: ascending by size, then offset.
    sections: Vec<Section>,
    changed: bool,
}

/// What is kept of a manager in the store's cache.
struct Known {
    header: FreeSpaceHeader,
    sections: Vec<Section>,
}

impl Known {
    fn charge(&self) -> usize {
        size_of::<Known>().saturating_add(self.sections.len().saturating_mul(size_of::<Section>().saturating_add(16)))
    }
}

impl Holes {
    /// Reads the manager at `address`; none when that is undefined.
    pub fn read(store: &Store, address: Address, heap: &Header, g: &Geometry) -> Result<Self> {
        if !address.is_defined() {
            let header = FreeSpaceHeader::new(heap.table.max_direct_size, heap.table.max_heap_bits);
            return Ok(Holes { address, header, sections: Vec::new(), changed: false });
        }
        let known = store.cached(address, || {
            let bytes = store.read(address, FreeSpaceHeader::size(g) as u64, free_space::NAME)?;
            let header = FreeSpaceHeader::decode(&bytes, address, g)?;
            let mut sections = match header.list.is_defined() {
                true => header.decode_list(&store.read(header.list, header.list_size, free_space::LIST)?, address, g)?,
                false => Vec::new(),
            };
            // As they are in the list, if libhdf5 or this wrote it.
            sections.sort();
            let known = Known { header, sections };
            let charge = known.charge();
            Ok((known, charge))
        })?;
        Ok(Holes { address, header: known.header.clone(), sections: known.sections.clone(), changed: false })
    }

    /// Has the manager known that was written in this moment.
    pub fn keep(self, store: &Store, g: &Geometry) {
        if !self.changed || !self.address.is_defined() || self.sections.is_empty() {
            return;
        }
        let extents = self.extents(g);
        let known = Known { header: self.header, sections: self.sections };
        let charge = known.charge();
        store.keep(self.address, known, charge, &extents);
    }

    /// Takes `length` bytes off the front of the smallest hole that has them; their offset.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let first = self.sections.partition_point(|s| s.size < length);
        let i = first.saturating_add(self.sections.get(first..)?.iter().position(|s| s.kind == free_space::SINGLE)?);
        let mut section = self.sections.remove(i);
        let offset = section.offset;
        section.offset = offset.saturating_add(length);
        section.size = section.size.saturating_sub(length);
        if section.size > 0 {
            self.put(section);
        }
        self.count(length, false);
        Some(offset)
    }

    fn put(&mut self, section: Section) {
        let i = self.sections.partition_point(|s| *s < section);
        self.sections.insert(i, section);
    }

    /// Adds a hole, joined with those it touches. Errors: it overlaps one.
    pub fn add(&mut self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let overlap = || Error::corrupt(free_space::NAME, self.address, format!("{size} bytes at heap offset {offset} are free already"));
        let end = offset.checked_add(size).ok_or_else(overlap)?;
        let mut hole = Section { size, offset, kind: free_space::SINGLE, extra: Vec::new() };
        let mut joined = Vec::new();
        for (i, s) in self.sections.iter().enumerate().filter(|(_, s)| s.kind == free_space::SINGLE) {
            let reach = s.offset.saturating_add(s.size);
            if s.offset < end && offset < reach {
                return Err(overlap());
            }
            if reach == offset || s.offset == end {
                hole.offset = hole.offset.min(s.offset);
                hole.size = hole.size.saturating_add(s.size);
                joined.push(i);
            }
        }
        joined.into_iter().rev().for_each(|i| drop(self.sections.remove(i)));
        self.put(hole);
        self.count(size, true);
        Ok(())
    }

    /// Keeps the header's bytes: those of rows of blocks are not known here.
    fn count(&mut self, bytes: u64, more: bool) {
        let space = self.header.space;
        self.header.space = if more { space.saturating_add(bytes) } else { space.saturating_sub(bytes) };
        self.changed = true;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.sections.clear();
        (self.header.ghosts, self.header.space) = (0, 0);
        self.changed = true;
    }

    /// Offset and size of every hole.
    #[cfg(test)]
    pub fn singles(&self) -> Vec<(u64, u64)> {
        let holes = self.sections.iter().filter(|s| s.kind == free_space::SINGLE);
        let mut all: Vec<_> = holes.map(|s| (s.offset, s.size)).collect();
        all.sort_unstable();
        all
    }

    /// Whether rows of blocks are among the sections.
    #[cfg(test)]
    pub fn has_rows(&self) -> bool {
        self.sections.iter().any(|s| s.kind != free_space::SINGLE)
    }

    /// What the manager takes in the file.
    pub fn extents(&self, g: &Geometry) -> Vec<(Address, u64)> {
        let header = (self.address, FreeSpaceHeader::size(g) as u64);
        let list = (self.header.list, self.header.list_allocated);
        [header, list].into_iter().filter(|(a, _)| a.is_defined()).collect()
    }

    /// Has the changed manager written; one without sections is given back.
    pub fn stage(&mut self, edit: &mut Edit<'_>) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        if self.sections.is_empty() {
            edit.freed.extend(self.extents(&edit.geometry));
            edit.header.free_space_manager = Address::UNDEF;
            return Ok(());
        }
        if !self.address.is_defined() {
            self.address = edit.allocate(FreeSpaceHeader::size(&edit.geometry) as u64)?;
            edit.header.free_space_manager = self.address;
        }
        let list = self.header.encode_list(&self.sections, self.address, &edit.geometry);
        let (h, len) = (&mut self.header, list.len() as u64);
        if h.list_allocated != len || !h.list.is_defined() {
            if h.list.is_defined() {
                edit.freed.push((h.list, h.list_allocated));
            }
            h.list = edit.allocate(len)?;
        }
        (h.list_size, h.list_allocated) = (len, len);
        h.stored = self.sections.len() as u64;
        h.sections = h.stored.saturating_add(h.ghosts);
        edit.writes.push((h.list, list));
        edit.writes.push((self.address, h.encode(&edit.geometry)));
        Ok(())
    }
}
