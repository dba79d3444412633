//! An object in short: what a line of `h5dir ls -l` and the screen of `h5dir stat` show of it.
//!
//! Nothing here costs a pass over the elements: the header of the object, the names of its
//! attributes, and for [`elements_brief`] the chunks of a few elements are read.

use super::brief::{dims_brief, filters_brief, shape_brief, type_brief};
use super::brief_value::{ELEMENT_BYTES_MAX, element_brief, value_brief};
use crate::base::{Error, Result};
use crate::connector::{Connector, DatasetInfo, Datatype, Fill, Form, ObjectId, ObjectKind, Parts, Value};

/// Elements shown of either end.
const ELEMENTS: u64 = 8;
/// Most characters of one element among others.
const ELEMENT_CHARS: usize = 40;
/// Largest chunk that is decoded to show its elements, bytes.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Largest dataset with parts outside its elements that is read as a whole, bytes.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of lines that are read.
const LINES_BYTES: usize = 4096;

/// What an object is, in short. Empty texts: it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectBrief {
    /// `group`, `dataset`, `datatype`, `map` or `unknown`.
    pub kind: &'static str,
    /// True if the object is in another file.
    pub is_external: bool,
    /// Type of the elements of a dataset, a named datatype, or the pairs of a map.
    pub datatype: String,
    /// Shape, with the largest dimensions where they differ.
    pub shape: String,
    /// Name of the layout of a dataset.
    pub layout: &'static str,
    /// Name of the way in which the layout stores elements, if it has several.
    pub profile: &'static str,
    /// Dimensions of a chunk.
    pub chunks: String,
    /// Filters in the order of writing.
    pub filters: String,
    /// Bytes of storage; an estimate where the exact number would take long.
    pub storage: Option<u64>,
    /// Bytes of all elements, without what is stored outside them.
    pub bytes: Option<u64>,
    /// Value of elements that were never written.
    pub fill: String,
    /// Number of attributes.
    pub attributes: usize,
    /// Comment of the object.
    pub comment: Vec<u8>,
}

/// An attribute in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeBrief {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value, on one line.
    pub value: String,
}

/// Elements at either end of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementsBrief {
    /// All of them.
    All(Vec<String>),
    /// The first and the last ones; none of those that are not known without reading all.
    Ends(Vec<String>, Vec<String>),
    /// They are not shown, for this reason.
    Hidden(String),
}

/// The object `id` in short. `chars`: most characters of its type and of its fill value.
pub fn object_brief(connector: &dyn Connector, id: ObjectId, chars: usize) -> Result<ObjectBrief> {
    let kind = connector.info(id)?.kind;
    let common = ObjectBrief {
        is_external: !id.is_own(),
        attributes: connector.attributes(id)?.len(),
        comment: connector.comment(id)?.unwrap_or_default(),
        ..ObjectBrief::default()
    };
    Ok(match kind {
        ObjectKind::Group => ObjectBrief { kind: "group", ..common },
        ObjectKind::Datatype => ObjectBrief { kind: "datatype", datatype: type_brief(&connector.datatype(id)?, chars), ..common },
        ObjectKind::Map => ObjectBrief { kind: "map", ..common },
        ObjectKind::Unknown => ObjectBrief { kind: "unknown", ..common },
        ObjectKind::Dataset => dataset(connector, id, chars, common)?,
    })
}

fn dataset(connector: &dyn Connector, id: ObjectId, chars: usize, common: ObjectBrief) -> Result<ObjectBrief> {
    let d = connector.dataset(id)?;
    Ok(ObjectBrief {
        kind: "dataset",
        datatype: type_brief(&d.datatype, chars),
        shape: shape_brief(&d.shape),
        layout: d.layout,
        profile: d.profile.unwrap_or_default(),
        chunks: d.chunks.as_deref().map(dims_brief).unwrap_or_default(),
        filters: filters_brief(&d.filters),
        storage: connector.glance(id, Form::Main)?.allocated().ok(),
        bytes: d.shape.count().and_then(|n| n.checked_mul(d.datatype.element_size())),
        fill: fill_brief(&d, chars),
        ..common
    })
}

fn fill_brief(d: &DatasetInfo, chars: usize) -> String {
    match &d.fill {
        Fill::Undefined => "undefined".into(),
        Fill::Default => String::new(),
        Fill::Value(bytes) if bytes.len() as u64 == d.datatype.element_size() => element_brief(&d.datatype, bytes, &*d.parts, chars),
        Fill::Value(bytes) => format!("({} bytes)", bytes.len()),
    }
}

/// The first `limit` attributes of the object `id`, with values of at most `chars` characters.
pub fn attributes_brief(connector: &dyn Connector, id: ObjectId, limit: usize, chars: usize) -> Result<Vec<AttributeBrief>> {
    let brief = |name: &Vec<u8>| {
        let value = match connector.attribute(id, name) {
            Ok(Some(value)) => value_brief(&value, chars),
            // It was removed meanwhile.
            Ok(None) => return None,
            Err(_) => "(unreadable)".into(),
        };
        Some(AttributeBrief { name: name.clone(), value })
    };
    Ok(connector.attributes(id)?.iter().take(limit).filter_map(brief).collect())
}

