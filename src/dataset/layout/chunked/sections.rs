//! Filters of the sections of structured chunks.

use crate::base::{Error, Result};
use crate::dataset::layout::parts::Parts;
use crate::format::message::data_layout::{ChunkedLayout, IndexInfo, NAME, SINGLE_INDEX_WITH_FILTER};
use crate::format::message::section_filters::{self, SectionFilters};
use crate::format::object_header::kind;

/// Sections of chunks whose elements have a fixed size.
const FIXED_SIZE: u8 = 2;

/// The filters of each section of the dataset's chunks; none if they are not structured. Errors:
/// messages that contradict each other, sections that are not read.
pub(super) fn filters(parts: &Parts<'_>, layout: &ChunkedLayout) -> Result<SectionFilters> {
    let (Some(count), at) = (layout.sections, parts.header) else { return Ok(SectionFilters::default()) };
    if count != FIXED_SIZE {
        return Err(Error::unsupported(NAME, at, "structured chunks of elements of variable length"));
    }
    if parts.datatype.contains_vlen() {
        return Err(Error::corrupt(NAME, at, format!("structured chunks of {count} sections with elements of variable length")));
    }
    if !parts.pipeline.is_empty() {
        return Err(Error::corrupt(NAME, at, "structured chunks with a filter pipeline message"));
    }
    let body = parts.surroundings.message(kind::SECTION_FILTERS)?;
    let filters = body.map(|body| SectionFilters::decode(&body, at)).transpose()?.unwrap_or_default();
    if let Some((section, _)) = filters.sections.iter().find(|(section, _)| *section >= count) {
        return Err(Error::corrupt(section_filters::NAME, at, format!("filters of section {section}, chunks have {count}")));
    }
    let is_filtered = filters.sections.iter().any(|(_, all)| !all.is_empty());
    let has_masks = layout.flags & SINGLE_INDEX_WITH_FILTER != 0;
    if matches!(layout.index, IndexInfo::Single { .. }) && has_masks != is_filtered {
        return Err(Error::corrupt(NAME, at, "the flag of a filtered single chunk contradicts the section filters message"));
    }
    Ok(filters)
}
