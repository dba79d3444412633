//! Containers as Zarr hierarchies, versions 2 and 3, and as references of fsspec.
//!
//! ```text
//! dtype       datatypes and fill values     codecs      filters as codecs
//! dimensions, phony, scales  names of dimensions     attributes  attributes as JSON
//! array       a dataset as an array         grid        chunks and the bytes of elements
//! metadata    the documents                 chunk       which chunks there are, and their bytes
//! walk        groups and arrays             consolidated, kerchunk    all of them as one text
//! ```

mod array;
mod attributes;
mod chunk;
mod codecs;
mod consolidated;
mod dimensions;
mod dtype;
mod grid;
mod kerchunk;
mod metadata;
mod phony;
mod scales;
mod walk;

pub use array::ZarrArray;
pub use chunk::ChunkBytes;
pub use consolidated::consolidated_document;
pub use dimensions::{NOT_COORDINATES, variable_name};
pub use kerchunk::{LeftOut, References};
pub use metadata::{array_document, attributes_document, group_document};
pub use phony::PhonyDimensions;
pub use scales::is_dimension_only;
pub use walk::NodeName;

/// A version of the Zarr format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZarrFormat {
    /// `.zarray`, `.zattrs`, `.zgroup`; chunks are `0.1`.
    V2,
    /// `zarr.json`; chunks are `c/0/1`.
    V3,
}

/// The attribute that has the fill value of netCDF.
const FILL_VALUE: &[u8] = b"_FillValue";
/// Most bytes of one document.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;
