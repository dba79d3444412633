//! The file format as a pure codec: bytes to structs and back, lossless, no I/O.
//!
//! One structure, one file: its layout in the doc comment, its decoder and its encoder.

pub mod attribute_index;
pub mod btree1;
pub mod btree2;
pub mod cache_image;
pub mod chunk_record;
pub mod codec;
pub mod earray;
pub mod elements;
pub mod farray;
pub mod file_space_manager;
pub mod fractal_heap;
pub mod global_heap;
pub mod group_node;
pub mod link_index;
pub mod local_heap;
pub mod message;
pub mod object_header;
pub mod selection;
pub mod shared_message;
pub mod superblock;
pub mod symbol_table;
pub mod virtual_mapping;

pub use codec::{Context, Reader, Writer};
