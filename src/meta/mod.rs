//! Metadata access: applies the format codecs to a file driver.

mod cache;
mod dependencies;
pub(crate) mod edit;
pub(crate) mod extent;
pub(crate) mod header_edit;
pub(crate) mod level;
mod link_count;
pub(crate) mod object_header;
pub(crate) mod recovery;
pub(crate) mod store;

pub use object_header::ObjectHeader;
pub use store::{METADATA_CACHE_BYTES, Store, find_superblock};
