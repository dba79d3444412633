//! The union of many blocks as a tree of coordinate spans, one level per dimension.
//!
//! ```text
//! list (dimension 0):  [low, len | before | down] [low, len | before | down] ... ascending,
//! disjoint
//!                                           |
//! list (dimension 1):  [low, len | before | -] ...      no `down` in the last dimension
//! ```
//!
//! The order of elements is row-major over the union: the order in which libhdf5 iterates an
//! irregular hyperslab, whatever the order of its blocks. Equal lists are stored once, as libhdf5
//! shares its span trees (H5Shyper.c).

use super::budget::Budget;
use super::{Address, Error, Result, limits};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

const STRUCTURE: &str = "hyperslab selection";
/// Budget steps charged per stored span in addition to the sweep, so that the budget bounds memory
/// too.
const SPAN_STEPS: u64 = 16;

/// A range of coordinates that all share one list in the next dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// First coordinate.
    pub low: u64,
    /// Number of coordinates.
    pub len: u64,
    /// Elements selected by earlier spans of the same list.
    pub before: u64,
    /// List of the next dimension; `None` in the last one.
    pub down: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct List {
    first: u32,
    len: u32,
    elements: u64,
}

/// An irregular hyperslab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanTree {
    rank: usize,
    spans: Vec<Span>,
    lists: Vec<List>,
    root: u32,
    low: Vec<u64>,
    high: Vec<u64>,
}

impl SpanTree {
    /// Builds the union of blocks: `corners` holds `first[rank], last[rank]` (inclusive) per block.
    pub fn new(rank: usize, corners: &[u64], budget: &Budget) -> Result<Self> {
        let corrupt = |detail| Error::corrupt(STRUCTURE, Address::UNDEF, detail);
        let width = rank.checked_mul(2).filter(|_| rank > 0 && rank <= limits::RANK_MAX).ok_or_else(|| corrupt("its rank"))?;
        if corners.is_empty() || !corners.len().is_multiple_of(width) {
            return Err(corrupt("no blocks or half a block"));
        }
        let (mut low, mut high) = (vec![u64::MAX; rank], vec![0; rank]);
        for block in corners.chunks_exact(width) {
            let (first, last) = block.split_at(rank);
            for ((&f, &l), (low, high)) in first.iter().zip(last).zip(low.iter_mut().zip(high.iter_mut())) {
                if f > l || l >= u64::MAX - 1 {
                    return Err(corrupt("a block ends before it begins or past 2^64"));
                }
                *low = f.min(*low);
                *high = l.max(*high);
            }
        }
        let n = corners.len().checked_div(width).and_then(|n| u32::try_from(n).ok());
        let n = n.ok_or_else(|| Error::limit(STRUCTURE, Address::UNDEF, "number of blocks"))?;
        let mut builder =
            Builder { rank, corners, budget, spans: Vec::new(), lists: Vec::new(), known: HashMap::new(), hasher: RandomState::new() };
        let root = builder.list(0, &(0..n).collect::<Vec<u32>>())?;
        let (spans, lists) = (builder.spans, builder.lists);
        Ok(SpanTree { rank, spans, lists, root, low, high })
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Lowest coordinate per dimension.
    pub fn low(&self) -> &[u64] {
        &self.low
    }

    /// Highest coordinate per dimension.
    pub fn high(&self) -> &[u64] {
        &self.high
    }

    /// The list of dimension 0.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Elements selected by `list` and the lists below it.
    pub fn elements(&self, list: u32) -> u64 {
        self.list(list).map_or(0, |l| l.elements)
    }

    fn list(&self, list: u32) -> Option<&List> {
        self.lists.get(usize::try_from(list).ok()?)
    }

    fn spans(&self, list: u32) -> &[Span] {
        let range = self.list(list).map(|l| l.first as usize..(l.first as usize).saturating_add(l.len as usize));
        range.and_then(|r| self.spans.get(r)).unwrap_or_default()
    }

    /// The `k`-th span of a list.
    pub fn span(&self, list: u32, k: u64) -> Option<Span> {
        self.spans(list).get(usize::try_from(k).ok()?).copied()
    }

    /// Index of the first span of a list that ends after coordinate `c`.
    pub fn find_coordinate(&self, list: u32, c: u64) -> u64 {
        self.spans(list).partition_point(|s| s.low.saturating_add(s.len) <= c) as u64
    }

    /// Index of the span of a list that holds its `n`-th element.
    pub fn find_ordinal(&self, list: u32, n: u64) -> u64 {
        (self.spans(list).partition_point(|s| s.before <= n) as u64).saturating_sub(1)
    }
}

struct Builder<'a> {
    rank: usize,
    corners: &'a [u64],
    budget: &'a Budget,
    spans: Vec<Span>,
    lists: Vec<List>,
    /// Hash of a list's spans -> number of that list.
    known: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Builder<'_> {
    /// First and last coordinate of `block` in dimension `level`.
    fn bounds(&self, block: u32, level: usize) -> (u64, u64) {
        let at = (block as usize).saturating_mul(self.rank).saturating_mul(2).saturating_add(level);
        let coordinate = |i: usize| self.corners.get(i).copied().unwrap_or(0);
        (coordinate(at), coordinate(at.saturating_add(self.rank)))
    }

