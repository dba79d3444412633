//! Virtual datasets: the elements of other datasets, put together by mappings of selections.
//!
//! Nothing here opens files: a [`SourceOpener`] does, confined as the file system demands. The
//! extent is that of libhdf5's default view (`H5D_VDS_LAST_AVAILABLE`, printf gap 0).
//!
//! Source: H5Dvirtual.c.

mod convert;
mod extent;
mod index;
pub mod mapping;
mod read;
#[cfg(test)]
mod tests;

pub use read::{MissingPolicy, Segment};

use crate::base::budget::Budget;
use crate::base::{Address, Error, Result, limits};
use crate::format::virtual_mapping::VirtualMappings;
use crate::meta::Store;
use index::BoxIndex;
use mapping::{Mapping, STRUCTURE, corrupt};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Steps for decoding all irregular selections of one virtual dataset.
const SELECTION_STEPS: u64 = 1 << 26;

/// Finds source datasets.
pub trait SourceOpener {
    /// Opens dataset `dataset` of file `file` (`.`: the virtual dataset's own), names as stored.
    /// `None` when the file or the dataset does not exist. Called often: keep what was opened.
    fn open(&self, file: &[u8], dataset: &[u8]) -> Result<Option<Arc<dyn Source>>>;
}

/// A source dataset.
pub trait Source: Send + Sync {
    /// Its extent; empty for a scalar.
    fn shape(&self) -> Vec<u64>;
    /// Bytes per element.
    fn element_size(&self) -> u64;
    /// Its datatype as encoded in a datatype message, to compare with the virtual dataset's.
    /// Nested types must be encoded alike: re-encode both if the files' versions may differ.
    fn datatype_bytes(&self) -> Vec<u8>;
    /// Fills `buf` with raw data from `byte_offset` of the row-major extent on.
    fn read(&self, byte_offset: u64, buf: &mut [u8]) -> Result<()>;
    /// The file whose global heap its variable-length elements lie in; `None` when there are several.
    fn heap(&self) -> Option<Arc<Store>> {
        None
    }
}

/// A virtual dataset.
#[derive(Debug)]
pub struct VirtualDataset {
    mappings: Vec<Mapping>,
    index: BoxIndex,
    stored_dims: Vec<u64>,
    max_dims: Vec<u64>,
    datatype: Vec<u8>,
    element_size: u64,
    fill: Vec<u8>,
    /// Per mapping with block numbers, the blocks that were there when the extent was computed.
    blocks: Vec<AtomicU64>,
}

/// What a virtual dataset's object header says of it.
#[derive(Debug, Clone)]
pub struct Description {
    /// Dimensions in the dataspace message (they may lag behind the sources).
    pub dims: Vec<u64>,
    /// Maximal dimensions, `u64::MAX` if unlimited; empty: as `dims`.
    pub max_dims: Vec<u64>,
    /// Encoded datatype message.
    pub datatype: Vec<u8>,
    /// Bytes per element.
    pub element_size: u64,
    /// Fill value, one element; empty: zeros.
    pub fill: Vec<u8>,
}

impl VirtualDataset {
    /// Checks the mappings against the description.
    pub fn new(mappings: &VirtualMappings, description: Description) -> Result<Self> {
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
            return Err(corrupt("the fill value is not one element"));
        }
        let budget = Budget::new(SELECTION_STEPS, STRUCTURE);
        let mappings: Vec<Mapping> = mappings.entries.iter().map(|e| Mapping::new(e, dims.len(), &budget)).collect::<Result<_>>()?;
        let index = BoxIndex::new(dims.len(), mappings.iter().map(|m| m.virtual_.bounds()));
        let blocks = mappings.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        Ok(VirtualDataset { mappings, index, stored_dims: dims, max_dims, datatype, element_size, fill, blocks })
    }

    /// The mappings, in stored order.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Bytes per element.
    pub fn element_size(&self) -> u64 {
        self.element_size
    }
}
