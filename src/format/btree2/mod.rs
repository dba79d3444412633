//! Version 2 B-trees (H5.format.4.0, "Version 2 B-trees"): header, internal and leaf nodes.
//!
//! Records are opaque bytes here; the user of the tree decodes them by its type.

pub mod geometry;
pub mod header;
pub mod internal;
pub mod leaf;

pub use geometry::Geometry;
pub use header::Header;
pub use internal::Internal;
pub use leaf::Leaf;

use crate::base::Address;

/// Pointer to a node, in a header or an internal node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePointer {
    /// Address of the node; undefined for the root of an empty tree.
    pub address: Address,
    /// Number of records in the node itself.
    pub records: u16,
    /// Number of records in the node and all nodes below it.
    pub total: u64,
}

/// Size of a node's signature, version, type and checksum, bytes.
pub const NODE_OVERHEAD: usize = 10;

#[cfg(test)]
mod tests;
