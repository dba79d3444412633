//! Objects as hdf5-json, the JSON representation of The HDF Group.
//!
//! | object | members |
//! |---|---|
//! | all | `id`, `attributes`: name, type, shape and value of each |
//! | group | `links`: class and title, and the id and collection or the path that each leads to |
//! | dataset | `type`, `shape`, `creationProperties`, `value` |
//! | named datatype | `type` |
//! | map | `keyType`, `valueType`, `pairs`: lists of key and value |
//!
//! `id` is a UUID made of the number of the file and the address of the object header: that of one
//! object is always the same. A value that cannot be read has `error`, a sentence, in its place.

use super::attributes::shape_json;
use super::json::{Json, write_string};
use super::type_json;
use super::value::json_value;
use crate::base::storage_class::StorageClass;
use crate::base::{Error, Result};
use crate::connector::filters::name_of;
use crate::connector::{Connector, DatasetInfo, Elements, Fill, FilterSpec, Limited, LinkTarget, ObjectId, ObjectKind, Shape};
use std::ops::ControlFlow;

/// Before the elements of a dataset.
const VALUE: &[u8] = b",\n\"value\":";

/// The object `id` in at most `most` bytes. Errors: `EFBIG` when it takes more.
pub(super) fn hdf5_json(connector: &dyn Connector, id: ObjectId, most: u64) -> Result<Vec<u8>> {
    match render(connector, id, most) {
        Ok(out) if out.len() as u64 <= most => Ok(out),
        Ok(_) | Err(Error::Limit { .. }) => Err(too_large(most)),
        Err(e) => Err(e),
    }
}

fn too_large(most: u64) -> Error {
    Error::refused(libc::EFBIG, format!("the object takes more than {most} bytes as JSON"))
}

/// True for the error of an object that takes more bytes than it may.
pub(super) fn is_too_large(e: &Error) -> bool {
    matches!(e, Error::Refused { errno: libc::EFBIG, .. } | Error::Limit { .. })
}

/// The text of the dataset `id` up to its value, in at most about `most` bytes.
pub(super) fn before_value(connector: &dyn Connector, id: ObjectId, dataset: &DatasetInfo, most: u64) -> Result<Vec<u8>> {
    let mut out = begin(connector, id, most)?;
    facts(dataset, most, &mut out);
    out.extend_from_slice(VALUE);
    if out.len() as u64 > most { Err(too_large(most)) } else { Ok(out) }
}

fn begin(connector: &dyn Connector, id: ObjectId, most: u64) -> Result<Vec<u8>> {
    let mut out = b"{\"id\":".to_vec();
    write_string(uuid(id).as_bytes(), &mut out);
    out.extend_from_slice(b",\n\"attributes\":");
    out.extend_from_slice(super::attributes_json(connector, id, most)?.trim_ascii_end());
    Ok(out)
}

fn render(connector: &dyn Connector, id: ObjectId, most: u64) -> Result<Vec<u8>> {
    let mut out = begin(connector, id, most)?;
    match connector.info(id)?.kind {
        ObjectKind::Group => links(connector, id, most, &mut out)?,
        ObjectKind::Dataset => dataset(connector, id, most, &mut out)?,
        ObjectKind::Datatype => member("type", &type_json(&connector.datatype(id)?), &mut out),
        ObjectKind::Map => super::map::members(connector, id, most, &mut out)?,
        ObjectKind::Unknown => {}
    }
    out.extend_from_slice(b"\n}\n");
    Ok(out)
}

/// Appends a member of an object.
fn member(name: &'static str, value: &Json, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\n\"{name}\":").as_bytes());
    value.write(out);
}

/// The UUID of an object: version 8, whose bits are the application's.
fn uuid(id: ObjectId) -> String {
    let number = id.number();
    format!("{:08x}-{:04x}-8000-8000-{:012x}", number >> 64, number >> 48 & 0xffff, number & 0xffff_ffff_ffff)
}

