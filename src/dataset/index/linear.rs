//! Chunk numbers in array indexes: row-major over the *maximum* extent, so that a chunk keeps its
//! number when the dataset grows.
//!
//! A single unlimited dimension varies slowest whatever its position; the other dimensions keep
//! their order.

use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use std::ops::ControlFlow;

/// Called with each element of an array: index, encoded element.
pub(super) type Elements<'a> = dyn FnMut(u64, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Chunk numbers of one dataset.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    /// Dimensions from the slowest to the fastest.
    order: Vec<Dimension>,
    rank: usize,
}

#[derive(Debug, Clone)]
struct Dimension {
    /// Position in the dataspace.
    at: usize,
    /// Chunks in the current extent.
    count: u64,
    /// Chunks in the maximum extent, `None` if unlimited.
    max: Option<u64>,
    /// Difference of the numbers of neighboring chunks along this dimension.
    stride: u64,
}

impl Linear {
    /// Numbering for a grid with exactly `unlimited` (0 or 1) unlimited dimensions.
    pub(super) fn new(grid: &ChunkGrid, unlimited: usize, structure: &'static str, address: Address) -> Result<Self> {
        let max = grid.max_counts();
        if max.iter().filter(|m| m.is_none()).count() != unlimited {
            let detail = format!("maximum extent {:?}: the index needs {unlimited} unlimited dimensions", grid.max_shape);
            return Err(Error::corrupt(structure, address, detail));
        }
        let mut order: Vec<Dimension> =
            grid.counts().into_iter().zip(max).enumerate().map(|(at, (count, max))| Dimension { at, count, max, stride: 0 }).collect();
        order.sort_by_key(|d| d.max.is_some());
        let mut stride = Some(1u64);
        for d in order.iter_mut().rev() {
            d.stride = stride.ok_or_else(|| Error::corrupt(structure, address, "2^64 chunks or more"))?;
            stride = d.max.and_then(|max| d.stride.checked_mul(max));
        }
        Ok(Linear { order, rank: grid.rank() })
    }

    /// Number of the chunk; `None` outside the current extent.
    pub(super) fn index(&self, scaled: &[u64]) -> Option<u64> {
        if scaled.len() != self.rank {
            return None;
        }
        self.order.iter().try_fold(0u64, |n, d| {
            let s = scaled.get(d.at).copied().filter(|&s| s < d.count)?;
            n.checked_add(s.checked_mul(d.stride)?)
        })
    }

    /// True if both give each chunk the same number.
    pub(super) fn numbers_as(&self, other: &Linear) -> bool {
        self.order.iter().map(|d| (d.at, d.stride)).eq(other.order.iter().map(|d| (d.at, d.stride)))
    }

    /// True if chunk numbers ascend in row-major order of the dataset's chunks.
    pub(super) fn is_row_major(&self) -> bool {
        // A dimension of one chunk does not matter where it is.
        self.order.iter().filter(|d| d.count > 1).is_sorted_by_key(|d| d.at)
    }

    /// True if the numbers are the row-major numbers of the current extent.
    pub(super) fn is_dense(&self) -> bool {
        self.is_row_major() && self.order.iter().skip(1).all(|d| d.max == Some(d.count))
    }

    /// How many elements of an array from chunk `from` on are set, at most `most`; 0 if the numbers
    /// are not row-major. `iterate_from` visits the array's elements.
    pub(super) fn stored_run(
        &self,
        from: &[u64],
        most: u64,
        is_set: &dyn Fn(&[u8]) -> Result<bool>,
        iterate_from: &mut dyn FnMut(u64, &mut Elements<'_>) -> Result<()>,
    ) -> Result<u64> {
        let Some(first) = self.index(from).filter(|_| self.is_dense()) else { return Ok(0) };
        let (mut next, end) = (first, first.saturating_add(most));
        iterate_from(first, &mut |i, element| {
            if i != next || next >= end || !is_set(element)? {
                return Ok(ControlFlow::Break(()));
            }
            next = next.saturating_add(1);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(next.saturating_sub(first))
    }

    /// Writes the scaled offsets of chunk number `index` to `scaled`; false outside the current
    /// extent.
    pub(super) fn scaled(&self, index: u64, scaled: &mut Vec<u64>) -> bool {
        scaled.resize(self.rank, 0);
        let mut rest = index;
        for d in &self.order {
            // A stride of 0 means that some dimension has no chunks.
            let (Some(s), Some(left)) = (rest.checked_div(d.stride), rest.checked_rem(d.stride)) else { return false };
            let Some(slot) = scaled.get_mut(d.at).filter(|_| s < d.count) else { return false };
            (*slot, rest) = (s, left);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(shape: &[u64], max: &[Option<u64>], unlimited: usize) -> Result<Linear> {
        let grid = ChunkGrid::new(shape.to_vec(), max.to_vec(), vec![2; shape.len()], 1).unwrap();
        Linear::new(&grid, unlimited, "x", Address(0))
    }

    #[test]
    fn row_major_over_the_maximum_extent() {
        let l = linear(&[3, 5], &[Some(10), Some(12)], 0).unwrap();
        assert_eq!((l.index(&[1, 2]), l.index(&[2, 0]), l.index(&[0])), (Some(8), None, None));
        let mut s = Vec::new();
        assert!(l.scaled(8, &mut s) && s == [1, 2]);
        assert!(!l.scaled(3, &mut s) && !l.scaled(12, &mut s) && !l.scaled(u64::MAX, &mut s));
    }

    #[test]
    fn the_unlimited_dimension_varies_slowest() {
        let l = linear(&[3, 50, 5], &[Some(4), None, Some(6)], 1).unwrap();
        assert_eq!(l.index(&[1, 20, 2]), Some(20 * 6 + 3 + 2));
        let mut s = Vec::new();
        assert!(l.scaled(125, &mut s) && s == [1, 20, 2]);
        assert!(linear(&[3], &[None], 0).is_err() && linear(&[3, 3], &[None, None], 1).is_err());
    }

    #[test]
    fn degenerate_extents() {
        let l = linear(&[0, 4], &[Some(0), Some(4)], 0).unwrap();
        assert_eq!(l.index(&[0, 0]), None);
        assert!(!l.scaled(0, &mut Vec::new()));
        assert!(linear(&[4; 3], &[Some(u64::MAX); 3], 0).is_err());
    }
}
