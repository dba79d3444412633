//! Writes that change no structure: over allocated contiguous bytes, or over dirty chunks. They do
//! not exclude readers.

use super::super::dataset::Dataset;
use super::holes::Touched;
use super::{NativeConnector, WAITING_MAX, is_full, now};
use crate::base::Result;
use crate::connector::ObjectId;
use std::sync::atomic::Ordering;

impl NativeConnector {
    /// Writes `bytes` at `offset` if no structure changes. `false`: nothing was done.
    pub(super) fn write_in_place(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<bool> {
        let editing = self.editing()?;
        if id.file != 0 {
            return Ok(false);
        }
        let writer = editing.writer();
        let shared = self.shared();
        // The first change of the file, and a new modification time, change structures.
        if !editing.begun.load(Ordering::Acquire) || !editing.objects.has_times(id, now()) {
            return Ok(false);
        }
        let store = self.file(0)?.store.clone();
        if !store.is_writable() || !editing.has_checked_bounds(id, &store) {
            return Ok(false);
        }
        editing.preparations.cancel(id);
        let open = self.dataset(id)?;
        let written = offset..offset.saturating_add(bytes.len() as u64);
        self.note_holes(id, open.dataset.bytes.size, Touched::Written(written))?;
        // An operation may store chunks for which there is no storage, or be rolled back.
        if self.reserve_unstored(Some(bytes.len() as u64)).is_err() {
            return Ok(false);
        }
        let put = self.put(&open.dataset, offset, bytes);
        if put.as_ref().is_err_and(is_full) {
            store.transaction()?.note_starved();
        }
        if !put? {
            return Ok(false);
        }
        let waiting = store.transaction()?.waiting();
        drop(shared);
        drop(writer);
        // Sparse chunks grow by writes.
        if self.options.environment.dirty.bytes() > self.dirty_budget() {
            self.bound_dirty()?;
        }
        self.bound_staged()?;
        if waiting > WAITING_MAX {
            self.commit_all(false)?
        }
        Ok(true)
    }

    fn put(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<bool> {
        if d.datatype.contains_vlen()
            || d.datatype.contains_reference()
            || offset.checked_add(bytes.len() as u64).is_none_or(|end| end > d.bytes.size)
        {
            return Ok(false);
        }
        d.layout().overwrite(&d.bytes, &self.options.environment, offset, bytes)
    }
}
