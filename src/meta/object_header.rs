//! Loads whole object headers: all chunks, in the order libhdf5 reads them.

use super::Store;
use super::extent::{Extent, Visit};
use super::link_count::link_count;
use crate::base::{Address, Error, Result, limits};
use crate::format::object_header::{Message, NAME, Prefix, decode_continuation_message, flag, kind};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

/// Bytes of the first read: most headers fit, so that opening an object takes one read.
const FIRST_READ_BYTES: u64 = 512;

/// Stands for the hash of a name that could not be read.
const UNNAMED: u64 = u64::MAX;

/// An object header with the messages of all its chunks.
#[derive(Debug, Clone)]
pub struct ObjectHeader {
    /// Address of the header.
    pub address: Address,
    /// The decoded prefix.
    pub prefix: Prefix,
    /// All messages except NIL and continuation messages.
    pub messages: Vec<Message>,
    /// Messages of all types.
    pub stored_messages: usize,
    /// Address and bytes of every chunk, chunk 0 first.
    chunks: Vec<(Address, u64)>,
    /// Attribute messages by the hashes of their names, ascending; see
    /// [`ObjectHeader::attributes_named`].
    named: OnceLock<Box<[(u64, usize)]>>,
}

/// Cache entry: a header, or the error of loading it.
struct Loaded(Result<Arc<ObjectHeader>>);

impl ObjectHeader {
    /// Loads the header at `address` without the cache.
    pub fn load(store: &Store, address: Address) -> Result<ObjectHeader> {
        let mut head = store.read_upto(address, FIRST_READ_BYTES, NAME)?;
        let prefix = Prefix::decode(&head, address)?;
        let len = prefix.chunk0_len();
        if len > head.len() as u64 {
            head = store.read(address, len, NAME)?;
        }
        let mut header = ObjectHeader {
            address,
            prefix,
            messages: Vec::new(),
            stored_messages: 0,
            chunks: vec![(address, len)],
            named: OnceLock::new(),
        };
        let chunk = header.prefix.decode_chunk0(&head, address)?;
        let mut queue = VecDeque::new();
        header.absorb(store, chunk.messages, &mut queue)?;
        let mut seen = HashSet::new();
        // Chunks of a valid header do not overlap, so together they fit in the file.
        let room = if queue.is_empty() { 0 } else { store.room()? };
        let mut left = room.min(limits::OBJECT_HEADER_BYTES_MAX).saturating_sub(len);
        while let Some((at, len)) = queue.pop_front() {
            if !seen.insert(at) {
                return Err(Error::corrupt(NAME, address, format!("continuation at {at} is reached twice")));
            }
            if seen.len() > limits::OBJECT_HEADER_CHUNKS_MAX || len > limits::OBJECT_HEADER_CHUNK_MAX {
                return Err(Error::limit(NAME, address, "continuation blocks"));
            }
            left = left.checked_sub(len).ok_or_else(|| Error::limit(NAME, address, "bytes of all continuation blocks"))?;
            let bytes = store.read(at, len, "object header continuation")?;
            let chunk = header.prefix.decode_continuation(&bytes, at)?;
            header.absorb(store, chunk.messages, &mut queue)?;
            header.chunks.push((at, len));
        }
        Ok(header)
    }

    /// The attribute messages whose names may be the one with `hash`, in their order, and then
    /// those whose names could not be read. `hash_of`: the hash of the name of a message.
    pub fn attributes_named(&self, hash: u64, hash_of: impl Fn(&Message) -> Option<u64>) -> impl Iterator<Item = &Message> {
        let named = self.named.get_or_init(|| {
            let attributes = self.messages.iter().enumerate().filter(|(_, m)| m.kind == kind::ATTRIBUTE);
            let mut named: Vec<_> = attributes.map(|(n, m)| (hash_of(m).unwrap_or(UNNAMED), n)).collect();
            named.sort_unstable();
            named.into()
        });
        let of = |hash: u64| {
            let from = named.partition_point(|(found, _)| *found < hash);
            named.get(from..).unwrap_or_default().iter().take_while(move |(found, _)| *found == hash)
        };
        of(hash).chain(of(UNNAMED)).filter_map(|(_, n)| self.messages.get(*n))
    }

    /// Visits the chunks of the header.
    pub fn extents(&self, visit: &mut Visit<'_>) -> Result<()> {
        self.chunks.iter().try_for_each(|&(at, len)| visit(Extent::metadata(at, len, NAME)))
    }

    /// Returns the header at `address` from the metadata cache, loading it if absent.
    pub fn cached(store: &Store, address: Address) -> Result<Arc<ObjectHeader>> {
        let loaded = store.cached_on_probation(address, |store| match ObjectHeader::load(store, address) {
            Ok(h) => {
                let bytes = h.messages.iter().fold(256usize, |n, m| n.saturating_add(m.body.len()).saturating_add(64));
                Ok((Loaded(Ok(Arc::new(h))), bytes))
            }
            Err(e @ (Error::Io { .. } | Error::OnDisk { .. })) => Err(e),
            // Cache the error: a damaged header is requested as often as a valid one, and may cost
            // more to load.
            Err(e) => Ok((Loaded(Err(e)), 512)),
        })?;
        loaded.0.clone()
    }

    /// Appends `messages`, except NIL ones; adds the targets of continuation messages to `queue`.
    fn absorb(&mut self, store: &Store, messages: Vec<Message>, queue: &mut VecDeque<(Address, u64)>) -> Result<()> {
        self.stored_messages = self.stored_messages.saturating_add(messages.len());
        for m in messages {
            match m.kind {
                kind::NIL => {}
                kind::CONTINUATION => queue.push_back(decode_continuation_message(&m.body, store.ctx(), self.address)?),
                k if k >= kind::END && m.flags & flag::FAIL_IF_UNKNOWN != 0 => {
                    return Err(Error::unsupported(NAME, self.address, format!("message type {k:#x} that a reader must know")));
                }
                _ => self.messages.push(m),
            }
            if self.messages.len() > limits::OBJECT_HEADER_MESSAGES_MAX {
                return Err(Error::limit(NAME, self.address, "messages"));
            }
        }
        Ok(())
    }

    /// Link count of the object.
    pub fn links(&self) -> u32 {
        link_count(&self.prefix, self.find(kind::REFERENCE_COUNT).map(|m| m.body.as_slice()))
    }

    /// The first message of type `kind`.
    pub fn find(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|m| m.kind == kind)
    }

    /// All messages of type `kind`.
    pub fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |m| m.kind == kind)
    }
}
