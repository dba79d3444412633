//! Errors and parameters that all filters share.

use std::borrow::Cow;

/// Why a filter failed to decode or encode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Invalid input: not written by this filter or, when encoding, not storable by it.
    #[error("filter {filter}: {detail}")]
    Corrupt {
        /// Name of the filter.
        filter: &'static str,
        /// What is wrong.
        detail: Cow<'static, str>,
    },
    /// A filter that is not implemented here.
    #[error("filter {id} ({name}) is not supported")]
    Unknown {
        /// Registered filter identifier.
        id: u16,
        /// Name stored in the file, or the registered one.
        name: String,
    },
    /// A variant of a known filter that is not supported.
    #[error("filter {filter}: unsupported {detail}")]
    Unsupported {
        /// Name of the filter.
        filter: &'static str,
        /// What is not supported.
        detail: Cow<'static, str>,
    },
    /// The output would exceed its limit.
    #[error("filter {filter}: output exceeds {limit} bytes")]
    TooLarge {
        /// Name of the filter.
        filter: &'static str,
        /// The bound, bytes.
        limit: usize,
    },
    /// A mandatory filter declined to encode a chunk.
    #[error("filter {id} ({name}) is mandatory and cannot encode the chunk")]
    Declined {
        /// Registered filter identifier.
        id: u16,
        /// Name stored in the file, or the registered one.
        name: String,
    },
}

impl FilterError {
    /// Builds a [`FilterError::Corrupt`] of `filter`.
    pub fn corrupt(filter: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        FilterError::Corrupt { filter, detail: detail.into() }
    }

    /// Builds a [`FilterError::Unsupported`] of `filter`.
    pub fn unsupported(filter: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        FilterError::Unsupported { filter, detail: detail.into() }
    }
}

/// Parameters of every filter call.
///
/// Output of more than `limit` bytes is [`FilterError::TooLarge`]. A size that only the input
/// states never causes an allocation beyond `limit`.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a> {
    /// Client data values stored in the pipeline message.
    pub cd_values: &'a [u32],
    /// Expected size of the output, bytes (the chunk's size): a hint for one exact allocation.
    pub expected: usize,
    /// Largest output, bytes.
    pub limit: usize,
}
