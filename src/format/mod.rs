//! The file format as a pure codec: bytes to structs and back, lossless, without I/O.
//!
//! Each file has one structure: its layout in the doc comment, its decoder and its encoder.
//! Encoders that the daemon does not need exist in test builds only.

pub(crate) mod attribute_index;
pub mod btree1;
pub mod btree2;
pub mod cache_image;
pub(crate) mod chunk_record;
mod codec;
pub mod defined_map;
pub mod driver_info;
pub mod earray;
pub(crate) mod elements;
pub mod farray;
pub mod fractal_heap;
pub mod free_list;
pub mod free_space;
pub mod global_heap;
pub(crate) mod link_index;
pub mod local_heap;
pub(crate) mod log;
pub mod message;
pub mod object_header;
pub mod onion;
pub mod property_list;
pub mod selection;
pub mod set_selection;
pub mod shared_message;
pub mod sparse_chunk;
pub mod superblock;
pub mod symbol_table;
pub mod virtual_mapping;

pub use codec::{Context, Reader, Writer};
