//! Maps ranges of a dataset's bytes to pieces of its chunks.
//!
//! The dataset is a row-major byte array: the last dimension is counted in bytes, and trailing
//! dimensions that a chunk covers whole are merged, so that narrow arrays have long rows.

use crate::base::Result;
use std::ops::Range;

/// Returns the first chunk of interest in a range of chunk numbers.
pub(crate) type FirstChunk<'a> = dyn FnMut(Range<u64>) -> Result<Option<u64>> + 'a;

/// Chunks that a prefix of a range may intersect whatever their size.
const PREFIX_CHUNKS_MIN: u64 = 2;

/// Equally spaced runs of bytes, each contiguous in the dataset and in one chunk: the part of
/// consecutive rows that lies in that chunk. [`ByteGrid::rows`] has their offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset of the first run in the decoded chunk.
    pub(crate) in_chunk: u64,
    /// Offset of the first run in the caller's buffer.
    pub(crate) in_buffer: usize,
    /// Length of each run, bytes.
    pub(crate) len: usize,
    /// Number of runs, one per row.
    pub(crate) rows: usize,
}

/// The part of a request that lies in one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkPieces {
    /// Row-major number of the chunk.
    pub(crate) chunk: u64,
    /// Pieces of the chunk, ascending in the buffer.
    pub(crate) pieces: Vec<Piece>,
}

impl ChunkPieces {
    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|p| (p.len as u64).saturating_mul(p.rows as u64)).sum()
    }

    /// Number of contiguous runs of all pieces.
    pub(crate) fn runs(&self) -> usize {
        self.pieces.iter().map(|p| p.rows).sum()
    }
}

/// Geometry of a chunked dataset in bytes. [`ByteGrid::new`] checks that no product overflows.
#[derive(Debug, Clone)]
pub(crate) struct ByteGrid {
    /// Dimensions; the last one in bytes.
    dims: Vec<u64>,
    /// Chunk dimensions; the last one in bytes.
    chunk: Vec<u64>,
    /// Chunks along each dimension.
    counts: Vec<u64>,
    /// Number of trailing dimensions merged away.
    merged: usize,
    total: u64,
    chunk_bytes: u64,
}

