//! Link count of an object: hard links to it, and attributes with it as committed datatype.
//!
//! ```text
//! version 1 header: in the prefix | version 2: message 0x16, left out while the count is 1
//! ```

use crate::format::object_header::Prefix;

/// Link count from a header's prefix and the body of its reference count message, if any.
pub(super) fn link_count(prefix: &Prefix, message: Option<&[u8]>) -> u32 {
    if prefix.version == 1 {
        return prefix.reference_count;
    }
    let count = message.and_then(|b| b.get(1..5)).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    count.unwrap_or(1)
}
