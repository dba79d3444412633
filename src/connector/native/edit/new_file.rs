//! New files with no declared type. Their chunks become larger as they grow.

use super::super::access::Access;
use super::super::dataset::{Dataset, id_of, key};
use super::Change;
use super::change_parts::DataChange;
use super::connector_parts::NewFiles;
use super::data::replace_message;
use super::relayout::Elements;
use crate::base::Result;
use crate::base::datatype::Datatype;
use crate::base::newlines::Newlines;
use crate::connector::ObjectId;
use crate::connector::bytes_file::{CHUNK_BYTES, SMALL_CHUNK_BYTES, bytes_file};
use crate::dataset::create::dataset_messages;
use crate::dataset::creation::Creation;
use crate::dataset::layout::{Seek, new_chunked};
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind;
use crate::structures::shared_messages::edit as shared_messages_edit;
use std::sync::Arc;

/// Largest chunk size chosen by the first write, bytes.
const FIRST_CHUNK_BYTES_MAX: u64 = 256 << 10;
/// Chunks that the first write fills.
const FIRST_CHUNKS: u64 = 4;
/// Number of chunks at which they are enlarged.
const ENLARGE_AT_CHUNKS: u64 = 256;
/// Factor by which chunks are enlarged.
const ENLARGE_FACTOR: u64 = 16;
/// New files that are remembered.
pub(super) const NEW_FILES_MAX: usize = 1 << 20;

/// Chunk size for a file with chunks of `chunk` bytes that grows from `size` to `end` bytes by a
/// write of `len`.
fn wanted(size: u64, end: u64, len: u64, chunk: u64) -> u64 {
    if end <= chunk {
        return chunk;
    }
    if size == 0 && len > 0 {
        let part = len / FIRST_CHUNKS;
        let power = part.checked_ilog2().map_or(0, |n| 1 << n);
        return power.clamp(CHUNK_BYTES.0, FIRST_CHUNK_BYTES_MAX).max(chunk);
    }
    let chunk = chunk.max(CHUNK_BYTES.0);
    let larger = chunk.saturating_mul(ENLARGE_FACTOR).min(CHUNK_BYTES.1).max(chunk);
    if end / ENLARGE_AT_CHUNKS >= chunk { larger } else { chunk }
}

impl NewFiles<'_> {
    /// Records that a type was declared for the file.
    pub(super) fn note_declared(&self, id: ObjectId) {
        if let Some(editing) = &self.connector.editing {
            editing.objects.use_object(id, |usage| {
                usage.has_exact_holes |= usage.is_new_file;
                usage.is_new_file = false;
            });
        }
    }

    /// True while a new file whose bytes are all in memory is open.
    pub(super) fn has_unstored_new_file(&self) -> bool {
        let Some(editing) = &self.connector.editing else { return false };
        let access = self.connector.access();
        self.connector.options.environment.dirty.datasets().into_iter().map(id_of).any(|id| {
            let usage = editing.objects.usage(id);
            let stored = |d: &Dataset| d.layout().seek_stored(&d.bytes, 0, Seek::Data);
            usage.is_new_file && usage.holds > 0 && access.dataset(id).and_then(|d| stored(&d.dataset)).is_ok_and(|at| at.is_none())
        })
    }

    /// Chooses a chunk size before a new file becomes `size` bytes long.
    pub(super) fn suit_size(&self, id: ObjectId, size: u64) {
        if let Err(e) = self.suit(id, &|_, d| larger(d, size, 0)) {
            tracing::debug!("the chunk size of a new file is not changed: {e}");
        }
    }

    /// Chooses a chunk size before `len` bytes are written at `offset` to a new file.
    pub(super) fn suit_chunks(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.suit(id, &|_, d| larger(d, offset, len))
    }

    /// Chooses the chunk size of the source before bytes are copied to a new file, so that stored
    /// chunks can be copied.
    pub(super) fn suit_copy(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) {
        let suited = self.suit(to.0, &|access, d| {
            let (source, chunk) = (access.dataset(from.0).ok()?, chunk_of(d)?);
            let len = len.min(source.dataset.bytes.size.saturating_sub(from.1));
            let same = chunk_of(&source.dataset).filter(|c| (chunk..=CHUNK_BYTES.1).contains(c));
            match same.filter(|_| d.bytes.size == 0 && source.dataset.element_size == 1) {
                Some(same) => (same > chunk && len > chunk).then_some(same),
                None => larger(d, to.1, len),
            }
        });
        if let Err(e) = suited {
            tracing::debug!("the chunk size of a new file is not changed: {e}");
        }
    }

    fn suit(&self, id: ObjectId, wanted: &dyn Fn(&Access<'_>, &Dataset) -> Option<u64>) -> Result<()> {
        let editing = self.connector.editing()?;
        let adapts = |d: &Dataset| is_small(d) || editing.objects.usage(id).is_new_file;
        let suits = {
            let access = self.connector.access();
            access.dataset(id).map_or(true, |d| !adapts(&d.dataset) || wanted(&access, &d.dataset).is_none())
        };
        if suits {
            return Ok(());
        }
        // The file may have changed since.
        let next = |c: &Change<'_>, d: &Dataset| wanted(&c.access, d).filter(|_| adapts(d));
        let is_done = self.connector.operate(&[id], |c| {
            let d = c.dataset(id)?;
            next(c, &d).map_or(Ok(true), |chunk| c.data().enlarge_dirty_chunks(&d, chunk))
        })?;
        if is_done {
            return Ok(());
        }
        self.connector.operate_flushed(id, |c| {
            let d = c.dataset(id)?;
            next(c, &d).map_or(Ok(()), |chunk| c.data().enlarge_chunks(&d, chunk))
        })
    }
}