impl ByteGrid {
    /// Takes `shape` and `chunk` in elements of `element_size` bytes; `None` if a product exceeds
    /// 2^63.
    pub(crate) fn new(shape: &[u64], chunk: &[u64], element_size: u64) -> Option<ByteGrid> {
        let (mut dims, mut chunk) = (shape.to_vec(), chunk.to_vec());
        if dims.is_empty() || dims.len() != chunk.len() || chunk.contains(&0) || element_size == 0 {
            return None;
        }
        let product = |d: &[u64]| d.iter().try_fold(element_size, |n, x| n.checked_mul(*x)).filter(|n| *n < 1 << 63);
        let total = if dims.contains(&0) { 0 } else { product(&dims)? };
        let chunk_bytes = product(&chunk)?;
        for d in [&mut dims, &mut chunk] {
            let last = d.last_mut()?;
            *last = last.checked_mul(element_size)?;
        }
        let mut merged = 0;
        while dims.len() > 1 && dims.last() == chunk.last() && dims.last() != Some(&0) {
            for d in [&mut dims, &mut chunk] {
                let inner = d.pop()?;
                let last = d.last_mut()?;
                *last = last.checked_mul(inner)?;
            }
            merged += 1;
        }
        let counts: Vec<u64> = dims.iter().zip(&chunk).map(|(d, c)| d.div_ceil(*c)).collect();
        counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c))?;
        Some(ByteGrid { dims, chunk, counts, merged, total, chunk_bytes })
    }

    /// Bytes of the dataset.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of a decoded chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of a chunk that are contiguous in the dataset.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.chunk.last().copied().unwrap_or(1)
    }

    /// Number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.counts.iter().product()
    }

    /// Chunks along each dimension that was not merged away.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Scaled coordinates (chunk units, original rank) of chunk number `linear`.
    pub(crate) fn scaled(&self, linear: u64) -> Vec<u64> {
        let mut rest = linear;
        let mut scaled: Vec<u64> = self
            .counts
            .iter()
            .rev()
            .map(|&n| {
                let s = rest.checked_rem(n).unwrap_or(0);
                rest = rest.checked_div(n).unwrap_or(0);
                s
            })
            .collect();
        scaled.reverse();
        scaled.resize(self.counts.len().saturating_add(self.merged), 0);
        scaled
    }

    /// Number of the chunk with scaled coordinates `scaled`; `None` outside the grid.
    pub(crate) fn linear(&self, scaled: &[u64]) -> Option<u64> {
        if scaled.len() != self.counts.len().checked_add(self.merged)? || scaled.get(self.counts.len()..)?.iter().any(|s| *s != 0) {
            return None;
        }
        scaled.iter().zip(&self.counts).try_fold(0u64, |n, (s, c)| if s < c { n.checked_mul(*c)?.checked_add(*s) } else { None })
    }

    /// True when the chunk extends past the dataset.
    pub(crate) fn is_edge(&self, scaled: &[u64]) -> bool {
        scaled.iter().zip(&self.chunk).zip(&self.dims).any(|((s, c), d)| s.saturating_add(1).saturating_mul(*c) > *d)
    }

    /// Splits bytes `offset .. offset + len` by chunk, in order of each chunk's first byte in the
    /// range.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> Vec<ChunkPieces> {
        let mut out = Collector::default();
        let end = offset.saturating_add(len as u64).min(self.total);
        let (Some(&row_bytes), Some(&chunk_row)) = (self.dims.last(), self.chunk.last()) else { return out.chunks };
        if offset >= end || row_bytes == 0 {
            return out.chunks;
        }
        let mut position = offset;
        while position < end {
            let (row, column) = (position / row_bytes, position % row_bytes);
            let (base_chunk, base_offset) = self.row(row);
            let rows = if column == 0 { self.rows_in_same_chunks(row, (end - position) / row_bytes) } else { 1 };
            let row_end = (position - column).saturating_add(row_bytes).min(end) - (position - column);
            let mut column = column;
            let start = position;
            while column < row_end {
                let along = column / chunk_row;
                let stop = (along + 1).saturating_mul(chunk_row).min(row_end);
                let piece = Piece {
                    in_chunk: base_offset + (column - along * chunk_row),
                    in_buffer: (position - offset) as usize,
                    len: (stop - column) as usize,
                    rows: rows as usize,
                };
                out.add(base_chunk + along, piece);
                position += stop - column;
                column = stop;
            }
            if rows > 1 {
                position = start.saturating_add(rows.saturating_mul(row_bytes));
            }
        }
        out.chunks
    }

    /// Length of a prefix of `len` bytes from `offset` whose chunks take at most `most` bytes.
    ///
    /// Up to two chunks may take more. The prefix may be shorter than necessary.
    pub(crate) fn prefix_len(&self, offset: u64, len: usize, most: u64) -> usize {
        let per = |unit: Option<&u64>| (len as u64).checked_div(unit.copied().unwrap_or(1)).unwrap_or(0);
        let chunks = per(self.chunk.last()).saturating_add(per(self.dims.last())).saturating_add(3);
        let mut n = len;
        if chunks.saturating_mul(self.chunk_bytes) <= most {
            return n;
        }
        while n > 1 {
            let chunks = self.pieces(offset, n).len() as u64;
            if chunks <= PREFIX_CHUNKS_MIN || chunks.saturating_mul(self.chunk_bytes) <= most {
                break;
            }
            n /= 2;
        }
        n
    }

    /// Number of the `whole` rows from `row` that cross the same chunks; at least 1.
    fn rows_in_same_chunks(&self, row: u64, whole: u64) -> u64 {
        let Some(outer) = self.dims.len().checked_sub(2) else { return 1 };
        let (Some(&d), Some(&c)) = (self.dims.get(outer), self.chunk.get(outer)) else { return 1 };
        let at = row.checked_rem(d).unwrap_or(0);
        let left = c.saturating_sub(at.checked_rem(c).unwrap_or(0)).min(d.saturating_sub(at));
        left.min(whole).max(1)
    }

    /// Offsets of a piece's runs: in the chunk and in the buffer.
    pub(crate) fn rows(&self, piece: &Piece) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (in_chunk, in_buffer) = (piece.in_chunk, piece.in_buffer);
        let chunk_row = self.chunk.last().copied().unwrap_or(0);
        let row_bytes = self.dims.last().copied().and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
        (0..piece.rows).map(move |r| {
            (in_chunk.saturating_add(chunk_row.saturating_mul(r as u64)), in_buffer.saturating_add(row_bytes.saturating_mul(r)))
        })
    }

    /// Range of the dataset from the first byte of chunk `linear` to the end of its last.
    pub(crate) fn span(&self, linear: u64) -> Range<u64> {
        let (mut first, mut last) = (0u64, 0u64);
        for ((start, end), d) in self.bounds(linear).into_iter().zip(&self.dims) {
            first = first.saturating_mul(*d).saturating_add(start);
            last = last.saturating_mul(*d).saturating_add(end.saturating_sub(1));
        }
        first..last.saturating_add(1)
    }

    /// Calls `f` for each run of chunk `linear` that is contiguous in the dataset: offset in the
    /// dataset, offset in the chunk, length.
    pub(crate) fn for_each_run(&self, linear: u64, f: &mut dyn FnMut(u64, u64, u64)) {
        let bounds = self.bounds(linear);
        let mut at: Vec<u64> = bounds.iter().map(|(start, _)| *start).collect();
        let len = bounds.last().map_or(0, |(start, end)| end.saturating_sub(*start));
        if bounds.iter().any(|(start, end)| start >= end) {
            return;
        }
        loop {
            let offset_in = |dims: &[u64], from: &dyn Fn(usize) -> u64| {
                at.iter().zip(dims).enumerate().fold(0u64, |n, (i, (x, d))| n.saturating_mul(*d).saturating_add(x.saturating_sub(from(i))))
            };
            f(offset_in(&self.dims, &|_| 0), offset_in(&self.chunk, &|i| bounds.get(i).map_or(0, |b| b.0)), len);
            // Advances to the next row; the last dimension but one varies fastest.
            let outer = at.len().saturating_sub(1);
            let mut carried = true;
            for (x, (start, end)) in at.iter_mut().zip(&bounds).take(outer).rev() {
                *x = x.saturating_add(1);
                carried = *x >= *end;
                if !carried {
                    break;
                }
                *x = *start;
            }
            if carried {
                return;
            }
        }
    }

    /// Numbers of the chunks in the slabs (chunks of one first coordinate) that contain bytes of
    /// `range`.
    pub(crate) fn slabs(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.total);
        if range.start >= end {
            return 0..0;
        }
        let slab = self.counts.iter().skip(1).product::<u64>();
        let inner = self.dims.iter().skip(1).product::<u64>().max(1);
        let rows = self.chunk.first().copied().unwrap_or(1).max(1);
        let of = |byte: u64| (byte / inner / rows).saturating_mul(slab);
        of(range.start)..of(end.saturating_sub(1)).saturating_add(slab)
    }

    /// Start and end of chunk `linear` in each dimension.
    fn bounds(&self, linear: u64) -> Vec<(u64, u64)> {
        let edges = |((s, c), d): ((&u64, &u64), &u64)| (s.saturating_mul(*c), s.saturating_add(1).saturating_mul(*c).min(*d));
        self.scaled(linear).iter().zip(&self.chunk).zip(&self.dims).map(edges).collect()
    }

    /// The smallest range of the chunk's bytes that contains all pieces.
    pub(crate) fn covering_range(&self, t: &ChunkPieces) -> Range<u64> {
        let first = t.pieces.iter().map(|p| p.in_chunk).min().unwrap_or(0);
        let end = |p: &Piece| self.rows(p).last().map_or(0, |(at, _)| at.saturating_add(p.len as u64));
        first..t.pieces.iter().map(end).max().unwrap_or(first)
    }

    /// Copies the pieces to `buf` from `source`, the chunk's bytes from `from`. `None`: a piece is
    /// out of range.
    pub(crate) fn scatter(&self, t: &ChunkPieces, source: &[u8], from: u64, buf: &mut [u8]) -> Option<()> {
        for p in &t.pieces {
            for (at, to) in self.rows(p) {
                let at = usize::try_from(at.checked_sub(from)?).ok()?;
                let bytes = source.get(at..at.checked_add(p.len)?)?;
                buf.get_mut(to..to.checked_add(p.len)?)?.copy_from_slice(bytes);
            }
        }
        Some(())
    }

    /// Copies the pieces from `buf` to `chunk`, the chunk's bytes. `None`: a piece is out of range.
    pub(crate) fn gather(&self, t: &ChunkPieces, buf: &[u8], chunk: &mut [u8]) -> Option<()> {
        for p in &t.pieces {
            for (at, from) in self.rows(p) {
                let at = usize::try_from(at).ok()?;
                let bytes = buf.get(from..from.checked_add(p.len)?)?;
                chunk.get_mut(at..at.checked_add(p.len)?)?.copy_from_slice(bytes);
            }
        }
        Some(())
    }

    /// Number of the first chunk whose first byte lies at or after `offset`.
    /// Chunk numbers ascend with the chunks' first bytes.
    pub(crate) fn first_chunk_from(&self, offset: u64) -> u64 {
        if offset >= self.total {
            return self.chunks();
        }
        let mut stride = self.dims.iter().product::<u64>().max(1);
        let mut after = self.chunks();
        let (mut rest, mut number) = (offset, 0u64);
        for ((&d, &c), &n) in self.dims.iter().zip(&self.chunk).zip(&self.counts) {
            stride = stride.checked_div(d).unwrap_or(1).max(1);
            after = after.checked_div(n).unwrap_or(0);
            let at = rest / stride;
            rest %= stride;
            number = number.saturating_add((at / c).saturating_mul(after));
            if at % c != 0 {
                // Chunks of this coordinate begin before `offset`: take the first of the next one.
                return number.saturating_add(after).min(self.chunks());
            }
        }
        number
    }

    /// Bytes of the dataset from the first byte of a chunk to its last: after that many, a
    /// sequential reader is done with a chunk.
    pub(crate) fn slab_bytes(&self) -> u64 {
        // The first dimension in which a chunk has more than one row decides.
        let level = self.chunk.iter().zip(&self.dims).position(|(c, d)| *c > 1 && *d > 1);
        let Some(level) = level else { return self.chunk.last().copied().unwrap_or(0) };
        let inner = self.dims.iter().skip(level.saturating_add(1)).fold(1u64, |n, d| n.saturating_mul(*d));
        let (c, d) = (self.chunk.get(level).copied().unwrap_or(1), self.dims.get(level).copied().unwrap_or(1));
        c.min(d).saturating_mul(inner)
    }

    /// Number of the first chunk that row `row` crosses, and the row's offset within its chunks.
    fn row(&self, row: u64) -> (u64, u64) {
        let outer = self.dims.len().saturating_sub(1);
        let mut rest = row;
        let (mut chunk, mut offset) = (0u64, 0u64);
        let mut chunk_stride = self.counts.last().copied().unwrap_or(1);
        let mut byte_stride = self.chunk.last().copied().unwrap_or(1);
        for ((&d, &c), &n) in self.dims.iter().zip(&self.chunk).zip(&self.counts).take(outer).rev() {
            let (coordinate, next) = (rest.checked_rem(d).unwrap_or(0), rest.checked_div(d).unwrap_or(0));
            rest = next;
            chunk = chunk.wrapping_add((coordinate / c).wrapping_mul(chunk_stride));
            offset = offset.wrapping_add((coordinate % c).wrapping_mul(byte_stride));
            chunk_stride = chunk_stride.wrapping_mul(n);
            byte_stride = byte_stride.wrapping_mul(c);
        }
        (chunk, offset)
    }

    /// First byte of the dataset at or after `offset` that lies in chunk `linear`.
    pub(crate) fn first_byte_in(&self, linear: u64, offset: u64) -> Option<u64> {
        // Coordinates of `offset`, then the smallest coordinates >= them within the chunk's bounds.
        let at = self.coordinates(offset)?;
        let found = smallest_at_or_after(&at, &self.bounds(linear))?;
        found.iter().zip(&self.dims).try_fold(0u64, |n, (x, d)| n.checked_mul(*d)?.checked_add(*x))
    }

    /// Number of the chunk that contains byte `offset`, and the byte's offset in it.
    pub(crate) fn in_chunk(&self, offset: u64) -> Option<(u64, u64)> {
        let (&row_bytes, &chunk_row) = (self.dims.last()?, self.chunk.last()?);
        if offset >= self.total {
            return None;
        }
        let (row, column) = (offset.checked_div(row_bytes)?, offset.checked_rem(row_bytes)?);
        let (base, within) = self.row(row);
        Some((base.checked_add(column.checked_div(chunk_row)?)?, within.checked_add(column.checked_rem(chunk_row)?)?))
    }

    /// Byte of the dataset at offset `within` of chunk `linear`; `None` past the extent.
    pub(crate) fn byte_at(&self, linear: u64, within: u64) -> Option<u64> {
        let mut rest = within;
        let mut coordinates = Vec::with_capacity(self.dims.len());
        for (&c, &(start, end)) in self.chunk.iter().zip(&self.bounds(linear)).rev() {
            let at = start.checked_add(rest.checked_rem(c)?).filter(|at| *at < end)?;
            coordinates.push(at);
            rest = rest.checked_div(c)?;
        }
        let inside = coordinates.iter().rev().zip(&self.dims).try_fold(0u64, |n, (x, d)| n.checked_mul(*d)?.checked_add(*x))?;
        (rest == 0).then_some(inside)
    }

    /// First byte at or after `offset` whose chunk is one of those that `first` looks for: it
    /// returns the first of them in a range of chunk numbers.
    ///
    /// A byte comes before another one that shares fewer leading coordinates with `offset`. Of the
    /// bytes that share as many, the chunks that can have the first one have consecutive numbers.
    pub(crate) fn next_byte(&self, offset: u64, first: &mut FirstChunk<'_>) -> Result<Option<u64>> {
        let (Some((number, _)), Some(at)) = (self.chunk_at(offset), self.coordinates(offset)) else { return Ok(None) };
        let last = at.len().saturating_sub(1);
        // Chunks that share one coordinate more than those of the level.
        let mut inner = 1u64;
        for level in (0..=last).rev() {
            let (&x, &d, &c, &n) = match (at.get(level), self.dims.get(level), self.chunk.get(level), self.counts.get(level)) {
                (Some(x), Some(d), Some(c), Some(n)) => (x, d, c, n),
                _ => return Ok(None),
            };
            let block = (number / inner.max(1)).saturating_mul(inner);
            let next = block.saturating_add(inner);
            let outer = inner.saturating_mul(n);
            let end = (number / outer.max(1)).saturating_mul(outer).saturating_add(outer);
            if level == last && first(number..next)?.is_some() {
                return Ok(Some(offset));
            }
            // The next coordinate along this dimension may be in the same chunks.
            let follows = level < last && x.saturating_add(1) < (x / c).saturating_add(1).saturating_mul(c).min(d);
            if follows && let Some(found) = first(block..next)? {
                return Ok(self.byte_of(at.get(..level), Some(x.saturating_add(1)), found));
            }
            if next < end
                && let Some(found) = first(next..end)?
            {
                return Ok(self.byte_of(at.get(..level), None, found));
            }
            inner = outer;
        }
        Ok(None)
    }

    /// Byte at the coordinates `leading`, then `next`, then those of the first byte of chunk
    /// `linear`.
    fn byte_of(&self, leading: Option<&[u64]>, next: Option<u64>, linear: u64) -> Option<u64> {
        let leading: Vec<u64> = leading?.iter().copied().chain(next).collect();
        let rest = self.bounds(linear).into_iter().map(|(start, _)| start).skip(leading.len());
        let at = leading.iter().copied().chain(rest);
        at.zip(&self.dims).try_fold(0u64, |n, (x, d)| n.checked_mul(*d)?.checked_add(x))
    }

    /// Coordinates of byte `offset`; `None` past the extent.
    fn coordinates(&self, offset: u64) -> Option<Vec<u64>> {
        let mut at = Vec::with_capacity(self.dims.len());
        let mut rest = offset;
        for &d in self.dims.iter().rev() {
            at.push(rest.checked_rem(d)?);
            rest = rest.checked_div(d)?;
        }
        at.reverse();
        (rest == 0).then_some(at)
    }

    /// Number of the chunk that contains byte `offset`, and the end of the contiguous run within
    /// it.
    pub(crate) fn chunk_at(&self, offset: u64) -> Option<(u64, u64)> {
        let (&row_bytes, &chunk_row) = (self.dims.last()?, self.chunk.last()?);
        if offset >= self.total {
            return None;
        }
        let (row, column) = (offset / row_bytes, offset % row_bytes);
        let (base, _) = self.row(row);
        let along = column / chunk_row;
        let stop = (along + 1).saturating_mul(chunk_row).min(row_bytes);
        Some((base + along, offset + (stop - column)))
    }
}

