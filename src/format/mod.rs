//! The file format as a pure codec: bytes to structs and back, lossless, no I/O.
//!
//! One structure, one file: its layout in the doc comment, its decoder and its encoder.

pub mod codec;
pub mod message;
pub mod selection;
pub mod superblock;
pub mod virtual_mapping;

pub use codec::{Context, Reader, Writer};
