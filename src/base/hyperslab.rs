//! A regular hyperslab in one dimension: `count` blocks of `block` coordinates every `stride`.
//!
//! ```text
//!         start      stride
//!           |<--------->|
//! . . . . . B B B . . . B B B . . . B B      count 3, block 3, the last one cut off ("tail" 2)
//! ```
//!
//! Source: H5Shyper.c (normalisation of `H5S_select_hyperslab`, clipping of
//! `H5S_hyper_clip_unlim`).

use super::{Address, Error, Result};

/// Value of `count` or `block` when it extends to the end of the extent.
pub const UNLIMITED: u64 = u64::MAX;

const STRUCTURE: &str = "hyperslab selection";

/// One dimension of a regular hyperslab. Unit: coordinates; `count`: blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HyperslabDim {
    /// First coordinate of the first block.
    pub start: u64,
    /// Distance between block starts.
    pub stride: u64,
    /// Number of blocks, or [`UNLIMITED`].
    pub count: u64,
    /// Coordinates in a block, or [`UNLIMITED`].
    pub block: u64,
}

impl HyperslabDim {
    /// One block of `len` coordinates from `start` on.
    pub const fn contiguous(start: u64, len: u64) -> Self {
        HyperslabDim { start, stride: 1, count: 1, block: len }
    }

    /// True when the number of blocks or the block length is unlimited.
    pub fn is_unlimited(&self) -> bool {
        self.count == UNLIMITED || self.block == UNLIMITED
    }

    /// True when nothing is selected in any extent.
    pub fn is_empty(&self) -> bool {
        self.count == 0 || self.block == 0
    }

    /// Rejects overlapping blocks, `count` and `block` both unlimited, and coordinates past 2^64 -
    /// 2.
    pub fn check(&self) -> Result<()> {
        let bad = |detail| Err(Error::corrupt(STRUCTURE, Address::UNDEF, detail));
        if self.is_empty() {
            return Ok(());
        }
        if self.count == UNLIMITED && self.block == UNLIMITED {
            return bad("count and block are both unlimited");
        }
        if self.count > 1 && self.stride < self.block {
            return bad("blocks overlap");
        }
        let count = if self.count == UNLIMITED { 1 } else { self.count };
        let block = if self.block == UNLIMITED { 1 } else { self.block };
        let span = (count.saturating_sub(1)).checked_mul(self.stride).and_then(|n| n.checked_add(block));
        match span.and_then(|n| n.checked_add(self.start)) {
            Some(end) if end < u64::MAX => Ok(()),
            _ => bad("a coordinate exceeds 64 bits"),
        }
    }

    /// Selected coordinates in an extent of `size`; clipped to `size` only if unlimited.
    pub fn over(&self, size: u64) -> Progression {
        if !self.is_unlimited() {
            return Progression::new(self.start, self.stride, self.count, self.block, self.block);
        }
        let Some(room) = size.checked_sub(self.start).filter(|&n| n > 0 && !self.is_empty()) else {
            return Progression::EMPTY;
        };
        if self.block == UNLIMITED || self.block == self.stride {
            return Progression::new(self.start, 1, 1, room, room);
        }
        let count = room.div_ceil(self.stride.max(1));
        let last = count.saturating_sub(1).saturating_mul(self.stride);
        Progression::new(self.start, self.stride, count, self.block, room.saturating_sub(last).min(self.block))
    }

    /// The first `n` selected coordinates; fewer only if a limited dimension has fewer. `None` past
    /// 2^64.
    pub fn first(&self, n: u64) -> Option<Progression> {
        if n == 0 || self.is_empty() {
            return Some(Progression::EMPTY);
        }
        if self.block == UNLIMITED || (self.block == self.stride && self.count == UNLIMITED) {
            self.start.checked_add(n).filter(|&e| e < u64::MAX)?;
            return Some(Progression::new(self.start, 1, 1, n, n));
        }
        let whole = n.div_ceil(self.block);
        if whole > self.count {
            return Some(self.over(u64::MAX));
        }
        let before = whole.checked_sub(1)?;
        let tail = n.checked_sub(before.checked_mul(self.block)?)?;
        let end = before.checked_mul(self.stride)?.checked_add(tail)?.checked_add(self.start)?;
        (end < u64::MAX).then(|| Progression::new(self.start, self.stride, whole, self.block, tail))
    }

    /// Index of the first block that ends after `coordinate`; may be `count` or more.
    pub fn block_from(&self, coordinate: u64) -> u64 {
        match coordinate.checked_sub(self.start) {
            Some(d) if self.count > 1 => {
                let k = d.checked_div(self.stride).unwrap_or(0);
                let inside = d.saturating_sub(k.saturating_mul(self.stride)) < self.block;
                if inside { k } else { k.saturating_add(1) }
            }
            _ => 0,
        }
    }

    /// The `k`-th block as a selection of its own. `None` past 2^64.
    pub fn nth_block(&self, k: u64) -> Option<HyperslabDim> {
        let start = k.checked_mul(self.stride)?.checked_add(self.start)?;
        start.checked_add(self.block).filter(|&e| e < u64::MAX)?;
        Some(HyperslabDim::contiguous(start, self.block))
    }
}

