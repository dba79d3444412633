//! Multi-dimensional arrays in a Blosc2 frame.
//!
//! ```text
//! metalayer: msgpack array | version | rank n | n of i64 shape | n of i32 chunk shape |
//!            n of i32 block shape | item type
//! ```
//!
//! The array is divided into chunks, each chunk into blocks, all in C order and padded to whole
//! chunks and blocks; items outside the shape are dropped. Decoding goes block by block, so the
//! padding is never all in memory.

use super::frame::{Content, Frame, NAME};
use crate::base::limits::RANK_MAX;
use crate::filter::{FilterError, Params, blosc::chunk::Blocks};

/// Most bytes decoded, with padding, as a multiple of the limit (blocks may be nearly twice their
/// content per dimension).
const PADDING_MAX: usize = 256;

/// One dimension of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dimension {
    /// Size of the array, items.
    shape: usize,
    /// Size of a chunk, items, at least 1.
    chunk: usize,
    /// Size of a block, items, 1 to `chunk`.
    block: usize,
}

impl Dimension {
    /// Items decoded along this dimension, with padding: all blocks that overlap the array.
    fn decoded(&self) -> usize {
        if self.shape == 0 {
            return 0;
        }
        let blocks = self.chunk.min(self.shape).div_ceil(self.block);
        self.shape.div_ceil(self.chunk).saturating_mul(blocks).saturating_mul(self.block)
    }
}

/// Shape and partition of an array, with a decoded size within the limit.
#[derive(Debug)]
pub(super) struct Array {
    dims: Vec<Dimension>,
    /// Item size, bytes.
    item: usize,
    /// Array size, bytes.
    length: usize,
    /// Block size, bytes.
    block: usize,
}

/// Reader of the msgpack subset that the metalayer uses.
struct Msgpack<'a>(&'a [u8]);

impl Msgpack<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&b, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(b)
    }

    /// Reads the header of an array of fewer than 16 elements; returns their number.
    fn array(&mut self) -> Option<usize> {
        let b = self.byte()?;
        (b & 0xf0 == 0x90).then_some(usize::from(b & 15))
    }

    /// Reads a non-negative number.
    fn size(&mut self) -> Option<usize> {
        let width = match self.byte()? {
            b @ 0..=0x7f => return Some(usize::from(b)),
            0xd2 | 0xce => 4,
            0xd3 | 0xcf => 8,
            _ => return None,
        };
        let (raw, rest) = self.0.split_at_checked(width)?;
        self.0 = rest;
        let n = raw.iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
        if raw.first()? & 0x80 != 0 { None } else { usize::try_from(n).ok() }
    }

    fn sizes(&mut self, rank: usize) -> Option<Vec<usize>> {
        if self.array()? != rank & 15 {
            return None;
        }
        (0..rank).map(|_| self.size()).collect()
    }
}

impl Array {
    /// Parses the metalayer `meta` and compares it with the chunk shape in the client data, if
    /// present.
    pub(super) fn parse(meta: &[u8], frame: &Frame<'_>, p: &Params<'_>) -> Result<Self, FilterError> {
        let dims = dimensions(meta).ok_or_else(|| FilterError::corrupt(NAME, "the array metalayer"))?;
        if let [_, _, _, _, _, _, _, rank, shape @ ..] = p.cd_values {
            let shape = usize::try_from(*rank).ok().and_then(|r| shape.get(..r));
            let same = shape.is_some_and(|s| s.iter().map(|&n| usize::try_from(n).ok()).eq(dims.iter().map(|d| Some(d.shape))));
            if !same {
                return Err(FilterError::corrupt(NAME, "the array's shape differs from the client data's"));
            }
        }
        // c-blosc2 records items over 255 bytes as bytes, but divides blocks by true items (its
        // plug-in then fails to read them).
        let item = match p.cd_values.get(2).map(|&n| usize::try_from(n).unwrap_or(usize::MAX)) {
            Some(n) if frame.item() == 1 && n > usize::from(u8::MAX) => n,
            _ => frame.item(),
        };
        let product = |f: fn(&Dimension) -> usize| dims.iter().try_fold(item, |n, d| n.checked_mul(f(d)));
        let too_large = || FilterError::TooLarge { filter: NAME, limit: p.limit };
        let length = product(|d| d.shape).filter(|&n| n <= p.limit).ok_or_else(too_large)?;
        let block = product(|d| d.block).filter(|&n| n <= p.limit).ok_or_else(too_large)?;
        // Bound the work: padding may exceed the content, but not without limit.
        let padded = product(Dimension::decoded).unwrap_or(usize::MAX);
        if length > 0 && padded / PADDING_MAX > p.limit {
            return Err(FilterError::unsupported(NAME, format!("an array of {length} bytes padded to {padded}")));
        }
        Ok(Array { dims, item, length, block })
    }

