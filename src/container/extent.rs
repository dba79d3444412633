//! Reading one object of any size that lies by itself in the file.

use crate::base::{Address, Error, Result};
use crate::meta::Store;

/// Largest heap object read into memory, bytes.
pub const OBJECT_MAX: u64 = 64 << 20;
/// Bytes per read.
const PIECE: u64 = 16 << 20;

/// `len` bytes at `address`. Nothing is allocated before `len` is known to lie in the file and
/// below [`OBJECT_MAX`]. Errors: corrupt (past the end of the file), limit, I/O.
pub fn read(store: &Store, address: Address, len: u64, structure: &'static str) -> Result<Vec<u8>> {
    store.offset(address, structure)?;
    if len > OBJECT_MAX {
        return Err(Error::limit(structure, address, format!("{len} bytes in one object")));
    }
    if len <= PIECE {
        return store.read(address, len, structure);
    }
    let present = store.file_len()?.saturating_sub(address.0);
    if len > present {
        return Err(Error::corrupt(structure, address, format!("{len} bytes are needed, the file ends after {present}")));
    }
    let mut all = Vec::with_capacity(usize::try_from(len).map_err(|_| Error::limit(structure, address, "object size"))?);
    let mut done = 0u64;
    while done < len {
        let piece = len.saturating_sub(done).min(PIECE);
        let at = address.checked_add(done).unwrap_or(Address::UNDEF);
        all.extend_from_slice(&store.read(at, piece, structure)?);
        done = done.saturating_add(piece);
    }
    Ok(all)
}
