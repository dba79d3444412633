//! The latest write of each element of a dataset.
//!
//! Extents that were entered lately are a map in memory, the others are packed in pages of a
//! temporary file. What the map has for an element counts.

use super::extent::{Extent, Piece, Source};
use super::packed::{Cursor, Packed};
use super::pages::Pages;
use crate::base::Result;
use crate::base::locks::Mutex;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

/// What a change replaced.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    pieces: Vec<Piece>,
    written: u64,
    covered: usize,
}

/// Extents of a dataset that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// By the first element: end and source; `None`: packed ones do not count.
    recent: BTreeMap<u64, (u64, Option<Source>)>,
    packed: Packed,
    pages: Arc<Pages>,
    /// Elements of entries with a source.
    written: u64,
    /// Ranges that entries covered since the last packing, of which packed extents do not count.
    covered: Vec<Range<u64>>,
    /// How many of these ranges were looked at, and the packed elements that they have.
    hidden: Mutex<(usize, u64)>,
}

impl Extents {
    /// No extents; those to come are packed in `pages`.
    pub(super) fn new(pages: Arc<Pages>) -> Self {
        Extents { pages, ..Extents::default() }
    }

    /// Elements that were written. Reads the pages of ranges that changed since the last call.
    pub(super) fn elements(&self) -> Result<u64> {
        let mut hidden = self.hidden.lock();
        for range in self.covered.get(hidden.0..).unwrap_or_default() {
            let count = self.packed.count(range)?;
            *hidden = (hidden.0.saturating_add(1), hidden.1.saturating_add(count));
        }
        Ok(self.packed.elements().saturating_sub(hidden.1).saturating_add(self.written))
    }

    /// Entries in memory.
    pub(super) fn recent(&self) -> usize {
        self.recent.len()
    }

    /// Keeps only staged extents in memory.
    pub(super) fn pack(&mut self, size: u64) -> Result<()> {
        let is_staged = |source: &Option<Source>| matches!(source, Some(Source::Staged { .. }));
        let stored = self.recent.iter().filter(|(_, (_, source))| !is_staged(source));
        let pieces: Vec<Piece> = stored.map(|(first, (end, source))| Piece { first: *first, end: *end, source: *source }).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        self.packed.merge(&pieces, size, &self.pages)?;
        self.recent.retain(|_, (_, source)| is_staged(source));
        self.written = self.recent.iter().map(|(first, (end, _))| end.saturating_sub(*first)).fold(0, u64::saturating_add);
        self.covered = self.recent.iter().map(|(first, (end, _))| *first..*end).collect();
        *self.hidden.get_mut() = (0, 0);
        Ok(())
    }

