//! Upper bounds of what is read of a container. Each is checked before memory is allocated.

use super::cell::Extent;
use super::keys;
use crate::base::{Address, Error, Result};

/// Longest node of a tree, bytes.
pub const NODE_BYTES_MAX: u64 = 1 << 20;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;
/// Longest block of cells, bytes: one payload as long as a value, and shorter ones.
pub const CELLS_BYTES_MAX: u64 = VALUE_BYTES_MAX + (1 << 20);
/// Longest metadata message, bytes. Messages of HDF5 files have at most 64 KiB.
pub const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Longest delta in a pack, bytes.
pub const DELTA_BYTES_MAX: u64 = 64 << 20;
/// Most entries of a delta.
pub const DELTA_ENTRIES_MAX: usize = 1 << 21;
/// Bytes of deltas that are decoded at once, after which no other record is read.
pub const DELTAS_AT_ONCE_BYTES: u64 = 8 << 20;
/// Stored bytes that one batch of reads returns, at most, unless it is one extent.
pub const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Longest value of a key that is read as a whole, bytes.
pub fn value_max(key: &[u8]) -> u64 {
    match keys::parts(key) {
        Some((_, keys::HEADER, _)) => HEADER_BYTES_MAX,
        Some((_, keys::CELLS, _)) => CELLS_BYTES_MAX,
        _ => VALUE_BYTES_MAX,
    }
}

/// Errors: the bytes of an extent are more than `max`.
pub fn check_extent(structure: &'static str, extent: &Extent, max: u64) -> Result<()> {
    check_len(structure, extent.offset, extent.len.into(), max)
}

/// Errors: `len` bytes at `at` are more than `max`.
pub fn check_len(structure: &'static str, at: u64, len: u64, max: u64) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::limit(structure, Address(at), format!("{len} bytes, of {max} at most"))) }
}

/// Errors: a writer would store a delta that no reader takes.
pub fn check_delta(bytes: usize, entries: usize) -> Result<()> {
    if bytes as u64 <= DELTA_BYTES_MAX && entries <= DELTA_ENTRIES_MAX {
        return Ok(());
    }
    let reason = format!("one commit has {entries} changes of {bytes} bytes, of {DELTA_ENTRIES_MAX} and {DELTA_BYTES_MAX} at most");
    Err(Error::refused(libc::EFBIG, reason))
}
