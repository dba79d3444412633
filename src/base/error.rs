//! The engine's error: what is wrong, in which structure, at which address.
//!
//! Cloneable, because one failed chunk decode is the result of every thread that waits for it. Four
//! classes are kept apart: corrupt (the bytes break the specification), unsupported (a feature this
//! engine does not implement), limit (beyond a stated bound) and I/O.

use super::Address;
use super::request_error::RequestError;
use std::borrow::Cow;
use std::fmt;

/// Result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an engine operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Bytes that break the file format.
    #[error("corrupt {structure}{}: {detail}", At(*address))]
    Corrupt {
        /// Standard name of the structure, e.g. `"object header"`.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// What is wrong with it.
        detail: Cow<'static, str>,
        /// Bytes of it would be past the end of the file.
        is_past_end: bool,
    },
    /// A feature this engine does not read (unknown filter, newer version).
    #[error("unsupported {structure}{}: {detail}", At(*address))]
    Unsupported {
        /// Standard name of the structure.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// What is not supported.
        detail: Cow<'static, str>,
    },
    /// Possibly valid, but beyond a bound of `base::limits`.
    #[error("limit exceeded in {structure}{}: {detail}", At(*address))]
    Limit {
        /// Standard name of the structure.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// Which bound.
        detail: Cow<'static, str>,
    },
    /// A system call on the backing file failed.
    #[error("cannot {operation}{}: {}", At(*address), std::io::Error::from_raw_os_error(*errno))]
    Io {
        /// The operation that failed, e.g. `"read"`.
        operation: &'static str,
        /// File offset.
        address: Address,
        /// errno of the system call.
        errno: i32,
    },
    /// Only a disk has bytes of a structure that is read from memory alone. The reader has them
    /// read into memory, and begins again.
    #[error("{len} bytes at {address} are on a disk, and not in memory")]
    OnDisk {
        /// Where the bytes begin.
        address: Address,
        /// How many they are.
        len: usize,
    },
    /// A request to a server failed.
    #[error("cannot {operation}: {reason}")]
    Request {
        /// The operation that failed, e.g. `"read a pack"`.
        operation: &'static str,
        /// errno of the failure.
        errno: i32,
        /// Why it failed and what to do.
        reason: String,
    },
    /// A file referenced by name (external link, raw data file, virtual source) is not available.
    #[error("{what} {name:?} is missing: {reason}")]
    Missing {
        /// Role of the missing file.
        what: &'static str,
        /// Its name as stored in the referencing file.
        name: String,
        /// Why it is not available.
        reason: Cow<'static, str>,
    },
    /// A modification that the file or the request's arguments do not allow.
    #[error("{reason}")]
    Refused {
        /// errno of the refused request.
        errno: i32,
        /// Why.
        reason: Cow<'static, str>,
    },
}

/// The place of an error in a message: nothing if it has no address.
struct At(Address);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Address::UNDEF { Ok(()) } else { write!(f, " at {}", self.0) }
    }
}

impl Error {
    /// Builds an [`Error::Corrupt`].
    pub fn corrupt(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Corrupt { structure, address, detail: detail.into(), is_past_end: false }
    }

    /// Builds an [`Error::Unsupported`].
    pub fn unsupported(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Unsupported { structure, address, detail: detail.into() }
    }

    /// Builds an [`Error::Limit`].
    pub fn limit(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Limit { structure, address, detail: detail.into() }
    }

    /// Builds an [`Error::Refused`].
    pub fn refused(errno: i32, reason: impl Into<Cow<'static, str>>) -> Self {
        Error::Refused { errno, reason: reason.into() }
    }

    /// Builds an [`Error::Corrupt`]: `needed` bytes at `address`, of which the file has `present`.
    pub fn past_end(structure: &'static str, address: Address, needed: u64, present: u64) -> Self {
        let detail = format!("{needed} bytes are needed, the file ends after {present}").into();
        Error::Corrupt { structure, address, detail, is_past_end: true }
    }

    /// True if the bytes of the file are the reason, and not the system or a rule.
    pub fn is_about_content(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Limit { .. })
    }

    /// Builds an [`Error::Io`], or an [`Error::Request`] if `error` has one. Its errno is EIO if
    /// `error` has none.
    pub fn io(operation: &'static str, address: Address, error: &std::io::Error) -> Self {
        if let Some(request) = RequestError::of(error) {
            return Error::Request { operation, errno: request.errno, reason: request.text.clone() };
        }
        Error::Io { operation, address, errno: error.raw_os_error().unwrap_or(5) }
    }
}
