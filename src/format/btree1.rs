//! Version 1 B-tree node, of groups and of chunks (H5.format.4.0, "Version 1 B-trees").
//!
//! ```text
//! "TREE" | type | level | n u16 | left sibling O | right sibling O |
//! key 0 | child 0 O | ... | child n-1 O | key n
//! group key (type 0): offset L of a name in the group's local heap
//! chunk key (type 1): stored bytes u32 | filter mask u32 | (rank + 1) x offset u64, in elements
//! ```
//!
//! A node without children has no key. Keys enclose their child: a chunk's own key is the left one;
//! a group's symbol table node has names above its left key and up to its right key. There is no
//! checksum. Bytes after the last key are not decoded.

use super::{Context, Reader, Writer};
use crate::base::{Address, Error, Result, limits};

/// Standard name, used in errors.
pub const NAME: &str = "B-tree node";

/// Type of a tree and its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Btree1Kind {
    /// Type 0: symbol table nodes of a group.
    Group,
    /// Type 1: chunks of a dataset.
    Chunk {
        /// Dimensions of a key: the dataset's rank plus one for the element size.
        dims: u8,
    },
}

impl Btree1Kind {
    /// Type byte of a node.
    pub fn code(self) -> u8 {
        match self {
            Btree1Kind::Group => 0,
            Btree1Kind::Chunk { .. } => 1,
        }
    }

    /// Size of a key, bytes.
    pub fn key_size(self, ctx: &Context) -> usize {
        match self {
            Btree1Kind::Group => usize::from(ctx.sizeof_size),
            Btree1Kind::Chunk { dims } => usize::from(dims).saturating_mul(8).saturating_add(8),
        }
    }
}

/// A decoded node; its keys stay encoded, so that a search decodes only those it compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Type of the tree.
    pub kind: Btree1Kind,
    /// Levels above the leaves; 0 for a leaf.
    pub level: u8,
    /// Left sibling.
    pub left: Address,
    /// Right sibling.
    pub right: Address,
    /// Child nodes; in a leaf, chunks or symbol table nodes.
    pub children: Vec<Address>,
    key_size: usize,
    keys: Vec<u8>,
}

impl Node {
    /// Bytes before the first key.
    pub fn prefix_size(ctx: &Context) -> u64 {
        8u64.saturating_add(u64::from(ctx.sizeof_addr).saturating_mul(2))
    }

    /// Size of the used part of a node that starts with `prefix` (at least eight bytes), bytes.
    pub fn used_size(prefix: &[u8], kind: Btree1Kind, ctx: &Context, address: Address) -> Result<u64> {
        let mut r = Reader::new(prefix, NAME, address);
        r.signature(b"TREE")?;
        r.skip(2)?;
        Ok(Self::size_with(u64::from(r.u16()?), kind, ctx))
    }

    /// Bytes that the node uses.
    pub fn used(&self, ctx: &Context) -> u64 {
        Self::size_with(self.children.len() as u64, self.kind, ctx)
    }

    /// Bytes of a node of `n` children.
    fn size_with(n: u64, kind: Btree1Kind, ctx: &Context) -> u64 {
        let key = kind.key_size(ctx) as u64;
        let pairs = n.saturating_mul(key.saturating_add(u64::from(ctx.sizeof_addr)));
        let last = if n == 0 { 0 } else { key };
        Self::prefix_size(ctx).saturating_add(pairs).saturating_add(last)
    }

