//! Writes to one dataset by the elements that they supply.
//!
//! A write supplies blocks of elements. Blocks are sorted by the linear number of their first
//! element; a tree of the largest ends lets a lookup skip blocks that end before the range asked
//! for. A lookup costs O(log blocks) and what intersects the range.

use crate::base::{Address, Error, Result};
use std::ops::Range;

/// Blocks below one node of the tree of ends.
const FANOUT: usize = 64;

/// Where a write is, in the order in which writes replace each other.
pub(super) type Order = (u32, u64, u64);

/// Stored form of a write's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// The elements, in the order of the blocks.
    Plain,
    /// One zlib stream of them.
    Deflated,
    /// They cannot be decoded.
    Broken(Box<Error>),
}

/// One write to a dataset.
#[derive(Debug, Clone)]
pub(super) struct Write {
    /// Later writes replace elements of earlier ones.
    pub(super) order: Order,
    /// Number of the log file.
    pub(super) file: usize,
    /// First byte of the stored elements.
    pub(super) address: Address,
    /// Bytes stored.
    pub(super) stored_bytes: u64,
    /// Elements of all blocks.
    pub(super) elements: u64,
    pub(super) stored: Stored,
}

/// Elements of a range that one write supplies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Linear numbers of the elements.
    pub(super) elements: Range<u64>,
    /// Number of the write.
    pub(super) write: usize,
    /// Number of the first element within the write.
    pub(super) first: u64,
}

/// Writes of one dataset. Elements have linear numbers: row-major in the extent.
#[derive(Debug, Default)]
pub(super) struct BlockIndex {
    dims: Vec<u64>,
    /// Elements below one step of each dimension.
    strides: Vec<u64>,
    pub(super) writes: Vec<Write>,
    /// Blocks, by their first element.
    blocks: Vec<Block>,
    /// Start and count per dimension of each block, in the order of insertion.
    coordinates: Vec<u64>,
    /// First level: end of each block. Further levels: the largest of [`FANOUT`] below.
    ends: Vec<Vec<u64>>,
    /// Some blocks have elements beyond the extent.
    pub(super) is_clipped: bool,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Linear number of its first element.
    first: u64,
    /// Linear number after its last element.
    end: u64,
    write: u32,
    /// Number of its first element within the write.
    offset: u64,
    /// Its place in `coordinates`, blocks.
    at: usize,
}

impl BlockIndex {
    /// An index without writes of a dataset of `dims`, whose elements are fewer than 2^64.
    pub(super) fn new(dims: &[u64]) -> Self {
        let mut strides = vec![1u64; dims.len()];
        for i in (1..dims.len()).rev() {
            let below = strides.get(i).copied().unwrap_or(1).saturating_mul(dims.get(i).copied().unwrap_or(1));
            if let Some(stride) = i.checked_sub(1).and_then(|i| strides.get_mut(i)) {
                *stride = below;
            }
        }
        BlockIndex { dims: dims.to_vec(), strides, ..BlockIndex::default() }
    }

    /// Adds a write with `starts` and `counts` of its blocks, a number per dimension each. Elements
    /// beyond the extent are left out.
    pub(super) fn add(&mut self, write: Write, starts: &[u64], counts: &[u64]) -> Result<()> {
        let Ok(number) = u32::try_from(self.writes.len()) else {
            return Err(Error::limit("log", write.address, "2^32 writes to one dataset"));
        };
        self.writes.push(write);
        let rank = self.dims.len();
        if rank == 0 {
            self.blocks.push(Block { first: 0, end: 1, write: number, offset: 0, at: 0 });
            return Ok(());
        }
        let mut offset = 0u64;
        for (start, count) in starts.chunks_exact(rank).zip(counts.chunks_exact(rank)) {
            self.add_block(number, offset, start, count);
            offset = offset.saturating_add(count.iter().fold(1, |n, c| n.saturating_mul(*c)));
        }
        Ok(())
    }

    fn add_block(&mut self, write: u32, offset: u64, start: &[u64], count: &[u64]) {
        self.is_clipped |= start.iter().zip(count).zip(&self.dims).any(|((s, c), d)| s.saturating_add(*c) > *d);
        let inside = start.iter().zip(count).zip(&self.dims).all(|((s, c), d)| *c > 0 && s < d);
        if !inside {
            return;
        }
        let linear = |at: &dyn Fn(u64, u64, u64) -> u64| {
            let terms = start.iter().zip(count).zip(self.dims.iter().zip(&self.strides));
            terms.map(|((s, c), (d, stride))| at(*s, *c, *d).saturating_mul(*stride)).fold(0u64, u64::saturating_add)
        };
        let first = linear(&|s, _, _| s);
        let last = linear(&|s, c, d| s.saturating_add(c).min(d).saturating_sub(1));
        let at = self.coordinates.len() / self.dims.len().saturating_mul(2).max(1);
        self.coordinates.extend(start.iter().chain(count));
        self.blocks.push(Block { first, end: last.saturating_add(1), write, offset, at });
    }

