//! Creation property lists as `H5Pencode` writes them and `H5Pdecode` reads them.
//!
//! ```text
//! list      version 0 | class u8: 5 dataset, 9 group, 11 named datatype | properties | empty name
//! property  name, NUL | value
//! var       length u8 | that many bytes, lowest first: as few as the number needs, at least 1
//!
//! layout               class u8 | chunked: rank u8 | dimensions u32
//! efl                  external files: var count | each: var length of the name with its NUL |
//!                      name, NUL | var offset | var size
//! pline                4 | var count | filters: id u32 | flags u32 | named u8 | [name 12] |
//!                      var number of values | values u32
//! fill_value           allocation time u8 | fill time u8 | size i64: -1 undefined, 0 default |
//!                      [value | var length of the type | 3, 0, datatype message]
//! alloc_time_state     4 | 1: the allocation time is that of the layout, u32
//! link info            4 | flags u32: 1 creation order tracked, 2 indexed
//! group info           heap size u32 | maximum compact u16 | minimum dense u16 |
//!                      estimated links u16 | estimated length of a name u16
//! min dense attr, max compact attr   4 | u32
//! object header flags, dset_oh_minimize   u8
//! ```
//!
//! The format has no specification: it is that of libhdf5 2.0.0 (H5Pencdec.c, H5Pdcpl.c, H5Pocpl.c,
//! H5Pgcpl.c). The properties are in the order of a list of which each one was set.

use super::Writer;
use crate::base::fill::Fill;
use crate::base::filter_spec::FilterSpec;
use crate::base::{Address, Error, Result};

/// Bytes of a filter's name.
const FILTER_NAME_BYTES: usize = 12;
/// Class of a list of a dataset.
const DATASET: u8 = 5;
/// Class of a list of a group.
const GROUP: u8 = 9;
/// Class of a list of a named datatype.
const DATATYPE: u8 = 11;
/// Width of an unsigned number, stored before it.
const UNSIGNED: u8 = 4;

/// Header flag: the creation order of attributes is tracked.
pub const ATTRIBUTES_TRACKED: u8 = 0x04;
/// Header flag: the creation order of attributes is indexed.
pub const ATTRIBUTES_INDEXED: u8 = 0x08;
/// Header flag: times are recorded.
pub const TIMES: u8 = 0x20;

/// Creation properties of any object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectProperties {
    /// Flags of the object header: creation order of attributes, times.
    pub header_flags: u8,
    /// Most attributes in the object header, and fewest outside of it.
    pub attribute_phase_change: (u16, u16),
    /// Those of the links of a group.
    pub links: LinkProperties,
}

/// Creation properties of the links of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkProperties {
    /// The creation order is tracked.
    pub is_tracked: bool,
    /// The creation order is indexed.
    pub is_indexed: bool,
    /// Most links in the object header, and fewest outside of it.
    pub phase_change: (u16, u16),
    /// Estimated number of links, and length of a name, bytes.
    pub estimates: (u16, u16),
    /// Filters of links that are outside of the object header.
    pub filters: Vec<FilterSpec>,
}

/// Those that libhdf5 gives an object by default.
impl Default for ObjectProperties {
    fn default() -> Self {
        ObjectProperties { header_flags: TIMES, attribute_phase_change: (8, 6), links: LinkProperties::default() }
    }
}

impl Default for LinkProperties {
    fn default() -> Self {
        LinkProperties { is_tracked: false, is_indexed: false, phase_change: (8, 6), estimates: (4, 8), filters: Vec::new() }
    }
}

/// Layout in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedLayout<'a> {
    /// In the object header.
    Compact,
    /// In one piece, or in external files.
    Contiguous,
    /// In chunks of these dimensions, elements.
    Chunked(&'a [u64]),
}

/// An external file of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedFile<'a> {
    /// Name as stored.
    pub name: &'a [u8],
    /// First byte.
    pub offset: u64,
    /// Length, bytes; `None`: up to the end of the dataset.
    pub size: Option<u64>,
}

/// Creation properties of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetProperties<'a> {
    /// Those of any object.
    pub object: ObjectProperties,
    /// Layout.
    pub layout: ListedLayout<'a>,
    /// External files.
    pub files: Vec<ListedFile<'a>>,
    /// Filters in the order of writing.
    pub filters: &'a [FilterSpec],
    /// Value of elements that were never written.
    pub fill: &'a Fill,
    /// Datatype message of the fill value.
    pub datatype: &'a [u8],
    /// When space is allocated: 1 early, 2 late, 3 incrementally.
    pub allocation_time: u8,
    /// That is when the layout does by default.
    pub is_usual_allocation: bool,
    /// When the fill value is written: 0 on allocation, 1 never, 2 if it was set.
    pub fill_time: u8,
}

/// A list under construction.
struct List(Writer);

