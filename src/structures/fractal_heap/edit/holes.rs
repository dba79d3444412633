//! Free-space manager of a fractal heap in memory: the holes in its direct blocks.

use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::Header;
use crate::format::free_space::{self, Class, Client, Section};
use crate::meta::Store;
use crate::structures::free_space::Manager;

/// Sections of one heap.
#[derive(Debug)]
pub(super) struct Holes {
    /// Address of the manager; undefined if there is none.
    address: Address,
    header: free_space::Header,
    /// All stored sections, in the order of the list: ascending by size, then offset.
    sections: Vec<Section>,
    changed: bool,
    /// Number of sections at the front that did not change.
    same: usize,
    /// The list as last encoded and its number of sections; empty if unknown.
    encoded: (Vec<u8>, usize),
    /// True if [`Holes::write`] must write the manager.
    staged: bool,
}

/// A manager in the store's cache; a change takes it out.
struct Cached {
    header: free_space::Header,
    sections: Vec<Section>,
    /// The list, encoded.
    list: Vec<u8>,
}

impl Cached {
    fn charge(&self) -> usize {
        let sections = self.sections.capacity().saturating_mul(size_of::<Section>());
        size_of::<Cached>().saturating_add(sections).saturating_add(self.list.capacity())
    }
}

impl Holes {
    /// The manager of `heap` from the store's cache, or read; an empty one if the heap has none.
    pub fn read(store: &Store, heap: &Header) -> Result<Self> {
        let address = heap.free_space_manager;
        if !address.is_defined() {
            let header = free_space::Header::of_heap(heap.table.max_direct_size, heap.table.max_heap_bits);
            return Ok(Self::of(address, header, Vec::new(), Vec::new()));
        }
        if let Some(Cached { header, sections, list }) = store.take(address) {
            return Ok(Self::of(address, header, sections, list));
        }
        let Manager { header, mut sections, .. } = Manager::load(store, address, Client::FractalHeap)?;
        // Lists that libhdf5 or h5dir wrote are sorted.
        sections.sort();
        Ok(Self::of(address, header, sections, Vec::new()))
    }

    /// A manager with unchanged `sections`; `list` is their encoded list, empty if unknown.
    fn of(address: Address, header: free_space::Header, sections: Vec<Section>, list: Vec<u8>) -> Self {
        let (same, listed) = if list.is_empty() { (0, 0) } else { (sections.len(), sections.len()) };
        Holes { address, header, sections, changed: false, same, encoded: (list, listed), staged: false }
    }

    /// Writes the manager if it was staged, and puts it into the store's cache.
    pub fn write(self, store: &Store) -> Result<()> {
        if self.staged {
            store.write(self.header.list, &self.encoded.0)?;
            store.write(self.address, &self.header.encode(store.ctx()))?;
        }
        if self.changed && !self.staged || !self.address.is_defined() {
            return Ok(());
        }
        let extents = self.extents(store);
        let cached = Cached { header: self.header, sections: self.sections, list: self.encoded.0 };
        let charge = cached.charge();
        store.keep(self.address, cached, charge, &extents);
        Ok(())
    }

    /// Allocates `length` bytes at the front of the smallest hole that fits; returns their offset.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let first = self.sections.partition_point(|s| s.size < length);
        let i = first.saturating_add(self.sections.get(first..)?.iter().position(|s| s.class == Class::Single)?);
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

    /// Adds a hole, joined with adjacent holes. Errors: it overlaps a hole.
    pub fn add(&mut self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let overlap = || Error::corrupt(free_space::NAME, self.address, format!("{size} bytes at heap offset {offset} are free already"));
        let end = offset.checked_add(size).ok_or_else(overlap)?;
        let (mut from, mut to, mut joined) = (offset, end, Vec::new());
        for (i, s) in self.sections.iter().enumerate().filter(|(_, s)| s.class == Class::Single) {
            let reach = s.offset.saturating_add(s.size);
            if s.offset < end && offset < reach {
                return Err(overlap());
            }
            if reach == offset || s.offset == end {
                (from, to) = (from.min(s.offset), to.max(reach));
                joined.push(i);
            }
        }
        // In a damaged list several holes may touch it on either side; together they cover the
        // bytes between.
        for i in joined.into_iter().rev() {
            self.sections.remove(i);
            self.same = self.same.min(i);
        }
        self.put(Section { size: to.saturating_sub(from), offset: from, class: Class::Single });
        self.count(size, true);
        Ok(())
    }

