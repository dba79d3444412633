//! Derived facts of an object: what `user.h5dir.*` tells.

use super::dataset::Dataset;
use crate::base::Result;
use crate::dataset::environment::Environment;
use crate::dataset::newlines::Newlines;
use crate::dataset::storage::Storage;
use crate::dataset::types::json::write_string;
use crate::dataset::types::{self, Elements, Shape, numpy_dtype, type_json, value_text};
use crate::filter::pipeline::Pipeline;
use crate::filter::registry::name_of;
use crate::format::message::data_layout::IndexInfo;
use crate::format::message::dataspace::Extent;
use crate::format::message::datatype::Datatype;
use crate::format::message::fill_value::Fill;
use serde_json::{Value, json};

/// Longest fact, bytes: an extended attribute.
const FACT_MAX: usize = 64 << 10;
/// Key of the newlines inside strings.
const NEWLINES_KEY: &[u8] = b",\"newlines\":";
/// Facts every object has.
pub const COMMON: [&str; 2] = ["attributes", "kind"];

/// numpy's notation of a datatype, or else its JSON description.
pub fn dtype(datatype: &Datatype) -> Vec<u8> {
    match numpy_dtype(datatype) {
        Some(d) => d.to_string().into_bytes(),
        None => {
            let mut out = Vec::new();
            type_json(datatype).write(&mut out);
            out
        }
    }
}

/// Names of the facts of `dataset`, beside the common ones.
pub fn names(dataset: &Dataset) -> Vec<&'static str> {
    let mut names = vec!["dataset", "dtype", "fillvalue", "layout", "maxshape", "shape", "storage"];
    if dataset.chunked().is_some() {
        names.extend(["chunks", "filters", "index"]);
    }
    if offset(dataset).is_some() {
        names.push("offset");
    }
    if matches!(dataset.bytes.storage, Storage::External(_)) {
        names.push("external");
    }
    names.sort_unstable();
    names
}

/// The fact `name` of `dataset`.
pub fn dataset(dataset: &Dataset, name: &str, environment: &types::Environment<'_>, env: &Environment) -> Result<Option<Vec<u8>>> {
    let text = |v: Value| Some(v.to_string().into_bytes());
    Ok(match name {
        "dtype" => Some(dtype(&dataset.datatype)),
        "shape" => text(shape(dataset)),
        "maxshape" => text(maxshape(dataset)),
        "layout" => Some(layout(dataset).into()),
        "chunks" => dataset.chunked_layout().and_then(|c| text(json!(c.chunk_dims))),
        "index" => dataset.chunked_layout().map(|c| index(&c.index).into()),
        "filters" => dataset.chunked().and_then(|_| text(filters(&dataset.pipeline))),
        "fillvalue" => Some(fill(dataset, environment)?),
        "storage" => Some(dataset.bytes.allocated(env)?.to_string().into_bytes()),
        "offset" => offset(dataset).map(|o| o.to_string().into_bytes()),
        "external" => external(dataset).and_then(text),
        _ => None,
    })
}

