//! Attributes as extended attributes and files: text, and raw bytes.

use super::facts::TEXT_MAX;
use super::value::value_text;
use crate::base::datatype::Class;
use crate::base::{Error, Result};
use crate::connector::{Connector, Limited, ObjectId, Value};

/// Text of a number or a string has at most so many bytes for each of its own.
const TEXT_PER_BYTE: usize = 32;

fn text_of(value: &Value) -> Result<Vec<u8>> {
    value_text(&value.elements(), &Limited { parts: &*value.parts, limit: TEXT_MAX })
}

/// Text of the attribute `name`; `None` if there is no such attribute.
pub fn attribute_text(connector: &dyn Connector, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    connector.attribute(id, name)?.as_ref().map(text_of).transpose()
}

/// True when the text of the attribute `name` has at most `most` bytes. May cost less than the
/// text.
pub fn attribute_fits(connector: &dyn Connector, id: ObjectId, name: &[u8], most: usize) -> Result<bool> {
    let Some(value) = connector.attribute(id, name)? else { return Ok(true) };
    let plain = matches!(
        value.datatype.class,
        Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Time(_) | Class::String(_) | Class::Opaque(_)
    );
    if plain && value.bytes.len().saturating_mul(TEXT_PER_BYTE) <= most {
        return Ok(true);
    }
    match text_of(&value) {
        Err(Error::Limit { .. }) => Ok(false),
        text => Ok(text?.len() <= most),
    }
}

/// Raw bytes of the attribute `name`, variable-length parts in exact form; `None` if there is no
/// such attribute.
pub fn attribute_raw(connector: &dyn Connector, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    connector.attribute(id, name)?.map(Value::exact).transpose()
}
