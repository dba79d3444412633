//! Chunked storage: the grid of chunks and what lies in it.

pub mod grid;

pub use grid::{ChunkGrid, ChunkRange, Overlap};
