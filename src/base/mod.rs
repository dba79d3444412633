//! Vocabulary of every layer: addresses, errors, limits, checksums. Imports nothing.

pub mod address;
pub mod checksum;
pub mod error;
pub mod limits;

pub use address::Address;
pub use error::{Error, Result};
