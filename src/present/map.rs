//! Maps: keys as texts, types as facts.
//!
//! The text of a key is that of an attribute of its type: a number, a string, the JSON of a
//! compound. A key has one text; another spelling of it is refused.

use super::describe::dtype;
use super::json::write_string;
use super::parse::{map_types, parse_value};
use super::type_json;
use super::value::{json_value, value_text};
use crate::base::parts::{Budget, Limited, Parts, Target};
use crate::base::{Address, Error, Result};
use crate::connector::edit::Edit;
use crate::connector::maps::{EditMaps, MapTypes, Maps};
use crate::connector::{Connector, Datatype, Elements, ObjectId, Shape};
use std::ops::ControlFlow;

/// Longest text of a key, bytes.
const KEY_TEXT_MAX: u64 = 64 << 10;

/// Elements of a map have no parts outside of them.
struct NoParts;

impl Parts for NoParts {
    fn count(&self, _element: &[u8]) -> Result<u32> {
        Err(outside())
    }

    fn sequence(&self, _element: &[u8], _base_size: u32, _budget: &mut Budget) -> Result<Vec<u8>> {
        Err(outside())
    }

    fn reference(&self, _t: &crate::base::datatype::Reference, _element: &[u8], _budget: &mut Budget) -> Result<Option<Target>> {
        Err(outside())
    }
}

fn outside() -> Error {
    Error::corrupt("map", Address::UNDEF, "its type has parts outside of elements")
}

/// The maps of `connector`. Errors: it has none.
fn maps(connector: &dyn Connector) -> Result<&dyn Maps> {
    connector.maps().ok_or_else(|| Error::corrupt("object", Address::UNDEF, "the container has no maps"))
}

/// The text of a key.
pub fn map_key_text(t: &Datatype, key: &[u8]) -> Result<Vec<u8>> {
    if t.is_vlen_string() {
        return Ok(key.to_vec());
    }
    let elements = Elements { datatype: t, shape: &Shape::Scalar, bytes: key };
    value_text(&elements, &Limited { parts: &NoParts, limit: KEY_TEXT_MAX })
}

/// The key with the text `text`. Errors: no key has this text.
pub fn map_key(t: &Datatype, text: &[u8]) -> Result<Vec<u8>> {
    if t.is_vlen_string() {
        return Ok(text.to_vec());
    }
    let key = parse_value(t, &Shape::Scalar, text)?.form;
    let spelled = map_key_text(t, &key)?;
    if spelled == text {
        return Ok(key);
    }
    let (given, spelled) = (String::from_utf8_lossy(text), String::from_utf8_lossy(&spelled));
    Err(Error::refused(libc::EINVAL, format!("the key {given:?} of a map is spelled {spelled:?}")))
}

/// Texts of the keys of the map `id` from position `start`, each with the position after it. A key
/// whose text stands for another one is left out.
pub fn map_keys(connector: &dyn Connector, id: ObjectId, start: u64, f: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>) -> Result<()> {
    let maps = maps(connector)?;
    let types = maps.types(id)?;
    maps.keys(id, start, &mut |key, next| match map_key_text(&types.key, key) {
        Ok(text) if map_key(&types.key, &text).is_ok_and(|back| back == key) => f(&text, next),
        _ => {
            tracing::debug!("map {id}: a key has no text of its own, and is not listed");
            ControlFlow::Continue(())
        }
    })
}

/// Length of the value with the key `text`; `None`: there is none.
pub fn map_value_len(connector: &dyn Connector, id: ObjectId, text: &[u8]) -> Result<Option<u64>> {
    let maps = maps(connector)?;
    let Ok(key) = map_key(&maps.types(id)?.key, text) else { return Ok(None) };
    maps.value_len(id, &key)
}

/// The value with the key `text`; `None`: there is none.
pub fn map_value(connector: &dyn Connector, id: ObjectId, text: &[u8]) -> Result<Option<Vec<u8>>> {
    let maps = maps(connector)?;
    let Ok(key) = map_key(&maps.types(id)?.key, text) else { return Ok(None) };
    maps.value(id, &key)
}

/// Changes pairs of one map, whose keys are given by their texts.
pub struct MapEditor<'a> {
    id: ObjectId,
    types: MapTypes,
    edit: &'a dyn EditMaps,
}

impl<'a> MapEditor<'a> {
    /// Changes the map `id`.
    pub fn new(connector: &dyn Connector, edit: &'a dyn Edit, id: ObjectId) -> Result<Self> {
        let edit = edit.maps().ok_or_else(no_maps)?;
        Ok(MapEditor { id, types: maps(connector)?.types(id)?, edit })
    }

    fn key(&self, text: &[u8]) -> Result<Vec<u8>> {
        map_key(&self.types.key, text)
    }

    /// Makes a pair with a value of zeros, or the empty string.
    pub fn create(&self, text: &[u8]) -> Result<()> {
        self.edit.put(self.id, &self.key(text)?, &self.types.new_value())
    }

