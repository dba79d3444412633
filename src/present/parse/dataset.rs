//! What makes a dataset, from the JSON of `user.h5dir.dataset` or the text of one fact.
//!
//! | key | JSON | text of the single fact |
//! |---|---|---|
//! | `dtype` | string for [`super::parse_datatype`], description, list of fields | without quotes |
//! | `shape` | list; `null` is a null dataspace; one number | JSON |
//! | `maxshape` | list, `null` in it is unlimited; `null` for a null dataspace | JSON |
//! | `chunks` | list; one number; `"auto"`, `true`; `"none"`, `null`, `false` | JSON, or a word |
//! | `filters` | see `filters` | JSON, or `shuffle, deflate 6` |
//! | `fillvalue` | value, or its text; `"undefined"`; `null`: the default | text |
//! | `fillbytes` | exact form of the fill value in hexadecimal, where its text does not give it | |
//! | `filltime` | `"alloc"`, `"never"`, `"ifset"`: when the fill value is written | |
//! | `alloctime` | `"early"`, `"late"`, `"incremental"`: when space is allocated | |
//! | `layout` | `"compact"`, `"contiguous"`, `"chunked"`, `"sparse"`, ... | without quotes |
//! | `external`, `virtual` | see `elsewhere` | |
//! | `profile` | `"map"`, `"filter"`, `"structured"`, of sparse datasets | without quotes |
//! | `undefine` | `"fill"`: elements with the fill value become undefined in a sparse dataset | |
//! | `convert` | `"layout"`: one that the container does not have becomes the nearest | |
//! | `newlines` | see `dataset::newlines`; `null`: more than the fact can hold | |

use super::elements::parse_value;
use super::integer::raw_hex;
use super::node::{Fields, Node};
use super::{datatype, elsewhere, filters, invalid, region, shown};
use crate::base::datatype::Datatype;
use crate::base::newlines::Newlines;
use crate::base::shape::Shape;
use crate::base::value::NewValue;
use crate::base::variable_form::VariableForm;
use crate::base::{Result, limits};
use crate::connector::edit::NewReference;
use crate::connector::{ChunksSpec, DatasetSpec, FillSpec, Part, Target};

/// Longest element whose fill value is shown when it is zero bytes.
const FILL_SHOWN_MAX: u64 = 1 << 20;

/// What a text says about a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedDataset {
    /// All but the text of a fill value.
    pub(super) spec: DatasetSpec,
    /// The fill value: an element with this text.
    pub(super) fill: Option<Vec<u8>>,
    /// Its exact form.
    fill_bytes: Option<Vec<u8>>,
}

impl ParsedDataset {
    /// What is stated, but for the text of a fill value.
    pub fn without_fill(self) -> DatasetSpec {
        self.spec
    }

    /// What is stated about a dataset whose elements have the type `now` unless another one is
    /// stated. A fill value with a reference that cannot be made is the default.
    pub fn spec(self, now: impl FnOnce() -> Result<Datatype>) -> Result<DatasetSpec> {
        let ParsedDataset { mut spec, fill, fill_bytes } = self;
        if let Some(bytes) = fill_bytes {
            let datatype = spec.dtype.clone().map_or_else(now, Ok)?;
            let size = usize::try_from(datatype.element_size()).unwrap_or(usize::MAX);
            let len = if datatype.contains_vlen() { VariableForm::of(&datatype).form_len(size, &bytes) } else { Some(size) };
            if datatype.contains_reference() || len != Some(bytes.len()) {
                return Err(invalid(format!("{FILL_BYTES} are not those of an element of the type")));
            }
            spec.fillvalue = Some(FillSpec::Value(NewValue::plain(datatype, Shape::Scalar, bytes)));
            return Ok(spec);
        }
        let Some(text) = fill else { return Ok(spec) };
        let datatype = spec.dtype.clone().map_or_else(now, Ok)?;
        spec.fillvalue = Some(fill_element(&datatype, &text)?);
        Ok(spec)
    }
}

