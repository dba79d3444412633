//! Changes to the links of a dense group: link messages in a fractal heap, B-trees that index them.
//!
//! ```text
//! name index (type 5): hash of name -> heap id        creation order index (type 6): order -> heap id
//!                                    heap id -> link message
//! ```
//!
//! The name index is in the order of hash, then name. What the link info message says (the addresses, the
//! next creation order) is the caller's. H5.format.4.0, "Link Info Message".

use super::dense_links::open_index;
use super::fractal_heap::FractalHeap;
use super::fractal_heap_edit::{self, HeapParams};
use super::{btree2::BTree2, btree2_edit};
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::link_index::{CreationOrderRecord, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::link::Link;
use crate::format::message::link_info::LinkInfo;
use crate::meta::Store;
use std::cmp::Ordering;
use std::sync::Arc;

const NAME: &str = "dense group";
/// Of both indexes, as libhdf5 makes them.
pub(super) const NODE_SIZE: u32 = 512;
pub(super) const SPLIT_PERCENT: u8 = 100;
pub(super) const MERGE_PERCENT: u8 = 40;

/// The structures of a dense group, or of densely stored attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseStorage {
    /// Fractal heap of the messages.
    pub heap: Address,
    /// B-tree by name.
    pub name_index: Address,
    /// B-tree by creation order, if that is indexed.
    pub creation_index: Option<Address>,
}

impl From<&LinkInfo> for DenseStorage {
    fn from(info: &LinkInfo) -> Self {
        let creation_index = info.creation_index.filter(|a| a.is_defined());
        DenseStorage { heap: info.fractal_heap, name_index: info.name_index, creation_index }
    }
}

/// Creates storage for no links.
pub fn create(store: &Store, creation_order_indexed: bool) -> Result<DenseStorage> {
    let heap = fractal_heap_edit::create(store, &HeapParams::LINKS)?;
    let index = |kind, size: usize| btree2_edit::create(store, kind, size as u16, NODE_SIZE, SPLIT_PERCENT, MERGE_PERCENT);
    let name_index = index(TYPE_NAME, NameRecord::SIZE)?;
    let creation_index = match creation_order_indexed {
        true => Some(index(TYPE_CREATION_ORDER, CreationOrderRecord::SIZE)?),
        false => None,
    };
    Ok(DenseStorage { heap, name_index, creation_index })
}

/// Adds a link: its encoded message (without padding), whose name and creation order are told besides.
/// Errors: a link of this name is there, no creation order for an index of it, damage; nothing was written then.
pub fn insert(store: &Store, at: &DenseStorage, message: &[u8], name: &[u8], creation_order: Option<i64>) -> Result<()> {
    let group = Group::open(store, at)?;
    let link = Link::decode(message, store.ctx(), at.heap)?;
    if link.name != name || link.creation_order != creation_order {
        return Err(group.corrupt("the message is of another link"));
    }
    if group.find(name)?.is_some() {
        return Err(group.corrupt("a link of this name is in the group already"));
    }
    insert_absent(store, at, message, name, creation_order)
}

/// The same where the caller made the message, and looked whether there is a link of this name.
pub fn insert_absent(store: &Store, at: &DenseStorage, message: &[u8], name: &[u8], creation_order: Option<i64>) -> Result<()> {
    let group = Group::open(store, at)?;
    let by_order = match (at.creation_index, creation_order) {
        (Some(index), Some(order)) => Some((index, order)),
        (Some(_), None) => return Err(group.corrupt("a link without creation order in an index of it")),
        (None, _) => None,
    };
    if let Some((index, order)) = by_order
        && BTree2::open(store, index)?.find(store, &mut compare_order(index, order))?.is_some()
    {
        return Err(group.corrupt("a link of this creation order is in the group already"));
    }
    let id = heap_id(&fractal_heap_edit::insert(store, at.heap, message)?, at.heap)?;
    // The blocks of the heap have changed.
    let group = Group::open(store, at)?;
    let record = NameRecord { hash: lookup3(name, 0), id }.encode();
    btree2_edit::insert(store, at.name_index, &record, &mut |r| group.compare(r, name))?;
    if let Some((index, creation_order)) = by_order {
        let record = CreationOrderRecord { creation_order, id }.encode();
        btree2_edit::insert(store, index, &record, &mut compare_order(index, creation_order))?;
    }
    Ok(())
}

/// Removes the link called `name`; its message, if there is one.
pub fn remove(store: &Store, at: &DenseStorage, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let group = Group::open(store, at)?;
    let Some((id, message)) = group.find(name)? else { return Ok(None) };
    let by_order = group.by_order(&message, &id)?;
    btree2_edit::remove(store, at.name_index, &mut |r| group.compare(r, name))?;
    if let Some((index, order)) = by_order {
        btree2_edit::remove(store, index, &mut compare_order(index, order))?;
    }
    fractal_heap_edit::remove(store, at.heap, &id)?;
    Ok(Some(message))
}

