//! Chooses the index of a new chunked dataset as libhdf5 does (H5D__chunk_construct in H5Dchunk.c).
//!
//! ```text
//! layout version 1 to 3:                  version 1 B-tree
//! 4 and 5: two or more unlimited dims     version 2 B-tree: 2048 bytes, split 100 %, merge 40 %
//!          one                            extensible array: 32, 4, 4, 16, 10
//!          none, extent = maximum = chunk   single chunk
//!          none                           fixed array, pages of 2^10
//!          arrays of unused places          version 2 B-tree
//! ```
//!
//! libhdf5 allocates an array for the maximum extent, which may be terabytes for a dataset of a few
//! chunks. Where the limited dimensions make an array that the extent hardly uses, the index is the
//! version 2 B-tree, which libhdf5 opens with any maximum extent.
//!
//! The implicit index, which libhdf5 uses for storage allocated early, is never chosen.

use crate::base::{Address, Error, Result, limits};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::chunk_record::RecordShape;
use crate::format::message::data_layout::{ChunkedLayout, IndexInfo, NAME, SINGLE_INDEX_WITH_FILTER};

/// Places of an array index that are allocated for any extent.
const PLACES_ALWAYS: u64 = 1 << 14;
/// Most places of an array index for each chunk of the extent.
const PLACES_PER_CHUNK: u64 = 4;
/// Most places of an array index.
const PLACES_MAX: u64 = 1 << 23;

/// The layout of a new dataset with chunks of `chunk_dims` elements of `element_size` bytes.
///
/// The index has no address yet. `maxdims`: `None` is unlimited. Errors: shapes that libhdf5
/// rejects, sizes that a message of `layout_version` cannot encode.
pub(crate) fn plan(
    layout_version: u8,
    dims: &[u64],
    maxdims: &[Option<u64>],
    chunk_dims: &[u64],
    element_size: u64,
    shape: RecordShape,
) -> Result<ChunkedLayout> {
    let bad = |detail: String| Error::unsupported(NAME, Address::UNDEF, detail);
    let grid = ChunkGrid::new(dims.to_vec(), maxdims.to_vec(), chunk_dims.to_vec(), element_size)?;
    if !(1..=5).contains(&layout_version) {
        return Err(bad(format!("version {layout_version}")));
    }
    let bytes = grid.chunk_bytes()?;
    if layout_version < 5 && bytes > u64::from(u32::MAX) {
        return Err(bad(format!("chunks of {bytes} bytes in a message of version {layout_version}")));
    }
    if bytes > limits::CHUNK_BYTES_MAX {
        return Err(Error::limit(NAME, Address::UNDEF, format!("chunks of {bytes} bytes")));
    }
    let wider = |((&n, &max), &c): ((&u64, &Option<u64>), &u64)| n > 0 && max.is_some_and(|max| max < c);
    if dims.iter().zip(maxdims).zip(chunk_dims).any(wider) {
        return Err(bad(format!("chunks of {chunk_dims:?} elements exceed the maximum extent {maxdims:?}")));
    }
    let sections = shape.sections();
    if sections.is_some() && layout_version < 5 {
        return Err(bad(format!("structured chunks in a message of version {layout_version}")));
    }
    let chunk_dims = chunk_dims.to_vec();
    let chunked = |flags, dim_width, index| ChunkedLayout { flags, chunk_dims, element_size, dim_width, index, sections };
    if layout_version < 4 {
        return Ok(chunked(0, 4, IndexInfo::BTree1 { address: Address::UNDEF }));
    }
    let index = choose(&grid, shape);
    let flags = if shape.is_filtered() && matches!(index, IndexInfo::Single { .. }) { SINGLE_INDEX_WITH_FILTER } else { 0 };
    Ok(chunked(flags, dim_width(&grid), index))
}

/// True if an array has many more places than the extent has chunks. Counts limited dimensions.
fn is_wasteful(grid: &ChunkGrid) -> bool {
    let (mut places, mut chunks) = (Some(1u64), 1u64);
    for (max, count) in grid.max_counts().into_iter().zip(grid.counts()) {
        if let Some(max) = max {
            places = places.and_then(|n| n.checked_mul(max));
            chunks = chunks.saturating_mul(count);
        }
    }
    let most = chunks.saturating_mul(PLACES_PER_CHUNK).clamp(PLACES_ALWAYS, PLACES_MAX);
    places.is_none_or(|n| n > most)
}

fn choose(grid: &ChunkGrid, shape: RecordShape) -> IndexInfo {
    let address = Address::UNDEF;
    let tree = IndexInfo::BTree2 { address, node_size: 2048, split: 100, merge: 40 };
    match grid.max_shape.iter().filter(|m| m.is_none()).count() {
        0 => {
            let same = |((&n, &max), &c): ((&u64, &Option<u64>), &u64)| max == Some(n) && n == c;
            if grid.shape.iter().zip(&grid.max_shape).zip(&grid.chunk_dims).all(same) {
                return IndexInfo::Single { address, stored: shape.has_sizes().then(|| (0, shape.absent())) };
            }
            if is_wasteful(grid) {
                return tree;
            }
            IndexInfo::FixedArray { address, page_bits: 10 }
        }
        1 if is_wasteful(grid) => tree,
        1 => {
            IndexInfo::ExtensibleArray { address, max_bits: 32, index_elements: 4, min_super_pointers: 4, min_elements: 16, page_bits: 10 }
        }
        _ => tree,
    }
}

