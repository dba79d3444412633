//! Shapes of datasets in a log: from selections to linear elements and back.

use crate::base::{Address, Error, Result};
use crate::dataset::layout::log::block_index::Rows;
use crate::format::log::record::{NAME, Selection};
use std::ops::Range;

/// Rows of one record that are not next to each other in the dataset.
const ROWS_MAX: u64 = 1 << 24;
/// Shape of a dataset in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) dims: Vec<u64>,
    /// Elements below one step of each dimension.
    pub(super) strides: Vec<u64>,
    pub(super) element_size: u64,
}

impl Shape {
    pub(super) fn new(dims: &[u64], element_size: u64) -> Shape {
        let mut strides = Vec::with_capacity(dims.len());
        let mut below = 1u64;
        for d in dims.iter().rev() {
            strides.push(below);
            below = below.saturating_mul(*d);
        }
        strides.reverse();
        Shape { dims: dims.to_vec(), strides, element_size }
    }

    /// The shape with a first dimension that no element exceeds: for records of a dataset that may
    /// have grown since.
    pub(super) fn unbounded(dims: &[u64], element_size: u64) -> Shape {
        let mut shape = Shape::new(dims, element_size);
        shape.dims.iter_mut().take(1).for_each(|d| *d = i64::MAX as u64);
        shape
    }

    /// False for a shape of [`Shape::unbounded`].
    pub(super) fn is_bounded(&self) -> bool {
        self.dims.first() != Some(&(i64::MAX as u64))
    }

    /// Takes over a longer first dimension. A shorter one may be of a reader of an older state;
    /// elements past the extent are unwritten anyway.
    pub(super) fn extend(&mut self, other: &Shape) {
        if self.dims.first() < other.dims.first() {
            self.clone_from(other);
        }
    }

    /// The linear elements of `selection`, if it is one of [`blocks`].
    pub(super) fn linear(&self, selection: &Selection) -> Option<Range<u64>> {
        let Selection::Subarray { start, count } = selection else { return None };
        let terms = start.iter().zip(&self.strides).map(|(x, s)| x.saturating_mul(*s));
        let first = terms.fold(0, u64::saturating_add);
        let range = first..first.checked_add(selection.elements(self.dims.len())?)?;
        let (mut found, mut same) = (0u64, false);
        blocks(self, range.clone(), &mut |s, c, _| {
            found = found.saturating_add(1);
            same = (s, c) == (start.clone(), count.clone());
        });
        (found == 1 && same).then_some(range)
    }

    /// Linear elements from the first to the last one of `selection`.
    pub(super) fn bounds(&self, selection: &Selection) -> Range<u64> {
        let linear = |at: &mut dyn Iterator<Item = u64>| {
            let terms = at.zip(&self.strides).map(|(x, stride)| x.saturating_mul(*stride));
            terms.fold(0, u64::saturating_add)
        };
        match selection {
            Selection::Subarray { start, count } => {
                let last = linear(&mut start.iter().zip(count).map(|(s, c)| s.saturating_add(c.saturating_sub(1))));
                linear(&mut start.iter().copied())..last.saturating_add(1)
            }
            Selection::Points(points) => {
                let all = points.chunks_exact(self.dims.len().max(1)).map(|point| linear(&mut point.iter().copied()));
                let (first, end) = all.fold((u64::MAX, 0), |(first, end), at| (at.min(first), at.saturating_add(1).max(end)));
                first..end
            }
        }
    }

    /// Calls `f` with the runs of `selection`: linear elements, and the number of the first one
    /// within the selection. Elements beyond the extent are left out.
    pub(super) fn each_run(&self, selection: &Selection, f: &mut dyn FnMut(Range<u64>, u64) -> Result<()>) -> Result<()> {
        let rank = self.dims.len();
        match selection {
            Selection::Subarray { start, count } => {
                if start.iter().zip(count).zip(&self.dims).any(|((s, c), d)| *c == 0 || s >= d) {
                    return Ok(());
                }
                if rank == 0 {
                    return f(0..1, 0);
                }
                let rows = Rows::new(&self.dims, &self.strides, start, count);
                if rows.len > ROWS_MAX {
                    return Err(Error::limit(NAME, Address::UNDEF, format!("a block of {} rows", rows.len)));
                }
                for row in 0..rows.len {
                    let (first, within) = rows.at(row);
                    f(first..first.saturating_add(rows.run), within)?;
                }
            }
            Selection::Points(points) => {
                for (point, n) in points.chunks_exact(rank.max(1)).zip(0..) {
                    if point.iter().zip(&self.dims).all(|(x, d)| x < d) {
                        let terms = point.iter().zip(&self.strides).map(|(x, s)| x.saturating_mul(*s));
                        let at = terms.fold(0, u64::saturating_add);
                        f(at..at.saturating_add(1), n)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Calls `f` with blocks that make up the linear elements `range`, in their order: start, count,
/// and elements of the range before the block.
pub(super) fn blocks(shape: &Shape, range: Range<u64>, f: &mut dyn FnMut(Vec<u64>, Vec<u64>, u64)) {
    let rank = shape.dims.len();
    let mut at = range.start;
    while at < range.end {
        if rank == 0 {
            f(Vec::new(), Vec::new(), 0);
            return;
        }
        let (mut rest, mut start) = (at, Vec::with_capacity(rank));
        for stride in &shape.strides {
            start.push(rest.checked_div(*stride).unwrap_or(0));
            rest = rest.checked_rem(*stride).unwrap_or(0);
        }
        // The slowest dimension of which a whole step follows.
        let left = range.end.saturating_sub(at);
        let whole = |i: &usize| {
            let zeros = start.get(i.saturating_add(1)..).unwrap_or_default().iter().all(|x| *x == 0);
            zeros && shape.strides.get(*i).is_some_and(|s| *s <= left && *s > 0)
        };
        let slow = (0..rank).find(whole).unwrap_or(rank.saturating_sub(1));
        let stride = shape.strides.get(slow).copied().unwrap_or(1).max(1);
        let room = match slow {
            0 => u64::MAX,
            _ => shape.dims.get(slow).copied().unwrap_or(1).saturating_sub(start.get(slow).copied().unwrap_or(0)),
        };
        let steps = (left / stride).min(room).max(1);
        let extent = |i: usize, d: &u64| match i.cmp(&slow) {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => steps,
            std::cmp::Ordering::Greater => *d,
        };
        let count = shape.dims.iter().enumerate().map(|(i, d)| extent(i, d)).collect();
        f(start, count, at.saturating_sub(range.start));
        at = at.saturating_add(steps.saturating_mul(stride));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_make_up_the_range(dims in prop::collection::vec(1u64..6, 0..4), from in 0u64..300, len in 0u64..300) {
            let shape = Shape::new(&dims, 4);
            let total: u64 = dims.iter().product();
            let range = from.min(total)..(from + len).min(total);
            let (mut at, mut n) = (range.start, 0);
            blocks(&shape, range.clone(), &mut |start, count, skipped| {
                let first: u64 = start.iter().zip(&shape.strides).map(|(s, n)| s * n).sum();
                assert_eq!(first, at, "{dims:?} {range:?}");
                assert_eq!(first, range.start + skipped);
                assert!(start.iter().zip(&count).zip(&dims).all(|((s, c), d)| s + c <= *d && *c > 0));
                at += count.iter().product::<u64>();
                n += 1;
            });
            prop_assert_eq!(at, range.end.max(range.start));
            prop_assert!(n <= (2 * dims.len()).saturating_sub(1).max(1));
        }
    }
}
