//! Filter 32026: Blosc2.
//!
//! A stored HDF5 chunk is a contiguous frame ([`frame`]). It holds either one plain chunk, or a
//! multi-dimensional array ([`b2nd`]) whose chunks are divided into multi-dimensional blocks.
//! Source: README_CFRAME_FORMAT.rst, README_B2ND_METALAYER.rst of c-blosc2, blosc2_filter.c of
//! PyTables' hdf5-blosc2.

mod b2nd;
mod decode;
mod encode;
mod frame;

pub use decode::decode;
pub use encode::encode;