    /// Extents that intersect `range`, ascending, cut to it.
    pub(super) fn within(&self, range: Range<u64>, size: u64) -> Within<'_> {
        let from = self.recent_at(range.start).unwrap_or(range.start).min(range.end);
        let recent = self.recent.range(from..range.end.max(from)).peekable();
        Within { recent, packed: self.packed.cursor(), range, size }
    }

    /// The entry that begins before `at` and ends after it, by its first element.
    fn recent_at(&self, at: u64) -> Option<u64> {
        self.recent.range(..at).next_back().filter(|(_, (end, _))| *end > at).map(|(first, _)| *first)
    }

    /// All extents, ascending.
    pub(super) fn all(&self, size: u64) -> Within<'_> {
        self.within(0..u64::MAX, size)
    }

    /// Makes `source` that of the elements `range`; `None`: they are not written. Returns what
    /// [`Extents::restore`] needs.
    pub(super) fn set(&mut self, range: Range<u64>, source: Option<Source>, size: u64) -> Replaced {
        let (written, covered) = (self.written, self.covered.len());
        if range.is_empty() {
            return Replaced { pieces: Vec::new(), written, covered };
        }
        let pieces = self.take(&range, size);
        let has_packed = self.packed.may_have(&range);
        let mut at = range.start;
        for piece in &pieces {
            if has_packed && at < piece.first {
                self.covered.push(at..piece.first);
            }
            at = piece.end;
            let gone = if piece.source.is_some() { piece.end.saturating_sub(piece.first) } else { 0 };
            self.written = self.written.saturating_sub(gone);
        }
        if has_packed && at < range.end {
            self.covered.push(at..range.end);
        }
        if source.is_some() {
            self.written = self.written.saturating_add(range.end.saturating_sub(range.start));
        }
        if source.is_some() || has_packed {
            self.insert(range, source, size);
        }
        Replaced { pieces, written, covered }
    }

    /// Undoes the last change, which was of `range`. Nothing was packed since.
    pub(super) fn restore(&mut self, range: &Range<u64>, replaced: Replaced, size: u64) {
        if range.is_empty() {
            return;
        }
        self.take(range, size);
        self.recent.extend(replaced.pieces.into_iter().map(|p| (p.first, (p.end, p.source))));
        self.written = replaced.written;
        self.covered.truncate(replaced.covered);
        let hidden = self.hidden.get_mut();
        if hidden.0 > replaced.covered {
            *hidden = (0, 0);
        }
    }

    /// Removes the entries of `range`, and parts of those; returns them.
    fn take(&mut self, range: &Range<u64>, size: u64) -> Vec<Piece> {
        let from = self.recent_at(range.start).unwrap_or(range.start);
        let found = self.recent.range(from..range.end).map(|(first, (end, source))| Piece { first: *first, end: *end, source: *source });
        let mut found: Vec<Piece> = found.collect();
        for piece in &mut found {
            self.recent.remove(&piece.first);
            if piece.first < range.start {
                self.recent.insert(piece.first, (range.start, piece.source));
            }
            if piece.end > range.end {
                self.recent.insert(range.end, (piece.end, piece.after(range.end, size).source));
            }
            *piece = Piece { end: piece.end.min(range.end), ..piece.after(range.start, size) };
        }
        found
    }

    /// Inserts an entry where none is; joins it with the one before, if that one continues in it.
    fn insert(&mut self, range: Range<u64>, source: Option<Source>, size: u64) {
        if let Some((first, (end, before))) = self.recent.range_mut(..range.start).next_back()
            && *end == range.start
            && before.map(|before| before.after(end.saturating_sub(*first), size)) == source
        {
            *end = range.end;
            return;
        }
        self.recent.insert(range.start, (range.end, source));
    }

    /// The first written element at or after `at`.
    pub(super) fn next_written(&self, at: u64) -> Result<Option<u64>> {
        Ok(self.within(at..u64::MAX, 1).next().transpose()?.map(|e| e.first))
    }

    /// The first element at or after `at` that was not written.
    pub(super) fn next_unwritten(&self, at: u64) -> Result<u64> {
        let mut end = at;
        for extent in self.within(at..u64::MAX, 1) {
            let extent = extent?;
            if extent.first > end {
                break;
            }
            end = extent.end;
        }
        Ok(end)
    }
}

/// Extents of a range, ascending. Ends after an error.
pub(super) struct Within<'a> {
    recent: Peekable<btree_map::Range<'a, u64, (u64, Option<Source>)>>,
    packed: Cursor<'a>,
    /// What is left of the range.
    range: Range<u64>,
    size: u64,
}

