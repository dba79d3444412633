//! Insertion and removal of objects in global heap collections.
//!
//! ```text
//! collection: header | object | object | ... | free space (object 0) to the end
//! ```
//!
//! As libhdf5 does it (H5HG.c): a new object takes the front of the free space and the index behind the
//! highest; a removed one is closed up; a collection is freed with its last object. Reference counts are
//! not counts (libhdf5 writes 0): removal does not ask them.

use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::global_heap::{Directory, NAME, ObjectHeader, Position, SIZE_MIN, decode_header, encode_header, header_size};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;

/// Objects are not added to collections larger than this (libhdf5 makes those for one large object), bytes.
const SHARED_MAX: u64 = 64 << 10;
/// Bytes of object headers read at once, and of data moved at once.
const WINDOW: u64 = 4096;
const PIECE: u64 = 1 << 20;
/// Collections remembered for their free space.
const KNOWN_MAX: usize = 16;

/// Bytes an object takes, header and padding included.
fn taken(size: u64, ctx: &Context) -> Option<u64> {
    size.checked_next_multiple_of(8)?.checked_add(header_size(ctx) as u64)
}

/// Collections that have free space, as far as this process has met them.
#[derive(Debug, Clone, Default)]
pub struct FreeSpace {
    known: Vec<(Address, u64)>,
}

impl FreeSpace {
    /// Tells that `collection` has `free` bytes, none if it is gone.
    fn set(&mut self, collection: Address, free: u64, ctx: &Context) {
        self.known.retain(|&(address, _)| address != collection);
        // Less than two headers' worth is not looked for.
        if free >= (header_size(ctx) as u64).saturating_mul(2) {
            self.known.push((collection, free));
        }
        if self.known.len() > KNOWN_MAX {
            let least = self.known.iter().enumerate().min_by_key(|(_, (_, free))| *free).map(|(i, _)| i);
            self.known.remove(least.unwrap_or(0));
        }
    }
}

/// Stores `object`; returns its collection and its index. It goes to a collection that `space` knows if it fits there,
/// else to a new one. Errors: I/O, or the file's widths are too small.
pub fn insert(store: &Store, space: &mut FreeSpace, object: &[u8]) -> Result<(Address, u32)> {
    let ctx = store.ctx();
    let too_large = || Error::limit(NAME, Address::UNDEF, format!("an object of {} bytes", object.len()));
    let need = taken(object.len() as u64, ctx).ok_or_else(too_large)?;
    while let Some(&(collection, free)) = space.known.iter().find(|(_, free)| *free >= need) {
        match append(store, collection, object, need)? {
            Some((index, free)) => {
                space.set(collection, free, ctx);
                return Ok((collection, u32::from(index)));
            }
            None => space.known.retain(|k| *k != (collection, free)),
        }
    }
    let header = header_size(ctx) as u64;
    let size = need.checked_add(header).ok_or_else(too_large)?.max(SIZE_MIN);
    if ctx.sizeof_size < 8 && size >> (u32::from(ctx.sizeof_size) * 8) != 0 {
        return Err(too_large());
    }
    let mut bytes = encode_header(size, ctx);
    bytes.extend(encoded(1, object, size.saturating_sub(header), ctx));
    // What is free does not show what was there before.
    bytes.resize(bytes.len().max(usize::try_from(SIZE_MIN).unwrap_or(0)), 0);
    let collection = store.put(&bytes, SpaceKind::GlobalHeap)?;
    space.set(collection, size.saturating_sub(header).saturating_sub(need), ctx);
    Ok((collection, 1))
}

/// An object and the header of what is free behind it, of `room` bytes.
fn encoded(index: u16, object: &[u8], room: u64, ctx: &Context) -> Vec<u8> {
    let size = object.len() as u64;
    let mut bytes = ObjectHeader { index, reference_count: 0, size }.to_bytes(ctx);
    bytes.extend_from_slice(object);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(free_space(room.saturating_sub(bytes.len() as u64), ctx));
    bytes
}

/// The header of `size` bytes of free space; fewer than a header are zeros.
fn free_space(size: u64, ctx: &Context) -> Vec<u8> {
    if size < header_size(ctx) as u64 {
        return vec![0; usize::try_from(size).unwrap_or(0)];
    }
    ObjectHeader { index: 0, reference_count: 0, size }.to_bytes(ctx)
}

/// What a collection holds.
struct Contents {
    size: u64,
    /// In the order stored.
    objects: Vec<Position>,
    /// Bytes of all of them and of the collection's header.
    used: u64,
    /// They follow one another without a gap.
    dense: bool,
}