fn links(connector: &dyn Connector, id: ObjectId, most: u64, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(b",\n\"links\":[");
    let (mut first, mut result) = (true, Ok(()));
    connector.list(id, 0, &mut |link, _| {
        let class = |name: &str| ("class", Json::string(name));
        let mut fields = match &link.target {
            LinkTarget::Hard(id) => {
                let kind = connector.info(*id).map_or(ObjectKind::Unknown, |i| i.kind);
                let collection = match kind {
                    ObjectKind::Group => Json::string("groups"),
                    ObjectKind::Dataset => Json::string("datasets"),
                    ObjectKind::Datatype => Json::string("datatypes"),
                    ObjectKind::Map => Json::string("maps"),
                    ObjectKind::Unknown => Json::Null,
                };
                vec![class("H5L_TYPE_HARD"), ("collection", collection), ("id", Json::string(uuid(*id)))]
            }
            LinkTarget::Soft(path) => vec![class("H5L_TYPE_SOFT"), ("h5path", Json::string(path))],
            LinkTarget::External { file, object } => {
                vec![class("H5L_TYPE_EXTERNAL"), ("file", Json::string(file)), ("h5path", Json::string(object))]
            }
            LinkTarget::UserDefined(_) => vec![class("H5L_TYPE_USER_DEFINED")],
        };
        fields.push(("title", Json::string(&link.name)));
        out.extend_from_slice(if first { b"\n" } else { b",\n" });
        first = false;
        Json::Object(fields).write(out);
        if out.len() as u64 > most {
            result = Err(too_large(most));
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    out.push(b']');
    result
}

/// Appends what a dataset is, and returns the bytes that are left for the value.
fn facts(dataset: &DatasetInfo, most: u64, out: &mut Vec<u8>) -> u64 {
    member("type", &type_json(&dataset.datatype), out);
    member("shape", &shape_json(&dataset.shape), out);
    let room = most.saturating_sub(out.len() as u64);
    creation_properties(dataset, &Limited { parts: &*dataset.parts, limit: room }, out);
    room
}

fn dataset(connector: &dyn Connector, id: ObjectId, most: u64, out: &mut Vec<u8>) -> Result<()> {
    let dataset = connector.dataset(id)?;
    let room = facts(&dataset, most, out);
    match value(connector, id, &dataset, room) {
        Ok(value) => {
            out.extend_from_slice(VALUE);
            out.extend_from_slice(&value);
        }
        Err(e @ (Error::Limit { .. } | Error::Refused { .. })) => return Err(e),
        Err(e) => member("error", &Json::string(e.to_string()), out),
    }
    Ok(())
}

/// The elements. Bytes and text are in memory at the same time, each at most `most` bytes.
fn value(connector: &dyn Connector, id: ObjectId, dataset: &DatasetInfo, most: u64) -> Result<Vec<u8>> {
    let size = dataset.shape.count().and_then(|n| n.checked_mul(dataset.datatype.element_size()));
    if size.is_none_or(|size| size > most) {
        return Err(too_large(most));
    }
    let value = connector.elements(id)?;
    json_value(&value.elements(), &Limited { parts: &*value.parts, limit: most })
}

fn creation_properties(dataset: &DatasetInfo, limited: &Limited<'_>, out: &mut Vec<u8>) {
    let class = match dataset.class {
        StorageClass::Chunked => "H5D_CHUNKED",
        StorageClass::Compact => "H5D_COMPACT",
        StorageClass::Virtual => "H5D_VIRTUAL",
        StorageClass::Contiguous | StorageClass::Log => "H5D_CONTIGUOUS",
    };
    let mut layout = vec![("class", Json::string(class))];
    if let Some(dims) = &dataset.chunks {
        layout.push(("dims", Json::Array(dims.iter().copied().map(Json::integer).collect())));
    }
    let allocation = match dataset.allocation_time {
        1 => Some("H5D_ALLOC_TIME_EARLY"),
        2 => Some("H5D_ALLOC_TIME_LATE"),
        3 => Some("H5D_ALLOC_TIME_INCR"),
        _ => None,
    };
    let writing = match dataset.fill_time {
        0 => Some("H5D_FILL_TIME_ALLOC"),
        1 => Some("H5D_FILL_TIME_NEVER"),
        2 => Some("H5D_FILL_TIME_IFSET"),
        _ => None,
    };
    let mut fields = vec![("layout", Json::Object(layout))];
    fields.extend(allocation.map(|name| ("allocTime", Json::string(name))));
    fields.extend(writing.map(|name| ("fillTime", Json::string(name))));
    fields.push(("filters", Json::Array(dataset.filters.iter().map(filter).collect())));
    member("creationProperties", &Json::Object(fields), out);
    if let Fill::Value(bytes) = &dataset.fill
        && let Ok(value) = json_value(&Elements { datatype: &dataset.datatype, shape: &Shape::Scalar, bytes }, limited)
    {
        // Within the object just written.
        out.pop();
        out.extend_from_slice(b",\"fillValue\":");
        out.extend_from_slice(&value);
        out.push(b'}');
    }
}

fn filter(f: &FilterSpec) -> Json {
    let class = match f.id {
        1 => "H5Z_FILTER_DEFLATE",
        2 => "H5Z_FILTER_SHUFFLE",
        3 => "H5Z_FILTER_FLETCHER32",
        4 => "H5Z_FILTER_SZIP",
        5 => "H5Z_FILTER_NBIT",
        6 => "H5Z_FILTER_SCALEOFFSET",
        _ => "H5Z_FILTER_USER",
    };
    let mut fields = vec![("class", Json::string(class)), ("id", Json::integer(f.id)), ("name", Json::string(name_of(f.id)))];
    match (f.id, f.cd_values.first()) {
        (1, Some(level)) => fields.push(("level", Json::integer(*level))),
        (2 | 3, _) => {}
        _ => fields.push(("parameters", Json::Array(f.cd_values.iter().map(|v| Json::integer(*v)).collect()))),
    }
    Json::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::native::tests::open;

    /// What h5py's `get_create_plist().get_layout()` says of the datasets.
    #[test]
    fn layouts_have_the_classes_that_libhdf5_gives_them() {
        let files: [&[u8]; 2] =
            [include_bytes!("../../tests/fixtures/mount/layouts_new.h5"), include_bytes!("../../tests/fixtures/mount/layouts_old.h5")];
        let classes = [
            ("compact", "H5D_COMPACT"),
            ("contiguous", "H5D_CONTIGUOUS"),
            ("zero_length", "H5D_CONTIGUOUS"),
            ("null", "H5D_CONTIGUOUS"),
            ("single", "H5D_CHUNKED"),
            ("unwritten_chunks", "H5D_CHUNKED"),
        ];
        for c in files.map(open) {
            for (name, class) in classes {
                let id = c.resolve(c.root(), name.as_bytes()).unwrap().unwrap();
                let text = hdf5_json(&*c, id, 1 << 20).unwrap();
                let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(json["creationProperties"]["layout"]["class"], class, "{name}");
            }
        }
    }
}
