//! The files that this process has open for changes: each by one container.
//!
//! A lock of the file shows that to other processes, and to this one unless files are not locked
//! (`HDF5_USE_FILE_LOCKING`).

use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::file::Identity;
use std::collections::HashSet;

static WRITTEN: std::sync::LazyLock<Mutex<HashSet<Identity>>> = std::sync::LazyLock::new(Mutex::default);

/// The right of one container to write a file; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct OnlyWriter(Identity);

impl OnlyWriter {
    /// Claims the file `identity`. Errors: `EBUSY`, another container of this process writes it.
    pub(super) fn claim(identity: Identity) -> Result<Self> {
        match WRITTEN.lock().insert(identity) {
            true => Ok(OnlyWriter(identity)),
            false => {
                Err(Error::refused(libc::EBUSY, "this program writes it already, as a file of its own or as the source of another one"))
            }
        }
    }
}

impl Drop for OnlyWriter {
    fn drop(&mut self) {
        WRITTEN.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_writer_at_a_time() {
        let (one, other) = (Identity { device: 7, inode: u64::MAX }, Identity { device: 8, inode: u64::MAX });
        let claimed = OnlyWriter::claim(one).unwrap();
        assert!(matches!(OnlyWriter::claim(one), Err(Error::Refused { errno: libc::EBUSY, .. })));
        assert!(OnlyWriter::claim(other).is_ok());
        drop(claimed);
        assert!(OnlyWriter::claim(one).is_ok());
    }
}
