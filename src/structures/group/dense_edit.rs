//! Changes to the links of a dense group: link messages in a fractal heap, B-trees that index them.
//!
//! ```text
//! name index (type 5):            hash of name -> heap ID
//! creation order index (type 6):  order -> heap ID
//! fractal heap:                   heap ID -> link message
//! ```
//!
//! The name index is sorted by hash, then name. The caller updates the link info message (the
//! addresses, the next creation order). H5.format.4.0, "Link Info Message".

use super::dense::LINKS;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::link_index::{CreationOrderRecord, HEAP_ID_SIZE, NameRecord};
use crate::format::message::link::Link;
use crate::format::message::link_info::LinkInfo;
use crate::meta::Store;
use crate::structures::btree2::{self, BTree2};
use crate::structures::fractal_heap::{self, FractalHeap};
use std::cmp::Ordering;
use std::sync::Arc;

pub use crate::structures::dense_storage::DenseStorage;

impl From<&LinkInfo> for DenseStorage {
    fn from(info: &LinkInfo) -> Self {
        let creation_index = info.creation_index.filter(|a| a.is_defined());
        DenseStorage { heap: info.fractal_heap, name_index: info.name_index, creation_index }
    }
}

/// Creates empty storage.
pub fn create(store: &Store, creation_order_indexed: bool) -> Result<DenseStorage> {
    LINKS.create(store, creation_order_indexed)
}

/// Inserts a link: its encoded message without padding, and the name and creation order in it.
/// Errors, before anything is written: the group has a link of this name, or an index of creation
/// orders and the link none; damage.
pub fn insert(store: &Store, at: &DenseStorage, message: &[u8], name: &[u8], creation_order: Option<i64>) -> Result<()> {
    let group = Group::open(store, at)?;
    let link = Link::decode(message, store.ctx(), at.heap)?;
    if link.name != name || link.creation_order != creation_order {
        return Err(group.corrupt("the message has another name or creation order"));
    }
    if group.find(name)?.is_some() {
        return Err(group.corrupt("the group has a link of this name already"));
    }
    insert_absent(store, at, message, name, creation_order)
}

/// Inserts a link like [`insert`], but trusts the caller that the message is valid and the name
/// free.
pub fn insert_absent(store: &Store, at: &DenseStorage, message: &[u8], name: &[u8], creation_order: Option<i64>) -> Result<()> {
    let group = Group::open(store, at)?;
    let by_order = match (at.creation_index, creation_order) {
        (Some(index), Some(order)) => Some((index, order)),
        (Some(_), None) => return Err(group.corrupt("the link has no creation order, which the group indexes")),
        (None, _) => None,
    };
    if let Some((index, order)) = by_order
        && BTree2::open(store, index)?.find(store, &mut compare_order(index, order))?.is_some()
    {
        return Err(group.corrupt("the group has a link of this creation order already"));
    }
    let id = LINKS.insert_message(store, at.heap, message)?;
    // The heap has changed.
    let group = Group::open(store, at)?;
    let record = NameRecord { hash: lookup3(name, 0), id }.encode();
    btree2::edit::insert(store, at.name_index, &record, &mut |r| group.compare(r, name))?;
    if let Some((index, creation_order)) = by_order {
        let record = CreationOrderRecord { creation_order, id }.encode();
        btree2::edit::insert(store, index, &record, &mut compare_order(index, creation_order))?;
    }
    Ok(())
}

/// Removes the link `name`; returns its message, if the group has it.
pub fn remove(store: &Store, at: &DenseStorage, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let group = Group::open(store, at)?;
    let Some((id, message)) = group.find(name)? else { return Ok(None) };
    let by_order = group.by_order(&message, &id)?;
    btree2::edit::remove(store, at.name_index, &mut |r| group.compare(r, name))?;
    if let Some((index, order)) = by_order {
        btree2::edit::remove(store, index, &mut compare_order(index, order))?;
    }
    fractal_heap::edit::remove(store, at.heap, &id)?;
    Ok(Some(message))
}

/// Frees the storage with all links.
pub fn delete(store: &Store, at: &DenseStorage) -> Result<()> {
    LINKS.delete(store, at)
}

fn compare_order(index: Address, order: i64) -> impl FnMut(&[u8]) -> Result<Ordering> {
    move |record| Ok(CreationOrderRecord::decode(record, index)?.creation_order.cmp(&order))
}

/// Open structures of a group.
struct Group<'s> {
    store: &'s Store,
    at: DenseStorage,
    heap: Arc<FractalHeap>,
}

impl<'s> Group<'s> {
    /// Opens and checks all structures. Errors: damage; a heap with filters.
    fn open(store: &'s Store, at: &DenseStorage) -> Result<Self> {
        Ok(Group { store, at: *at, heap: LINKS.open(store, at)? })
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(LINKS.name, self.at.heap, detail)
    }

    fn decode(&self, message: &[u8]) -> Result<Link> {
        Link::decode(message, self.store.ctx(), self.at.heap)
    }

    /// Order of a record of the name index relative to `name`.
    fn compare(&self, record: &[u8], name: &[u8]) -> Result<Ordering> {
        let r = NameRecord::decode(record, self.at.name_index)?;
        Ok(match r.hash.cmp(&lookup3(name, 0)) {
            Ordering::Equal => self.decode(&self.heap.object(self.store, &r.id)?)?.name.as_slice().cmp(name),
            other => other,
        })
    }

    /// Heap ID and message of the link `name`.
    fn find(&self, name: &[u8]) -> Result<Option<([u8; HEAP_ID_SIZE], Vec<u8>)>> {
        let tree = BTree2::open(self.store, self.at.name_index)?;
        let Some(record) = tree.find(self.store, &mut |r| self.compare(r, name))? else { return Ok(None) };
        let id = NameRecord::decode(&record, self.at.name_index)?.id;
        Ok(Some((id, self.heap.object(self.store, &id)?)))
    }

    /// The creation order index and the link's order in it; `None` if orders are not indexed.
    /// Errors: the index lacks the link.
    fn by_order(&self, message: &[u8], id: &[u8; HEAP_ID_SIZE]) -> Result<Option<(Address, i64)>> {
        let Some(index) = self.at.creation_index else { return Ok(None) };
        let missing = || self.corrupt("the creation order index lacks the link");
        let order = self.decode(message)?.creation_order.ok_or_else(missing)?;
        let record = BTree2::open(self.store, index)?.find(self.store, &mut compare_order(index, order))?.ok_or_else(missing)?;
        if CreationOrderRecord::decode(&record, index)?.id != *id {
            return Err(missing());
        }
        Ok(Some((index, order)))
    }
}

#[cfg(test)]
#[path = "dense_edit_tests.rs"]
mod tests;
