//! The documents of a hierarchy: `zarr.json`, `.zarray`, `.zattrs`, `.zgroup`.

use super::ZarrFormat;
use super::array::ZarrArray;
use super::attributes::attributes_json;
use super::codecs::is_compressor;
use super::dimensions::names;
use super::dtype::Kind;
use super::phony::Phony;
use crate::base::Result;
use crate::connector::{Connector, ObjectId};
use crate::present::json::{Json, write_string};

/// A list of numbers.
fn numbers(all: &[u64]) -> Json {
    Json::Array(all.iter().map(|n| Json::integer(*n)).collect())
}

/// An object with a member of each pair.
fn object(fields: Vec<(&'static str, Json)>) -> Json {
    Json::Object(fields)
}

/// Appends the members of an object, without its closing brace.
fn open_object(fields: Vec<(&'static str, Json)>) -> Vec<u8> {
    let mut out = Vec::new();
    object(fields).write(&mut out);
    out.pop();
    out
}

/// `zarr.json` of a group in version 3, `.zgroup` in version 2.
pub fn group_document(connector: &dyn Connector, id: ObjectId, format: ZarrFormat) -> Result<Vec<u8>> {
    if format == ZarrFormat::V2 {
        return Ok(b"{\"zarr_format\":2}\n".to_vec());
    }
    let mut out = open_object(vec![("zarr_format", Json::integer(3)), ("node_type", Json::string("group"))]);
    out.extend_from_slice(b",\"attributes\":");
    out.extend_from_slice(&attributes_json(connector, id, b"", format, false)?);
    out.extend_from_slice(b"}\n");
    Ok(out)
}

/// `.zattrs` of an array, or of a group, in version 2.
pub fn attributes_document(connector: &dyn Connector, id: ObjectId, array: Option<&ZarrArray>, phony: Phony<'_>) -> Result<Vec<u8>> {
    let mut first = Vec::new();
    if let Some(array) = array {
        write_string(b"_ARRAY_DIMENSIONS", &mut first);
        first.push(b':');
        names_json(connector, id, &array.shape(), phony)?.write(&mut first);
        first.push(b',');
    }
    let masked = array.is_some_and(|a| a.mask.is_some());
    let mut out = attributes_json(connector, id, &first, ZarrFormat::V2, masked)?;
    out.push(b'\n');
    Ok(out)
}

fn names_json(connector: &dyn Connector, id: ObjectId, shape: &[u64], phony: Phony<'_>) -> Result<Json> {
    Ok(Json::Array(names(connector, id, shape, phony)?.into_iter().map(Json::String).collect()))
}

/// `zarr.json` of an array in version 3, `.zarray` in version 2.
pub fn array_document(array: &ZarrArray, phony: Phony<'_>) -> Result<Vec<u8>> {
    let connector = &*array.connector;
    match array.format {
        ZarrFormat::V2 => {
            let mut out = open_object(v2(array));
            out.extend_from_slice(b"}\n");
            Ok(out)
        }
        ZarrFormat::V3 => {
            let mut out = open_object(v3(array));
            out.extend_from_slice(b",\"dimension_names\":");
            names_json(connector, array.id, &array.shape(), phony)?.write(&mut out);
            out.extend_from_slice(b",\"attributes\":");
            out.extend_from_slice(&attributes_json(connector, array.id, b"", ZarrFormat::V3, false)?);
            out.extend_from_slice(b"}\n");
            Ok(out)
        }
    }
}

/// A fill value in the order of bytes of the array.
fn fill(array: &ZarrArray, element: &[u8]) -> Json {
    let size = usize::try_from(array.element_size()).unwrap_or(0);
    let zeros;
    let element = if element.is_empty() {
        zeros = vec![0; size.min(super::DOCUMENT_BYTES_MAX as usize)];
        &zeros
    } else {
        element
    };
    // Of an array datatype the first element stands for all.
    let count = array.dtype.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
    let base = usize::try_from(array.element_size().checked_div(count.max(1)).unwrap_or(0)).unwrap_or(0);
    let first = element.get(..base).unwrap_or(element);
    array.dtype.fill_json(&array.dtype.convert(first, first.len()), array.format == ZarrFormat::V3)
}

fn v3(array: &ZarrArray) -> Vec<(&'static str, Json)> {
    let named = |name: &str, configuration| object(vec![("name", Json::string(name)), ("configuration", object(configuration))]);
    let bytes = match array.dtype.kind {
        Kind::Text => named("vlen-utf8", Vec::new()),
        _ => named("bytes", vec![("endian", Json::string(if array.dtype.big_endian { "big" } else { "little" }))]),
    };
    let codecs = std::iter::once(bytes).chain(array.codecs.iter().flatten().cloned()).collect();
    vec![
        ("zarr_format", Json::integer(3)),
        ("node_type", Json::string("array")),
        ("shape", numbers(&array.shape())),
        ("data_type", array.dtype.v3.clone()),
        ("chunk_grid", named("regular", vec![("chunk_shape", numbers(&array.chunk_shape()))])),
        ("chunk_key_encoding", named("default", vec![("separator", Json::string("/"))])),
        ("fill_value", fill(array, &array.fill)),
        ("codecs", Json::Array(codecs)),
    ]
}

fn v2(array: &ZarrArray) -> Vec<(&'static str, Json)> {
    let mut filters: Vec<Json> = array.codecs.iter().flatten().cloned().collect();
    let compressor = filters.pop_if(|codec| is_compressor(codec));
    if array.dtype.kind == Kind::Text {
        filters = vec![object(vec![("id", Json::string("vlen-utf8"))])];
    }
    let fill_value = array.fill_of_v2().filter(|_| array.dtype.kind != Kind::Text).map_or(Json::Null, |element| fill(array, element));
    vec![
        ("zarr_format", Json::integer(2)),
        ("shape", numbers(&array.shape())),
        ("chunks", numbers(&array.chunk_shape())),
        ("dtype", array.dtype.v2.clone()),
        ("compressor", compressor.unwrap_or(Json::Null)),
        ("fill_value", fill_value),
        ("order", Json::string("C")),
        ("filters", if filters.is_empty() { Json::Null } else { Json::Array(filters) }),
        ("dimension_separator", Json::string(".")),
    ]
}
