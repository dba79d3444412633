//! Changes to densely stored attributes: attribute messages in a fractal heap, B-trees that index them.
//!
//! ```text
//! name index (type 8) | creation order index (type 9): heap id, message flags, creation order -> attribute message
//! ```
//!
//! The name index is in the order of hash, then name. Attributes in the file's shared message heap
//! lie there (see [`super::shared_messages_edit`]). What the attribute info message says is the caller's. H5.format.4.0, "Attribute Info Message".

use super::dense_links::open_index;
use super::dense_links_edit::{DenseStorage, MERGE_PERCENT, NODE_SIZE, SPLIT_PERCENT};
use super::fractal_heap::FractalHeap;
use super::fractal_heap_edit::{self, HeapParams};
use super::shared_messages::SharedMessages;
use super::{btree2::BTree2, btree2_edit};
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::attribute_index::{CreationOrderRecord, FLAG_SHARED, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::attribute::name_of;
use crate::meta::Store;
use std::cmp::Ordering;
use std::sync::Arc;

const NAME: &str = "dense attribute storage";

/// An attribute as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Attribute message.
    pub body: Vec<u8>,
    /// Header message flags.
    pub flags: u8,
    /// Creation order on the object.
    pub creation_order: u32,
}

/// Creates storage for no attributes.
pub fn create(store: &Store, creation_order_indexed: bool) -> Result<DenseStorage> {
    let heap = fractal_heap_edit::create(store, &HeapParams::ATTRIBUTES)?;
    let index = |kind, size: usize| btree2_edit::create(store, kind, size as u16, NODE_SIZE, SPLIT_PERCENT, MERGE_PERCENT);
    let name_index = index(TYPE_NAME, NameRecord::SIZE)?;
    let creation_index = match creation_order_indexed {
        true => Some(index(TYPE_CREATION_ORDER, CreationOrderRecord::SIZE)?),
        false => None,
    };
    Ok(DenseStorage { heap, name_index, creation_index })
}

/// Adds an attribute: its encoded message (without padding), header message flags and creation order.
/// Errors: one of this name is there, the shared flag, damage; nothing was written then.
pub fn insert(store: &Store, at: &DenseStorage, body: &[u8], flags: u8, creation_order: u32) -> Result<()> {
    let storage = Storage::open(store, at)?;
    let name = name_of(body, at.heap)?;
    if flags & FLAG_SHARED != 0 {
        return Err(storage.shared());
    }
    if storage.find(name)?.is_some() {
        return Err(storage.corrupt("an attribute of this name is there already"));
    }
    if let Some(index) = at.creation_index
        && BTree2::open(store, index)?.find(store, &mut compare_order(index, creation_order))?.is_some()
    {
        return Err(storage.corrupt("an attribute of this creation order is there already"));
    }
    let id = heap_id(&fractal_heap_edit::insert(store, at.heap, body)?, at.heap)?;
    // The blocks of the heap have changed.
    let storage = Storage::open(store, at)?;
    let attribute = CreationOrderRecord { id, flags, creation_order };
    let record = NameRecord { attribute, hash: lookup3(name, 0) }.encode();
    btree2_edit::insert(store, at.name_index, &record, &mut |r| storage.compare(r, name))?;
    if let Some(index) = at.creation_index {
        btree2_edit::insert(store, index, &attribute.encode(), &mut compare_order(index, creation_order))?;
    }
    Ok(())
}

/// Removes the attribute called `name` and returns it, if there is one.
pub fn remove(store: &Store, at: &DenseStorage, name: &[u8]) -> Result<Option<Stored>> {
    let storage = Storage::open(store, at)?;
    let Some((record, body)) = storage.find(name)? else { return Ok(None) };
    storage.check_order(&record)?;
    btree2_edit::remove(store, at.name_index, &mut |r| storage.compare(r, name))?;
    if let Some(index) = at.creation_index {
        btree2_edit::remove(store, index, &mut compare_order(index, record.creation_order))?;
    }
    if record.flags & FLAG_SHARED == 0 {
        fractal_heap_edit::remove(store, at.heap, &record.id)?;
    }
    Ok(Some(Stored { body, flags: record.flags, creation_order: record.creation_order }))
}

