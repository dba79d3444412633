//! What makes a dataset, from the JSON of `user.h5dir.dataset` or the text of one fact.
//!
//! | key | JSON | text of the single fact |
//! |---|---|---|
//! | `dtype` | a string as [`super::parse_datatype`] reads, a description, a list of fields | the same without quotes |
//! | `shape` | list; `null` is a null dataspace; one number | JSON |
//! | `maxshape` | list, `null` in it is unlimited; `null` for a null dataspace | JSON |
//! | `chunks` | list; one number; `"auto"`, `true`; `"none"`, `null`, `false` | JSON, words without quotes |
//! | `filters` | see `filters` | JSON, or `shuffle, deflate 6` |
//! | `fillvalue` | a string is the value's text, else the value; `"undefined"`; `null` is the default | text |
//! | `layout` | `"compact"`, `"contiguous"`, `"chunked"` | the same without quotes |
//! | `newlines` | of strings that hold newlines: see `dataset::newlines`; `null`: more than the fact has room for | |

use super::elements::{Store, parse_value_into};
use super::node::{Fields, Node};
use super::{datatype, filters, invalid, not_supported, shown};
use crate::base::{Result, limits};
use crate::dataset::newlines::Newlines;
use crate::dataset::types::Shape;
use crate::dataset::types::json::write_string;
use crate::filter::FilterSpec;
use crate::format::message::datatype::Datatype;

/// Longest element whose fill value is shown when it is zero bytes.
const FILL_SHOWN_MAX: u64 = 1 << 20;

/// How a dataset is cut into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunksSpec {
    /// Into chunks of a size that is chosen for it.
    Auto,
    /// Not at all.
    None,
    /// Into chunks of these dimensions, none of them 0.
    Dims(Vec<u64>),
}

/// What elements hold that were never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillSpec {
    /// Zero bytes, as without a word about it.
    Default,
    /// Anything.
    Undefined,
    /// The element with this text; see [`FillSpec::element`].
    Text(Vec<u8>),
}

impl FillSpec {
    /// The fill value as an element of `datatype`; `None` without one (undefined, or the default of zero bytes).
    pub fn element(&self, datatype: &Datatype, store: &mut dyn Store) -> Result<Option<Vec<u8>>> {
        match self {
            FillSpec::Default | FillSpec::Undefined => Ok(None),
            // What is shown for zero bytes of elements that are too long to be shown.
            FillSpec::Text(text) if datatype.element_size() > FILL_SHOWN_MAX && text.trim_ascii() == b"0" => Ok(None),
            FillSpec::Text(text) => parse_value_into(datatype, &Shape::Scalar, text, store).map(Some),
        }
    }
}

/// Where the elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutSpec {
    /// In the object header.
    Compact,
    /// In one piece.
    Contiguous,
    /// In chunks.
    Chunked,
}

/// What was said about a dataset; `None` where nothing was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetSpec {
    /// Type of the elements.
    pub dtype: Option<Datatype>,
    /// Dimensions, slowest first; none is a scalar.
    pub shape: Option<Vec<u64>>,
    /// A null dataspace is wanted; then there is neither shape nor maxshape.
    pub null_space: bool,
    /// Largest dimensions; `None` inside is unlimited. As many as the shape has, none smaller, if both are given.
    pub maxshape: Option<Vec<Option<u64>>>,
    /// Chunks.
    pub chunks: Option<ChunksSpec>,
    /// Filters in the order of writing. Values they work out from the datatype are not filled in.
    pub filters: Option<Vec<FilterSpec>>,
    /// Fill value.
    pub fillvalue: Option<FillSpec>,
    /// Layout.
    pub layout: Option<LayoutSpec>,
    /// Newlines inside the strings that the file's lines are.
    pub newlines: Option<Newlines>,
}

const KEYS: [&str; 8] = ["dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout", NEWLINES];
/// The key that is no fact of its own.
const NEWLINES: &str = "newlines";

/// Reads `user.h5dir.dataset`, for a file with addresses of `sizeof_addr` bytes. Every key may be left out; one that
/// is not known is an error that names it. What contradicts itself is refused.
pub fn parse_dataset_json(text: &[u8], sizeof_addr: u8) -> Result<DatasetSpec> {
    let node = Node::parse(text)?;
    let fields = Fields::new("a dataset", &node, &KEYS)?;
    let mut spec = DatasetSpec::default();
    for key in KEYS {
        if let Some(value) = fields.get(key) {
            spec.set(key, value, sizeof_addr)?;
        }
    }
    spec.check()?;
    Ok(spec)
}

/// Reads the text of the one fact `name`, in the form in which `user.h5dir.NAME` shows it. Facts that cannot be
/// set are refused with `EPERM`.
pub fn parse_fact(name: &str, text: &[u8], sizeof_addr: u8) -> Result<DatasetSpec> {
    if name == "dataset" {
        return parse_dataset_json(text, sizeof_addr);
    }
    if !KEYS.contains(&name) || name == NEWLINES {
        let facts = KEYS.iter().filter(|k| **k != NEWLINES).copied().collect::<Vec<_>>().join(", ");
        return Err(crate::base::Error::refused(libc::EPERM, format!("{name:?} cannot be set; what can is {facts}")));
    }
    let trimmed = text.trim_ascii();
    let is_json = match name {
        "fillvalue" => false,
        "dtype" | "layout" => trimmed.starts_with(b"\""),
        "chunks" | "filters" => trimmed.starts_with(b"[") || matches!(trimmed, b"null" | b"true" | b"false") || number(trimmed),
        _ => true,
    };
    let node = match name {
        "fillvalue" => Node::String(text.to_vec()),
        _ if is_json => Node::parse(trimmed)?,
        _ => Node::String(trimmed.to_vec()),
    };
    let mut spec = DatasetSpec::default();
    spec.set(name, &node, sizeof_addr)?;
    spec.check()?;
    Ok(spec)
}