    /// Completes the index after the last write.
    pub(super) fn finish(&mut self) {
        self.blocks.sort_unstable_by_key(|b| b.first);
        let mut level: Vec<u64> = self.blocks.iter().map(|b| b.end).collect();
        self.ends.clear();
        while level.len() > 1 {
            let above = level.chunks(FANOUT).map(|ends| ends.iter().copied().max().unwrap_or(0)).collect();
            self.ends.push(std::mem::replace(&mut level, above));
        }
        self.ends.push(level);
    }

    /// Calls `f` with the blocks whose first and last element enclose some of `range`.
    fn each(&self, range: &Range<u64>, f: &mut dyn FnMut(&Block)) {
        let upper = self.blocks.partition_point(|b| b.first < range.end);
        let top = self.ends.len().saturating_sub(1);
        self.descend(top, 0..self.ends.get(top).map_or(0, Vec::len), upper, range.start, f);
    }

    /// Visits the entries `part` of a level of `ends`, as far as blocks are below `upper` and end
    /// after `start`. Levels are as deep as the tree: at most 11.
    fn descend(&self, level: usize, part: Range<usize>, upper: usize, start: u64, f: &mut dyn FnMut(&Block)) {
        let width = FANOUT.saturating_pow(u32::try_from(level).unwrap_or(u32::MAX));
        for i in part {
            if i.saturating_mul(width) >= upper {
                break;
            }
            if self.ends.get(level).and_then(|ends| ends.get(i)).is_none_or(|end| *end <= start) {
                continue;
            }
            match level.checked_sub(1) {
                Some(below) => {
                    let len = self.ends.get(below).map_or(0, Vec::len);
                    let from = i.saturating_mul(FANOUT);
                    self.descend(below, from..from.saturating_add(FANOUT).min(len), upper, start, f);
                }
                None => self.blocks.get(i).into_iter().for_each(&mut *f),
            }
        }
    }

    /// Calls `f` with the runs of a block in `range`: linear numbers, and the number of the first
    /// element within the write. Runs ascend; `f` ends the walk by false.
    fn runs(&self, block: &Block, range: &Range<u64>, f: &mut dyn FnMut(Range<u64>, u64) -> bool) {
        let rank = self.dims.len();
        let from = block.at.saturating_mul(rank).saturating_mul(2);
        let (start, count) = match self.coordinates.get(from..from.saturating_add(rank.saturating_mul(2))) {
            Some(both) if rank > 0 => both.split_at(rank),
            _ => {
                f(0..1, block.offset);
                return;
            }
        };
        let rows = Rows::new(&self.dims, &self.strides, start, count);
        // The first row that ends after the start of the range.
        let (mut low, mut high) = (0u64, rows.len);
        while low < high {
            let middle = low.saturating_add(high.saturating_sub(low) / 2);
            if rows.at(middle).0.saturating_add(rows.run) <= range.start { low = middle.saturating_add(1) } else { high = middle }
        }
        for row in low..rows.len {
            let (first, within) = rows.at(row);
            if first >= range.end {
                break;
            }
            let run = first.max(range.start)..first.saturating_add(rows.run).min(range.end);
            let skipped = run.start.saturating_sub(first);
            if !f(run, block.offset.saturating_add(within).saturating_add(skipped)) {
                break;
            }
        }
    }

    /// What supplies the elements of `range`: pieces of writes, and ranges that no write supplies.
    pub(super) fn suppliers(&self, range: Range<u64>) -> (Vec<Piece>, Vec<Range<u64>>) {
        let mut blocks: Vec<&Block> = Vec::new();
        let mut found: Vec<Block> = Vec::new();
        self.each(&range, &mut |b| found.push(*b));
        blocks.extend(found.iter());
        blocks.sort_unstable_by_key(|b| std::cmp::Reverse(self.writes.get(b.write as usize).map(|w| w.order)));
        let (mut gaps, mut pieces) = (Gaps(vec![range.clone()]), Vec::new());
        for block in blocks {
            self.runs(block, &range, &mut |run, first| {
                let begin = run.start;
                gaps.take(&run, &mut |part| {
                    let first = first.saturating_add(part.start.saturating_sub(begin));
                    pieces.push(Piece { elements: part, write: block.write as usize, first });
                });
                !gaps.0.is_empty()
            });
            if gaps.0.is_empty() {
                break;
            }
        }
        pieces.sort_unstable_by_key(|p| p.elements.start);
        (pieces, gaps.0)
    }

