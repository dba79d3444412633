//! Filter 32001: Blosc (version 1), and the chunks, codecs and inner filters it shares with Blosc2.
//!
//! A stored HDF5 chunk is one Blosc chunk ([`chunk`]).
//! Source: README_HEADER.rst / README_CHUNK_FORMAT.rst of c-blosc.

pub(in crate::filter) mod chunk;
pub(in crate::filter) mod codec;
mod decode;
pub(in crate::filter) mod encode;
mod lz;
mod unshuffle;

pub use decode::decode;
pub use encode::{encode, store};
