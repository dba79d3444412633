//! Fixed array, the chunk index of datasets without unlimited dimensions (H5.format.4.0, "Fixed
//! Array Index").
//!
//! A header points to one data block. If the elements exceed one page, the data block has a bitmap
//! of the pages ever written instead, and the pages follow it.

pub mod data_block;
pub mod header;

pub use header::Header;
