//! Random identities, the time, and the text of a writer.

use crate::base::{Address, Error, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// Random bytes of a UUID.
pub(super) fn uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|_| Error::Io { operation: "get random bytes", address: Address::UNDEF, errno: libc::EIO })?;
    Ok(uuid)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Text that shows who committed: the number of the process.
pub(super) fn label() -> Vec<u8> {
    format!("process {}", std::process::id()).into_bytes()
}
