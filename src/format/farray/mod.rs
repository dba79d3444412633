//! Fixed array, the chunk index of datasets without unlimited dimensions (H5.format.4.0, "Fixed Array Index").
//!
//! A header points to one data block. A data block of more elements than fit a page is followed by
//! its pages; the block itself then holds a bitmap of the pages that were ever written.

pub mod data_block;
pub mod header;

pub use data_block::DataBlock;
pub use header::Header;
