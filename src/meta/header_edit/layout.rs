//! Arranges the messages of a header: chunks as lists of parts, and how messages of new sizes are
//! fitted in.
//!
//! ```text
//! chunk: part | part | ... | part     part: a message, a continuation message, or free bytes
//! ```
//!
//! Messages that still fit stay in place. The others take free bytes, best fit first; then the free
//! bytes of a chunk after compaction; then a new chunk. Free bytes become NIL messages; fewer than
//! a message header of version 2 can only be a gap at the end of a chunk without a NIL message.

use super::SECTOR_BYTES;
use crate::base::{Address, Error, Result, limits};
use crate::format::object_header::NAME;
use std::collections::{BTreeMap, BTreeSet};

/// Longest message body, bytes.
pub(super) const BODY_MAX: usize = 65_535;
/// Most free bytes of a new continuation chunk.
const CHUNK_FREE_BYTES_MAX: usize = 32 << 10;
/// Size of the smallest new continuation chunk, bytes.
const CHUNK_BYTES_MIN: usize = 128;

/// What a part of a chunk holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// The message with this identifier.
    Message(u64),
    /// The continuation message that points to the chunk with this index.
    Continuation(usize),
    /// Free bytes; `Some` holds their current content if they need not be rewritten.
    Free(Option<Vec<u8>>),
}

/// A range of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Length in bytes, with the message header.
    pub len: usize,
    pub item: Item,
}

/// One chunk of an object header.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    /// `None` until it is allocated.
    pub address: Option<Address>,
    /// Current content in the file, with prefix, signature and checksum; empty for a new chunk.
    pub image: Vec<u8>,
    pub parts: Vec<Part>,
    /// True when no continuation message points to it: to be freed.
    pub gone: bool,
}

/// All chunks of one object header.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Bytes of a message header.
    pub header: usize,
    /// Bytes of a continuation message.
    pub continuation: usize,
    /// Bytes of a continuation chunk around its messages.
    pub overhead: usize,
    pub version: u8,
    pub address: Address,
    /// Chunk 0 first.
    pub chunks: Vec<Chunk>,
}

impl Chunk {
    /// Length of all parts, bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|p| p.len).sum()
    }

    fn free(&self) -> usize {
        self.parts.iter().filter(|p| p.is_free()).map(|p| p.len).sum()
    }

    /// Merges adjacent free parts, unless both are unchanged.
    fn join(&mut self) {
        let mut out: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            match out.last_mut() {
                Some(last) if last.is_free() && part.is_free() && (last.is_new() || part.is_new()) => {
                    last.len = last.len.saturating_add(part.len);
                    last.item = Item::Free(None);
                }
                _ => out.push(part),
            }
        }
        self.parts = out;
    }

    /// Moves all free bytes to the end of the chunk.
    fn compact(&mut self) {
        let free = self.free();
        self.parts.retain(|p| !p.is_free());
        if free > 0 {
            self.parts.push(Part { len: free, item: Item::Free(None) });
        }
    }
}

impl Part {
    pub fn is_free(&self) -> bool {
        matches!(self.item, Item::Free(_))
    }

    fn is_new(&self) -> bool {
        self.item == Item::Free(None)
    }
}

impl Layout {
    /// Longest message of this version, bytes with header.
    fn longest(&self) -> usize {
        let body = if self.version == 1 { BODY_MAX & !7 } else { BODY_MAX };
        body.saturating_add(self.header)
    }

    /// Lays out exactly the messages `wanted` (identifier, bytes with header).
    pub fn arrange(&mut self, wanted: &[(u64, usize)]) -> Result<()> {
        let mut missing = self.keep(wanted);
        missing.retain(|&(id, len)| !self.place(Item::Message(id), len));
        if !missing.is_empty() {
            self.grow(missing)?;
        }
        self.release();
        for chunk in self.chunks.iter_mut().filter(|c| !c.gone) {
            chunk.join();
        }
        let longest = self.longest();
        for i in 0..self.chunks.len() {
            self.tidy(i, longest);
        }
        Ok(())
    }

