//! Errors of requests that cannot be met.

use crate::base::Error;
use std::borrow::Cow;

/// `EINVAL` with a reason.
pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// Maps errors of an impossible dataset or attribute to `EINVAL`.
pub(crate) fn refused(e: Error) -> Error {
    match e {
        Error::Unsupported { detail, .. } | Error::Limit { detail, .. } => invalid(detail),
        other => other,
    }
}
