//! Metadata access: format codecs over a file driver.

pub mod cache;
pub mod edit;
pub mod header_edit;
pub mod object_header;
pub mod recovery;
pub mod store;
mod trace;

pub use object_header::ObjectHeader;
pub use store::Store;
