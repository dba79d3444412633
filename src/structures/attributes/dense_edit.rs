//! Changes to densely stored attributes: attribute messages in a fractal heap, B-trees that index
//! them.
//!
//! ```text
//! name index (type 8):            hash of name -> creation order record
//! creation order index (type 9):  heap ID | message flags | creation order
//! fractal heap:                   heap ID -> attribute message
//! ```
//!
//! The name index is sorted by hash, then name. Attributes in the file's shared message heap stay
//! there (see [`crate::structures::shared_messages::edit`]). The caller updates the attribute info
//! message. H5.format.4.0, "Attribute Info Message".

use super::dense::ATTRIBUTES;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::attribute_index::{CreationOrderRecord, FLAG_SHARED, NameRecord};
use crate::format::message::attribute::name_of;
use crate::meta::Store;
use crate::structures::btree2::{self, BTree2};
use crate::structures::dense_storage::DenseStorage;
use crate::structures::fractal_heap::{self, FractalHeap};
use crate::structures::shared_messages::SharedMessages;
use std::cmp::Ordering;
use std::sync::Arc;

/// A removed attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Attribute message.
    pub body: Vec<u8>,
    /// Header message flags.
    pub flags: u8,
    /// Creation order on the object.
    pub creation_order: u32,
}

/// Creates empty storage.
pub fn create(store: &Store, creation_order_indexed: bool) -> Result<DenseStorage> {
    ATTRIBUTES.create(store, creation_order_indexed)
}

/// Inserts an attribute: its encoded message without padding, header message flags and creation
/// order. Errors, before anything is written: the name or creation order exists, the shared flag,
/// damage.
pub fn insert(store: &Store, at: &DenseStorage, body: &[u8], flags: u8, creation_order: u32) -> Result<()> {
    let storage = Storage::open(store, at)?;
    let name = name_of(body, at.heap)?;
    if flags & FLAG_SHARED != 0 {
        return Err(storage.shared());
    }
    if storage.find(name)?.is_some() {
        return Err(storage.corrupt("the object has an attribute of this name already"));
    }
    if let Some(index) = at.creation_index
        && BTree2::open(store, index)?.find(store, &mut compare_order(index, creation_order))?.is_some()
    {
        return Err(storage.corrupt("the object has an attribute of this creation order already"));
    }
    let id = ATTRIBUTES.insert_message(store, at.heap, body)?;
    // The heap has changed.
    let storage = Storage::open(store, at)?;
    let attribute = CreationOrderRecord { id, flags, creation_order };
    let record = NameRecord { attribute, hash: lookup3(name, 0) }.encode();
    btree2::edit::insert(store, at.name_index, &record, &mut |r| storage.compare(r, name))?;
    if let Some(index) = at.creation_index {
        btree2::edit::insert(store, index, &attribute.encode(), &mut compare_order(index, creation_order))?;
    }
    Ok(())
}

/// Removes and returns the attribute `name`, if the object has it.
pub fn remove(store: &Store, at: &DenseStorage, name: &[u8]) -> Result<Option<Stored>> {
    let storage = Storage::open(store, at)?;
    let Some((record, body)) = storage.find(name)? else { return Ok(None) };
    storage.check_order(&record)?;
    btree2::edit::remove(store, at.name_index, &mut |r| storage.compare(r, name))?;
    if let Some(index) = at.creation_index {
        btree2::edit::remove(store, index, &mut compare_order(index, record.creation_order))?;
    }
    if record.flags & FLAG_SHARED == 0 {
        fractal_heap::edit::remove(store, at.heap, &record.id)?;
    }
    Ok(Some(Stored { body, flags: record.flags, creation_order: record.creation_order }))
}

/// Replaces the attribute that has the name in the message `body`; it keeps its flags and creation
/// order, except that it is not shared afterwards. False if the object has no such attribute.
pub fn replace(store: &Store, at: &DenseStorage, body: &[u8]) -> Result<bool> {
    let storage = Storage::open(store, at)?;
    let name = name_of(body, at.heap)?;
    let Some((old, old_body)) = storage.find(name)? else { return Ok(false) };
    storage.check_order(&old)?;
    let shared = old.flags & FLAG_SHARED != 0;
    if !shared && old_body.len() == body.len() && fractal_heap::edit::replace_same_size(store, at.heap, &old.id, body)? {
        return Ok(true);
    }
    let id = ATTRIBUTES.insert_message(store, at.heap, body)?;
    let storage = Storage::open(store, at)?;
    let attribute = CreationOrderRecord { id, flags: old.flags & !FLAG_SHARED, ..old };
    let record = NameRecord { attribute, hash: lookup3(name, 0) }.encode();
    btree2::edit::replace(store, at.name_index, &mut |r| storage.compare(r, name), &record)?;
    if let Some(index) = at.creation_index {
        btree2::edit::replace(store, index, &mut compare_order(index, old.creation_order), &attribute.encode())?;
    }
    if !shared {
        fractal_heap::edit::remove(store, at.heap, &old.id)?;
    }
    Ok(true)
}

/// Frees the storage with all attributes.
pub fn delete(store: &Store, at: &DenseStorage) -> Result<()> {
    ATTRIBUTES.delete(store, at)
}

fn compare_order(index: Address, order: u32) -> impl FnMut(&[u8]) -> Result<Ordering> {
    move |record| Ok(CreationOrderRecord::decode(record, index)?.creation_order.cmp(&order))
}

/// Open structures of one object's attributes.
struct Storage<'s> {
    store: &'s Store,
    at: DenseStorage,
    heap: Arc<FractalHeap>,
}

impl<'s> Storage<'s> {
    /// Opens and checks all structures. Errors: damage; a heap with filters.
    fn open(store: &'s Store, at: &DenseStorage) -> Result<Self> {
        Ok(Storage { store, at: *at, heap: ATTRIBUTES.open(store, at)? })
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(ATTRIBUTES.name, self.at.heap, detail)
    }

    fn shared(&self) -> Error {
        Error::unsupported(ATTRIBUTES.name, self.at.heap, "an attribute in the shared message heap cannot be changed")
    }

    /// The attribute message of a record.
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

    /// Record and message of the attribute `name`.
    fn find(&self, name: &[u8]) -> Result<Option<(CreationOrderRecord, Vec<u8>)>> {
        let tree = BTree2::open(self.store, self.at.name_index)?;
        let Some(record) = tree.find(self.store, &mut |r| self.compare(r, name))? else { return Ok(None) };
        let record = NameRecord::decode(&record, self.at.name_index)?.attribute;
        Ok(Some((record, self.body(&record)?)))
    }

    /// Errors: the creation order index, if any, lacks the attribute.
    fn check_order(&self, wanted: &CreationOrderRecord) -> Result<()> {
        let Some(index) = self.at.creation_index else { return Ok(()) };
        let found = BTree2::open(self.store, index)?.find(self.store, &mut compare_order(index, wanted.creation_order))?;
        let found = found.map(|r| CreationOrderRecord::decode(&r, index)).transpose()?;
        if found.is_some_and(|r| r.id == wanted.id) { Ok(()) } else { Err(self.corrupt("the creation order index lacks the attribute")) }
    }
}

#[cfg(test)]
#[path = "dense_edit_tests.rs"]
mod tests;
