//! The grid of chunks that covers a dataset's extent.
//!
//! A chunk is named by its *scaled* offsets: its first element's offsets divided by the chunk
//! dimensions. Chunks at the upper edges may reach beyond the extent ("partial edge chunks"); they
//! are stored in full size. All numbers of elements fit 64 bits, products of them need not.

use crate::base::{Address, Error, Result, limits};

const NAME: &str = "chunk grid";

/// Shape of a chunked dataset and of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkGrid {
    /// Current extent, elements.
    pub shape: Vec<u64>,
    /// Greatest extent, elements; `None` is unlimited.
    pub max_shape: Vec<Option<u64>>,
    /// Chunk dimensions, elements; none is 0.
    pub chunk_dims: Vec<u64>,
    /// Bytes of an element.
    pub element_size: u64,
}

/// Box of chunks: scaled offsets `first..=last` in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRange {
    /// Lowest scaled offsets.
    pub first: Vec<u64>,
    /// Highest scaled offsets, inclusive.
    pub last: Vec<u64>,
}

/// What a box of elements and one chunk have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// First common element, from the chunk's first element.
    pub in_chunk: Vec<u64>,
    /// First common element, from the box's first element.
    pub in_box: Vec<u64>,
    /// Common elements in each dimension; none is 0.
    pub count: Vec<u64>,
}

impl ChunkGrid {
    /// A grid. Errors: ranks that differ or exceed the limit, a chunk or element size of 0, a chunk of 2^64
    /// bytes, an extent beyond the greatest one.
    pub fn new(shape: Vec<u64>, max_shape: Vec<Option<u64>>, chunk_dims: Vec<u64>, element_size: u64) -> Result<Self> {
        let bad = |detail: String| Err(Error::corrupt(NAME, Address::UNDEF, detail));
        let rank = shape.len();
        if rank == 0 || rank > limits::RANK_MAX || max_shape.len() != rank || chunk_dims.len() != rank {
            return bad(format!("rank {rank}, {} greatest dimensions, {} chunk dimensions", max_shape.len(), chunk_dims.len()));
        }
        if chunk_dims.contains(&0) || element_size == 0 {
            return bad("a chunk dimension or the element size is 0".into());
        }
        if shape.iter().zip(&max_shape).any(|(&n, max)| max.is_some_and(|max| n > max)) {
            return bad(format!("extent {shape:?} exceeds the greatest extent {max_shape:?}"));
        }
        let grid = ChunkGrid { shape, max_shape, chunk_dims, element_size };
        grid.chunk_bytes()?;
        Ok(grid)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Elements of a whole chunk.
    pub fn chunk_elements(&self) -> Result<u64> {
        let n = self.chunk_dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        n.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "a chunk has 2^64 elements or more"))
    }

    /// Bytes of a whole chunk before filters.
    pub fn chunk_bytes(&self) -> Result<u64> {
        let n = self.chunk_elements()?.checked_mul(self.element_size);
        n.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "a chunk has 2^64 bytes or more"))
    }

    /// Chunks in each dimension of the current extent.
    pub fn counts(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.chunk_dims).map(|(&n, &c)| n.div_ceil(c.max(1))).collect()
    }

    /// Chunks in each dimension of the greatest extent; `None` is unlimited.
    pub fn max_counts(&self) -> Vec<Option<u64>> {
        self.max_shape.iter().zip(&self.chunk_dims).map(|(&n, &c)| n.map(|n| n.div_ceil(c.max(1)))).collect()
    }

    /// Chunks of the current extent; `None` for 2^64 or more.
    pub fn total(&self) -> Option<u64> {
        product(self.counts().into_iter())
    }

    /// Chunks of the greatest extent; `None` when unlimited or for 2^64 or more.
    pub fn max_total(&self) -> Option<u64> {
        product(self.max_counts().into_iter().collect::<Option<Vec<u64>>>()?.into_iter())
    }

    /// Does the chunk hold any element of the current extent?
    pub fn contains(&self, scaled: &[u64]) -> bool {
        let inside = |((&s, &n), &c): ((&u64, &u64), &u64)| s.checked_mul(c).is_some_and(|first| first < n);
        scaled.len() == self.rank() && scaled.iter().zip(&self.shape).zip(&self.chunk_dims).all(inside)
    }

    /// Row-major number of a chunk among the current ones; `None` outside.
    pub fn linear(&self, scaled: &[u64]) -> Option<u64> {
        if !self.contains(scaled) {
            return None;
        }
        let step = |n: u64, (&s, count): (&u64, u64)| n.checked_mul(count)?.checked_add(s);
        scaled.iter().zip(self.counts()).try_fold(0u64, step)
    }

    /// Scaled offsets of chunk `linear` in row-major order; `None` beyond the last.
    pub fn scaled(&self, linear: u64) -> Option<Vec<u64>> {
        let mut rest = linear;
        let mut scaled = Vec::with_capacity(self.rank());
        for count in self.counts().into_iter().rev() {
            scaled.push(rest.checked_rem(count)?);
            rest = rest.checked_div(count)?;
        }
        scaled.reverse();
        (rest == 0).then_some(scaled)
    }

    /// First element of a chunk.
    pub fn origin(&self, scaled: &[u64]) -> Option<Vec<u64>> {
        scaled.iter().zip(&self.chunk_dims).map(|(&s, &c)| s.checked_mul(c)).collect()
    }

    /// Elements of the chunk that lie in the extent, in each dimension; `None` when it lies outside.
    pub fn clipped(&self, scaled: &[u64]) -> Option<Vec<u64>> {
        if !self.contains(scaled) {
            return None;
        }
        let clip = |((first, &n), &c): ((u64, &u64), &u64)| n.saturating_sub(first).min(c);
        Some(self.origin(scaled)?.into_iter().zip(&self.shape).zip(&self.chunk_dims).map(clip).collect())
    }

    /// Does the chunk reach beyond the current extent (or lie outside)? Such chunks may be stored
    /// without filters: `DONT_FILTER_PARTIAL_EDGE_CHUNKS`.
    pub fn is_edge_chunk(&self, scaled: &[u64]) -> bool {
        self.clipped(scaled).is_none_or(|clipped| clipped != self.chunk_dims)
    }

    /// The chunks that a box of `count` elements from `start` touches. `None`: the box is empty.
    /// Errors: it does not lie in the current extent.
    pub fn range(&self, start: &[u64], count: &[u64]) -> Result<Option<ChunkRange>> {
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

    /// What the chunk and a box of `count` elements from `start` have in common, if anything.
    pub fn overlap(&self, scaled: &[u64], start: &[u64], count: &[u64]) -> Option<Overlap> {
        let clipped = self.clipped(scaled)?;
        let mut o = Overlap { in_chunk: Vec::new(), in_box: Vec::new(), count: Vec::new() };
        for (((origin, len), &s), &n) in self.origin(scaled)?.into_iter().zip(clipped).zip(start).zip(count) {
            let from = origin.max(s);
            let to = origin.checked_add(len)?.min(s.saturating_add(n));
            o.in_chunk.push(from.saturating_sub(origin));
            o.in_box.push(from.saturating_sub(s));
            o.count.push(to.checked_sub(from).filter(|&n| n > 0)?);
        }
        (o.count.len() == self.rank()).then_some(o)
    }
}

