//! Which bytes of the file are in use, by which time they may be used again.
//!
//! Three kinds of space: *fresh* was allocated since the last commit, so nothing durable points there and
//! it may be written in place; *free* is pointed to by nothing, neither now nor in the durable state;
//! *freed* is still pointed to by the durable state and becomes free with the next commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Disjoint ranges, neighbours joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, which may overlap others.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&s, &e)) = self.0.range(..=start).next_back()
            && e >= start
        {
            (start, end) = (s, end.max(e));
        }
        while let Some((&s, &e)) = self.0.range(start..=end).next() {
            self.0.remove(&s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes out what lies in `range`; returns what was there.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        if range.is_empty() {
            return out;
        }
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        let touched: Vec<_> = self.0.range(first..range.end).map(|(&s, &e)| s..e).filter(|r| r.end > range.start).collect();
        for r in touched {
            self.0.remove(&r.start);
            if r.start < range.start {
                self.0.insert(r.start, range.start);
            }
            if r.end > range.end {
                self.0.insert(range.end, r.end);
            }
            out.push(r.start.max(range.start)..r.end.min(range.end));
        }
        out
    }

    /// The parts of `range` that are in the set (true) or not (false), in order.
    pub fn split(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut out = Vec::new();
        let mut at = range.start;
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        for (&s, &e) in self.0.range(first..range.end.max(first)) {
            if e <= at {
                continue;
            }
            if s > at {
                out.push((at..s, false));
            }
            let stop = e.min(range.end);
            out.push((s.max(at)..stop, true));
            at = stop;
        }
        if at < range.end {
            out.push((at..range.end, false));
        }
        out
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&s, &e)| s..e)
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.iter().map(|r| r.end.saturating_sub(r.start)).sum()
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Free ranges that can be found by their sizes.
#[derive(Debug, Default)]
struct FreeList {
    ranges: Ranges,
    sizes: BTreeSet<(u64, u64)>,
}

impl FreeList {
    fn insert(&mut self, range: Range<u64>) {
        self.ranges.insert(range.clone());
        // The joined range that now holds it replaces its neighbours.
        let Some((&s, &e)) = self.ranges.0.range(..=range.start).next_back() else { return };
        for edge in [s..range.start, range.end..e] {
            if !edge.is_empty() {
                self.sizes.remove(&(edge.end.saturating_sub(edge.start), edge.start));
            }
        }
        self.sizes.insert((e.saturating_sub(s), s));
    }

    fn remove(&mut self, range: Range<u64>) {
        let Some((&s, &e)) = self.ranges.0.range(..=range.start).next_back() else { return };
        self.sizes.remove(&(e.saturating_sub(s), s));
        self.ranges.remove(range.clone());
        for edge in [s..range.start, range.end..e] {
            if !edge.is_empty() {
                self.sizes.insert((edge.end.saturating_sub(edge.start), edge.start));
            }
        }
    }

    /// The smallest range with room for `len` bytes at a multiple of `align`.
    fn find(&self, len: u64, align: u64) -> Option<Range<u64>> {
        let fits = |&(size, start): &(u64, u64)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(len)?;
            (end <= start.saturating_add(size)).then_some(at..end)
        };
        self.sizes.range((len, 0)..).take(64).find_map(fits)
    }
}

/// See the module's description. Offsets are absolute.
#[derive(Debug, Default)]
pub struct Space {
    free: FreeList,
    fresh: Ranges,
    freed: Ranges,
    /// End of what was ever allocated.
    end: u64,
}

impl Space {
    /// All bytes up to `end` are in use.
    pub fn new(end: u64) -> Self {
        Space { end, ..Space::default() }
    }