    /// Keeps messages that still fit in place; returns the others.
    fn keep(&mut self, wanted: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let sizes: BTreeMap<u64, usize> = wanted.iter().copied().collect();
        let mut kept = BTreeSet::new();
        for chunk in &mut self.chunks {
            let mut parts = Vec::with_capacity(chunk.parts.len());
            for part in std::mem::take(&mut chunk.parts) {
                let Item::Message(id) = part.item else {
                    parts.push(part);
                    continue;
                };
                match sizes.get(&id) {
                    Some(&len) if len <= part.len => {
                        kept.insert(id);
                        parts.push(Part { len, item: Item::Message(id) });
                        if len < part.len {
                            parts.push(Part { len: part.len.saturating_sub(len), item: Item::Free(None) });
                        }
                    }
                    _ => parts.push(Part { len: part.len, item: Item::Free(None) }),
                }
            }
            chunk.parts = parts;
            chunk.join();
        }
        wanted.iter().copied().filter(|(id, _)| !kept.contains(id)).collect()
    }

    /// Puts `item` of `len` bytes into free bytes of a chunk. False if no chunk has enough.
    fn place(&mut self, item: Item, len: usize) -> bool {
        let mut best: Option<(usize, usize, usize)> = None;
        for (c, chunk) in self.chunks.iter().enumerate().filter(|(_, c)| !c.gone) {
            for (p, part) in chunk.parts.iter().enumerate() {
                if part.is_free() && part.len >= len && best.is_none_or(|b| part.len < b.0) {
                    best = Some((part.len, c, p));
                }
            }
        }
        if let Some((_, c, p)) = best {
            return self.take(c, p, item, len);
        }
        let roomy = self.chunks.iter().enumerate().filter(|(_, c)| !c.gone && c.free() >= len);
        let Some(c) = roomy.min_by_key(|(_, c)| c.free()).map(|(c, _)| c) else { return false };
        self.take_compacted(c, item, len)
    }

    /// Compacts chunk `c`, then puts `item` into its free bytes.
    fn take_compacted(&mut self, c: usize, item: Item, len: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(c) else { return false };
        chunk.compact();
        let last = chunk.parts.len().saturating_sub(1);
        self.take(c, last, item, len)
    }

    /// Puts `item` into free part `p` of chunk `c`; the rest of the part stays free.
    fn take(&mut self, c: usize, p: usize, item: Item, len: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(c) else { return false };
        let Some(part) = chunk.parts.get_mut(p).filter(|part| part.is_free() && part.len >= len) else { return false };
        let rest = part.len.saturating_sub(len);
        *part = Part { len, item };
        if rest > 0 {
            chunk.parts.insert(p.saturating_add(1), Part { len: rest, item: Item::Free(None) });
        }
        true
    }

    /// Adds a chunk with `messages`, and with any that must move to make room for its continuation
    /// message.
    fn grow(&mut self, mut messages: Vec<(u64, usize)>) -> Result<()> {
        let new = self.chunks.len();
        if new > limits::OBJECT_HEADER_CHUNKS_MAX {
            return Err(Error::limit(NAME, self.address, "continuation blocks"));
        }
        if !self.place(Item::Continuation(new), self.continuation) {
            let c = self.evict(&mut messages)?;
            if !self.take_compacted(c, Item::Continuation(new), self.continuation) {
                return Err(Error::limit(NAME, self.address, "no room for a continuation message"));
            }
        }
        let needed = messages.iter().fold(0usize, |n, m| n.saturating_add(m.1));
        let all = self.chunks.iter().fold(0usize, |n, c| n.saturating_add(c.len()));
        // Proportional to the header's size, so that the number of chunks grows only
        // logarithmically.
        let spare = (all / 2).clamp(self.continuation, CHUNK_FREE_BYTES_MAX);
        let whole = needed.saturating_add(spare).saturating_add(self.overhead).max(CHUNK_BYTES_MIN);
        let whole = if whole <= SECTOR_BYTES { whole.next_power_of_two() } else { whole.next_multiple_of(8) };
        let taken = all.saturating_add(whole) as u64;
        if whole as u64 > limits::OBJECT_HEADER_CHUNK_MAX || taken > limits::OBJECT_HEADER_BYTES_MAX {
            return Err(Error::limit(NAME, self.address, "bytes of messages"));
        }
        let mut parts: Vec<Part> = messages.iter().map(|&(id, len)| Part { len, item: Item::Message(id) }).collect();
        let rest = whole.saturating_sub(self.overhead).saturating_sub(needed);
        parts.push(Part { len: rest, item: Item::Free(None) });
        self.chunks.push(Chunk { parts, ..Chunk::default() });
        Ok(())
    }

