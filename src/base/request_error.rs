//! A failure with an errno and a text, as the payload of an `io::Error`: of a request to a server,
//! or of a path that is refused.

use std::fmt;
use std::io;

/// A failed request: its errno, and a text that says why and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// The errno.
    pub errno: i32,
    /// Another attempt may succeed; false for one that was repeated until its timeout.
    pub is_transient: bool,
    /// Why it failed and what to do, without secrets.
    pub text: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RequestError {}

impl From<RequestError> for io::Error {
    fn from(e: RequestError) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(e.errno).kind(), e)
    }
}

impl RequestError {
    /// The failed request in `error`.
    pub fn of(error: &io::Error) -> Option<&RequestError> {
        error.get_ref()?.downcast_ref()
    }
}

/// The errno of `error`, also if it is a [`RequestError`].
pub fn errno_of(error: &io::Error) -> Option<i32> {
    RequestError::of(error).map(|request| request.errno).or_else(|| error.raw_os_error())
}

/// True if `error` means that the object does not exist.
pub fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || errno_of(error) == Some(libc::ENOENT)
}

/// True for errors of a network and of servers after which another attempt may succeed.
pub fn is_transient(error: &io::Error) -> bool {
    match RequestError::of(error) {
        Some(request) => request.is_transient,
        None => matches!(error.raw_os_error(), Some(libc::ETIMEDOUT | libc::EIO | libc::ECONNRESET | libc::ECONNREFUSED | libc::EAGAIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Address, Error};

    #[test]
    fn an_error_keeps_errno_and_text_of_the_request() {
        let of = |errno, is_transient| io::Error::from(RequestError { errno, is_transient, text: "HTTP status 1; do it".into() });
        let denied = of(libc::EACCES, false);
        assert_eq!((errno_of(&denied), denied.kind(), is_absent(&denied)), (Some(libc::EACCES), io::ErrorKind::PermissionDenied, false));
        assert!(is_absent(&of(libc::ENOENT, false)) && is_absent(&io::Error::from_raw_os_error(libc::ENOENT)));
        assert!(is_transient(&of(libc::EIO, true)) && !is_transient(&of(libc::EIO, false)));
        assert!(is_transient(&io::Error::from_raw_os_error(libc::EIO)) && !is_transient(&io::Error::from_raw_os_error(libc::EACCES)));
        let error = Error::io("read a pack", Address(7), &denied);
        assert_eq!(error, Error::Request { operation: "read a pack", errno: libc::EACCES, reason: "HTTP status 1; do it".into() });
        assert_eq!(error.to_string(), "cannot read a pack: HTTP status 1; do it");
    }
}
