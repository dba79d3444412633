//! Free ranges of a file, found by size and alignment.

use super::Ranges;
use std::collections::BTreeSet;
use std::ops::Range;

/// More ranges than this are added at once rather than one by one.
const ONE_BY_ONE_MAX: usize = 256;
/// Free ranges considered for an allocation.
const CANDIDATES: usize = 64;
/// Largest alignment with an index, bytes. Metadata of up to a sector is aligned to the power of
/// two that holds it.
const ALIGN_MAX: u64 = 512;
/// Smallest alignment with an index of its own, bytes.
const ALIGN_MIN: u64 = 16;
const ALIGNMENTS: usize = (ALIGN_MAX / ALIGN_MIN).ilog2() as usize + 1;

/// Free ranges, indexed by size.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    pub(super) ranges: Ranges,
    /// Size and start of each range.
    pub(super) sizes: BTreeSet<(u64, u64)>,
    /// Size from the first multiple of an alignment, and start, of each range that has one: for
    /// each alignment from [`ALIGN_MIN`] to [`ALIGN_MAX`].
    aligned: [BTreeSet<(u64, u64)>; ALIGNMENTS],
}

/// Bytes of `range` from its first multiple of `align`.
fn aligned_size(range: &Range<u64>, align: u64) -> u64 {
    range.start.checked_next_multiple_of(align).map_or(0, |start| range.end.saturating_sub(start))
}

impl FreeList {
    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // A damaged file may free bytes twice; they must not be allocated twice.
        for (part, _) in self.ranges.split(range.clone()).into_iter().filter(|(_, free)| *free) {
            self.remove(part);
        }
        self.ranges.insert(range.clone());
        // The joined range replaces the adjacent ones.
        let Some(joined) = self.ranges.containing(range.start) else { return };
        for edge in [joined.start..range.start, range.end..joined.end] {
            self.index(&edge, false);
        }
        self.index(&joined, true);
    }

    /// Adds ranges.
    pub(super) fn insert_all(&mut self, ranges: &Ranges) {
        // Making the indexes anew costs as much as changing them for a part of all ranges.
        if ranges.count() <= ONE_BY_ONE_MAX.max(self.ranges.count() / 4) {
            return ranges.iter().for_each(|range| self.insert(range));
        }
        ranges.iter().for_each(|range| self.ranges.insert(range));
        let index = |size: &dyn Fn(&Range<u64>) -> u64| -> BTreeSet<(u64, u64)> {
            self.ranges.iter().map(|range| (size(&range), range.start)).filter(|(size, _)| *size > 0).collect()
        };
        self.sizes = index(&|range| range.end.saturating_sub(range.start));
        self.aligned = std::array::from_fn(|i| index(&|range| aligned_size(range, ALIGN_MIN << i)));
    }

    /// Removes a part of a range.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        let Some(whole) = self.ranges.containing(range.start) else { return };
        self.index(&whole, false);
        self.ranges.remove(range.clone());
        for edge in [whole.start..range.start, range.end..whole.end] {
            self.index(&edge, true);
        }
    }

    /// Adds a range to the indexes, or removes it.
    fn index(&mut self, range: &Range<u64>, add: bool) {
        if range.is_empty() {
            return;
        }
        let put = |set: &mut BTreeSet<(u64, u64)>, size: u64| match add {
            true => set.insert((size, range.start)),
            false => set.remove(&(size, range.start)),
        };
        put(&mut self.sizes, range.end.saturating_sub(range.start));
        for (i, set) in self.aligned.iter_mut().enumerate() {
            let size = aligned_size(range, ALIGN_MIN << i);
            if size > 0 {
                put(set, size);
            }
        }
    }

    /// Room for `len` bytes at a multiple of `align`: of the smallest ranges that have it the first
    /// in the file, so that the end of the file becomes free.
    pub(super) fn find(&self, len: u64, align: u64) -> Option<Range<u64>> {
        self.find_fitting(len, align, len.saturating_add(align), |range| {
            let at = range.start.checked_next_multiple_of(align)?;
            let end = at.checked_add(len)?;
            (end <= range.end).then_some(at..end)
        })
    }

    /// The place that `fit` finds for `len` bytes in one of the smallest ranges, or in one of at
    /// least `enough` bytes, in which `fit` always finds one.
    pub(super) fn find_fitting(
        &self,
        len: u64,
        align: u64,
        enough: u64,
        fit: impl Fn(Range<u64>) -> Option<Range<u64>>,
    ) -> Option<Range<u64>> {
        let has_index = align.is_power_of_two() && (ALIGN_MIN..=ALIGN_MAX).contains(&align);
        let index = has_index.then(|| align.ilog2().saturating_sub(ALIGN_MIN.ilog2()) as usize);
        let index = index.and_then(|i| self.aligned.get(i)).unwrap_or(&self.sizes);
        let fits = |&(_, start): &(u64, u64)| fit(self.ranges.containing(start)?);
        let first = index.range((len, 0)..).take(CANDIDATES).filter_map(fits).min_by_key(|range| range.start);
        first.or_else(|| index.range((enough, 0)..).take(CANDIDATES).filter_map(fits).min_by_key(|range| range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200,000 freed chunks took a second, one by one.
    #[test]
    fn ranges_added_at_once_are_those_added_one_by_one() {
        for (there, step) in [(0..0, 8), (0..5000, 16), (1000..40_000, 8), (0..40_000, 24)] {
            let mut old = FreeList::default();
            there.step_by(24).for_each(|at| old.insert(at + 5..at + 8));
            let (mut all, mut one) = (FreeList::default(), FreeList::default());
            for list in [&mut all, &mut one] {
                old.ranges.iter().for_each(|range| list.insert(range));
            }
            let mut more = Ranges::default();
            (0..40_000).step_by(step).for_each(|at| more.insert(at..at + 5));
            all.insert_all(&more);
            more.iter().for_each(|range| one.insert(range));
            assert_eq!((&all.ranges, &all.sizes, &all.aligned), (&one.ranges, &one.sizes, &one.aligned), "{step}");
            let covered: u64 = all.sizes.iter().map(|(size, _)| size).sum();
            assert_eq!(covered, all.ranges.len());
        }
    }
}
