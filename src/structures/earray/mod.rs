//! Extensible arrays: chunk indexes of datasets with one unlimited dimension.
//!
//! ```text
//! header -> index block: first elements | data block addresses | super block addresses
//!           super block: page bitmaps | data block addresses
//!           data block:  elements, or pages of elements
//! ```
//!
//! Super blocks hold ever more and ever larger data blocks; the data blocks of the first
//! ("virtual") super blocks have their addresses in the index block.
//!
//! `load` reads and caches blocks; `walk` visits them in order; `read` looks elements up; `edit`
//! creates an array, sets elements and deletes the array. H5.format.4.0, "Extensible Array".

pub(crate) mod edit;
mod load;
mod read;
mod walk;

pub use load::ExtensibleArray;