/// Smallest coordinates, in row-major order, that are >= `at` and inside `bounds` (start, end).
fn smallest_at_or_after(at: &[u64], bounds: &[(u64, u64)]) -> Option<Vec<u64>> {
    let mut out: Vec<u64> = Vec::with_capacity(at.len());
    for (i, (&a, &(start, end))) in at.iter().zip(bounds).enumerate() {
        if a < start {
            out.extend(bounds.get(i..)?.iter().map(|b| b.0));
            return Some(out);
        }
        if a >= end {
            // Carry into an earlier coordinate.
            while let Some(last) = out.pop() {
                let &(_, end) = bounds.get(out.len())?;
                if last + 1 < end {
                    out.push(last + 1);
                    let n = out.len();
                    out.extend(bounds.get(n..)?.iter().map(|b| b.0));
                    return Some(out);
                }
            }
            return None;
        }
        out.push(a);
    }
    Some(out)
}

#[derive(Default)]
struct Collector {
    chunks: Vec<ChunkPieces>,
    index: std::collections::HashMap<u64, usize>,
    last: usize,
}

impl Collector {
    fn add(&mut self, chunk: u64, piece: Piece) {
        // Rows cross the same chunks in the same order: usually the next chunk matches.
        for guess in [self.last, self.last.saturating_add(1)] {
            if let Some(t) = self.chunks.get_mut(guess).filter(|t| t.chunk == chunk) {
                t.pieces.push(piece);
                self.last = guess;
                return;
            }
        }
        let at = *self.index.entry(chunk).or_insert(self.chunks.len());
        if at == self.chunks.len() {
            self.chunks.push(ChunkPieces { chunk, pieces: Vec::new() });
        }
        if let Some(t) = self.chunks.get_mut(at) {
            t.pieces.push(piece);
        }
        self.last = at;
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