/// The fill value with the text `text`.
fn fill_element(datatype: &Datatype, text: &[u8]) -> Result<FillSpec> {
    // What is shown for zero bytes of elements that are too long to be shown.
    if datatype.element_size() > FILL_SHOWN_MAX && text.trim_ascii() == b"0" {
        return Ok(FillSpec::Default);
    }
    match parse_value(datatype, &Shape::Scalar, text) {
        Ok(value) => Ok(FillSpec::Value(value)),
        Err(e) if !datatype.contains_reference() => Err(e),
        Err(e) => {
            tracing::warn!("the fill value of a dataset is null, as its reference cannot be made: {e}");
            Ok(FillSpec::Default)
        }
    }
}

const KEYS: [&str; 16] = [
    "dtype",
    "shape",
    "maxshape",
    "chunks",
    "filters",
    "fillvalue",
    FILL_BYTES,
    FILL_TIME,
    ALLOCATION_TIME,
    "layout",
    "profile",
    UNDEFINE,
    CONVERT,
    NEWLINES,
    EXTERNAL,
    VIRTUAL,
];
/// Fact that gives the bytes of a dataset another shape; no key.
const RESHAPE: &str = "reshape";
/// The keys that are no facts of their own.
const NEWLINES: &str = "newlines";
/// Keys of the places of elements, read when the shape is known.
const EXTERNAL: &str = "external";
const VIRTUAL: &str = "virtual";
const UNDEFINE: &str = "undefine";
const CONVERT: &str = "convert";
const FILL_BYTES: &str = "fillbytes";
/// Key of the time at which the fill value is written.
pub const FILL_TIME: &str = "filltime";
/// Key of the time at which space is allocated.
pub const ALLOCATION_TIME: &str = "alloctime";
/// Words for the times at which the fill value is written, by number.
pub const FILL_TIMES: [&str; 3] = ["alloc", "never", "ifset"];
/// Words for the times at which space is allocated, by number from 1.
pub const ALLOCATION_TIMES: [&str; 3] = ["early", "late", "incremental"];
/// Keys that are no facts of their own, and name no wish of a user.
const NO_FACTS: [&str; 6] = [NEWLINES, FILL_BYTES, FILL_TIME, ALLOCATION_TIME, EXTERNAL, VIRTUAL];

/// Reads `user.h5dir.dataset`, for a file with addresses of `sizeof_addr` bytes. Every key may be
/// left out; one that is not known is an error that names it. What contradicts itself is refused.
pub fn parse_dataset_json(text: &[u8], sizeof_addr: u8) -> Result<ParsedDataset> {
    let node = Node::parse(text)?;
    let fields = Fields::new("a dataset", &node, &KEYS)?;
    let mut parsed = ParsedDataset::default();
    for key in KEYS {
        if let Some(value) = fields.get(key) {
            parsed.set(key, value, sizeof_addr)?;
        }
    }
    parsed.spec.check()?;
    Ok(parsed)
}

/// Reads the text of the one fact `name`, in the form in which `user.h5dir.NAME` shows it. Facts
/// that cannot be set are refused with `EPERM`.
pub fn parse_fact(name: &str, text: &[u8], sizeof_addr: u8) -> Result<ParsedDataset> {
    if name == "dataset" {
        return parse_dataset_json(text, sizeof_addr);
    }
    let name = if name == RESHAPE { "shape" } else { name };
    if !KEYS.contains(&name) || [UNDEFINE, CONVERT].contains(&name) || NO_FACTS.contains(&name) {
        let facts = KEYS.iter().chain([&RESHAPE]).filter(|k| !NO_FACTS.contains(k)).copied().collect::<Vec<_>>().join(", ");
        return Err(crate::base::Error::refused(libc::EPERM, format!("{name:?} cannot be set; what can is {facts}")));
    }
    let trimmed = text.trim_ascii();
    let is_json = match name {
        "fillvalue" => false,
        "dtype" | "layout" | "profile" => trimmed.starts_with(b"\""),
        "chunks" | "filters" => trimmed.starts_with(b"[") || matches!(trimmed, b"null" | b"true" | b"false") || number(trimmed),
        _ => true,
    };
    let node = match name {
        "fillvalue" => Node::String(text.to_vec()),
        _ if is_json => Node::parse(trimmed)?,
        _ => Node::String(trimmed.to_vec()),
    };
    let mut parsed = ParsedDataset::default();
    parsed.set(name, &node, sizeof_addr)?;
    parsed.spec.check()?;
    Ok(parsed)
}

