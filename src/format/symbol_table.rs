//! Symbol table node: the leaves of an old-style group (H5.format.4.0, "Group Symbol Table Nodes").
//!
//! ```text
//! "SNOD" | version 1 | 0 | number of symbols u16 | entries, room for 2 x group leaf K
//! entry: link name offset L | object header O | cache type u32 | reserved u32 | scratch pad 16
//! scratch pad by cache type: 0 nothing | 1 B-tree O, local heap O (a group) |
//!                            2 link value offset u32 (soft link)
//! ```
//!
//! Names and link values are offsets into the group's local heap. Entries are sorted by name in
//! `strcmp` order.

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "symbol table node";
const SIGNATURE: &[u8; 4] = b"SNOD";
const VERSION: u8 = 1;
/// Bytes before the first entry.
pub const HEADER_SIZE: usize = 8;
const SCRATCH: usize = 16;

/// Decoded content of an entry's scratch pad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryCache {
    /// Nothing.
    Nothing,
    /// Addresses of the symbol table message: the object is an old-style group.
    SymbolTable {
        /// Version 1 B-tree.
        btree: Address,
        /// Local heap.
        heap: Address,
    },
    /// The entry is a soft link; its path is at this offset in the group's local heap.
    SoftLink {
        /// Offset in the local heap's data segment, bytes.
        value_offset: u32,
    },
}

/// A symbol table entry as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Offset of the name in the group's local heap.
    pub name_offset: u64,
    /// Object header; undefined (or meaningless) for a soft link.
    pub header: Address,
    /// 0 nothing, 1 symbol table, 2 soft link.
    pub cache_type: u32,
    /// Reserved word, kept.
    pub reserved: u32,
    /// Scratch pad, kept.
    pub scratch: [u8; SCRATCH],
}

impl Entry {
    /// Size of an entry, bytes.
    pub fn size(ctx: &Context) -> usize {
        usize::from(ctx.sizeof_size).saturating_add(usize::from(ctx.sizeof_addr)).saturating_add(8 + SCRATCH)
    }

    fn decode(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        Ok(Entry { name_offset: r.length(ctx)?, header: r.addr(ctx)?, cache_type: r.u32()?, reserved: r.u32()?, scratch: r.array()? })
    }

    fn encode(&self, w: &mut Writer, ctx: &Context) {
        w.length(self.name_offset, ctx).addr(self.header, ctx).u32(self.cache_type).u32(self.reserved).bytes(&self.scratch);
    }

    /// Decodes the scratch pad. `address` is the node's, for errors.
    pub fn cache(&self, ctx: &Context, address: Address) -> Result<EntryCache> {
        let mut r = Reader::new(&self.scratch, NAME, address);
        match self.cache_type {
            0 => Ok(EntryCache::Nothing),
            1 => Ok(EntryCache::SymbolTable { btree: r.addr(ctx)?, heap: r.addr(ctx)? }),
            2 => Ok(EntryCache::SoftLink { value_offset: r.u32()? }),
            other => Err(r.corrupt(format!("cache type {other} of an entry"))),
        }
    }
}

/// A decoded symbol table node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolTableNode {
    /// Entries in use.
    pub entries: Vec<Entry>,
}

impl SymbolTableNode {
    /// Size of a node with capacity for `room` entries, bytes (2 x group leaf K when allocated,
    /// fewer when only read).
    pub fn size(ctx: &Context, room: usize) -> usize {
        room.saturating_mul(Entry::size(ctx)).saturating_add(HEADER_SIZE)
    }

    /// Number of entries in the node that starts with `head` (at least `HEADER_SIZE` bytes).
    pub fn count(head: &[u8], address: Address) -> Result<u16> {
        Self::header(&mut Reader::new(head, NAME, address))
    }

    fn header(r: &mut Reader<'_>) -> Result<u16> {
        r.signature(SIGNATURE)?;
        r.version(VERSION..=VERSION)?;
        r.skip(1)?;
        r.u16()
    }