impl ChunkRange {
    /// Number of chunks; `None` for 2^64 or more.
    pub fn total(&self) -> Option<u64> {
        product(self.first.iter().zip(&self.last).map(|(&a, &b)| b.saturating_sub(a).saturating_add(1)))
    }

    /// The scaled offsets of every chunk of the box in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = Vec<u64>> + '_ {
        let mut next = Some(self.first.clone());
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

fn product(factors: impl Iterator<Item = u64>) -> Option<u64> {
    // A factor 0 rules, even where the others overflow.
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
        for i in 0..9 {
            assert_eq!(g.linear(&g.scaled(i).unwrap()), Some(i));
        }
        assert_eq!((g.scaled(9), g.linear(&[0, 3]), g.linear(&[0]), g.scaled(5)), (None, None, None, Some(vec![1, 2])));
        assert!(!g.contains(&[u64::MAX, 0]));
        let empty = ChunkGrid { shape: vec![10, 0], ..g };
        assert_eq!((empty.total(), empty.scaled(0), empty.contains(&[0, 0])), (Some(0), None, false));
    }

    #[test]
    fn edges() {
        let g = grid();
        assert!(!g.is_edge_chunk(&[1, 1]) && g.is_edge_chunk(&[2, 0]) && g.is_edge_chunk(&[0, 2]) && g.is_edge_chunk(&[9, 9]));
        assert_eq!(g.clipped(&[2, 2]), Some(vec![2, 1]));
    }

    #[test]
    fn overlaps_cover_a_box_exactly_once() {
        let g = grid();
        let (start, count) = ([3u64, 2], [6u64, 5]);
        let range = g.range(&start, &count).unwrap().unwrap();
        assert_eq!((range.first.clone(), range.last.clone(), range.total()), (vec![0, 0], vec![2, 2], Some(9)));
        let mut seen = vec![0; 30];
        for scaled in range.iter() {
            let o = g.overlap(&scaled, &start, &count).unwrap();
            for i in 0..o.count[0] {
                for j in 0..o.count[1] {
                    assert_eq!(scaled[0] * 4 + o.in_chunk[0] + i, start[0] + o.in_box[0] + i);
                    assert_eq!(scaled[1] * 3 + o.in_chunk[1] + j, start[1] + o.in_box[1] + j);
                    seen[((o.in_box[0] + i) * 5 + o.in_box[1] + j) as usize] += 1;
                }
            }
        }
        assert_eq!(seen, vec![1; 30]);
        assert_eq!(g.overlap(&[0, 0], &[4, 0], &[2, 2]), None);
        assert_eq!(g.range(&[3, 3], &[0, 2]).unwrap(), None);
        assert!(g.range(&[3, 3], &[8, 2]).is_err() && g.range(&[u64::MAX, 3], &[8, 2]).is_err() && g.range(&[3], &[1]).is_err());
    }

    #[test]
    fn hostile_numbers() {
        let huge = ChunkGrid::new(vec![u64::MAX; 3], vec![None; 3], vec![1; 3], 1).unwrap();
        assert_eq!((huge.total(), huge.linear(&[1, 1, 1]), huge.max_total()), (None, None, None));
        assert!(ChunkGrid::new(vec![1; 2], vec![None; 2], vec![1 << 32; 2], 1).is_err());
        assert!(ChunkGrid::new(vec![1], vec![None], vec![1 << 62], 8).is_err());
        assert!(ChunkGrid::new(vec![1], vec![None], vec![0], 8).is_err());
        assert!(ChunkGrid::new(vec![2], vec![Some(1)], vec![1], 8).is_err());
        assert!(ChunkGrid::new(vec![], vec![], vec![], 8).is_err());
        assert!(ChunkGrid::new(vec![1; 33], vec![None; 33], vec![1; 33], 8).is_err());
        let half = ChunkGrid::new(vec![u64::MAX], vec![None], vec![1 << 63], 1).unwrap();
        assert_eq!((half.counts(), half.clipped(&[1]), half.clipped(&[2])), (vec![2], Some(vec![(1 << 63) - 1]), None));
    }
}
