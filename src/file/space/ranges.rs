//! Sets of bytes.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// Set of bytes, as disjoint ranges; adjacent ranges are joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, which may overlap existing ones.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&s, &e)) = self.0.range(..=start).next_back()
            && e >= start
        {
            if e >= end {
                return;
            }
            start = s;
        }
        while let Some((&s, &e)) = self.0.range((Bound::Excluded(range.start), Bound::Included(end))).next() {
            self.0.remove(&s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Removes `range`; returns the removed parts.
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
        let before = self.0.range(..=range.start).next_back();
        if before.is_some_and(|(_, &e)| e >= range.end) && !range.is_empty() {
            return vec![(range, true)];
        }
        let mut out = Vec::new();
        let mut at = range.start;
        let first = before.map_or(range.start, |(&s, _)| s);
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

    /// True if all of `range` is in the set.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.0.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// The range that has `at`.
    pub(super) fn containing(&self, at: u64) -> Option<Range<u64>> {
        self.0.range(..=at).next_back().map(|(&s, &e)| s..e).filter(|range| range.end > at)
    }

    /// The last range.
    pub(super) fn last(&self) -> Option<Range<u64>> {
        self.0.iter().next_back().map(|(&s, &e)| s..e)
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&s, &e)| s..e)
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Sum of all bytes.
    pub fn len(&self) -> u64 {
        self.iter().map(|r| r.end.saturating_sub(r.start)).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
