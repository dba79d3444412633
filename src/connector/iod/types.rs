//! Datatype messages: a datatype, or a reference to a named one.
//!
//! In place of a datatype message may stand a shared message of the file format, whose address is
//! the id of the named datatype.

use super::ids::no_such;
use super::state::State;
use crate::base::datatype::Datatype;
use crate::base::{Address, Result};
use crate::connector::ObjectKind;
use crate::dataset::create::datatype_message;
use crate::format::message::datatype;
use crate::format::object_header::{SharedMessage, kind};
use crate::format::{Context, Reader};

/// Superblock version whose message versions are used.
const SUPERBLOCK: u8 = 2;

/// Decodes a datatype message of the object `id`.
pub(super) fn decode_type(body: &[u8], id: u64) -> Result<Datatype> {
    datatype::decode(&mut Reader::new(body, "datatype message", Address(id)))
}

/// The datatype of a dataset or an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeOf {
    pub datatype: Datatype,
    /// The named datatype that it is.
    pub named: Option<u64>,
}

impl TypeOf {
    /// A type without a name.
    pub fn own(datatype: Datatype) -> TypeOf {
        TypeOf { datatype, named: None }
    }

    /// The message to store.
    pub fn message(&self) -> Result<Vec<u8>> {
        match self.named {
            Some(named) => Ok(SharedMessage::encode_object(Address(named), &Context::DEFAULT)),
            None => datatype_message(SUPERBLOCK, &self.datatype),
        }
    }
}

/// The named datatype that the message `body` of the object `id` refers to.
pub(super) fn referred(body: &[u8], id: u64) -> Result<Option<u64>> {
    // The upper half of a datatype message's first byte is its version, which is not 0.
    if body.first().is_none_or(|first| first >> 4 != 0) {
        return Ok(None);
    }
    match SharedMessage::decode(&mut Reader::new(body, "datatype message", Address(id)), &Context::DEFAULT)? {
        SharedMessage::Object(named) => Ok(Some(named.0)),
        SharedMessage::Heap(_) => Err(no_such(id, "its datatype is in a heap, which containers do not have")),
    }
}

impl State {
    /// The named datatype `named`. Errors: there is none.
    pub(super) fn named_datatype(&self, named: u64) -> Result<Datatype> {
        if self.kind(named)? != Some(ObjectKind::Datatype) {
            return Err(no_such(named, "it is not a datatype"));
        }
        let body = self.header(named, kind::DATATYPE)?.ok_or_else(|| no_such(named, "it is not a datatype"))?;
        decode_type(&body, named)
    }

    /// The datatype that the message `body` of the object `id` is or refers to.
    pub(super) fn type_of(&self, body: &[u8], id: u64) -> Result<TypeOf> {
        Ok(match referred(body, id)? {
            Some(named) => TypeOf { datatype: self.named_datatype(named)?, named: Some(named) },
            None => TypeOf::own(decode_type(body, id)?),
        })
    }
}
