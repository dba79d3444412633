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
    /// So many sections at the front are those that were there at first.
    same: usize,
    /// The list as it was last encoded, if it is known, for so many sections.
    encoded: (Vec<u8>, usize),
    /// It is to be written.
    staged: bool,
}

/// What is kept of a manager in the store's cache, to be taken by who changes it.
struct Known {
    header: FreeSpaceHeader,
    sections: Vec<Section>,
    /// The list, encoded.
    list: Vec<u8>,
}

impl Known {
    fn charge(&self) -> usize {
        let sections = self.sections.capacity().saturating_mul(size_of::<Section>().saturating_add(16));
        size_of::<Known>().saturating_add(sections).saturating_add(self.list.capacity())
    }
}

impl Holes {
    /// Reads the manager at `address`; none when that is undefined.
    pub fn read(store: &Store, address: Address, heap: &Header, g: &Geometry) -> Result<Self> {
        if !address.is_defined() {
            let header = FreeSpaceHeader::new(heap.table.max_direct_size, heap.table.max_heap_bits);
            return Ok(Self::of(address, header, Vec::new(), Vec::new()));
        }
        if let Some(Known { header, sections, list }) = store.take(address) {
            return Ok(Self::of(address, header, sections, list));
        }
        let bytes = store.read(address, FreeSpaceHeader::size(g) as u64, free_space::NAME)?;
        let header = FreeSpaceHeader::decode(&bytes, address, g)?;
        let mut sections = match header.list.is_defined() {
            true => header.decode_list(&store.read(header.list, header.list_size, free_space::LIST)?, address, g)?,
            false => Vec::new(),
        };
        // As they are in the list, if libhdf5 or this wrote it.
        sections.sort();
        Ok(Self::of(address, header, sections, Vec::new()))
    }

    /// `list`: the sections, encoded; empty where that is not known.
    fn of(address: Address, header: FreeSpaceHeader, sections: Vec<Section>, list: Vec<u8>) -> Self {
        let (same, listed) = if list.is_empty() { (0, 0) } else { (sections.len(), sections.len()) };
        Holes { address, header, sections, changed: false, same, encoded: (list, listed), staged: false }
    }

    /// Writes the manager that was staged, and has it known.
    pub fn write(self, store: &Store, g: &Geometry) -> Result<()> {
        if self.staged {
            store.write(self.header.list, &self.encoded.0)?;
            store.write(self.address, &self.header.encode(g))?;
        }
        if self.changed && !self.staged || !self.address.is_defined() {
            return Ok(());
        }
        let extents = self.extents(g);
        let known = Known { header: self.header, sections: self.sections, list: self.encoded.0 };
        let charge = known.charge();
        store.keep(self.address, known, charge, &extents);
        Ok(())
    }

    /// Takes `length` bytes off the front of the smallest hole that has them; their offset.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let first = self.sections.partition_point(|s| s.size < length);
        let i = first.saturating_add(self.sections.get(first..)?.iter().position(|s| s.kind == free_space::SINGLE)?);
        let mut section = self.sections.remove(i);
        self.same = self.same.min(i);
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
        self.same = self.same.min(i);
    }

    /// Adds a hole, joined with those it touches. Errors: it overlaps one.
    pub fn add(&mut self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let overlap = || Error::corrupt(free_space::NAME, self.address, format!("{size} bytes at heap offset {offset} are free already"));
        let end = offset.checked_add(size).ok_or_else(overlap)?;
        let (mut from, mut to, mut joined) = (offset, end, Vec::new());
        for (i, s) in self.sections.iter().enumerate().filter(|(_, s)| s.kind == free_space::SINGLE) {
            let reach = s.offset.saturating_add(s.size);
            if s.offset < end && offset < reach {
                return Err(overlap());
            }
            if reach == offset || s.offset == end {
                (from, to) = (from.min(s.offset), to.max(reach));
                joined.push(i);
            }
        }
        // In a damaged list more than one may touch it on either side; what lies between is covered by them.
        for i in joined.into_iter().rev() {
            self.sections.remove(i);
            self.same = self.same.min(i);
        }
        self.put(Section { size: to.saturating_sub(from), offset: from, kind: free_space::SINGLE, extra: Vec::new() });
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
        self.same = 0;
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

    /// Has the changed manager written, by [`Holes::write`]; one without sections is given back.
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
        let (list, listed) = std::mem::take(&mut self.encoded);
        let same = if FreeSpaceHeader::are_alike(listed, self.sections.len()) { self.same } else { 0 };
        let list = self.header.encode_rest(list, same, &self.sections, self.address, &edit.geometry);
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
        self.encoded = (list, self.sections.len());
        self.staged = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes(sections: &[(u64, u64)]) -> Holes {
        let single = |&(offset, size): &(u64, u64)| Section { size, offset, kind: free_space::SINGLE, extra: Vec::new() };
        let mut sections: Vec<_> = sections.iter().map(single).collect();
        sections.sort();
        Holes::of(Address(0), FreeSpaceHeader::new(256, 20), sections, Vec::new())
    }

    #[test]
    fn neighbours_are_joined_and_what_is_free_is_not_freed_again() {
        let mut h = holes(&[(0, 10), (20, 5), (40, 4)]);
        h.add(10, 10).unwrap();
        assert_eq!(h.singles(), [(0, 25), (40, 4)]);
        assert!(h.add(24, 2).is_err() && h.add(39, 2).is_err() && h.add(41, 1).is_err());
        assert_eq!((h.take(5), h.take(4), h.take(20)), (Some(0), Some(40), Some(5)));
        assert!(h.singles().is_empty() && h.take(1).is_none());
    }

    #[test]
    fn a_list_that_tells_of_bytes_twice_frees_none_that_are_in_use() {
        let mut h = holes(&[(0, 10), (5, 5)]);
        h.add(10, 5).unwrap();
        assert_eq!(h.singles(), [(0, 15)]);
        let mut h = holes(&[(20, 5), (20, 10)]);
        h.add(10, 10).unwrap();
        assert_eq!(h.singles(), [(10, 20)]);
    }
}