/// Reads `user.h5dir.references`: the text of each reference, `None` where it is null.
pub fn parse_references(text: &[u8]) -> Result<Vec<Option<Vec<u8>>>> {
    let node = Node::parse(text)?;
    let one = |node: &Node| match node {
        Node::Null => Ok(None),
        Node::String(path) => Ok(Some(path.clone())),
        Node::Object(_) => {
            let mut out = Vec::new();
            write(node, &mut out);
            Ok(Some(out))
        }
        other => Err(invalid(format!("a reference is a path, an object or null, not {}", other.kind()))),
    };
    node.array("references")?.iter().map(one).collect()
}

fn number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

impl DatasetSpec {
    fn set(&mut self, key: &str, value: &Node, sizeof_addr: u8) -> Result<()> {
        match key {
            "dtype" => self.dtype = Some(dtype(value, sizeof_addr)?),
            "shape" if *value == Node::Null => self.null_space = true,
            "shape" => self.shape = Some(dims(value, "shape")?),
            "maxshape" if *value == Node::Null => self.null_space = true,
            "maxshape" => self.maxshape = Some(maxshape(value)?),
            "chunks" => self.chunks = Some(chunks(value)?),
            "filters" => self.filters = Some(filters::parse(value)?),
            "fillvalue" => self.fillvalue = Some(fill(value)),
            "layout" => self.layout = Some(layout(value)?),
            NEWLINES => self.newlines = Some(newlines(value)?),
            other => return Err(invalid(format!("a dataset has no {other:?}"))),
        }
        Ok(())
    }

    /// What is said must not contradict itself.
    fn check(&self) -> Result<()> {
        if self.null_space && (self.shape.is_some() || self.maxshape.is_some()) {
            return Err(invalid("a dataset without elements (null) has neither shape nor maxshape"));
        }
        if let (Some(shape), Some(max)) = (&self.shape, &self.maxshape) {
            if shape.len() != max.len() {
                return Err(invalid(format!("shape has {} dimensions, maxshape {}", shape.len(), max.len())));
            }
            if shape.iter().zip(max).any(|(d, max)| max.is_some_and(|max| max < *d)) {
                return Err(invalid("shape is larger than maxshape"));
            }
        }
        let rank = self.shape.as_ref().map(Vec::len).or(self.maxshape.as_ref().map(Vec::len));
        if let (Some(ChunksSpec::Dims(chunks)), Some(rank)) = (&self.chunks, rank)
            && chunks.len() != rank
        {
            return Err(invalid(format!("chunks have {} dimensions, the dataset {rank}", chunks.len())));
        }
        let in_chunks = matches!(self.chunks, Some(ChunksSpec::Dims(_) | ChunksSpec::Auto));
        let whole = self.chunks == Some(ChunksSpec::None) || matches!(self.layout, Some(LayoutSpec::Compact | LayoutSpec::Contiguous));
        let filtered = self.filters.as_ref().is_some_and(|f| !f.is_empty());
        let scalar = self.null_space || rank == Some(0);
        if whole && (in_chunks || filtered || self.layout == Some(LayoutSpec::Chunked)) {
            return Err(invalid("only a dataset in chunks has chunks and filters"));
        }
        if scalar && (in_chunks || filtered || self.layout == Some(LayoutSpec::Chunked)) {
            return Err(invalid("a dataset without dimensions cannot be in chunks"));
        }
        Ok(())
    }
}

fn dtype(node: &Node, sizeof_addr: u8) -> Result<Datatype> {
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

fn fill(node: &Node) -> FillSpec {
    match node {
        Node::Null => FillSpec::Default,
        Node::String(s) if s.trim_ascii() == b"undefined" => FillSpec::Undefined,
        Node::String(s) => FillSpec::Text(s.clone()),
        other => {
            let mut out = Vec::new();
            write(other, &mut out);
            FillSpec::Text(out)
        }
    }
}

/// The node as JSON again.
fn write(node: &Node, out: &mut Vec<u8>) {
    let separate = |i: usize, out: &mut Vec<u8>| {
        if i > 0 {
            out.push(b',');
        }
    };
    match node {
        Node::Null => out.extend_from_slice(b"null"),
        Node::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Node::Number(n) => out.extend_from_slice(n.as_bytes()),
        Node::String(s) => write_string(s, out),
        Node::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                separate(i, out);
                write(item, out);
            }
            out.push(b']');
        }
        Node::Object(fields) => {
            out.push(b'{');
            for (i, (name, value)) in fields.iter().enumerate() {
                separate(i, out);
                write_string(name, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

fn newlines(node: &Node) -> Result<Newlines> {
    if *node == Node::Null {
        return Err(invalid("strings with more newlines than an extended attribute describes: copy the file below .h5dir/exact"));
    }
    let numbers = node.array(NEWLINES)?.iter().map(|n| n.unsigned(NEWLINES)).collect::<Result<Vec<_>>>()?;
    Newlines::from_numbers(&numbers).ok_or_else(|| invalid("newlines are pairs: strings without one, newlines in the next string"))
}

fn layout(node: &Node) -> Result<LayoutSpec> {
    match node.string("layout")? {
        b"compact" => Ok(LayoutSpec::Compact),
        b"contiguous" => Ok(LayoutSpec::Contiguous),
        b"chunked" => Ok(LayoutSpec::Chunked),
        b"external" | b"virtual" => Err(not_supported("datasets of other files' bytes cannot be made here")),
        other => Err(invalid(format!("layout cannot be {}; it is compact, contiguous or chunked", shown(other)))),
    }
}
