//! Stored chunks of a dataset, to be moved to another file system without being decoded.

use super::mounted::Mounted;
use super::types::FsResult;
use super::views::Host;
use crate::connector::ObjectId;
use crate::connector::stored::StoredChunks;
pub use crate::connector::stored::{ChunkStorage, Original, StoredChunk};
use std::sync::Arc;

/// The stored chunks of a dataset of a file system.
pub struct StoredSource {
    mounted: Arc<Mounted>,
    id: ObjectId,
    chunks: Arc<dyn StoredChunks>,
}

impl StoredSource {
    /// Those of the dataset `id`; `referred`: only if another container can refer to them where
    /// they are. `None`: its elements are copied.
    pub(super) fn of(mounted: &Arc<Mounted>, id: ObjectId, referred: bool) -> FsResult<Option<StoredSource>> {
        // The chunks of a file that others change may move while they are read.
        if mounted.connector.follow().is_some() {
            return Ok(None);
        }
        let found = if referred { mounted.connector.referable(id) } else { mounted.connector.stored(id) };
        let chunks = found.map_err(|e| mounted.failed(Some(id), &e))?;
        Ok(chunks.map(|chunks| StoredSource { mounted: mounted.clone(), id, chunks }))
    }

    /// How they are stored.
    pub fn storage(&self) -> &ChunkStorage {
        self.chunks.storage()
    }

    /// The file that has their bytes, if others can refer to it.
    pub fn original(&self) -> Option<Original> {
        self.chunks.original()
    }

    /// The next chunks in row-major order after the one at `after`, or from the first one on: about
    /// `budget` bytes, and one chunk at least. None: there are no more.
    pub fn next(&self, after: Option<&[u64]>, budget: u64) -> FsResult<Vec<StoredChunk>> {
        self.chunks.next(after, budget).map_err(|e| self.mounted.failed(Some(self.id), &e))
    }
}