    /// The first supplied element at or after `at`.
    pub(super) fn next_supplied(&self, at: u64) -> Option<u64> {
        let after = self.blocks.partition_point(|b| b.first < at);
        let mut next = self.blocks.get(after).map(|b| b.first);
        self.each(&(at..at.saturating_add(1)), &mut |block| {
            self.runs(block, &(at..next.unwrap_or(u64::MAX)), &mut |run, _| {
                next = Some(next.map_or(run.start, |n| n.min(run.start)));
                false
            });
        });
        next
    }

    /// The first element at or after `at` that no write supplies; it may be that after the last.
    pub(super) fn next_unsupplied(&self, at: u64) -> u64 {
        let mut at = at;
        loop {
            let mut end = at;
            self.each(&(at..at.saturating_add(1)), &mut |block| {
                self.runs(block, &(at..u64::MAX), &mut |run, _| {
                    end = end.max(if run.start == at { run.end } else { at });
                    false
                });
            });
            if end == at {
                return at;
            }
            at = end;
        }
    }

    /// Calls `f` with the runs of all blocks, in the order in which writes replace each other:
    /// number of the write, linear numbers, number of the first element within the write. Errors:
    /// there are more than `most` runs.
    pub(super) fn replay(&self, most: u64, f: &mut dyn FnMut(usize, Range<u64>, u64)) -> Result<()> {
        let mut blocks: Vec<&Block> = self.blocks.iter().collect();
        blocks.sort_by_key(|b| (self.writes.get(b.write as usize).map(|w| w.order), b.offset));
        let mut runs = 0u64;
        for block in blocks {
            self.runs(block, &(0..u64::MAX), &mut |run, first| {
                runs = runs.saturating_add(1);
                f(block.write as usize, run, first);
                runs <= most
            });
            if runs > most {
                return Err(Error::limit("log", Address::UNDEF, format!("more than {most} rows of blocks of one dataset")));
            }
        }
        Ok(())
    }

    /// Bytes that the writes take.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.writes.iter().map(|w| w.stored_bytes).fold(0, u64::saturating_add)
    }
}

/// The rows of a block: runs of elements that are next to each other in the dataset and in the
/// write.
pub(super) struct Rows<'a> {
    start: &'a [u64],
    /// Dimensions that differ from row to row: extent within the dataset, elements of the write
    /// below one step, elements of the dataset below one step.
    outer: Vec<(u64, u64, u64)>,
    /// Linear number of the first element.
    first: u64,
    /// Elements of a row.
    pub(super) run: u64,
    /// Number of rows.
    pub(super) len: u64,
}

impl<'a> Rows<'a> {
    pub(super) fn new(dims: &[u64], strides: &[u64], start: &'a [u64], count: &[u64]) -> Self {
        let cut = |i: usize| {
            let (d, s, c) = (dims.get(i), start.get(i), count.get(i));
            c.copied().unwrap_or(1).min(d.copied().unwrap_or(1).saturating_sub(s.copied().unwrap_or(0)))
        };
        let mut inner = dims.len().saturating_sub(1);
        while inner > 0 && Some(&cut(inner)) == dims.get(inner) && Some(&cut(inner)) == count.get(inner) {
            inner = inner.saturating_sub(1);
        }
        let stride = |i: usize| strides.get(i).copied().unwrap_or(1);
        let mut step = count.get(inner..).unwrap_or_default().iter().fold(1, |n: u64, c| n.saturating_mul(*c));
        let mut outer = Vec::with_capacity(inner);
        for i in (0..inner).rev() {
            outer.push((cut(i), step, stride(i)));
            step = step.saturating_mul(count.get(i).copied().unwrap_or(1));
        }
        let first = start.iter().zip(strides).map(|(s, n)| s.saturating_mul(*n)).fold(0, u64::saturating_add);
        let len = outer.iter().fold(1, |n: u64, (extent, _, _)| n.saturating_mul(*extent));
        Rows { start, outer, first, run: cut(inner).saturating_mul(stride(inner)), len }
    }

