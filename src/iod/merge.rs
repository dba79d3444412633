//! Changes of a writer beside those that another one committed first.
//!
//! Changes of different keys merge, unless one of both needs the other's object as it was. Bytes of
//! one chunk merge if both wrote others. All else is a conflict, also where both wrote the same
//! value: of two writers that count from 5 to 6 one would be lost.

use super::cell::Cell;
use super::delta::Entry;
use super::keys::{
    self, ACCESS_TIME, ATTRIBUTE, CELLS, CHUNK, HEADER, Key, LINK, MAP, MAP_KEY_TYPE, MAP_VALUE_TYPE, OBJECT_TYPE, OWNERSHIP, PROPERTIES,
};
use super::objects::Objects;
use super::range::Values;
use super::ranges::Ranges;
use super::record::Record;
use super::rules::Rule;
use super::snapshot::Snapshot;
use crate::base::{Address, Result};
use crate::format::Context;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind::{DATASPACE, MTIME, REFERENCE_COUNT};

/// What a session makes of a value. `I`: a chunk in memory.
#[derive(Debug, Clone)]
pub enum Body<I> {
    /// It is removed.
    Removed,
    /// It is this.
    Cell(Cell),
    /// A chunk that is not encoded.
    Dirty(I),
}

/// A change that is not committed.
#[derive(Debug, Clone)]
pub struct Change<I> {
    /// The new value.
    pub body: Body<I>,
    /// Bytes of a chunk that were written; all bytes of other values.
    pub ranges: Ranges,
}

/// Changes of a session since its last commit.
pub type Changes<I> = Values<Change<I>>;

/// A change that cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The key that both writers changed.
    pub key: Key,
    /// The version in which the other writer did.
    pub version: u64,
    /// What both did.
    pub reason: &'static str,
}

/// What [`merge`] compares.
pub struct Merging<'a> {
    /// The objects of the container.
    pub objects: &'a Objects,
    /// The version that our changes are based on.
    pub base: &'a Snapshot,
}

/// What becomes of changes in the version of another writer.
#[derive(Debug, Default)]
pub struct Merged {
    /// Chunks that both writers changed: the caller merges their bytes.
    pub chunks: Vec<Key>,
    /// Values that both writers changed, with the one that replaces ours.
    pub values: Vec<(Key, Cell)>,
}

/// Compares `ours`, changes of `merging.base`, with the version after it, which `record` made by
/// `entries`. Groups that both moved may make a cycle: the caller looks.
pub fn merge<I>(merging: &Merging<'_>, ours: &Changes<I>, record: &Record, entries: &[Entry]) -> Result<Result<Merged, Conflict>> {
    let conflict = |key: &Key, reason| Ok(Err(Conflict { key: key.clone(), version: record.version, reason }));
    let removed = entries.iter().filter(|e| e.cell.is_none() && keys::message(&e.key) == Some(OBJECT_TYPE));
    for entry in removed {
        if let Some((id, ..)) = keys::parts(&entry.key)
            && ours.range(keys::of_object(id)).next().is_some()
        {
            return conflict(&entry.key, "one removed the object that the other changed");
        }
    }
    let mut merged = Merged::default();
    for entry in entries.iter().filter(|entry| !entry.is_moved()) {
        let Some((id, kind, _)) = keys::parts(&entry.key) else { continue };
        if ours.get(&keys::header(id, OBJECT_TYPE)).is_some_and(|c| matches!(c.body, Body::Removed)) {
            return conflict(&entry.key, "one removed the object that the other changed");
        }
        let both = ours.contains_key(&entry.key);
        match kind {
            LINK | MAP if is_retyped(ours, id) => return conflict(&entry.key, "one made the group a map that the other changed"),
            MAP if both => return conflict(&entry.key, "both changed the key"),
            LINK if both => return conflict(&entry.key, "both changed the name"),
            ATTRIBUTE if both => return conflict(&entry.key, "both changed the attribute"),
            CELLS if has_any(ours, id, CELLS) || has_any(ours, id, CHUNK) => {
                return conflict(&entry.key, "both wrote variable-length elements");
            }
            CHUNK if both => {
                let disjoint = ours.get(&entry.key).is_some_and(|c| !c.ranges.overlaps(&entry.ranges));
                if !disjoint && merging.objects.rules().keep(Rule::Overlap) {
                    return conflict(&entry.key, "both wrote the same elements");
                }
                merged.chunks.push(entry.key.clone());
            }
            HEADER => {
                if let Some(reason) = merge_header(merging, ours, entry, &mut merged)? {
                    return conflict(&entry.key, reason);
                }
            }
            _ => {}
        }
        if matches!(kind, CHUNK | CELLS)
            && let Some(reason) = is_reshaped(merging, ours, id)?
        {
            return conflict(&entry.key, reason);
        }
    }
    Ok(Ok(merged))
}

/// True if both made metadata the same.
fn is_same<I>(ours: &Changes<I>, entry: &Entry) -> bool {
    match (ours.get(&entry.key).map(|c| &c.body), &entry.cell) {
        (Some(Body::Cell(cell)), Some(other)) => cell == other,
        (Some(Body::Removed), None) => true,
        _ => false,
    }
}

