//! Errors of changes: their errno, and whether they concern one object only.

use crate::base::Error;
pub(super) use crate::connector::errors::{invalid, refused};

/// Maps the error of an attribute too large for a header or its heap to `E2BIG`.
pub(super) fn too_large(e: Error) -> Error {
    match e {
        Error::Limit { .. } => Error::refused(libc::E2BIG, e.to_string()),
        other => other,
    }
}

/// True if the error concerns one object, so that changes of other objects may succeed.
pub(super) fn is_of_object(e: &Error) -> bool {
    match e {
        Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Limit { .. } | Error::Missing { .. } => true,
        Error::Refused { errno, .. } => !matches!(*errno, libc::EROFS | libc::ESTALE),
        Error::Io { .. } | Error::OnDisk { .. } | Error::Request { .. } => false,
    }
}