/// Reads `user.h5dir.references`. One whose JSON does not say what it names becomes
/// [`NewReference::Unknown`].
pub fn parse_references(text: &[u8]) -> Result<Vec<NewReference>> {
    let node = Node::parse(text)?;
    let one = |node: &Node| match node {
        Node::Null => Ok(NewReference::Nil),
        Node::String(path) if path.is_empty() => Ok(NewReference::Nil),
        Node::String(path) => Ok(NewReference::To(Target { file: None, object: path.clone(), part: Part::Object })),
        Node::Object(_) => Ok(region::reference(node).map_or(NewReference::Unknown, NewReference::To)),
        other => Err(invalid(format!("a reference is a path, an object or null, not {}", other.kind()))),
    };
    node.array("references")?.iter().map(one).collect()
}

fn number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

impl ParsedDataset {
    fn set(&mut self, key: &str, value: &Node, sizeof_addr: u8) -> Result<()> {
        match key {
            "dtype" => self.spec.dtype = Some(dtype(value, sizeof_addr)?),
            "shape" if *value == Node::Null => self.spec.null_space = true,
            "shape" => self.spec.shape = Some(dims(value, "shape")?),
            "maxshape" if *value == Node::Null => self.spec.null_space = true,
            "maxshape" => self.spec.maxshape = Some(maxshape(value)?),
            "chunks" => self.spec.chunks = Some(chunks(value)?),
            "filters" => self.spec.filters = Some(filters::parse(value)?),
            "fillvalue" => (self.spec.fillvalue, self.fill) = fill(value),
            FILL_BYTES => {
                let hex = value.string(FILL_BYTES)?;
                let bytes = raw_hex(hex, hex.len() / 2).ok_or_else(|| invalid(format!("{FILL_BYTES} are hexadecimal digits")))?;
                self.fill_bytes = Some(bytes);
            }
            FILL_TIME => self.spec.fill_time = Some(one_of(value, FILL_TIME, &FILL_TIMES)?),
            ALLOCATION_TIME => self.spec.allocation_time = Some(one_of(value, ALLOCATION_TIME, &ALLOCATION_TIMES)?.saturating_add(1)),
            "layout" => self.spec.layout = Some(word(value, "layout")?),
            "profile" => self.spec.profile = Some(word(value, "profile")?),
            UNDEFINE => match word(value, UNDEFINE)?.as_str() {
                "fill" => self.spec.undefine_fill = true,
                other => return Err(invalid(format!("undefine is \"fill\", not {other:?}"))),
            },
            CONVERT => match word(value, CONVERT)?.as_str() {
                "layout" => self.spec.converts_layout = true,
                other => return Err(invalid(format!("convert is \"layout\", not {other:?}"))),
            },
            EXTERNAL | VIRTUAL if self.spec.elsewhere.is_some() => return Err(invalid("elements are in external files, or in sources")),
            EXTERNAL => self.spec.elsewhere = Some(elsewhere::files(value)?),
            VIRTUAL => {
                let shape = self.spec.shape.as_deref().ok_or_else(|| invalid("a virtual dataset needs its shape"))?;
                self.spec.elsewhere = Some(elsewhere::sources(value, shape)?);
            }
            NEWLINES => self.spec.newlines = Some(newlines(value)?),
            other => return Err(invalid(format!("a dataset has no {other:?}"))),
        }
        Ok(())
    }
}

