//! Pages at EOF.
//!
//! The page with the last bytes of a file has room after them. It is filled with what will be there
//! when the file grows. A kernel that writes the page back, after a store through a mapping, zeroes
//! that room. When the file then grows past bytes that were not written, and these are not zeros,
//! the kernel must read the page again.

use super::file::OpenFile;
use crate::fs::done::Invalidate;

/// Pages are no larger, bytes.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// EOF before a change, if the kernel may have a padded page there. `size` returns the size of the
/// file.
pub fn padded_end(file: &OpenFile, size: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let node = &file.holder.as_ref().filter(|holder| holder.id.is_some())?.node;
    let padded = node.padded()?;
    let end = size()?;
    if end / PAGE_BYTES_MAX != padded / PAGE_BYTES_MAX {
        // The page was filled, and is no longer the last one.
        node.set_padded(None);
        return None;
    }
    Some(end)
}

/// Invalidates the page at the EOF `end`, if it is known, after a change that put bytes at `from`
/// past it.
pub fn note_gap(file: &OpenFile, end: Option<u64>, from: u64, invalidate: &mut Invalidate) {
    if let (Some(end), Some(holder)) = (end.filter(|end| *end < from), &file.holder) {
        // Reading the page again notes it again.
        holder.node.set_padded(None);
        invalidate.pages_before_answer.push((holder.node.ino, end..end.saturating_add(1)));
    }
}
