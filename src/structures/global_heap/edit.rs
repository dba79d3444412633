//! Insertion and removal of objects in global heap collections.
//!
//! ```text
//! collection: header | object | object | ... | free space (object 0) to the end
//! ```
//!
//! As in libhdf5 (H5HG.c): a new object takes the front of the free space and the highest index
//! plus one; after a removal later objects move down; a collection is freed with its last object.
//! libhdf5 writes 0 as reference count, so a removal ignores it.

use super::load;
use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::global_heap::{NAME, ObjectHeader, Position, SIZE_MIN, encode_header, header_size};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;

/// Largest collection that objects are added to, bytes; libhdf5 creates larger ones for one object.
const SHARED_COLLECTION_BYTES_MAX: u64 = 64 << 10;
/// Bytes of objects moved at once.
const MOVE_BYTES: u64 = 1 << 20;
/// Collections tracked for their free space.
const COLLECTIONS_MAX: usize = 16;

/// Bytes of an object of `size` bytes with header and padding.
fn object_size(size: u64, ctx: &Context) -> Option<u64> {
    size.checked_next_multiple_of(8)?.checked_add(header_size(ctx) as u64)
}

/// Collections with free space that this process has seen.
#[derive(Debug, Clone, Default)]
pub struct FreeSpace {
    /// Collection, free bytes.
    collections: Vec<(Address, u64)>,
}

impl FreeSpace {
    /// Records that `collection` has `free` bytes: 0 if it was freed.
    fn set(&mut self, collection: Address, free: u64, ctx: &Context) {
        self.collections.retain(|&(address, _)| address != collection);
        // Smaller free space is not worth a search.
        if free >= (header_size(ctx) as u64).saturating_mul(2) {
            self.collections.push((collection, free));
        }
        if self.collections.len() > COLLECTIONS_MAX {
            let least = self.collections.iter().enumerate().min_by_key(|(_, (_, free))| *free).map(|(i, _)| i);
            self.collections.remove(least.unwrap_or(0));
        }
    }
}

/// Inserts `object` into a collection of `space` with room for it, else into a new one; returns its
/// collection and its index. Errors: I/O, or the file's lengths are too narrow.
pub fn insert(store: &Store, space: &mut FreeSpace, object: &[u8]) -> Result<(Address, u32)> {
    let ctx = store.ctx();
    let too_large = || Error::limit(NAME, Address::UNDEF, format!("an object of {} bytes", object.len()));
    let need = object_size(object.len() as u64, ctx).ok_or_else(too_large)?;
    while let Some(&(collection, free)) = space.collections.iter().find(|(_, free)| *free >= need) {
        match append(store, collection, object, need)? {
            Some((index, free)) => {
                space.set(collection, free, ctx);
                return Ok((collection, u32::from(index)));
            }
            None => space.collections.retain(|k| *k != (collection, free)),
        }
    }
    let header = header_size(ctx) as u64;
    let size = need.checked_add(header).ok_or_else(too_large)?.max(SIZE_MIN);
    if ctx.sizeof_size < 8 && size >> (u32::from(ctx.sizeof_size) * 8) != 0 {
        return Err(too_large());
    }
    let mut bytes = encode_header(size, ctx);
    bytes.extend(encoded(1, object, size.saturating_sub(header), ctx));
    // Zeros, so that the free space exposes no earlier bytes.
    bytes.resize(bytes.len().max(usize::try_from(SIZE_MIN).unwrap_or(0)), 0);
    let collection = store.put(&bytes, SpaceKind::GlobalHeap)?;
    space.set(collection, size.saturating_sub(header).saturating_sub(need), ctx);
    Ok((collection, 1))
}

/// Encodes an object and the free space after it, for `room` bytes.
fn encoded(index: u16, object: &[u8], room: u64, ctx: &Context) -> Vec<u8> {
    let size = object.len() as u64;
    let mut bytes = ObjectHeader { index, reference_count: 0, size }.to_bytes(ctx);
    bytes.extend_from_slice(object);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(free_space(room.saturating_sub(bytes.len() as u64), ctx));
    bytes
}

/// Encodes the header of `size` bytes of free space; fewer bytes than a header are zeros.
fn free_space(size: u64, ctx: &Context) -> Vec<u8> {
    if size < header_size(ctx) as u64 {
        return vec![0; usize::try_from(size).unwrap_or(0)];
    }
    ObjectHeader { index: 0, reference_count: 0, size }.to_bytes(ctx)
}

