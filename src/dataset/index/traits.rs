//! The chunk index trait.

use crate::base::Result;
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::chunk_record::ChunkRecord;
use crate::meta::{Store, extent};
use crate::structures::estimate::Estimate;
use std::ops::ControlFlow;

/// Called with each allocated chunk: scaled offsets, record. `Break` ends the walk.
pub(crate) type Visit<'a> = dyn FnMut(&[u64], ChunkRecord) -> Result<ControlFlow<()>> + 'a;

/// Called with the scaled offsets of each allocated chunk. `Break` ends the walk.
pub(crate) type Place<'a> = dyn FnMut(&[u64]) -> Result<ControlFlow<()>> + 'a;

/// Finds the chunks of one dataset.
pub(crate) trait ChunkIndex: Send + Sync {
    /// Name in `user.h5dir.index`.
    fn name(&self) -> &'static str;

    /// The record of a chunk; `None` if it is not allocated or outside the extent.
    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>>;

    /// Visits every allocated chunk of the current extent, in any order. The cost is bounded by the
    /// size of the file, not by the number of chunks in the extent.
    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()>;

    /// Visits the allocated chunks of the current extent in row-major order, from the first one at
    /// or after `from` on. Reads the structures on the way to that chunk and those it visits.
    /// Chunks of a damaged B-tree may be out of order.
    fn iterate_from(&self, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()>;

    /// How many chunks from `from` on, in row-major order, have no gap; at most `most`,
    /// and fewer if [`ChunkIndex::iterate_from`] is as fast to find that.
    fn stored_run(&self, _store: &Store, _from: &[u64], _most: u64) -> Result<u64> {
        Ok(0)
    }

    /// True if the first chunk of [`ChunkIndex::iterate_from`] costs no walk over all chunks.
    fn is_ordered(&self) -> bool {
        true
    }

    /// True if its structures have checksums, by which a SWMR reader finds half-written ones.
    fn has_checksums(&self) -> bool {
        true
    }

    /// About how many chunks are allocated: from counts in the index, and from samples of it.
    fn estimate(&self, store: &Store) -> Result<Estimate>;

    /// Visits the structures of the index, not the chunks. `k`: K of version 1 chunk B-trees.
    fn extents(&self, _store: &Store, _k: u16, _visit: &mut extent::Visit<'_>) -> Result<()> {
        Ok(())
    }

    /// True if chunks stay where they are in the index when the maximum extent becomes that of
    /// `next`, whose index is of the same kind.
    fn takes_maximum(&self, _next: &ChunkGrid) -> bool {
        false
    }

    /// True when every chunk of the current extent is known to be allocated, without visiting them.
    fn is_complete(&self, _store: &Store) -> Result<bool> {
        Ok(false)
    }
}
