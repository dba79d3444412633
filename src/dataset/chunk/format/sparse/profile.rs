//! How new datasets of a profile are made: by their filters.

use crate::base::datatype::Datatype;
use crate::base::{Error, Result};
use crate::dataset::fill::FillPattern;
use crate::filter::FilterSpec;
use crate::filter::registry::{DEFLATE, FLETCHER32, SHUFFLE};
use crate::format::message::filter_pipeline::FilterDescription;
use crate::format::message::section_filters::SectionFilters;

/// Filters that work on data of any length.
const FILTERS: [u16; 4] = [DEFLATE, SHUFFLE, FLETCHER32, ZSTD];
/// Identifier of the zstd filter.
pub(super) const ZSTD: u16 = 32015;

/// Filter flag: chunks may be stored without the filter.
pub(super) const OPTIONAL: u16 = 1;

/// Properties of the chunks of a new dataset.
pub(crate) struct NewChunks<'a> {
    /// Dimensions of a chunk, elements.
    pub(crate) dims: &'a [u64],
    /// Bytes of an element.
    pub(crate) element_size: u64,
    /// Value of undefined elements.
    pub(crate) fill: FillPattern,
}

/// A way in which sparse chunks are stored.
pub(crate) trait SparseProfile: Send + Sync {
    /// Name in a dataset's description.
    fn name(&self) -> &'static str;

    /// The filters in the file of a dataset with the user's `filters`. Errors: filters that the
    /// profile cannot have.
    fn stored_filters(&self, chunks: &NewChunks<'_>, filters: &[FilterSpec]) -> Result<Vec<FilterSpec>>;

    /// The user's filters of a dataset with these in the file.
    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec>;

    /// True if every libhdf5 reads its chunks, without a plugin.
    fn is_read_by_stock(&self) -> bool {
        false
    }

    /// Number of sections of its chunks; `None`: the chunks are not structured.
    fn sections(&self) -> Option<u8> {
        None
    }

    /// The message that has `filters` in the place of the filter pipeline message.
    fn section_filters(&self, _filters: &[FilterDescription]) -> Option<SectionFilters> {
        None
    }

    /// Errors: a type whose elements the profile cannot store.
    fn check_type(&self, _datatype: &Datatype) -> Result<()> {
        Ok(())
    }

    /// What users of new datasets have to know; for the log.
    fn warning(&self) -> Option<&'static str> {
        None
    }
}

/// Errors: filters that do not work on data of any length.
pub(super) fn check_filters(filters: &[FilterSpec]) -> Result<()> {
    let Some(f) = filters.iter().find(|f| !FILTERS.contains(&f.id)) else { return Ok(()) };
    let name = f.display_name();
    let detail = format!("filter {name} does not compress chunks of this profile: deflate, zstd, shuffle and fletcher32 do");
    Err(Error::refused(libc::EINVAL, detail))
}

/// All profiles, the default first.
pub(crate) const PROFILES: [&dyn SparseProfile; 3] = [&super::Map, &super::Filter, &super::Structured];
