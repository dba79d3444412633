//! Changed chunks that a damaged dataset does not take.
//!
//! They are dropped, so that others can be made durable and memory does not fill with them, and whoever has the dataset open is
//! told: writing to it and making it durable fail from then on, until all have closed it and one at least was told.

use super::super::dataset::number;
use super::{Change, NativeConnector};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::chunk::cache::ChunkKey;
use crate::dataset::chunk::dirty::DirtyChunk;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Chunks that are tried one by one and fail before the others of their dataset count as lost, too.
const TRIED: usize = 64;

/// Why chunks of a dataset were lost.
struct Loss {
    error: Error,
    /// Somebody knows.
    told: bool,
}

/// Datasets that lost chunks.
#[derive(Default)]
pub(super) struct Losses(Mutex<HashMap<ObjectId, Loss>>);

impl Losses {
    /// A chunk of `id` was lost. The first one is logged.
    fn note(&self, id: ObjectId, error: &Error) {
        let known = self.0.lock().insert(id, Loss { error: error.clone(), told: false }).is_some();
        if !known {
            tracing::error!("object at {}: bytes that were written to it cannot be stored and are lost: {error}", id.address);
        }
    }

    /// Tells what `id` lost, if it did.
    pub(super) fn tell(&self, id: ObjectId) -> Result<()> {
        let mut losses = self.0.lock();
        let Some(loss) = losses.get_mut(&id) else { return Ok(()) };
        loss.told = true;
        Err(Error::refused(libc::EIO, format!("bytes that were written before are lost: {}", loss.error)))
    }

    /// Nobody has `id` open any more.
    pub(super) fn closed(&self, id: ObjectId) {
        let mut losses = self.0.lock();
        if losses.get(&id).is_some_and(|l| l.told) {
            losses.remove(&id);
        }
    }

    /// `id` is gone.
    pub(super) fn forget(&self, id: ObjectId) {
        self.0.lock().remove(&id);
    }

    /// At the end: a loss that nobody was told of.
    pub(super) fn untold(&self) -> Result<()> {
        match self.0.lock().iter().find(|(_, loss)| !loss.told) {
            None => Ok(()),
            Some((id, loss)) => {
                Err(Error::refused(libc::EIO, format!("bytes written to the object at {} are lost: {}", id.address, loss.error)))
            }
        }
    }
}

/// The object is what an error is about; what is done to others may go well.
pub(super) fn is_of_object(e: &Error) -> bool {
    match e {
        Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Limit { .. } | Error::Missing { .. } => true,
        Error::Refused { errno, .. } => *errno != libc::EROFS,
        Error::Io { .. } => false,
    }
}

impl Change<'_> {
    /// Writes changed chunks of a dataset to the file. Those that the dataset does not take are lost. Errors: those of the file.
    pub(super) fn flush_or_lose(&self, id: ObjectId, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<()> {
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
            self.editing.losses.note(id, &error);
            self.connector.options.environment.dirty.remove(one.0);
        }
        self.changed(id);
        Ok(())
    }

    /// Writes all changed chunks to the file.
    pub(super) fn flush_all(&self) -> Result<()> {
        let dirty = &self.connector.options.environment.dirty;
        for n in dirty.datasets() {
            let id = super::flush::id_of(n);
            debug_assert_eq!(number(id), n, "only the mounted file is changed");
            self.flush_or_lose(id, &dirty.of(n))?;
        }
        Ok(())
    }
}

impl NativeConnector {
    /// `id` lost a name: what was lost of it is nobody's concern when it is gone.
    pub(super) fn lost_with(&self, id: Option<ObjectId>) {
        if let (Some(editing), Some(id)) = (&self.editing, id)
            && !editing.held.lock().contains_key(&id)
        {
            editing.losses.forget(id);
        }
    }
}
