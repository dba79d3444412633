//! The grid of chunks that covers a dataset's extent.
//!
//! A chunk is identified by its *scaled* offsets: its first element's offsets divided by the chunk
//! dimensions. Chunks at the upper edges may extend past the extent ("partial edge chunks"); they
//! are stored in full size. Numbers of elements fit 64 bits, products of them need not.

use crate::base::{Address, Error, Result, limits};
use std::ops::Range;

const NAME: &str = "chunk grid";

/// Shape of a chunked dataset and of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkGrid {
    /// Current extent, elements.
    pub(crate) shape: Vec<u64>,
    /// Greatest extent, elements; `None` is unlimited.
    pub(crate) max_shape: Vec<Option<u64>>,
    /// Chunk dimensions, elements; none is 0.
    pub(crate) chunk_dims: Vec<u64>,
    /// Bytes of an element.
    pub(crate) element_size: u64,
}

/// Box of chunks: scaled offsets `first..=last` in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    /// Lowest scaled offsets.
    pub(crate) first: Vec<u64>,
    /// Highest scaled offsets, inclusive.
    pub(crate) last: Vec<u64>,
}

impl ChunkGrid {
    /// Checks and creates a grid. Errors: ranks that differ or exceed the limit, a chunk or element
    /// size of 0, a chunk of 2^64 bytes, an extent past the maximum one.
    pub(crate) fn new(shape: Vec<u64>, max_shape: Vec<Option<u64>>, chunk_dims: Vec<u64>, element_size: u64) -> Result<Self> {
        let bad = |detail: String| Err(Error::corrupt(NAME, Address::UNDEF, detail));
        let rank = shape.len();
        if rank == 0 || rank > limits::RANK_MAX || max_shape.len() != rank || chunk_dims.len() != rank {
            return bad(format!("rank {rank}, {} maximum dimensions, {} chunk dimensions", max_shape.len(), chunk_dims.len()));
        }
        if chunk_dims.contains(&0) || element_size == 0 {
            return bad("a chunk dimension or the element size is 0".into());
        }
        if shape.iter().zip(&max_shape).any(|(&n, max)| max.is_some_and(|max| n > max)) {
            return bad(format!("extent {shape:?} exceeds the maximum extent {max_shape:?}"));
        }
        let grid = ChunkGrid { shape, max_shape, chunk_dims, element_size };
        grid.chunk_bytes()?;
        Ok(grid)
    }

