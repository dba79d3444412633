//! Old-style group: a version 1 B-tree of symbol table nodes, names in a local heap.
//!
//! ```text
//! B-tree level n -> ... -> level 0 -> symbol table node -> entries (name offset, object header | soft link)
//! ```
//!
//! Lookup descends by name; the outermost keys of a node are not consulted, so that a name is found
//! wherever a tree of one leaf holds it. Listing shows an entry only within the key range of every
//! node above it: what is listed is what lookup finds, and a file whose nodes are shared or form a
//! cycle cannot repeat names without end. Damage is skipped and logged.

use super::heap_names::HeapNames;
use crate::base::{Address, Error, Result, limits};
use crate::format::group_node::{self, GroupNode};
use crate::format::message::link::{Link, LinkTarget};
use crate::format::symbol_table::{self, Entry, EntryCache, SymbolTableNode};
use crate::meta::Store;
use std::cmp::Ordering;
use std::sync::Arc;

/// B-tree nodes and symbol table nodes are read this many bytes at first: those of default K fit.
const FIRST_READ: u64 = 544;

/// An old-style group, open for lookup and listing.
#[derive(Debug, Clone, Copy)]
pub struct GroupBTree {
    pub(super) btree: Address,
    pub(super) names: HeapNames,
}

/// Number of level 0 nodes below a node, kept in the store's cache.
struct LeafCount {
    level: u8,
    leaves: u64,
}

impl GroupBTree {
    /// Opens the group whose symbol table message holds `btree` and `heap`.
    pub fn open(store: &Store, btree: Address, heap: Address) -> Result<Self> {
        Ok(GroupBTree { btree, names: HeapNames::open(store, heap)? })
    }

    /// The link called `name`, if the group has one. Errors: a node on the way to it cannot be read.
    pub fn lookup(&self, store: &Store, name: &[u8]) -> Result<Option<Link>> {
        match self.descend(store, name, Self::child_of)? {
            // Keys out of order mislead the binary search, not the scan of each node on the way.
            None => self.descend(store, name, Self::first_child_of),
            found => Ok(found),
        }
    }

    fn descend(&self, store: &Store, name: &[u8], choose: fn(&Self, &Store, &GroupNode, &[u8]) -> Result<usize>) -> Result<Option<Link>> {
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
    fn child_of(&self, store: &Store, node: &GroupNode, name: &[u8]) -> Result<usize> {
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
    fn first_child_of(&self, store: &Store, node: &GroupNode, name: &[u8]) -> Result<usize> {
        let last = node.children.len().saturating_sub(1);
        for i in 0..last {
            if !self.right_key_is_less(store, node, i, name)? {
                return Ok(i);
            }
        }
        Ok(last)
    }

    fn right_key_is_less(&self, store: &Store, node: &GroupNode, i: usize, name: &[u8]) -> Result<bool> {
        match node.keys.get(i.saturating_add(1)) {
            Some(&key) => Ok(self.names.compare(store, key, name)? == Ordering::Less),
            None => Ok(false),
        }
    }

    /// The entry called `name` of the symbol table node at `address`. A scan: a node holds few
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

    /// The link that `entry` of the node at `address` stands for.
    pub(super) fn link(&self, store: &Store, entry: &Entry, address: Address) -> Result<Link> {
        let name = self.names.name(store, entry.name_offset)?;
        let target = match entry.cache(store.ctx(), address)? {
            EntryCache::SoftLink { value_offset } => LinkTarget::Soft(self.names.name(store, u64::from(value_offset))?),
            EntryCache::Nothing | EntryCache::SymbolTable { .. } => LinkTarget::Hard(entry.header),
        };
        Ok(Link { name, utf8: false, creation_order: None, target })
    }

    /// The B-tree node at `address`, which must be of level `level` if that is known.
    pub(super) fn node(&self, store: &Store, address: Address, level: Option<u8>) -> Result<Arc<GroupNode>> {
        let node = store.cached(address, || {
            let bytes = read_node(store, address, group_node::NAME, |head| {
                Ok(GroupNode::size(store.ctx(), usize::from(GroupNode::count(head, address)?)))
            })?;
            let node = GroupNode::decode(&bytes, store.ctx(), address)?;
            let charge = node.children.len().saturating_mul(16).saturating_add(128);
            Ok((node, charge))
        })?;
        let wrong = |detail| Err(Error::corrupt(group_node::NAME, address, detail));
        match level {
            Some(level) if level != node.level => wrong(format!("level is {}, its parent says {level}", node.level)),
            _ if usize::from(node.level) > limits::TREE_DEPTH_MAX => wrong(format!("level is {}", node.level)),
            _ => Ok(node),
        }
    }

    /// The symbol table node at `address`.
    pub(super) fn symbols(&self, store: &Store, address: Address) -> Result<Arc<SymbolTableNode>> {
        store.cached(address, || {
            let bytes = read_node(store, address, symbol_table::NAME, |head| {
                Ok(SymbolTableNode::size(store.ctx(), usize::from(SymbolTableNode::count(head, address)?)))
            })?;
            let node = SymbolTableNode::decode(&bytes, store.ctx(), address)?;
            let charge = node.entries.len().saturating_mul(size_of::<Entry>()).saturating_add(128);
            Ok((node, charge))
        })
    }

    /// Level 0 nodes at or below the node at `address`, which its parent says is of level `level`.
    /// A node that cannot be read has none below it; one of level 0 counts as one, readable or not.
    pub(super) fn leaves(&self, store: &Store, address: Address, level: u8) -> u64 {
        if level == 0 {
            return 1;
        }
        let count = store.cached(address, || {
            let leaves = match self.node(store, address, Some(level)) {
                Ok(node) if level == 1 => node.children.len() as u64,
                // Depth: every level is below its parent's, which `node` checks and bounds.
                Ok(node) => node.children.iter().fold(0, |n: u64, &c| n.saturating_add(self.leaves(store, c, level.saturating_sub(1)))),
                Err(e @ Error::Io { .. }) => return Err(e),
                Err(_) => 0,
            };
            Ok((LeafCount { level, leaves }, 64))
        });
        count.map_or(0, |c| if c.level == level { c.leaves } else { 0 })
    }
}

/// The bytes of a node whose head says how many it has.
fn read_node(store: &Store, address: Address, name: &'static str, size: impl Fn(&[u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let bytes = store.read_upto(address, FIRST_READ, name)?;
    let size = size(&bytes)? as u64;
    if size > bytes.len() as u64 { store.read(address, size, name) } else { Ok(bytes) }
}
