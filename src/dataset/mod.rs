//! Dataset storage (H5D): layouts, chunk grid, chunk cache, chunk indexes.

pub mod bounds;
pub mod chunk;
pub mod chunked;
pub mod create;
pub mod environment;
pub mod external;
pub mod fill;
mod holes;
pub mod index;
pub mod newlines;
pub mod parameters;
pub mod ranges;
pub mod storage;
mod streamed;

pub mod types;
pub mod virtual_;
pub mod vl;
pub mod write;
