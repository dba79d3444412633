//! Writes and resizes datasets; stores dirty chunks and times.

use super::super::dataset::{Dataset, key};
use super::change_parts::{DataChange, DirtyChunkChange, ObjectChange};
use super::flush::LogFlush;
use super::holes::Touched;
use super::{Change, now};
use crate::base::shape::Extent;
use crate::base::{Error, Result};
use crate::connector::{Form, ObjectId};
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::encoded::Encoded;
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::layout::{DirtyList, Operation};
use crate::format::message::data_layout::DataLayout;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::{flag, kind};
use crate::meta::header_edit::HeaderEdit;
use crate::structures::shared_messages::edit as shared_messages_edit;
use std::sync::Arc;

/// Replaces the body of the message of type `kind`.
pub(super) fn replace_message(header: &mut HeaderEdit, kind: u16, body: Vec<u8>) -> Result<()> {
    let i = header.find(kind).ok_or_else(|| Error::refused(libc::EIO, "the object's header lacks a message"))?;
    header.set_body(i, body);
    // The new body is not the shared one.
    if let Some(flags) = header.message(i).map(|m| m.flags).filter(|f| f & flag::SHARED != 0) {
        header.set_flags(i, flags & !flag::SHARED);
    }
    Ok(())
}

fn not_encoded() -> Error {
    Error::refused(libc::EOPNOTSUPP, "the dataset has a filter that is not encoded")
}

/// First dimension of the dataset `d` if it has `size` bytes, rounded up to whole rows; `None`: it
/// has that. Errors: it cannot have that size.
pub(super) fn rows_of(d: &Dataset, size: u64) -> Result<Option<u64>> {
    let grows = size > d.bytes.size;
    let errno = if grows { libc::EFBIG } else { libc::EPERM };
    let refuse = |reason: &'static str| Err(Error::refused(errno, reason));
    if d.space.extent != Extent::Simple || d.space.dims.is_empty() {
        return refuse("a dataset without dimensions has one size");
    }
    if d.layout().mapped().is_some() {
        return refuse("a virtual dataset has the size that its sources make; its elements can be overwritten");
    }
    if d.layout().logged().is_some() && d.space.max_dims.is_none() {
        return refuse("the dataset has no maximum shape beyond its own");
    }
    if !d.layout().resizes() {
        return refuse("only chunked datasets change their size; overwrite bytes in place, as 'dd conv=notrunc' does");
    }
    let row = d.space.dims.iter().skip(1).try_fold(d.element_size, |n, d| n.checked_mul(*d));
    let Some(row) = row.filter(|r| *r > 0) else { return refuse("a row of the first dimension has no bytes") };
    let rows = size.div_ceil(row);
    let old = d.space.dims.first().copied().unwrap_or(0);
    if rows == old {
        return Ok(None);
    }
    let most = d.space.max().first().copied().flatten();
    if most.is_some_and(|m| rows > m) {
        return refuse("the dataset's maximum shape does not let it grow");
    }
    if rows.checked_mul(row).is_none_or(|n| i64::try_from(n).is_err() || !d.bytes.store.ctx().holds(n)) {
        return Err(Error::refused(libc::EFBIG, "larger than a file can be"));
    }
    if d.space.max_dims.is_none() && rows > old {
        return refuse("the dataset has no maximum shape beyond its own");
    }
    Ok(Some(rows))
}

