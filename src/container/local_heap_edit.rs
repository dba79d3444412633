//! Insertion and removal of strings in a local heap.
//!
//! ```text
//! header | data segment: strings and free blocks, at multiples of 8; the header tells the first free block
//! free block: offset of the next one (1: none) | its bytes | ...
//! ```
//!
//! As libhdf5 does it (H5HL.c): the first free block that fits is taken, unless a rest too small for a free
//! block would be left; a full segment moves to one twice as large; neighbours in the list of free
//! blocks are joined; a segment more than half of which is free at its end becomes shorter.

use crate::base::{Address, Error, Result, limits};
use crate::format::Context;
use crate::format::local_heap::{FREE_NULL, FreeBlock, Header, NAME};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use std::collections::BTreeMap;

/// Everything in a data segment lies at a multiple of this, bytes.
const ALIGN: u64 = 8;
/// A segment is not made shorter than this, bytes.
const SEGMENT_MIN: u64 = 128;
/// Free blocks looked at in one operation; those behind stay as they are.
const BLOCKS_MAX: usize = 1024;
/// Bytes read or copied at once.
const WINDOW: u64 = 4096;
const PIECE: u64 = 1 << 20;

/// Bytes of the smallest free block.
fn free_min(ctx: &Context) -> u64 {
    u64::from(ctx.sizeof_size).saturating_mul(2).next_multiple_of(ALIGN)
}

/// Bytes that libhdf5 allocates for a header.
fn header_size(ctx: &Context) -> u64 {
    (Header::size(ctx) as u64).next_multiple_of(ALIGN)
}

