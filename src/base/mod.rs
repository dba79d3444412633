//! Vocabulary of every layer: addresses, errors, limits, checksums, selections. Imports nothing.

pub(crate) mod address;
pub(crate) mod budget;
pub(crate) mod buffers;
pub mod checksum;
pub mod datatype;
pub mod element_set;
#[cfg(test)]
mod element_set_tests;
pub(crate) mod error;
pub mod escape;
pub mod fill;
pub mod filter_spec;
pub mod free_ranges;
pub(crate) mod hyperslab;
pub(crate) mod io_pieces;
pub(crate) mod limits;
pub(crate) mod lock_order;
pub mod locks;
pub mod log_part;
pub mod lru_cache;
pub mod metrics;
pub mod newlines;
pub mod parts;
pub(crate) mod points;
pub mod recent_log;
pub mod remote;
pub mod request_error;
pub mod seek;
pub mod selected;
pub(crate) mod selection;
#[cfg(test)]
mod selection_tests;
pub mod shape;
pub(crate) mod span_tree;
pub mod storage_class;
pub mod url_secrets;
pub mod value;
pub(crate) mod variable_form;
pub(crate) mod view;
pub(crate) mod waiting;
pub(crate) mod zeros;

/// What fuzz targets need of this layer.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use super::budget::Budget;
}

pub use address::Address;
pub use error::{Error, Result};
