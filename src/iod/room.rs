//! Room that is left on the file system of a folder: the last bytes are for what frees others.
//!
//! ```text
//! packs leave 512 KiB      the records that refer to packs can be created when packs are refused
//! records leave 256 KiB    garbage collection can write its pin, checkpoint, record and state
//! ```

use crate::file::store::ObjectStore;
use std::io;

/// Bytes that are free after a pack was stored.
const LEFT_BY_PACKS: u64 = 512 << 10;
/// Bytes that are free after a record was created.
const LEFT_BY_RECORDS: u64 = 256 << 10;

/// Errors: `ENOSPC`, without room for a pack of `len` bytes.
pub(super) fn for_pack(store: &dyn ObjectStore, len: usize) -> io::Result<()> {
    check(store, len, LEFT_BY_PACKS)
}

/// Errors: `ENOSPC`, without room for a record of `len` bytes.
pub(super) fn for_record(store: &dyn ObjectStore, len: usize) -> io::Result<()> {
    check(store, len, LEFT_BY_RECORDS)
}

fn check(store: &dyn ObjectStore, len: usize, left: u64) -> io::Result<()> {
    match store.space() {
        Some((_, free)) if free < left.saturating_add(len as u64) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        _ => Ok(()),
    }
}
