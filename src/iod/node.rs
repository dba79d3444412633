//! Node of the tree of a checkpoint.
//!
//! ```text
//! "H5IODN1\n" | level u8: 0 leaf | count u32 | entries, ascending by key | checksum u32
//! entry of a leaf        key length u16 | key | cell
//! entry of another node  key length u16 | least key below | extent of the child
//! ```

use super::cell::{Cell, Extent};
use super::keys::{KEY_MAX, Key};
use super::sealed;
use crate::base::Result;
use crate::format::{Reader, Writer};

const SIGNATURE: &[u8; 8] = b"H5IODN1\n";
const NAME: &str = "tree node";
/// Bytes of entries at which a node is divided.
pub const NODE_BYTES: usize = 64 << 10;
/// Most levels of a tree.
pub const LEVELS_MAX: u8 = 16;

/// The entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Values.
    Leaf(Vec<(Key, Cell)>),
    /// Level, and children with the least key of each.
    Inner(u8, Vec<(Key, Extent)>),
}

impl Node {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        let key = |w: &mut Writer, key: &Key| {
            w.uint(key.len() as u64, 2).bytes(key);
        };
        match self {
            Node::Leaf(entries) => {
                w.u8(0).uint(entries.len() as u64, 4);
                for (k, cell) in entries {
                    key(&mut w, k);
                    cell.write(&mut w);
                }
            }
            Node::Inner(level, entries) => {
                w.u8(*level).uint(entries.len() as u64, 4);
                for (k, extent) in entries {
                    key(&mut w, k);
                    extent.write(&mut w);
                }
            }
        }
        sealed::end(w)
    }

    /// Decodes the node in `extent`.
    pub fn decode(bytes: &[u8], extent: &Extent) -> Result<Node> {
        let mut r = sealed::open(bytes, SIGNATURE, NAME, extent.offset)?;
        let (level, count) = (r.u8()?, r.u32()?);
        if level >= LEVELS_MAX || count == 0 {
            return Err(r.corrupt(format!("level {level} with {count} entries")));
        }
        let node = match level {
            0 => Node::Leaf(entries(&mut r, count, Cell::read)?),
            _ => Node::Inner(level, entries(&mut r, count, Extent::read)?),
        };
        sealed::finish(&r)?;
        Ok(node)
    }

    /// Bytes in memory, about.
    pub fn memory(&self) -> usize {
        let sum = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(64usize, usize::saturating_add);
        match self {
            Node::Leaf(entries) => sum(&mut entries.iter().map(|(k, c)| k.len().saturating_add(c.size()).saturating_add(128))),
            Node::Inner(_, entries) => sum(&mut entries.iter().map(|(k, _)| k.len().saturating_add(128))),
        }
    }

    /// Its first and its last key.
    pub fn bounds(&self) -> (Option<&Key>, Option<&Key>) {
        match self {
            Node::Leaf(entries) => (entries.first().map(|(key, _)| key), entries.last().map(|(key, _)| key)),
            Node::Inner(_, entries) => (entries.first().map(|(key, _)| key), entries.last().map(|(key, _)| key)),
        }
    }

    /// Its level; 0 is that of leaves.
    pub fn level(&self) -> u8 {
        match self {
            Node::Leaf(_) => 0,
            Node::Inner(level, _) => *level,
        }
    }
}

fn entries<T>(r: &mut Reader<'_>, count: u32, read: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<Vec<(Key, T)>> {
    let mut all: Vec<(Key, T)> = Vec::new();
    for _ in 0..count {
        let len = usize::from(r.u16()?);
        let key = r.bytes(len)?.to_vec();
        if key.len() > KEY_MAX || all.last().is_some_and(|(last, _)| *last >= key) {
            return Err(r.corrupt("keys do not ascend"));
        }
        let value = read(r)?;
        all.push((key, value));
    }
    Ok(all)
}