    /// Decodes the whole array in C order.
    pub(super) fn decode(&self, frame: &Frame<'_>, limit: usize) -> Result<Vec<u8>, FilterError> {
        let mut out = vec![0; self.length];
        if self.length == 0 {
            return Ok(out);
        }
        let counts: Vec<usize> = self.dims.iter().map(|d| d.shape.div_ceil(d.chunk)).collect();
        let total = counts.iter().try_fold(1usize, |n, &c| n.checked_mul(c));
        if total.is_none_or(|n| n != frame.chunk_count()) {
            return Err(FilterError::corrupt(NAME, format!("{} chunks for an array of {total:?}", frame.chunk_count())));
        }
        let mut scratch = vec![0; self.block.min(limit)];
        let mut odometer = Odometer::new(&counts);
        for i in 0..frame.chunk_count() {
            let start: Vec<usize> = odometer.at.iter().zip(&self.dims).map(|(&n, d)| n.saturating_mul(d.chunk)).collect();
            self.chunk(frame, i, &start, &mut scratch, &mut out)?;
            odometer.step();
        }
        Ok(out)
    }

    /// Decodes chunk `i` of the frame, whose first item is at `start` in the array.
    fn chunk(&self, frame: &Frame<'_>, i: usize, start: &[usize], scratch: &mut [u8], out: &mut [u8]) -> Result<(), FilterError> {
        let content = frame.chunk(i)?;
        let chunk = match &content {
            Content::Fill(..) => None,
            Content::Chunk(chunk) => {
                let padded = self.dims.iter().try_fold(self.item, |n, d| n.checked_mul(d.chunk.div_ceil(d.block).checked_mul(d.block)?));
                if padded != Some(chunk.len()) {
                    return Err(FilterError::corrupt(NAME, format!("a chunk of {} bytes, {padded:?} needed", chunk.len())));
                }
                if chunk.fill().is_none() && chunk.block_len() != self.block {
                    return Err(FilterError::unsupported(NAME, format!("blocks of {} bytes, {} needed", chunk.block_len(), self.block)));
                }
                Some(chunk)
            }
        };
        let fill = match &content {
            Content::Fill(fill, _) => Some(*fill),
            Content::Chunk(chunk) => chunk.fill(),
        };
        if let Some(fill) = fill {
            fill.fill(NAME, scratch)?;
        }
        let mut blocks: Option<Blocks<'_, '_>> = chunk.filter(|_| fill.is_none()).map(|c| c.reader());
        // Only blocks that overlap the array.
        let counts: Vec<usize> =
            self.dims.iter().zip(start).map(|(d, &s)| d.chunk.min(d.shape.saturating_sub(s)).div_ceil(d.block)).collect();
        let mut odometer = Odometer::new(&counts);
        loop {
            if let Some(blocks) = &mut blocks {
                let number = self
                    .dims
                    .iter()
                    .zip(&odometer.at)
                    .fold(0usize, |n, (d, &b)| n.saturating_mul(d.chunk.div_ceil(d.block)).saturating_add(b));
                blocks.block(number, scratch)?;
            }
            self.place(start, &odometer.at, scratch, out);
            if !odometer.step() {
                return Ok(());
            }
        }
    }

