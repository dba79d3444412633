//! Derived facts of an object: the names and texts of `user.h5dir.*`.

use super::attributes::AttributesJson;
use super::describe::dtype;
use super::json::{Json, write_string};
use super::parse::{selection_text, variable_string};
use super::value::value_text;
use super::{defined_fact, link_order, named_types, number, parse, references, text, type_json};
use crate::base::storage_class::StorageClass;
use crate::base::{Error, Result};
use crate::connector::filters::{name_of, registered_name};
use crate::connector::log::DatasetInLog;
use crate::connector::{
    Connector, DatasetInfo, Elements, Elsewhere, ExternalSegment, Fill, FilterSpec, Form, Limited, Newlines, ObjectId, ObjectKind, Shape,
    SourceMapping,
};
use crate::connector::{exchange, usual_fill_time};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Longest fact, bytes: an extended attribute.
const FACT_MAX: usize = 64 << 10;
/// Most bytes of a text: a little more than an extended attribute may have, so that one too long is
/// known to be.
pub(super) const TEXT_MAX: u64 = (64 << 10) + 1;
/// Text of a fill value that is undefined.
const UNDEFINED: &[u8] = b"undefined";
/// Name of the fact whose bytes are the creation property list.
const CREATION_LIST: &str = "object_create_plist";
/// Name of the fact that has the identifiers of the auxiliary objects.
const SCRATCH_PAD: &str = "scratch_pad";
/// Key of the newlines inside strings.
const NEWLINES_KEY: &[u8] = b",\"newlines\":";

/// All facts but the numbered ones of references and defined elements, the long one of the order of
/// links, and those for programs that know containers or libhdf5.
pub const FACT_NAMES: [&str; 24] = [
    "attributes",
    "chunks",
    "comment",
    "dataset",
    "datatype",
    "dtype",
    "external",
    "fillvalue",
    "filters",
    "index",
    "key",
    "kind",
    "layout",
    "log",
    "map",
    "maxshape",
    "offset",
    "profile",
    "progress",
    "shape",
    "storage",
    "types",
    "value",
    "virtual",
];

/// Names of the facts that a copy of the object `id` needs, in the order in which it sets them:
/// those that say more than its bytes and the texts of its attributes. `defined`: number of facts
/// of the defined elements of a dataset.
pub fn needed_facts(connector: &dyn Connector, id: ObjectId, defined: &dyn Fn() -> usize) -> Result<Vec<Cow<'static, str>>> {
    let mut names = Vec::new();
    let kind = connector.info(id)?.kind;
    match kind {
        ObjectKind::Dataset => {
            let d = connector.dataset(id)?;
            if !d.is_bytes_file {
                names.push("dataset".into());
            }
            names.extend(references::names(&d));
            names.extend((0..defined()).map(defined_fact::name));
        }
        ObjectKind::Datatype => names.push("datatype".into()),
        ObjectKind::Map => names.push("map".into()),
        ObjectKind::Group | ObjectKind::Unknown => {}
    }
    let are_texts = are_texts(connector, id)?;
    if !are_texts {
        names.push("attributes".into());
    }
    // A text without a name is of no named type.
    if named_types::has_any(connector, id, kind, !are_texts)? {
        names.push(named_types::NAME.into());
    }
    if connector.comment(id)?.is_some() {
        names.push("comment".into());
    }
    if kind == ObjectKind::Group && link_order::is_needed(connector, id) {
        names.push(link_order::NAME.into());
    }
    Ok(names)
}

/// The scratch pad of an object: the objects with its metadata and its attributes, and two that are
/// undefined.
fn scratch_pad([metadata, attributes]: [u64; 2]) -> Vec<u8> {
    [metadata, attributes, u64::MAX, u64::MAX].map(|id| format!("{id:016x}")).join(" ").into_bytes()
}