/// Objects of a collection.
struct Contents {
    size: u64,
    /// In the order of their offsets.
    objects: Vec<Position>,
    /// Bytes of all objects and of the collection's header.
    used: u64,
    /// True if the objects follow each other without a gap.
    dense: bool,
}

/// Reads the object headers. Errors: damage, which forbids a change.
fn contents(store: &Store, collection: Address) -> Result<Contents> {
    let ctx = store.ctx();
    let header = header_size(ctx) as u64;
    let (size, directory) = load::directory(store, collection)?;
    let end = collection.checked_add(size).map(|a| a.0);
    if directory.damage.is_some() || end.is_none_or(|e| e > store.file_len().unwrap_or(0)) {
        return Err(Error::corrupt(NAME, collection, "damaged: it cannot be changed"));
    }
    let mut objects = directory.positions;
    objects.sort_by_key(|p| p.start);
    let (mut used, mut dense) = (header, true);
    for p in &objects {
        dense &= p.start == used.saturating_add(header);
        used = used.saturating_add(object_size(p.size, ctx).unwrap_or(u64::MAX));
    }
    Ok(Contents { size, objects, used, dense })
}

fn at(collection: Address, offset: u64) -> Result<Address> {
    collection.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, collection, "it exceeds 2^64 bytes"))
}

/// Appends an object to a collection that has room and the layout that libhdf5 writes. Returns the
/// object's index and the free bytes left; `None` if the collection is not suitable.
fn append(store: &Store, collection: Address, object: &[u8], need: u64) -> Result<Option<(u16, u64)>> {
    let ctx = store.ctx();
    let Ok(c) = contents(store, collection) else { return Ok(None) };
    let room = c.size.saturating_sub(c.used);
    if c.size > SHARED_COLLECTION_BYTES_MAX || !c.dense || room < need {
        return Ok(None);
    }
    let highest = c.objects.iter().map(|p| p.index).max().unwrap_or(0);
    let unused = || (1..=u16::MAX).find(|i| c.objects.iter().all(|p| p.index != *i));
    let Some(index) = highest.checked_add(1).or_else(unused) else { return Ok(None) };
    store.write(at(collection, c.used)?, &encoded(index, object, room, ctx))?;
    Ok(Some((index, room.saturating_sub(need))))
}

/// Result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// No object was removed: none exists, or others would be left.
    Nothing,
    /// Some objects of the collection.
    Objects,
    /// The last objects, and with them the collection.
    Collection,
}

/// Removes the objects `indexes` (ascending) of `collection`; ignores indexes that do not exist.
/// With `whole`, removes nothing unless no object is left. Errors: the collection is damaged.
pub fn remove_some(store: &Store, space: &mut FreeSpace, collection: Address, indexes: &[u32], whole: bool) -> Result<Removed> {
    let ctx = store.ctx();
    let header = header_size(ctx) as u64;
    let c = contents(store, collection)?;
    let (gone, stay): (Vec<Position>, Vec<Position>) =
        c.objects.iter().copied().partition(|p| indexes.binary_search(&u32::from(p.index)).is_ok());
    if gone.is_empty() || (whole && !stay.is_empty()) {
        return Ok(Removed::Nothing);
    }
    if stay.is_empty() {
        space.set(collection, 0, ctx);
        store.free_kind(collection, c.size, SpaceKind::GlobalHeap)?;
        return Ok(Removed::Collection);
    }
    let mut end = header;
    for p in &stay {
        let (from, size) = (p.start.saturating_sub(header), object_size(p.size, ctx).unwrap_or(u64::MAX));
        if from != end {
            move_down(store, collection, from, end, size)?;
        }
        end = end.saturating_add(size);
    }
    store.write(at(collection, end)?, &free_space(c.size.saturating_sub(end), ctx))?;
    space.set(collection, if c.size > SHARED_COLLECTION_BYTES_MAX { 0 } else { c.size.saturating_sub(end) }, ctx);
    Ok(Removed::Objects)
}

/// Moves `size` bytes from offset `from` of a collection to the smaller offset `to`.
fn move_down(store: &Store, collection: Address, from: u64, to: u64, size: u64) -> Result<()> {
    let mut done = 0;
    while done < size {
        let piece = size.saturating_sub(done).min(MOVE_BYTES);
        let bytes = store.read(at(collection, from.saturating_add(done))?, piece, NAME)?;
        store.write(at(collection, to.saturating_add(done))?, &bytes)?;
        done = done.saturating_add(piece);
    }
    Ok(())
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