    /// Decodes the node in `buf`, which may be longer than the node.
    pub fn decode(buf: &[u8], kind: Btree1Kind, ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"TREE")?;
        let code = r.u8()?;
        if code != kind.code() {
            return Err(r.corrupt(format!("type {code}, must be {}", kind.code())));
        }
        let level = r.u8()?;
        if usize::from(level) > limits::TREE_DEPTH_MAX {
            return Err(Error::limit(NAME, address, format!("level {level}")));
        }
        let n = usize::from(r.u16()?);
        let (left, right) = (r.addr(ctx)?, r.addr(ctx)?);
        let key_size = kind.key_size(ctx);
        let (mut children, mut keys) = (Vec::new(), Vec::new());
        for _ in 0..n {
            keys.extend_from_slice(r.bytes(key_size)?);
            children.push(r.addr(ctx)?);
        }
        if n > 0 {
            keys.extend_from_slice(r.bytes(key_size)?);
        }
        Ok(Node { kind, level, left, right, children, key_size, keys })
    }

    /// Encodes the node in `size` bytes, its allocated size, zero-filled. Errors: it does not fit.
    pub fn encode(&self, ctx: &Context, size: usize) -> Result<Vec<u8>> {
        let unfit = || Error::limit(NAME, Address::UNDEF, "the node exceeds its space");
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(self.kind.code()).u8(self.level);
        w.u16(u16::try_from(self.children.len()).map_err(|_| unfit())?).addr(self.left, ctx).addr(self.right, ctx);
        for (i, &child) in self.children.iter().enumerate() {
            w.bytes(self.key(i).unwrap_or_default()).addr(child, ctx);
        }
        w.bytes(self.key(self.children.len()).unwrap_or_default());
        let spare = size.checked_sub(w.position()).ok_or_else(unfit)?;
        w.zeros(spare);
        Ok(w.into_bytes())
    }

    /// Returns encoded key `i`, which ranges from 0 to the number of children.
    pub fn key(&self, i: usize) -> Option<&[u8]> {
        let from = i.checked_mul(self.key_size)?;
        self.keys.get(from..from.checked_add(self.key_size)?)
    }

    /// A node without children or siblings.
    pub fn empty(kind: Btree1Kind, level: u8, ctx: &Context) -> Self {
        let (left, right) = (Address::UNDEF, Address::UNDEF);
        Node { kind, level, left, right, children: Vec::new(), key_size: kind.key_size(ctx), keys: Vec::new() }
    }

    /// Allocated size of a node, bytes, in a tree with up to 2 x `k` children per node.
    pub fn allocated_size(kind: Btree1Kind, k: u16, ctx: &Context) -> u64 {
        let key = kind.key_size(ctx) as u64;
        let pairs = u64::from(k).saturating_mul(2).saturating_mul(key.saturating_add(u64::from(ctx.sizeof_addr)));
        Self::prefix_size(ctx).saturating_add(pairs).saturating_add(key)
    }

    /// Replaces encoded key `i`. Errors: no such key, or different lengths.
    pub fn set_key(&mut self, i: usize, key: &[u8]) -> Result<()> {
        let from = i.checked_mul(self.key_size);
        let old = from.and_then(|f| self.keys.get_mut(f..f.checked_add(self.key_size)?)).filter(|old| old.len() == key.len());
        old.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, format!("it has no key {i}")))?.copy_from_slice(key);
        Ok(())
    }

    /// Inserts a key before encoded key `i`, or after the last one.
    pub fn insert_key(&mut self, i: usize, key: &[u8]) -> Result<()> {
        match i.checked_mul(self.key_size).filter(|&at| at <= self.keys.len() && key.len() == self.key_size) {
            Some(at) => {
                self.keys.splice(at..at, key.iter().copied());
                Ok(())
            }
            None => Err(Error::corrupt(NAME, Address::UNDEF, format!("no place for key {i}"))),
        }
    }

    /// Removes encoded key `i`.
    pub fn remove_key(&mut self, i: usize) -> Result<()> {
        if self.key(i).is_none() {
            return Err(Error::corrupt(NAME, Address::UNDEF, format!("it has no key {i}")));
        }
        let from = i.saturating_mul(self.key_size);
        self.keys.drain(from..from.saturating_add(self.key_size));
        Ok(())
    }

    /// Splits off the children from `n` on as a node of the same level. The key at the split is in
    /// both.
    pub fn split_off(&mut self, n: usize) -> Self {
        let at = n.saturating_mul(self.key_size).min(self.keys.len());
        let keys = self.keys.get(at..).unwrap_or_default().to_vec();
        self.keys.truncate(at.saturating_add(self.key_size));
        let children = self.children.split_off(n.min(self.children.len()));
        Node { children, keys, ..*self }
    }

    /// Size of children and keys in memory, bytes.
    pub fn byte_len(&self) -> usize {
        self.keys.len().saturating_add(self.children.len().saturating_mul(8))
    }
}

