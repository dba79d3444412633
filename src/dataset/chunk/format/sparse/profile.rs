//! How new datasets of a profile are made: by their filters.

use crate::base::Result;
use crate::dataset::fill::FillPattern;
use crate::filter::FilterSpec;

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
}

/// All profiles, the default first.
pub(crate) const PROFILES: [&dyn SparseProfile; 2] = [&super::Map, &super::Filter];