    /// Builds the list of `blocks` for dimension `level` and below; recursion depth is the rank (at
    /// most 32).
    fn list(&mut self, level: usize, blocks: &[u32]) -> Result<u32> {
        let mut out = Vec::new();
        let mut elements = 0u64;
        self.budget.spend(blocks.len() as u64)?;
        if level.saturating_add(1) == self.rank {
            let mut ranges: Vec<(u64, u64)> = blocks.iter().map(|&b| self.bounds(b, level)).collect();
            ranges.sort_unstable();
            for (low, high) in ranges {
                self.push(&mut out, &mut elements, low, high.saturating_add(1), None)?;
            }
        } else {
            let mut order = blocks.to_vec();
            order.sort_unstable_by_key(|&b| self.bounds(b, level));
            let mut edges: Vec<u64> =
                order.iter().map(|&b| self.bounds(b, level)).flat_map(|(low, high)| [low, high.saturating_add(1)]).collect();
            edges.sort_unstable();
            edges.dedup();
            let mut waiting = order.iter().copied().peekable();
            let mut active: Vec<u32> = Vec::new();
            for pair in edges.windows(2) {
                let &[from, to] = pair else { continue };
                active.retain(|&b| self.bounds(b, level).1 >= from);
                while let Some(b) = waiting.next_if(|&b| self.bounds(b, level).0 <= from) {
                    active.push(b);
                }
                if !active.is_empty() {
                    let down = self.list(level.saturating_add(1), &active)?;
                    self.push(&mut out, &mut elements, from, to, Some(down))?;
                }
            }
        }
        self.intern(&out, elements)
    }

    /// Appends the coordinates `from..to` not covered by the last span, or extends that span.
    fn push(&mut self, out: &mut Vec<Span>, elements: &mut u64, from: u64, to: u64, down: Option<u32>) -> Result<()> {
        let overflow = || Error::limit(STRUCTURE, Address::UNDEF, "it selects 2^64 elements");
        let unit = down.map_or(1, |d| self.lists.get(d as usize).map_or(0, |l| l.elements));
        let end = out.last().map_or(0, |s| s.low.saturating_add(s.len));
        let from = from.max(end);
        let Some(len) = to.checked_sub(from).filter(|&n| n > 0) else { return Ok(()) };
        match out.last_mut() {
            Some(s) if end == from && s.down == down => s.len = s.len.saturating_add(len),
            _ => {
                self.budget.spend(SPAN_STEPS)?;
                out.push(Span { low: from, len, before: *elements, down });
            }
        }
        *elements = len.checked_mul(unit).and_then(|n| n.checked_add(*elements)).ok_or_else(overflow)?;
        Ok(())
    }

    /// Returns the number of a list with these spans: an existing one if equal, else a new one.
    fn intern(&mut self, spans: &[Span], elements: u64) -> Result<u32> {
        let hash = self.hasher.hash_one(spans);
        if let Some(&old) = self.known.get(&hash)
            && let Some(l) = self.lists.get(old as usize)
            && self.spans.get(l.first as usize..(l.first as usize).saturating_add(l.len as usize)) == Some(spans)
        {
            return Ok(old);
        }
        let number = |n: usize| u32::try_from(n).map_err(|_| Error::limit(STRUCTURE, Address::UNDEF, "number of spans"));
        let (list, first, len) = (number(self.lists.len())?, number(self.spans.len())?, number(spans.len())?);
        self.spans.extend_from_slice(spans);
        self.lists.push(List { first, len, elements });
        self.known.insert(hash, list);
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(rank: usize, corners: &[u64]) -> Result<SpanTree> {
        SpanTree::new(rank, corners, &Budget::new(1 << 20, STRUCTURE))
    }

    #[test]
    fn overlaps_count_once_and_equal_rows_merge() {
        // Rows 0..=3 x columns 1..=2, rows 2..=5 x columns 2..=4, and the first block again.
        let t = tree(2, &[0, 1, 3, 2, 2, 2, 5, 4, 0, 1, 3, 2]).unwrap();
        assert_eq!(t.elements(t.root()), 2 * 2 + 2 * 4 + 2 * 3);
        assert_eq!(t.spans(t.root()).len(), 3);
        assert_eq!((t.low(), t.high()), (&[0, 1][..], &[5, 4][..]));
        // Adjacent blocks are merged.
        let t = tree(2, &[0, 0, 1, 1, 2, 0, 2, 1, 0, 2, 2, 3]).unwrap();
        assert_eq!((t.spans(t.root()).len(), t.lists.len(), t.elements(t.root())), (1, 2, 12));
    }

    #[test]
    fn a_grid_of_points_shares_its_rows() {
        let corners: Vec<u64> = (0..40).flat_map(|y| (0..40).flat_map(move |x| [y * 2, x * 2, y * 2, x * 2])).collect();
        let t = tree(2, &corners).unwrap();
        assert_eq!((t.lists.len(), t.spans.len(), t.elements(t.root())), (2, 80, 1600));
    }

    #[test]
    fn hostile_blocks_end_in_an_error() {
        assert!(tree(0, &[]).is_err() && tree(33, &[0; 66]).is_err());
        assert!(tree(1, &[]).is_err() && tree(2, &[0, 0]).is_err() && tree(1, &[2, 1]).is_err() && tree(1, &[0, u64::MAX]).is_err());
        assert!(matches!(tree(2, &[0, 0, 1 << 40, 1 << 40]), Err(Error::Limit { .. })));
        // Nested blocks: the tree would have far more nodes than blocks.
        let nested: Vec<u64> =
            (0..60u64).flat_map(|i| std::iter::repeat_n(i, 8).chain(std::iter::repeat_n(200 - i - (i * 7 % 5), 8))).collect();
        assert!(matches!(tree(8, &nested), Err(Error::Limit { .. })));
    }
}
