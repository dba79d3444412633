//! Dataset storage (H5D): layouts, chunk grid, chunk cache, chunk indexes.

pub mod chunk;