impl List {
    fn new(class: u8) -> List {
        let mut w = Writer::new();
        w.u8(0).u8(class);
        List(w)
    }

    fn property(&mut self, name: &str) -> &mut Writer {
        self.0.bytes(name.as_bytes()).u8(0)
    }

    fn unsigned(&mut self, name: &str, value: u32) {
        self.property(name).u8(UNSIGNED).u32(value);
    }

    fn filters(&mut self, filters: &[FilterSpec]) {
        let w = self.property("pline").u8(UNSIGNED);
        variable(w, filters.len() as u64);
        for filter in filters {
            w.u32(filter.id.into()).u32(filter.flags.into()).u8(u8::from(!filter.name.is_empty()));
            if !filter.name.is_empty() {
                // The last byte is a NUL.
                let name = filter.name.get(..FILTER_NAME_BYTES.saturating_sub(1)).unwrap_or(&filter.name);
                w.bytes(name).zeros(FILTER_NAME_BYTES.saturating_sub(name.len()));
            }
            variable(w, filter.cd_values.len() as u64);
            for value in &filter.cd_values {
                w.u32(*value);
            }
        }
    }

    fn attributes(&mut self, object: &ObjectProperties, minimized: bool) {
        self.unsigned("min dense attr", object.attribute_phase_change.1.into());
        if minimized {
            self.property("dset_oh_minimize").u8(0);
        }
        self.unsigned("max compact attr", object.attribute_phase_change.0.into());
    }

    fn finish(mut self, object: &ObjectProperties) -> Vec<u8> {
        let flags = object.header_flags & (ATTRIBUTES_TRACKED | ATTRIBUTES_INDEXED | TIMES);
        self.property("object header flags").u8(flags);
        self.0.u8(0);
        self.0.into_bytes()
    }
}

/// A number in as few bytes as it needs, after their count.
fn variable(w: &mut Writer, n: u64) {
    let bits = u64::BITS.saturating_sub(n.leading_zeros()).max(1);
    let width = u8::try_from(bits.div_ceil(8)).unwrap_or(8);
    w.u8(width).uint(n, width.into());
}

/// The list of a named datatype.
pub fn encode_datatype(object: &ObjectProperties) -> Vec<u8> {
    let mut list = List::new(DATATYPE);
    list.filters(&[]);
    list.attributes(object, false);
    list.finish(object)
}

/// The list of a group.
pub fn encode_group(object: &ObjectProperties) -> Vec<u8> {
    let links = &object.links;
    let mut list = List::new(GROUP);
    list.unsigned("link info", u32::from(links.is_tracked) | u32::from(links.is_indexed) << 1);
    list.filters(&links.filters);
    list.attributes(object, false);
    let group = list.property("group info").u32(0);
    for n in [links.phase_change.0, links.phase_change.1, links.estimates.0, links.estimates.1] {
        group.u16(n);
    }
    list.finish(object)
}

/// The list of a dataset. Errors: a rank or a dimension of a chunk that the list cannot hold.
pub fn encode_dataset(dataset: &DatasetProperties<'_>) -> Result<Vec<u8>> {
    let too_large = || Error::limit("creation property list", Address::UNDEF, "a chunk has too many dimensions, or too large ones");
    let mut list = List::new(DATASET);
    let w = list.property("layout");
    match dataset.layout {
        ListedLayout::Compact => drop(w.u8(0)),
        ListedLayout::Contiguous => drop(w.u8(1)),
        ListedLayout::Chunked(dims) => {
            w.u8(2).u8(u8::try_from(dims.len()).map_err(|_| too_large())?);
            for n in dims {
                w.u32(u32::try_from(*n).map_err(|_| too_large())?);
            }
        }
    }
    let w = list.property("efl");
    variable(w, dataset.files.len() as u64);
    for file in &dataset.files {
        variable(w, (file.name.len() as u64).saturating_add(1));
        w.bytes(file.name).u8(0);
        variable(w, file.offset);
        variable(w, file.size.unwrap_or(u64::MAX));
    }
    list.filters(dataset.filters);
    list.attributes(&dataset.object, true);
    list.unsigned("alloc_time_state", u32::from(dataset.is_usual_allocation));
    let w = list.property("fill_value").u8(dataset.allocation_time).u8(dataset.fill_time);
    match dataset.fill {
        Fill::Undefined => drop(w.u64(u64::MAX)),
        Fill::Default => drop(w.u64(0)),
        Fill::Value(value) if value.is_empty() => drop(w.u64(0)),
        Fill::Value(value) => {
            w.u64(value.len() as u64).bytes(value);
            variable(w, (dataset.datatype.len() as u64).saturating_add(2));
            // The number of the datatype message, and the version of this encoding.
            w.u8(3).u8(0).bytes(dataset.datatype);
        }
    }
    Ok(list.finish(&dataset.object))
}

#[cfg(test)]
mod tests;