/// True for a small file, also one of an earlier mount.
fn is_small(d: &Dataset) -> bool {
    chunk_of(d) == Some(SMALL_CHUNK_BYTES)
        && d.bytes.size <= SMALL_CHUNK_BYTES
        && d.space.max() == [None]
        && d.pipeline.filters.is_empty()
        && d.datatype == Datatype::byte()
        && d.layout().definition().is_none()
}

fn chunk_of(d: &Dataset) -> Option<u64> {
    match d.chunk_dims()?.as_slice() {
        [chunk] => Some(*chunk),
        _ => None,
    }
}

/// The file of bytes `d` in chunks of `chunk` bytes.
fn in_chunks(d: &Dataset, chunk: u64) -> Creation {
    Creation { dims: d.space.dims.clone(), layout: new_chunked(vec![chunk]), ..bytes_file() }
}

fn larger(d: &Dataset, offset: u64, len: u64) -> Option<u64> {
    let chunk = chunk_of(d)?;
    let end = offset.checked_add(len).filter(|end| *end > d.bytes.size)?;
    let wanted = wanted(d.bytes.size, end, len, chunk);
    (wanted > chunk).then_some(wanted)
}

impl DataChange<'_> {
    /// Writes the first bytes of a small file: the chunk, the index, and size and layout by one
    /// change of the header. A dirty chunk stored later would cost as much as creating the file.
    /// False: `d` is not an empty small file, or does not remain small.
    pub(super) fn write_small(&self, d: &Arc<Dataset>, offset: u64, bytes: &[u8]) -> Result<bool> {
        let end = offset.saturating_add(bytes.len() as u64);
        if d.bytes.size != 0 || end > SMALL_CHUNK_BYTES || !is_small(d) {
            return Ok(false);
        }
        let space = Dataspace { dims: vec![end], ..d.space.clone() };
        let Some(layout) = d.layout().write_first(&self.change.operation(d, &space), offset, bytes)? else { return Ok(false) };
        let store = &d.bytes.store;
        shared_messages_edit::forget(store, d.id.address)?;
        let mut header = self.change.header(d.id)?;
        replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(store.ctx())?)?;
        header.write(store)?;
        self.change.changed(d.id);
        Ok(true)
    }

    fn enlarge_chunks(&self, d: &Arc<Dataset>, chunk: u64) -> Result<()> {
        self.change.layout().relayout(d, &in_chunks(d, chunk), false, Elements::Kept { newlines: Newlines::default() })
    }

    /// Enlarges the chunks of a file of which none is stored; none is stored for it. False: some
    /// are stored.
    fn enlarge_dirty_chunks(&self, d: &Arc<Dataset>, chunk: u64) -> Result<bool> {
        if d.layout().seek_stored(&d.bytes, 0, Seek::Data)?.is_some() {
            return Ok(false);
        }
        self.check_bounds(d)?;
        let (store, env) = (self.change.store()?, &self.change.connector.options.environment);
        let (messages, old_chunk) =
            (dataset_messages(store.ctx(), store.superblock().version, &in_chunks(d, chunk))?, chunk_of(d).unwrap_or(1));
        let dirty = env.dirty.of(key(d.id));
        self.change.layout().set_messages(d.id, messages, false)?;
        env.forget(key(d.id));
        self.change.changed(d.id);
        self.change.delete_storage(d)?;
        for (number, part) in dirty {
            let start = number.chunk.saturating_mul(old_chunk);
            let mut bytes = vec![0u8; usize::try_from(part.len().min(d.bytes.size.saturating_sub(start))).unwrap_or(0)];
            part.get(0, &mut bytes)?;
            self.write_elements(d.id, start, &bytes)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_size() {
        assert_eq!(wanted(0, 480, 480, SMALL_CHUNK_BYTES), SMALL_CHUNK_BYTES);
        assert_eq!(wanted(0, 481, 481, SMALL_CHUNK_BYTES), 4096);
        assert_eq!(wanted(470, 480, 10, SMALL_CHUNK_BYTES), SMALL_CHUNK_BYTES);
        assert_eq!(wanted(470, 481, 11, SMALL_CHUNK_BYTES), 4096);
        assert_eq!(wanted(0, 1 << 20, 1, SMALL_CHUNK_BYTES), 4096);
        assert_eq!(wanted(500, 1 << 40, 1, SMALL_CHUNK_BYTES), 65_536);
        assert_eq!(
            (wanted(0, 480, 0, SMALL_CHUNK_BYTES), wanted(0, 1 << 19, 0, SMALL_CHUNK_BYTES), wanted(0, 1 << 20, 0, SMALL_CHUNK_BYTES)),
            (SMALL_CHUNK_BYTES, 4096, 65_536)
        );
        assert_eq!(wanted(0, 100, 100, 4096), 4096);
        assert_eq!(wanted(0, 65_536, 65_536, 4096), 16_384);
        assert_eq!(wanted(0, 1 << 20, 1 << 20, 4096), 256 << 10);
        assert_eq!(wanted(4096, 8192, 4096, 4096), 4096);
        assert_eq!(wanted((1 << 20) - 1, 1 << 20, 1, 4096), 65_536);
        assert_eq!(wanted(1 << 30, 1 << 31, 1 << 20, 65_536), 1 << 20);
        assert_eq!(wanted(1 << 30, 1 << 31, 1 << 20, 1 << 20), 1 << 20);
    }
}
