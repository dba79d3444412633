//! The stored chunks of a dataset, for the views of chunks.

use super::NativeConnector;
use super::access::Access;
use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::{ChunkPlace, Chunks, ObjectId};
use crate::dataset::environment::Environment;
use crate::dataset::layout::StoredChunks as Stored;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

/// A dataset with chunks.
pub struct StoredChunks {
    /// Its container.
    pub connector: Weak<NativeConnector>,
    /// Which dataset.
    pub id: ObjectId,
    /// The dataset as it was opened: as it is, unless the container is changed.
    pub dataset: Arc<Dataset>,
}

impl StoredChunks {
    fn connector(&self) -> Result<Arc<NativeConnector>> {
        self.connector.upgrade().ok_or_else(|| Error::refused(libc::EIO, "the container is closed"))
    }

    /// Calls `f` with the dataset as it is now.
    fn with<T>(&self, f: impl FnOnce(&Dataset, &dyn Stored, &Environment) -> Result<T>) -> Result<T> {
        self.within(&self.connector()?.access(), f)
    }

    fn within<T>(&self, access: &Access<'_>, f: impl FnOnce(&Dataset, &dyn Stored, &Environment) -> Result<T>) -> Result<T> {
        let connector = access.connector;
        if let Some((other, id)) = connector.other_files().written_elsewhere(self.id) {
            let access = other.access();
            let there = StoredChunks { connector: Arc::downgrade(&other), id, dataset: access.dataset(id)?.dataset.clone() };
            return there.within(&access, f);
        }
        let dataset = if connector.editing.is_some() { access.dataset(self.id)?.dataset.clone() } else { self.dataset.clone() };
        let none = || Error::unsupported("dataset", dataset.object.header.address, "the layout has no chunks");
        f(&dataset, dataset.layout().stored_chunks().ok_or_else(none)?, &connector.options.environment)
    }
}

impl Chunks for StoredChunks {
    fn rank(&self) -> usize {
        self.dataset.space.dims.len()
    }

    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>> {
        self.with(|d, stored, _| stored.stored_len(&d.bytes, scaled))
    }

    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.with(|d, stored, _| stored.read(&d.bytes, scaled, offset, buf))
    }

    fn is_portable(&self) -> bool {
        self.dataset.layout().stored_chunks().is_some_and(Stored::is_portable)
    }

    fn place(&self, scaled: &[u64]) -> Result<Option<ChunkPlace>> {
        self.with(|d, stored, environment| {
            let Some(place) = stored.place(&d.bytes, environment, scaled)? else { return Ok(None) };
            let offset = place.mask.map(|_| d.bytes.store.offset(place.address, "chunk")).transpose()?;
            Ok(Some(ChunkPlace { len: place.len, mask: place.mask, offset }))
        })
    }

    fn next(&self, scaled: &[u64]) -> Result<Option<Vec<u64>>> {
        self.with(|d, stored, environment| stored.next(&d.bytes, environment, scaled))
    }

    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        let mut read = |access: &Access<'_>, start, take: &mut dyn FnMut((Vec<u64>, u64), u64) -> ControlFlow<()>| {
            self.within(access, |d, stored, _| stored.list(&d.bytes, start, &mut |scaled, len, next| take((scaled.to_vec(), len), next)))
        };
        self.connector()?.each_unlocked(start, &mut read, &mut |(scaled, len), next| f(&scaled, len, next))
    }
}
