//! Text back into datatypes, values and descriptions: the inverse of what the modules beside this one write.
//!
//! Text comes from whoever sets an extended attribute. What cannot be understood is refused with
//! `EINVAL`, a value its type cannot hold with `ERANGE`, what would need more of the file than is at hand
//! with `EOPNOTSUPP`.

mod attributes;
mod dataset;
#[cfg(test)]
mod dataset_tests;
mod datatype;
mod description;
mod elements;
mod filters;
mod float;
mod integer;
mod node;
mod npy;
mod region;
#[cfg(test)]
mod tests;

pub use attributes::{AttributeSpec, parse_attributes_json, parse_attributes_json_each, parse_attributes_json_with};
pub use dataset::{ChunksSpec, DatasetSpec, FillSpec, LayoutSpec, parse_dataset_json, parse_fact, parse_references};
pub use datatype::{parse_datatype, parse_datatype_in};
pub use elements::{NoStore, Store, parse_value, parse_value_into, parse_value_with};
pub use npy::NpyHeader;

use crate::base::Error;
use std::borrow::Cow;

/// Text that means nothing.
fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// A value that its type cannot hold.
fn out_of_range(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::ERANGE, reason)
}

/// Something that is not done here.
fn not_supported(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::EOPNOTSUPP, reason)
}

/// At most 60 characters of what was given, for messages.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..240).unwrap_or(text)).into_owned();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{:?}...", text.get(..at).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}