impl Iterator for Within<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Result<Extent>> {
        while !self.range.is_empty() {
            let recent = self.recent.peek().map(|(first, (end, source))| Piece { first: **first, end: *end, source: *source });
            if let Some(piece) = recent.filter(|piece| piece.first <= self.range.start) {
                self.recent.next();
                let first = self.range.start;
                self.range.start = piece.end.clamp(first, self.range.end);
                match piece.after(first, self.size).source {
                    Some(source) if self.range.start > first => return Some(Ok(Extent { first, end: self.range.start, source })),
                    _ => continue,
                }
            }
            let gap = self.range.start..recent.map_or(self.range.end, |piece| piece.first.min(self.range.end));
            match self.packed.next_in(&gap) {
                Ok(Some(extent)) => {
                    let extent = extent.cut(&gap, self.size);
                    self.range.start = extent.end;
                    return Some(Ok(extent));
                }
                Ok(None) => self.range.start = gap.end,
                Err(e) => {
                    self.range.start = self.range.end;
                    return Some(Err(e));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(kind: u32, at: u64) -> Option<Source> {
        match kind {
            0 => None,
            1 => Some(Source::Staged { buffer: 1, at: at * 4 }),
            2 => Some(Source::Stored { log: 2, offset: at * 40 }),
            3 => Some(Source::Deflated { log: 1, offset: at, first: 1, elements: 40, stored: 9 }),
            _ => Some(Source::Scattered { record: kind, first: at }),
        }
    }

    proptest! {
        /// Sets, some of them packed, and the undoing of those after the last packing agree with an
        /// array.
        #[test]
        fn sets_agree_with_an_array(sets in prop::collection::vec((0u64..60, 0u64..20, 0u32..6, 0u32..4), 0..60)) {
            let (mut extents, mut cells) = (Extents::default(), vec![None; 100]);
            let mut undo = Vec::new();
            for (at, len, kind, pack) in &sets {
                if *pack == 0 {
                    extents.pack(4).unwrap();
                    undo.clear();
                    let staged = extents.recent.values().all(|(_, s)| matches!(s, Some(Source::Staged { .. })));
                    prop_assert!(staged);
                }
                let before = cells.clone();
                let source = source(*kind, *at);
                for i in *at..at + len {
                    cells[i as usize] = source.map(|s| s.after(i - at, 4));
                }
                undo.push((*at..at + len, extents.set(*at..at + len, source, 4), before));
                check(&extents, &cells)?;
            }
            for (range, replaced, before) in undo.into_iter().rev() {
                extents.restore(&range, replaced, 4);
                check(&extents, &before)?;
            }
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Extents of many pages agree with a map of single elements.
        #[test]
        fn many_pages_agree_with_a_map(seed in 0u64..1 << 40, sparse in 1u64..4) {
            let (mut extents, mut cells) = (Extents::default(), BTreeMap::new());
            let mut random = seed;
            let mut next = |n: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % n
            };
            for turn in 0..12u64 {
                for _ in 0..600 {
                    let (at, len) = (next(4000 * sparse), 1 + next(3));
                    // Now and then much is erased at once.
                    let len = if next(150) == 0 { len * 900 } else { len };
                    let kind = if len > 3 { 0 } else { 2 + next(3) as u32 };
                    let source = source(kind, turn * 1000 + next(1000));
                    extents.set(at..at + len, source, 4);
                    for i in at..at + len {
                        match source {
                            Some(source) => drop(cells.insert(i, source.after(i - at, 4))),
                            None => drop(cells.remove(&i)),
                        }
                    }
                }
                prop_assert_eq!(extents.elements().unwrap(), cells.len() as u64);
                extents.pack(4).unwrap();
                prop_assert!(extents.recent.is_empty());
                prop_assert_eq!(extents.elements().unwrap(), cells.len() as u64);
                let mut seen = Vec::new();
                for e in extents.all(4) {
                    let e = e.unwrap();
                    seen.extend((e.first..e.end).map(|i| (i, e.source.after(i - e.first, 4))));
                }
                prop_assert!(seen.iter().copied().eq(cells.iter().map(|(i, s)| (*i, *s))));
                for _ in 0..20 {
                    let range = next(4000)..next(9000);
                    let found: u64 = extents.within(range.clone(), 4).map(|e| e.unwrap()).map(|e| e.end - e.first).sum();
                    let want = if range.is_empty() { 0 } else { cells.range(range.clone()).count() as u64 };
                    prop_assert_eq!(found, want);
                    prop_assert_eq!(extents.next_written(range.start).unwrap(), cells.range(range.start..).next().map(|c| *c.0));
                }
            }
        }
    }

    fn check(extents: &Extents, cells: &[Option<Source>]) -> Result<(), TestCaseError> {
        let mut seen = vec![None; cells.len()];
        for e in extents.all(4) {
            let e = e.unwrap();
            for i in e.first..e.end {
                seen[i as usize] = Some(e.source.after(i - e.first, 4));
            }
        }
        prop_assert_eq!(&seen, cells);
        prop_assert_eq!(extents.elements().unwrap(), cells.iter().flatten().count() as u64);
        for at in 0..cells.len() {
            let next = |there: bool| (at..cells.len()).find(|i| cells[*i].is_some() == there).map(|i| i as u64);
            prop_assert_eq!(extents.next_written(at as u64).unwrap(), next(true));
            prop_assert_eq!(extents.next_unwritten(at as u64).unwrap(), next(false).unwrap_or(cells.len() as u64));
            let part: Vec<_> = extents
                .within(at as u64..at as u64 + 9, 4)
                .map(|e| e.unwrap())
                .flat_map(|e| (e.first..e.end).map(move |i| (i, e.source.after(i - e.first, 4))))
                .collect();
            let want: Vec<_> = (at..(at + 9).min(cells.len())).filter_map(|i| cells[i].map(|s| (i as u64, s))).collect();
            prop_assert_eq!(part, want);
        }
        Ok(())
    }
}
