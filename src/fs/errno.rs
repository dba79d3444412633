//! The errno of each engine error.

use super::types::Errno;
use crate::base::Error;

/// The errno for `e`. The log line has the details.
pub fn errno(e: &Error) -> Errno {
    match e {
        Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Limit { .. } | Error::Missing { .. } | Error::OnDisk { .. } => {
            Errno(libc::EIO)
        }
        Error::Refused { errno, .. } => Errno(*errno),
        // Whatever the backing file said, to the reader of the mount it is an I/O error, except
        // where it may try again, where a server refuses it, or where a change found no room or is
        // not taken.
        Error::Io { errno, .. } | Error::Request { errno, .. } => match *errno {
            libc::ENOMEM | libc::EAGAIN | libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EROFS | libc::EACCES | libc::ETIMEDOUT => {
                Errno(*errno)
            }
            _ => Errno(libc::EIO),
        },
    }
}