/// Bytes that `len` bytes of a string and its NUL take.
fn taken(len: usize) -> u64 {
    (len as u64).saturating_add(1).checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

/// Writes a heap without strings, with room for `min_size` bytes of them; returns its address.
pub fn create(store: &Store, min_size: u64) -> Result<Address> {
    let ctx = store.ctx();
    let room = min_size.max(free_min(ctx)).checked_next_multiple_of(ALIGN).filter(|&n| n <= limits::METADATA_BLOCK_MAX);
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

/// Frees the heap at `heap`.
pub fn delete(store: &Store, heap: Address) -> Result<()> {
    let header = open(store, heap)?;
    if header.segment_size > 0 {
        store.free(header.segment, header.segment_size)?;
    }
    store.free(heap, header_size(store.ctx()))
}

/// Adds `string`; returns its offset in the data segment, which a NUL follows. Errors: it holds a NUL or is longer
/// than `HEAP_NAME_MAX`; damage. Nothing is changed then.
pub fn insert(store: &Store, heap: Address, string: &[u8]) -> Result<u64> {
    if string.contains(&0) || string.len() > limits::HEAP_NAME_MAX {
        return Err(Error::limit(NAME, heap, format!("a string of {} bytes, or with a NUL", string.len())));
    }
    let mut edit = Edit::new(store, heap)?;
    let need = taken(string.len());
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

/// Frees the string at `offset`. The empty string at 0 stays, and so does what is free already.
pub fn remove(store: &Store, heap: Address, offset: u64) -> Result<()> {
    if offset == 0 {
        return Ok(());
    }
    let mut edit = Edit::new(store, heap)?;
    let left = edit.header.segment_size.saturating_sub(offset);
    if left == 0 || !offset.is_multiple_of(ALIGN) {
        return Err(Error::corrupt(NAME, heap, format!("offset {offset} of a string in a data segment of {}", edit.header.segment_size)));
    }
    let size = taken(edit.length(offset, left)?).min(left);
    if edit.give(offset, size) {
        edit.shrink()?;
        edit.finish()?;
    }
    Ok(())
}

fn open(store: &Store, heap: Address) -> Result<Header> {
    let ctx = store.ctx();
    let header = Header::decode(&store.read(heap, Header::size(ctx) as u64, NAME)?, heap, ctx)?;
    let end = header.segment.checked_add(header.segment_size).map(|a| a.0);
    if header.segment_size > 0 && end.is_none_or(|e| e > store.file_len().unwrap_or(0)) {
        return Err(Error::corrupt(NAME, heap, "the data segment ends behind the file"));
    }
    Ok(header)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    offset: u64,
    size: u64,
}

/// A heap while it is changed: its header and the first blocks of the list of free ones.
struct Edit<'s> {
    store: &'s Store,
    address: Address,
    header: Header,
    stored: Header,
    free: Vec<Free>,
    /// First block behind those of `free`.
    rest: u64,
    /// The blocks as the file has them.
    stored_blocks: BTreeMap<u64, FreeBlock>,
}

impl<'s> Edit<'s> {
    fn new(store: &'s Store, address: Address) -> Result<Self> {
        let header = open(store, address)?;
        let stored = header.clone();
        let mut edit = Edit { store, address, header, stored, free: Vec::new(), rest: FREE_NULL, stored_blocks: BTreeMap::new() };
        edit.walk()?;
        Ok(edit)
    }

    fn walk(&mut self) -> Result<()> {
        let ctx = self.store.ctx();
        let bad = |at: u64| Error::corrupt(NAME, self.address, format!("free block at offset {at}"));
        let (mut window, mut start) = (Vec::new(), 0);
        let mut next = self.header.free_list;
        while next != FREE_NULL && self.free.len() < BLOCKS_MAX {
            let left = self.header.segment_size.checked_sub(next).filter(|&l| l >= free_min(ctx)).ok_or_else(|| bad(next))?;
            let need = usize::from(ctx.sizeof_size).saturating_mul(2);
            let inside = |w: &[u8], start: u64| {
                let at = usize::try_from(next.checked_sub(start)?).ok()?;
                w.get(at..at.checked_add(need)?).map(|b| FreeBlock::decode(b, self.address, ctx))
            };
            let block = match inside(&window, start) {
                Some(block) => block?,
                None => {
                    (window, start) = (self.store.read_upto(self.at(next)?, WINDOW.min(left), NAME)?, next);
                    inside(&window, start).ok_or_else(|| bad(next))??
                }
            };
            let fine = block.size >= free_min(ctx) && block.size <= left && next.is_multiple_of(ALIGN) && block.next != 0;
            if !fine || self.stored_blocks.insert(next, block).is_some() {
                return Err(bad(next));
            }
            self.free.push(Free { offset: next, size: block.size });
            next = block.next;
        }
        self.rest = next;
        // Blocks that overlap would be given out twice.
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
        self.header.segment.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, self.address, "the data segment lies beyond 2^64"))
    }

    /// Bytes of the string at `offset`, of which at most `left` are in the segment.
    fn length(&self, offset: u64, left: u64) -> Result<usize> {
        let mut length = 0usize;
        while (length as u64) < left && length <= limits::HEAP_NAME_MAX {
            let at = self.at(offset.saturating_add(length as u64))?;
            let part = self.store.read(at, left.saturating_sub(length as u64).min(WINDOW), NAME)?;
            match part.iter().position(|&b| b == 0) {
                Some(n) => return Ok(length.saturating_add(n)),
                None => length = length.saturating_add(part.len()),
            }
        }
        if length as u64 >= left { Ok(length) } else { Err(Error::limit(NAME, self.address, format!("the string at offset {offset}"))) }
    }

    /// Takes `need` bytes of the first free block that fits.
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

    /// Moves the data segment to a larger one and takes `need` bytes of it.
    fn grow(&mut self, need: u64) -> Result<u64> {
        let ctx = *self.store.ctx();
        let old = self.header.segment_size;
        let tail = self.free.iter().position(|f| f.offset.saturating_add(f.size) == old);
        let mut more = need.max(old).checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX);
        if tail.is_none() && more < need.saturating_add(free_min(&ctx)) {
            more = need;
        }
        let base = old.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX);
        let new = base.checked_add(more).filter(|&n| ctx.sizeof_size >= 8 || n >> (u32::from(ctx.sizeof_size) * 8) == 0);
        let new = new.ok_or_else(|| Error::limit(NAME, self.address, "no room for a larger data segment"))?;
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
        // At the end of the list lies what may be too short for the rest of a free block.
        let end = self.free.iter_mut().find(|f| f.offset.saturating_add(f.size) == new);
        let block = end.ok_or_else(|| Error::corrupt(NAME, self.address, "no free block at its end"))?;
        let offset = block.offset;
        block.offset = offset.saturating_add(need);
        block.size = block.size.saturating_sub(need);
        self.free.retain(|f| f.size >= free_min(&ctx));
        Ok(offset)
    }

    /// Copies the segment of `old` bytes to `to`, and fills it up to `new` bytes.
    fn copy(&self, to: Address, old: u64, new: u64) -> Result<()> {
        let mut done = 0;
        while done < new {
            let piece = new.saturating_sub(done).min(PIECE);
            let present = old.saturating_sub(done).min(piece);
            let mut bytes = if present > 0 { self.store.read(self.at(done)?, present, NAME)? } else { Vec::new() };
            bytes.resize(usize::try_from(piece).unwrap_or(bytes.len()), 0);
            self.store.write(Address(to.0.saturating_add(done)), &bytes)?;
            done = done.saturating_add(piece);
        }
        Ok(())
    }

    /// Makes `size` bytes at `offset` free; false if some of them are already.
    fn give(&mut self, offset: u64, size: u64) -> bool {
        let end = offset.saturating_add(size);
        if self.free.iter().any(|f| f.offset < end && offset < f.offset.saturating_add(f.size)) {
            return false;
        }
        let before = self.free.iter().position(|f| f.offset.saturating_add(f.size) == offset);
        let behind = self.free.iter().position(|f| f.offset == end);
        let tail = behind.and_then(|i| self.free.get(i)).map_or(0, |f| f.size);
        match (before.and_then(|i| self.free.get_mut(i)), behind) {
            (Some(f), _) => {
                f.size = f.size.saturating_add(size).saturating_add(tail);
                if let Some(i) = behind {
                    self.free.remove(i);
                }
            }
            (None, Some(i)) => {
                if let Some(f) = self.free.get_mut(i) {
                    *f = Free { offset, size: size.saturating_add(tail) };
                }
            }
            // What is too short for a free block is lost until its neighbours are free.
            (None, None) if size >= free_min(self.store.ctx()) => self.free.insert(0, Free { offset, size }),
            (None, None) => return false,
        }
        true
    }

    /// Gives the end of the segment back if most of the segment is free there.
    fn shrink(&mut self) -> Result<()> {
        let old = self.header.segment_size;
        let min = free_min(self.store.ctx());
        let Some(tail) = self.free.iter_mut().find(|f| f.offset.saturating_add(f.size) == old) else { return Ok(()) };
        if old <= SEGMENT_MIN || tail.size.saturating_mul(2) <= old {
            return Ok(());
        }
        // Half as much again as is in use, so that it need not grow at once.
        let keep = tail.offset.saturating_add(tail.offset / 2).saturating_add(min).max(SEGMENT_MIN).next_multiple_of(ALIGN);
        if keep < old {
            tail.size = keep.saturating_sub(tail.offset);
            self.header.segment_size = keep;
            self.store.free_tail(self.header.segment, old, keep)?;
        }
        Ok(())
    }

    /// Writes the free blocks that changed, and the header.
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
#[path = "local_heap_edit_tests.rs"]
mod tests;
