//! Fixed arrays: chunk indexes of datasets with fixed maximum dimensions.
//!
//! ```text
//! header -> data block: elements                        (few elements)
//!           data block: page bitmap, then the pages     (more than a page of elements)
//! ```
//!
//! `read` opens an array, loads its blocks, looks elements up and walks them; `edit` creates an
//! array, sets elements and deletes the array. H5.format.4.0, "Fixed Array".

pub(crate) mod edit;
mod read;

pub use read::FixedArray;