    /// Sets a value.
    pub fn put(&self, text: &[u8], value: &[u8]) -> Result<()> {
        self.edit.put(self.id, &self.key(text)?, value)
    }

    /// Removes a pair.
    pub fn remove(&self, text: &[u8]) -> Result<()> {
        self.edit.remove(self.id, &self.key(text)?)
    }

    /// Gives a pair another key; `replace`: also if the map has it.
    pub fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        self.edit.rekey(self.id, &self.key(from)?, &self.key(to)?, replace)
    }
}

fn no_maps() -> Error {
    Error::refused(libc::EOPNOTSUPP, "HDF5 files have no maps; containers in object stores do (h5dir create iod:FOLDER)")
}

/// Makes the empty directory `id` a map of the types that `text` describes.
pub(super) fn become_map(edit: &dyn Edit, id: ObjectId, text: &[u8], reference_bytes: u8) -> Result<()> {
    let (key, value) = map_types(text, reference_bytes)?;
    edit.maps().ok_or_else(no_maps)?.become_map(id, &MapTypes { key, value })
}

/// The fact `name` of the map `id`.
pub(super) fn fact(connector: &dyn Connector, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>> {
    let types = || maps(connector)?.types(id);
    Ok(match name {
        "key" => Some(dtype(&types()?.key)),
        "value" => Some(dtype(&types()?.value)),
        "map" => {
            let types = types()?;
            let mut out = b"{\"key\":".to_vec();
            type_json(&types.key).write(&mut out);
            out.extend_from_slice(b",\"value\":");
            type_json(&types.value).write(&mut out);
            out.push(b'}');
            Some(out)
        }
        _ => None,
    })
}

/// Appends types and pairs of the map `id` as members of hdf5-json, until `out` has more than
/// `most` bytes.
pub(super) fn members(connector: &dyn Connector, id: ObjectId, most: u64, out: &mut Vec<u8>) -> Result<()> {
    let maps = maps(connector)?;
    let types = maps.types(id)?;
    for (name, t) in [("keyType", &types.key), ("valueType", &types.value)] {
        out.extend_from_slice(format!(",\n\"{name}\":").as_bytes());
        type_json(t).write(out);
    }
    out.extend_from_slice(b",\n\"pairs\":[");
    let (mut all, mut bytes) = (Vec::new(), 0u64);
    maps.keys(id, 0, &mut |key, _| {
        all.push(key.to_vec());
        // Each pair has brackets and a comma.
        bytes = bytes.saturating_add(key.len() as u64).saturating_add(4);
        if bytes > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if bytes > most {
        return Err(Error::limit("map", Address::UNDEF, "its pairs take more room than there is"));
    }
    for (i, key) in all.iter().enumerate() {
        if out.len() as u64 > most {
            return Ok(());
        }
        let Some(value) = maps.value(id, key)? else { continue };
        out.extend_from_slice(if i == 0 { b"\n[" } else { b",\n[" });
        element_json(&types.key, key, most, out)?;
        out.push(b',');
        element_json(&types.value, &value, most, out)?;
        out.push(b']');
    }
    out.push(b']');
    Ok(())
}

fn element_json(t: &Datatype, bytes: &[u8], most: u64, out: &mut Vec<u8>) -> Result<()> {
    if t.is_vlen_string() {
        write_string(bytes, out);
    } else {
        let elements = Elements { datatype: t, shape: &Shape::Scalar, bytes };
        out.extend_from_slice(&json_value(&elements, &Limited { parts: &NoParts, limit: most })?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::parse::parse_datatype;

    #[test]
    fn a_key_has_one_text() {
        let spelled: [(&str, &[(&str, &[u8])]); 5] = [
            ("<i4", &[("-1", &[255; 4]), ("0", &[0; 4]), ("258", &[2, 1, 0, 0])]),
            ("S4", &[("", &[0; 4]), ("ab", b"ab\0\0"), ("abcd", b"abcd")]),
            ("str", &[("", b""), ("a/b", b"a/b")]),
            ("<f8", &[("0.5", &0.5f64.to_le_bytes()), ("-0.0", &(-0.0f64).to_le_bytes())]),
            ("[('a','u1'),('b','u1')]", &[("{\"a\":1,\"b\":2}", &[1, 2])]),
        ];
        for (name, keys) in spelled {
            let t = parse_datatype(name).unwrap();
            for (text, key) in keys {
                assert_eq!(map_key_text(&t, key).unwrap(), text.as_bytes(), "{name}");
                assert_eq!(map_key(&t, text.as_bytes()).unwrap(), *key, "{name}");
            }
        }
        for (name, text) in
            [("<i4", "01"), ("<i4", "+1"), ("<i4", " 1"), ("<i4", "x"), ("<i4", "2147483648"), ("S4", "abcde"), ("<f8", "0.50")]
        {
            assert!(map_key(&parse_datatype(name).unwrap(), text.as_bytes()).is_err(), "{name}: {text}");
        }
    }
}
