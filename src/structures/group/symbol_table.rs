//! Lookup in an old-style group: a version 1 B-tree of symbol table nodes, names in a local heap.
//!
//! ```text
//! B-tree level n -> ... -> level 0 -> symbol table node -> entries
//! entry: name offset | object header or soft link
//! ```
//!
//! Lookup descends by name. It ignores the outermost keys of a node, so that it finds a name
//! wherever a tree of one leaf holds it. A listing shows an entry only within the key range of
//! every node above it: it shows exactly what lookup finds, and a hostile file whose nodes are
//! shared or form a cycle cannot repeat names without end. Damaged nodes are skipped and logged.

use crate::base::{Address, Error, Result};
use crate::format::btree1::{Btree1Kind, Node, group_key};
use crate::format::message::link::{Link, LinkTarget};
use crate::format::symbol_table::{self, Entry, EntryCache, SymbolTableNode};
use crate::meta::Store;
use crate::structures::btree1;
use crate::structures::local_heap::HeapNames;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of a symbol table node read at first: a node of default K fits.
const FIRST_READ_BYTES: u64 = 544;

/// An open old-style group.
#[derive(Debug, Clone, Copy)]
pub struct SymbolTable {
    pub(super) btree: Address,
    pub(super) names: HeapNames,
}

/// Number of level 0 nodes below a node; a cache entry.
struct LeafCount {
    level: u8,
    leaves: u64,
}

impl SymbolTable {
    /// Opens the group whose symbol table message holds `btree` and `heap`.
    pub fn open(store: &Store, btree: Address, heap: Address) -> Result<Self> {
        Ok(SymbolTable { btree, names: HeapNames::open(store, heap)? })
    }

    /// The link `name`, if the group has it. Errors: a node on the path to it cannot be read.
    pub fn lookup(&self, store: &Store, name: &[u8]) -> Result<Option<Link>> {
        match self.descend(store, name, Self::child_of)? {
            // Keys out of order mislead the binary search, but not a linear search of each node.
            None => self.descend(store, name, Self::first_child_of),
            found => Ok(found),
        }
    }

    fn descend(&self, store: &Store, name: &[u8], choose: fn(&Self, &Store, &Node, &[u8]) -> Result<usize>) -> Result<Option<Link>> {
        let mut node = self.node(store, self.btree, None)?;
        loop {
            let Some(&child) = node.children.get(choose(self, store, &node, name)?) else { return Ok(None) };
            match node.level.checked_sub(1) {
                Some(below) => node = self.node(store, child, Some(below))?,
                None => return self.find_in(store, child, name),
            }
        }
    }

    /// The child whose key range holds `name`, if the keys are in order.
    fn child_of(&self, store: &Store, node: &Node, name: &[u8]) -> Result<usize> {
        let (mut low, mut high) = (0, node.children.len().saturating_sub(1));
        while low < high {
            let middle = low.midpoint(high);
            if self.right_key_is_less(store, node, middle, name)? {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first child whose right key is not less than `name`.
    fn first_child_of(&self, store: &Store, node: &Node, name: &[u8]) -> Result<usize> {
        let last = node.children.len().saturating_sub(1);
        for i in 0..last {
            if !self.right_key_is_less(store, node, i, name)? {
                return Ok(i);
            }
        }
        Ok(last)
    }

    fn right_key_is_less(&self, store: &Store, node: &Node, i: usize, name: &[u8]) -> Result<bool> {
        match self.key_offset(store, node, i.saturating_add(1)) {
            Some(key) => Ok(self.names.compare(store, key, name)? == Ordering::Less),
            None => Ok(false),
        }
    }

    /// The entry `name` of the symbol table node at `address`. A linear search: a node holds few
    /// entries, and one out of order is still found.
    fn find_in(&self, store: &Store, address: Address, name: &[u8]) -> Result<Option<Link>> {
        let node = self.symbols(store, address)?;
        let mut bad = None;
        for entry in &node.entries {
            match self.names.compare(store, entry.name_offset, name) {
                Ok(Ordering::Equal) => return self.link(store, entry, address).map(Some),
                Ok(_) => {}
                Err(e) => bad = Some(e),
            }
        }
        bad.map_or(Ok(None), Err)
    }

    /// Decodes `entry` of the symbol table node at `address`.
    pub(super) fn link(&self, store: &Store, entry: &Entry, address: Address) -> Result<Link> {
        let name = self.names.name(store, entry.name_offset)?;
        let target = match entry.cache(store.ctx(), address)? {
            EntryCache::SoftLink { value_offset } => LinkTarget::Soft(self.names.name(store, u64::from(value_offset))?),
            EntryCache::Nothing | EntryCache::SymbolTable { .. } => LinkTarget::Hard(entry.header),
        };
        Ok(Link { name, utf8: false, creation_order: None, target })
    }

    /// The B-tree node at `address`. Errors: damage, or another level than `level`.
    pub(super) fn node(&self, store: &Store, address: Address, level: Option<u8>) -> Result<Arc<Node>> {
        btree1::load(store, address, Btree1Kind::Group, level)
    }

    /// Heap offset of the name that key `i` of `node` stands for.
    pub(super) fn key_offset(&self, store: &Store, node: &Node, i: usize) -> Option<u64> {
        group_key(node.key(i)?, store.ctx(), self.btree).ok()
    }

    /// The symbol table node at `address`.
    pub(super) fn symbols(&self, store: &Store, address: Address) -> Result<Arc<SymbolTableNode>> {
        store.cached(address, |store| {
            let mut bytes = store.read_upto(address, FIRST_READ_BYTES, symbol_table::NAME)?;
            let size = SymbolTableNode::size(store.ctx(), usize::from(SymbolTableNode::count(&bytes, address)?)) as u64;
            if size > bytes.len() as u64 {
                bytes = store.read(address, size, symbol_table::NAME)?;
            }
            let node = SymbolTableNode::decode(&bytes, store.ctx(), address)?;
            let charge = node.entries.len().saturating_mul(size_of::<Entry>()).saturating_add(128);
            Ok((node, charge))
        })
    }

    /// Number of level 0 nodes at or below the node at `address`, of level `level`. An unreadable
    /// node above level 0 counts as 0; one of level 0 counts as 1, readable or not.
    pub(super) fn leaves(&self, store: &Store, address: Address, level: u8) -> u64 {
        if level == 0 {
            return 1;
        }
        let count = store.cached(address, |store| {
            let leaves = match self.node(store, address, Some(level)) {
                Ok(node) if level == 1 => node.children.len() as u64,
                // Recursion depth: each level is below its parent's; decoding bounds the highest
                // one.
                Ok(node) => node.children.iter().fold(0, |n: u64, &c| n.saturating_add(self.leaves(store, c, level.saturating_sub(1)))),
                Err(e @ Error::Io { .. }) => return Err(e),
                Err(_) => 0,
            };
            Ok((LeafCount { level, leaves }, 64))
        });
        count.map_or(0, |c| if c.level == level { c.leaves } else { 0 })
    }
}
