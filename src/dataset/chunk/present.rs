//! Which chunks a dataset has, by their numbers in its grid: data and holes by whole chunks.

use super::pieces::ByteGrid;
use crate::base::Result;
use crate::base::seek::Seek;
use std::ops::{ControlFlow, Range};

/// Called with the number of a chunk. `Break` ends the visit.
pub(crate) type VisitNumber<'a> = dyn FnMut(u64) -> Result<ControlFlow<()>> + 'a;

/// The chunks that a dataset has in one state: stored ones, and those in memory only.
pub(crate) trait PresentChunks: Sync {
    /// Geometry in bytes.
    fn grid(&self) -> &ByteGrid;

    /// Visits the numbers of the chunks from number `from` on, ascending.
    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()>;

    /// The first chunk in a range of numbers.
    fn first(&self, range: Range<u64>) -> Result<Option<u64>> {
        let mut found = None;
        if !range.is_empty() {
            self.visit(range.start, &mut |number| {
                found = Some(number).filter(|n| *n < range.end);
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(found)
    }

    /// The first number in a range that has no chunk.
    fn first_absent(&self, range: Range<u64>) -> Result<Option<u64>> {
        let mut next = range.start;
        if !range.is_empty() {
            self.visit(range.start, &mut |number| {
                let follows = number == next && number < range.end;
                next = next.saturating_add(follows.into());
                Ok(if follows { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
        Ok(Some(next).filter(|n| *n < range.end))
    }
}

impl dyn PresentChunks + '_ {
    /// Next byte of a chunk ([`Seek::Data`]) or of none at or after `offset`. The end of the
    /// dataset is a hole.
    pub(crate) fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        if what == Seek::Data {
            return self.grid().next_byte(offset, &mut |range| self.first(range));
        }
        let hole = self.grid().next_byte(offset, &mut |range| self.first_absent(range))?;
        Ok(Some(hole.unwrap_or_else(|| self.grid().total().max(offset))))
    }

    /// The first `most` chunks with numbers in `range` for which `inside` returns true, ascending,
    /// and the number at which the next call begins.
    pub(crate) fn step(&self, range: Range<u64>, most: usize, inside: &dyn Fn(u64) -> bool) -> Result<(Vec<u64>, Option<u64>)> {
        let mut numbers = Vec::new();
        self.visit(range.start, &mut |number| {
            if number >= range.end || numbers.len() >= most {
                return Ok(ControlFlow::Break(()));
            }
            if inside(number) {
                numbers.push(number);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let next = numbers.last().filter(|_| numbers.len() >= most).map(|last| last.saturating_add(1));
        Ok((numbers, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Numbers(ByteGrid, Vec<u64>);

    impl PresentChunks for Numbers {
        fn grid(&self) -> &ByteGrid {
            &self.0
        }

        fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
            for number in self.1.iter().filter(|n| **n >= from) {
                if f(*number)?.is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn searches_agree_with_brute_force(
            dims in prop::collection::vec((1u64..7, 1u64..4), 1..4),
            mask in prop::collection::vec(any::<bool>(), 343),
        ) {
            let (shape, chunk): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
            let grid = ByteGrid::new(&shape, &chunk, 2).unwrap();
            let numbers = (0..grid.chunks()).filter(|n| mask[*n as usize]).collect::<Vec<_>>();
            let total = grid.total();
            let present = Numbers(grid, numbers);
            let is_data = |at: u64| mask[present.0.chunk_at(at).unwrap().0 as usize];
            let dynamic = &present as &dyn PresentChunks;
            for at in 0..total {
                prop_assert_eq!(dynamic.seek(at, Seek::Data).unwrap(), (at..total).find(|n| is_data(*n)));
                prop_assert_eq!(dynamic.seek(at, Seek::Hole).unwrap(), Some((at..total).find(|n| !is_data(*n)).unwrap_or(total)));
            }
            let odd = |n: u64| n % 2 == 1;
            let wanted: Vec<u64> = present.1.iter().copied().filter(|n| odd(*n)).collect();
            let (mut got, mut next) = (Vec::new(), Some(0));
            while let Some(from) = next {
                let numbers;
                (numbers, next) = dynamic.step(from..present.0.chunks(), 2, &odd).unwrap();
                got.extend(numbers);
            }
            prop_assert_eq!(got, wanted);
        }
    }
}
