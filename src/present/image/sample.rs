//! Pixels of a preview: those of an image that is not larger, else some of them.
//!
//! What a preview reads is bounded: of a large image some chunks are read, evenly spread, and
//! pixels from all over each of them.

use super::layout::Layout;
use crate::connector::DatasetInfo;
use std::ops::Range;

/// Most pixels of a preview in a row, and rows.
pub(super) const SIDE_MAX: u64 = 1024;
/// The same of an image in a chunk of which a preview reads single elements.
const SIDE_IN_LARGE_CHUNK: u64 = 256;
/// Pixels of a side that is scaled, unless it has fewer.
const SIDE_MIN: u64 = 128;
/// Most bytes of elements that a preview reads.
pub(super) const READ_BYTES_MAX: u64 = 64 << 20;
/// Bytes of contiguous elements that are read together, and what a smaller chunk costs.
const PAGE_BYTES: u64 = 4096;

/// The rows and pixels of rows that are shown.
pub(super) struct Sampled {
    pub(super) rows: Vec<Range<u64>>,
    pub(super) columns: Vec<Range<u64>>,
    /// Of each range so many are shown, evenly spread.
    pub(super) of_rows: u64,
    pub(super) of_columns: u64,
}

/// Elements of a chunk along axis `axis`.
pub(super) fn tile(d: &DatasetInfo, axis: usize, otherwise: u64) -> u64 {
    d.chunks.as_ref().and_then(|chunk| chunk.get(axis).copied()).unwrap_or(otherwise).max(1)
}

/// Bytes of a chunk, or of a page in its place.
fn tile_bytes(d: &DatasetInfo) -> u64 {
    let elements = d.chunks.as_ref().map(|chunk| chunk.iter().fold(1u64, |n, dim| n.saturating_mul(*dim)));
    elements.map_or(PAGE_BYTES, |n| n.saturating_mul(d.datatype.element_size())).max(PAGE_BYTES)
}

/// Chunks that a preview may read, or pages in their place.
pub(super) fn tiles_max(d: &DatasetInfo) -> u64 {
    (READ_BYTES_MAX / tile_bytes(d)).max(1)
}

/// Elements of a page.
pub(super) fn page(d: &DatasetInfo) -> u64 {
    (PAGE_BYTES / d.datatype.element_size().max(1)).max(1)
}

/// `count` tiles of `len`, evenly spread over `all`; the last one may be shorter.
fn tiles(all: u64, len: u64, count: u64) -> Vec<Range<u64>> {
    let of = all.div_ceil(len);
    if count >= of {
        return std::iter::once(0..all).collect();
    }
    let tile = |n: u64| {
        let start = (u128::from(n) * u128::from(of) / u128::from(count.max(1))) as u64;
        let start = start.saturating_mul(len);
        start..start.saturating_add(len).min(all)
    };
    (0..count).map(tile).collect()
}

impl Sampled {
    /// All pixels.
    pub(super) fn all(layout: &Layout) -> Sampled {
        let all = |n: u64| std::iter::once(0..n).collect();
        Sampled { rows: all(layout.height), columns: all(layout.width), of_rows: layout.height, of_columns: layout.width }
    }

    /// The pixels of a preview.
    pub(super) fn of(layout: &Layout, d: &DatasetInfo) -> Sampled {
        let (th, tw) = (tile(d, layout.axes.0, 1), tile(d, layout.axes.1, page(d)));
        let planes = if layout.is_interleaved() { 1 } else { layout.planes.max(1) };
        let budget = tiles_max(d) / planes;
        let (mut rows, mut columns) = (layout.height.div_ceil(th), layout.width.div_ceil(tw));
        // With fewer tiles than pixels, each is of some of them.
        while rows.saturating_mul(columns) > budget.max(1) && (rows > 1 || columns > 1) {
            if rows >= columns { rows = rows.div_ceil(2) } else { columns = columns.div_ceil(2) }
        }
        // Both sides are scaled alike, but for a side that would be too small to see.
        let longest = if tile_bytes(d) > READ_BYTES_MAX { SIDE_IN_LARGE_CHUNK } else { SIDE_MAX };
        let scale = layout.height.max(layout.width).div_ceil(longest).max(1);
        let of = |all: u64, len: u64, count: u64| {
            let side = (all / scale).max(all.min(SIDE_MIN));
            let tiles = tiles(all, len, count.min(side));
            let shortest = tiles.iter().map(|range| range.end.saturating_sub(range.start)).min().unwrap_or(1);
            let each = (side / (tiles.len() as u64).max(1)).clamp(1, shortest.max(1));
            (tiles, each)
        };
        let ((rows, of_rows), (columns, of_columns)) = (of(layout.height, th, rows), of(layout.width, tw, columns));
        Sampled { rows, columns, of_rows, of_columns }
    }

    /// Rows, and pixels of a row.
    pub(super) fn size(&self) -> (u32, u32) {
        let count = |ranges: &[Range<u64>], of: u64| u32::try_from((ranges.len() as u64).saturating_mul(of)).unwrap_or(u32::MAX);
        (count(&self.rows, self.of_rows), count(&self.columns, self.of_columns))
    }
}

/// `count` positions in `range`, evenly spread.
pub(super) fn spread(range: &Range<u64>, count: u64) -> impl Iterator<Item = u64> + use<> {
    let (start, len) = (range.start, range.end.saturating_sub(range.start));
    (0..count).map(move |n| start.saturating_add((u128::from(n) * u128::from(len) / u128::from(count.max(1))) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_spread_over_all() {
        assert_eq!((tiles(10, 3, 4).len(), tiles(10, 3, 4).first().cloned()), (1, Some(0..10)));
        assert_eq!(tiles(100, 10, 4), [0..10, 20..30, 50..60, 70..80]);
        assert_eq!(spread(&(10..20), 5).collect::<Vec<_>>(), [10, 12, 14, 16, 18]);
        assert_eq!(spread(&(0..3), 3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
