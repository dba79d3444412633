//! Names and identities of transactions, and texts in stored objects.
//!
//! ```text
//! identity  UUID 16 | text name
//! text      length u16 | UTF-8
//! ```

use crate::base::Result;
use crate::format::{Reader, Writer};

/// Longest name of a transaction, bytes.
const NAME_MAX: usize = 64;
/// Longest label or reason, bytes.
const TEXT_MAX: usize = 1024;

/// True if a transaction can have the name: 1 to 64 of `a-z`, `0-9`, `-` and `_`.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits)
}

/// Identity of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Distinguishes it from another one that had the same name.
    pub uuid: [u8; 16],
    /// Its name.
    pub name: String,
}

impl Identity {
    /// Reads it from a commit record.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Identity> {
        let (uuid, name) = (r.array()?, text(r)?);
        if is_name(&name) { Ok(Identity { uuid, name }) } else { Err(r.corrupt("no name of a transaction")) }
    }

    /// Appends it to a commit record.
    pub(super) fn write(&self, w: &mut Writer) {
        w.bytes(&self.uuid);
        put_text(w, &self.name);
    }
}

/// Reads a text.
pub(super) fn text(r: &mut Reader<'_>) -> Result<String> {
    let len = usize::from(r.u16()?);
    let bytes = r.bytes(len)?.to_vec();
    String::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_MAX).ok_or_else(|| r.corrupt("a text is no UTF-8, or too long"))
}

/// Appends a text, cut if it is too long.
pub(super) fn put_text(w: &mut Writer, text: &str) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let bytes = text.as_bytes().get(..end).unwrap_or_default();
    w.uint(bytes.len() as u64, 2).bytes(bytes);
}