/// Bytes needed to encode the largest chunk dimension or the element size.
fn dim_width(grid: &ChunkGrid) -> u8 {
    let widest = grid.chunk_dims.iter().copied().fold(grid.element_size, u64::max);
    let bytes = widest.checked_ilog2().unwrap_or(0).saturating_add(8) / 8;
    u8::try_from(bytes).unwrap_or(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::chunk_record::StoredForm;

    const U: Option<u64> = None;

    fn of(version: u8, dims: &[u64], max: &[Option<u64>], chunk: &[u64], size: u64, filtered: bool) -> ChunkedLayout {
        plan(version, dims, max, chunk, size, RecordShape::of_pipeline(filtered)).unwrap()
    }

    #[test]
    fn what_libhdf5_would_choose() {
        let fixed = [Some(7), Some(3)];
        assert!(matches!(of(3, &[7, 3], &fixed, &[7, 3], 8, true).index, IndexInfo::BTree1 { .. }));
        let single = of(4, &[7, 3], &fixed, &[7, 3], 8, true);
        assert_eq!((single.flags, single.index), (2, IndexInfo::Single { address: Address::UNDEF, stored: Some((0, StoredForm::WHOLE)) }));
        let single = of(5, &[7, 3], &fixed, &[7, 3], 8, false);
        assert_eq!((single.flags, single.index), (0, IndexInfo::Single { address: Address::UNDEF, stored: None }));
        for (dims, chunk) in [([7, 3], [7, 2]), ([6, 3], [7, 3])] {
            assert_eq!(of(4, &dims, &fixed, &chunk, 8, true).index, IndexInfo::FixedArray { address: Address::UNDEF, page_bits: 10 });
        }
        assert!(matches!(of(4, &[7, 3], &[Some(7), U], &[7, 3], 8, true).index, IndexInfo::ExtensibleArray { .. }));
        assert!(matches!(of(5, &[7, 3], &[U, U], &[7, 3], 8, true).index, IndexInfo::BTree2 { node_size: 2048, .. }));
    }

    /// Regression: a dataset of one chunk got an array of 164 GB for its maximum.
    #[test]
    fn arrays_are_not_allocated_for_a_maximum_far_from_the_extent() {
        let index = |dims: &[u64], max: &[Option<u64>], chunk: &[u64]| of(4, dims, max, chunk, 8, true).index;
        let tree = IndexInfo::BTree2 { address: Address::UNDEF, node_size: 2048, split: 100, merge: 40 };
        let array = IndexInfo::FixedArray { address: Address::UNDEF, page_bits: 10 };
        assert_eq!(index(&[1847], &[Some(50_000_005_000_000)], &[24415]), tree);
        assert_eq!(index(&[1 << 60], &[Some(1 << 60)], &[1 << 20]), tree);
        assert_eq!(index(&[1; 3], &[Some(u64::MAX); 3], &[1; 3]), tree);
        assert_eq!(index(&[0], &[Some(1 << 14)], &[1]), array);
        assert_eq!(index(&[0], &[Some((1 << 14) + 1)], &[1]), tree);
        assert_eq!(index(&[5_000_000], &[Some(6_000_000)], &[1]), array);
        assert_eq!(index(&[3, 9], &[U, Some(1 << 40)], &[1, 10]), tree);
        assert!(matches!(index(&[3, 9], &[U, Some(1000)], &[1, 10]), IndexInfo::ExtensibleArray { .. }));
    }

    #[test]
    fn structured_chunks() {
        let of = |max, filtered| plan(5, &[7], &[max], &[7], 8, RecordShape::Sections { count: 2, filtered }).unwrap();
        let stored = Some((0, RecordShape::Sections { count: 2, filtered: false }.absent()));
        let single = of(Some(7), false);
        assert_eq!((single.flags, single.sections, single.index), (0, Some(2), IndexInfo::Single { address: Address::UNDEF, stored }));
        assert_eq!((of(Some(7), true).flags, of(U, true).flags), (2, 0));
        assert!(plan(4, &[7], &[U], &[7], 8, RecordShape::Sections { count: 2, filtered: true }).is_err());
    }

    #[test]
    fn widths_and_refusals() {
        for (chunk, size, width) in [(255, 8, 1), (256, 8, 2), (3, 300, 2), (65_536, 1, 3)] {
            assert_eq!(of(4, &[1], &[U], &[chunk], size, false).dim_width, width);
        }
        assert!(plan(6, &[1], &[U], &[1], 1, RecordShape::Plain).is_err() && plan(4, &[1], &[U], &[0], 1, RecordShape::Plain).is_err());
        assert!(plan(4, &[1], &[U], &[1 << 29], 8, RecordShape::Plain).is_err(), "4 GiB in version 4");
        assert!(
            plan(5, &[1], &[U], &[1 << 29], 8, RecordShape::Plain).is_ok()
                && plan(5, &[1], &[U], &[1 << 40], 8, RecordShape::Plain).is_err()
        );
        assert!(
            plan(4, &[1], &[Some(9)], &[10], 8, RecordShape::Plain).is_err()
                && plan(4, &[0], &[Some(9)], &[10], 8, RecordShape::Plain).is_ok()
        );
    }
}