/// All that makes the dataset, in the form in which `user.h5dir.dataset` is set: a copy of it gets the same. Where its
/// elements lie elsewhere the copy has its own. `newlines`: of a dataset shown as lines, those inside its strings if they are known.
pub fn whole(dataset: &Dataset, environment: &types::Environment<'_>, newlines: Option<Option<Newlines>>) -> Result<Vec<u8>> {
    let mut out = b"{\"dtype\":".to_vec();
    // numpy's notation does not tell all of every type.
    type_json(&dataset.datatype).write(&mut out);
    let mut add = |name: &str, text: &[u8]| {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(text);
    };
    add("shape", shape(dataset).to_string().as_bytes());
    add("maxshape", maxshape(dataset).to_string().as_bytes());
    if let Some(c) = dataset.chunked_layout() {
        add("chunks", json!(c.chunk_dims).to_string().as_bytes());
        add("filters", filters(&dataset.pipeline).to_string().as_bytes());
    }
    let mut text = Vec::new();
    match &dataset.fill.fill {
        Fill::Default => text.extend_from_slice(b"null"),
        _ => write_string(&fill(dataset, environment)?, &mut text),
    }
    add("fillvalue", &text);
    match &dataset.bytes.storage {
        Storage::External(_) => add("layout", b"\"contiguous\""),
        Storage::Virtual(_) if dataset.space.max().contains(&None) => {}
        Storage::Virtual(_) => add("layout", b"\"contiguous\""),
        _ => add("layout", json!(layout(dataset)).to_string().as_bytes()),
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

fn shape(dataset: &Dataset) -> Value {
    dims(dataset, dataset.space.dims.iter().map(|d| json!(d)).collect())
}

fn maxshape(dataset: &Dataset) -> Value {
    dims(dataset, dataset.space.max().iter().map(|d| d.map_or(Value::Null, |d| json!(d))).collect())
}

/// A list of dimensions; a null dataspace has none.
fn dims(dataset: &Dataset, dims: Vec<Value>) -> Value {
    if dataset.space.extent == Extent::Null { Value::Null } else { Value::Array(dims) }
}

fn layout(dataset: &Dataset) -> &'static str {
    match dataset.bytes.storage {
        Storage::Compact(_) => "compact",
        Storage::Contiguous(_) => "contiguous",
        Storage::External(_) => "external",
        Storage::Chunked(_) => "chunked",
        Storage::Virtual(_) => "virtual",
    }
}

fn index(info: &IndexInfo) -> &'static str {
    match info {
        IndexInfo::BTree1 { .. } => "v1 B-tree",
        IndexInfo::Single { .. } => "single chunk",
        IndexInfo::Implicit { .. } => "implicit",
        IndexInfo::FixedArray { .. } => "fixed array",
        IndexInfo::ExtensibleArray { .. } => "extensible array",
        IndexInfo::BTree2 { .. } => "v2 B-tree",
    }
}

fn filters(pipeline: &Pipeline) -> Value {
    let one = |f: &crate::filter::pipeline::FilterSpec| {
        // The library's and registered names, else the one stored in the file, else the kind of number.
        let known = !matches!(name_of(f.id), "testing" | "private" | "unregistered");
        let name = if known || f.name.is_empty() { name_of(f.id).to_string() } else { f.display_name().into_owned() };
        json!({"id": f.id, "name": name, "flags": f.flags, "values": f.cd_values, "known": f.is_known()})
    };
    Value::Array(pipeline.filters.iter().map(one).collect())
}

fn fill(dataset: &Dataset, environment: &types::Environment<'_>) -> Result<Vec<u8>> {
    let bytes = match &dataset.fill.fill {
        Fill::Undefined => return Ok(b"undefined".to_vec()),
        Fill::Value(v) if v.len() as u64 == dataset.element_size => v.clone(),
        // The type has a size of at most 32 bits, and a default value is all zero.
        _ if dataset.element_size > 1 << 20 => return Ok(b"0".to_vec()),
        _ => vec![0; usize::try_from(dataset.element_size).unwrap_or(0)],
    };
    value_text(&Elements { datatype: &dataset.datatype, shape: &Shape::Scalar, bytes: &bytes }, environment)
}

/// Byte of the backing file where contiguous data begins.
fn offset(dataset: &Dataset) -> Option<u64> {
    match dataset.bytes.storage {
        Storage::Contiguous(a) => a.checked_add(dataset.bytes.store.base()).map(|a| a.0),
        _ => None,
    }
}

fn external(dataset: &Dataset) -> Option<Value> {
    let Storage::External(e) = &dataset.bytes.storage else { return None };
    let one = |s: &crate::dataset::external::Segment| json!({"file": String::from_utf8_lossy(&s.name), "offset": s.offset, "size": s.size});
    Some(Value::Array(e.segments().map(one).collect()))
}
