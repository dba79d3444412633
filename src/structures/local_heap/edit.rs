//! Creation of a local heap, insertion and removal of strings.
//!
//! ```text
//! header:       first free block | bytes and address of the data segment
//! data segment: strings and free blocks, at multiples of 8
//! free block:   offset of the next one (1: none) | its bytes | ...
//! ```
//!
//! As in libhdf5 (H5HL.c): a string takes the first free block that fits, unless the remainder
//! would be too small for a free block; a full segment moves to one twice as large; adjacent free
//! blocks are joined; a segment with more than half of its bytes free at the end is shortened.

use super::load::{ALIGN_BYTES, header_size, load_checked};
use super::names::HeapNames;
use crate::base::{Address, Error, Result, limits};
use crate::format::Context;
use crate::format::local_heap::{FREE_NULL, FreeBlock, Header, NAME};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::structures::window::Window;
use std::collections::BTreeMap;

/// Shortest length that a segment is shortened to, bytes.
const SEGMENT_BYTES_MIN: u64 = 128;
/// Free blocks considered in one operation; later ones in the list stay as they are.
const FREE_BLOCKS_MAX: usize = 1024;
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Bytes of the smallest free block.
fn free_min(ctx: &Context) -> u64 {
    u64::from(ctx.sizeof_size).saturating_mul(2).next_multiple_of(ALIGN_BYTES)
}

/// Bytes allocated for a string of `len` bytes and its NUL.
fn string_size(len: usize) -> u64 {
    (len as u64).saturating_add(1).checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX)
}

/// Writes a heap without strings, with room for `min_size` bytes of strings; returns its address.
pub fn create(store: &Store, min_size: u64) -> Result<Address> {
    let ctx = store.ctx();
    let room = min_size.max(free_min(ctx)).checked_next_multiple_of(ALIGN_BYTES).filter(|&n| n <= limits::METADATA_BLOCK_MAX);
    let room = room.ok_or_else(|| Error::limit(NAME, Address::UNDEF, format!("a data segment of {min_size} bytes")))?;
    let total = header_size(ctx).saturating_add(room);
    let address = store.allocate(total, SpaceKind::Metadata)?;
    let segment = Address(address.0.saturating_add(header_size(ctx)));
    let mut bytes = Header { segment_size: room, free_list: 0, segment }.encode(ctx);
    bytes.resize(usize::try_from(header_size(ctx)).unwrap_or(bytes.len()), 0);
    bytes.extend(FreeBlock { next: FREE_NULL, size: room }.encode(ctx));
    bytes.resize(usize::try_from(total).unwrap_or(bytes.len()), 0);
    store.write(address, &bytes)?;
    Ok(address)
}

/// Inserts `string` and a NUL; returns its offset in the data segment. Errors, before anything is
/// changed: the string holds a NUL or is longer than `HEAP_NAME_MAX`; damage.
pub fn insert(store: &Store, heap: Address, string: &[u8]) -> Result<u64> {
    if string.contains(&0) || string.len() > limits::HEAP_NAME_MAX {
        return Err(Error::limit(NAME, heap, format!("a string of {} bytes, or with a NUL", string.len())));
    }
    let mut edit = Edit::new(store, heap)?;
    let need = string_size(string.len());
    let offset = match edit.take(need) {
        Some(offset) => offset,
        None => edit.grow(need)?,
    };
    let mut bytes = string.to_vec();
    bytes.resize(usize::try_from(need).unwrap_or(usize::MAX), 0);
    store.write(edit.at(offset)?, &bytes)?;
    edit.finish()?;
    Ok(offset)
}

/// Frees the string at `offset`. Does nothing at offset 0, whose empty string stays, and in free
/// blocks.
pub fn remove(store: &Store, heap: Address, offset: u64) -> Result<()> {
    if offset == 0 {
        return Ok(());
    }
    let mut edit = Edit::new(store, heap)?;
    let left = edit.header.segment_size.saturating_sub(offset);
    if left == 0 || !offset.is_multiple_of(ALIGN_BYTES) {
        return Err(Error::corrupt(NAME, heap, format!("offset {offset} of a string in a data segment of {}", edit.header.segment_size)));
    }
    let length = HeapNames::of(heap, &edit.header).length(store, offset)?;
    let size = string_size(length).min(left);
    if edit.release(offset, size) {
        edit.shrink()?;
        edit.finish()?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    offset: u64,
    size: u64,
}

/// Errors: the list of free blocks of `heap` is damaged.
pub fn check_free_list(store: &Store, heap: Address) -> Result<()> {
    Edit::new(store, heap).map(drop)
}

/// One change of a heap: its header and the first entries of its free list.
struct Edit<'s> {
    store: &'s Store,
    address: Address,
    header: Header,
    stored: Header,
    free: Vec<Free>,
    /// Offset of the first free block after those in `free`.
    rest: u64,
    /// Free blocks as stored, by offset.
    stored_blocks: BTreeMap<u64, FreeBlock>,
}

