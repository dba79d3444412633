//! The chunk index trait.

use crate::base::Result;
use crate::format::chunk_record::ChunkRecord;
use crate::meta::{Store, extent};
use std::ops::ControlFlow;

/// Called with each allocated chunk: scaled offsets, record. `Break` ends the walk.
pub(crate) type Visit<'a> = dyn FnMut(&[u64], ChunkRecord) -> Result<ControlFlow<()>> + 'a;

/// Finds the chunks of one dataset.
pub(crate) trait ChunkIndex: Send + Sync {
    /// Name in `user.h5dir.index`.
    fn name(&self) -> &'static str;

    /// The record of a chunk; `None` if it is not allocated or outside the extent.
    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>>;

    /// Visits every allocated chunk of the current extent, in any order. The cost is bounded by the
    /// size of the file, not by the number of chunks in the extent.
    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()>;

    /// Visits the structures of the index, not the chunks. `k`: K of version 1 chunk B-trees.
    fn extents(&self, _store: &Store, _k: u16, _visit: &mut extent::Visit<'_>) -> Result<()> {
        Ok(())
    }

    /// True when every chunk of the current extent is known to be allocated, without visiting them.
    fn is_complete(&self, _store: &Store) -> Result<bool> {
        Ok(false)
    }
}
