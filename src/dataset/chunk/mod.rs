//! Chunked storage: grid, cache, spill file, pieces of a request.

pub mod cache;
pub mod dirty;
pub mod gate;
pub mod map;
pub mod pieces;
pub mod plain;
pub mod spill;
pub mod spool;
pub mod tally;

pub mod grid;

pub use grid::{ChunkGrid, ChunkRange, Overlap};
pub mod temporary;
