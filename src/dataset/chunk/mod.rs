//! Chunked storage: grid, cache, spill file, pieces of a request.

pub mod cache;
pub mod spill;
