//! Version 2 B-trees (H5.format.4.0, "Version 2 B-trees"): header, internal and leaf nodes.
//!
//! Records are opaque bytes here: what they hold depends on the tree's type and belongs to its user.

pub mod geometry;
pub mod header;
pub mod internal;
pub mod leaf;

pub use geometry::Geometry;
pub use header::Header;
pub use internal::Internal;
pub use leaf::Leaf;

use crate::base::Address;

/// What a header or an internal node says of a node below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePointer {
    /// Where the node lies; undefined for the root of an empty tree.
    pub address: Address,
    /// Records in that node itself.
    pub records: u16,
    /// Records in that node and in all nodes below it.
    pub total: u64,
}

/// Signature, version, type and checksum: the bytes of a node that hold neither records nor pointers.
pub const NODE_OVERHEAD: usize = 10;

#[cfg(test)]
mod tests;
