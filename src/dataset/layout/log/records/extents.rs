//! The latest write of each element of a dataset.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In a staged buffer, from this byte on.
    Staged { buffer: u32, at: u64 },
    /// In a log dataset, from this byte on.
    Stored { log: u32, offset: u64 },
    /// In a deflated record, from this element on.
    Deflated { record: u32, first: u64 },
}

impl Source {
    /// The source of the elements after the first `n`, of `size` bytes each.
    fn after(self, n: u64, size: u64) -> Source {
        let bytes = n.saturating_mul(size);
        match self {
            Source::Staged { buffer, at } => Source::Staged { buffer, at: at.saturating_add(bytes) },
            Source::Stored { log, offset } => Source::Stored { log, offset: offset.saturating_add(bytes) },
            Source::Deflated { record, first } => Source::Deflated { record, first: first.saturating_add(n) },
        }
    }
}

/// Elements that are next to each other in the dataset and at their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Linear number of the first element.
    pub(super) first: u64,
    /// Linear number after the last element.
    pub(super) end: u64,
    pub(super) source: Source,
}

impl Extent {
    /// The part of the extent within `range`, which it intersects; elements have `size` bytes.
    fn cut(&self, range: &Range<u64>, size: u64) -> Extent {
        let first = self.first.max(range.start);
        Extent { first, end: self.end.min(range.end), source: self.source.after(first.saturating_sub(self.first), size) }
    }
}

/// Extents of a dataset that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// By the first element: end and source.
    map: BTreeMap<u64, (u64, Source)>,
    /// Elements of all extents.
    elements: u64,
}

impl Extents {
    /// Elements that were written.
    pub(super) fn elements(&self) -> u64 {
        self.elements
    }

    /// Extents that intersect `range`, ascending, cut to it.
    pub(super) fn within(&self, range: Range<u64>, size: u64) -> impl Iterator<Item = Extent> {
        let before = self.map.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start).map(|(first, _)| *first);
        let from = before.unwrap_or(range.start).min(range.end);
        let cut = range.clone();
        let extent =
            move |(first, (end, source)): (&u64, &(u64, Source))| Extent { first: *first, end: *end, source: *source }.cut(&cut, size);
        self.map.range(from..range.end.max(from)).map(extent)
    }

    /// All extents, ascending.
    pub(super) fn all(&self) -> impl Iterator<Item = Extent> {
        self.map.iter().map(|(first, (end, source))| Extent { first: *first, end: *end, source: *source })
    }

    /// Makes `source` that of the elements `range`; `None`: they are not written. Appends what was
    /// there to `removed`.
    pub(super) fn set(&mut self, range: Range<u64>, source: Option<Source>, size: u64, removed: &mut Vec<Extent>) {
        if range.is_empty() {
            return;
        }
        let from = removed.len();
        removed.extend(self.within(range.clone(), size));
        for old in removed.get(from..).unwrap_or_default() {
            // Its extent may begin before the range and end after it.
            let Some((first, (end, all))) = self.map.range(..=old.first).next_back().map(|(f, e)| (*f, *e)) else { continue };
            self.map.remove(&first);
            if first < range.start {
                self.map.insert(first, (range.start, all));
            }
            if end > range.end {
                self.map.insert(range.end, (end, all.after(range.end.saturating_sub(first), size)));
            }
            self.elements = self.elements.saturating_sub(old.end.saturating_sub(old.first));
        }
        if let Some(source) = source {
            self.insert(range, source, size);
        }
    }

    /// Inserts an extent where none is; joins it with the one before, if that one continues in it.
    fn insert(&mut self, range: Range<u64>, source: Source, size: u64) {
        self.elements = self.elements.saturating_add(range.end.saturating_sub(range.start));
        if let Some((first, (end, before))) = self.map.range_mut(..range.start).next_back()
            && *end == range.start
            && before.after(end.saturating_sub(*first), size) == source
        {
            *end = range.end;
            return;
        }
        self.map.insert(range.start, (range.end, source));
    }

    /// The first written element at or after `at`.
    pub(super) fn next_written(&self, at: u64) -> Option<u64> {
        self.within(at..u64::MAX, 1).next().map(|e| e.first)
    }

    /// The first element at or after `at` that was not written.
    pub(super) fn next_unwritten(&self, at: u64) -> u64 {
        let mut end = at;
        for extent in self.within(at..u64::MAX, 1) {
            if extent.first > end {
                break;
            }
            end = extent.end;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Sets and their undoing agree with an array.
        #[test]
        fn sets_agree_with_an_array(sets in prop::collection::vec((0u64..60, 0u64..20, 0u32..4), 0..60)) {
            let (mut extents, mut cells) = (Extents::default(), vec![None; 100]);
            let mut undo = Vec::new();
            for (at, len, buffer) in &sets {
                let before = cells.clone();
                let source = (*buffer > 0).then_some(Source::Staged { buffer: *buffer, at: at * 4 });
                for i in *at..at + len {
                    cells[i as usize] = source.map(|s| s.after(i - at, 4));
                }
                let mut removed = Vec::new();
                extents.set(*at..at + len, source, 4, &mut removed);
                undo.push((*at..at + len, removed, before));
                check(&extents, &cells)?;
            }
            for (range, removed, before) in undo.into_iter().rev() {
                extents.set(range, None, 4, &mut Vec::new());
                for e in removed {
                    extents.set(e.first..e.end, Some(e.source), 4, &mut Vec::new());
                }
                check(&extents, &before)?;
            }
        }
    }

    fn check(extents: &Extents, cells: &[Option<Source>]) -> Result<(), TestCaseError> {
        let mut seen = vec![None; cells.len()];
        for e in extents.all() {
            for i in e.first..e.end {
                seen[i as usize] = Some(e.source.after(i - e.first, 4));
            }
        }
        prop_assert_eq!(&seen, cells);
        prop_assert_eq!(extents.elements(), cells.iter().flatten().count() as u64);
        for at in 0..cells.len() {
            let next = |there: bool| (at..cells.len()).find(|i| cells[*i].is_some() == there).map(|i| i as u64);
            prop_assert_eq!(extents.next_written(at as u64), next(true));
            prop_assert_eq!(extents.next_unwritten(at as u64), next(false).unwrap_or(cells.len() as u64));
            let part: Vec<_> = extents
                .within(at as u64..at as u64 + 9, 4)
                .flat_map(|e| (e.first..e.end).map(move |i| (i, e.source.after(i - e.first, 4))))
                .collect();
            let want: Vec<_> = (at..(at + 9).min(cells.len())).filter_map(|i| cells[i].map(|s| (i as u64, s))).collect();
            prop_assert_eq!(part, want);
        }
        Ok(())
    }
}
