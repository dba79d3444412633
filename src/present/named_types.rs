//! The named datatypes of a dataset and of attributes as the fact `user.h5dir.types`.
//!
//! A JSON object: `type` is the path of the named datatype of a dataset, `attributes` has those of
//! attributes by their names. A type without a path is left out.

use super::json::write_string;
use super::parse::TypeUse;
use crate::base::{Address, Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId, ObjectKind};

/// Name of the fact.
pub const NAME: &str = "types";

/// Attributes that a listing of extended attributes looks at: it has no room for more.
const LOOKED_AT_MAX: usize = 8192;

/// True if the object `id` refers to a named datatype, or with `attributes` one of those.
pub fn has_any(connector: &dyn Connector, id: ObjectId, kind: ObjectKind, attributes: bool) -> Result<bool> {
    if kind == ObjectKind::Dataset && connector.named_type(id, None)?.is_some() {
        return Ok(true);
    }
    if !attributes {
        return Ok(false);
    }
    let names = connector.attributes(id)?;
    Ok(names.iter().take(LOOKED_AT_MAX).any(|name| matches!(connector.named_type(id, Some(name)), Ok(Some(_)))))
}

/// Text of the fact, in about `limit` bytes; `None`: no named datatype is referred to by path.
pub fn text(connector: &dyn Connector, id: ObjectId, kind: ObjectKind, limit: u64) -> Result<Option<Vec<u8>>> {
    let path = |attribute: Option<&[u8]>| Ok::<_, Error>(connector.named_type(id, attribute)?.and_then(|named| connector.path_of(named)));
    let mut out = Vec::new();
    if kind == ObjectKind::Dataset
        && let Some(path) = path(None)?
    {
        out.extend_from_slice(b"{\"type\":");
        write_string(&path, &mut out);
    }
    let mut any = false;
    for name in connector.attributes(id)?.iter() {
        // An attribute that cannot be read has no type to show.
        let Ok(Some(path)) = path(Some(name)) else { continue };
        out.extend_from_slice(match (any, out.is_empty()) {
            (true, _) => b",",
            (false, true) => b"{\"attributes\":{",
            (false, false) => b",\"attributes\":{",
        });
        any = true;
        write_string(name, &mut out);
        out.push(b':');
        write_string(&path, &mut out);
        if out.len() as u64 > limit {
            return Err(Error::limit("value", Address::UNDEF, "the paths of named datatypes take more than their reader allows"));
        }
    }
    if out.is_empty() {
        return Ok(None);
    }
    out.extend_from_slice(if any { b"}}" } else { b"}" });
    Ok(Some(out))
}

/// Makes the object `id` and its attributes refer to the named datatypes that `text` names.
pub fn set(edit: &dyn Edit, id: ObjectId, text: &[u8]) -> Result<()> {
    for TypeUse { attribute, path } in super::parse::parse_types(text)? {
        edit.use_datatype(id, attribute.as_deref(), &path)?;
    }
    Ok(())
}
