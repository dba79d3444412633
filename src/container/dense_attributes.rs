//! Densely stored attributes: attribute messages in a fractal heap, version 2 B-trees that index them.
//!
//! ```text
//! name index (type 8) | creation order index (type 9): heap id, message flags, ... -> attribute message
//! ```
//!
//! An attribute may be in the file's shared message heap instead: its ID is given, the caller has the heap.

use super::dense_links::open_index;
use super::fractal_heap::FractalHeap;
use super::index_walk;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::attribute_index::{CreationOrderRecord, FLAG_SHARED, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::attribute::name_of;
use crate::meta::Store;
use std::ops::ControlFlow;
use std::sync::Arc;

/// An attribute as found by an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseAttribute {
    /// Attribute message; empty when `shared_heap_id` says that it is elsewhere.
    pub body: Vec<u8>,
    /// Header message flags.
    pub flags: u8,
    /// Creation order on the object; meaningful if the object tracks it.
    pub creation_order: u32,
    /// ID of the attribute message in the shared message heap for attributes.
    pub shared_heap_id: Option<[u8; HEAP_ID_SIZE]>,
}

/// Called with each attribute; `Break` ends the listing.
pub type Visit<'a> = dyn FnMut(DenseAttribute) -> Result<ControlFlow<()>> + 'a;

/// Calls `f` with each attribute in the order of the name index. Damaged attributes are logged and
/// skipped. Errors: those of `f`; the first damage, if nothing at all could be listed.
pub fn list(store: &Store, heap: Address, name_index: Address, f: &mut Visit<'_>) -> Result<()> {
    list_by(store, heap, name_index, TYPE_NAME, f)
}

/// As `list`, in the order of the creation order index (type 9).
pub fn list_by_creation_order(store: &Store, heap: Address, creation_index: Address, f: &mut Visit<'_>) -> Result<()> {
    list_by(store, heap, creation_index, TYPE_CREATION_ORDER, f)
}

fn list_by(store: &Store, heap: Address, index: Address, record_type: u8, f: &mut Visit<'_>) -> Result<()> {
    let size = if record_type == TYPE_NAME { NameRecord::SIZE } else { CreationOrderRecord::SIZE };
    let tree = open_index(store, index, record_type, size)?;
    let heap = FractalHeap::open(store, heap)?;
    let mut delivered = false;
    let mut bad: Option<Error> = None;
    let damage = index_walk::walk(&tree, store, 0, &mut |record, _| {
        // The front of a name record is a creation order record.
        match CreationOrderRecord::decode(record, index).and_then(|r| fetch(store, &heap, &r)) {
            Ok(attribute) => {
                delivered = true;
                f(attribute)
            }
            Err(error) => {
                tracing::warn!(%error, "skipped in the listing of attributes");
                bad.get_or_insert(error);
                Ok(ControlFlow::Continue(()))
            }
        }
    })?;
    match damage.or(bad) {
        Some(e) if !delivered => Err(e),
        _ => Ok(()),
    }
}

/// The attributes that may be called `name`: the one in the heap whose name it is, and every shared
/// one whose name has the same hash (its name the caller must compare). Mostly one or none.
pub fn find(store: &Store, heap: Address, name_index: Address, name: &[u8]) -> Result<Vec<DenseAttribute>> {
    let tree = open_index(store, name_index, TYPE_NAME, NameRecord::SIZE)?;
    let heap = FractalHeap::open(store, heap)?;
    let hash = lookup3(name, 0);
    let mut found = Vec::new();
    let mut bad = None;
    let mut compare = |record: &[u8]| Ok(NameRecord::decode(record, name_index)?.hash.cmp(&hash));
    tree.find_range(store, &mut compare, &mut |record| {
        let attribute = NameRecord::decode(record, name_index).and_then(|r| fetch(store, &heap, &r.attribute));
        let attribute = attribute.and_then(|a| Ok((a.shared_heap_id.is_some() || name_of(&a.body, name_index)? == name, a)));
        match attribute {
            Ok((true, a)) => found.push(a),
            Ok((false, _)) => {}
            Err(e) => {
                bad.get_or_insert(e);
            }
        }
        Ok(if found.len() < CANDIDATES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    match bad {
        Some(e) if found.is_empty() => Err(e),
        _ => Ok(found),
    }
}

/// Attributes of one object that share a 32-bit hash: more do not happen by chance.
const CANDIDATES_MAX: usize = 64;

fn fetch(store: &Store, heap: &Arc<FractalHeap>, record: &CreationOrderRecord) -> Result<DenseAttribute> {
    let shared = record.flags & FLAG_SHARED != 0;
    let body = if shared { Vec::new() } else { heap.object(store, &record.id)? };
    Ok(DenseAttribute { body, flags: record.flags, creation_order: record.creation_order, shared_heap_id: shared.then_some(record.id) })
}