impl<'s> Edit<'s> {
    fn new(store: &'s Store, address: Address) -> Result<Self> {
        let header = load_checked(store, address)?;
        let stored = header.clone();
        let mut edit = Edit { store, address, header, stored, free: Vec::new(), rest: FREE_NULL, stored_blocks: BTreeMap::new() };
        edit.load_free_list()?;
        Ok(edit)
    }

    /// Reads the list of free blocks, up to [`FREE_BLOCKS_MAX`].
    fn load_free_list(&mut self) -> Result<()> {
        let ctx = self.store.ctx();
        let bad = |at: u64| Error::corrupt(NAME, self.address, format!("free block at offset {at}"));
        let block_size = usize::from(ctx.sizeof_size).saturating_mul(2);
        let mut window = Window::new(self.store, self.header.segment, NAME);
        let mut next = self.header.free_list;
        while next != FREE_NULL && self.free.len() < FREE_BLOCKS_MAX {
            let left = self.header.segment_size.checked_sub(next).filter(|&l| l >= free_min(ctx)).ok_or_else(|| bad(next))?;
            let bytes = window.get(next, block_size)?.ok_or_else(|| bad(next))?;
            let block = FreeBlock::decode(bytes, self.address, ctx)?;
            let valid = block.size >= free_min(ctx) && block.size <= left && next.is_multiple_of(ALIGN_BYTES) && block.next != 0;
            if !valid || self.stored_blocks.insert(next, block).is_some() {
                return Err(bad(next));
            }
            self.free.push(Free { offset: next, size: block.size });
            next = block.next;
        }
        self.rest = next;
        // Overlapping blocks would be allocated twice.
        let mut end = 0;
        for (&offset, block) in &self.stored_blocks {
            if offset < end {
                return Err(bad(offset));
            }
            end = offset.saturating_add(block.size);
        }
        Ok(())
    }

