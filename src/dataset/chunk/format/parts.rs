//! Arguments for opening a chunk format.

use crate::dataset::fill::FillPattern;
use crate::filter::pipeline::Pipeline;
use crate::format::message::section_filters::SectionFilters;

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
    /// Sections of structured chunks; `None`: the chunks are not structured.
    pub(crate) sections: Option<SectionParts<'a>>,
    /// Chunks that extend past the extent are stored without filters.
    pub(crate) raw_edges: bool,
}

/// Sections of the structured chunks of a dataset.
#[derive(Clone, Copy)]
pub(crate) struct SectionParts<'a> {
    /// Number of sections.
    pub(crate) count: u8,
    /// Their filters.
    pub(crate) filters: &'a SectionFilters,
}