/// The datatype that `node` names or describes, a string in any notation.
pub(super) fn dtype(node: &Node, sizeof_addr: u8) -> Result<Datatype> {
    match node {
        // A string may hold any notation, descriptions too.
        Node::String(s) => {
            let text = std::str::from_utf8(s).map_err(|_| invalid(format!("{} is no datatype", shown(s))))?;
            datatype::parse_datatype_in(text, sizeof_addr)
        }
        other => datatype::from_node(other, sizeof_addr),
    }
}

fn dims(node: &Node, what: &str) -> Result<Vec<u64>> {
    let dims: Vec<u64> = match node {
        Node::Number(_) => vec![node.unsigned(what)?],
        other => other.array(what)?.iter().map(|d| d.unsigned("a dimension")).collect::<Result<_>>()?,
    };
    ranked(dims, what)
}

/// `dims` if a dataspace may have so many.
fn ranked<T>(dims: Vec<T>, what: &str) -> Result<Vec<T>> {
    if dims.len() > limits::RANK_MAX { Err(invalid(format!("{what} has more than {} dimensions", limits::RANK_MAX))) } else { Ok(dims) }
}

fn maxshape(node: &Node) -> Result<Vec<Option<u64>>> {
    let one = |d: &Node| match d {
        Node::Null => Ok(None),
        Node::String(s) if matches!(s.as_slice(), b"unlimited" | b"H5S_UNLIMITED") => Ok(None),
        other => other.unsigned("a dimension of maxshape").map(Some),
    };
    match node {
        Node::Number(_) => Ok(vec![one(node)?]),
        other => ranked(other.array("maxshape")?.iter().map(one).collect::<Result<_>>()?, "maxshape"),
    }
}

fn chunks(node: &Node) -> Result<ChunksSpec> {
    match node {
        Node::Bool(true) => return Ok(ChunksSpec::Auto),
        Node::Bool(false) | Node::Null => return Ok(ChunksSpec::None),
        Node::String(s) => match s.as_slice() {
            b"auto" => return Ok(ChunksSpec::Auto),
            b"none" | b"contiguous" => return Ok(ChunksSpec::None),
            other => return Err(invalid(format!("chunks cannot be {}; they are a list, \"auto\" or \"none\"", shown(other)))),
        },
        _ => {}
    }
    let dims = dims(node, "chunks")?;
    // A chunk dimension is stored in at most 32 bits by the layouts all programs read.
    if dims.is_empty() || dims.iter().any(|&d| d == 0 || d > u32::MAX.into()) {
        return Err(invalid("dimensions of chunks are from 1 to 4294967295, and there is at least one"));
    }
    Ok(ChunksSpec::Dims(dims))
}

/// The fill value where no type is needed to know it, else its text.
fn fill(node: &Node) -> (Option<FillSpec>, Option<Vec<u8>>) {
    match node {
        Node::Null => (Some(FillSpec::Default), None),
        Node::String(s) if s.trim_ascii() == b"undefined" => (Some(FillSpec::Undefined), None),
        Node::String(s) => (None, Some(s.clone())),
        other => (None, Some(other.json())),
    }
}

fn newlines(node: &Node) -> Result<Newlines> {
    if *node == Node::Null {
        return Err(invalid("strings with more newlines than an extended attribute describes: copy the file below .h5dir/exact"));
    }
    let numbers = node.array(NEWLINES)?.iter().map(|n| n.unsigned(NEWLINES)).collect::<Result<Vec<_>>>()?;
    Newlines::from_numbers(&numbers).ok_or_else(|| invalid("newlines are pairs: strings without one, newlines in the next string"))
}

/// The index in `words` of the one that `node` is.
fn one_of(node: &Node, key: &str, words: &[&str]) -> Result<u8> {
    let word = word(node, key)?;
    let index = words.iter().position(|w| *w == word).and_then(|i| u8::try_from(i).ok());
    index.ok_or_else(|| invalid(format!("{key} is one of {}, not {word:?}", words.join(", "))))
}

fn word(node: &Node, what: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(node.string(what)?).into_owned())
}
