//! The shared object header message table.
//!
//! ```text
//! superblock extension: message 0x0F -> table: indexes -> list or version 2 B-tree of records
//!                                                      -> fractal heap of messages
//! ```
//!
//! `read` looks messages up; `edit` removes records when objects change. H5.format.4.0, "Shared
//! Object Header Message Table".

pub(crate) mod edit;
mod read;

pub use read::SharedMessages;
