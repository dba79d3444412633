//! Files made through the mount: bytes about which nothing was said. Their chunks become larger as they grow.

use super::super::dataset::{Dataset, number};
use super::data::replace_message;
use super::names::stream;
use super::relayout::Elements;
use super::{Change, NativeConnector};
use crate::base::Result;
use crate::connector::ObjectId;
use crate::container::shared_messages_edit;
use crate::dataset::create::{Creation, Layout};
use crate::dataset::newlines::Newlines;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind;
use std::sync::Arc;

/// Bytes of the chunk of a small file, which has one: a number that nobody else chooses, so that such a file is known when it grows.
pub(super) const SMALL: u64 = 480;
/// Chunks of a file that is not small, least and most bytes.
const CHUNK: (u64, u64) = (4 << 10, 1 << 20);
/// The most that the first write makes them.
const FIRST_MAX: u64 = 256 << 10;
/// Chunks that a first write fills.
const FILLED: u64 = 4;
/// With so many chunks they are made larger,
const MANY: u64 = 256;
/// so many times.
const LARGER: u64 = 16;
/// Files remembered.
pub(super) const REMEMBERED: usize = 1 << 20;

/// Bytes of a chunk for a file that grows from `size` to `end` bytes by a write of `len`, and has chunks of `chunk`.
fn wanted(size: u64, end: u64, len: u64, chunk: u64) -> u64 {
    if end <= chunk {
        return chunk;
    }
    if size == 0 && len > 0 {
        let part = len / FILLED;
        let power = part.checked_ilog2().map_or(0, |n| 1 << n);
        return power.clamp(CHUNK.0, FIRST_MAX).max(chunk);
    }
    let chunk = chunk.max(CHUNK.0);
    let larger = chunk.saturating_mul(LARGER).min(CHUNK.1).max(chunk);
    if end / MANY >= chunk { larger } else { chunk }
}

impl NativeConnector {
    /// It is told what the file shall be.
    pub(super) fn said_more(&self, id: ObjectId) {
        if let Some(editing) = &self.editing {
            editing.streams.lock().remove(&id);
        }
    }

    /// Before a file made through this mount becomes `size` bytes long: chunks that suit it, if that can be.
    pub(super) fn suit_size(&self, id: ObjectId, size: u64) {
        if let Err(e) = self.suit(id, &|d| larger(d, size, 0)) {
            tracing::debug!("the chunks of a file stay as they are: {e}");
        }
    }

    /// Before `len` bytes are written at `offset` to a file made through this mount: chunks that suit its size.
    pub(super) fn suit_chunks(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.suit(id, &|d| larger(d, offset, len))
    }

    /// Before bytes of another dataset are copied to a file made through this mount: the chunks of that one where they may be had,
    /// so that they are copied as they are.
    pub(super) fn suit_copy(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) {
        let suited = self.suit(to.0, &|d| {
            let (source, chunk) = (self.dataset(from.0).ok()?, chunk_of(d)?);
            let len = len.min(source.dataset.bytes.size.saturating_sub(from.1));
            let same = chunk_of(&source.dataset).filter(|c| (chunk..=CHUNK.1).contains(c));
            match same.filter(|_| d.bytes.size == 0 && source.dataset.element_size == 1) {
                Some(same) => (same > chunk && len > chunk).then_some(same),
                None => larger(d, to.1, len),
            }
        });
        if let Err(e) = suited {
            tracing::debug!("the chunks of a file stay as they are: {e}");
        }
    }

    fn suit(&self, id: ObjectId, wanted: &dyn Fn(&Dataset) -> Option<u64>) -> Result<()> {
        let editing = self.editing()?;
        let is_stream = |d: &Dataset| is_small(d) || editing.streams.lock().contains(&id);
        let suits = {
            let _shared = self.shared();
            self.dataset(id).map_or(true, |d| !is_stream(&d.dataset) || wanted(&d.dataset).is_none())
        };
        if suits {
            return Ok(());
        }
        self.operate_flushed(id, |c| {
            let d = c.dataset(id)?;
            // It may have been changed since.
            match wanted(&d).filter(|_| is_stream(&d)) {
                Some(chunk) => c.enlarge_chunks(&d, chunk),
                None => Ok(()),
            }
        })
    }
}

