//! Keys of the chunk caches.

use crate::base::Address;

/// Identifies a dataset: number of its file within the container, and address of its object header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DatasetKey {
    /// Number of the file.
    pub(crate) file: u32,
    /// Address of the object header.
    pub(crate) address: Address,
}

/// Identifies a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// The dataset.
    pub(crate) dataset: DatasetKey,
    /// Row-major number of the chunk.
    pub(crate) chunk: u64,
}

/// Where a container of objects has bytes: a range of an object that was written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoredExtent {
    /// Numbers of the object.
    pub(crate) object: (u64, u32),
    /// First byte.
    pub(crate) offset: u64,
    /// Length, bytes.
    pub(crate) len: u32,
    /// Checksum of the bytes.
    pub(crate) checksum: u32,
}

/// Key of an entry of the chunk cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CacheKey {
    /// A decoded chunk.
    Chunk(ChunkKey),
    /// The byte form of a variable-length element.
    Element {
        /// The dataset.
        dataset: DatasetKey,
        /// Row-major number of the element.
        element: u64,
        /// Exact form; otherwise lines form.
        exact: bool,
    },
    /// What is stored in a place that never changes, decoded.
    Extent {
        /// The dataset.
        dataset: DatasetKey,
        /// Where they are.
        extent: StoredExtent,
        /// Nothing was to be decoded: these are the stored bytes.
        raw: bool,
    },
    /// A part of the form of variable-length elements, as an index of it divides it.
    FormPart {
        /// The dataset.
        dataset: DatasetKey,
        /// Number of the index, which never changes.
        index: u64,
        /// Number of the part.
        part: u64,
    },
    /// The decoded elements of a write in a log.
    Record {
        /// The dataset.
        dataset: DatasetKey,
        /// Number of the write among those to the dataset.
        record: u64,
    },
}

impl CacheKey {
    /// True if the entry goes to the disk cache when it is evicted. Containers of objects have
    /// another one, of stored bytes.
    pub(crate) fn goes_to_disk(&self) -> bool {
        !matches!(self, CacheKey::Extent { .. } | CacheKey::FormPart { .. })
    }

    /// The entry's dataset.
    pub(crate) fn dataset(&self) -> DatasetKey {
        match self {
            CacheKey::Chunk(key) => key.dataset,
            CacheKey::Element { dataset, .. }
            | CacheKey::Extent { dataset, .. }
            | CacheKey::FormPart { dataset, .. }
            | CacheKey::Record { dataset, .. } => *dataset,
        }
    }
}

impl From<ChunkKey> for CacheKey {
    fn from(key: ChunkKey) -> Self {
        CacheKey::Chunk(key)
    }
}

#[cfg(test)]
impl From<u64> for DatasetKey {
    fn from(address: u64) -> Self {
        DatasetKey { file: 0, address: Address(address) }
    }
}
