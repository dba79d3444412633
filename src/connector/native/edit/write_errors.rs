//! Dirty chunks that a damaged dataset does not accept.
//!
//! They are dropped, so that other datasets can be committed and memory does not fill. From then
//! on, writing to the dataset and `fsync` of it fail, until every file on it is closed and one
//! caller at least got the error.

use super::super::dataset::key;
use super::change_parts::DirtyChunkChange;
use super::errors::is_of_object;
use super::{Editing, NativeConnector};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::key::ChunkKey;
use std::sync::Arc;

/// Chunks that are tried one by one and fail before the others of their dataset count as lost, too.
const TRIED: usize = 64;

/// Why written bytes of an object could not be stored.
#[derive(Debug)]
pub(super) struct WriteError {
    error: Error,
    /// A caller got the error.
    pub(super) is_reported: bool,
}

impl Editing {
    /// Records that written bytes of `id` could not be stored. The first error of an object is
    /// logged.
    fn record_write_error(&self, id: ObjectId, error: &Error) {
        let recorded = WriteError { error: error.clone(), is_reported: false };
        if self.objects.change_pending(id, |p| p.write_error.replace(recorded)).is_none() {
            tracing::error!("object at {}: bytes that were written to it cannot be stored and are lost: {error}", id.address);
        }
    }

    /// Errors: the write error of `id`, if there is one. It counts as reported then.
    pub(super) fn report_write_error(&self, id: ObjectId) -> Result<()> {
        let error = self.objects.change_pending(id, |p| {
            p.write_error.as_mut().map(|recorded| {
                recorded.is_reported = true;
                recorded.error.clone()
            })
        });
        match error {
            None => Ok(()),
            Some(error) => Err(Error::refused(libc::EIO, format!("bytes that were written before are lost: {error}"))),
        }
    }

    /// Errors: a write error that no caller got.
    pub(super) fn unreported_write_error(&self) -> Result<()> {
        let pending = self.objects.all_pending();
        let mut errors = pending.iter().filter_map(|(id, p)| p.write_error.as_ref().map(|error| (id, error)));
        match errors.find(|(_, error)| !error.is_reported) {
            None => Ok(()),
            Some((id, recorded)) => {
                let reason = format!("bytes written to the object at {} are lost: {}", id.address, recorded.error);
                Err(Error::refused(libc::EIO, reason))
            }
        }
    }
}

impl DirtyChunkChange<'_> {
    /// Writes changed chunks of a dataset to the file. Those that the dataset does not take are
    /// lost. Errors: those of the file.
    pub(super) fn flush_or_drop(&self, id: ObjectId, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<()> {
        let Err(e) = self.flush_chunks(id, chunks) else { return Ok(()) };
        if !is_of_object(&e) {
            return Err(e);
        }
        // What of it is sound takes its own.
        let (mut error, mut failed) = (e, 0usize);
        for one in chunks {
            if failed < TRIED {
                match self.flush_chunks(id, std::slice::from_ref(one)) {
                    Ok(()) => continue,
                    Err(e) if is_of_object(&e) => error = e,
                    Err(e) => return Err(e),
                }
            }
            failed = failed.saturating_add(1);
            self.change.editing.record_write_error(id, &error);
            self.change.connector.options.environment.dirty.remove(one.0);
        }
        self.change.changed(id);
        Ok(())
    }

    /// Writes all changed chunks to the file.
    pub(super) fn flush_all(&self) -> Result<()> {
        let dirty = &self.change.connector.options.environment.dirty;
        for n in dirty.datasets() {
            let id = super::super::dataset::id_of(n);
            debug_assert_eq!(key(id), n, "only the mounted file is changed");
            self.flush_or_drop(id, &dirty.of(n))?;
        }
        Ok(())
    }
}

impl NativeConnector {
    /// Drops the write error of an object that lost its last name and is not in use.
    pub(super) fn forget_write_error(&self, id: Option<ObjectId>) {
        if let (Some(editing), Some(id)) = (&self.editing, id)
            && !editing.objects.is_held(id)
        {
            editing.objects.change_pending(id, |p| p.write_error = None);
        }
    }
}