/// A small file, perhaps of another mount.
fn is_small(d: &Dataset) -> bool {
    chunk_of(d) == Some(SMALL)
        && d.bytes.size <= SMALL
        && d.space.max() == [None]
        && d.pipeline.filters.is_empty()
        && d.datatype == stream().datatype
}

/// The chunks that a dataset keeps when it becomes another one: not those of a file that is small because nothing was written yet.
pub(super) fn kept(chunks: &[u64]) -> Vec<u64> {
    if chunks == [SMALL] { vec![CHUNK.0] } else { chunks.to_vec() }
}

fn chunk_of(d: &Dataset) -> Option<u64> {
    match d.chunked_layout()?.chunk_dims.as_slice() {
        [chunk] => Some(*chunk),
        _ => None,
    }
}

fn larger(d: &Dataset, offset: u64, len: u64) -> Option<u64> {
    let chunk = chunk_of(d)?;
    let end = offset.checked_add(len).filter(|end| *end > d.bytes.size)?;
    let wanted = wanted(d.bytes.size, end, len, chunk);
    (wanted > chunk).then_some(wanted)
}

impl Change<'_> {
    /// Writes the first bytes of a small file: its chunk, the index, and one change of the header for both the size and the layout.
    /// They do not wait as a changed chunk: entering that later would cost as much as making the file. False when `d` is no empty
    /// small file, or does not stay one.
    pub(super) fn write_small(&self, d: &Arc<Dataset>, offset: u64, bytes: &[u8]) -> Result<bool> {
        let end = offset.saturating_add(bytes.len() as u64);
        if d.bytes.size != 0 || end > SMALL || !is_small(d) || d.chunked_layout().is_none_or(|c| c.index.address().is_defined()) {
            return Ok(false);
        }
        // A failed operation may have left it.
        let dirty = &self.connector.options.environment.dirty;
        dirty.of(number(d.id)).iter().for_each(|(key, _)| dirty.remove(*key));
        let mut layout = d.layout.clone();
        let space = Dataspace { dims: vec![end], ..d.space.clone() };
        let parts = self.chunks_of(d, &space);
        parts.writer(self)?.place_first(&mut layout, offset, bytes)?;
        let store = &d.bytes.store;
        shared_messages_edit::forget(store, d.id.address)?;
        let mut header = self.header(d.id)?;
        replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        replace_message(&mut header, kind::DATA_LAYOUT, layout.encode(store.ctx())?)?;
        header.write(store)?;
        self.changed(d.id);
        Ok(true)
    }

    fn enlarge_chunks(&self, d: &Arc<Dataset>, chunk: u64) -> Result<()> {
        let creation = Creation { dims: d.space.dims.clone(), layout: Layout::Chunked(vec![chunk]), ..stream() };
        self.relayout(d, &creation, false, Elements::Kept { newlines: Newlines::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_size() {
        assert_eq!(wanted(0, 480, 480, SMALL), SMALL);
        assert_eq!(wanted(0, 481, 481, SMALL), 4096);
        assert_eq!(wanted(470, 480, 10, SMALL), SMALL);
        assert_eq!(wanted(470, 481, 11, SMALL), 4096);
        assert_eq!(wanted(0, 1 << 20, 1, SMALL), 4096);
        assert_eq!(wanted(500, 1 << 40, 1, SMALL), 65_536);
        assert_eq!((wanted(0, 480, 0, SMALL), wanted(0, 1 << 19, 0, SMALL), wanted(0, 1 << 20, 0, SMALL)), (SMALL, 4096, 65_536));
        assert_eq!(wanted(0, 100, 100, 4096), 4096);
        assert_eq!(wanted(0, 65_536, 65_536, 4096), 16_384);
        assert_eq!(wanted(0, 1 << 20, 1 << 20, 4096), 256 << 10);
        assert_eq!(wanted(4096, 8192, 4096, 4096), 4096);
        assert_eq!(wanted((1 << 20) - 1, 1 << 20, 1, 4096), 65_536);
        assert_eq!(wanted(1 << 30, 1 << 31, 1 << 20, 65_536), 1 << 20);
        assert_eq!(wanted(1 << 30, 1 << 31, 1 << 20, 1 << 20), 1 << 20);
    }
}