    /// Address of `offset` of the data segment.
    fn at(&self, offset: u64) -> Result<Address> {
        self.header.segment.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, self.address, "the data segment exceeds 2^64 bytes"))
    }

    /// Allocates `need` bytes of the first free block that fits; returns their offset.
    fn take(&mut self, need: u64) -> Option<u64> {
        let min = free_min(self.store.ctx());
        let fits = |f: &Free| f.size == need || f.size.checked_sub(need).is_some_and(|rest| rest >= min);
        let i = self.free.iter().position(fits)?;
        let block = self.free.get_mut(i)?;
        let offset = block.offset;
        block.offset = block.offset.saturating_add(need);
        block.size = block.size.saturating_sub(need);
        if block.size == 0 {
            self.free.remove(i);
        }
        Some(offset)
    }

    /// Moves the data segment to a larger one and allocates `need` bytes of it; returns their
    /// offset.
    fn grow(&mut self, need: u64) -> Result<u64> {
        let ctx = *self.store.ctx();
        let old = self.header.segment_size;
        let tail = self.free.iter().position(|f| f.offset.saturating_add(f.size) == old);
        let mut more = need.max(old).checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX);
        if tail.is_none() && more < need.saturating_add(free_min(&ctx)) {
            more = need;
        }
        let base = old.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX);
        let new = base.checked_add(more).filter(|&n| ctx.sizeof_size >= 8 || n >> (u32::from(ctx.sizeof_size) * 8) == 0);
        let new = new.ok_or_else(|| Error::limit(NAME, self.address, "a larger data segment needs wider lengths"))?;
        let segment = self.store.allocate(new, SpaceKind::Metadata)?;
        if let Err(e) = self.copy(segment, old, new) {
            self.store.free(segment, new)?;
            return Err(e);
        }
        if old > 0 {
            self.store.free(self.header.segment, old)?;
        }
        (self.header.segment, self.header.segment_size) = (segment, new);
        match tail.and_then(|i| self.free.get_mut(i)) {
            Some(block) => block.size = new.saturating_sub(block.offset),
            None => self.free.insert(0, Free { offset: base, size: new.saturating_sub(base) }),
        }
        // The remainder of the last block may be too short for a free block.
        let end = self.free.iter_mut().find(|f| f.offset.saturating_add(f.size) == new);
        let block = end.ok_or_else(|| Error::corrupt(NAME, self.address, "no free block at its end"))?;
        let offset = block.offset;
        block.offset = offset.saturating_add(need);
        block.size = block.size.saturating_sub(need);
        self.free.retain(|f| f.size >= free_min(&ctx));
        Ok(offset)
    }

    /// Copies the segment of `old` bytes to `to`, zero-filled to `new` bytes.
    fn copy(&self, to: Address, old: u64, new: u64) -> Result<()> {
        let mut done = 0;
        while done < new {
            let piece = new.saturating_sub(done).min(COPY_BYTES);
            let present = old.saturating_sub(done).min(piece);
            let mut bytes = if present > 0 { self.store.read(self.at(done)?, present, NAME)? } else { Vec::new() };
            bytes.resize(usize::try_from(piece).unwrap_or(bytes.len()), 0);
            self.store.write(Address(to.0.saturating_add(done)), &bytes)?;
            done = done.saturating_add(piece);
        }
        Ok(())
    }

    /// Adds `size` bytes at `offset` to the free list. False if some of them are free already, or
    /// if they are too few for a free block.
    fn release(&mut self, offset: u64, size: u64) -> bool {
        let end = offset.saturating_add(size);
        if self.free.iter().any(|f| f.offset < end && offset < f.offset.saturating_add(f.size)) {
            return false;
        }
        let before = self.free.iter().position(|f| f.offset.saturating_add(f.size) == offset);
        let after = self.free.iter().position(|f| f.offset == end);
        let tail = after.and_then(|i| self.free.get(i)).map_or(0, |f| f.size);
        match (before.and_then(|i| self.free.get_mut(i)), after) {
            (Some(f), _) => {
                f.size = f.size.saturating_add(size).saturating_add(tail);
                if let Some(i) = after {
                    self.free.remove(i);
                }
            }
            (None, Some(i)) => {
                if let Some(f) = self.free.get_mut(i) {
                    *f = Free { offset, size: size.saturating_add(tail) };
                }
            }
            // Bytes too few for a free block are lost until adjacent bytes are freed.
            (None, None) if size >= free_min(self.store.ctx()) => self.free.insert(0, Free { offset, size }),
            (None, None) => return false,
        }
        true
    }

    /// Frees the end of the segment if more than half of the segment is free there.
    fn shrink(&mut self) -> Result<()> {
        let old = self.header.segment_size;
        let min = free_min(self.store.ctx());
        let Some(tail) = self.free.iter_mut().find(|f| f.offset.saturating_add(f.size) == old) else { return Ok(()) };
        if old <= SEGMENT_BYTES_MIN || tail.size.saturating_mul(2) <= old {
            return Ok(());
        }
        // Keeps half of the used bytes as reserve, so that the next insertion does not grow the
        // segment.
        let keep = tail.offset.saturating_add(tail.offset / 2).saturating_add(min).max(SEGMENT_BYTES_MIN).next_multiple_of(ALIGN_BYTES);
        if keep < old {
            tail.size = keep.saturating_sub(tail.offset);
            self.header.segment_size = keep;
            self.store.free_tail(self.header.segment, old, keep)?;
        }
        Ok(())
    }

    /// Writes the changed free blocks and the header.
    fn finish(mut self) -> Result<()> {
        let ctx = self.store.ctx();
        self.header.free_list = self.free.first().map_or(self.rest, |f| f.offset);
        let moved = self.header.segment != self.stored.segment;
        for (i, f) in self.free.iter().enumerate() {
            let next = self.free.get(i.saturating_add(1)).map_or(self.rest, |f| f.offset);
            let block = FreeBlock { next, size: f.size };
            if moved || self.stored_blocks.get(&f.offset) != Some(&block) {
                self.store.write(self.at(f.offset)?, &block.encode(ctx))?;
            }
        }
        if self.header != self.stored {
            self.store.write(self.address, &self.header.encode(ctx))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
