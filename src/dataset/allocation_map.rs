//! Allocation maps: the allocated chunks of a dataset, for `st_blocks`, SEEK_DATA and SEEK_HOLE.

use super::chunk::pieces::ByteGrid;
use super::index::ChunkIndex;
use crate::base::Result;
use crate::meta::Store;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most chunk numbers in a map (8 bytes each); a dataset with more is shown without holes.
const LISTED_CHUNKS_MAX: usize = 4 << 20;

/// Byte budget shared by the maps of all datasets; a map over budget lists no chunk numbers.
#[derive(Debug)]
pub(crate) struct MapBudget {
    left: AtomicU64,
}

impl MapBudget {
    /// A budget of `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        MapBudget { left: AtomicU64::new(bytes) }
    }

    fn reserve(&self, bytes: u64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// The bytes that one map has reserved; released when dropped.
#[derive(Debug, Default)]
struct Share {
    budget: Option<Arc<MapBudget>>,
    bytes: u64,
}

impl Share {
    /// Reserves `bytes` more; false when the budget is exhausted.
    fn grow(&mut self, bytes: u64) -> bool {
        let got = self.budget.as_ref().is_none_or(|b| b.reserve(bytes));
        self.bytes = self.bytes.saturating_add(if got { bytes } else { 0 });
        got
    }

    fn release(&mut self) {
        if let Some(b) = &self.budget {
            b.left.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

/// Numbers and stored size of the allocated chunks of a dataset.
#[derive(Debug, Default)]
pub(crate) struct AllocationMap {
    /// Sum of stored chunk sizes, bytes.
    pub(crate) stored_bytes: u64,
    /// Allocated chunks.
    pub(crate) count: u64,
    numbers: Numbers,
    share: Share,
}

/// Numbers of the allocated chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Too many to list.
    #[default]
    NotListed,
    /// Every chunk of the extent.
    All,
    /// Ascending.
    Listed(Vec<u64>),
}

/// Chunk numbers reserved at a time, at least.
const RESERVED_NUMBERS_MIN: usize = 1024;

impl AllocationMap {
    /// Builds the map by one walk of `index`.
    pub(crate) fn build(index: &dyn ChunkIndex, store: &Store, grid: &ByteGrid, budget: &Arc<MapBudget>) -> Result<AllocationMap> {
        let share = Share { budget: Some(budget.clone()), bytes: 0 };
        let mut map = AllocationMap { numbers: Numbers::Listed(Vec::new()), share, ..Self::default() };
        if index.is_complete(store)? {
            // Not walked: a sparse file can hold any number of allocated chunks.
            let count = grid.chunks();
            return Ok(AllocationMap { stored_bytes: count.saturating_mul(grid.chunk_bytes()), count, numbers: Numbers::All, ..map });
        }
        index.iterate(store, &mut |scaled, record| {
            if let Some(linear) = grid.linear(scaled) {
                map.stored_bytes = map.stored_bytes.saturating_add(record.size);
                map.count = map.count.saturating_add(1);
                if let Numbers::Listed(chunks) = &mut map.numbers {
                    let full = chunks.len() == chunks.capacity();
                    let more = if full { chunks.len().max(RESERVED_NUMBERS_MIN) } else { 0 };
                    if chunks.len() >= LISTED_CHUNKS_MAX || (full && !map.share.grow(8 * more as u64)) {
                        map.numbers = Numbers::NotListed;
                        map.share.release();
                    } else {
                        chunks.reserve_exact(more);
                        chunks.push(linear);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Numbers::Listed(chunks) = &mut map.numbers {
            if !chunks.is_sorted() {
                chunks.sort_unstable();
            }
            chunks.dedup();
        }
        Ok(map)
    }

    /// The allocated chunks.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn has(&self, chunks: &[u64], chunk: u64) -> bool {
        chunks.binary_search(&chunk).is_ok()
    }

    /// Number of allocated chunks numbered `from .. to`.
    fn count_in(chunks: &[u64], from: u64, to: u64) -> u64 {
        let at = |n| chunks.partition_point(|c| *c < n) as u64;
        at(to).saturating_sub(at(from))
    }

    /// First byte at or after `offset` that lies in an allocated chunk.
    pub(crate) fn next_data(&self, grid: &ByteGrid, offset: u64) -> Option<u64> {
        let Numbers::Listed(chunks) = &self.numbers else { return (offset < grid.total()).then_some(offset) };
        let (chunk, end) = grid.chunk_at(offset)?;
        if self.has(chunks, chunk) {
            return Some(offset);
        }
        // A slab is the chunks of one first coordinate: they have consecutive numbers, and slabs
        // follow one another in the dataset. Only the slab of `offset` and the next one with
        // allocated chunks matter.
        let slab = grid.counts().iter().skip(1).product::<u64>().max(1);
        let mut first = (chunk / slab).saturating_mul(slab);
        loop {
            let from = chunks.partition_point(|c| *c < first);
            let found = *chunks.get(from)?;
            first = (found / slab).saturating_mul(slab);
            let to = chunks.partition_point(|c| *c < first.saturating_add(slab));
            let in_slab = chunks.get(from..to).unwrap_or_default();
            if let Some(best) = in_slab.iter().filter_map(|c| grid.first_byte_in(*c, end)).min() {
                return Some(best);
            }
            first = first.saturating_add(slab);
        }
    }

    /// First byte at or after `offset` that lies in no allocated chunk; the dataset's size if none.
    pub(crate) fn next_hole(&self, grid: &ByteGrid, offset: u64) -> u64 {
        let Numbers::Listed(chunks) = &self.numbers else { return grid.total() };
        let mut at = offset;
        while let Some((chunk, end)) = grid.chunk_at(at) {
            if !self.has(chunks, chunk) {
                return at;
            }
            at = self.skip_full(grid, chunks, chunk, at).unwrap_or(end);
        }
        grid.total()
    }

    /// End of the largest fully allocated block of chunks around `chunk` that share leading
    /// coordinates.
    fn skip_full(&self, grid: &ByteGrid, chunks: &[u64], chunk: u64, at: u64) -> Option<u64> {
        let counts = grid.counts();
        let mut size = grid.chunks();
        for level in 0..counts.len().saturating_sub(1) {
            // `size` chunks share the first `level` coordinates.
            let first = (chunk / size.max(1)).saturating_mul(size);
            if size > 0 && Self::count_in(chunks, first, first.saturating_add(size)) == size {
                return Some(grid.block_end(level, at));
            }
            size = size.checked_div(*counts.get(level)?)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map_of(mut chunks: Vec<u64>) -> AllocationMap {
        chunks.sort_unstable();
        AllocationMap { count: chunks.len() as u64, numbers: Numbers::Listed(chunks), ..AllocationMap::default() }
    }

    fn listed(map: &AllocationMap) -> &[u64] {
        let Numbers::Listed(chunks) = &map.numbers else { panic!("{map:?}") };
        chunks
    }

    /// Regression: maps of thousands of datasets, 32 MiB each, were kept at the same time.
    #[test]
    fn all_maps_share_a_budget() {
        let budget = Arc::new(MapBudget::new(100_000));
        let mut share = Share { budget: Some(budget.clone()), bytes: 0 };
        assert!(share.grow(60_000) && !share.grow(60_000) && share.grow(40_000));
        assert!(!Share { budget: Some(budget.clone()), bytes: 0 }.grow(1));
        drop(share);
        assert!(Share { budget: Some(budget.clone()), bytes: 0 }.grow(100_000));
        assert_eq!(budget.left.load(Ordering::Relaxed), 100_000);
    }

    #[test]
    fn all_chunks_are_there() {
        let grid = ByteGrid::new(&[1 << 40], &[2], 1).unwrap();
        let map = AllocationMap { numbers: Numbers::All, ..AllocationMap::default() };
        assert_eq!((map.next_data(&grid, 7), map.next_hole(&grid, 7), map.next_data(&grid, 1 << 40)), (Some(7), 1 << 40, None));
    }

    proptest! {
        #[test]
        fn seeks_agree_with_brute_force(
            dims in prop::collection::vec((1u64..6, 1u64..4), 1..4), es in 1u64..4, mask in any::<u64>(), full in any::<bool>(),
        ) {
            let (shape, chunk): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
            let grid = ByteGrid::new(&shape, &chunk, es).unwrap();
            let map = map_of((0..grid.chunks()).filter(|c| (full && c % 7 != 3) || mask >> (c % 64) & 1 == 1).collect());
            let data: Vec<bool> = (0..grid.total()).map(|b| map.has(listed(&map), grid.chunk_at(b).unwrap().0)).collect();
            for at in 0..grid.total() {
                let next = (at..grid.total()).find(|b| data[*b as usize]);
                prop_assert_eq!(map.next_data(&grid, at), next);
                let hole = (at..grid.total()).find(|b| !data[*b as usize]).unwrap_or(grid.total());
                prop_assert_eq!(map.next_hole(&grid, at), hole);
            }
        }
    }

    #[test]
    fn a_vast_empty_dataset_is_one_hole() {
        let grid = ByteGrid::new(&[1 << 62], &[4096], 1).unwrap();
        let map = map_of(vec![]);
        assert_eq!((map.next_data(&grid, 5), map.next_hole(&grid, 5)), (None, 5));
        let map = map_of(vec![1 << 40]);
        assert_eq!(map.next_data(&grid, 5), Some(1 << 52));
        assert_eq!(map.next_hole(&grid, 1 << 52), (1 << 52) + 4096);
    }
}
