//! Extensible array, the chunk index of datasets with one unlimited dimension (H5.format.4.0,
//! "Extensible Array Index").
//!
//! ```text
//! header -> index block: first elements
//!                        data block addresses        -> data blocks
//!                        super block addresses       -> super blocks -> data blocks (-> pages)
//! ```
//!
//! Super block `u` has `2^(u/2)` data blocks of `min * 2^((u+1)/2)` elements each. The first `2 *
//! log2(min super pointers)` super blocks do not exist on disk: the index block has their data
//! block addresses. Data blocks of more elements than a page are paged; the bitmap of the pages
//! ever written is in the super block.

pub mod data_block;
pub mod geometry;
pub mod header;
pub mod index_block;
pub mod super_block;

pub use data_block::DataBlock;
pub use geometry::{ElementPlace, Geometry, SuperBlockInfo};
pub use header::Header;
pub use index_block::IndexBlock;
pub use super_block::SuperBlock;
