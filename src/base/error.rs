//! The engine's error: what is wrong, in which structure, at which address.
//!
//! Cloneable, because one failed chunk decode answers every thread that waits for it.
//! Corrupt (the bytes break the specification), unsupported (they may be right but are not
//! understood), limit (right, but beyond a stated bound) and I/O are kept apart.

use super::Address;
use std::borrow::Cow;

/// Result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an engine operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Bytes that break the file format.
    #[error("corrupt {structure} at {address}: {detail}")]
    Corrupt {
        /// Standard name of the structure, e.g. `"object header"`.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// What is wrong with it.
        detail: Cow<'static, str>,
    },
    /// A feature this engine does not read (unknown filter, newer version).
    #[error("unsupported {structure} at {address}: {detail}")]
    Unsupported {
        /// Standard name of the structure.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// What is not supported.
        detail: Cow<'static, str>,
    },
    /// Valid perhaps, but beyond a bound of `base::limits`.
    #[error("limit exceeded in {structure} at {address}: {detail}")]
    Limit {
        /// Standard name of the structure.
        structure: &'static str,
        /// Where the structure begins.
        address: Address,
        /// Which bound.
        detail: Cow<'static, str>,
    },
    /// The operating system refused a read of the backing file.
    #[error("cannot {operation} at {address}: {}", std::io::Error::from_raw_os_error(*errno))]
    Io {
        /// What was tried.
        operation: &'static str,
        /// File offset.
        address: Address,
        /// errno of the system call.
        errno: i32,
    },
    /// A file that another one names (external link, raw file, virtual source) cannot be had.
    #[error("{what} {name:?} is missing: {reason}")]
    Missing {
        /// Role of the file.
        what: &'static str,
        /// Its name as stored.
        name: String,
        /// Why it cannot be had.
        reason: Cow<'static, str>,
    },
    /// A change that the container, or what the caller said, does not allow.
    #[error("{reason}")]
    Refused {
        /// What the caller gets.
        errno: i32,
        /// Why.
        reason: Cow<'static, str>,
    },
}

impl Error {
    /// A corrupt structure.
    pub fn corrupt(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Corrupt { structure, address, detail: detail.into() }
    }

    /// An unsupported structure.
    pub fn unsupported(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Unsupported { structure, address, detail: detail.into() }
    }

    /// A bound that was exceeded.
    pub fn limit(structure: &'static str, address: Address, detail: impl Into<Cow<'static, str>>) -> Self {
        Error::Limit { structure, address, detail: detail.into() }
    }

    /// A change that is not allowed.
    pub fn refused(errno: i32, reason: impl Into<Cow<'static, str>>) -> Self {
        Error::Refused { errno, reason: reason.into() }
    }

    /// A failed system call.
    pub fn io(operation: &'static str, address: Address, error: &std::io::Error) -> Self {
        Error::Io { operation, address, errno: error.raw_os_error().unwrap_or(5) }
    }
}
