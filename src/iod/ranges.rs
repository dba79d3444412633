//! Sets of byte ranges: the bytes of a chunk that a session wrote.

use std::ops::Range;

/// Most ranges of a set.
const RANGES_MAX: usize = 4096;

/// Disjoint ranges, ascending, with gaps between them; or all bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Start and end of each.
    list: Vec<(u32, u32)>,
    /// All bytes: the list is empty.
    whole: bool,
}

impl Ranges {
    /// All bytes.
    pub fn whole() -> Ranges {
        Ranges { list: Vec::new(), whole: true }
    }

    /// True if these are all bytes.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Start and end of each range.
    pub fn list(&self) -> &[(u32, u32)] {
        &self.list
    }

    /// Adds a range. Too many ranges become all bytes.
    pub fn add(&mut self, range: Range<u64>) {
        let bounds = u32::try_from(range.start).ok().zip(u32::try_from(range.end).ok());
        let Some((mut start, mut end)) = bounds else { return *self = Ranges::whole() };
        if self.whole || start >= end {
            return;
        }
        let first = self.list.partition_point(|(_, e)| *e < start);
        let last = self.list.partition_point(|(s, _)| *s <= end);
        if let Some(touched) = self.list.get(first..last).filter(|t| !t.is_empty()) {
            start = touched.first().map_or(start, |(s, _)| start.min(*s));
            end = touched.last().map_or(end, |(_, e)| end.max(*e));
        }
        self.list.splice(first..last.max(first), [(start, end)]);
        if self.list.len() > RANGES_MAX {
            *self = Ranges::whole();
        }
    }

    /// True if a byte is in both sets.
    pub fn overlaps(&self, other: &Ranges) -> bool {
        if self.whole || other.whole {
            return true;
        }
        let (mut a, mut b) = (self.list.iter().peekable(), other.list.iter().peekable());
        while let (Some((start, end)), Some((other_start, other_end))) = (a.peek(), b.peek()) {
            if start < other_end && other_start < end {
                return true;
            }
            if end <= other_end {
                a.next();
            } else {
                b.next();
            }
        }
        false
    }

    /// The set of these ranges; `None` if they are not disjoint, ascending and not empty.
    pub fn of(list: Vec<(u32, u32)>) -> Option<Ranges> {
        let ascending = list.windows(2).all(|pair| matches!(pair, [(_, end), (start, _)] if end < start));
        (ascending && list.iter().all(|(s, e)| s < e)).then_some(Ranges { list, whole: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with a vector of flags.
    #[test]
    fn ranges_are_a_set_of_bytes() {
        let mut state = 7u32;
        let mut next = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for _ in 0..200 {
            let (mut sets, mut flags) = ([Ranges::default(), Ranges::default()], [[false; 64]; 2]);
            for _ in 0..8 {
                let (which, start) = (next(2) as usize, next(60));
                let end = start + next(64 - start);
                sets[which].add(u64::from(start)..u64::from(end));
                flags[which][start as usize..end as usize].fill(true);
                for (set, flags) in sets.iter().zip(&flags) {
                    let inside = |i: u32| set.list().iter().any(|(s, e)| (*s..*e).contains(&i));
                    assert!((0..64).all(|i| inside(i) == flags[i as usize]));
                    assert_eq!(Ranges::of(set.list().to_vec()).as_ref(), Some(set));
                }
            }
            let both = (0..64).any(|i| flags[0][i] && flags[1][i]);
            assert_eq!((sets[0].overlaps(&sets[1]), sets[1].overlaps(&sets[0])), (both, both));
        }
        let mut many = Ranges::default();
        (0..5000u64).for_each(|i| many.add(i * 3..i * 3 + 1));
        assert!(many.is_whole() && many.overlaps(&Ranges::default()));
        assert_eq!(Ranges::of(vec![(3, 4), (1, 2)]), None);
    }
}
