//! Free space that a record of the session names (`file::free_record`).

use super::{FreeList, Pool, Ranges, Space};
use crate::base::free_ranges::FreeRanges;
use std::ops::Range;

/// Alignment of a record's block: it shares no sector, bytes.
const BLOCK_ALIGN: u64 = crate::file::overlay::SECTOR;

/// What the record on disk names.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// End of the last range of any record of the session; 0 without one.
    end: u64,
    /// True if space before that was allocated since the record was written.
    used: bool,
    /// True if other space is free than the record names.
    outdated: bool,
}

impl Recorded {
    /// Notes that `range` is allocated.
    pub(super) fn allocated(&mut self, range: &Range<u64>) {
        self.used |= range.start < self.end;
    }

    /// Notes that space became free.
    pub(super) fn freed(&mut self) {
        self.outdated = true;
    }
}

fn longest(list: &FreeList, most: usize) -> Vec<Range<u64>> {
    let mut out: Vec<_> = list.sizes.iter().rev().take(most).map(|&(size, start)| start..start.saturating_add(size)).collect();
    out.sort_unstable_by_key(|range| range.start);
    out
}

impl Space {
    /// The longest ranges of free space, about `most` of each kind, also from the end of allocated
    /// space to `eof`.
    pub fn longest_free(&self, eof: u64, most: usize) -> FreeRanges {
        let mut whole = longest(&self.free, most);
        whole.extend(self.reserve.ranges.iter());
        whole.sort_unstable_by_key(|range| range.start);
        match whole.last_mut() {
            Some(last) if last.end == self.end => last.end = eof.max(self.end),
            _ if self.end < eof => whole.push(self.end..eof),
            _ => {}
        }
        FreeRanges { whole, parts: self.parts.each_ref().map(|list| longest(list, most)) }
    }

    /// Sets of ranges that are free after the next commit.
    fn free_after_commit(&self) -> impl Iterator<Item = &Ranges> {
        let free = self.parts.iter().chain([&self.reserve, &self.free]).map(|list| &list.ranges);
        free.chain(&self.freed_parts).chain([&self.freed])
    }

    /// Number of ranges that are free after the next commit, at most.
    pub fn count_free_after_commit(&self) -> usize {
        self.free_after_commit().map(Ranges::count).sum()
    }

    /// True if at least `bytes` are free after the next commit.
    pub fn frees(&self, bytes: u64) -> bool {
        let mut sum = 0u64;
        self.free_after_commit().flat_map(Ranges::iter).any(|range| {
            sum = sum.saturating_add(range.end.saturating_sub(range.start));
            sum >= bytes
        })
    }

    /// Allocates a block of `len` bytes for a record; `None` if it would share a sector.
    pub fn take_block(&mut self, len: u64) -> Option<Range<u64>> {
        let at = self.allocate(len, BLOCK_ALIGN, Pool::Metadata)?;
        let block = at..at.saturating_add(len);
        if !at.is_multiple_of(BLOCK_ALIGN) {
            self.give_block(block);
            return None;
        }
        Some(block)
    }

    /// Frees a block that [`Space::take_block`] returned.
    pub fn give_block(&mut self, block: Range<u64>) {
        self.free(block, Pool::Metadata);
    }

    /// Notes that the record on disk names the space that is free now, before `end`.
    pub fn set_recorded(&mut self, end: u64) {
        // An older record may be on the disk after a power cut.
        self.recorded = Recorded { end: end.max(self.recorded.end), used: false, outdated: false };
    }

    /// Notes that the next record has another block, and is not written yet.
    pub fn outdate_record(&mut self) {
        self.recorded.outdated = true;
    }

    /// True if space that the record on disk names was allocated since.
    pub fn is_recorded_space_used(&self) -> bool {
        self.recorded.used
    }

    /// True if other space is free than the record on disk names.
    pub fn is_record_outdated(&self) -> bool {
        self.recorded.used || self.recorded.outdated
    }
}
