//! Which elements of a dataset were written, from the sets of its chunks: data and holes exact to
//! the element, and the set of a block.

use super::ChunkGrid;
use super::present::PresentChunks;
use crate::base::element_set::ElementSet;
use crate::base::seek::Seek;
use crate::base::{Address, Error, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Chunks whose sets are in memory at once.
pub(crate) const STEP_CHUNKS: usize = 1024;
/// Most blocks of one answer.
const BLOCKS_MAX: u64 = 1 << 22;

/// Called with the number of a chunk and its defined elements; `None` if there is no such chunk.
pub(crate) type EachSet<'a> = dyn Fn(u64, Option<ElementSet>) -> Result<ElementSet> + Sync + 'a;

/// The chunks of a dataset that know which of their elements were written.
pub(crate) trait ChunkSets: PresentChunks {
    /// Geometry in elements.
    fn chunks(&self) -> &ChunkGrid;

    /// The defined elements of a chunk, in its own coordinates; `None` if there is no such chunk.
    /// `decode`: its values are kept decoded as well, for a reader who comes next.
    fn set_of(&self, number: u64, decode: bool) -> Result<Option<ElementSet>>;

    /// What `f` makes of the sets of chunks, several at once.
    fn each(&self, numbers: &[u64], f: &EachSet<'_>) -> Result<Vec<ElementSet>>;
}

/// The part of the block `first .. end` of the dataset that lies in the chunk at `origin`, in the
/// chunk's coordinates.
pub(crate) fn local_block(origin: &[u64], chunk_dims: &[u64], first: &[u64], end: &[u64]) -> ElementSet {
    let local =
        |at: &[u64]| -> Vec<u64> { at.iter().zip(origin).zip(chunk_dims).map(|((x, o), n)| x.saturating_sub(*o).min(*n)).collect() };
    ElementSet::block(&local(first), &local(end))
}

impl dyn ChunkSets + '_ {
    /// [`ChunkSets::set_of`] within the extent; `None` if it is empty.
    pub(crate) fn within(&self, number: u64, decode: bool) -> Result<Option<ElementSet>> {
        let scaled = self.grid().scaled(number);
        let Some(set) = self.set_of(number, decode)?.filter(|set| !set.is_empty()) else { return Ok(None) };
        if !self.grid().is_edge(&scaled) {
            return Ok(Some(set));
        }
        // Nothing past the extent is there.
        let origin = self.chunks().origin(&scaled).unwrap_or_default();
        let end: Vec<u64> = self.chunks().shape.iter().zip(&origin).map(|(n, at)| n.saturating_sub(*at)).collect();
        set.intersection(&ElementSet::block(&vec![0; end.len()], &end)).map(Some)
    }

    /// Next defined ([`Seek::Data`]) or undefined byte at or after `offset`.
    pub(crate) fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let mut sets: HashMap<u64, Option<ElementSet>> = HashMap::new();
        let mut set_of = |number: u64| -> Result<Option<ElementSet>> {
            if let Some(set) = sets.get(&number) {
                return Ok(set.clone());
            }
            let set = self.within(number, true)?;
            sets.insert(number, set.clone());
            Ok(set)
        };
        match what {
            Seek::Data => self.next_data(offset, &mut set_of),
            Seek::Hole => self.next_hole(offset, &mut set_of).map(Some),
        }
    }

    fn next_data(&self, offset: u64, set_of: &mut dyn FnMut(u64) -> Result<Option<ElementSet>>) -> Result<Option<u64>> {
        let mut seen = HashSet::new();
        let (mut at, mut best) = (offset, None);
        // Chunks in the order of their first bytes from `offset` on.
        while let Some(start) = self.grid().next_byte(at, &mut |range| self.first_unseen(&seen, range))?
            && best.is_none_or(|best| start < best)
            && let Some((number, _)) = self.grid().chunk_at(start)
        {
            if let Some(set) = set_of(number)? {
                best = best.into_iter().chain(self.next_defined(number, &set, start)).min();
            }
            seen.insert(number);
            at = start;
        }
        Ok(best)
    }

    /// The first chunk in `range` that is not one of `seen`.
    fn first_unseen(&self, seen: &HashSet<u64>, range: Range<u64>) -> Result<Option<u64>> {
        let mut from = range.start;
        while let Some(number) = self.first(from..range.end)? {
            if !seen.contains(&number) {
                return Ok(Some(number));
            }
            from = number.saturating_add(1);
        }
        Ok(None)
    }

    /// First defined byte of a chunk at or after byte `at` of the dataset, which lies in it.
    fn next_defined(&self, number: u64, set: &ElementSet, at: u64) -> Option<u64> {
        let (_, within) = self.grid().in_chunk(at)?;
        let size = self.chunks().element_size.max(1);
        let element = within / size;
        let next = set.next_element(&self.chunks().chunk_dims, element)?;
        if next == element { Some(at) } else { self.grid().byte_at(number, next.checked_mul(size)?) }
    }

    fn next_hole(&self, offset: u64, set_of: &mut dyn FnMut(u64) -> Result<Option<ElementSet>>) -> Result<u64> {
        let size = self.chunks().element_size.max(1);
        let mut at = offset;
        while let Some((number, end)) = self.grid().chunk_at(at)
            && let Some((_, within)) = self.grid().in_chunk(at)
        {
            let Some(set) = set_of(number)? else { return Ok(at) };
            let gap = set.next_gap(&self.chunks().chunk_dims, within / size).saturating_mul(size).max(within);
            let hole = at.saturating_add(gap.saturating_sub(within));
            if hole < end {
                return Ok(hole);
            }
            at = end;
        }
        Ok(self.grid().total())
    }

    /// The defined elements in the block `first .. end` of the dataset.
    pub(crate) fn elements(&self, first: &[u64], end: &[u64]) -> Result<ElementSet> {
        let count: Vec<u64> = end.iter().zip(first).map(|(e, f)| e.saturating_sub(*f)).collect();
        let Some(range) = self.chunks().range(first, &count)? else { return Ok(ElementSet::default()) };
        let number = |scaled: &[u64]| self.grid().linear(scaled).ok_or_else(|| Error::limit("chunk grid", Address::UNDEF, "chunk numbers"));
        let (low, high) = (number(&range.first)?, number(&range.last)?);
        let inside = |n: u64| {
            let scaled = self.grid().scaled(n);
            scaled.iter().zip(range.first.iter().zip(&range.last)).all(|(s, (low, high))| low <= s && s <= high)
        };
        let blocks = AtomicU64::new(0);
        let (grid, chunks) = (self.grid(), self.chunks());
        let one = |n: u64, set: Option<ElementSet>| -> Result<ElementSet> {
            let past = || Error::limit("chunk grid", Address::UNDEF, "elements past 2^64");
            let origin = chunks.origin(&grid.scaled(n)).ok_or_else(past)?;
            let wanted = local_block(&origin, &chunks.chunk_dims, first, end);
            let set = set.unwrap_or_default();
            let is_whole = wanted.elements() == chunks.chunk_dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
            let set = if is_whole { set } else { set.intersection(&wanted)? };
            if blocks.fetch_add(set.blocks(), Ordering::Relaxed).saturating_add(set.blocks()) > BLOCKS_MAX {
                let reason = format!("more than {BLOCKS_MAX} blocks of defined elements: ask for a smaller selection");
                return Err(Error::refused(libc::EFBIG, reason));
            }
            set.moved(&origin).ok_or_else(past)
        };
        let mut defined = ElementSet::default();
        let mut next = Some(low);
        while let Some(from) = next {
            let numbers;
            (numbers, next) = (self as &dyn PresentChunks).step(from..high.saturating_add(1), STEP_CHUNKS, &inside)?;
            let sets = self.each(&numbers, &one)?;
            let part = ElementSet::union_of(0..sets.len(), &|n| Ok(sets.get(n).cloned().unwrap_or_default()))?;
            defined = if defined.is_empty() { part } else { defined.union(&part)? };
        }
        Ok(defined)
    }
}
