//! Changes to nodes of a version 1 B-tree of either kind.
//!
//! ```text
//! keys:     k0    k1    k2    k3        kn of a node = k0 of its right sibling
//! children:    c0    c1    c2           k0 and kn are also the keys around the node in its parent
//! ```
//!
//! One of the two keys around a child is its own: of a chunk the left, of a symbol table node the
//! right one. The own key is inserted and removed with the child. Where a node starts or ends with
//! such a key, its sibling and the nodes above hold copies, which are updated too.
//!
//! As in libhdf5 (H5B.c), full nodes are split, nodes are never merged, a node is freed with its
//! last child, and the root keeps its address: when it splits, its content moves. All nodes are
//! changed in memory and written at the end, so that an error changes nothing.

use crate::base::{Address, Error, Result, limits};
use crate::format::btree1::{Btree1Kind, NAME, Node};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::{self, Extent};
use crate::structures::btree1::read::{check_level, walk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// One step of a path from the root to a leaf.
#[derive(Debug, Clone, Copy)]
pub(in crate::structures) struct Step {
    /// The node.
    pub address: Address,
    /// Position of the child on the path; 0 if the node has none.
    pub index: usize,
}

/// Nodes of one tree during a change.
pub(in crate::structures) struct Edit<'s> {
    store: &'s Store,
    kind: Btree1Kind,
    /// Largest number of children of a node.
    capacity: usize,
    /// Bytes of a node.
    size: u64,
    nodes: BTreeMap<Address, Node>,
    /// Nodes to write.
    dirty: BTreeSet<Address>,
    /// Allocated during this change.
    allocated: BTreeSet<Address>,
    /// To free when the change is written.
    freed: BTreeSet<Address>,
}

fn corrupt(address: Address, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(NAME, address, detail)
}

/// Writes an empty tree, whose nodes will have up to 2 x `k` children; returns its root.
pub(in crate::structures) fn create(store: &Store, kind: Btree1Kind, k: u16) -> Result<Address> {
    let size = Edit::new(store, kind, k)?.size;
    let size = usize::try_from(size).map_err(|_| Error::limit(NAME, Address::UNDEF, "node size"))?;
    store.put(&Node::empty(kind, 0, store.ctx()).encode(store.ctx(), size)?, SpaceKind::Metadata)
}

