//! Why an object could not be read.

use std::fmt;
use std::io;

/// A failed GET: the errno and a sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The errno.
    pub errno: i32,
    /// What failed and what to do.
    pub message: String,
    /// Another attempt may succeed.
    pub(super) is_transient: bool,
}

impl Failure {
    /// A failure that another attempt would repeat.
    pub(super) fn permanent(errno: i32, message: impl Into<String>) -> Self {
        Failure { errno, message: message.into(), is_transient: false }
    }

    /// A failure that another attempt may not repeat.
    pub(super) fn transient(errno: i32, message: impl Into<String>) -> Self {
        Failure { errno, message: message.into(), is_transient: true }
    }

    /// The failure of a request that was answered with the HTTP status `status`, not 2xx.
    pub(super) fn of_status(status: u16) -> Self {
        let says = |text: &str| format!("HTTP status {status}; {text}");
        match status {
            401 | 403 => Self::permanent(
                libc::EACCES,
                says("check the credentials; a public object may be read with AWS_SKIP_SIGNATURE=true, or mounted with --anonymous"),
            ),
            404 | 410 => Self::permanent(libc::ENOENT, says("check the URL")),
            301 | 302 | 307 | 308 => Self::permanent(libc::EIO, says("set AWS_REGION to the region of the bucket, or check the endpoint")),
            412 => Self::permanent(libc::EIO, says("the object was changed")),
            416 => Self::permanent(libc::EIO, says("the object is empty or was changed")),
            408 | 425 | 429 | 500.. => Self::transient(libc::EIO, says("the server is overloaded or broken; try again later")),
            _ => Self::permanent(libc::EIO, says("check the URL and the endpoint")),
        }
    }

    /// As an error of a read.
    pub(super) fn io_error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_an_errno_and_a_remedy() {
        for (status, errno, transient) in [
            (403, libc::EACCES, false),
            (404, libc::ENOENT, false),
            (412, libc::EIO, false),
            (503, libc::EIO, true),
            (400, libc::EIO, false),
        ] {
            let failure = Failure::of_status(status);
            assert_eq!((failure.errno, failure.is_transient), (errno, transient), "{status}");
            assert!(failure.message.starts_with(&format!("HTTP status {status}; ")), "{failure}");
        }
    }
}