/// Puts `message` in the place of the link called `name`, whose name and creation order it must have.
/// False when there is no such link.
pub fn replace(store: &Store, at: &DenseStorage, name: &[u8], message: &[u8]) -> Result<bool> {
    let group = Group::open(store, at)?;
    let Some((id, old)) = group.find(name)? else { return Ok(false) };
    let link = Link::decode(message, store.ctx(), at.heap)?;
    if link.name != name || link.creation_order != group.decode(&old)?.creation_order {
        return Err(group.corrupt("a link is replaced by one of another name or creation order"));
    }
    let by_order = group.by_order(&old, &id)?;
    if old.len() == message.len() && fractal_heap_edit::replace_same_size(store, at.heap, &id, message)? {
        return Ok(true);
    }
    let new = heap_id(&fractal_heap_edit::insert(store, at.heap, message)?, at.heap)?;
    let group = Group::open(store, at)?;
    let record = NameRecord { hash: lookup3(name, 0), id: new }.encode();
    btree2_edit::replace(store, at.name_index, &mut |r| group.compare(r, name), &record)?;
    if let Some((index, creation_order)) = by_order {
        let record = CreationOrderRecord { creation_order, id: new }.encode();
        btree2_edit::replace(store, index, &mut compare_order(index, creation_order), &record)?;
    }
    fractal_heap_edit::remove(store, at.heap, &id)?;
    Ok(true)
}

/// Gives back the storage with all links.
pub fn delete(store: &Store, at: &DenseStorage) -> Result<()> {
    Group::open(store, at)?;
    btree2_edit::delete_tree(store, at.name_index)?;
    if let Some(index) = at.creation_index {
        btree2_edit::delete_tree(store, index)?;
    }
    fractal_heap_edit::delete_heap(store, at.heap)
}

fn heap_id(id: &[u8], heap: Address) -> Result<[u8; HEAP_ID_SIZE]> {
    <[u8; HEAP_ID_SIZE]>::try_from(id).map_err(|_| Error::corrupt(NAME, heap, format!("heap IDs of {} bytes", id.len())))
}

fn compare_order(index: Address, order: i64) -> impl FnMut(&[u8]) -> Result<Ordering> {
    move |record| Ok(CreationOrderRecord::decode(record, index)?.creation_order.cmp(&order))
}

/// The structures of a group, open for reading.
struct Group<'s> {
    store: &'s Store,
    at: DenseStorage,
    heap: Arc<FractalHeap>,
}

impl<'s> Group<'s> {
    /// Opens and checks all structures. Errors: damage; a heap with filters.
    fn open(store: &'s Store, at: &DenseStorage) -> Result<Self> {
        open_index(store, at.name_index, TYPE_NAME, NameRecord::SIZE)?;
        if let Some(index) = at.creation_index {
            open_index(store, index, TYPE_CREATION_ORDER, CreationOrderRecord::SIZE)?;
        }
        let heap = FractalHeap::open(store, at.heap)?;
        if heap.header().filters.is_some() {
            return Err(Error::unsupported(NAME, at.heap, "links in a heap with I/O filters cannot be changed"));
        }
        if usize::from(heap.header().id_length) != HEAP_ID_SIZE {
            return Err(Error::corrupt(NAME, at.heap, format!("heap IDs of {} bytes", heap.header().id_length)));
        }
        Ok(Group { store, at: *at, heap })
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(NAME, self.at.heap, detail)
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

    /// Heap ID and message of the link called `name`.
    fn find(&self, name: &[u8]) -> Result<Option<([u8; HEAP_ID_SIZE], Vec<u8>)>> {
        let tree = BTree2::open(self.store, self.at.name_index)?;
        let Some(record) = tree.find(self.store, &mut |r| self.compare(r, name))? else { return Ok(None) };
        let id = NameRecord::decode(&record, self.at.name_index)?.id;
        Ok(Some((id, self.heap.object(self.store, &id)?)))
    }

    /// The creation order index and the order under which it has the link. Errors: it has not.
    fn by_order(&self, message: &[u8], id: &[u8; HEAP_ID_SIZE]) -> Result<Option<(Address, i64)>> {
        let Some(index) = self.at.creation_index else { return Ok(None) };
        let missing = || self.corrupt("the creation order index does not have the link");
        let order = self.decode(message)?.creation_order.ok_or_else(missing)?;
        let record = BTree2::open(self.store, index)?.find(self.store, &mut compare_order(index, order))?.ok_or_else(missing)?;
        if CreationOrderRecord::decode(&record, index)?.id != *id {
            return Err(missing());
        }
        Ok(Some((index, order)))
    }
}

#[cfg(test)]
mod tests;