    /// Linear number of the first element of a row, and its number within the block.
    pub(super) fn at(&self, row: u64) -> (u64, u64) {
        debug_assert!(self.outer.len() < self.start.len().max(1));
        let (mut rest, mut linear, mut within) = (row, self.first, 0u64);
        for (extent, step, stride) in &self.outer {
            let x = rest.checked_rem(*extent).unwrap_or(0);
            rest = rest.checked_div(*extent).unwrap_or(0);
            linear = linear.saturating_add(x.saturating_mul(*stride));
            within = within.saturating_add(x.saturating_mul(*step));
        }
        (linear, within)
    }
}

/// Ranges in ascending order that are not supplied yet.
struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// Removes `range`; calls `f` with the parts that were there.
    fn take(&mut self, range: &Range<u64>, f: &mut dyn FnMut(Range<u64>)) {
        let from = self.0.partition_point(|g| g.end <= range.start);
        let to = from.saturating_add(self.0.get(from..).unwrap_or_default().partition_point(|g| g.start < range.end));
        let mut rest = Vec::new();
        for gap in self.0.get(from..to).unwrap_or_default() {
            f(gap.start.max(range.start)..gap.end.min(range.end));
            rest.extend((gap.start < range.start).then_some(gap.start..range.start));
            rest.extend((gap.end > range.end).then_some(range.end..gap.end));
        }
        self.0.splice(from..to, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(order: u64) -> Write {
        Write { order: (0, 0, order), file: 0, address: Address(0), stored_bytes: 1, elements: 1, stored: Stored::Plain }
    }

    /// Writes as boxes, and what an array filled write by write holds: number of the write and of
    /// the element within it.
    fn model(dims: &[u64], boxes: &[(Vec<u64>, Vec<u64>)]) -> Vec<Option<(usize, u64)>> {
        let total: u64 = dims.iter().product();
        let mut cells = vec![None; total as usize];
        for (w, (start, count)) in boxes.iter().enumerate() {
            for n in 0..count.iter().product::<u64>() {
                let (mut rest, mut linear, mut stride, mut inside) = (n, 0, 1, true);
                for i in (0..dims.len()).rev() {
                    let at = start[i] + rest % count[i];
                    rest /= count[i];
                    inside &= at < dims[i];
                    linear += at * stride;
                    stride *= dims[i];
                }
                if inside {
                    cells[linear as usize] = Some((w, n));
                }
            }
        }
        cells
    }

    fn cases() -> impl Strategy<Value = (Vec<u64>, Vec<(Vec<u64>, Vec<u64>)>)> {
        prop::collection::vec(1u64..7, 1..4).prop_flat_map(|dims| {
            let one = dims.iter().map(|d| (0..*d, 1..*d + 2)).collect::<Vec<_>>();
            (Just(dims), prop::collection::vec(one.prop_map(|v| v.into_iter().unzip()), 0..90))
        })
    }

    proptest! {
        #[test]
        fn lookups_agree_with_an_array((dims, boxes) in cases(), from in 0u64..300, len in 1u64..300) {
            let cells = model(&dims, &boxes);
            let mut index = BlockIndex::new(&dims);
            for (i, (start, count)) in boxes.iter().enumerate() {
                index.add(write(i as u64), start, count).unwrap();
            }
            index.finish();
            let total = cells.len() as u64;
            let range = from.min(total)..(from + len).min(total);
            let (pieces, gaps) = index.suppliers(range.clone());
            let mut seen = vec![None; cells.len()];
            for p in &pieces {
                for (i, e) in p.elements.clone().enumerate() {
                    prop_assert!(seen[e as usize].replace((p.write, p.first + i as u64)).is_none());
                }
            }
            for e in 0..total {
                let expected = if range.contains(&e) { cells[e as usize] } else { None };
                prop_assert_eq!(seen[e as usize], expected);
                prop_assert_eq!(gaps.iter().any(|g| g.contains(&e)), range.contains(&e) && expected.is_none());
            }
            let next = |wanted: bool| (range.start..total).find(|e| cells[*e as usize].is_some() == wanted);
            prop_assert_eq!(index.next_supplied(range.start), next(true));
            prop_assert_eq!(index.next_unsupplied(range.start).min(total), next(false).unwrap_or(total));
        }
    }

    #[test]
    fn a_scalar_has_one_element() {
        let mut index = BlockIndex::new(&[]);
        index.finish();
        assert_eq!((index.next_supplied(0), index.next_unsupplied(0)), (None, 0));
        index.add(write(0), &[], &[]).unwrap();
        index.add(write(1), &[], &[]).unwrap();
        index.finish();
        assert_eq!(index.suppliers(0..1).0, [Piece { elements: 0..1, write: 1, first: 0 }]);
        assert_eq!((index.next_supplied(0), index.next_unsupplied(0)), (Some(0), 1));
    }
}