    /// Copies the rows of a block from `from` to the array: block number `block` of the chunk at
    /// item `start`.
    fn place(&self, start: &[usize], block: &[usize], from: &[u8], out: &mut [u8]) {
        let extent = |d: &Dimension, s: usize, b: usize| {
            let first = s.saturating_add(b.saturating_mul(d.block));
            let end = first.saturating_add(d.block).min(s.saturating_add(d.chunk)).min(d.shape);
            (first, end.saturating_sub(first))
        };
        let extents: Vec<(usize, usize)> = self.dims.iter().zip(start.iter().zip(block)).map(|(d, (&s, &b))| extent(d, s, b)).collect();
        let Some((&(_, last), outer)) = extents.split_last() else {
            copy(from, out);
            return;
        };
        let row = last.saturating_mul(self.item);
        let counts: Vec<usize> = outer.iter().map(|&(_, n)| n).collect();
        let mut odometer = Odometer::new(&counts);
        loop {
            let (mut source, mut target) = (0usize, 0usize);
            for (k, (d, &(first, _))) in self.dims.iter().zip(&extents).enumerate() {
                let at = odometer.at.get(k).copied().unwrap_or(0);
                source = source.saturating_mul(d.block).saturating_add(at);
                target = target.saturating_mul(d.shape).saturating_add(first.saturating_add(at));
            }
            let source = from.get(source.saturating_mul(self.item)..).and_then(|s| s.get(..row)).unwrap_or_default();
            copy(source, out.get_mut(target.saturating_mul(self.item)..).unwrap_or_default());
            if !odometer.step() {
                return;
            }
        }
    }
}

/// Copies all of `from`, if it fits.
fn copy(from: &[u8], to: &mut [u8]) {
    if let Some(to) = to.get_mut(..from.len()) {
        to.copy_from_slice(from);
    }
}

/// Parses rank, shapes and partitions of the metalayer; `None` if invalid.
fn dimensions(meta: &[u8]) -> Option<Vec<Dimension>> {
    let mut m = Msgpack(meta);
    m.array()?;
    let _version = m.size()?;
    let rank = m.size().filter(|&r| r <= RANK_MAX)?;
    let (shape, chunk, block) = (m.sizes(rank)?, m.sizes(rank)?, m.sizes(rank)?);
    let all = shape.into_iter().zip(chunk).zip(block);
    all.map(|((shape, chunk), block)| {
        let sound = block >= 1 && block <= chunk;
        (sound || shape == 0).then_some(Dimension { shape, chunk, block })
    })
    .collect()
}

/// Iterates over a grid in C order.
struct Odometer<'a> {
    counts: &'a [usize],
    at: Vec<usize>,
}

impl<'a> Odometer<'a> {
    fn new(counts: &'a [usize]) -> Self {
        Odometer { counts, at: vec![0; counts.len()] }
    }

    /// Advances to the next position; false after the last.
    fn step(&mut self) -> bool {
        for (at, &count) in self.at.iter_mut().zip(self.counts).rev() {
            *at = at.saturating_add(1);
            if *at < count {
                return true;
            }
            *at = 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odometer_counts_in_c_order() {
        let mut o = Odometer::new(&[2, 1, 3]);
        let mut seen = vec![o.at.clone()];
        while o.step() {
            seen.push(o.at.clone());
        }
        assert_eq!(seen, [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]);
        assert!(!Odometer::new(&[]).step());
    }

    #[test]
    fn metalayer_of_two_dimensions() {
        let mut meta = vec![0x97, 0, 2, 0x92];
        meta.extend([0xd3, 0, 0, 0, 0, 0, 0, 1, 0x90, 0xd3, 0, 0, 0, 0, 0, 0, 0, 3, 0x92]);
        meta.extend([0xd2, 0, 0, 0, 0x6e, 0xd2, 0, 0, 0, 3, 0x92, 0xd2, 0, 0, 0, 57, 0xd2, 0, 0, 0, 3, 0, 0xdb, 0, 0, 0, 1, b'u']);
        let want = [Dimension { shape: 400, chunk: 110, block: 57 }, Dimension { shape: 3, chunk: 3, block: 3 }];
        assert_eq!(dimensions(&meta).as_deref(), Some(&want[..]));
        for n in 0..meta.len() - 7 {
            assert_eq!(dimensions(&meta[..n]), None, "{n}");
        }
        meta[4] = 0xd2;
        assert_eq!(dimensions(&meta), None);
    }
}