/// Elements at either end of the dataset `id`; `None`: it has none, or is no dataset.
pub fn elements_brief(connector: &dyn Connector, id: ObjectId) -> Result<Option<ElementsBrief>> {
    if connector.info(id)?.kind != ObjectKind::Dataset {
        return Ok(None);
    }
    let d = connector.dataset(id)?;
    let (size, Some(count)) = (d.datatype.element_size(), d.shape.count()) else { return Ok(None) };
    let chunk = d.chunks.iter().flatten().fold(size, |n, dim| n.saturating_mul(*dim));
    if count == 0 {
        return Ok(None);
    }
    if size > ELEMENT_BYTES_MAX {
        return Ok(Some(ElementsBrief::Hidden(format!("{size} bytes each"))));
    }
    if d.chunks.is_some() && chunk > CHUNK_BYTES_MAX {
        return Ok(Some(ElementsBrief::Hidden(format!("in chunks of {chunk} bytes"))));
    }
    if !d.datatype.contains_vlen() {
        return fixed(connector, id, &d, count).map(Some);
    }
    if count.saturating_mul(size) <= WHOLE_BYTES_MAX {
        let Value { datatype, bytes, parts, .. } = connector.elements(id)?;
        let (first, last) = (texts(&datatype, &bytes, &*parts, ELEMENTS), tail(&bytes, size, count));
        return Ok(Some(ends(count, first, texts(&datatype, last, &*parts, ELEMENTS))));
    }
    if d.lines { lines(connector, id).map(Some) } else { Ok(None) }
}

/// The bytes of the last elements.
fn tail(bytes: &[u8], size: u64, count: u64) -> &[u8] {
    let start = count.saturating_sub(ELEMENTS).saturating_mul(size);
    usize::try_from(start).ok().and_then(|start| bytes.get(start..)).unwrap_or_default()
}

fn texts(t: &Datatype, bytes: &[u8], parts: &dyn Parts, most: u64) -> Vec<String> {
    let size = usize::try_from(t.element_size()).unwrap_or(usize::MAX).max(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    bytes.chunks_exact(size).take(most).map(|element| element_brief(t, element, parts, ELEMENT_CHARS)).collect()
}

fn ends(count: u64, mut first: Vec<String>, mut last: Vec<String>) -> ElementsBrief {
    let shared = first.len().saturating_add(last.len()) as u64;
    if count > shared {
        return ElementsBrief::Ends(first, last);
    }
    // Elements that are in both.
    let both = usize::try_from(shared.saturating_sub(count)).unwrap_or(0).min(last.len());
    first.extend(last.drain(both..));
    ElementsBrief::All(first)
}

/// Elements without parts outside their bytes.
fn fixed(connector: &dyn Connector, id: ObjectId, d: &DatasetInfo, count: u64) -> Result<ElementsBrief> {
    let size = d.datatype.element_size();
    let content = connector.content(id, Form::Exact)?;
    let read = |from: u64| -> Result<Vec<String>> {
        let len = ELEMENTS.min(count).saturating_mul(size);
        // At most eight elements of 4 KiB.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let (mut done, start) = (0usize, from.saturating_mul(size));
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match content.read(start.saturating_add(done as u64), rest)? {
                0 => break,
                n => done = done.saturating_add(n),
            }
        }
        bytes.truncate(done);
        Ok(texts(&d.datatype, &bytes, &*d.parts, ELEMENTS))
    };
    Ok(ends(count, read(0)?, read(count.saturating_sub(ELEMENTS))?))
}

/// The first strings of a dataset whose main form is lines.
fn lines(connector: &dyn Connector, id: ObjectId) -> Result<ElementsBrief> {
    let mut bytes = vec![0; LINES_BYTES];
    let n = connector.content(id, Form::Main)?.read(0, &mut bytes)?;
    let bytes = bytes.get(..n).unwrap_or_default();
    let quoted = |line: &[u8]| super::brief_value::quoted(line, ELEMENT_CHARS);
    let whole = bytes.iter().rposition(|b| *b == b'\n').and_then(|end| bytes.get(..end));
    let most = usize::try_from(ELEMENTS).unwrap_or(usize::MAX);
    let first: Vec<String> = match whole {
        Some(whole) => whole.split(|b| *b == b'\n').take(most).map(quoted).collect(),
        None if bytes.is_empty() => return Err(Error::refused(libc::EIO, "no lines")),
        None => vec![quoted(bytes)],
    };
    Ok(ElementsBrief::Ends(first, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_both_ends_are_shown_once() {
        let list = |range: std::ops::Range<u64>| range.map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(ends(3, list(0..3), list(0..3)), ElementsBrief::All(list(0..3)));
        assert_eq!(ends(12, list(0..8), list(4..12)), ElementsBrief::All(list(0..12)));
        assert_eq!(ends(17, list(0..8), list(9..17)), ElementsBrief::Ends(list(0..8), list(9..17)));
        assert_eq!(tail(&[0, 0, 1, 1], 2, 2), [0, 0, 1, 1]);
    }
}