    /// Number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Elements of a whole chunk.
    pub(crate) fn chunk_elements(&self) -> Result<u64> {
        let n = self.chunk_dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        n.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "a chunk has 2^64 elements or more"))
    }

    /// Bytes of a whole chunk before filters.
    pub(crate) fn chunk_bytes(&self) -> Result<u64> {
        let n = self.chunk_elements()?.checked_mul(self.element_size);
        n.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "a chunk has 2^64 bytes or more"))
    }

    /// Chunks in each dimension of the current extent.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.chunk_dims).map(|(&n, &c)| n.div_ceil(c.max(1))).collect()
    }

    /// Chunks in each dimension of the maximum extent; `None` is unlimited.
    pub(crate) fn max_counts(&self) -> Vec<Option<u64>> {
        self.max_shape.iter().zip(&self.chunk_dims).map(|(&n, &c)| n.map(|n| n.div_ceil(c.max(1)))).collect()
    }

    /// Chunks of the current extent; `None` for 2^64 or more.
    pub(crate) fn total(&self) -> Option<u64> {
        product(self.counts().into_iter())
    }

    /// Chunks of the maximum extent; `None` when unlimited or for 2^64 or more.
    pub(crate) fn max_total(&self) -> Option<u64> {
        product(self.max_counts().into_iter().collect::<Option<Vec<u64>>>()?.into_iter())
    }

    /// True when the chunk contains an element of the current extent.
    pub(crate) fn contains(&self, scaled: &[u64]) -> bool {
        let inside = |((&s, &n), &c): ((&u64, &u64), &u64)| s.checked_mul(c).is_some_and(|first| first < n);
        scaled.len() == self.rank() && scaled.iter().zip(&self.shape).zip(&self.chunk_dims).all(inside)
    }

    /// Row-major number of a chunk of the current extent; `None` past 2^64.
    pub(crate) fn number(&self, scaled: &[u64]) -> Option<u64> {
        let counts = self.shape.iter().zip(&self.chunk_dims).map(|(n, c)| n.div_ceil((*c).max(1)));
        scaled.iter().zip(counts).try_fold(0u64, |n, (s, count)| n.checked_mul(count)?.checked_add(*s))
    }

    /// Scaled offsets of chunk `number`. The first one is past the extent if the number is.
    pub(crate) fn scaled(&self, number: u64) -> Vec<u64> {
        let counts = self.shape.iter().zip(&self.chunk_dims).map(|(n, c)| n.div_ceil((*c).max(1)));
        let mut scaled = vec![0; self.rank()];
        let mut rest = number;
        for (s, count) in scaled.iter_mut().zip(counts).skip(1).rev() {
            *s = rest.checked_rem(count).unwrap_or(0);
            rest = rest.checked_div(count).unwrap_or(0);
        }
        scaled.first_mut().into_iter().for_each(|s| *s = rest);
        scaled
    }

    /// First element of a chunk.
    pub(crate) fn origin(&self, scaled: &[u64]) -> Option<Vec<u64>> {
        scaled.iter().zip(&self.chunk_dims).map(|(&s, &c)| s.checked_mul(c)).collect()
    }

    /// True if the chunk extends past `shape`.
    pub(crate) fn is_edge_of(&self, scaled: &[u64], shape: &[u64]) -> bool {
        let past = |((&s, &n), &c): ((&u64, &u64), &u64)| s.saturating_mul(c).saturating_add(c) > n;
        scaled.iter().zip(shape).zip(&self.chunk_dims).any(past)
    }

    /// Calls `f` with the bytes of the chunk that lie past `shape` and in `window`, bytes of the
    /// chunk, ascending.
    pub(crate) fn bytes_past(
        &self,
        scaled: &[u64],
        shape: &[u64],
        window: Range<u64>,
        f: &mut dyn FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let kept = |((&s, &n), &c): ((&u64, &u64), &u64)| n.saturating_sub(s.saturating_mul(c)).min(c);
        let kept: Vec<u64> = scaled.iter().zip(shape).zip(&self.chunk_dims).map(kept).collect();
        let Some(last) = kept.iter().zip(&self.chunk_dims).rposition(|(kept, c)| kept < c) else { return Ok(()) };
        let mut strides = vec![self.element_size; self.rank()];
        for i in (1..self.rank()).rev() {
            let stride = strides.get(i).zip(self.chunk_dims.get(i)).map_or(0, |(n, c)| n.saturating_mul(*c));
            strides.get_mut(i.saturating_sub(1)).into_iter().for_each(|s| *s = stride);
        }
        let dims: Vec<PastDimension> = kept
            .iter()
            .zip(&self.chunk_dims)
            .zip(&strides)
            .take(last.saturating_add(1))
            .map(|((&kept, &count), &stride)| PastDimension { kept, count, stride })
            .collect();
        past(&dims, 0, &window, f)
    }

    /// The chunks that a box of `count` elements from `start` intersects. `None`: the box is empty.
    /// Errors: a box outside the current extent.
    pub(crate) fn range(&self, start: &[u64], count: &[u64]) -> Result<Option<ChunkRange>> {
        let outside =
            || Error::corrupt(NAME, Address::UNDEF, format!("{count:?} elements from {start:?} exceed the extent {:?}", self.shape));
        if start.len() != self.rank() || count.len() != self.rank() {
            return Err(outside());
        }
        let mut range = ChunkRange { first: Vec::new(), last: Vec::new() };
        let mut empty = false;
        for (((&s, &n), &shape), &c) in start.iter().zip(count).zip(&self.shape).zip(&self.chunk_dims) {
            let end = s.checked_add(n).filter(|&end| end <= shape).ok_or_else(outside)?;
            empty |= n == 0;
            range.first.push(s / c.max(1));
            range.last.push(end.saturating_sub(1) / c.max(1));
        }
        Ok((!empty).then_some(range))
    }
}

impl ChunkRange {
    /// The scaled offsets of every chunk of the box in row-major order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Vec<u64>> + '_ {
        self.iter_from(&self.first)
    }

    /// The scaled offsets of the chunks of the box in row-major order, from the chunk `from` on,
    /// which lies in it.
    pub(crate) fn iter_from(&self, from: &[u64]) -> impl Iterator<Item = Vec<u64>> + '_ {
        let mut next = Some(from.to_vec());
        std::iter::from_fn(move || {
            let current = next.take()?;
            next = self.successor(&current);
            Some(current)
        })
    }

    fn successor(&self, scaled: &[u64]) -> Option<Vec<u64>> {
        let mut next = scaled.to_vec();
        for ((n, &first), &last) in next.iter_mut().zip(&self.first).zip(&self.last).rev() {
            if *n < last {
                *n = n.saturating_add(1);
                return Some(next);
            }
            *n = first;
        }
        None
    }
}

/// A dimension of a chunk that extends past an extent.
struct PastDimension {
    /// Coordinates within the extent.
    kept: u64,
    /// Coordinates of the chunk.
    count: u64,
    /// Bytes from one to the next.
    stride: u64,
}

