//! Lookup and listing of dense attributes: messages in a fractal heap, indexed by version 2
//! B-trees.
//!
//! ```text
//! name index (type 8):            hash of name -> creation order record
//! creation order index (type 9):  heap ID | message flags | creation order
//! fractal heap:                   heap ID -> attribute message
//! ```
//!
//! An attribute in the file's shared message heap is returned as its ID there; the caller reads it.

use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::attribute_index::{CreationOrderRecord, FLAG_SHARED, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::attribute::name_of;
use crate::meta::Store;
use crate::structures::btree2::walk_past_damage;
use crate::structures::dense_storage::{DenseKind, Records};
use crate::structures::fractal_heap::FractalHeap;
use crate::structures::fractal_heap::edit::HeapParams;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Dense storage of attributes.
pub(in crate::structures) const ATTRIBUTES: DenseKind = DenseKind {
    name: "dense attribute storage",
    heap: HeapParams::ATTRIBUTES,
    by_name: Records { record_type: TYPE_NAME, size: NameRecord::SIZE },
    by_creation: Records { record_type: TYPE_CREATION_ORDER, size: CreationOrderRecord::SIZE },
};
/// Attributes of one object with the same 32-bit hash; more do not happen by chance.
const SAME_HASH_MAX: usize = 64;

/// An attribute found through an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseAttribute {
    /// Attribute message; empty if the attribute has a `shared_heap_id`.
    pub body: Vec<u8>,
    /// Header message flags.
    pub flags: u8,
    /// Creation order on the object; undefined unless the object tracks it.
    pub creation_order: u32,
    /// ID of the attribute message in the shared message heap for attributes.
    pub shared_heap_id: Option<[u8; HEAP_ID_SIZE]>,
}

/// Called with each attribute; `Break` ends the listing.
pub type Visit<'a> = dyn FnMut(DenseAttribute) -> Result<ControlFlow<()>> + 'a;

/// Calls `f` with each attribute in the order of the name index. Logs and skips damaged attributes,
/// and returns the first damage. Errors: those of `f`; the first damage, if no attribute could be
/// listed.
pub fn list(store: &Store, heap: Address, name_index: Address, f: &mut Visit<'_>) -> Result<Option<Error>> {
    list_by(store, heap, name_index, &ATTRIBUTES.by_name, f)
}

/// Calls `f` with each attribute in the order of the index at `index`, which holds `records`.
/// Result and errors as those of [`list`].
pub(in crate::structures) fn list_by(
    store: &Store,
    heap: Address,
    index: Address,
    records: &Records,
    f: &mut Visit<'_>,
) -> Result<Option<Error>> {
    let tree = ATTRIBUTES.open_index(store, index, records)?;
    let heap = FractalHeap::open(store, heap)?;
    let mut delivered = false;
    let mut bad: Option<Error> = None;
    let damage = walk_past_damage(&tree, store, 0, &mut |record, _| {
        // A name record starts with a creation order record.
        match CreationOrderRecord::decode(record, index).and_then(|r| fetch(store, &heap, &r)) {
            Ok(attribute) => {
                delivered = true;
                f(attribute)
            }
            Err(error) => {
                tracing::warn!(%error, "skipped damage in the listing of attributes");
                bad.get_or_insert(error);
                Ok(ControlFlow::Continue(()))
            }
        }
    })?;
    match damage.or(bad) {
        Some(e) if !delivered => Err(e),
        skipped => Ok(skipped),
    }
}

/// The attributes that may have the name `name`: the one in the heap with that name, and every
/// shared one whose name has the same hash, which the caller must compare. Usually one or none.
pub fn find(store: &Store, heap: Address, name_index: Address, name: &[u8]) -> Result<Vec<DenseAttribute>> {
    let tree = ATTRIBUTES.open_index(store, name_index, &ATTRIBUTES.by_name)?;
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
        Ok(if found.len() < SAME_HASH_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    match bad {
        Some(e) if found.is_empty() => Err(e),
        _ => Ok(found),
    }
}

fn fetch(store: &Store, heap: &Arc<FractalHeap>, record: &CreationOrderRecord) -> Result<DenseAttribute> {
    let shared = record.flags & FLAG_SHARED != 0;
    let body = if shared { Vec::new() } else { heap.object(store, &record.id)? };
    Ok(DenseAttribute { body, flags: record.flags, creation_order: record.creation_order, shared_heap_id: shared.then_some(record.id) })
}
