//! Accounting of the bytes of a container's file.

use super::Result;
use crate::base::Error;

/// Use of the bytes of a container's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// Length of the file.
    pub total: u64,
    /// Live bytes of metadata, user block included.
    pub metadata: u64,
    /// Bytes before the superblock.
    pub user_block: u64,
    /// Bytes before the superblock that it records. They differ after a program without libhdf5
    /// added, removed or resized the user block.
    pub recorded_user_block: u64,
    /// Live bytes of raw data.
    pub raw: u64,
    /// Live bytes of collections of variable-length values and references, with their free parts.
    pub heap: u64,
    /// Bytes that the file names as free.
    pub free: u64,
    /// Live bytes that were claimed again: by another structure, or as free space.
    pub claimed_twice: u64,
    /// Bytes of structures past the end of the file.
    pub past_end: u64,
    /// Objects, and structures of the file itself, that could not be read: their bytes are not
    /// live.
    pub unreadable: u64,
    /// False if there are too many separate extents to find all bytes that are claimed twice.
    pub overlaps_checked: bool,
}

impl SpaceUse {
    /// Bytes that objects and the file's own structures use.
    pub fn live(&self) -> u64 {
        self.metadata.saturating_add(self.raw).saturating_add(self.heap)
    }

    /// What to know of a user block that the superblock does not record.
    pub fn user_block_note(&self) -> Option<String> {
        let (user_block, recorded) = (self.user_block, self.recorded_user_block);
        let note = || {
            format!(
                "The user block has {user_block} bytes, the superblock records {recorded}: readers adapt, and the next change records it."
            )
        };
        (user_block != recorded).then(note)
    }

    /// Bytes that are neither live nor free.
    pub fn dead(&self) -> u64 {
        self.total.saturating_sub(self.live()).saturating_sub(self.free)
    }
}

/// Accounting of a container that was opened for reading only.
pub trait Space: Send + Sync {
    /// Sums the extents of all objects that hard links reach, and of the file's own structures.
    /// Calls `damaged` once with each object or structure that cannot be read, and continues.
    fn space(&self, damaged: &mut dyn FnMut(&Error)) -> Result<SpaceUse>;
}