/// Calls `f` with the bytes past the extent of the part of a chunk that begins at byte `base` and
/// has these dimensions, at most as many as the rank.
fn past(dims: &[PastDimension], base: u64, window: &Range<u64>, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    let Some((dim, inner)) = dims.split_first() else { return Ok(()) };
    let at = |n: u64| base.saturating_add(n.saturating_mul(dim.stride));
    if !inner.is_empty() {
        let first = window.start.saturating_sub(base).checked_div(dim.stride).unwrap_or(0);
        let end = window.end.saturating_sub(base).div_ceil(dim.stride.max(1));
        for n in first..end.min(dim.kept) {
            past(inner, at(n), window, f)?;
        }
    }
    let run = at(dim.kept).max(window.start)..at(dim.count).min(window.end);
    if run.start < run.end { f(run) } else { Ok(()) }
}

fn product(factors: impl Iterator<Item = u64>) -> Option<u64> {
    // A factor of 0 makes the product 0, even if the other factors overflow.
    let mut overflow = false;
    let mut n = 1u64;
    for f in factors {
        if f == 0 {
            return Some(0);
        }
        match n.checked_mul(f) {
            Some(next) => n = next,
            None => overflow = true,
        }
    }
    (!overflow).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> ChunkGrid {
        ChunkGrid::new(vec![10, 7], vec![None, Some(9)], vec![4, 3], 8).unwrap()
    }

    #[test]
    fn counts_and_numbers() {
        let g = grid();
        assert_eq!((g.counts(), g.max_counts()), (vec![3, 3], vec![None, Some(3)]));
        assert_eq!((g.total(), g.max_total(), g.chunk_bytes().unwrap()), (Some(9), None, 96));
        assert!(!g.contains(&[u64::MAX, 0]));
        let empty = ChunkGrid { shape: vec![10, 0], ..g };
        assert_eq!((empty.total(), empty.contains(&[0, 0])), (Some(0), false));
    }

    #[test]
    fn numbers_are_row_major() {
        let g = grid();
        let all = g.range(&[0, 0], &g.shape).unwrap().unwrap();
        for (n, scaled) in (0..).zip(all.iter()) {
            assert_eq!((g.number(&scaled), g.scaled(n)), (Some(n), scaled));
        }
        assert_eq!((g.scaled(9), g.number(&[u64::MAX, 0])), (vec![3, 0], None));
    }

    #[test]
    fn a_range_has_every_chunk_of_a_box() {
        let g = grid();
        let range = g.range(&[3, 2], &[6, 3]).unwrap().unwrap();
        assert_eq!((range.first.clone(), range.last.clone()), (vec![0, 0], vec![2, 1]));
        assert_eq!(range.iter().collect::<Vec<_>>(), [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]);
        assert_eq!(g.range(&[3, 3], &[0, 2]).unwrap(), None);
        assert!(g.range(&[3, 3], &[8, 2]).is_err() && g.range(&[u64::MAX, 3], &[8, 2]).is_err() && g.range(&[3], &[1]).is_err());
    }

    #[test]
    fn the_bytes_of_a_chunk_past_an_extent() {
        let g = ChunkGrid::new(vec![10, 7, 6], vec![None; 3], vec![4, 3, 2], 3).unwrap();
        for (scaled, shape) in [([2, 2, 2], [10, 7, 6]), ([0, 0, 0], [3, 2, 1]), ([0, 0, 1], [10, 7, 2]), ([1, 1, 0], [9, 9, 9])] {
            let inside = |n: u64| {
                let (element, mut rest) = ([n / 18, n / 6 % 3, n / 3 % 2], scaled.iter().zip([4, 3, 2]));
                element.iter().zip(shape).all(|(e, shape)| rest.next().is_some_and(|(s, c)| s * c + e < shape))
            };
            for window in [0..72, 5..6, 17..41, 71..72] {
                let mut got = Vec::new();
                g.bytes_past(&scaled, &shape, window.clone(), &mut |run| {
                    got.extend(run);
                    Ok(())
                })
                .unwrap();
                assert_eq!(got, window.filter(|n| !inside(*n)).collect::<Vec<_>>(), "{scaled:?} {shape:?}");
            }
        }
    }

    #[test]
    fn hostile_numbers() {
        let huge = ChunkGrid::new(vec![u64::MAX; 3], vec![None; 3], vec![1; 3], 1).unwrap();
        assert_eq!((huge.total(), huge.max_total()), (None, None));
        assert!(ChunkGrid::new(vec![1; 2], vec![None; 2], vec![1 << 32; 2], 1).is_err());
        assert!(ChunkGrid::new(vec![1], vec![None], vec![1 << 62], 8).is_err());
        assert!(ChunkGrid::new(vec![1], vec![None], vec![0], 8).is_err());
        assert!(ChunkGrid::new(vec![2], vec![Some(1)], vec![1], 8).is_err());
        assert!(ChunkGrid::new(vec![], vec![], vec![], 8).is_err());
        assert!(ChunkGrid::new(vec![1; 33], vec![None; 33], vec![1; 33], 8).is_err());
        let half = ChunkGrid::new(vec![u64::MAX], vec![None], vec![1 << 63], 1).unwrap();
        assert_eq!((half.counts(), half.contains(&[1]), half.contains(&[2])), (vec![2], true, false));
    }
}