impl DataChange<'_> {
    /// Writes `bytes` at `offset`. Extends the dataset if they end past it.
    pub(super) fn write(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let d = self.change.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return self.change.forms().write_form(&d, form, offset, bytes);
        }
        self.change.connector.holes().note_holes(id, d.bytes.size, Touched::Written(offset..offset.saturating_add(bytes.len() as u64)))?;
        match self.change.references().keep_references(&d, offset, bytes)? {
            Some(bytes) => self.put_elements(id, offset, &bytes)?,
            None => self.put_elements(id, offset, bytes)?,
        }
        self.change.objects().touch(id)
    }

    /// Writes elements in their stored form, and the modification time.
    pub(super) fn write_elements(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.put_elements(id, offset, bytes)?;
        self.change.objects().touch(id)
    }

    /// Writes elements in their stored form. Does not change times.
    pub(super) fn put_elements(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        let d = self.change.dataset(id)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| Error::refused(libc::EFBIG, "beyond 2^64 bytes"))?;
        if d.layout().mapped().is_some() {
            return if end > d.bytes.size { self.resize(&d, end) } else { self.write_through(&d, &[(offset, bytes)], None) };
        }
        if self.write_small(&d, offset, bytes)? {
            return Ok(());
        }
        let grown = end > d.bytes.size;
        if grown {
            self.resize(&d, end)?;
        }
        drop(d);
        // Sparse chunks grow by writes: without storage for them, the operation may fail.
        let undone = grown || self.change.access.reserve_unstored(Some(bytes.len() as u64)).is_err();
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let d = self.change.dataset(id)?;
            let written = d.layout().write(&self.change.operation(&d, &d.space), at, rest, undone || at > offset)?;
            if let Some(layout) = &written.layout {
                self.set_layout(&d, layout)?;
            }
            (at, rest) = (at.saturating_add(written.len as u64), rest.get(written.len..).unwrap_or_default());
            if !rest.is_empty() {
                self.change.dirty_chunks().flush_if_many(id)?;
            }
        }
        Ok(())
    }

    /// Stores a new data layout message in the object header.
    pub(super) fn set_layout(&self, d: &Dataset, layout: &DataLayout) -> Result<()> {
        shared_messages_edit::forget(&*self.change.store()?, d.id.address)?;
        let mut header = self.change.header(d.id)?;
        replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(d.bytes.store.ctx())?)?;
        header.write(&d.bytes.store)?;
        self.change.changed(d.id);
        Ok(())
    }

    /// Sets the size of the dataset to `size` bytes, rounded up to whole rows.
    pub(super) fn set_size(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        let d = self.change.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return self.change.forms().resize_form(&d, form, size);
        }
        if size == d.bytes.size {
            return Ok(());
        }
        self.change.connector.holes().note_holes(id, d.bytes.size, Touched::Resized(size))?;
        self.resize(&d, size)?;
        self.change.objects().touch(id)
    }

    pub(super) fn resize(&self, d: &Arc<Dataset>, size: u64) -> Result<()> {
        let Some(rows) = rows_of(d, size)? else { return Ok(()) };
        let rest = d.space.dims.iter().skip(1).copied();
        self.set_dims(d, std::iter::once(rows).chain(rest).collect())
    }

    /// Sets the extent of the dataset to `dims`, which it may have. Each element keeps its
    /// coordinates.
    pub(super) fn set_dims(&self, d: &Arc<Dataset>, dims: Vec<u64>) -> Result<()> {
        let layout = d.layout().resize(&self.change.operation(d, &d.space), &dims)?;
        let space = Dataspace { dims, ..d.space.clone() };
        let store = &d.bytes.store;
        shared_messages_edit::forget(&*self.change.store()?, d.id.address)?;
        let in_log = self.change.log().set_anchor_extent(d, &space)?;
        let mut header = self.change.header(d.id)?;
        if !in_log {
            replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        }
        if let Some(layout) = layout {
            replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(store.ctx())?)?;
        }
        header.write(store)?;
        self.change.changed(d.id);
        let new = self.change.dataset(d.id)?;
        new.layout().resized(&self.change.operation(&new, &new.space), &d.space.dims)
    }
}

impl DirtyChunkChange<'_> {
    /// Stores dirty chunks of a dataset if they exceed their memory.
    pub(super) fn flush_if_many(&self, id: ObjectId) -> Result<()> {
        let env = &self.change.connector.options.environment;
        let many = env.dirty.bytes() > self.change.connector.write_back().dirty_budget() || env.files_are_full();
        if self.change.access.written_log().is_some_and(|log| log.staged_bytes() > self.change.connector.write_back().dirty_budget()) {
            self.change.log().flush_log(LogFlush::Within)?;
        }
        if many { self.flush_within(id) } else { Ok(()) }
    }

    /// Stores the dirty chunks of one dataset, as an operation of its own.
    pub(super) fn flush_dataset(&self, id: ObjectId) -> Result<()> {
        let chunks = self.change.connector.options.environment.dirty.of(key(id));
        self.flush_chunks(id, &chunks)
    }

    pub(super) fn flush_chunks(&self, id: ObjectId, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let d = self.change.dataset(id)?;
        // A failed operation may have left dirty chunks outside the extent.
        let op = self.change.operation(&d, &d.space);
        let within = |key: &ChunkKey| d.layout().write_back().is_some_and(|w| w.contains(&op, *key));
        let (chunks, gone): (Vec<_>, Vec<_>) = chunks.iter().cloned().partition(|(key, _)| within(key));
        gone.iter().for_each(|(key, _)| self.change.connector.options.environment.dirty.remove(*key));
        self.change.atomically(|| self.place_chunks(&d, &chunks))?;
        // They stay dirty until the index refers to them.
        self.change.connector.options.environment.flushed(chunks.iter().map(|(key, _)| *key));
        self.change.changed(id);
        Ok(())
    }

    fn place_chunks(&self, d: &Dataset, chunks: &DirtyList) -> Result<()> {
        let Some(write_back) = d.layout().write_back() else { return Ok(()) };
        match write_back.flush(&self.change.operation(d, &d.space), chunks)? {
            Some(layout) => self.change.data().set_layout(d, &layout),
            None => Ok(()),
        }
    }

    /// Stores the dirty chunks of one dataset, as a part of an operation.
    pub(super) fn flush_within(&self, id: ObjectId) -> Result<()> {
        let chunks = self.change.connector.options.environment.dirty.of(key(id));
        if chunks.is_empty() {
            return Ok(());
        }
        let d = self.change.dataset(id)?;
        self.place_chunks(&d, &chunks)?;
        self.change.connector.options.environment.flushed(chunks.iter().map(|(key, _)| *key));
        self.change.changed(id);
        Ok(())
    }

    /// Stores chunks that were encoded without the lock, if they are still current. Returns their
    /// number.
    pub(super) fn enter_encoded(&self, id: ObjectId, mut encoded: Vec<Encoded>) -> Result<usize> {
        if !encoded.iter().any(|e| self.change.connector.options.environment.dirty.is_current(e.key, &e.chunk, e.version)) {
            return Ok(0);
        }
        let d = self.change.dataset(id)?;
        let (op, Some(write_back)) = (self.change.operation(&d, &d.space), d.layout().write_back()) else { return Ok(0) };
        encoded.retain(|e| write_back.is_current(&op, e));
        if encoded.is_empty() {
            return Ok(0);
        }
        self.change.atomically(|| match write_back.enter(&op, &encoded)? {
            Some(layout) => self.change.data().set_layout(&d, &layout),
            None => Ok(()),
        })?;
        self.change.connector.options.environment.flushed(encoded.iter().map(|e| e.key));
        self.change.changed(id);
        Ok(encoded.len())
    }
}

