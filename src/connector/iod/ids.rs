//! Identities of objects.

use crate::base::{Address, Error};
use crate::connector::ObjectId;

/// The identity of the object `id`.
pub(super) fn object(id: u64) -> ObjectId {
    ObjectId { file: 0, address: Address(id) }
}

/// The error of an object that is not what an operation needs.
pub(super) fn no_such(id: u64, what: &'static str) -> Error {
    Error::corrupt("object", Address(id), what)
}
