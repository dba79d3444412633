//! A dirty chunk in stored form.

use super::dirty::DirtyChunk;
use super::dirty_file::Stored;
use super::format::ChunkFormat;
use super::key::ChunkKey;
use crate::format::chunk_record::StoredForm;
use std::sync::Arc;

/// A chunk that was encoded without a lock, and the state it was encoded from.
pub struct Encoded {
    /// Which chunk.
    pub(crate) key: ChunkKey,
    /// The dirty chunk.
    pub(crate) chunk: Arc<DirtyChunk>,
    /// Its version when it was encoded.
    pub(crate) version: u64,
    /// The format that encoded it.
    pub(crate) format: Arc<dyn ChunkFormat>,
    /// The chunk extended past the extent of the dataset.
    pub(crate) is_edge: bool,
    /// The stored form.
    pub(crate) stored: StoredBytes,
}

/// The stored form of a chunk.
pub(crate) enum StoredBytes {
    /// The bytes of the dirty chunk itself, which needs no encoding.
    Unencoded,
    /// Encoded bytes and how they are decoded.
    Memory(Vec<u8>, StoredForm),
    /// Encoded bytes in a temporary file.
    File(Stored),
}