/// Reads the object headers. Errors: damage.
fn contents(store: &Store, collection: Address) -> Result<Contents> {
    let ctx = store.ctx();
    let header = header_size(ctx) as u64;
    let (mut window, mut start) = (store.read_upto(collection, SIZE_MIN, NAME)?, 0u64);
    let size = decode_header(&window, collection, ctx)?;
    let directory = Directory::walk(size, ctx, &mut |offset| {
        let inside = |w: &[u8], start: u64| {
            let at = usize::try_from(offset.checked_sub(start)?).ok()?;
            w.get(at..at.checked_add(header_size(ctx))?).map(|b| ObjectHeader::decode(b, collection, ctx))
        };
        if let Some(object) = inside(&window, start) {
            return object.map(Some);
        }
        let Some(at) = collection.checked_add(offset) else { return Ok(None) };
        (window, start) = (store.read_upto(at, WINDOW, NAME)?, offset);
        inside(&window, start).transpose()
    })?;
    let end = collection.checked_add(size).map(|a| a.0);
    if directory.damage.is_some() || end.is_none_or(|e| e > store.file_len().unwrap_or(0)) {
        return Err(Error::corrupt(NAME, collection, "damaged: it cannot be changed"));
    }
    let mut objects = directory.positions;
    objects.sort_by_key(|p| p.start);
    let (mut used, mut dense) = (header, true);
    for p in &objects {
        dense &= p.start == used.saturating_add(header);
        used = used.saturating_add(taken(p.size, ctx).unwrap_or(u64::MAX));
    }
    Ok(Contents { size, objects, used, dense })
}

fn at(collection: Address, offset: u64) -> Result<Address> {
    collection.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, collection, "it lies beyond 2^64"))
}

/// Adds an object to a collection, if that has room and is such as libhdf5 leaves it.
/// Returns the object's index, and what is free then.
fn append(store: &Store, collection: Address, object: &[u8], need: u64) -> Result<Option<(u16, u64)>> {
    let ctx = store.ctx();
    let Ok(c) = contents(store, collection) else { return Ok(None) };
    let room = c.size.saturating_sub(c.used);
    if c.size > SHARED_MAX || !c.dense || room < need {
        return Ok(None);
    }
    let highest = c.objects.iter().map(|p| p.index).max().unwrap_or(0);
    let unused = || (1..=u16::MAX).find(|i| c.objects.iter().all(|p| p.index != *i));
    let Some(index) = highest.checked_add(1).or_else(unused) else { return Ok(None) };
    store.write(at(collection, c.used)?, &encoded(index, object, room, ctx))?;
    Ok(Some((index, room.saturating_sub(need))))
}

/// What was removed of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// There were no such objects, or what is left could not be moved together now.
    Nothing,
    /// Some of its objects.
    Objects,
    /// The collection is gone with its last object.
    Collection,
}

/// Removes object `index` of `collection`; false if there is none. The collection is freed with its last object, and
/// is forgotten by `space`. Errors: the collection is damaged.
pub fn remove(store: &Store, space: &mut FreeSpace, collection: Address, index: u32) -> Result<bool> {
    Ok(remove_some(store, space, collection, &[index], false)? != Removed::Nothing)
}

/// Removes the objects `indexes` (ascending) of `collection`; those that are not there do not matter. `whole`: only if no others
/// are left. Errors: the collection is damaged.
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
        let (from, size) = (p.start.saturating_sub(header), taken(p.size, ctx).unwrap_or(u64::MAX));
        if from != end {
            move_down(store, collection, from, end, size)?;
        }
        end = end.saturating_add(size);
    }
    store.write(at(collection, end)?, &free_space(c.size.saturating_sub(end), ctx))?;
    space.set(collection, if c.size > SHARED_MAX { 0 } else { c.size.saturating_sub(end) }, ctx);
    Ok(Removed::Objects)
}

/// Moves `size` bytes from offset `from` of a collection to offset `to`, which is less.
fn move_down(store: &Store, collection: Address, from: u64, to: u64, size: u64) -> Result<()> {
    let mut done = 0;
    while done < size {
        let piece = size.saturating_sub(done).min(PIECE);
        let bytes = store.read(at(collection, from.saturating_add(done))?, piece, NAME)?;
        store.write(at(collection, to.saturating_add(done))?, &bytes)?;
        done = done.saturating_add(piece);
    }
    Ok(())
}

#[cfg(test)]
#[path = "global_heap_edit_tests.rs"]
mod tests;
