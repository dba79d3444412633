//! A chunked dataset: geometry, index and format of its chunks.

use super::found_chunks::FoundChunks;
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::format::ChunkFormat;
use crate::dataset::chunk::key::{ChunkKey, DatasetKey};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::index::{ChunkIndex, ChunkRecord};
use std::sync::Arc;

/// Storage of a chunked dataset.
pub(super) struct Chunked {
    /// Key of the dataset in the chunk caches.
    pub(crate) number: DatasetKey,
    /// Geometry in bytes.
    pub(crate) grid: ByteGrid,
    /// Geometry in elements.
    pub(crate) chunks: ChunkGrid,
    /// The chunk index.
    pub(crate) index: Box<dyn ChunkIndex>,
    /// Form of a chunk in memory and in the file.
    pub(crate) format: Arc<dyn ChunkFormat>,
    /// The index has storage: chunks may have been written.
    pub(crate) has_index: bool,
    /// The index is implicit: every chunk is allocated at a fixed address.
    pub(crate) is_implicit: bool,
    /// What searches for stored chunks found.
    pub(crate) found: FoundChunks,
}

impl Chunked {
    /// The chunk's key in the caches.
    pub(crate) fn key(&self, chunk: u64) -> ChunkKey {
        ChunkKey { dataset: self.number, chunk }
    }

    /// True if the stored bytes of the chunk are its elements.
    pub(crate) fn is_plain(&self, scaled: &[u64]) -> bool {
        self.format.is_plain(self.grid.is_edge(scaled))
    }

    /// True if a stored chunk can be changed in place.
    pub(crate) fn is_in_place(&self, scaled: &[u64], record: ChunkRecord) -> bool {
        self.is_plain(scaled) && self.format.stored_size(record) == self.grid.chunk_bytes()
    }
}
