//! Virtual datasets: elements of other datasets, combined by mappings between selections.
//!
//! A [`SourceOpener`] opens the source files, with the confinement of the mount. The extent is that
//! of libhdf5's default view (`H5D_VDS_LAST_AVAILABLE`, printf gap 0).
//!
//! Source: H5Dvirtual.c.

mod convert;
mod create;
mod dataset;
mod extent;
mod index;
mod mapping;
mod read;
mod storage;
#[cfg(test)]
mod tests;
mod write;

pub(super) use create::Create;
pub(crate) use dataset::{Source, SourceOpener};
pub use read::MissingPolicy;
pub(super) use storage::{NAME, open};
