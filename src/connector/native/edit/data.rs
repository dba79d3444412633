//! Writing and resizing datasets.

use super::super::dataset::{Dataset, number};
use super::{Change, now};
use crate::base::{Address, Error, Result};
use crate::connector::{Form, ObjectId};
use crate::container::shared_messages_edit;
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::cache::ChunkKey;
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::storage::Storage;
use crate::dataset::write::{ChunkWriter, Encoded};
use crate::format::message::data_layout::{DataLayout, Layout};
use crate::format::message::dataspace::{Dataspace, Extent};
use crate::format::object_header::{flag, kind};
use crate::meta::edit::SpaceKind;
use crate::meta::header_edit::HeaderEdit;
use std::sync::Arc;

/// Fill values are written in pieces of this many bytes.
pub(super) const PIECE: usize = 1 << 20;

/// What a dataset's chunks are written through.
pub(super) struct Chunks {
    dataset: Arc<Dataset>,
    grid: ChunkGrid,
}

impl Chunks {
    pub(super) fn grid(&self) -> &ChunkGrid {
        &self.grid
    }

    pub(super) fn writer<'a>(&'a self, change: &'a Change<'_>) -> Result<ChunkWriter<'a>> {
        let d = &*self.dataset;
        let chunked = d.chunked().ok_or_else(|| Error::corrupt("dataset", d.id.address, "it has no chunks"))?;
        Ok(ChunkWriter {
            env: &change.connector.options.environment,
            store: &d.bytes.store,
            chunked,
            grid: &self.grid,
            fill: &d.bytes.fill,
            btree_k: change.editing.btree_k,
        })
    }
}

/// Puts `body` in the place of the message of type `kind`.
pub(super) fn replace_message(header: &mut HeaderEdit, kind: u16, body: Vec<u8>) -> Result<()> {
    let i = header.find(kind).ok_or_else(|| Error::refused(libc::EIO, "the object's header lacks a message"))?;
    header.set_body(i, body);
    // It is no longer what others share.
    if let Some(flags) = header.message(i).map(|m| m.flags).filter(|f| f & flag::SHARED != 0) {
        header.set_flags(i, flags & !flag::SHARED);
    }
    Ok(())
}