/// Selected coordinates of one dimension: `count` blocks, the last one cut to `tail` coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progression {
    start: u64,
    stride: u64,
    count: u64,
    block: u64,
    tail: u64,
}

impl Progression {
    /// No coordinates.
    pub const EMPTY: Progression = Progression { start: 0, stride: 1, count: 0, block: 0, tail: 0 };

    /// Builds a progression; adjacent blocks are merged into one.
    fn new(start: u64, stride: u64, count: u64, block: u64, tail: u64) -> Self {
        if count == 0 || block == 0 || tail == 0 {
            return Self::EMPTY;
        }
        if count == 1 {
            return Progression { start, stride: 1, count: 1, block: tail, tail };
        }
        if stride == block {
            let len = count.saturating_sub(1).saturating_mul(block).saturating_add(tail);
            return Progression { start, stride: 1, count: 1, block: len, tail: len };
        }
        Progression { start, stride, count, block, tail }
    }

    /// Number of coordinates.
    pub fn len(&self) -> u64 {
        self.count.saturating_sub(1).saturating_mul(self.block).saturating_add(self.tail)
    }

    /// True when there are no coordinates.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lowest coordinate.
    pub fn low(&self) -> u64 {
        self.start
    }

    /// One more than the highest coordinate; 0 when there are none.
    pub fn end(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.start.saturating_add(self.count.saturating_sub(1).saturating_mul(self.stride)).saturating_add(self.tail)
    }

    /// Block `k`: its first coordinate, its length, the number of coordinates before it.
    pub fn span(&self, k: u64) -> Option<(u64, u64, u64)> {
        let last = self.count.checked_sub(1)?;
        if k > last {
            return None;
        }
        let low = self.start.saturating_add(k.saturating_mul(self.stride));
        Some((low, if k == last { self.tail } else { self.block }, k.saturating_mul(self.block)))
    }

    /// Index of the first block that ends after coordinate `c`.
    pub fn find_coordinate(&self, c: u64) -> u64 {
        let k = c.saturating_sub(self.start).checked_div(self.stride).unwrap_or(0).min(self.count.saturating_sub(1));
        match self.span(k) {
            Some((low, len, _)) if c >= low && c.saturating_sub(low) >= len => k.saturating_add(1),
            _ => k,
        }
    }

    /// Index of the block that holds the `n`-th coordinate.
    pub fn find_ordinal(&self, n: u64) -> u64 {
        n.checked_div(self.block).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinates(p: &Progression) -> Vec<u64> {
        (0..).map_while(|k| p.span(k)).flat_map(|(low, len, _)| low..low + len).collect()
    }

    #[test]
    fn clipping_cuts_the_last_block() {
        let d = HyperslabDim { start: 2, stride: 5, count: UNLIMITED, block: 3 };
        assert_eq!(coordinates(&d.over(9)), [2, 3, 4, 7, 8]);
        assert_eq!(coordinates(&d.over(2)), [0u64; 0]);
        assert_eq!(d.over(9), d.first(5).unwrap());
        assert_eq!((d.over(12).end(), d.over(11).end(), d.over(12).len()), (10, 10, 6));
        let d = HyperslabDim { start: 1, stride: 1, count: 1, block: UNLIMITED };
        assert_eq!(coordinates(&d.over(4)), [1, 2, 3]);
        let d = HyperslabDim { start: 1, stride: 2, count: UNLIMITED, block: 2 };
        assert_eq!(d.over(6).span(0), Some((1, 5, 0)));
    }

    #[test]
    fn searches_agree_with_the_list() {
        for stride in 1..6 {
            for block in 1..=stride {
                for n in 1..20 {
                    let d = HyperslabDim { start: 3, stride, count: UNLIMITED, block };
                    let p = d.first(n).unwrap();
                    let all = coordinates(&p);
                    assert_eq!(all.len() as u64, n);
                    assert_eq!((p.len(), p.end()), (n, all[all.len() - 1] + 1));
                    for c in 0..40 {
                        let want = (0..).find(|&k| p.span(k).is_none_or(|(low, len, _)| low + len > c)).unwrap();
                        assert_eq!(p.find_coordinate(c).min(want), want, "{p:?} {c}");
                        assert!(p.find_coordinate(c) == want || p.span(want).is_none());
                    }
                    for (i, c) in all.iter().enumerate() {
                        let (low, len, before) = p.span(p.find_ordinal(i as u64)).unwrap();
                        assert!(low <= *c && *c < low + len && before <= i as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (start, stride, count, block) in
            [(0, 1, 2, 2), (0, 1, UNLIMITED, UNLIMITED), (u64::MAX, 1, 1, 1), (1, u64::MAX / 2, 4, 1), (0, 1, u64::MAX - 1, 2)]
        {
            assert!(HyperslabDim { start, stride, count, block }.check().is_err(), "{start} {stride} {count} {block}");
        }
        assert!(HyperslabDim { start: 9, stride: 0, count: 1, block: 5 }.check().is_ok());
    }
}
