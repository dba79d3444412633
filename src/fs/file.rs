//! An open file: where its bytes come from, and whether it is being read in order.

use crate::base::Result;
use crate::connector::{Chunks, Content};
use crate::dataset::storage::Seek;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads this near to the last one count as sequential: the kernel's own read-ahead sends several
/// requests at once and they arrive in any order.
const NEAR: u64 = 2 << 20;

enum Bytes {
    /// A header, then content.
    Content(Vec<u8>, Arc<dyn Content>),
    /// All of it.
    Memory(Vec<u8>),
    /// A stored chunk.
    Chunk(Arc<dyn Chunks>, Arc<[u64]>),
}

/// See the module's description.
pub struct OpenFile {
    bytes: Bytes,
    /// Where the last read ended.
    last: AtomicU64,
    /// Up to where read-ahead was asked for.
    ahead: AtomicU64,
}

impl OpenFile {
    fn new(bytes: Bytes) -> Self {
        OpenFile { bytes, last: AtomicU64::new(0), ahead: AtomicU64::new(0) }
    }

    /// `header` followed by `content`.
    pub fn content(header: Vec<u8>, content: Arc<dyn Content>) -> Self {
        Self::new(Bytes::Content(header, content))
    }

    /// These bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self::new(Bytes::Memory(bytes))
    }

    /// The stored bytes of a chunk.
    pub fn chunk(chunks: Arc<dyn Chunks>, scaled: Arc<[u64]>) -> Self {
        Self::new(Bytes::Chunk(chunks, scaled))
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.bytes {
            Bytes::Memory(all) => Ok(copy(all, offset, buf)),
            Bytes::Chunk(chunks, scaled) => chunks.read(scaled, offset, buf),
            Bytes::Content(header, content) => {
                let n = copy(header, offset, buf);
                let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty()) else { return Ok(n) };
                let at = offset.saturating_add(n as u64).saturating_sub(header.len() as u64);
                self.ahead_of(content, at, rest.len() as u64);
                Ok(content.read(at, rest)?.saturating_add(n))
            }
        }
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
        let (size, header) = match &self.bytes {
            Bytes::Memory(all) => (all.len() as u64, all.len() as u64),
            Bytes::Chunk(chunks, scaled) => {
                let n = chunks.stored_len(scaled)?.unwrap_or(0);
                (n, n)
            }
            Bytes::Content(header, content) => {
                let n = header.len() as u64;
                (content.size()?.saturating_add(n), n)
            }
        };
        if offset >= size {
            return Ok(None);
        }
        let Bytes::Content(_, content) = &self.bytes else { return Ok(Some(if what == Seek::Data { offset } else { size })) };
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