impl Change<'_> {
    /// The dataset `id`, whose elements change now. Errors: it cannot be written.
    pub(super) fn writable_dataset(&self, id: ObjectId) -> Result<Arc<Dataset>> {
        let d = self.dataset_for_chunks(id)?;
        if d.pipeline.can_encode() { Ok(d) } else { Err(not_encoded()) }
    }

    /// The dataset `id`, which takes stored chunks now: its filters may be unknown. Errors: it
    /// cannot be changed.
    pub(super) fn dataset_for_chunks(&self, id: ObjectId) -> Result<Arc<Dataset>> {
        self.editing.preparations.cancel(id);
        let d = self.dataset(id)?;
        if !d.layout().can_encode() {
            return Err(not_encoded());
        }
        self.data().check_bounds(&d)?;
        Ok(d)
    }

    /// This operation for the layout of `d`. `space`: the extent, or the new one.
    pub(super) fn operation<'a>(&'a self, d: &'a Dataset, space: &'a Dataspace) -> Operation<'a> {
        Operation {
            env: &self.connector.options.environment,
            data: &d.bytes,
            message: &d.message,
            space,
            dirty_budget: self.connector.write_back().dirty_budget(),
            btree_k: self.editing.btree_k,
            header: d.id.address,
        }
    }

    pub(super) fn header(&self, id: ObjectId) -> Result<HeaderEdit> {
        HeaderEdit::load(&*self.store()?, id.address)
    }

    /// Frees the storage of the elements of `d`.
    pub(super) fn delete_storage(&self, d: &Dataset) -> Result<()> {
        d.layout().delete(&self.operation(d, &d.space))
    }
}

impl ObjectChange<'_> {
    /// Sets the modification time, at most once a second.
    pub(super) fn touch(&self, id: ObjectId) -> Result<()> {
        let seconds = now();
        if self.change.editing.objects.note_times(id, seconds) {
            return Ok(());
        }
        self.set_mtime(id, seconds).map(|_| ())
    }

    /// Sets the modification time, if the header records one. Returns whether it does.
    pub(super) fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let mut header = self.change.header(id)?;
        if header.prefix().times.is_none() && header.find(kind::MTIME).or(header.find(kind::MTIME_OLD)).is_none() {
            return Ok(false);
        }
        header.touch(seconds);
        header.write(&*self.change.store()?)?;
        Ok(true)
    }

    /// Sets only the change time, if the header records one.
    pub(super) fn note_change(&self, id: ObjectId) -> Result<()> {
        let mut header = self.change.header(id)?;
        header.note_change(now());
        header.write(&*self.change.store()?)
    }

    /// Sets the modification time for utimensat(2). A later write sets it again.
    pub(super) fn wish_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.change.editing.objects.forget_times(id);
        self.set_mtime(id, seconds)
    }

    /// Sets the access time, if the header records one. Returns whether it does.
    pub(super) fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let mut header = self.change.header(id)?;
        let done = header.set_accessed(seconds);
        if done {
            header.write(&*self.change.store()?)?;
        }
        Ok(done)
    }
}
