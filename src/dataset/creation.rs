//! Properties of a new dataset, and what its layout adds to them.

use super::elsewhere::Elsewhere;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result, limits};
use crate::format::Context;
use crate::format::message::data_layout::DataLayout;
use crate::format::message::filter_pipeline::{FilterDescription, FilterPipeline};
use crate::format::object_header::kind;
use crate::meta::Store;

const NAME: &str = "new dataset";
/// Longest body of a header message, bytes; a multiple of 8, as version 1 headers require.
pub(crate) const MESSAGE_MAX_BYTES: usize = 65_528;

pub(crate) fn refuse<T>(detail: impl Into<std::borrow::Cow<'static, str>>) -> Result<T> {
    Err(Error::unsupported(NAME, Address::UNDEF, detail))
}

/// Body of the filter pipeline message of a new dataset in a file with this superblock version.
pub(crate) fn pipeline_message(filters: Vec<FilterDescription>, superblock_version: u8) -> Vec<u8> {
    FilterPipeline { version: if superblock_version < 2 { 1 } else { 2 }, filters }.encode()
}

/// Records of a dataset in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Elements as they are.
    Plain,
    /// Elements deflated.
    Deflated,
    /// Elements as they are, in a log of the released log VOL.
    Released,
}

/// How datasets of one layout are created.
pub trait CreateLayout: Send + Sync {
    /// Name in `user.h5dir.layout`.
    fn name(&self) -> &'static str;

    /// Name of the way in which elements are stored, if the layout has several.
    fn profile(&self) -> Option<&'static str> {
        None
    }

    /// The same layout, with elements stored in the way of this name.
    fn with_profile(&'static self, _name: &str) -> Option<&'static dyn CreateLayout> {
        None
    }

    /// The filters in the file, for the user's filters of `creation`. Errors: filters that the
    /// layout cannot have.
    fn stored_filters(&self, creation: &Creation) -> Result<Vec<FilterSpec>> {
        Ok(creation.filters.clone())
    }

    /// The user's filters of a dataset with these in the file.
    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec> {
        filters.to_vec()
    }

    /// Type and body of the header message with `filters`, those in the file.
    fn filter_message(&self, filters: Vec<FilterDescription>, superblock_version: u8) -> Result<(u16, Vec<u8>)> {
        Ok((kind::FILTER_PIPELINE, pipeline_message(filters, superblock_version)))
    }

    /// What users of new datasets of this layout have to know; for the log.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// True if the elements are in chunks. Only then has the dataset chunk dimensions and filters,
    /// and can its dimensions grow.
    fn is_chunked(&self) -> bool {
        false
    }

    /// True if a container of any kind can have it: it needs nothing of an HDF5 file but the
    /// header messages.
    fn fits_any_container(&self) -> bool {
        false
    }

    /// The layout of a copy with these filters of the user in a container that does not have this
    /// one; `None`: an ordinary one.
    fn in_any_container(&self, _filters: &[FilterSpec]) -> Option<&'static dyn CreateLayout> {
        None
    }

    /// True if its first dimension can grow.
    fn grows(&self) -> bool {
        self.is_chunked()
    }

    /// How records of the elements are stored, if they are in the log of the file: the object is
    /// an anchor.
    fn records(&self) -> Option<Records> {
        None
    }

    /// Space allocation time of the fill value message: 1 early, 2 late, 3 incremental.
    fn allocation_time(&self) -> u8;

    /// Errors: properties that no dataset of this layout can have.
    fn check(&self, _creation: &Creation) -> Result<()> {
        Ok(())
    }

    /// Writes what header messages of the layout refer to, and makes `messages` refer to it.
    fn store(&self, _store: &Store, _creation: &Creation, _messages: &mut Vec<(u16, u8, Vec<u8>)>) -> Result<()> {
        Ok(())
    }

    /// The data layout message, for a file with this superblock version.
    fn message(&self, ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<DataLayout>;
}

/// Storage layout of a new dataset.
#[derive(Clone)]
pub struct NewLayout {
    /// The layout.
    pub(crate) kind: &'static dyn CreateLayout,
    /// Dimensions of a chunk, elements; empty unless the layout is chunked.
    pub(crate) chunk: Vec<u64>,
}

impl PartialEq for NewLayout {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name(), self.kind.profile()) == (other.kind.name(), other.kind.profile()) && self.chunk == other.chunk
    }
}

impl Eq for NewLayout {}

impl std::fmt::Debug for NewLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.chunk)
    }
}

impl NewLayout {
    /// Dimensions of a chunk, if the layout is chunked.
    pub(crate) fn chunk_dims(&self) -> Option<&[u64]> {
        self.kind.is_chunked().then_some(self.chunk.as_slice())
    }
}