    /// Moves messages, as few bytes as possible, from a chunk to `out` until a continuation message
    /// fits.
    fn evict(&mut self, out: &mut Vec<(u64, usize)>) -> Result<usize> {
        let need = self.continuation;
        let mut best: Option<(usize, usize, usize)> = None;
        for (c, chunk) in self.chunks.iter().enumerate().filter(|(_, c)| !c.gone) {
            let free = chunk.free();
            for (p, part) in chunk.parts.iter().enumerate() {
                let message = matches!(part.item, Item::Message(_));
                if message && part.len.saturating_add(free) >= need && best.is_none_or(|b| part.len < b.0) {
                    best = Some((part.len, c, p));
                }
            }
        }
        if let Some((len, c, p)) = best
            && let Some(part) = self.chunks.get_mut(c).and_then(|chunk| chunk.parts.get_mut(p))
            && let Item::Message(id) = part.item
        {
            part.item = Item::Free(None);
            out.push((id, len));
            return Ok(c);
        }
        // All messages are too small: move the last ones of a chunk until the continuation message
        // fits.
        for (c, chunk) in self.chunks.iter_mut().enumerate().filter(|(_, c)| !c.gone) {
            let movable = chunk.parts.iter().filter(|p| !matches!(p.item, Item::Continuation(_))).map(|p| p.len).sum::<usize>();
            if movable < need {
                continue;
            }
            let mut free = chunk.free();
            for part in chunk.parts.iter_mut().rev() {
                let Item::Message(id) = part.item else { continue };
                if free >= need {
                    break;
                }
                free = free.saturating_add(part.len);
                out.push((id, part.len));
                part.item = Item::Free(None);
            }
            return Ok(c);
        }
        Err(Error::limit(NAME, self.address, "no room for a continuation message"))
    }

    /// Marks empty continuation chunks as gone and frees the messages that point to them.
    fn release(&mut self) {
        // A round can empty the chunk with the continuation message: repeat.
        for _ in 0..self.chunks.len() {
            let empty = |(i, c): &(usize, &Chunk)| *i > 0 && !c.gone && c.parts.iter().all(Part::is_free);
            let gone: BTreeSet<usize> = self.chunks.iter().enumerate().filter(empty).map(|(i, _)| i).collect();
            if gone.is_empty() {
                return;
            }
            for (i, chunk) in self.chunks.iter_mut().enumerate() {
                chunk.gone |= gone.contains(&i);
                for part in &mut chunk.parts {
                    if matches!(part.item, Item::Continuation(to) if gone.contains(&to)) {
                        part.item = Item::Free(None);
                    }
                }
            }
        }
    }

    /// Turns the free parts of chunk `i` into valid ones: NIL messages, or the gap at the end.
    fn tidy(&mut self, i: usize, longest: usize) {
        let header = self.header;
        let shortest = self.continuation.next_multiple_of(8);
        let Some(chunk) = self.chunks.get_mut(i).filter(|c| !c.gone) else { return };
        let scrap = |p: &Part| p.is_free() && p.len < header;
        let proper = chunk.parts.iter().position(|p| p.is_free() && p.len >= header);
        let count = chunk.parts.iter().filter(|p| scrap(p)).count();
        let is_gap = count == 1 && proper.is_none() && chunk.parts.last().is_some_and(scrap);
        if count > 0 && !is_gap {
            let bytes: usize = chunk.parts.iter().filter(|p| scrap(p)).map(|p| p.len).sum();
            if let Some(part) = proper.and_then(|p| chunk.parts.get_mut(p)) {
                *part = Part { len: part.len.saturating_add(bytes), item: Item::Free(None) };
                chunk.parts.retain(|p| !scrap(p));
            } else {
                chunk.parts.retain(|p| !scrap(p));
                chunk.parts.push(Part { len: bytes, item: Item::Free(None) });
            }
        }
        if chunk.parts.iter().any(|p| p.is_free() && p.len > longest) {
            // Longer than the longest NIL message: shorten the chunk.
            chunk.compact();
            if let Some(last) = chunk.parts.last_mut() {
                last.len = (last.len % 8).saturating_add(shortest);
            }
        }
    }
}
