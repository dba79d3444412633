//! Arguments for opening a chunk format.

use crate::filter::pipeline::Pipeline;

/// Properties of a dataset that determine the format of its chunks.
pub(crate) struct Parts<'a> {
    /// Bytes of a chunk's elements.
    pub(crate) chunk_bytes: u64,
    /// Filters.
    pub(crate) pipeline: &'a Pipeline,
    /// Chunks that extend past the extent are stored without filters.
    pub(crate) raw_edges: bool,
}
