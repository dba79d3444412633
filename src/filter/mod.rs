//! The filter pipeline (H5Z): decoding of stored chunk bytes, and encoding of chunks to store.

mod bits;
pub mod bitshuffle;
pub mod blosc;
pub mod blosc2;
mod bounded;
pub mod bzip2;
#[cfg(test)]
mod cases;
pub mod deflate;
pub mod fletcher32;
#[cfg(test)]
mod golden;
pub mod lz4;
pub mod lzf;
pub mod nbit;
pub mod pipeline;
pub mod registry;
pub mod scaleoffset;
pub mod shuffle;
pub mod snappy;
pub mod szip;
pub mod zfp;
pub mod zstd;

use std::borrow::Cow;

pub use pipeline::{FilterSpec, Pipeline, name_of};

/// Why a filter could not decode or encode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The bytes are not what the filter writes; when encoding: not what it can store.
    #[error("filter {filter}: {detail}")]
    Corrupt {
        /// Name of the filter.
        filter: &'static str,
        /// What is wrong.
        detail: Cow<'static, str>,
    },
    /// No implementation here.
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
    /// Output would exceed what the chunk may hold.
    #[error("filter {filter}: output exceeds {limit} bytes")]
    TooLarge {
        /// Name of the filter.
        filter: &'static str,
        /// The bound, bytes.
        limit: usize,
    },
    /// A filter that may not be left out cannot store a chunk smaller, as it must.
    #[error("filter {id} ({name}) is mandatory and cannot encode the chunk")]
    Declined {
        /// Registered filter identifier.
        id: u16,
        /// Name stored in the file, or the registered one.
        name: String,
    },
}

impl FilterError {
    /// Corrupt input of `filter`.
    pub fn corrupt(filter: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        FilterError::Corrupt { filter, detail: detail.into() }
    }

    /// Unsupported variant of `filter`.
    pub fn unsupported(filter: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        FilterError::Unsupported { filter, detail: detail.into() }
    }
}

/// What every filter is told. `limit` bounds its output (bytes): more is [`FilterError::TooLarge`],
/// and nothing is allocated on the word of the input alone.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a> {
    /// Client data values stored in the pipeline message.
    pub cd_values: &'a [u32],
    /// Bytes the output is expected to have (the chunk's size): a hint for one exact allocation.
    pub expected: usize,
    /// Most bytes the output may have.
    pub limit: usize,
}
