//! Fractal heaps: messages of dense links and attributes, shared messages.
//!
//! ```text
//! header -> root: direct block, or indirect block -> direct and indirect blocks (a doubling table)
//!        -> huge object B-tree -> huge objects, each by itself in the file
//!        -> free-space manager of the holes in direct blocks
//! heap ID: tiny object | offset and length of a managed object | key or address of a huge object
//! ```
//!
//! `load` reads the header and indirect blocks and locates direct blocks; `read` reads objects;
//! `extents` visits all blocks and huge objects; `edit` creates a heap, inserts, removes and
//! replaces objects. H5.format.4.0, "Fractal Heap".

pub(crate) mod edit;
mod extents;
mod load;
mod read;

pub(crate) use extents::extents;
pub use read::{Decode, FractalHeap};