/// Visits the nodes of the tree at `root`, and calls `entry` with every child of the leaves.
/// Errors: those of both, a node that cannot be read.
pub(in crate::structures) fn extents(
    store: &Store,
    root: Address,
    kind: Btree1Kind,
    k: u16,
    entry: &mut dyn FnMut(Address) -> Result<()>,
    visit: &mut extent::Visit<'_>,
) -> Result<()> {
    let edit = Edit::new(store, kind, k)?;
    let mut load = |address, level| {
        let node = edit.read(address, level)?;
        visit(Extent::metadata(address, edit.size, NAME))?;
        Ok(Arc::new(node))
    };
    walk(store, root, &mut load, &mut |leaf, i| {
        leaf.children.get(i).map_or(Ok(()), |&child| entry(child))?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Applies `change` to a tree and writes the changed nodes. Errors: those of `change`, before
/// anything is written.
pub(in crate::structures) fn edit<T>(
    store: &Store,
    kind: Btree1Kind,
    k: u16,
    change: impl FnOnce(&mut Edit<'_>) -> Result<T>,
) -> Result<T> {
    let mut edit = Edit::new(store, kind, k)?;
    let result = change(&mut edit).and_then(|value| Ok((edit.encoded()?, value)));
    match result {
        Ok((writes, value)) => {
            writes.iter().try_for_each(|(address, bytes)| store.write(*address, bytes))?;
            edit.freed.iter().try_for_each(|&address| store.free(address, edit.size))?;
            Ok(value)
        }
        Err(e) => {
            for &address in &edit.allocated {
                store.free(address, edit.size)?;
            }
            Err(e)
        }
    }
}

impl<'s> Edit<'s> {
    fn new(store: &'s Store, kind: Btree1Kind, k: u16) -> Result<Self> {
        let capacity = usize::from(k).saturating_mul(2);
        if capacity == 0 || capacity > usize::from(u16::MAX) {
            return Err(Error::unsupported(NAME, Address::UNDEF, format!("K is {k}")));
        }
        let size = Node::allocated_size(kind, k, store.ctx());
        let (dirty, allocated, freed) = Default::default();
        Ok(Edit { store, kind, capacity, size, nodes: BTreeMap::new(), dirty, allocated, freed })
    }

    /// Reads the node at `address`, past the cache. Errors: damage, or another level than `level`.
    fn read(&self, address: Address, level: Option<u8>) -> Result<Node> {
        // All allocated bytes: a node that ends past EOF must not be written.
        let node = Node::decode(&self.store.read(address, self.size, NAME)?, self.kind, self.store.ctx(), address)?;
        check_level(&node, address, level)?;
        match level {
            Some(_) if node.children.is_empty() => return Err(corrupt(address, "no children in a node that is not the root")),
            None if node.children.is_empty() && node.level > 0 => return Err(corrupt(address, "an empty tree of several levels")),
            _ => {}
        }
        if node.children.len() > self.capacity {
            return Err(corrupt(address, format!("{} children, at most {} fit", node.children.len(), self.capacity)));
        }
        Ok(node)
    }

    fn load(&mut self, address: Address, level: Option<u8>) -> Result<&Node> {
        if !self.nodes.contains_key(&address) {
            let node = self.read(address, level)?;
            self.nodes.insert(address, node);
        }
        let node = self.node(address)?;
        check_level(node, address, level)?;
        Ok(node)
    }

    /// The node at `address`, which must have been loaded.
    pub fn node(&self, address: Address) -> Result<&Node> {
        self.nodes.get(&address).ok_or_else(|| corrupt(address, "not a node of the tree"))
    }

    /// The node at `address`, which must have been loaded, for a change.
    pub fn change(&mut self, address: Address) -> Result<&mut Node> {
        self.dirty.insert(address);
        self.nodes.get_mut(&address).ok_or_else(|| corrupt(address, "not a node of the tree"))
    }

    /// Loads the node at `address`, a sibling of a node of level `level`, for a change.
    fn sibling(&mut self, address: Address, level: u8) -> Result<&mut Node> {
        self.load(address, Some(level))?;
        self.change(address)
    }

    /// The path from `root` to a leaf by the children that `pick` selects. The last step is in a
    /// leaf; its child exists unless the tree is empty.
    pub fn descend(&mut self, root: Address, pick: &mut dyn FnMut(&Node) -> Result<usize>) -> Result<Vec<Step>> {
        let (mut path, mut address, mut level) = (Vec::new(), root, None);
        loop {
            let node = self.load(address, level)?;
            let index = if node.children.is_empty() { 0 } else { pick(node)? };
            path.push(Step { address, index });
            // Levels fall by one at each step, so this ends.
            let Some(below) = node.level.checked_sub(1) else { return Ok(path) };
            address = *node.children.get(index).ok_or_else(|| corrupt(address, "no such child"))?;
            level = Some(below);
        }
    }

    /// Inserts `child`, with `key` on its left, after the child where `path` ends. Splits full
    /// nodes.
    pub fn insert_after(&mut self, path: &[Step], key: Vec<u8>, child: Address) -> Result<()> {
        let (mut key, mut child) = (key, child);
        for (depth, step) in path.iter().enumerate().rev() {
            let put = |node: &mut Node, index: usize| {
                let at = index.saturating_add(1);
                if at > node.children.len() {
                    return Err(corrupt(step.address, "no such child"));
                }
                node.insert_key(at, &key)?;
                node.children.insert(at, child);
                Ok(())
            };
            let (capacity, node) = (self.capacity, self.change(step.address)?);
            if node.children.len() < capacity {
                return put(node, step.index);
            }
            let (right, kept) = self.split(step, depth == 0)?;
            match step.index.checked_sub(kept) {
                None => put(self.change(step.address)?, step.index)?,
                Some(index) => put(self.change(right)?, index)?,
            }
            let first = self.node(right)?.key(0).unwrap_or_default().to_vec();
            if depth == 0 {
                return self.raise(step.address, right);
            }
            (key, child) = (first, right);
        }
        Ok(())
    }

    fn add(&mut self, node: Node) -> Result<Address> {
        let address = self.store.allocate(self.size, SpaceKind::Metadata)?;
        self.nodes.insert(address, node);
        self.dirty.insert(address);
        self.allocated.insert(address);
        Ok(address)
    }

    /// Splits a full node; returns the new right node and the number of children that the node
    /// keeps.
    fn split(&mut self, step: &Step, is_root: bool) -> Result<(Address, usize)> {
        let capacity = self.capacity;
        let node = self.change(step.address)?;
        if is_root {
            (node.left, node.right) = (Address::UNDEF, Address::UNDEF);
        }
        // libhdf5's default ratios: few splits when entries arrive in order.
        let kept = match (node.left.is_defined(), node.right.is_defined()) {
            (_, false) => capacity.saturating_mul(9) / 10,
            (false, true) => capacity / 10,
            (true, true) => capacity / 2,
        };
        let kept = kept.clamp(1, capacity.saturating_sub(1).max(1));
        let mut right = node.split_off(kept);
        (right.left, right.level) = (step.address, node.level);
        let (next, level) = (right.right, right.level);
        let address = self.add(right)?;
        if next.is_defined() {
            self.sibling(next, level)?.left = address;
        }
        self.change(step.address)?.right = address;
        Ok((address, kept))
    }

    /// Moves the left half of a split root to a new node; the root becomes the parent of both
    /// halves.
    fn raise(&mut self, root: Address, right: Address) -> Result<()> {
        let node = self.node(root)?.clone();
        let level = node.level.checked_add(1).filter(|&l| usize::from(l) <= limits::TREE_DEPTH_MAX);
        let level = level.ok_or_else(|| Error::limit(NAME, root, "levels"))?;
        let first = node.key(0).unwrap_or_default().to_vec();
        let left = self.add(node)?;
        let node = self.change(right)?;
        node.left = left;
        let (middle, last) = (node.key(0).unwrap_or_default().to_vec(), node.key(node.children.len()).unwrap_or_default().to_vec());
        let mut top = Node::empty(self.kind, level, self.store.ctx());
        top.children = vec![left, right];
        for (i, key) in [first, middle, last].iter().enumerate() {
            top.insert_key(i, key)?;
        }
        *self.change(root)? = top;
        Ok(())
    }

    /// Sets the first key of the node at `depth` of `path`, and its copies.
    pub fn set_first_key(&mut self, path: &[Step], depth: usize, key: &[u8]) -> Result<()> {
        let mut inner = false;
        for (depth, step) in path.iter().enumerate().take(depth.saturating_add(1)).rev() {
            let node = self.change(step.address)?;
            let index = if inner { step.index } else { 0 };
            node.set_key(index, key)?;
            if index > 0 {
                break;
            }
            let (sibling, level) = (node.left, node.level);
            if depth > 0 && sibling.is_defined() {
                let sibling = self.sibling(sibling, level)?;
                sibling.set_key(sibling.children.len(), key)?;
            }
            inner = true;
        }
        Ok(())
    }

    /// Sets the key after child `path[depth].index`, and its copies if it is the node's last key.
    pub fn set_key_after(&mut self, path: &[Step], depth: usize, key: &[u8]) -> Result<()> {
        for (depth, step) in path.iter().enumerate().take(depth.saturating_add(1)).rev() {
            let node = self.change(step.address)?;
            let index = step.index.saturating_add(1);
            node.set_key(index, key)?;
            if index < node.children.len() {
                break;
            }
            let (sibling, level) = (node.right, node.level);
            if depth > 0 && sibling.is_defined() {
                self.sibling(sibling, level)?.set_key(0, key)?;
            }
        }
        Ok(())
    }

    /// Removes the child where `path` ends, and every node but the root that becomes empty.
    pub fn remove_child(&mut self, path: &[Step]) -> Result<()> {
        let own_key_is_left = matches!(self.kind, Btree1Kind::Chunk { .. });
        for (depth, step) in path.iter().enumerate().rev() {
            let (empty, node) = (Node::empty(self.kind, 0, self.store.ctx()), self.change(step.address)?);
            if step.index >= node.children.len() {
                return Err(corrupt(step.address, "no such child"));
            }
            if node.children.len() > 1 {
                node.children.remove(step.index);
                let last = node.children.len();
                node.remove_key(step.index.saturating_add(usize::from(!own_key_is_left)))?;
                if own_key_is_left && step.index == 0 {
                    let key = node.key(0).unwrap_or_default().to_vec();
                    return self.set_first_key(path, depth, &key);
                }
                if !own_key_is_left && step.index == last {
                    let key = node.key(last).unwrap_or_default().to_vec();
                    let mut path = path.to_vec();
                    if let Some(step) = path.get_mut(depth) {
                        step.index = last.saturating_sub(1);
                    }
                    return self.set_key_after(&path, depth, &key);
                }
                return Ok(());
            }
            if depth == 0 {
                *node = empty;
                return Ok(());
            }
            self.unlink(step.address, own_key_is_left)?;
        }
        Ok(())
    }

    /// Unlinks a node with one child from its siblings; the child's other key moves to a sibling.
    fn unlink(&mut self, address: Address, own_key_is_left: bool) -> Result<()> {
        let node = self.node(address)?.clone();
        if node.left.is_defined() {
            let left = self.sibling(node.left, node.level)?;
            left.right = node.right;
            if own_key_is_left {
                left.set_key(left.children.len(), node.key(1).unwrap_or_default())?;
            }
        }
        if node.right.is_defined() {
            let right = self.sibling(node.right, node.level)?;
            right.left = node.left;
            if !own_key_is_left {
                right.set_key(0, node.key(0).unwrap_or_default())?;
            }
        }
        self.nodes.remove(&address);
        self.dirty.remove(&address);
        self.freed.insert(address);
        Ok(())
    }

    /// The changed nodes: address and bytes to write.
    fn encoded(&self) -> Result<Vec<(Address, Vec<u8>)>> {
        let ctx = self.store.ctx();
        let size = usize::try_from(self.size).map_err(|_| Error::limit(NAME, Address::UNDEF, "node size"))?;
        let encode = |&address: &Address| {
            let node = self.node(address)?;
            let mut bytes = node.encode(ctx, size)?;
            if !self.allocated.contains(&address) {
                // Bytes after the last key are unused.
                bytes.truncate(usize::try_from(node.used(ctx)).unwrap_or(size));
            }
            Ok((address, bytes))
        };
        self.dirty.iter().map(encode).collect()
    }
}
