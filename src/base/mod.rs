//! Vocabulary of every layer: addresses, errors, limits, checksums, selections. Imports nothing.

pub mod address;
pub mod budget;
pub mod buffers;
pub mod checksum;
pub mod error;
pub mod escape;
pub mod hyperslab;
pub mod limits;
pub mod points;
pub mod selection;
#[cfg(test)]
mod selection_tests;
pub mod span_tree;
pub mod view;
pub mod waiting;

pub use address::Address;
pub use error::{Error, Result};
