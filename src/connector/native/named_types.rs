//! Named datatypes that datasets and attributes refer to.

use super::attribute;
use super::object::Object;
use crate::base::{Address, Result};
use crate::format::Reader;
use crate::format::object_header::{SharedMessage, flag, kind};

/// The named datatype of a dataset, or of the attribute `attribute` of an object.
pub(super) fn of(object: &Object, attribute: Option<&[u8]>) -> Result<Option<Address>> {
    let body = match attribute {
        Some(name) => attribute::stored(object, name)?.filter(|a| a.datatype_shared).map(|a| a.datatype),
        None => object.header.find(kind::DATATYPE).filter(|m| m.flags & flag::SHARED != 0).map(|m| m.body.clone()),
    };
    let Some(body) = body else { return Ok(None) };
    match SharedMessage::decode(&mut Reader::new(&body, "shared message", object.header.address), object.file.store.ctx())? {
        SharedMessage::Object(address) => Ok(Some(address)),
        // A message of the file's table has no name.
        SharedMessage::Heap(_) => Ok(None),
    }
}
