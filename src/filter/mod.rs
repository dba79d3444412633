//! The filter pipeline (H5Z): decodes stored chunks, and encodes chunks for storage.

mod bit_transpose;
mod bits;
mod bitshuffle;
mod blosc;
mod blosc2;
mod bounded;
mod bzip2;
#[cfg(test)]
mod cases;
pub(crate) mod deflate;
pub(crate) mod deflate_zeros;
mod error;
pub(crate) mod fletcher32;
#[cfg(test)]
mod golden;
mod lz4;
mod lzf;
mod nbit;
pub mod pipeline;
pub mod registry;
mod scaleoffset;
pub(crate) mod shuffle;
mod snappy;
mod szip;
mod zfp;
mod zstd;

pub use crate::base::filter_spec::FilterSpec;
pub use error::{FilterError, Params};
pub use pipeline::{Pipeline, name_of};
pub use zfp::chunk_bytes as zfp_chunk_bytes;