/// True if all attributes of the object `id` are such as their texts alone make, in any order.
fn are_texts(connector: &dyn Connector, id: ObjectId) -> Result<bool> {
    let text = variable_string(connector.reference_bytes())?;
    let names = connector.attributes(id)?;
    // They are in another order than by name if the object tracks the order.
    if !names.is_sorted() {
        return Ok(false);
    }
    for name in names.iter() {
        // An attribute that cannot be read is part of no description either.
        let Ok(Some(value)) = connector.attribute(id, name) else { continue };
        if value.datatype != text || value.shape != Shape::Scalar || value.committed {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Text of the fact `name` of the object `id`, if it is not much longer than an extended attribute;
/// `None` if it has no such fact.
pub fn fact(connector: &dyn Connector, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>> {
    fact_within(connector, id, name, TEXT_MAX)
}

/// Text of the fact `name` of the object `id`; `None` if it has no such fact. Errors:
/// [`Error::Limit`] for a text that is made of parts and is longer than `limit` bytes.
pub fn fact_within(connector: &dyn Connector, id: ObjectId, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let kind = connector.info(id)?.kind;
    let text = match (name, kind) {
        ("attributes", _) => return attributes(connector, id, limit).map(Some),
        ("comment", _) => return connector.comment(id),
        (CREATION_LIST, _) => return exchange::creation_list(exchange::Object { connector, id }),
        (SCRATCH_PAD, _) => return Ok(connector.auxiliary_objects(id)?.map(scratch_pad)),
        (named_types::NAME, _) => return named_types::text(connector, id, kind, limit),
        (link_order::NAME, ObjectKind::Group) => return link_order::text(connector, id, limit),
        ("kind", ObjectKind::Group) => "group",
        ("kind", ObjectKind::Dataset) => "dataset",
        ("kind", ObjectKind::Datatype) => "datatype",
        ("kind", ObjectKind::Map) => "map",
        ("kind", ObjectKind::Unknown) => "unknown",
        ("datatype", ObjectKind::Datatype) => {
            let mut out = Vec::new();
            type_json(&connector.datatype(id)?).write(&mut out);
            return Ok(Some(out));
        }
        ("dtype", ObjectKind::Datatype) => return Ok(Some(dtype(&connector.datatype(id)?))),
        (_, ObjectKind::Dataset) => return dataset_fact(connector, id, name, limit),
        (_, ObjectKind::Map) => return super::map::fact(connector, id, name),
        _ => return Ok(None),
    };
    Ok(Some(text.into()))
}

/// True if the text of the fact `name` of the object `id` has at most `most` bytes; `None`: it has
/// no such fact.
pub fn fact_fits(connector: &dyn Connector, id: ObjectId, name: &str, most: usize) -> Result<Option<bool>> {
    if name == "dataset" && connector.info(id)?.kind == ObjectKind::Dataset {
        // Newlines that would make it too long are left out: the strings need not be read.
        let d = connector.dataset(id)?;
        return Ok(Some(whole(&d, d.lines.then_some(None))?.len() <= most));
    }
    if defined_fact::is_defined_fact(name) {
        return Ok(Some(true));
    }
    match fact_within(connector, id, name, most as u64) {
        Ok(text) => Ok(text.map(|text| text.len() <= most)),
        Err(Error::Limit { .. }) => Ok(Some(false)),
        Err(e) => Err(e),
    }
}

/// Description of the named datatype `id`, as its file shows it.
pub fn datatype_text(connector: &dyn Connector, id: ObjectId) -> Result<Vec<u8>> {
    Ok(text(&connector.datatype(id)?).into_bytes())
}

/// All attributes of the object `id` as JSON, lossless, in at most `limit` bytes.
pub fn attributes(connector: &dyn Connector, id: ObjectId, limit: u64) -> Result<Vec<u8>> {
    // One value at a time is in memory, and none behind the one that is too much.
    let mut json = AttributesJson::new(limit);
    for name in connector.attributes(id)?.iter() {
        match connector.attribute(id, name) {
            Ok(Some(value)) => json.add(name, &value.elements(), &*value.parts)?,
            Ok(None) => {}
            Err(error) => json.add_unreadable(name, &error)?,
        }
    }
    Ok(json.finish())
}

fn dataset_fact(connector: &dyn Connector, id: ObjectId, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let d = connector.dataset(id)?;
    if let Some(number) = references::number(name) {
        return references::text(connector, id, &d, number, limit);
    }
    if defined_fact::is_defined_fact(name) {
        return defined_fact::text(connector, id, name);
    }
    let text = |v: Value| Some(v.to_string().into_bytes());
    Ok(match name {
        "dataset" => {
            let newlines = if d.lines { Some(connector.newlines(id)?) } else { None };
            Some(whole(&d, newlines)?)
        }
        "dtype" => Some(dtype(&d.datatype)),
        "shape" => text(shape(&d)),
        "maxshape" => text(maxshape(&d)),
        "layout" => Some(d.layout.into()),
        "profile" => d.profile.map(Into::into),
        "chunks" => d.chunks.as_ref().and_then(|dims| text(json!(dims))),
        "index" => d.index.map(Into::into),
        "filters" => d.chunks.as_ref().and_then(|_| text(filters(&d.filters))),
        "fillvalue" => Some(fill(&d)?),
        "log" => log(connector, id)?,
        "progress" => connector.layout_progress(id).map(|(done, total)| format!("{done}/{total}").into_bytes()),
        "storage" => Some(connector.content(id, Form::Main)?.allocated_exactly()?.to_string().into_bytes()),
        "offset" => d.offset.map(|o| o.to_string().into_bytes()),
        "external" => d.external.as_deref().map(external),
        "virtual" if d.class == StorageClass::Virtual => connector.elsewhere(id)?.as_ref().and_then(mappings),
        _ => None,
    })
}

/// What a dataset has in the log, and the use of the log's bytes.
fn log(connector: &dyn Connector, id: ObjectId) -> Result<Option<Vec<u8>>> {
    let Some(log) = connector.log() else { return Ok(None) };
    let Some(DatasetInLog { written, extents }) = log.dataset(id)? else { return Ok(None) };
    let all = log.usage()?;
    let text = json!({
        "written_bytes": written,
        "extents": extents,
        "log": {
            "log_datasets": all.logs,
            "bytes": all.total,
            "written_bytes": all.written,
            "dead_bytes": all.dead,
            "index_entries": all.indexed,
            "unindexed_records": all.unindexed,
            "staged_bytes": all.staged,
        },
    });
    Ok(Some(text.to_string().into_bytes()))
}

/// The fact `dataset` of a dataset like `d`, without what only the elements of `d` have.
pub fn description(d: &DatasetInfo) -> Result<Vec<u8>> {
    whole(d, None)
}

/// All that makes the dataset, in the form in which `user.h5dir.dataset` is set: a copy of it gets
/// the same. Where its elements lie elsewhere the copy has its own. `newlines`: of a dataset shown
/// as lines, those inside its strings if they are known.
fn whole(d: &DatasetInfo, newlines: Option<Option<Newlines>>) -> Result<Vec<u8>> {
    let mut out = b"{\"dtype\":".to_vec();
    // numpy's notation does not tell all of every type.
    type_json(&d.datatype).write(&mut out);
    let mut add = |name: &str, text: &[u8]| {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(text);
    };
    add("shape", shape(d).to_string().as_bytes());
    add("maxshape", maxshape(d).to_string().as_bytes());
    if let Some(dims) = &d.chunks {
        add("chunks", json!(dims).to_string().as_bytes());
        add("filters", filters(&d.filters).to_string().as_bytes());
    }
    add_fill(d, &mut add)?;
    add_times(d, &mut add);
    if let Some(layout) = d.copy_layout {
        add("layout", json!(layout).to_string().as_bytes());
        if let Some(profile) = d.profile {
            add("profile", json!(profile).to_string().as_bytes());
        }
    }
    match newlines {
        None => {}
        Some(Some(newlines)) if newlines.is_empty() => {}
        Some(newlines) => {
            let list = newlines.map(|n| json!(n.numbers().collect::<Vec<_>>()).to_string());
            // The list as a whole, or none of it.
            let room = FACT_MAX.saturating_sub(out.len()).saturating_sub(NEWLINES_KEY.len()).saturating_sub(1);
            let list = list.filter(|list| list.len() <= room);
            out.extend_from_slice(NEWLINES_KEY);
            out.extend_from_slice(list.as_deref().unwrap_or("null").as_bytes());
        }
    }
    out.push(b'}');
    Ok(out)
}

/// Adds the fill value: its text, and its exact form if the text does not give it.
fn add_fill(d: &DatasetInfo, add: &mut dyn FnMut(&str, &[u8])) -> Result<()> {
    let (text, size) = (fill(d)?, d.datatype.element_size());
    let element = match &d.fill {
        Fill::Value(bytes) if bytes.len() as u64 == size && !d.datatype.contains_reference() => Some(bytes),
        _ => None,
    };
    let element = element.map(|bytes| Elements { datatype: &d.datatype, shape: &Shape::Scalar, bytes });
    let exact = element.as_ref().map(|element| element.exact(&*d.parts)).transpose()?;
    // An empty sequence is what unwritten elements are by default.
    let is_empty = d.datatype.contains_vlen() && exact.as_ref().is_some_and(|exact| exact.iter().all(|b| *b == 0));
    if d.fill == Fill::Default || is_empty {
        add("fillvalue", b"null");
        return Ok(());
    }
    let mut quoted = Vec::new();
    write_string(&text, &mut quoted);
    add("fillvalue", &quoted);
    let lost = |exact: &[u8]| text.trim_ascii() == UNDEFINED || parse::has_lost_element(&d.datatype, &text, exact);
    if let Some(exact) = exact.filter(|exact| lost(exact)) {
        add("fillbytes", format!("\"{}\"", number::hex(&exact)).as_bytes());
    }
    Ok(())
}

/// Adds the times of allocation and of writing the fill value that new datasets do not have.
fn add_times(d: &DatasetInfo, add: &mut dyn FnMut(&str, &[u8])) {
    let mut time = |key: &str, words: &[&str], index: u8| {
        if let Some(word) = words.get(usize::from(index)) {
            add(key, format!("\"{word}\"").as_bytes());
        }
    };
    if d.fill_time != usual_fill_time(&d.datatype) {
        time(parse::FILL_TIME, &parse::FILL_TIMES, d.fill_time);
    }
    if d.usual_allocation_time.is_some_and(|usual| usual != d.allocation_time) {
        time(parse::ALLOCATION_TIME, &parse::ALLOCATION_TIMES, d.allocation_time.wrapping_sub(1));
    }
}

fn shape(d: &DatasetInfo) -> Value {
    dims(d, d.shape.dims().unwrap_or_default().iter().map(|n| json!(n)).collect())
}

fn maxshape(d: &DatasetInfo) -> Value {
    dims(d, d.shape.max().iter().map(|n| n.map_or(Value::Null, |n| json!(n))).collect())
}

/// A list of dimensions; a null dataspace has none.
fn dims(d: &DatasetInfo, dims: Vec<Value>) -> Value {
    if d.shape == Shape::Null { Value::Null } else { Value::Array(dims) }
}

fn filters(filters: &[FilterSpec]) -> Value {
    let one = |f: &FilterSpec| {
        // The library's and registered names, else the one stored in the file, else the kind of
        // number.
        let known = registered_name(f.id).is_some();
        let name = if known || f.name.is_empty() { name_of(f.id).to_string() } else { f.display_name().into_owned() };
        json!({"id": f.id, "name": name, "flags": f.flags, "values": f.cd_values, "known": f.is_known()})
    };
    Value::Array(filters.iter().map(one).collect())
}

fn fill(d: &DatasetInfo) -> Result<Vec<u8>> {
    let size = d.datatype.element_size();
    let bytes = match &d.fill {
        Fill::Undefined => return Ok(UNDEFINED.to_vec()),
        Fill::Value(v) if v.len() as u64 == size => v.clone(),
        // The type has a size of at most 32 bits, and a default value is all zero.
        _ if size > 1 << 20 => return Ok(b"0".to_vec()),
        _ => vec![0; usize::try_from(size).unwrap_or(0)],
    };
    let elements = Elements { datatype: &d.datatype, shape: &Shape::Scalar, bytes: &bytes };
    value_text(&elements, &Limited { parts: &*d.parts, limit: TEXT_MAX })
}

/// The sources of a virtual dataset, in the form in which `user.h5dir.dataset` takes them. A
/// selection that is no regular hyperslab is `null`. `None`: more than a fact can have.
fn mappings(elsewhere: &Elsewhere) -> Option<Vec<u8>> {
    let Elsewhere::Datasets(all) = elsewhere else { return None };
    let one = |m: &SourceMapping| {
        let root: &[u8] = if m.dataset.starts_with(b"/") { b"" } else { b"/" };
        let mut fields = vec![("source", Json::string([&m.file[..], b":", root, &m.dataset].concat()))];
        let (source, at) = m.regular();
        for (key, selection, dims) in [("select", &m.source, source), ("at", &m.at, at)] {
            match dims {
                Some(dims) => fields.push((key, Json::string(selection_text(dims).as_bytes()))),
                None if selection.is_all() => {}
                None => fields.push((key, Json::Null)),
            }
        }
        Json::Object(fields)
    };
    if all.len() > FACT_MAX / 16 {
        return None;
    }
    let mut out = Vec::new();
    Json::Array(all.iter().map(one).collect()).write(&mut out);
    (out.len() <= FACT_MAX).then_some(out)
}

fn external(segments: &[ExternalSegment]) -> Vec<u8> {
    let one = |s: &ExternalSegment| {
        Json::Object(vec![
            ("file", Json::string(&s.name)),
            ("offset", Json::integer(s.offset)),
            ("size", s.size.map_or(Json::Null, Json::integer)),
        ])
    };
    let mut out = Vec::new();
    Json::Array(segments.iter().map(one).collect()).write(&mut out);
    out
}
