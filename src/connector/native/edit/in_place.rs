//! Writing bytes that change no structure: over contiguous data that are there, or chunks that wait in memory. Readers go
//! on meanwhile.

use super::super::dataset::Dataset;
use super::{NativeConnector, WAITING_MAX, is_full, now};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::storage::Storage;
use std::sync::atomic::Ordering;

impl NativeConnector {
    /// Writes `bytes` at `offset` if that is all there is to do; `false`: it is not, and nothing was done.
    pub(super) fn write_in_place(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<bool> {
        let editing = self.editing()?;
        if id.file != 0 {
            return Ok(false);
        }
        let writer = editing.writer();
        let shared = self.shared();
        // The first change of the file, and once a second the time of the dataset's change, are more than that.
        if !editing.begun.load(Ordering::Acquire) || editing.touched.lock().get(&id) != Some(&now()) {
            return Ok(false);
        }
        let store = self.file(0)?.store.clone();
        if !store.is_writable() || !editing.is_vetted(id, &store) {
            return Ok(false);
        }
        let put = self.put(&self.dataset(id)?.dataset, offset, bytes);
        if put.as_ref().is_err_and(is_full) {
            store.transaction()?.note_starved();
        }
        if !put? {
            return Ok(false);
        }
        let waiting = store.transaction()?.waiting();
        drop(shared);
        drop(writer);
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
        match &d.bytes.storage {
            &Storage::Contiguous(address) if address.is_defined() => {
                let beyond = || Error::corrupt("contiguous data layout", address, "ends beyond 2^64");
                d.bytes.store.write_raw(address.checked_add(offset).ok_or_else(beyond)?, bytes)?;
                Ok(true)
            }
            Storage::Chunked(c) => {
                let dirty = &self.options.environment.dirty;
                let touched = c.grid.touched(offset, bytes.len());
                let Some(chunks) = touched.iter().map(|t| dirty.get(c.key(t.chunk))).collect::<Option<Vec<_>>>() else { return Ok(false) };
                for (t, chunk) in touched.iter().zip(chunks) {
                    chunk.gather(&c.grid, t, bytes)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