/// Puts the message `body` in the place of the attribute whose name it has; flags and creation order stay, but it is not
/// shared any more.
/// False when there is no such attribute.
pub fn replace(store: &Store, at: &DenseStorage, body: &[u8]) -> Result<bool> {
    let storage = Storage::open(store, at)?;
    let name = name_of(body, at.heap)?;
    let Some((old, old_body)) = storage.find(name)? else { return Ok(false) };
    storage.check_order(&old)?;
    let shared = old.flags & FLAG_SHARED != 0;
    if !shared && old_body.len() == body.len() && fractal_heap_edit::replace_same_size(store, at.heap, &old.id, body)? {
        return Ok(true);
    }
    let id = heap_id(&fractal_heap_edit::insert(store, at.heap, body)?, at.heap)?;
    let storage = Storage::open(store, at)?;
    let attribute = CreationOrderRecord { id, flags: old.flags & !FLAG_SHARED, ..old };
    let record = NameRecord { attribute, hash: lookup3(name, 0) }.encode();
    btree2_edit::replace(store, at.name_index, &mut |r| storage.compare(r, name), &record)?;
    if let Some(index) = at.creation_index {
        btree2_edit::replace(store, index, &mut compare_order(index, old.creation_order), &attribute.encode())?;
    }
    if !shared {
        fractal_heap_edit::remove(store, at.heap, &old.id)?;
    }
    Ok(true)
}

/// Gives back the storage with all attributes.
pub fn delete(store: &Store, at: &DenseStorage) -> Result<()> {
    Storage::open(store, at)?;
    btree2_edit::delete_tree(store, at.name_index)?;
    if let Some(index) = at.creation_index {
        btree2_edit::delete_tree(store, index)?;
    }
    fractal_heap_edit::delete_heap(store, at.heap)
}

fn heap_id(id: &[u8], heap: Address) -> Result<[u8; HEAP_ID_SIZE]> {
    <[u8; HEAP_ID_SIZE]>::try_from(id).map_err(|_| Error::corrupt(NAME, heap, format!("heap IDs of {} bytes", id.len())))
}

fn compare_order(index: Address, order: u32) -> impl FnMut(&[u8]) -> Result<Ordering> {
    move |record| Ok(CreationOrderRecord::decode(record, index)?.creation_order.cmp(&order))
}

/// The structures of one object's attributes, open for reading.
struct Storage<'s> {
    store: &'s Store,
    at: DenseStorage,
    heap: Arc<FractalHeap>,
}

impl<'s> Storage<'s> {
    /// Opens and checks all structures. Errors: damage; a heap with filters.
    fn open(store: &'s Store, at: &DenseStorage) -> Result<Self> {
        open_index(store, at.name_index, TYPE_NAME, NameRecord::SIZE)?;
        if let Some(index) = at.creation_index {
            open_index(store, index, TYPE_CREATION_ORDER, CreationOrderRecord::SIZE)?;
        }
        let heap = FractalHeap::open(store, at.heap)?;
        if heap.header().filters.is_some() {
            return Err(Error::unsupported(NAME, at.heap, "attributes in a heap with I/O filters cannot be changed"));
        }
        if usize::from(heap.header().id_length) != HEAP_ID_SIZE {
            return Err(Error::corrupt(NAME, at.heap, format!("heap IDs of {} bytes", heap.header().id_length)));
        }
        Ok(Storage { store, at: *at, heap })
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(NAME, self.at.heap, detail)
    }

    fn shared(&self) -> Error {
        Error::unsupported(NAME, self.at.heap, "an attribute in the shared message heap cannot be changed")
    }

    /// The message of a record.
    fn body(&self, record: &CreationOrderRecord) -> Result<Vec<u8>> {
        if record.flags & FLAG_SHARED != 0 {
            return SharedMessages::attribute(self.store, &record.id);
        }
        self.heap.object(self.store, &record.id)
    }

    /// Order of a record of the name index relative to `name`.
    fn compare(&self, record: &[u8], name: &[u8]) -> Result<Ordering> {
        let r = NameRecord::decode(record, self.at.name_index)?;
        match r.hash.cmp(&lookup3(name, 0)) {
            Ordering::Equal => Ok(name_of(&self.body(&r.attribute)?, self.at.heap)?.cmp(name)),
            other => Ok(other),
        }
    }

    /// Record and message of the attribute called `name`.
    fn find(&self, name: &[u8]) -> Result<Option<(CreationOrderRecord, Vec<u8>)>> {
        let tree = BTree2::open(self.store, self.at.name_index)?;
        let Some(record) = tree.find(self.store, &mut |r| self.compare(r, name))? else { return Ok(None) };
        let record = NameRecord::decode(&record, self.at.name_index)?.attribute;
        Ok(Some((record, self.body(&record)?)))
    }

    /// The creation order index, if there is one, has the attribute.
    fn check_order(&self, wanted: &CreationOrderRecord) -> Result<()> {
        let Some(index) = self.at.creation_index else { return Ok(()) };
        let found = BTree2::open(self.store, index)?.find(self.store, &mut compare_order(index, wanted.creation_order))?;
        let found = found.map(|r| CreationOrderRecord::decode(&r, index)).transpose()?;
        if found.is_some_and(|r| r.id == wanted.id) {
            Ok(())
        } else {
            Err(self.corrupt("the creation order index does not have the attribute"))
        }
    }
}

#[cfg(test)]
mod tests;
