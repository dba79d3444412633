//! Stored chunks of a dataset, moved to another file system without being decoded.

use super::{Models, ObjectModel, is_not_supported, without_reason};
use crate::base::Result;
use crate::connector::stored::StoredChunks;
pub use crate::connector::stored::{ChunkStorage, Original, StoredChunk};
use crate::connector::{Form, ObjectId};
use crate::fs::done::Invalidate;
use crate::fs::open_files::check_writable;
use crate::fs::types::{Errno, FsResult};
use std::ops::Range;
use std::sync::Arc;

/// The stored chunks of a dataset.
pub struct StoredSource(Arc<dyn StoredChunks>);

impl StoredSource {
    /// How they are stored.
    pub fn storage(&self) -> &ChunkStorage {
        self.0.storage()
    }

    /// The file that has their bytes, if others can refer to it.
    pub fn original(&self) -> Option<Original> {
        self.0.original()
    }

    /// The next chunks in row-major order after the one at `after`, or from the first one on: about
    /// `budget` bytes, and one chunk at least. None: there are no more.
    pub fn next(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<StoredChunk>> {
        self.0.next(after, budget)
    }
}

impl ObjectModel {
    /// The dataset whose bytes are those of the file one by one.
    fn mapped_dataset(&self) -> FsResult<Option<ObjectId>> {
        Ok(self.models.namespace.living(self.ino)?.item.mapped_dataset())
    }

    /// The dataset whose bytes are those of the file one by one, to be changed.
    fn writable_dataset(&self) -> FsResult<ObjectId> {
        let Models { mounted, namespace, .. } = &*self.models;
        let node = namespace.living(self.ino)?;
        let id = node.item.mapped_dataset().ok_or(Errno(libc::EOPNOTSUPP))?;
        check_writable(mounted, &node).map(|()| id)
    }

    /// The stored chunks of the dataset; `referred`: only if another container can refer to them
    /// where they are. `None`: its elements are copied.
    pub fn stored_chunks(&self, referred: bool) -> Result<Option<StoredSource>> {
        let connector = &self.models.mounted.connector;
        // The chunks of a file that others change may move while they are read.
        if connector.follow().is_some() {
            return Ok(None);
        }
        let Some(id) = self.mapped_dataset().map_err(without_reason)? else { return Ok(None) };
        let found = if referred { connector.referable(id) } else { connector.stored(id) };
        Ok(found?.map(StoredSource))
    }

    /// True if chunks stored by `storage` can be stored in the dataset as they are.
    pub fn takes_chunks(&self, storage: &ChunkStorage) -> Result<bool> {
        let Ok(id) = self.writable_dataset() else { return Ok(false) };
        self.models.editor()?.takes_chunks(id, storage)
    }

    /// Stores chunks of another container in the dataset as they are, or refers to their bytes in
    /// `original`. False: the caller writes elements.
    pub fn store_chunks(&self, storage: &ChunkStorage, chunks: &[StoredChunk], original: Option<&Original>) -> Result<bool> {
        let (id, edit) = (self.writable_dataset().map_err(without_reason)?, self.models.editor()?);
        let stored = match original {
            Some(original) => edit.refer_to_chunks(id, storage, chunks, original),
            None => edit.store_chunks(id, storage, chunks),
        };
        match stored {
            Err(e) if is_not_supported(&e) => return Ok(false),
            stored => stored.inspect_err(|e| self.models.mounted.reasons.note(id, e))?,
        }
        self.models.changes.changed(&[id], &mut Invalidate::default());
        Ok(true)
    }

    /// True if the bytes of its file are those of its elements one by one.
    pub fn has_mapped_bytes(&self) -> bool {
        self.mapped_dataset().is_ok_and(|id| id.is_some())
    }

    /// The next range at or after byte `offset` that may have been written, if any. Bytes outside
    /// are those of the fill value, repeated at most every 64 KiB; it need not be zero.
    pub fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.read(|object| object.connector.content(object.id, Form::Main)?.written(offset))
    }
}
