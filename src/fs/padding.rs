//! Pages of a file's old end.
//!
//! The page that holds the last bytes of a file has room behind them. It is filled with what will be there when the file grows, but a
//! kernel that writes the page back, after a store through a mapping, makes that zeros. When the file then grows past bytes that
//! nobody wrote, and these are not zeros, the page must be read anew.

use super::container::ContainerFs;
use super::file::OpenFile;
use super::types::Handle;

/// Part of a file that one page is within, wherever pages are no larger.
const BLOCK: u64 = 64 << 10;

impl ContainerFs {
    /// Where the file ends before it is changed, if the kernel may have the page of its end.
    pub(super) fn padded_end(&self, file: &OpenFile) -> Option<u64> {
        let owner = file.owner.as_ref()?;
        let (padded, id) = (owner.node.padded()?, owner.id?);
        let end = self.end_of(id)?;
        if end / BLOCK != padded / BLOCK {
            // The page was full since, and is not the last one any more.
            owner.node.set_padded(None);
            return None;
        }
        Some(end)
    }

    /// The file ended at `end`, if it is known, and has bytes at `from` now.
    pub(super) fn note_skipped(&self, file: &OpenFile, end: Option<u64>, from: u64) {
        if let (Some(end), Some(owner)) = (end.filter(|end| *end < from), &file.owner) {
            // Read anew, it is noted anew.
            owner.node.set_padded(None);
            file.set_skipped(Some(end));
        }
    }

    pub(super) fn take_skipped(&self, handle: Handle) -> Option<u64> {
        self.handles.read().get(&handle.0)?.set_skipped(None)
    }
}
