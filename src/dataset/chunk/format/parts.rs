//! Arguments for opening a chunk format.

use crate::dataset::fill::FillPattern;
use crate::filter::pipeline::Pipeline;

/// Properties of a dataset that determine the format of its chunks.
pub(crate) struct Parts<'a> {
    /// Bytes of a chunk's elements.
    pub(crate) chunk_bytes: u64,
    /// Dimensions of a chunk, elements.
    pub(crate) chunk_dims: &'a [u64],
    /// Bytes of an element.
    pub(crate) element_size: u64,
    /// Value of elements that were never written.
    pub(crate) fill: &'a FillPattern,
    /// Filters.
    pub(crate) pipeline: &'a Pipeline,
    /// Chunks that extend past the extent are stored without filters.
    pub(crate) raw_edges: bool,
}