    /// End of what is allocated.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Takes `len` bytes at a multiple of `align`; `None` when the file would pass 2^63 bytes.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<u64> {
        let align = align.max(1);
        if let Some(range) = self.free.find(len, align) {
            self.free.remove(range.clone());
            self.fresh.insert(range.clone());
            return Some(range.start);
        }
        // Free space at the end is the front of what is needed.
        let mut start = self.end;
        if let Some((&s, &e)) = self.free.ranges.0.iter().next_back()
            && e == self.end
        {
            start = s;
        }
        let at = start.checked_next_multiple_of(align)?;
        let end = at.checked_add(len).filter(|&e| i64::try_from(e).is_ok())?;
        if start < self.end {
            self.free.remove(start..self.end);
        }
        if at > start {
            self.free.insert(start..at);
        }
        self.fresh.insert(at..end);
        self.end = end.max(self.end);
        Some(at)
    }

    /// Gives bytes back: at once if nothing durable points there, else with the next commit.
    pub fn free(&mut self, range: Range<u64>) {
        for (part, fresh) in self.fresh.split(range) {
            if fresh {
                self.fresh.remove(part.clone());
                self.free.insert(part);
            } else {
                self.freed.insert(part);
            }
        }
    }

    /// Declares bytes free that no durable structure points to: what a persisted free-space manager tells.
    pub fn add_free(&mut self, range: Range<u64>) {
        self.free.insert(range);
    }

    /// The parts of `range` that may be written in place (true).
    pub fn split_fresh(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        self.fresh.split(range)
    }

    /// True when something is free after the next commit that is not now.
    pub fn gives_back(&self) -> bool {
        !self.freed.is_empty()
    }

    /// What was allocated is in use now, what was freed is free.
    pub fn committed(&mut self) {
        self.fresh.clear();
        for range in std::mem::take(&mut self.freed).iter() {
            self.free.insert(range);
        }
    }

    /// Cuts free space off the end; returns the new end.
    pub fn trim(&mut self) -> u64 {
        if let Some((&s, &e)) = self.free.ranges.0.iter().next_back()
            && e == self.end
        {
            self.free.remove(s..e);
            self.end = s;
        }
        self.end
    }

    /// Bytes that can be used again now.
    pub fn free_bytes(&self) -> u64 {
        self.free.ranges.len()
    }

    /// Free ranges, ascending.
    pub fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.free.ranges.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn space_is_used_again_only_after_the_commit_that_freed_it() {
        let mut s = Space::new(1000);
        s.free(100..200);
        assert_eq!(s.allocate(100, 1), Some(1000));
        s.committed();
        assert_eq!(s.allocate(50, 1), Some(100));
        assert_eq!(s.allocate(50, 64), Some(1152), "150 is no multiple of 64, nor is 1100");
        // Fresh space is free again at once.
        s.free(100..150);
        assert_eq!(s.allocate(100, 1), Some(100));
        assert_eq!(s.split_fresh(90..210), [(90..100, false), (100..200, true), (200..210, false)]);
    }

    #[test]
    fn the_tail_is_given_back_and_extended() {
        let mut s = Space::new(1000);
        s.free(900..1000);
        s.committed();
        assert_eq!(s.allocate(300, 1), Some(900), "a free tail is extended");
        assert_eq!(s.end(), 1200);
        s.free(900..1200);
        assert_eq!((s.trim(), s.free_bytes()), (900, 0));
        assert_eq!(s.allocate(u64::MAX, 1), None);
    }

    proptest! {
        /// Against a byte map: no two allocations overlap, nothing freed is given out before its commit.
        #[test]
        fn allocations_never_overlap(ops in proptest::collection::vec((0u8..4, 1u64..60, 0usize..50), 1..120)) {
            let mut s = Space::new(64);
            let mut held: Vec<Range<u64>> = std::iter::once(0..64).collect();
            let mut durable: Vec<Range<u64>> = held.clone();
            for (op, len, pick) in ops {
                match op {
                    0 | 1 => {
                        let at = s.allocate(len, if op == 0 { 1 } else { 8 }).unwrap();
                        let range = at..at + len;
                        for other in held.iter().chain(&durable) {
                            prop_assert!(other.end <= range.start || other.start >= range.end, "{range:?} {other:?}");
                        }
                        held.push(range);
                    }
                    2 if !held.is_empty() => {
                        let range = held.swap_remove(pick % held.len());
                        s.free(range);
                    }
                    _ => {
                        s.committed();
                        durable = held.clone();
                    }
                }
                let sizes: BTreeSet<_> = s.free.ranges.iter().map(|r| (r.end - r.start, r.start)).collect();
                prop_assert_eq!(&sizes, &s.free.sizes);
                let all: u64 = held.iter().map(|r| r.end - r.start).sum();
                prop_assert!(all + s.free_bytes() <= s.end());
            }
        }
    }
}
