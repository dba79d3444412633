//! Chunk indexes: map a chunk's scaled offsets to its record (address, size, filter mask).
//!
//! One file per kind of index. An index caches no file content: headers and blocks come from the
//! store's cache, so a repeated lookup costs a few hash lookups, and a lookup after
//! [`Store::forget`](crate::meta::Store::forget) sees the current file.

mod btree1;
mod btree2;
mod earray;
mod farray;
mod implicit;
mod linear;
mod plan;
mod records;
mod registry;
mod row_major;
mod single;
#[cfg(test)]
mod tests;
mod traits;
pub(crate) mod write;
#[cfg(test)]
mod write_tests;

pub(crate) use crate::format::chunk_record::ChunkRecord;
pub(crate) use registry::open;
pub(crate) use traits::{ChunkIndex, Visit};
