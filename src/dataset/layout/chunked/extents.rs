//! Extents of a chunked dataset: the index and the chunks.

use super::storage::Chunked;
use crate::base::{Error, Result};
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::index::{self, ChunkIndex};
use crate::dataset::layout::traits::Operation;
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use crate::meta::extent::{Extent, Visit};
use std::ops::ControlFlow;

/// Name of the structure.
const CHUNK: &str = "chunk";

impl Chunked {
    /// The index over the maximum extent, to which the dataset may grow.
    pub(super) fn whole_index(&self, message: &DataLayout) -> Result<Box<dyn ChunkIndex>> {
        let shape = self.chunks.max_shape.iter().map(|n| n.unwrap_or(u64::MAX)).collect();
        index::open(message, &ChunkGrid { shape, ..self.chunks.clone() }, self.format.record_shape())
    }

    /// Visits the chunks of `index`, which is not implicit.
    pub(super) fn chunk_extents(&self, store: &Store, index: &dyn ChunkIndex, visit: &mut Visit<'_>) -> Result<()> {
        index.iterate(store, &mut |_, record| {
            visit(Extent::raw(record.address, self.format.stored_size(record), CHUNK))?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the index and the chunks, up to the maximum extent.
    pub(super) fn extents(&self, op: &Operation<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let (store, index) = (&op.data.store, self.whole_index(op.message)?);
        if !self.is_implicit {
            index.extents(store, op.btree_k, visit)?;
            return self.chunk_extents(store, &*index, visit);
        }
        // One block holds all chunks.
        let Some(first) = index.lookup(store, &vec![0; self.chunks.rank()])? else { return Ok(()) };
        let len = self.chunks.max_total().and_then(|n| n.checked_mul(self.grid.chunk_bytes()));
        let len = len.ok_or_else(|| Error::corrupt(CHUNK, first.address, "the chunks exceed 2^64 bytes"))?;
        visit(Extent::raw(first.address, len, CHUNK))
    }
}
