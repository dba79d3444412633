//! Edits object headers: adds, replaces and removes messages, in place as far as they fit.
//!
//! The layout of versions 1 and 2 is that of [`crate::format::object_header`] (H5.format.4.0, "Data
//! Object Headers"). The addresses of a header and of its chunk 0 never change; messages that no
//! longer fit move to continuation chunks:
//!
//! ```text
//! chunk 0: prefix | message | continuation ----> chunk 1: message | NIL
//!                             message | NIL
//! ```
//!
//! Only bytes that differ are written.

mod layout;
mod swmr;
#[cfg(test)]
mod tests;

use super::Store;
use super::edit::SpaceKind;
use super::link_count::link_count;
use crate::base::{Address, Error, Result, limits};
use crate::format::message::times;
use crate::format::object_header::header_flag::{CREATION_INDEXED, CREATION_TRACKED, TIMES};
use crate::format::object_header::{Message, NAME, Prefix, decode_continuation_message, flag, kind};
use crate::format::{Context, Writer};
use layout::{BODY_MAX, Chunk, Item, Layout, Part};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of the first read: most headers fit.
const FIRST_READ_BYTES: u64 = 512;
/// Size of the smallest new header, bytes: leaves space for some attributes or links.
const NEW_HEADER_BYTES_MIN: usize = 256;
/// Fewest free bytes of a new header.
const NEW_HEADER_FREE_BYTES_MIN: usize = 48;
/// A new chunk of up to a sector, bytes, is allocated within one sector.
const SECTOR_BYTES: usize = super::edit::SECTOR_BYTES as usize;
/// Differing bytes at most this far apart are merged into one write.
const MERGE_GAP_BYTES: usize = 32;

/// A message and its identifier, which stays the same while indexes change.
#[derive(Debug, Clone)]
struct Entry {
    id: u64,
    message: Message,
}

/// An object header being edited, version 1 or 2. Nothing is written before [`HeaderEdit::write`].
///
/// Messages have indexes from 0 in header order; NIL and continuation messages do not count.
#[derive(Debug, Clone)]
pub struct HeaderEdit {
    /// Undefined until the header is created.
    address: Address,
    prefix: Prefix,
    entries: Vec<Entry>,
    next: u64,
    chunks: Vec<Chunk>,
    /// True after a change: unknown messages with the "mark if modified" flag must be marked.
    changed: bool,
}

/// Bytes of a chunk before and after its messages (prefix, signature, checksum).
fn frame(prefix: &Prefix, chunk: usize) -> (usize, usize) {
    match (prefix.version, chunk) {
        (1, 0) => (prefix.len, 0),
        (1, _) => (0, 0),
        (_, 0) => (prefix.len, 4),
        _ => (4, 4),
    }
}

fn is_known(kind: u16) -> bool {
    kind < kind::END && kind != kind::BOGUS
}

impl HeaderEdit {
    /// Loads the header at `address`.
    pub fn load(store: &Store, address: Address) -> Result<Self> {
        let mut head = store.read_upto(address, FIRST_READ_BYTES, NAME)?;
        let prefix = Prefix::decode(&head, address)?;
        let len = prefix.chunk0_len();
        if len > head.len() as u64 {
            head = store.read(address, len, NAME)?;
        }
        head.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        let mut edit = HeaderEdit { address, prefix, entries: Vec::new(), next: 0, chunks: Vec::new(), changed: false };
        let mut queue = VecDeque::new();
        let mut found = 1usize;
        edit.absorb(store.ctx(), address, head, &mut queue, &mut found)?;
        let mut taken = BTreeMap::from([(address.0, len)]);
        let mut left = store.room()?.min(limits::OBJECT_HEADER_BYTES_MAX).saturating_sub(len);
        while let Some((at, len)) = queue.pop_front() {
            if edit.chunks.len() > limits::OBJECT_HEADER_CHUNKS_MAX || len > limits::OBJECT_HEADER_CHUNK_MAX {
                return Err(Error::limit(NAME, address, "continuation blocks"));
            }
            left = left.checked_sub(len).ok_or_else(|| Error::limit(NAME, address, "bytes of all continuation blocks"))?;
            // Reject overlapping chunks: an edit of one would corrupt the other.
            let end = at.0.saturating_add(len);
            let before = taken.range(..end).next_back();
            if before.is_some_and(|(&a, &n)| a.saturating_add(n) > at.0) || taken.insert(at.0, len).is_some() {
                return Err(Error::corrupt(NAME, address, format!("the continuation at {at} overlaps another")));
            }
            let image = store.read(at, len, "object header continuation")?;
            edit.absorb(store.ctx(), at, image, &mut queue, &mut found)?;
        }
        Ok(edit)
    }

