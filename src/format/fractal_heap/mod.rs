//! Fractal heaps (H5.format.4.0, "Fractal Heap"): storage of dense links, dense attributes and
//! shared object header messages.
//!
//! Managed objects are in direct blocks of a doubling table, huge ones separately in the file, tiny
//! ones inside the heap ID.

pub mod direct;
pub mod geometry;
pub mod header;
pub mod huge;
pub mod id;
pub mod indirect;

pub use direct::DirectBlock;
pub use geometry::Geometry;
pub use header::Header;
pub use huge::HugeRecord;
pub use id::{HeapId, IdFormat};
pub use indirect::IndirectBlock;

#[cfg(test)]
mod tests;
