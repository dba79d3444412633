//! A virtual dataset: its mappings, checked against its extent and type.

use super::index::BoxIndex;
use super::mapping::{Mapping, STRUCTURE, corrupt};
use crate::base::budget::Budget;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::layout::source_reads::{SourcePart, SourceReads};
use crate::format::virtual_mapping::VirtualMappings;
use crate::meta::Store;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Steps for decoding all irregular selections of one virtual dataset.
const SELECTION_STEPS: u64 = 1 << 26;

/// Finds source datasets.
pub(crate) trait SourceOpener {
    /// Opens dataset `dataset` of file `file` (`.`: the virtual dataset's own), by their stored
    /// names. `None` if the file or the dataset does not exist. Called often: implementations
    /// should cache.
    fn open(&self, file: &[u8], dataset: &[u8]) -> Result<Option<Arc<dyn Source>>>;

    /// Brings parts of sources into the caches, without a lock of the caller. A read that follows
    /// finds errors.
    fn warm(&self, _parts: &[SourcePart]) {}

    /// The error of a request that needs a source which [`SourceOpener::open`] did not find.
    fn missing(&self, file: &[u8], dataset: &[u8]) -> Error {
        let name = format!("{}:{}", String::from_utf8_lossy(file), String::from_utf8_lossy(dataset));
        Error::Missing { what: "virtual dataset source", name, reason: "no such file or dataset".into() }
    }
}

/// Number of a file of the container, and the address of an object header in it.
pub(crate) type Place = (u32, Address);

/// A source dataset.
pub(crate) trait Source: Send + Sync {
    /// The extent; empty for a scalar.
    fn shape(&self) -> Vec<u64>;
    /// Bytes per element.
    fn element_size(&self) -> u64;
    /// The encoded datatype message, to compare with the virtual dataset's. Nested types must have
    /// the same message version: encode both again if the files' versions may differ.
    fn datatype_bytes(&self) -> Vec<u8>;
    /// Fills `buf` with raw data from `byte_offset` of the row-major extent.
    fn read(&self, reads: SourceReads<'_>, byte_offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Where it is: number of the file in the container, address of the object header.
    fn place(&self) -> Place;
    /// The file whose global heap contains the variable-length elements; `None` if there are
    /// several.
    fn heap(&self) -> Option<Arc<Store>> {
        None
    }
}

/// A run of elements of the virtual dataset that is contiguous in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Row-major number in the virtual dataset.
    pub(crate) virtual_element: u64,
    /// Row-major number in the source.
    pub(crate) source_element: u64,
    /// Number of elements.
    pub(crate) len: u64,
}

/// A virtual dataset.
#[derive(Debug)]
pub(crate) struct VirtualDataset {
    pub(super) mappings: Vec<Mapping>,
    pub(super) index: BoxIndex,
    pub(super) stored_dims: Vec<u64>,
    pub(super) max_dims: Vec<u64>,
    pub(super) datatype: Vec<u8>,
    pub(super) element_size: u64,
    pub(super) fill: Vec<u8>,
    /// Per printf mapping, the number of existing blocks when the extent was computed.
    pub(super) blocks: Vec<AtomicU64>,
}

/// Facts from the object header of a virtual dataset.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    /// Dimensions in the dataspace message; the sources may have grown since.
    pub(crate) dims: Vec<u64>,
    /// Maximum dimensions, `u64::MAX` if unlimited; empty: equal to `dims`.
    pub(crate) max_dims: Vec<u64>,
    /// Encoded datatype message.
    pub(crate) datatype: Vec<u8>,
    /// Bytes per element.
    pub(crate) element_size: u64,
    /// Fill value, one element; empty: zeros.
    pub(crate) fill: Vec<u8>,
}

impl VirtualDataset {
    /// Checks the mappings against the description.
    pub(crate) fn new(mappings: &VirtualMappings, description: Description) -> Result<Self> {
        let Description { dims, max_dims, datatype, element_size, mut fill } = description;
        let size = usize::try_from(element_size).ok().filter(|&n| n > 0).ok_or_else(|| corrupt("elements of no size"))?;
        if element_size > limits::ELEMENT_BYTES_MAX {
            return Err(Error::limit(STRUCTURE, Address::UNDEF, format!("elements of {element_size} bytes")));
        }
        if dims.len() > limits::RANK_MAX {
            return Err(corrupt("rank of the virtual dataset"));
        }
        if fill.is_empty() {
            fill = vec![0; size];
        }
        if fill.len() != size {
            return Err(corrupt("the fill value is not as long as an element"));
        }
        let budget = Budget::new(SELECTION_STEPS, STRUCTURE);
        let mappings: Vec<Mapping> = mappings.entries.iter().map(|e| Mapping::new(e, dims.len(), &budget)).collect::<Result<_>>()?;
        let index = BoxIndex::new(dims.len(), mappings.iter().map(|m| m.virtual_.bounds()));
        let blocks = mappings.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        Ok(VirtualDataset { mappings, index, stored_dims: dims, max_dims, datatype, element_size, fill, blocks })
    }

    /// Bytes per element.
    pub(crate) fn element_size(&self) -> u64 {
        self.element_size
    }
}