    /// Appends the chunk with content `image` at address `at`.
    fn absorb(
        &mut self,
        ctx: &Context,
        at: Address,
        image: Vec<u8>,
        queue: &mut VecDeque<(Address, u64)>,
        found: &mut usize,
    ) -> Result<()> {
        let first = self.chunks.is_empty();
        let chunk = if first { self.prefix.decode_chunk0(&image, at)? } else { self.prefix.decode_continuation(&image, at)? };
        let header = self.prefix.message_header_len();
        let (mut pos, _) = frame(&self.prefix, self.chunks.len());
        let mut parts = Vec::with_capacity(chunk.messages.len());
        for m in chunk.messages {
            if self.prefix.version == 1 && m.body.len() % 8 != 0 {
                return Err(Error::unsupported(NAME, at, "a message whose size is not a multiple of 8"));
            }
            let len = header.saturating_add(m.body.len());
            let end = pos.saturating_add(len);
            let item = match m.kind {
                kind::NIL => Item::Free(image.get(pos..end).map(<[u8]>::to_vec)),
                kind::CONTINUATION => {
                    queue.push_back(decode_continuation_message(&m.body, ctx, at)?);
                    *found = found.saturating_add(1);
                    Item::Continuation(found.saturating_sub(1))
                }
                k if !is_known(k) && m.flags & (flag::FAIL_IF_UNKNOWN_AND_WRITING | flag::FAIL_IF_UNKNOWN) != 0 => {
                    return Err(Error::unsupported(NAME, self.address, format!("message type {k:#x} that a writer must know")));
                }
                _ => Item::Message(self.push(m)),
            };
            parts.push(Part { len, item });
            pos = end;
        }
        if !chunk.gap.is_empty() {
            if self.prefix.version == 1 {
                return Err(Error::unsupported(NAME, at, "a gap in a version 1 header"));
            }
            parts.push(Part { len: chunk.gap.len(), item: Item::Free(Some(chunk.gap)) });
        }
        if self.entries.len() > limits::OBJECT_HEADER_MESSAGES_MAX {
            return Err(Error::limit(NAME, self.address, "messages"));
        }
        self.chunks.push(Chunk { address: Some(at), image, parts, gone: false });
        Ok(())
    }

    fn push(&mut self, message: Message) -> u64 {
        let id = self.next;
        self.next = self.next.saturating_add(1);
        self.entries.push(Entry { id, message });
        id
    }

    /// A new, empty header of `version` 1 or 2.
    ///
    /// `times`: seconds since 1970; version 2 stores all four times, version 1 gets a modification
    /// time message. `attribute_order` (version 2): creation order tracked, indexed.
    pub fn new(version: u8, times: Option<u32>, attribute_order: (bool, bool)) -> Self {
        let version = if version == 1 { 1 } else { 2 };
        let mut flags = 0;
        if version == 2 {
            let (tracked, indexed) = attribute_order;
            flags |= if times.is_some() { TIMES } else { 0 };
            flags |= if tracked { CREATION_TRACKED } else { 0 };
            flags |= if tracked && indexed { CREATION_INDEXED } else { 0 };
        }
        let prefix = Prefix {
            version,
            flags,
            reference_count: 1,
            message_count: 0,
            times: times.filter(|_| version == 2).map(|t| [t; 4]),
            phase_change: None,
            chunk0_size: 0,
            len: 0,
        };
        let mut edit = HeaderEdit { address: Address::UNDEF, prefix, entries: Vec::new(), next: 0, chunks: Vec::new(), changed: false };
        if let (1, Some(seconds)) = (version, times) {
            edit.add(kind::MTIME, 0, times::encode(seconds));
        }
        edit
    }

