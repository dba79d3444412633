//! Header messages of a new dataset, in versions chosen by the file's superblock.
//!
//! Every libhdf5 release that can read the file can read the new messages:
//!
//! ```text
//! superblock   header  dataspace  datatype  fill value  pipeline  layout
//! 0, 1         1       1          1 (2)     2           1         3     and a modification time
//! 2            2       2          3         3           2         3
//! 3            2       2          3         3           2         4 when chunked, else 3
//! ```
//!
//! No raw data is allocated: that happens at the first write. Compact data is in the layout
//! message.

use super::index;
use super::parameters::Subject;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result, limits};
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as LayoutClass};
use crate::format::message::dataspace::Dataspace;
use crate::format::message::fill_value::FillValue;
use crate::format::message::filter_pipeline::{FilterDescription, FilterPipeline};
use crate::format::message::times;
use crate::format::object_header::{SharedMessage, flag, kind};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::link_count as references;

const NAME: &str = "new dataset";
/// Longest body of a header message, bytes; a multiple of 8, as version 1 headers require.
const MESSAGE_MAX_BYTES: usize = 65_528;
/// Fill value write time: on allocation, if the user set a fill value.
const FILL_IF_SET: u8 = 2;
/// Fill value write time: on allocation.
const FILL_ON_ALLOCATION: u8 = 0;

/// Storage layout of a new dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// In the object header, at most 64 KiB.
    Compact,
    /// In one block.
    Contiguous,
    /// In chunks of these dimensions, elements.
    Chunked(Vec<u64>),
}

impl Layout {
    /// Name in `user.h5dir.layout`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Layout::Compact => "compact",
            Layout::Contiguous => "contiguous",
            Layout::Chunked(_) => "chunked",
        }
    }
}

/// Properties of a new dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation {
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
    pub(crate) layout: Layout,
    /// Filters in the order of encoding. Only the user's values are needed.
    pub(crate) filters: Vec<FilterSpec>,
    /// Fill value, one element of type `datatype`.
    pub(crate) fill: Fill,
    /// When fill values are written: 0 on allocation, 1 never, 2 if set. `None`: libhdf5's default.
    pub(crate) fill_time: Option<u8>,
    /// Modification time, seconds since 1970; `None`: not recorded. A message in version 1 headers,
    /// a field of the prefix in version 2.
    pub(crate) modified: Option<u32>,
}

/// Header messages in order: type, flags, body.
pub(crate) type Messages = Vec<(u16, u8, Vec<u8>)>;

fn refuse<T>(detail: impl Into<std::borrow::Cow<'static, str>>) -> Result<T> {
    Err(Error::unsupported(NAME, Address::UNDEF, detail))
}

/// Version of object headers in a file with this superblock.
pub(crate) fn header_version(superblock_version: u8) -> u8 {
    if superblock_version < 2 { 1 } else { 2 }
}

/// Lowest version of datatype messages in a file with this superblock.
fn datatype_version(superblock_version: u8) -> u8 {
    if superblock_version < 2 { 1 } else { 3 }
}

/// Encodes a datatype message of a dataset, an attribute or a committed datatype.
///
/// Errors: a body longer than a message may be.
pub(crate) fn datatype_message(superblock_version: u8, datatype: &Datatype) -> Result<Vec<u8>> {
    let body = datatype.for_file(datatype_version(superblock_version)).to_bytes();
    if body.len() > MESSAGE_MAX_BYTES { refuse("a datatype of more than 64 KiB") } else { Ok(body) }
}

/// Encodes a dataspace message for a file with this superblock.
pub(crate) fn dataspace_message(
    ctx: &Context,
    superblock_version: u8,
    extent: Extent,
    dims: &[u64],
    max_dims: Option<&[Option<u64>]>,
) -> Vec<u8> {
    // Version 1 has no null extent.
    let version = if superblock_version < 2 && extent != Extent::Null { 1 } else { 2 };
    Dataspace { version, extent, dims: dims.to_vec(), max_dims: max_dims.map(<[_]>::to_vec) }.encode(ctx)
}

/// Encodes the header messages of a dataset for a file with this superblock version.
///
/// Errors: contradicting properties, or ones that no message version can encode.
pub(crate) fn dataset_messages(ctx: &Context, superblock_version: u8, creation: &Creation) -> Result<Messages> {
    creation.check(ctx)?;
    let old = superblock_version < 2;
    let mut messages = Messages::new();
    let space = dataspace_message(ctx, superblock_version, creation.extent, &creation.dims, creation.max_dims.as_deref());
    messages.push((kind::DATASPACE, 0, space));
    messages.push(match creation.committed {
        Some(at) => (kind::DATATYPE, flag::CONSTANT | flag::SHARED, SharedMessage::encode_object(at, ctx)),
        None => (kind::DATATYPE, flag::CONSTANT, datatype_message(superblock_version, &creation.datatype)?),
    });
    creation.fill_messages(old, &mut messages);
    if !creation.filters.is_empty() {
        messages.push((kind::FILTER_PIPELINE, flag::CONSTANT, creation.pipeline(old)?));
    }
    messages.push((kind::DATA_LAYOUT, 0, creation.layout(ctx, superblock_version)?.encode(ctx)?));
    if let Some(seconds) = creation.modified.filter(|_| old) {
        messages.push((kind::MTIME, 0, times::encode(seconds)));
    }
    match messages.iter().find(|m| m.2.len() > MESSAGE_MAX_BYTES) {
        Some((kind, ..)) => refuse(format!("message {kind:#04x} would be longer than 64 KiB")),
        None => Ok(messages),
    }
}

