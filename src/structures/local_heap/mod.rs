//! Local heaps: link names of old-style groups, names of external files.
//!
//! ```text
//! header -> data segment: strings and a list of free blocks
//! ```
//!
//! `load` reads the header and visits the extents; `read` reads the whole data segment; `names`
//! reads single strings of a segment of any size; `edit` creates a heap, inserts and removes
//! strings. H5.format.4.0, "Local Heap".

pub(crate) mod edit;
mod load;
mod names;
mod read;

pub(crate) use load::extents;
pub(in crate::structures) use names::HeapNames;
pub use read::LocalHeap;
