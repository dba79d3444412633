//! Maps: objects that hold pairs of a key and a value, each of one type.
//!
//! Keys and values are bytes: those of one element, or those of the string where the type is a
//! variable-length string.

use super::errors::invalid;
use super::{Datatype, ObjectId, Result};
use crate::base::Error;
use std::ops::ControlFlow;

/// Longest key of fixed size, bytes.
const KEY_BYTES_MAX: u64 = 16 << 10;
/// Longest value, bytes.
const VALUE_BYTES_MAX: u64 = 64 << 20;

/// Types of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapTypes {
    /// Type of its keys.
    pub key: Datatype,
    /// Type of its values.
    pub value: Datatype,
}

impl MapTypes {
    /// Errors: types that maps do not have.
    pub fn check(&self) -> Result<()> {
        for (what, t, most) in [("key", &self.key, KEY_BYTES_MAX), ("value", &self.value, VALUE_BYTES_MAX)] {
            if t.contains_reference() || (t.contains_vlen() && !t.is_vlen_string()) {
                let reason = format!("the {what} of a map has a fixed size or is a string; it has neither references nor sequences");
                return Err(Error::refused(libc::EOPNOTSUPP, reason));
            }
            if t.element_size() > most {
                return Err(invalid(format!("the {what} of a map has at most {most} bytes, not {}", t.element_size())));
            }
        }
        Ok(())
    }

    /// Errors: `key` is no key of this map.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        check("key", &self.key, key)
    }

    /// Errors: `value` is no value of this map.
    pub fn check_value(&self, value: &[u8]) -> Result<()> {
        if value.len() as u64 > VALUE_BYTES_MAX {
            return Err(Error::refused(libc::EFBIG, format!("the value of a map has at most {VALUE_BYTES_MAX} bytes")));
        }
        check("value", &self.value, value)
    }

    /// The value of a new pair: zeros, or the empty string.
    pub fn new_value(&self) -> Vec<u8> {
        let size = if self.value.is_vlen_string() { 0 } else { self.value.element_size() };
        vec![0; usize::try_from(size.min(VALUE_BYTES_MAX)).unwrap_or(0)]
    }
}

fn check(what: &str, t: &Datatype, bytes: &[u8]) -> Result<()> {
    match t.is_vlen_string() {
        true if bytes.contains(&0) => Err(invalid(format!("a variable-length string as a {what} has no NUL"))),
        false if bytes.len() as u64 != t.element_size() => {
            Err(invalid(format!("the {what} of the map takes {} bytes, not {}", t.element_size(), bytes.len())))
        }
        _ => Ok(()),
    }
}

/// Called with a key and the position after it.
pub type KeyVisitor<'a> = dyn FnMut(&[u8], u64) -> ControlFlow<()> + 'a;

/// Read access to maps.
pub trait Maps: Send + Sync {
    /// Types of the map `id`.
    fn types(&self, id: ObjectId) -> Result<MapTypes>;

    /// The value of `key`; `None`: the map has no such key.
    fn value(&self, id: ObjectId, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Length of the value of `key`, bytes.
    fn value_len(&self, id: ObjectId, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.value(id, key)?.map(|value| value.len() as u64))
    }

    /// Keys of the map from position `start` (0 = first), each with the position after it.
    fn keys(&self, id: ObjectId, start: u64, f: &mut KeyVisitor<'_>) -> Result<()>;
}

/// Changes of maps.
pub trait EditMaps {
    /// Makes an empty group, or an empty map, a map of `types`. Errors: `ENOTEMPTY`, and `EINVAL`
    /// for an object of another kind and for the root group.
    fn become_map(&self, id: ObjectId, types: &MapTypes) -> Result<()>;

    /// Sets the value of `key`.
    fn put(&self, id: ObjectId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes the pair of `key`. Errors: `ENOENT`.
    fn remove(&self, id: ObjectId, key: &[u8]) -> Result<()>;

    /// Gives the pair of `from` the key `to`, whose pair is replaced. Errors: `ENOENT`; `EEXIST` if
    /// it must not be replaced.
    fn rekey(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()>;
}

/// The error of an object that is no map.
pub(super) fn no_map(id: ObjectId) -> Error {
    Error::corrupt("object", id.address, "it is not a map")
}

/// The error of a key that a map does not have.
pub(super) fn no_key() -> Error {
    Error::refused(libc::ENOENT, "the map has no such key")
}

/// The error of an object that cannot be made a map.
pub(super) fn not_a_directory() -> Error {
    invalid("only an empty directory can be made a map")
}

/// The error of a group or map that holds something.
pub(super) fn not_empty() -> Error {
    Error::refused(libc::ENOTEMPTY, "only an empty directory can be made a map")
}
