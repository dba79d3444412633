//! Group node of a version 1 B-tree, node type 0 (H5.format.4.0, "Version 1 B-trees").
//!
//! ```text
//! "TREE" | type 0 | level u8 | entries used u16 | left sibling O | right sibling O
//! | key 0 L | child 0 O | key 1 L | child 1 O | ... | key n L      room for 2 x group internal K children
//! ```
//!
//! A key is the local heap offset of a name: names in child i are greater than key i and not greater
//! than key i + 1. Children of level 0 are symbol table nodes. A node without children has no key.

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "group B-tree node";
const SIGNATURE: &[u8; 4] = b"TREE";
const TYPE_GROUP: u8 = 0;

/// A decoded group node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNode {
    /// 0: the children are symbol table nodes; else group nodes of the level below.
    pub level: u8,
    /// Left sibling of the same level.
    pub left: Address,
    /// Right sibling of the same level.
    pub right: Address,
    /// Local heap offsets: one more than children, none when there is no child.
    pub keys: Vec<u64>,
    /// Children in order.
    pub children: Vec<Address>,
}

impl GroupNode {
    /// Bytes before the first key.
    pub fn header_size(ctx: &Context) -> usize {
        usize::from(ctx.sizeof_addr).saturating_mul(2).saturating_add(8)
    }

    /// Bytes of a node with room for `room` children (2 x group internal K when allocated).
    pub fn size(ctx: &Context, room: usize) -> usize {
        let key = usize::from(ctx.sizeof_size);
        let pair = key.saturating_add(usize::from(ctx.sizeof_addr));
        room.saturating_mul(pair).saturating_add(key).saturating_add(Self::header_size(ctx))
    }

    /// The number of children of a node that begins with `head` (at least 8 bytes).
    pub fn count(head: &[u8], address: Address) -> Result<u16> {
        Ok(Self::header(&mut Reader::new(head, NAME, address))?.1)
    }

    fn header(r: &mut Reader<'_>) -> Result<(u8, u16)> {
        r.signature(SIGNATURE)?;
        let kind = r.u8()?;
        if kind != TYPE_GROUP {
            return Err(r.corrupt(format!("node type is {kind}, must be 0")));
        }
        Ok((r.u8()?, r.u16()?))
    }

    /// Decodes the node at the start of `buf`; unused room behind its last key is ignored.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        let (level, n) = Self::header(&mut r)?;
        let n = usize::from(n);
        let (left, right) = (r.addr(ctx)?, r.addr(ctx)?);
        if n > 0 && Self::size(ctx, n) > buf.len() {
            return Err(r.corrupt(format!("{n} children do not fit in {} bytes", buf.len())));
        }
        let mut keys = Vec::with_capacity(if n > 0 { n.saturating_add(1) } else { 0 });
        let mut children = Vec::with_capacity(n);
        for _ in 0..n {
            keys.push(r.length(ctx)?);
            children.push(r.addr(ctx)?);
        }
        if n > 0 {
            keys.push(r.length(ctx)?);
        }
        Ok(GroupNode { level, left, right, keys, children })
    }

    /// The node with room for `room` children, unused ones zero as libhdf5 leaves them.
    pub fn encode(&self, ctx: &Context, room: usize) -> Result<Vec<u8>> {
        let bad = |detail| Error::corrupt(NAME, Address::UNDEF, detail);
        let n = u16::try_from(self.children.len()).map_err(|_| bad("more than 65535 children"))?;
        let want_keys = if n == 0 { 0 } else { self.children.len().saturating_add(1) };
        if self.keys.len() != want_keys || self.children.len() > room {
            return Err(bad("keys, children and room do not agree"));
        }
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(TYPE_GROUP).u8(self.level).u16(n).addr(self.left, ctx).addr(self.right, ctx);
        for (i, &key) in self.keys.iter().enumerate() {
            w.length(key, ctx);
            if let Some(&child) = self.children.get(i) {
                w.addr(child, ctx);
            }
        }
        w.zeros(Self::size(ctx, room).saturating_sub(w.position()));
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;
    /// Written by libhdf5 2.0.0 with leaf K 1 and internal K 2 (tests/fixtures/groups/make_groups.py).
    const FILE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/groups/old_deep.h5"));

    /// Every node of the file: address and bytes.
    fn nodes() -> Vec<(usize, &'static [u8])> {
        let size = GroupNode::size(&CTX, 4);
        let at: Vec<usize> = (0..FILE.len()).filter(|&i| FILE[i..].starts_with(SIGNATURE)).collect();
        at.into_iter().map(|i| (i, &FILE[i..i + size])).collect()
    }

    #[test]
    fn every_node_round_trips() {
        let mut deepest = 0;
        for (at, bytes) in nodes() {
            let node = GroupNode::decode(bytes, &CTX, Address(at as u64)).unwrap();
            assert_eq!(node.encode(&CTX, 4).unwrap(), bytes, "node at {at}");
            assert_eq!(usize::from(GroupNode::count(bytes, Address(0)).unwrap()), node.children.len());
            deepest = deepest.max(node.level);
        }
        assert_eq!(deepest, 3);
    }

    #[test]
    fn known_answer() {
        let (at, bytes) = nodes()[0];
        let node = GroupNode::decode(bytes, &CTX, Address(at as u64)).unwrap();
        // The root group's only node: one symbol table node, keys "" and "o" (its last entry).
        assert_eq!((at, node.level, node.left, node.right), (136, 0, Address::UNDEF, Address::UNDEF));
        assert_eq!((node.keys.len(), node.keys[0], &node.children[..]), (2, 0, &[Address(0x260)][..]));
        assert_eq!(node.keys[1], 0x10);
    }

    #[test]
    fn damage_is_an_error_never_a_panic() {
        let (_, bytes) = nodes()[0];
        let used = GroupNode::size(&CTX, 1);
        for n in 0..used {
            assert!(GroupNode::decode(&bytes[..n], &CTX, Address(0)).is_err(), "cut at {n}");
        }
        for i in 0..used {
            let mut b = bytes[..used].to_vec();
            b[i] ^= 0x81;
            match GroupNode::decode(&b, &CTX, Address(0)) {
                Ok(node) => assert_eq!(node.encode(&CTX, 1).unwrap(), b, "byte {i}"),
                Err(_) => assert!(i < 8),
            }
        }
        let node = GroupNode { level: 0, left: Address::UNDEF, right: Address::UNDEF, keys: vec![0], children: vec![] };
        assert!(node.encode(&CTX, 4).is_err());
    }
}
