//! Writes that change no structure: over allocated contiguous bytes, over dirty chunks, or over
//! small parts of unfiltered chunks of one dimension. They do not exclude readers.

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
        let access = self.access();
        // The first change of the file, and a new modification time, change structures.
        if !editing.begun.load(Ordering::Acquire) || !editing.objects.has_times(id, now()) {
            return Ok(false);
        }
        let store = self.file(0)?.store.clone();
        if !store.is_writable() || !editing.has_checked_bounds(id, &store) {
            return Ok(false);
        }
        editing.preparations.cancel(id);
        let open = access.dataset(id)?;
        let written = offset..offset.saturating_add(bytes.len() as u64);
        self.holes().note_holes(id, open.dataset.bytes.size, Touched::Written(written))?;
        // An operation may store chunks for which there is no storage, or be rolled back.
        if access.reserve_unstored(Some(bytes.len() as u64)).is_err() {
            return Ok(false);
        }
        let put = self.put(&open.dataset, offset, bytes);
        if put.as_ref().is_err_and(is_full) {
            store.transaction()?.note_starved();
            // An operation commits, which may free space, and retries.
            return Ok(false);
        }
        if !put? {
            return Ok(false);
        }
        let waiting = store.transaction()?.waiting();
        drop(access);
        drop(writer);
        // Sparse chunks grow by writes.
        if self.options.environment.dirty.bytes() > self.write_back().dirty_budget() {
            self.write_back().bound_dirty()?;
        }
        self.write_back().bound_staged()?;
        if waiting > WAITING_MAX {
            self.commits().commit_all(false)?
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

#[cfg(test)]
mod tests {
    use super::super::fault_tests::{bytes, writable};
    use crate::connector::Connector;
    use crate::connector::edit::Edit;
    use crate::file::fault::{Fault, Plan};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_small_write_to_a_stored_chunk_and_its_commit_do_not_wait_for_readers() {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let id = c.create_file(c.root(), b"d").unwrap();
        c.write(id, 0, &[1; 64 << 10]).unwrap();
        c.commit().unwrap();
        // In a new second a write stores the modification time, with the exclusive lock.
        let passed = (0..10).any(|_| {
            c.write(id, 0, &[1]).unwrap();
            c.commit().unwrap();
            let (done, is_done) = channel();
            std::thread::scope(|scope| {
                let reader = c.access();
                scope.spawn(|| {
                    c.write(id, 100, &[2; 4]).unwrap();
                    c.commit().unwrap();
                    done.send(()).unwrap();
                });
                let passed = is_done.recv_timeout(Duration::from_millis(500)).is_ok();
                drop(reader);
                passed
            })
        });
        assert!(passed);
        assert_eq!(bytes(&c, id).get(99..105), Some(&[1, 2, 2, 2, 2, 1][..]));
    }
}