/// Properties of a new dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Type of the elements. Its message version is ignored.
    pub(crate) datatype: Datatype,
    /// Header of the equal committed datatype that the dataset refers to.
    pub(crate) committed: Option<Address>,
    /// Kind of extent.
    pub(crate) extent: Extent,
    /// Dimensions, elements, slowest first; empty unless the extent is simple.
    pub(crate) dims: Vec<u64>,
    /// Maximum dimensions, `None` inside = unlimited; `None`: equal to `dims`.
    pub(crate) max_dims: Option<Vec<Option<u64>>>,
    /// Storage layout.
    pub(crate) layout: NewLayout,
    /// Filters in the order of encoding. Only the user's values are needed.
    pub(crate) filters: Vec<FilterSpec>,
    /// Fill value, one element of type `datatype`.
    pub(crate) fill: Fill,
    /// When fill values are written: 0 on allocation, 1 never, 2 if set. `None`: libhdf5's default.
    pub(crate) fill_time: Option<u8>,
    /// When space is allocated: 1 early, 2 late, 3 incrementally; `None`: as the layout has it.
    pub(crate) allocation_time: Option<u8>,
    /// Where the elements are, of layouts without storage of their own.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// Elements with the fill value become undefined, if the layout has undefined elements.
    pub(crate) undefine_fill: bool,
    /// Modification time, seconds since 1970; `None`: not recorded. A message in version 1 headers,
    /// a field of the prefix in version 2.
    pub(crate) modified: Option<u32>,
}

impl Creation {
    fn elements(&self) -> Option<u64> {
        match self.extent {
            Extent::Null => Some(0),
            Extent::Scalar => Some(1),
            Extent::Simple if self.dims.contains(&0) => Some(0),
            Extent::Simple => self.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)),
        }
    }

    /// Bytes of all elements; `None` for 2^64 or more.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.datatype.element_size())
    }

    /// Maximum of each dimension.
    pub(crate) fn max(&self) -> Vec<Option<u64>> {
        self.max_dims.clone().unwrap_or_else(|| self.dims.iter().map(|&d| Some(d)).collect())
    }

    pub(crate) fn check(&self, ctx: &Context) -> Result<()> {
        let rank = self.dims.len();
        if rank > limits::RANK_MAX || (rank == 0) != (self.extent != Extent::Simple) {
            return refuse(format!("rank {rank} of a {:?} extent", self.extent));
        }
        let max = self.max();
        if max.len() != rank || self.dims.iter().zip(&max).any(|(d, m)| m.is_some_and(|m| *d > m)) {
            return refuse("a dimension exceeds its maximum");
        }
        if !self.bytes().is_some_and(|n| ctx.holds(n)) || self.dims.iter().chain(max.iter().flatten()).any(|&n| !ctx.holds(n)) {
            return refuse("the file's size fields are too narrow for the dataset");
        }
        if let Fill::Value(value) = &self.fill
            && value.len() as u64 != self.datatype.element_size()
        {
            return refuse(format!("the fill value has {} bytes, an element {}", value.len(), self.datatype.size));
        }
        if self.fill_time.is_some_and(|t| t > 2) {
            return refuse("an unknown fill time");
        }
        let fixed = self.dims.iter().zip(&max).all(|(d, m)| *m == Some(*d));
        match self.layout.chunk_dims() {
            Some(chunk) => self.check_chunk(chunk, &max)?,
            None if !fixed && !self.layout.kind.grows() => return refuse("only chunked datasets can grow"),
            None if !self.filters.is_empty() => return refuse("only chunked datasets have filters"),
            None => {}
        }
        self.layout.kind.check(self)
    }

    fn check_chunk(&self, chunk: &[u64], max: &[Option<u64>]) -> Result<()> {
        if chunk.is_empty() || chunk.len() != self.dims.len() {
            return refuse("chunks have the rank of the dataset, 1 or more");
        }
        if chunk.contains(&0) {
            return refuse("a chunk dimension is 0");
        }
        // libhdf5 refuses such datasets unless they are empty.
        if chunk.iter().zip(self.dims.iter().zip(max)).any(|(&c, (&d, m))| d > 0 && m.is_some_and(|m| m < c)) {
            return refuse("a chunk dimension exceeds the maximum dimension");
        }
        let bytes = chunk.iter().try_fold(self.datatype.element_size(), |n, &d| n.checked_mul(d));
        if bytes.is_none_or(|n| n > u64::from(u32::MAX)) {
            return refuse("a chunk of 4 GiB or more");
        }
        if self.filters.len() > limits::FILTERS_MAX { refuse("more than 32 filters") } else { Ok(()) }
    }
}
