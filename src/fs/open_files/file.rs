//! An open file.

use super::ends::WrittenEnd;
use crate::connector::ObjectId;
use crate::fs::namespace::Node;
use crate::fs::types::Handle;
use crate::fs::views::{Bytes, EditView};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What an open file holds in a container that is changed.
pub struct Holder {
    /// The handle of the file.
    pub handle: Handle,
    /// The node it was opened by.
    pub node: Arc<Node>,
    /// The object that is held.
    pub id: Option<ObjectId>,
    /// How its bytes are changed, which opening it for writing decides; `None`: it was opened for
    /// reading.
    pub writer: Option<&'static dyn EditView>,
    /// Bypasses the page cache (FOPEN_DIRECT_IO).
    pub bypasses: bool,
    /// Where the bytes end that were written.
    pub end: WrittenEnd,
}

impl Holder {
    /// True if writes go through the pages that the kernel has of the file.
    pub fn writes_pages(&self) -> bool {
        self.writer.is_some() && !self.bypasses
    }
}

/// An open file.
pub struct OpenFile {
    /// Its bytes.
    pub bytes: Box<dyn Bytes>,
    /// State of the container that it shows.
    pub state: u64,
    /// What it holds, in a container that is changed.
    pub holder: Option<Holder>,
    /// Bytes were written since it was last flushed.
    written: AtomicBool,
    /// `Mounted::set_id_changes` when the file was found without set-ID bits.
    without_set_id: AtomicU64,
}

impl OpenFile {
    /// A file of `bytes` in `state` of the container.
    pub fn new(bytes: Box<dyn Bytes>, state: u64, holder: Option<Holder>) -> Self {
        OpenFile { bytes, state, holder, written: AtomicBool::new(false), without_set_id: AtomicU64::new(u64::MAX) }
    }

    /// Notes that bytes were written.
    pub fn note_written(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// True if bytes were written since it was last flushed.
    pub fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// True if bytes were written since the last call.
    pub fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::AcqRel)
    }

    /// True if the file has had no set-ID bits since the change `changes` of such bits.
    pub fn is_without_set_id(&self, changes: u64) -> bool {
        self.without_set_id.load(Ordering::Acquire) == changes
    }

    /// Notes that the file had no set-ID bits after the change `changes` of such bits.
    pub fn note_without_set_id(&self, changes: u64) {
        self.without_set_id.store(changes, Ordering::Release);
    }

    /// Fills `buf` with what bytes from `offset` on, past EOF, will be when the file grows. False:
    /// they will be zeros, or no page caches them.
    pub fn pad(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(holder) = &self.holder else { return false };
        // From a short answer the kernel learns the size.
        let padded = !holder.bypasses && !holder.node.is_shorter() && self.bytes.pad(offset, buf);
        if padded {
            holder.node.set_padded(Some(offset));
        }
        padded
    }
}
