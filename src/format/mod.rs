//! The file format as a pure codec: bytes to structs and back, lossless, no I/O.
//!
//! One structure, one file: its layout in the doc comment, its decoder and its encoder.

pub mod btree1;
pub mod btree2;
pub mod chunk_record;
pub mod codec;
pub mod earray;
pub mod elements;
pub mod farray;
pub mod fractal_heap;
pub mod global_heap;
pub mod local_heap;
pub mod message;
pub mod object_header;
pub mod shared_message;
pub mod superblock;

pub use codec::{Context, Reader, Writer};
