//! Chunked layout: elements in chunks of equal shape, found by a chunk index.

mod bounds;
mod copy;
mod create;
mod defined;
mod extent;
mod extents;
mod found_chunks;
mod holes;
mod layout;
mod locate;
mod ranges;
mod read;
mod read_ahead;
mod sections;
mod storage;
mod stored_chunks;
mod write;

pub(super) use create::{Create, DEFAULT_SPARSE, NAME, SPARSE};
pub(crate) use create::{like, new};
pub(super) use layout::open;