    /// Adds `bytes` to the header's sum, or subtracts them; the bytes of block ranges stay
    /// included.
    fn count(&mut self, bytes: u64, more: bool) {
        let space = self.header.space;
        self.header.space = if more { space.saturating_add(bytes) } else { space.saturating_sub(bytes) };
        self.changed = true;
    }

    /// Removes all sections.
    pub fn clear(&mut self) {
        self.sections.clear();
        self.same = 0;
        (self.header.ghosts, self.header.space) = (0, 0);
        self.changed = true;
    }

    /// Offset and size of every hole.
    #[cfg(test)]
    pub fn singles(&self) -> Vec<(u64, u64)> {
        let holes = self.sections.iter().filter(|s| s.class == Class::Single);
        let mut all: Vec<_> = holes.map(|s| (s.offset, s.size)).collect();
        all.sort_unstable();
        all
    }

    /// True if the sections include block ranges.
    #[cfg(test)]
    pub fn has_rows(&self) -> bool {
        self.sections.iter().any(|s| s.class != Class::Single)
    }

    /// Address of the manager; undefined if there is none.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Address and bytes of the manager's header and list.
    pub fn extents(&self, store: &Store) -> Vec<(Address, u64)> {
        let header = (self.address, free_space::Header::size(store.ctx()));
        let list = (self.header.list, self.header.list_allocated);
        [header, list].into_iter().filter(|(a, _)| a.is_defined()).collect()
    }

    /// Encodes a changed manager for [`Holes::write`], in space from `allocate`; adds unused
    /// extents to `freed`. A manager without sections is freed, and its address becomes undefined.
    pub fn stage(
        &mut self,
        store: &Store,
        allocate: &mut dyn FnMut(u64) -> Result<Address>,
        freed: &mut Vec<(Address, u64)>,
    ) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        if self.sections.is_empty() {
            freed.extend(self.extents(store));
            self.address = Address::UNDEF;
            return Ok(());
        }
        let ctx = store.ctx();
        if !self.address.is_defined() {
            self.address = allocate(free_space::Header::size(ctx))?;
        }
        let (list, listed) = std::mem::take(&mut self.encoded);
        let same = if free_space::Header::same_widths(listed, self.sections.len()) { self.same } else { 0 };
        let list = self.header.encode_list_from(list, same, &self.sections, self.address, ctx);
        let (h, len) = (&mut self.header, list.len() as u64);
        if h.list_allocated != len || !h.list.is_defined() {
            if h.list.is_defined() {
                freed.push((h.list, h.list_allocated));
            }
            h.list = allocate(len)?;
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
        let single = |&(offset, size): &(u64, u64)| Section { size, offset, class: Class::Single };
        let mut sections: Vec<_> = sections.iter().map(single).collect();
        sections.sort();
        Holes::of(Address(0), free_space::Header::of_heap(256, 20), sections, Vec::new())
    }

    #[test]
    fn adjacent_holes_are_joined_and_free_bytes_are_not_freed_again() {
        let mut h = holes(&[(0, 10), (20, 5), (40, 4)]);
        h.add(10, 10).unwrap();
        assert_eq!(h.singles(), [(0, 25), (40, 4)]);
        assert!(h.add(24, 2).is_err() && h.add(39, 2).is_err() && h.add(41, 1).is_err());
        assert_eq!((h.take(5), h.take(4), h.take(20)), (Some(0), Some(40), Some(5)));
        assert!(h.singles().is_empty() && h.take(1).is_none());
    }

    #[test]
    fn a_list_with_overlapping_holes_frees_no_used_bytes() {
        let mut h = holes(&[(0, 10), (5, 5)]);
        h.add(10, 5).unwrap();
        assert_eq!(h.singles(), [(0, 15)]);
        let mut h = holes(&[(20, 5), (20, 10)]);
        h.add(10, 10).unwrap();
        assert_eq!(h.singles(), [(10, 20)]);
    }
}
