//! Text back into datatypes, values and descriptions: the inverse of what the modules beside this
//! one write.
//!
//! Text comes from users who set an extended attribute. Text without a meaning is refused with
//! `EINVAL`, a value its type cannot hold with `ERANGE`, what would need more of the file than is
//! at hand with `EOPNOTSUPP`.

mod attributes;
mod dataset;
#[cfg(test)]
mod dataset_tests;
mod datatype;
mod description;
mod elements;
mod elsewhere;
mod filters;
mod float;
mod integer;
mod lost;
mod map;
mod named_types;
mod node;
mod npy;
mod points;
mod region;
mod selection;
#[cfg(test)]
mod tests;

pub use attributes::AttributeList;
pub use dataset::{
    ALLOCATION_TIME, ALLOCATION_TIMES, FILL_TIME, FILL_TIMES, ParsedDataset, parse_dataset_json, parse_fact, parse_references,
};
#[cfg(test)]
pub use datatype::parse_datatype;
pub use datatype::parse_datatype_in;
pub use elements::{from_json, parse_value};
pub(crate) use elsewhere::selection_text;
pub use lost::{has_lost_bytes, has_lost_element};
pub use map::map_types;
pub use named_types::{TypeUse, parse_names, parse_types};
pub use node::Node;
pub use npy::NpyHeader;
pub use selection::{PointFiles, SelectionText, one_block, point_files};

use crate::base::Error;
use crate::base::datatype::Datatype;
use std::borrow::Cow;

/// The type of a new attribute that is set from text: a variable-length UTF-8 string.
/// `sizeof_addr`: bytes of an address.
pub fn variable_string(sizeof_addr: u8) -> crate::base::Result<Datatype> {
    parse_datatype_in("str", sizeof_addr)
}

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
