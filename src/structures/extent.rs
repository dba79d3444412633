//! Extents: objects that lie by themselves in the file. Bounded reads, and freeing of several.

use crate::base::{Address, Error, Result};
use crate::meta::Store;
use crate::meta::extent::{Extent, Visit, collect};

/// Largest heap object read into memory, bytes.
pub(crate) const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// Bytes per read.
const READ_BYTES: u64 = 16 << 20;

/// Reads `len` bytes at `address`. Allocates only after `len` is known to lie in the file and below
/// [`OBJECT_BYTES_MAX`]. Errors: corrupt (past EOF), limit, I/O.
pub(crate) fn read(store: &Store, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
    store.offset(address, structure)?;
    if len > OBJECT_BYTES_MAX {
        return Err(Error::limit(structure, address, format!("{len} bytes in one object")));
    }
    if len <= READ_BYTES {
        return store.read(address, len, structure);
    }
    let present = store.file_len()?.saturating_sub(address.0);
    if len > present {
        return Err(Error::past_end(structure, address, len, present));
    }
    let mut all = Vec::with_capacity(usize::try_from(len).map_err(|_| Error::limit(structure, address, "object size"))?);
    let mut done = 0u64;
    while done < len {
        let piece = len.saturating_sub(done).min(READ_BYTES);
        let at = address.checked_add(done).unwrap_or(Address::UNDEF);
        all.extend_from_slice(&store.read(at, piece, structure)?);
        done = done.saturating_add(piece);
    }
    Ok(all)
}

/// Frees the extents that `walk` visits, all or none. Errors: those of `walk`; an extent overlaps
/// another, or ends past EOF.
pub(crate) fn free_all(store: &Store, walk: impl FnOnce(&mut Visit<'_>) -> Result<()>) -> Result<()> {
    let mut extents = collect(walk)?;
    extents.retain(|e| e.len > 0);
    extents.sort_unstable_by_key(|e| e.address);
    let eof = store.transaction()?.end();
    let mut last = 0;
    for &Extent { address, len, structure, .. } in &extents {
        let start = store.offset(address, structure)?;
        let stop = start.checked_add(len).filter(|&stop| start >= last && stop <= eof);
        last = stop.ok_or_else(|| Error::corrupt(structure, address, format!("{len} bytes overlap another block or end past EOF")))?;
    }
    extents.iter().try_for_each(|e| store.free_kind(e.address, e.len, e.kind))
}