/// Writes the object header of a new dataset, with reference count 1 and no link to it yet.
///
/// Increments the reference count of a committed datatype. `attribute_order`: whether the creation
/// order of attributes is tracked and indexed (version 2 headers only).
pub(crate) fn create_dataset(store: &Store, creation: &Creation, attribute_order: (bool, bool)) -> Result<Address> {
    let superblock_version = store.superblock().version;
    let messages = dataset_messages(store.ctx(), superblock_version, creation)?;
    let version = header_version(superblock_version);
    let mut edit = HeaderEdit::new(version, creation.modified.filter(|_| version > 1), attribute_order);
    for (kind, flags, body) in messages {
        edit.add(kind, flags, body);
    }
    if let Some(datatype) = creation.committed {
        references::add_reference(store, datatype)?;
    }
    edit.create(store)
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
    fn max(&self) -> Vec<Option<u64>> {
        self.max_dims.clone().unwrap_or_else(|| self.dims.iter().map(|&d| Some(d)).collect())
    }

    fn check(&self, ctx: &Context) -> Result<()> {
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
        match &self.layout {
            Layout::Chunked(chunk) => self.check_chunk(chunk, &max),
            _ if !fixed => refuse("only chunked datasets can grow"),
            _ if !self.filters.is_empty() => refuse("only chunked datasets have filters"),
            Layout::Compact if self.bytes().is_none_or(|n| n > MESSAGE_MAX_BYTES as u64 - 8) => refuse("compact data of 64 KiB"),
            _ => Ok(()),
        }
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
            return refuse("a chunk of 4 GiB");
        }
        if self.filters.len() > limits::FILTERS_MAX { refuse("more than 32 filters") } else { Ok(()) }
    }

    fn fill_messages(&self, old: bool, messages: &mut Messages) {
        let allocation_time = match self.layout {
            Layout::Compact => 1,
            Layout::Contiguous => 2,
            Layout::Chunked(_) => 3,
        };
        // Unwritten storage must not be decoded as variable-length descriptors.
        let default = if self.datatype.contains_vlen() { FILL_ON_ALLOCATION } else { FILL_IF_SET };
        let write_time = self.fill_time.unwrap_or(default);
        let message = FillValue { version: if old { 2 } else { 3 }, allocation_time, write_time, fill: self.fill.clone() };
        messages.push((kind::FILL_VALUE, flag::CONSTANT, message.encode()));
        if old && matches!(self.fill, Fill::Value(_)) {
            // libhdf5 before 1.6 reads only this message.
            messages.push((kind::FILL_VALUE_OLD, flag::CONSTANT, FillValue { version: 0, ..message }.encode()));
        }
    }

    fn pipeline(&self, old: bool) -> Result<Vec<u8>> {
        let Layout::Chunked(chunk) = &self.layout else { return refuse("only chunked datasets have filters") };
        let fill = match &self.fill {
            Fill::Undefined => None,
            Fill::Default => Some(&[][..]),
            Fill::Value(v) => Some(v.as_slice()),
        };
        let subject = Subject { datatype: &self.datatype, chunk, fill };
        let describe = |f: FilterSpec| FilterDescription { id: f.id, flags: f.flags, name: f.name, cd_values: f.cd_values, config: None };
        let filters = self.filters.iter().map(|f| subject.complete(f).map(describe)).collect::<Result<_>>()?;
        Ok(FilterPipeline { version: if old { 1 } else { 2 }, filters }.encode())
    }

    fn layout(&self, ctx: &Context, superblock_version: u8) -> Result<DataLayout> {
        let class = match &self.layout {
            Layout::Compact => {
                let element = usize::try_from(self.datatype.element_size()).unwrap_or(usize::MAX);
                let len = self.bytes().and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= MESSAGE_MAX_BYTES);
                let Some(len) = len else { return refuse("compact data of 64 KiB") };
                let mut data = vec![0; len];
                if let Fill::Value(value) = &self.fill {
                    data.chunks_exact_mut(element).for_each(|e| e.copy_from_slice(value));
                }
                LayoutClass::Compact { data, dims: Vec::new() }
            }
            Layout::Contiguous => LayoutClass::Contiguous { address: Address::UNDEF, size: self.bytes(), dims: Vec::new() },
            Layout::Chunked(chunk) => {
                // With lengths of fewer than 8 bytes libhdf5 decodes an unlimited dimension as a
                // limited one, and then rejects the indexes of version 4.
                let version = if superblock_version < 3 || ctx.sizeof_size < 8 { 3 } else { 4 };
                let filtered = !self.filters.is_empty();
                let layout = index::write::plan(version, &self.dims, &self.max(), chunk, self.datatype.element_size(), filtered)?;
                return Ok(DataLayout { version, class: LayoutClass::Chunked(layout) });
            }
        };
        Ok(DataLayout { version: 3, class })
    }
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