    /// The header's address; undefined before [`HeaderEdit::create`].
    pub fn address(&self) -> Address {
        self.address
    }

    /// The decoded header prefix.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Format version, 1 or 2.
    pub fn version(&self) -> u8 {
        self.prefix.version
    }

    /// True, true if the creation order of attributes is tracked, indexed.
    pub fn attribute_order(&self) -> (bool, bool) {
        (self.prefix.flags & CREATION_TRACKED != 0, self.prefix.flags & CREATION_INDEXED != 0)
    }

    /// Index of the first message of type `kind`.
    pub fn find(&self, kind: u16) -> Option<usize> {
        self.entries.iter().position(|e| e.message.kind == kind)
    }

    /// Body of message `i` (version 1: with padding); empty if there is no such message.
    pub fn body(&self, i: usize) -> &[u8] {
        self.message(i).map_or(&[], |m| &m.body)
    }

    /// Message `i`.
    pub fn message(&self, i: usize) -> Option<&Message> {
        self.entries.get(i).map(|e| &e.message)
    }

    /// All messages in index order.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> + ExactSizeIterator {
        self.entries.iter().map(|e| &e.message)
    }

    fn padded(&self, mut body: Vec<u8>) -> Vec<u8> {
        if self.prefix.version == 1 {
            body.resize(body.len().next_multiple_of(8), 0);
        }
        body
    }

    /// Longest body that fits in a message, bytes.
    pub fn body_max(&self) -> usize {
        if self.prefix.version == 1 { BODY_MAX & !7 } else { BODY_MAX }
    }

    /// Replaces the body of message `i`.
    pub fn set_body(&mut self, i: usize, body: Vec<u8>) {
        let body = self.padded(body);
        if let Some(e) = self.entries.get_mut(i)
            && e.message.body != body
        {
            e.message.body = body;
            self.changed = true;
        }
    }

    /// Replaces the flags of message `i`.
    pub fn set_flags(&mut self, i: usize, flags: u8) {
        if let Some(e) = self.entries.get_mut(i) {
            e.message.flags = flags;
            self.changed = true;
        }
    }

    /// Sets the creation index of message `i`, where the header tracks it.
    pub fn set_creation_index(&mut self, i: usize, index: u16) {
        let (tracked, _) = self.attribute_order();
        if let Some(e) = self.entries.get_mut(i).filter(|_| tracked) {
            e.message.creation_index = Some(index);
            self.changed = true;
        }
    }

    /// Adds a message and returns its index.
    ///
    /// Where the header tracks creation order, an attribute gets the next index after those in use;
    /// the caller updates the maximum in the attribute info message.
    pub fn add(&mut self, kind: u16, flags: u8, body: Vec<u8>) -> usize {
        let body = self.padded(body);
        let attributes = self.messages().filter(|m| m.kind == kind::ATTRIBUTE);
        let used = attributes.filter_map(|m| m.creation_index).max().map_or(0, |n| n.saturating_add(1));
        let (tracked, _) = self.attribute_order();
        let creation_index = tracked.then_some(if kind == kind::ATTRIBUTE { used } else { 0 });
        self.push(Message { kind, flags, creation_index, body });
        self.changed = true;
        self.entries.len().saturating_sub(1)
    }

    /// Removes message `i`; the indexes of later messages decrease by one.
    pub fn remove(&mut self, i: usize) {
        if i < self.entries.len() {
            self.entries.remove(i);
            self.changed = true;
        }
    }

    /// Link count of the object.
    pub fn links(&self) -> u32 {
        link_count(&self.prefix, self.find(kind::REFERENCE_COUNT).map(|i| self.body(i)))
    }

    /// Adds `change` to the link count; returns the new count. Errors: no such count can exist.
    pub fn add_links(&mut self, change: i32) -> Result<u32> {
        let count = self.links().checked_add_signed(change);
        let count = count.ok_or_else(|| Error::corrupt(NAME, self.address(), "the link count is wrong"))?;
        self.set_links(count);
        Ok(count)
    }

    /// Sets the link count of the object.
    pub fn set_links(&mut self, n: u32) {
        if self.prefix.version == 1 {
            self.prefix.reference_count = n;
            self.changed = true;
            return;
        }
        let body = [&[0u8][..], &n.to_le_bytes()].concat();
        match self.find(kind::REFERENCE_COUNT) {
            Some(i) if n == 1 => self.remove(i),
            Some(i) => self.set_body(i, body),
            None if n == 1 => {}
            None => drop(self.add(kind::REFERENCE_COUNT, flag::DONT_SHARE, body)),
        }
    }

    /// Sets the modification and change times to `seconds` since 1970, where the header has them.
    pub fn touch(&mut self, seconds: u32) {
        if let Some([_, modified, changed, _]) = &mut self.prefix.times {
            (*modified, *changed) = (seconds, seconds);
            self.changed = true;
            return;
        }
        if let Some(i) = self.find(kind::MTIME) {
            self.set_body(i, times::encode(seconds));
        }
        if let Some(i) = self.find(kind::MTIME_OLD) {
            self.set_body(i, times::encode_old(seconds));
        }
    }

    /// Sets only the change time, where the header has one: for changes of metadata, not of raw
    /// data.
    pub fn note_change(&mut self, seconds: u32) {
        if let Some([_, _, changed, _]) = &mut self.prefix.times {
            *changed = seconds;
            self.changed = true;
        }
    }

    /// Sets the access time to `seconds` since 1970; returns `false` where the header has none.
    pub fn set_accessed(&mut self, seconds: u32) -> bool {
        let Some([accessed, ..]) = &mut self.prefix.times else { return false };
        *accessed = seconds;
        self.changed = true;
        true
    }

    /// Identifier and size of every message, bytes with header. Errors: a message is too long, or
    /// too many.
    fn message_sizes(&self) -> Result<Vec<(u64, usize)>> {
        let header = self.prefix.message_header_len();
        let longest = self.body_max();
        if self.entries.iter().any(|e| e.message.body.len() > longest) {
            return Err(Error::limit(NAME, self.address, "a message of 64 KiB or more"));
        }
        if self.entries.len() > limits::OBJECT_HEADER_MESSAGES_MAX {
            return Err(Error::limit(NAME, self.address, "messages"));
        }
        Ok(self.entries.iter().map(|e| (e.id, e.message.body.len().saturating_add(header))).collect())
    }

    /// Moves the chunks into a [`Layout`].
    fn layout(&mut self, ctx: &Context) -> Layout {
        let header = self.prefix.message_header_len();
        let pointer = usize::from(ctx.sizeof_addr).saturating_add(usize::from(ctx.sizeof_size));
        let pointer = if self.prefix.version == 1 { pointer.next_multiple_of(8) } else { pointer };
        let (before, after) = frame(&self.prefix, 1);
        Layout {
            header,
            continuation: header.saturating_add(pointer),
            overhead: before.saturating_add(after),
            version: self.prefix.version,
            address: self.address,
            chunks: std::mem::take(&mut self.chunks),
        }
    }

    /// Sets the "was unknown" flag of messages of unknown type that request it.
    fn mark_unknown(&mut self) {
        for e in self.entries.iter_mut().filter(|e| !is_known(e.message.kind)) {
            if e.message.flags & flag::MARK_IF_UNKNOWN != 0 {
                e.message.flags |= flag::WAS_UNKNOWN;
            }
        }
    }

    /// Writes the changes to the header's address. Errors before the first write: a message or the
    /// header is too large, no space.
    pub fn write(mut self, store: &Store) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        self.mark_unknown();
        let wanted = self.message_sizes()?;
        let held = store.is_swmr_writer().then(|| self.held());
        let mut layout = self.layout(store.ctx());
        layout.arrange(&wanted)?;
        self.chunks = layout.chunks;
        self.update_prefix()?;
        if let Some(held) = held {
            return self.replace_chunks(store, &held);
        }
        self.allocate(store)?;
        for (i, chunk) in self.chunks.iter().enumerate() {
            let (Some(at), false) = (chunk.address, chunk.gone) else { continue };
            let image = self.encode(i, store.ctx())?;
            write_differences(store, at, &chunk.image, &image)?;
        }
        for (i, chunk) in self.chunks.iter().enumerate() {
            let Some(at) = chunk.address else { continue };
            let (old, new) = (chunk.image.len(), if chunk.gone { 0 } else { self.chunk_len(i) });
            match new {
                0 if old > 0 => store.free(at, old as u64)?,
                _ if new < old => store.free_tail(at, old as u64, new as u64)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a new header and returns its address.
    pub fn create(mut self, store: &Store) -> Result<Address> {
        let wanted = self.message_sizes()?;
        let needed = wanted.iter().fold(0usize, |n, m| n.saturating_add(m.1));
        if needed as u64 > limits::OBJECT_HEADER_CHUNK_MAX / 2 {
            return Err(Error::limit(NAME, self.address, "bytes of messages"));
        }
        // Flag bits 0-1: size of the chunk 0 size field, 2 or 4 bytes.
        if self.prefix.version == 2 {
            self.prefix.flags = self.prefix.flags & !3 | if needed > 32_000 { 2 } else { 1 };
        }
        self.prefix.len = self.prefix.encode().len();
        let (before, after) = frame(&self.prefix, 0);
        let framed = needed.saturating_add(before).saturating_add(after);
        let whole = framed.saturating_add(NEW_HEADER_FREE_BYTES_MIN).max(NEW_HEADER_BYTES_MIN);
        let whole = if whole <= SECTOR_BYTES { whole.next_power_of_two() } else { whole.next_multiple_of(8) };
        let mut parts: Vec<Part> = wanted.iter().map(|&(id, len)| Part { len, item: Item::Message(id) }).collect();
        parts.push(Part { len: whole.saturating_sub(framed), item: Item::Free(None) });
        self.chunks = vec![Chunk { parts, ..Chunk::default() }];
        self.update_prefix()?;
        self.allocate(store)?;
        let at = self.chunks.first().and_then(|c| c.address).unwrap_or(Address::UNDEF);
        store.write(at, &self.encode(0, store.ctx())?)?;
        Ok(at)
    }

    /// Frees all chunks of the header at `address`.
    pub fn delete(store: &Store, address: Address) -> Result<()> {
        for chunk in &Self::load(store, address)?.chunks {
            if let Some(at) = chunk.address {
                store.free(at, chunk.image.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Size of chunk `i`, bytes, with prefix, signature and checksum.
    fn chunk_len(&self, i: usize) -> usize {
        let (before, after) = frame(&self.prefix, i);
        self.chunks.get(i).map_or(0, |c| c.len().saturating_add(before).saturating_add(after))
    }

    /// Updates the sizes and counts in the prefix.
    fn update_prefix(&mut self) -> Result<()> {
        let parts: usize = self.chunks.iter().filter(|c| !c.gone).map(|c| c.parts.len()).sum();
        if self.prefix.version == 1 {
            self.prefix.message_count =
                u16::try_from(parts).map_err(|_| Error::limit(NAME, self.address, "more than 65535 messages in a version 1 header"))?;
        }
        self.prefix.chunk0_size = self.chunks.first().map_or(0, |c| c.len() as u64);
        Ok(())
    }

    /// Allocates new chunks; frees those already allocated on an error.
    fn allocate(&mut self, store: &Store) -> Result<()> {
        let mut taken: Vec<(Address, u64)> = Vec::new();
        for i in 0..self.chunks.len() {
            let len = self.chunk_len(i) as u64;
            let Some(chunk) = self.chunks.get_mut(i).filter(|c| c.address.is_none() && !c.gone) else { continue };
            match store.allocate(len, SpaceKind::Metadata) {
                Ok(at) => {
                    chunk.address = Some(at);
                    taken.push((at, len));
                }
                Err(e) => {
                    for (at, len) in taken {
                        store.free(at, len)?;
                    }
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Encodes chunk `i`.
    fn encode(&self, i: usize, ctx: &Context) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        if i == 0 {
            w.bytes(&self.prefix.encode());
        } else if self.prefix.version != 1 {
            w.bytes(b"OCHK");
        }
        let header = self.prefix.message_header_len();
        let by_id: BTreeMap<u64, &Message> = self.entries.iter().map(|e| (e.id, &e.message)).collect();
        for part in self.chunks.get(i).map(|c| c.parts.as_slice()).unwrap_or_default() {
            let body = part.len.saturating_sub(header);
            match &part.item {
                Item::Message(id) => {
                    let m = by_id.get(id).ok_or_else(|| Error::corrupt(NAME, self.address, "a message is missing"))?;
                    self.message_header(&mut w, m.kind, part.len, m.flags, m.creation_index);
                    w.bytes(&m.body);
                }
                Item::Continuation(to) => {
                    let target = self.chunks.get(*to).and_then(|c| c.address).unwrap_or(Address::UNDEF);
                    self.message_header(&mut w, kind::CONTINUATION, part.len, 0, None);
                    let start = w.position();
                    w.addr(target, ctx).length(self.chunk_len(*to) as u64, ctx);
                    w.zeros(body.saturating_sub(w.position().saturating_sub(start)));
                }
                Item::Free(Some(bytes)) => drop(w.bytes(bytes)),
                Item::Free(None) if part.len < header => drop(w.zeros(part.len)),
                Item::Free(None) => {
                    self.message_header(&mut w, kind::NIL, part.len, 0, None);
                    w.zeros(body);
                }
            }
        }
        if self.prefix.version != 1 {
            w.checksum();
        }
        Ok(w.into_bytes())
    }

    fn message_header(&self, w: &mut Writer, kind: u16, len: usize, flags: u8, creation: Option<u16>) {
        let size = len.saturating_sub(self.prefix.message_header_len()) as u64;
        if self.prefix.version == 1 {
            w.u16(kind).uint(size, 2).u8(flags).zeros(3);
            return;
        }
        w.uint(u64::from(kind), 1).uint(size, 2).u8(flags);
        if self.prefix.flags & CREATION_TRACKED != 0 {
            w.u16(creation.unwrap_or(0));
        }
    }
}

/// Writes the bytes of `new` that differ from `old`, the current content at `at`.
fn write_differences(store: &Store, at: Address, old: &[u8], new: &[u8]) -> Result<()> {
    let mut from: Option<usize> = None;
    let mut end = 0usize;
    let flush = |from: usize, end: usize| -> Result<()> {
        let address = at.checked_add(from as u64).ok_or_else(|| Error::corrupt(NAME, at, "ends beyond 2^64"))?;
        store.write(address, new.get(from..end).unwrap_or_default())
    };
    let mut i = 0usize;
    while i < new.len() {
        // Skip 32 equal bytes at a time: most bytes are equal.
        let piece = i..i.saturating_add(32);
        if let (Some(a), Some(b)) = (new.get(piece.clone()), old.get(piece))
            && a == b
        {
            i = i.saturating_add(32);
            continue;
        }
        if old.get(i) == new.get(i) {
            i = i.saturating_add(1);
            continue;
        }
        if let Some(start) = from
            && i.saturating_sub(end) > MERGE_GAP_BYTES
        {
            flush(start, end)?;
            from = None;
        }
        from.get_or_insert(i);
        i = i.saturating_add(1);
        end = i;
    }
    from.map_or(Ok(()), |start| flush(start, end))
}
