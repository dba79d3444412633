//! An open file: where its bytes come from, and whether it is being read in order.

use super::container::form;
use super::nodes::{Node, View};
use crate::base::Result;
use crate::connector::{Chunks, Connector, Content, ObjectId};
use crate::dataset::storage::Seek;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reads this near to the last one count as sequential: the kernel's own read-ahead sends several
/// requests at once and they arrive in any order.
const NEAR: u64 = 2 << 20;

enum Bytes {
    /// A header, then content.
    Content(Vec<u8>, Arc<dyn Content>),
    /// A dataset that may be another at each look: it is changed.
    Live(Arc<dyn Connector>, View, ObjectId),
    /// All of it.
    Memory(Vec<u8>),
    /// A stored chunk.
    Chunk(Arc<dyn Chunks>, Arc<[u64]>),
}

/// What an open file keeps in a container that is changed.
pub struct Owner {
    /// The node it was opened by.
    pub node: Arc<Node>,
    /// The object that is held.
    pub id: Option<ObjectId>,
    /// Opened for writing.
    pub writes: bool,
    /// Bypasses the page cache (FOPEN_DIRECT_IO).
    pub bypasses: bool,
}

/// See the module's description.
pub struct OpenFile {
    bytes: Bytes,
    /// State of the container that it shows.
    pub state: u64,
    /// What it keeps, where there is something to keep.
    pub owner: Option<Owner>,
    /// Where the last read ended.
    last: AtomicU64,
    /// Up to where read-ahead was asked for.
    ahead: AtomicU64,
    /// Bytes were written since it was last closed.
    written: AtomicBool,
    /// One more than the end of the file before bytes were left out behind it, or 0.
    skipped: AtomicU64,
}

impl OpenFile {
    fn new(bytes: Bytes) -> Self {
        let (last, ahead, written, skipped) = Default::default();
        OpenFile { bytes, state: 0, owner: None, last, ahead, written, skipped }
    }

    /// Bytes were written.
    pub fn note_written(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// Whether bytes were written since this was asked last.
    pub fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::AcqRel)
    }

    /// Bytes behind `end` were left out; returns where they were before.
    pub fn set_skipped(&self, end: Option<u64>) -> Option<u64> {
        self.skipped.swap(end.map_or(0, |end| end.saturating_add(1)), Ordering::AcqRel).checked_sub(1)
    }

    /// `header` followed by `content`.
    pub fn content(header: Vec<u8>, content: Arc<dyn Content>) -> Self {
        Self::new(Bytes::Content(header, content))
    }

    /// The dataset `id` as `view` shows it, which may change.
    pub fn live(connector: Arc<dyn Connector>, view: View, id: ObjectId) -> Self {
        Self::new(Bytes::Live(connector, view, id))
    }

    /// These bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self::new(Bytes::Memory(bytes))
    }

    /// The stored bytes of a chunk.
    pub fn chunk(chunks: Arc<dyn Chunks>, scaled: Arc<[u64]>) -> Self {
        Self::new(Bytes::Chunk(chunks, scaled))
    }

    /// Header and content, of what has them.
    fn parts(&self) -> Result<Option<(Cow<'_, [u8]>, Arc<dyn Content>)>> {
        Ok(match &self.bytes {
            Bytes::Memory(_) | Bytes::Chunk(..) => None,
            Bytes::Content(header, content) => Some((Cow::Borrowed(header.as_slice()), content.clone())),
            Bytes::Live(connector, view, id) => {
                let header = if *view == View::Npy { connector.npy_header(*id)?.unwrap_or_default() } else { Vec::new() };
                Some((Cow::Owned(header), connector.content(*id, form(*view))?))
            }
        })
    }

    /// Fills `buf` with what bytes from `offset` on, behind the end, will be when a dataset that is changed grows; false for zeros,
    /// and where no page keeps them.
    pub fn pad(&self, offset: u64, buf: &mut [u8]) -> bool {
        let (Bytes::Live(connector, View::Main, id), Some(owner)) = (&self.bytes, &self.owner) else { return false };
        if owner.bypasses {
            return false;
        }
        let padded = connector.content(*id, form(View::Main)).is_ok_and(|content| content.beyond(offset, buf));
        if padded {
            owner.node.set_padded(Some(offset));
        }
        padded
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.bytes {
            Bytes::Memory(all) => return Ok(copy(all, offset, buf)),
            Bytes::Chunk(chunks, scaled) => return chunks.read(scaled, offset, buf),
            Bytes::Content(..) | Bytes::Live(..) => {}
        }
        let Some((header, content)) = self.parts()? else { return Ok(0) };
        let n = copy(&header, offset, buf);
        let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty()) else { return Ok(n) };
        let at = offset.saturating_add(n as u64).saturating_sub(header.len() as u64);
        self.ahead_of(&content, at, rest.len() as u64);
        Ok(content.read(at, rest)?.saturating_add(n))
    }

    fn ahead_of(&self, content: &Arc<dyn Content>, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let last = self.last.swap(end, Ordering::Relaxed);
        // The first read of a file may be the only one: nothing is read ahead of it.
        if last == 0 || at.abs_diff(last) > NEAR {
            self.ahead.store(end, Ordering::Relaxed);
            return;
        }
        let ahead = self.ahead.load(Ordering::Relaxed);
        let done = content.read_ahead(end, ahead.max(end));
        if done > ahead {
            // Whoever comes second did the same.
            let _ = self.ahead.compare_exchange(ahead, done, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Next data or hole; `None` = past the end, or no more data.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let parts = self.parts()?;
        let header = parts.as_ref().map_or(0, |(h, _)| h.len() as u64);
        let size = match (&self.bytes, &parts) {
            (_, Some((_, content))) => content.size()?.saturating_add(header),
            (Bytes::Memory(all), _) => all.len() as u64,
            (Bytes::Chunk(chunks, scaled), _) => chunks.stored_len(scaled)?.unwrap_or(0),
            (Bytes::Content(..) | Bytes::Live(..), None) => 0,
        };
        if offset >= size {
            return Ok(None);
        }
        let Some((_, content)) = parts else { return Ok(Some(if what == Seek::Data { offset } else { size })) };
        if offset < header && what == Seek::Data {
            return Ok(Some(offset));
        }
        let inner = offset.saturating_sub(header);
        if inner >= size.saturating_sub(header) {
            return Ok((what == Seek::Hole).then_some(size));
        }
        Ok(content.seek(inner, what)?.map(|at| at.saturating_add(header)))
    }
}

fn copy(all: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|o| all.get(o..)).unwrap_or_default();
    let n = rest.len().min(buf.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}