impl Change<'_> {
    /// Writes `bytes` at `offset`; the dataset grows when they reach beyond its end.
    pub(super) fn write(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let d = self.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return self.write_form(&d, form, offset, bytes);
        }
        match self.keep_references(&d, offset, bytes)? {
            Some(bytes) => self.write_elements(id, offset, &bytes),
            None => self.write_elements(id, offset, bytes),
        }
    }

    /// The same for elements of any type, as they are stored.
    pub(super) fn write_elements(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.put_elements(id, offset, bytes)?;
        self.touch(id)
    }

    /// Writes elements as they are stored, and leaves the dataset's times.
    pub(super) fn put_elements(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        let d = self.dataset(id)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| Error::refused(libc::EFBIG, "beyond 2^64 bytes"))?;
        if self.write_small(&d, offset, bytes)? {
            return Ok(());
        }
        let grown = end > d.bytes.size;
        let d = if grown {
            self.resize(&d, end)?;
            self.dataset(id)?
        } else {
            d
        };
        match &d.bytes.storage {
            Storage::Compact(_) => self.write_compact(&d, offset, bytes)?,
            Storage::Contiguous(address) => {
                let address =
                    if address.is_defined() { *address } else { self.allocate_contiguous(&d, (offset, bytes.len() as u64), false)? };
                let at =
                    address.checked_add(offset).ok_or_else(|| Error::corrupt("contiguous data layout", address, "ends beyond 2^64"))?;
                d.bytes.store.write_raw(at, bytes)?;
            }
            Storage::Chunked(_) => self.write_chunks(id, offset, bytes, grown)?,
            Storage::External(e) => e.write(offset, bytes)?,
            Storage::Virtual(_) => return Err(Error::refused(libc::EPERM, "a virtual dataset is written through its sources")),
        }
        Ok(())
    }

    /// Writes elements of a chunked dataset. Where chunks are high and narrow a few bytes may lie in more of them than fit in memory.
    fn write_chunks(&self, id: ObjectId, mut at: u64, bytes: &[u8], grown: bool) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let d = self.dataset(id)?;
            let n = d.chunked().map_or(rest.len(), |c| c.grid.portion(at, rest.len(), self.connector.dirty_budget()));
            let (part, tail) = rest.split_at(n.clamp(1, rest.len()));
            let mut layout = d.layout.clone();
            if self.chunks(&d).writer(self)?.write(&mut layout, at, part, grown)? {
                self.set_layout(&d, &layout)?;
            }
            (at, rest) = (at.saturating_add(part.len() as u64), tail);
            if !rest.is_empty() {
                self.flush_if_many(id)?;
            }
        }
        Ok(())
    }

    /// Keeps what an operation writes to one dataset within bounds.
    pub(super) fn flush_if_many(&self, id: ObjectId) -> Result<()> {
        let env = &self.connector.options.environment;
        let many = env.dirty.bytes() > self.connector.dirty_budget() || env.files_are_full();
        if many { self.flush_within(id) } else { Ok(()) }
    }

    /// A dataset that can be written.
    pub(super) fn writable_dataset(&self, id: ObjectId) -> Result<Arc<Dataset>> {
        let d = self.dataset(id)?;
        if !d.pipeline.can_encode() {
            return Err(Error::refused(libc::EOPNOTSUPP, "the dataset has a filter that is not encoded"));
        }
        self.vet(&d)?;
        Ok(d)
    }

    pub(super) fn chunks(&self, d: &Arc<Dataset>) -> Chunks {
        self.chunks_of(d, &d.space)
    }

    /// The same when the dataset has another extent.
    pub(super) fn chunks_of(&self, d: &Arc<Dataset>, space: &Dataspace) -> Chunks {
        let chunk_dims = d.chunked_layout().map(|c| c.chunk_dims.clone()).unwrap_or_default();
        let grid = ChunkGrid { shape: space.dims.clone(), max_shape: space.max(), chunk_dims, element_size: d.element_size };
        Chunks { dataset: d.clone(), grid }
    }

    pub(super) fn header(&self, id: ObjectId) -> Result<HeaderEdit> {
        HeaderEdit::load(&*self.store()?, id.address)
    }

    fn write_compact(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<()> {
        let Storage::Compact(old) = &d.bytes.storage else { return Ok(()) };
        let mut data = old.clone();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let target = from.checked_add(bytes.len()).and_then(|end| data.get_mut(from..end));
        target.ok_or_else(|| Error::corrupt("compact data layout", d.id.address, "holds less than the dataset"))?.copy_from_slice(bytes);
        let Layout::Compact { dims, .. } = &d.layout.class else { return Ok(()) };
        let layout = DataLayout { version: d.layout.version, class: Layout::Compact { data, dims: dims.clone() } };
        self.set_layout(d, &layout)
    }

    /// Puts a new layout message into the header.
    pub(super) fn set_layout(&self, d: &Dataset, layout: &DataLayout) -> Result<()> {
        shared_messages_edit::forget(&*self.store()?, d.id.address)?;
        let mut header = self.header(d.id)?;
        replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(d.bytes.store.ctx())?)?;
        header.write(&d.bytes.store)?;
        self.changed(d.id);
        Ok(())
    }

    /// Room for the elements of a contiguous dataset, filled except where `len` bytes from `offset` are written next. `really`:
    /// zeros too are written, so that the backing file has the room.
    pub(super) fn allocate_contiguous(&self, d: &Dataset, (offset, len): (u64, u64), really: bool) -> Result<Address> {
        let store = &d.bytes.store;
        let address = store.allocate(d.bytes.size, SpaceKind::Raw)?;
        let fill = |mut at: u64, end: u64| -> Result<()> {
            let mut piece = vec![0u8; PIECE];
            while at < end {
                let n = usize::try_from(end.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
                let part = piece.get_mut(..n).unwrap_or_default();
                d.bytes.fill.fill(at, part);
                store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), part)?;
                at = at.saturating_add(n as u64);
            }
            Ok(())
        };
        let all = std::iter::once(0..d.bytes.size).collect();
        let parts = if d.bytes.fill.is_zero() && !really { store.written_in(address, d.bytes.size)? } else { all };
        for part in parts {
            fill(part.start, part.end.min(offset))?;
            fill(part.start.max(offset.saturating_add(len)), part.end)?;
        }
        let Layout::Contiguous { size, dims, .. } = &d.layout.class else { return Ok(address) };
        let class = Layout::Contiguous { address, size: *size, dims: dims.clone() };
        self.set_layout(d, &DataLayout { version: d.layout.version, class })?;
        Ok(address)
    }

    /// Makes the dataset's bytes `size` long, or what whole rows come nearest above.
    pub(super) fn set_size(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        let d = self.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return self.resize_form(&d, form, size);
        }
        if size == d.bytes.size {
            return Ok(());
        }
        self.resize(&d, size)?;
        self.touch(id)
    }

    pub(super) fn resize(&self, d: &Arc<Dataset>, size: u64) -> Result<()> {
        let grows = size > d.bytes.size;
        let errno = if grows { libc::EFBIG } else { libc::EPERM };
        let refuse = |reason: &'static str| Err(Error::refused(errno, reason));
        if d.space.extent != Extent::Simple || d.space.dims.is_empty() {
            return refuse("a dataset without dimensions has one size");
        }
        if d.chunked().is_none() {
            return refuse("only chunked datasets change their size");
        }
        let row = d.space.dims.iter().skip(1).try_fold(d.element_size, |n, d| n.checked_mul(*d));
        let Some(row) = row.filter(|r| *r > 0) else { return refuse("a row of the first dimension has no bytes") };
        let rows = size.div_ceil(row);
        let old = d.space.dims.first().copied().unwrap_or(0);
        if rows == old {
            return Ok(());
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
        let chunks = self.chunks(d);
        let writer = chunks.writer(self)?;
        let mut layout = d.layout.clone();
        let changed = if rows < old { writer.prune(&mut layout, rows)? } else { false };
        writer.refilter_edges(rows)?;
        let mut dims = d.space.dims.clone();
        if let Some(first) = dims.first_mut() {
            *first = rows;
        }
        let space = Dataspace { dims, ..d.space.clone() };
        let store = &d.bytes.store;
        shared_messages_edit::forget(&*self.store()?, d.id.address)?;
        let mut header = self.header(d.id)?;
        replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        if changed {
            replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(store.ctx())?)?;
        }
        header.write(store)?;
        self.changed(d.id);
        self.chunks(&self.dataset(d.id)?).writer(self)?.renew(old)
    }

    /// Writes the changed chunks of one dataset to the file.
    pub(super) fn flush_dataset(&self, id: ObjectId) -> Result<()> {
        let chunks = self.connector.options.environment.dirty.of(number(id));
        self.flush_chunks(id, &chunks)
    }

    pub(super) fn flush_chunks(&self, id: ObjectId, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let d = self.dataset(id)?;
        let parts = self.chunks(&d);
        // A failed operation may have left chunks beyond the extent, which it has no more.
        let within = |key: &ChunkKey| d.chunked().is_some_and(|c| parts.grid.contains(&c.grid.scaled(key.chunk)));
        let (chunks, gone): (Vec<_>, Vec<_>) = chunks.iter().cloned().partition(|(key, _)| within(key));
        gone.iter().for_each(|(key, _)| self.connector.options.environment.dirty.remove(*key));
        let chunks = chunks.as_slice();
        self.atomically(|| self.place_chunks(&d, &parts, chunks))?;
        // Until the index leads to them they are nowhere else.
        parts.writer(self)?.flushed(chunks.iter().map(|(key, _)| *key));
        self.changed(id);
        Ok(())
    }

    fn place_chunks(&self, d: &Dataset, parts: &Chunks, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<()> {
        let mut layout = d.layout.clone();
        if parts.writer(self)?.flush(&mut layout, chunks)? {
            self.set_layout(d, &layout)?;
        }
        Ok(())
    }

    /// Writes the changed chunks of one dataset to the file, as a part of an operation.
    pub(super) fn flush_within(&self, id: ObjectId) -> Result<()> {
        let chunks = self.connector.options.environment.dirty.of(number(id));
        if chunks.is_empty() {
            return Ok(());
        }
        let d = self.dataset(id)?;
        let parts = self.chunks(&d);
        self.place_chunks(&d, &parts, &chunks)?;
        parts.writer(self)?.flushed(chunks.iter().map(|(key, _)| *key));
        self.changed(id);
        Ok(())
    }

    /// Enters chunks that were encoded without the lock, as far as they are still what would be written. Returns how many.
    pub(super) fn enter_encoded(&self, id: ObjectId, mut encoded: Vec<Encoded>) -> Result<usize> {
        if !encoded.iter().any(|e| self.connector.options.environment.dirty.is_current(e.key, &e.chunk, e.version)) {
            return Ok(0);
        }
        let d = self.dataset(id)?;
        let parts = self.chunks(&d);
        let writer = parts.writer(self)?;
        encoded.retain(|e| writer.is_current(e));
        if encoded.is_empty() {
            return Ok(0);
        }
        self.atomically(|| {
            let mut layout = d.layout.clone();
            if writer.enter(&mut layout, &encoded)? { self.set_layout(&d, &layout) } else { Ok(()) }
        })?;
        writer.flushed(encoded.iter().map(|e| e.key));
        self.changed(id);
        Ok(encoded.len())
    }

    /// Gives back the chunks and the index of a dataset.
    pub(super) fn delete_chunks(&self, d: &Arc<Dataset>) -> Result<()> {
        let parts = self.chunks(d);
        parts.writer(self)?.delete(&mut d.layout.clone())
    }

    /// Sets the modification time, at most once a second.
    pub(super) fn touch(&self, id: ObjectId) -> Result<()> {
        let seconds = now();
        if self.editing.touched.lock().insert(id, seconds) == Some(seconds) {
            return Ok(());
        }
        self.set_mtime(id, seconds).map(|_| ())
    }

    /// Sets the modification time where the header records one.
    pub(super) fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let mut header = self.header(id)?;
        if header.prefix().times.is_none() && header.find(kind::MTIME).or(header.find(kind::MTIME_OLD)).is_none() {
            return Ok(false);
        }
        header.touch(seconds);
        header.write(&*self.store()?)?;
        Ok(true)
    }

    /// Sets the time of change only, where the header records one: the bytes are what they were.
    pub(super) fn note_change(&self, id: ObjectId) -> Result<()> {
        let mut header = self.header(id)?;
        header.note_change(now());
        header.write(&*self.store()?)
    }

    /// The same as somebody wishes: what is written after that sets the time again.
    pub(super) fn wish_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.editing.touched.lock().remove(&id);
        self.set_mtime(id, seconds)
    }

    /// Sets the access time where the header records one.
    pub(super) fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let mut header = self.header(id)?;
        let done = header.set_accessed(seconds);
        if done {
            header.write(&*self.store()?)?;
        }
        Ok(done)
    }
}
