//! Global heap collections: variable-length elements and region references.
//!
//! ```text
//! collection: header | object header | data | object header | data | ... | free space (object 0)
//! ```
//!
//! `load` reads the directory of a collection by its object headers; `read` finds objects; `edit`
//! inserts and removes objects. H5.format.4.0, "Global Heap".

pub(crate) mod edit;
mod load;
mod read;

pub(crate) use load::extent;
pub use read::{GlobalObject, WHOLE_MAX, locate, object};
