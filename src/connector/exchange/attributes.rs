//! Attributes and named datatypes of an object.

use super::Object;
use crate::base::Error;
use crate::base::datatype::make::Maker;
use crate::base::escape::escaped_bytes;
use crate::base::value::NewValue;
use crate::connector::{NewAttribute, ObjectKind, Result};

/// The attribute `name` of `object`, for a container whose elements refer by `sizeof_addr` bytes;
/// `None`: there is none. Errors: it cannot be read.
pub fn attribute(object: Object<'_>, name: &[u8], sizeof_addr: u8) -> Result<Option<NewAttribute>> {
    let unreadable = |e: Error| match e {
        Error::Io { .. } | Error::Request { .. } => e,
        e => Error::refused(libc::EIO, format!("its attribute {} cannot be read: {e}", escaped_bytes(name))),
    };
    let Some(value) = object.connector.attribute(object.id, name).map_err(unreadable)? else { return Ok(None) };
    let datatype = Maker { sizeof_addr }.remake(&value.datatype)?;
    let value = NewValue::from_value(value, datatype).map_err(unreadable)?;
    Ok(Some(NewAttribute { name: name.to_vec(), value }))
}

/// What refers to a named datatype: a dataset (`None`), or an attribute by its name.
pub type TypeUser = Option<Vec<u8>>;

/// Paths of the named datatypes of a dataset and of its attributes; `None`: the type has no path.
/// That of an attribute that cannot be read is left out.
pub fn named_types(object: Object<'_>) -> Result<Vec<(TypeUser, Option<Vec<u8>>)>> {
    let Object { connector, id } = object;
    let mut types = Vec::new();
    if connector.info(id)?.kind == ObjectKind::Dataset {
        let named = connector.named_type(id, None)?;
        types.extend(named.map(|named| (None, connector.path_of(named))));
    }
    for name in connector.attributes(id)?.iter() {
        let named = connector.named_type(id, Some(name)).ok().flatten();
        types.extend(named.map(|named| (Some(name.clone()), connector.path_of(named))));
    }
    Ok(types)
}
