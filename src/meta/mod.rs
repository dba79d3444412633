//! Metadata access: format codecs over a file driver.

pub mod cache;
pub mod store;

pub use store::Store;
