//! Chunked layout: elements in chunks of equal shape, found by a chunk index.

mod bounds;
mod copy;
mod holes;
mod layout;
mod ranges;
mod read;
mod read_ahead;
mod stored_chunks;
mod write;

pub(super) use layout::open;
