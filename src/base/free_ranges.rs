//! Free space of a file, as ranges of addresses or offsets.

use std::ops::Range;

/// Free space, by what it can be used for; each list is ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeRanges {
    /// For any use; in a file with pages, whole pages.
    pub whole: Vec<Range<u64>>,
    /// Parts of pages: of metadata, of raw data.
    pub parts: [Vec<Range<u64>>; 2],
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

impl FreeRanges {
    /// Ranges for any use, parts of metadata pages, parts of raw data pages.
    pub fn lists(&self) -> [&Vec<Range<u64>>; 3] {
        let [metadata, raw] = &self.parts;
        [&self.whole, metadata, raw]
    }

    /// All ranges.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.lists().into_iter().flatten()
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.lists().iter().map(|list| list.len()).sum()
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.iter().map(len).sum()
    }

    /// End of the last range; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.iter().map(|range| range.end).max().unwrap_or(0)
    }

    /// Drops the shortest ranges, so that at most `most` are left.
    pub fn keep_longest(&mut self, most: usize) {
        if self.count() <= most {
            return;
        }
        let mut lengths: Vec<u64> = self.iter().map(len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        // Of ranges as long as the longest that is dropped, the first are kept.
        let limit = lengths.get(most).copied().unwrap_or_default();
        let mut room = lengths.iter().take(most).filter(|length| **length == limit).count();
        let mut is_kept = |range: &Range<u64>| {
            let is_last = len(range) == limit && room > 0;
            room = room.saturating_sub(is_last.into());
            is_last || len(range) > limit
        };
        let [metadata, raw] = &mut self.parts;
        [&mut self.whole, metadata, raw].into_iter().for_each(|list| list.retain(&mut is_kept));
    }

    /// The ranges relative to `base`.
    #[must_use]
    pub fn relative_to(mut self, base: u64) -> FreeRanges {
        let [metadata, raw] = &mut self.parts;
        for range in [&mut self.whole, metadata, raw].into_iter().flatten() {
            *range = range.start.saturating_sub(base)..range.end.saturating_sub(base);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_ranges_are_kept() {
        let all = FreeRanges { whole: vec![100..200, 300..1000], parts: [vec![], vec![2000..2001, 2010..2020]] };
        let kept = |most| {
            let mut kept = all.clone();
            kept.keep_longest(most);
            (kept.count(), kept.bytes())
        };
        assert_eq!([kept(9), kept(3), kept(2), kept(0)], [(4, 811), (3, 810), (2, 800), (0, 0)]);
        let mut equal = FreeRanges { whole: (0..10).map(|i| i * 10..i * 10 + 5).collect(), ..FreeRanges::default() };
        equal.keep_longest(9);
        assert_eq!(equal.whole, (0..9).map(|i| i * 10..i * 10 + 5).collect::<Vec<_>>());
    }
}