    /// Decodes the node at the start of `buf`; bytes after its entries are ignored.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        let n = usize::from(Self::header(&mut r)?);
        if n > r.remaining() / Entry::size(ctx) {
            return Err(r.corrupt(format!("{n} entries do not fit in {} bytes", buf.len())));
        }
        let entries = (0..n).map(|_| Entry::decode(&mut r, ctx)).collect::<Result<_>>()?;
        Ok(SymbolTableNode { entries })
    }

    /// Encodes the node with capacity for `room` entries; unused ones are zero, as libhdf5 writes
    /// them.
    pub fn encode(&self, ctx: &Context, room: usize) -> Result<Vec<u8>> {
        let bad = |detail| Error::corrupt(NAME, Address::UNDEF, detail);
        let n = u16::try_from(self.entries.len()).map_err(|_| bad("more than 65535 entries"))?;
        let unused = room.checked_sub(self.entries.len()).ok_or_else(|| bad("more entries than the node has room for"))?;
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(VERSION).u8(0).u16(n);
        for entry in &self.entries {
            entry.encode(&mut w, ctx);
        }
        w.zeros(unused.saturating_mul(Entry::size(ctx)));
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;
    /// Written by libhdf5 2.0.0 with leaf K 1 and internal K 2
    /// (tests/fixtures/groups/make_groups.py).
    const FILE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/groups/old_deep.h5"));

    /// Every node of the file: address and bytes.
    fn nodes() -> Vec<(usize, &'static [u8])> {
        let size = SymbolTableNode::size(&CTX, 2);
        let at: Vec<usize> = (0..FILE.len()).filter(|&i| FILE[i..].starts_with(SIGNATURE)).collect();
        at.into_iter().map(|i| (i, &FILE[i..i + size])).collect()
    }

    #[test]
    fn known_answer() {
        let (at, bytes) = nodes().into_iter().find(|&(at, _)| at == 0x260).unwrap();
        let node = SymbolTableNode::decode(bytes, &CTX, Address(at as u64)).unwrap();
        // The root group: "g", then "o", both groups.
        assert_eq!(node.entries.iter().map(|e| e.name_offset).collect::<Vec<_>>(), [8, 16]);
        assert_eq!(node.entries[1].header, Address(0x2b8));
        let cache = node.entries[1].cache(&CTX, Address(0)).unwrap();
        assert_eq!(cache, EntryCache::SymbolTable { btree: Address(0x2e0), heap: Address(0x340) });
        assert_eq!(SymbolTableNode::count(bytes, Address(0)).unwrap(), 2);
    }

    #[test]
    fn every_node_round_trips() {
        let mut soft = 0;
        for (at, bytes) in nodes() {
            let node = SymbolTableNode::decode(bytes, &CTX, Address(at as u64)).unwrap();
            // libhdf5 leaves removed entries in unused slots: compare only the used part.
            let used = SymbolTableNode::size(&CTX, node.entries.len());
            assert_eq!(node.encode(&CTX, 2).unwrap()[..used], bytes[..used]);
            assert_eq!(node.encode(&CTX, 2).unwrap().len(), bytes.len());
            soft += node.entries.iter().filter(|e| e.cache_type == 2).count();
        }
        assert_eq!(soft, 20);
    }

    #[test]
    fn damage_is_an_error_never_a_panic() {
        let (_, bytes) = nodes()[0];
        for n in 0..bytes.len() {
            assert!(SymbolTableNode::decode(&bytes[..n], &CTX, Address(0)).is_err(), "cut at {n}");
        }
        for i in 0..bytes.len() {
            let mut b = bytes.to_vec();
            b[i] ^= 0x81;
            match SymbolTableNode::decode(&b, &CTX, Address(0)) {
                Ok(node) => assert!(i == 5 || node.encode(&CTX, 2).unwrap() == b, "byte {i}"),
                Err(_) => assert!(i < HEADER_SIZE),
            }
        }
        let entry = Entry { name_offset: 8, header: Address(1), cache_type: 3, reserved: 0, scratch: [0; 16] };
        assert!(entry.cache(&CTX, Address(0)).is_err());
        assert!(SymbolTableNode { entries: vec![entry; 3] }.encode(&CTX, 2).is_err());
    }
}