/// Key of a chunk B-tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkKey {
    /// Stored bytes of the chunk to the right of the key; 0 in a node's last key.
    pub size: u32,
    /// Filters skipped for the chunk.
    pub filter_mask: u32,
    /// First element of the chunk; the last number is 0 (offset within an element).
    pub offsets: Vec<u64>,
}

impl ChunkKey {
    /// Decodes an encoded key; `address` is the node's.
    pub fn decode(key: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(key, NAME, address);
        let (size, filter_mask) = (r.u32()?, r.u32()?);
        let mut offsets = Vec::new();
        while r.remaining() > 0 {
            offsets.push(r.u64()?);
        }
        Ok(ChunkKey { size, filter_mask, offsets })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(self.size).u32(self.filter_mask);
        for &o in &self.offsets {
            w.u64(o);
        }
        w.into_bytes()
    }

    /// Offsets of an encoded key, decoded lazily.
    pub fn offsets_of(key: &[u8]) -> impl Iterator<Item = u64> + '_ {
        key.get(8..).unwrap_or_default().as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))
    }
}

/// Decodes the key of a group B-tree: offset of a name in the local heap.
pub fn group_key(key: &[u8], ctx: &Context, address: Address) -> Result<u64> {
    Reader::new(key, NAME, address).length(ctx)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Btree1Kind = Btree1Kind::Chunk { dims: 2 };

    fn node() -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(1).u8(0).u16(2).u64(u64::MAX).u64(99);
        w.u32(40).u32(0).u64(0).u64(0).u64(4000);
        w.u32(41).u32(1).u64(10).u64(0).u64(5000);
        w.u32(0).u32(0).u64(20).u64(4).zeros(30);
        w.into_bytes()
    }

    #[test]
    fn round_trip() {
        let ctx = &Context::DEFAULT;
        let b = node();
        let n = Node::decode(&b, KIND, ctx, Address(0)).unwrap();
        assert_eq!(Node::used_size(&b[..8], KIND, ctx, Address(0)).unwrap() as usize, b.len() - 30);
        assert_eq!((n.left, n.right, &n.children[..]), (Address::UNDEF, Address(99), &[Address(4000), Address(5000)][..]));
        let key = ChunkKey::decode(n.key(1).unwrap(), Address(0)).unwrap();
        assert_eq!((key.size, key.filter_mask, &key.offsets[..]), (41, 1, &[10, 0][..]));
        assert_eq!(key.encode(), n.key(1).unwrap());
        assert_eq!(ChunkKey::offsets_of(n.key(2).unwrap()).collect::<Vec<_>>(), [20, 4]);
        assert_eq!(n.key(3), None);
        assert_eq!(n.encode(ctx, b.len()).unwrap(), b);
        assert!(n.encode(ctx, 20).is_err());
    }

    #[test]
    fn editing() {
        let ctx = &Context::DEFAULT;
        let b = node();
        let mut n = Node::decode(&b, KIND, ctx, Address(0)).unwrap();
        let right = n.split_off(1);
        assert_eq!((n.children.len(), right.children.len()), (1, 1));
        assert_eq!(n.key(1), right.key(0));
        assert_eq!((n.key(2), right.key(2)), (None, None));
        assert!(n.set_key(2, right.key(0).unwrap()).is_err() && n.insert_key(3, right.key(0).unwrap()).is_err());
        assert!(n.set_key(0, &[0; 3]).is_err() && n.insert_key(0, &[0; 3]).is_err() && n.remove_key(2).is_err());
        n.insert_key(2, right.key(1).unwrap()).unwrap();
        n.children.push(right.children[0]);
        assert_eq!(n.encode(ctx, b.len()).unwrap(), b);
        n.remove_key(0).unwrap();
        n.set_key(0, &[9; 24]).unwrap();
        assert_eq!((n.key(0), n.key(1)), (Some(&[9; 24][..]), right.key(1)));
        assert_eq!(Node::allocated_size(KIND, 1, ctx), 24 + 2 * 32 + 24);
        assert_eq!(Node::empty(KIND, 0, ctx).encode(ctx, 24).unwrap().len(), 24);
    }

    #[test]
    fn group_node() {
        let ctx = &Context { sizeof_addr: 4, sizeof_size: 4 };
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(0).u8(1).u16(1).u32(u32::MAX).u32(u32::MAX).u32(8).u32(700).u32(16);
        let b = w.into_bytes();
        let n = Node::decode(&b, Btree1Kind::Group, ctx, Address(0)).unwrap();
        assert_eq!((n.level, group_key(n.key(1).unwrap(), ctx, Address(0)).unwrap()), (1, 16));
        assert_eq!(n.encode(ctx, b.len()).unwrap(), b);
        assert!(Node::decode(&b, KIND, ctx, Address(0)).is_err());
    }

    /// Written by libhdf5 2.0.0 with leaf K 1 and internal K 2
    /// (tests/fixtures/groups/make_groups.py).
    const GROUPS: &[u8] = include_bytes!("../../tests/fixtures/groups/old_deep.h5");

    /// Every group node of the file: address and bytes.
    fn group_nodes() -> impl Iterator<Item = (Address, &'static [u8])> {
        let size = Node::allocated_size(Btree1Kind::Group, 2, &Context::DEFAULT) as usize;
        let at = (0..GROUPS.len()).filter(|&i| GROUPS[i..].starts_with(b"TREE"));
        at.map(move |i| (Address(i as u64), &GROUPS[i..i + size]))
    }

    #[test]
    fn group_nodes_of_libhdf5() {
        let ctx = &Context::DEFAULT;
        let mut deepest = 0;
        for (at, bytes) in group_nodes() {
            let node = Node::decode(bytes, Btree1Kind::Group, ctx, at).unwrap();
            assert_eq!(node.encode(ctx, bytes.len()).unwrap(), bytes, "node at {at}");
            assert_eq!(node.used(ctx), Node::used_size(bytes, Btree1Kind::Group, ctx, at).unwrap());
            deepest = deepest.max(node.level);
        }
        assert_eq!(deepest, 3);
        // The root group's only node: one symbol table node, keys "" and "o" (its last entry).
        let (at, bytes) = group_nodes().next().unwrap();
        let node = Node::decode(bytes, Btree1Kind::Group, ctx, at).unwrap();
        assert_eq!((at, node.level, node.left, node.right), (Address(136), 0, Address::UNDEF, Address::UNDEF));
        let keys = [0, 1].map(|i| group_key(node.key(i).unwrap(), ctx, at).unwrap());
        assert_eq!((keys, node.key(2), &node.children[..]), ([0, 0x10], None, &[Address(0x260)][..]));
        let used = node.used(ctx) as usize;
        for i in 0..used {
            assert!(Node::decode(&bytes[..i], Btree1Kind::Group, ctx, at).is_err(), "cut at {i}");
            let mut b = bytes[..used].to_vec();
            b[i] ^= 0x81;
            match Node::decode(&b, Btree1Kind::Group, ctx, at) {
                Ok(node) => assert_eq!(node.encode(ctx, used).unwrap(), b, "byte {i}"),
                Err(_) => assert!(i < 8),
            }
        }
    }

    #[test]
    fn short_and_flipped_bytes() {
        let ctx = &Context::DEFAULT;
        let b = node();
        for i in 0..b.len() - 30 {
            assert!(Node::decode(&b[..i], KIND, ctx, Address(0)).is_err());
            let mut bad = b.clone();
            bad[i] ^= 0x81;
            let _ = Node::decode(&bad, KIND, ctx, Address(0));
            if i < 5 {
                assert!(Node::decode(&bad, KIND, ctx, Address(0)).is_err());
            }
        }
    }
}
