//! Levels of structures, by which a SWMR writer's commit replaces them.

use crate::file::write_order::DATA_LEVEL;

/// What a structure refers to: a commit replaces structures of a lower level first, so that a SWMR
/// reader never finds a reference to what is not in the file yet (`file::write_order`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Elements.
    Data,
    /// Array page, data block without pages, B-tree node: refers to chunks.
    Leaf,
    /// Fixed array data block with pages, extensible array super block: refers to leaves.
    Inner,
    /// Extensible array index block: refers to super blocks.
    Outer,
    /// Header of a chunk index.
    Index,
    /// Chunk of an object header without the dataspace.
    Messages,
    /// Chunk of an object header with the dataspace: shows new elements to readers.
    Extent,
}

impl Level {
    /// The level for `file::write_order`.
    pub(super) fn rank(self) -> u8 {
        match self {
            Level::Data => DATA_LEVEL,
            other => other as u8,
        }
    }
}