/// True if ours change the type of the object `id`, which exists in the base.
fn is_retyped<I>(ours: &Changes<I>, id: u64) -> bool {
    ours.contains_key(&keys::header(id, OBJECT_TYPE))
}

fn has_any<I>(ours: &Changes<I>, id: u64, kind: u8) -> bool {
    ours.range(keys::of_kind(id, kind)).next().is_some()
}

/// True if metadata is not needed to understand elements.
pub fn is_loose(message: u16) -> bool {
    matches!(message, MTIME | REFERENCE_COUNT | OWNERSHIP | ACCESS_TIME | PROPERTIES)
}

/// The conflict of a change of metadata with ours, if there is one. Adds link counts.
fn merge_header<I>(merging: &Merging<'_>, ours: &Changes<I>, entry: &Entry, merged: &mut Merged) -> Result<Option<&'static str>> {
    let Some((message, (id, ..))) = keys::message(&entry.key).zip(keys::parts(&entry.key)) else { return Ok(None) };
    match (message, ours.get(&entry.key)) {
        // The later one counts.
        (MTIME | ACCESS_TIME, _) => return Ok(None),
        (REFERENCE_COUNT, Some(change)) => {
            let base = merging.base.get(merging.objects, &entry.key)?;
            let count = |cell: Option<&Cell>| cell.map_or(Ok(0), |cell| link_count(merging.objects, cell));
            let own = match &change.body {
                Body::Cell(cell) => Some(cell),
                _ => None,
            };
            let counts = (count(entry.cell.as_ref())?, count(own)?, count(base.as_ref())?);
            let sum = counts.0.saturating_add(counts.1).saturating_sub(counts.2);
            if sum <= 0 || own.is_none() {
                return Ok(Some("both removed names of the object"));
            }
            let cell = Cell::inline(&encode_link_count(u32::try_from(sum).unwrap_or(u32::MAX)));
            merged.values.push((entry.key.clone(), cell));
            return Ok(None);
        }
        (OBJECT_TYPE | MAP_KEY_TYPE | MAP_VALUE_TYPE, _) if has_any(ours, id, LINK) || has_any(ours, id, MAP) => {
            return Ok(Some("one made the group a map that the other changed"));
        }
        (_, Some(_)) if is_same(ours, entry) => return Ok(None),
        (_, Some(_)) => return Ok(Some("both changed the object's metadata")),
        (_, None) => {}
    }
    let is_structure = !is_loose(message) && (has_any(ours, id, CHUNK) || has_any(ours, id, CELLS));
    if !is_structure {
        return Ok(None);
    }
    let grows = message == DATASPACE && {
        let base = merging.base.get(merging.objects, &entry.key)?;
        is_growth(merging.objects, base.as_ref(), entry.cell.as_ref())?
    };
    Ok((!grows).then_some("one changed the shape or type of a dataset whose elements the other wrote"))
}

/// The conflict of elements that the other writer wrote with our change of the dataset `id`.
fn is_reshaped<I>(merging: &Merging<'_>, ours: &Changes<I>, id: u64) -> Result<Option<&'static str>> {
    for (key, change) in ours.range(keys::of_kind(id, HEADER)) {
        let Some(message) = keys::message(key).filter(|m| !is_loose(*m)) else { continue };
        let own = match &change.body {
            Body::Cell(cell) => Some(cell),
            _ => None,
        };
        let grows = message == DATASPACE && is_growth(merging.objects, merging.base.get(merging.objects, key)?.as_ref(), own)?;
        if !grows {
            return Ok(Some("one changed the shape or type of a dataset whose elements the other wrote"));
        }
    }
    Ok(None)
}

/// True if a dataspace has the elements of another one, and perhaps more.
fn is_growth(objects: &Objects, old: Option<&Cell>, new: Option<&Cell>) -> Result<bool> {
    let (Some(old), Some(new)) = (old, new) else { return Ok(false) };
    let decode = |cell| Dataspace::decode(&objects.bytes(cell)?, &Context::DEFAULT, Address::UNDEF);
    let (old, new) = (decode(old)?, decode(new)?);
    let extends = old.dims.iter().zip(&new.dims).all(|(old, new)| old <= new);
    Ok(old.extent == new.extent && old.dims.len() == new.dims.len() && extends && old.max() == new.max())
}

/// Decodes a reference count message: `version 0 | count u32`.
pub fn link_count(objects: &Objects, cell: &Cell) -> Result<i64> {
    let bytes = objects.bytes(cell)?;
    let mut r = crate::format::Reader::new(&bytes, "object reference count message", Address::UNDEF);
    r.version(0..=0)?;
    r.u32().map(i64::from)
}

/// Encodes a reference count message.
pub fn encode_link_count(count: u32) -> Vec<u8> {
    let mut w = crate::format::Writer::new();
    w.u8(0).u32(count);
    w.into_bytes()
}
