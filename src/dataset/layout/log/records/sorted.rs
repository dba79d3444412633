//! Places in log datasets, sorted: in memory, and in pages if there are many.

use super::pages::{PAGE_BYTES, Page, Pages};
use crate::base::{Address, Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Places that are sorted in memory.
const IN_MEMORY: usize = 1 << 16;
/// Bytes of a stored place.
const PLACE_BYTES: usize = 40;

/// Elements of a dataset and their place in a log dataset: what an index entry is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The log dataset.
    pub(super) log: u32,
    /// Offset there, bytes.
    pub(super) offset: u64,
    /// The elements, by linear numbers.
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) kind: PlaceKind,
    /// Stored bytes of a deflated record, 0: not known; number of a scattered one.
    pub(super) number: u32,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlaceKind {
    /// The elements.
    Plain,
    /// A deflated record of the elements.
    Deflated,
    /// A deflated record of elements that are not next to each other.
    Scattered,
}

impl Place {
    fn put(&self, bytes: &mut Vec<u8>) {
        for n in [self.log, self.number, self.kind as u32, 0] {
            bytes.extend(n.to_le_bytes());
        }
        for n in [self.offset, self.first, self.end] {
            bytes.extend(n.to_le_bytes());
        }
    }

    fn of(bytes: &[u8]) -> Option<Place> {
        let small = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?));
        let kind = match small(8)? {
            0 => PlaceKind::Plain,
            1 => PlaceKind::Deflated,
            2 => PlaceKind::Scattered,
            _ => return None,
        };
        Some(Place { log: small(0)?, number: small(4)?, kind, offset: long(16)?, first: long(24)?, end: long(32)? })
    }
}

/// Places that are sorted.
struct SortedPart {
    /// The next ones, the last one first.
    next: Vec<Place>,
    /// Pages of further ones, the last one first.
    pages: Vec<Page>,
}

impl SortedPart {
    fn pop(&mut self) -> Result<Option<Place>> {
        if self.next.is_empty()
            && let Some(page) = self.pages.pop()
        {
            let places = page.read()?.chunks_exact(PLACE_BYTES).map(Place::of).collect::<Option<Vec<_>>>();
            self.next = places.ok_or_else(|| Error::corrupt("temporary file of a log", Address::UNDEF, "a page that was changed"))?;
            self.next.reverse();
        }
        Ok(self.next.pop())
    }
}

/// Sorts places.
#[derive(Default)]
pub(super) struct Sorter {
    pages: Arc<Pages>,
    parts: Vec<SortedPart>,
    rest: Vec<Place>,
}

impl Sorter {
    /// Adds a place.
    pub(super) fn add(&mut self, place: Place) {
        self.rest.push(place);
        if self.rest.len() >= IN_MEMORY {
            let part = self.part();
            self.parts.push(part);
        }
    }

    /// The places that are not in a part yet, sorted. They stay in memory if no page can be stored.
    fn part(&mut self) -> SortedPart {
        let mut places = std::mem::take(&mut self.rest);
        places.sort_unstable();
        let store = |places: &[Place]| {
            let mut bytes = Vec::with_capacity(PAGE_BYTES);
            places.iter().for_each(|place| place.put(&mut bytes));
            self.pages.store(&bytes)
        };
        let in_page = PAGE_BYTES / PLACE_BYTES;
        let stored = if places.len() < IN_MEMORY { None } else { places.chunks(in_page).map(store).collect::<Result<Vec<_>>>().ok() };
        match stored {
            Some(mut pages) => {
                pages.reverse();
                SortedPart { next: Vec::new(), pages }
            }
            None => {
                places.reverse();
                SortedPart { next: places, pages: Vec::new() }
            }
        }
    }

    /// Calls `f` with each place, in their order.
    pub(super) fn each(mut self, f: &mut dyn FnMut(Place) -> Result<()>) -> Result<()> {
        let last = self.part();
        self.parts.push(last);
        let mut heads = BinaryHeap::new();
        for (i, part) in self.parts.iter_mut().enumerate() {
            heads.extend(part.pop()?.map(|place| Reverse((place, i))));
        }
        while let Some(Reverse((place, i))) = heads.pop() {
            f(place)?;
            if let Some(part) = self.parts.get_mut(i) {
                heads.extend(part.pop()?.map(|place| Reverse((place, i))));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More places than are sorted in memory come back in order.
    #[test]
    fn many_places_are_sorted() {
        let mut sorter = Sorter::default();
        let count = 2 * IN_MEMORY as u64 + 77;
        let place = |n: u64| {
            let kind = [PlaceKind::Plain, PlaceKind::Deflated, PlaceKind::Scattered][(n % 3) as usize];
            Place { log: (n >> 16) as u32, offset: n & 0xffff, first: n * 3, end: n * 3 + 1, kind, number: n as u32 }
        };
        (0..count).for_each(|n| sorter.add(place(n * 70_001 % count)));
        let mut next = 0;
        sorter
            .each(&mut |found| {
                assert_eq!(found, place(next));
                next += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(next, count);
    }
}
