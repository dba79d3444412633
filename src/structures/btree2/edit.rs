//! Changes to a version 2 B-tree: create, insert, remove, replace, delete.
//!
//! Every node but the root keeps between `merge` and `split` records, as the header's percentages
//! define (libhdf5 relies on exactly these bounds when it changes the tree):
//!
//! ```text
//! overflow:  share with a sibling that has room, else split; one record moves to the parent
//! underflow: join with a sibling and one record of the parent if both fit in a node, else share
//! root:      split -> the tree grows by a level;  no record left -> its child becomes the root
//! ```
//!
//! All changes are made in memory and written at the end: an error leaves the tree unchanged.
//! H5.format.4.0, "Version 2 B-trees".

use super::load::{self, BTree2};
use super::read::Compare;
use super::records::Records;
use crate::base::{Address, Error, Result};
use crate::format::btree2::{Geometry, Header, Internal, Leaf, NodePointer, header};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::level::Level;
use crate::structures::extent::free_all;
use std::cmp::Ordering;

/// A node during a change.
#[derive(Debug, Clone, Default)]
struct Node {
    depth: u16,
    records: Records,
    /// Empty in a leaf.
    children: Vec<NodePointer>,
}

impl Node {
    /// Position of the first record not less than the key, and whether it equals the key.
    fn search(&self, compare: &mut Compare<'_>) -> Result<(usize, bool)> {
        let (mut low, mut high) = (0, self.records.len());
        while low < high {
            let middle = low.midpoint(high);
            let Some(record) = self.records.get(middle) else { break };
            match compare(record)? {
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    fn total(&self) -> u64 {
        self.children.iter().fold(self.records.len() as u64, |n, c| n.saturating_add(c.total))
    }
}

/// Record to remove from a subtree.
enum Target<'a, 'b> {
    Matching(&'a mut Compare<'b>),
    Last,
}

/// One change of a tree.
struct Edit<'s> {
    store: &'s Store,
    tree: BTree2,
    /// Nodes to write: address, bytes, decoded node for the cache.
    writes: Vec<(Address, Vec<u8>, load::Node)>,
    /// Nodes allocated during this change.
    allocated: Vec<Address>,
    /// Nodes to free when the change is written.
    freed: Vec<Address>,
}

/// Creates an empty tree; the first insertion allocates a node. libhdf5 uses 100 and 40 as
/// `split_percent` and `merge_percent` everywhere. Errors: fewer than two records fit in a leaf,
/// ENOSPC.
pub fn create(store: &Store, record_type: u8, record_size: u16, node_size: u32, split_percent: u8, merge_percent: u8) -> Result<Address> {
    let root = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
    let header = Header { record_type, node_size, record_size, depth: 0, split_percent, merge_percent, root };
    let geometry = header.geometry(store.ctx(), Address::UNDEF)?;
    bounds(&header, &geometry, 0, Address::UNDEF)?;
    store.put(&header.encode(store.ctx()), SpaceKind::Metadata)
}

/// Inserts `record` at its place by `compare` (stored record relative to the new one). Errors,
/// before anything is written: the tree has an equal record; damage.
pub fn insert(store: &Store, header: Address, record: &[u8], compare: &mut Compare<'_>) -> Result<()> {
    let mut edit = Edit::open(store, header)?;
    if record.len() != usize::from(edit.tree.header.record_size) {
        let detail = format!("a record of {} bytes in a tree of records of {}", record.len(), edit.tree.header.record_size);
        return Err(Error::corrupt(header::NAME, header, detail));
    }
    let result = edit.insert(record, compare);
    edit.finish(result.map(|()| ((), true)))
}

/// Removes and returns the record for which `compare` returns `Equal`, if any.
pub fn remove(store: &Store, header: Address, compare: &mut Compare<'_>) -> Result<Option<Vec<u8>>> {
    let mut edit = Edit::open(store, header)?;
    let result = edit.remove(compare);
    edit.finish(result.map(|found| (found.clone(), found.is_some())))
}

/// Replaces the record for which `compare` returns `Equal` by `new`, which must have the same rank.
/// False if there is no such record.
pub fn replace(store: &Store, header: Address, compare: &mut Compare<'_>, new: &[u8]) -> Result<bool> {
    let mut edit = Edit::open(store, header)?;
    if new.len() != usize::from(edit.tree.header.record_size) {
        return Err(Error::corrupt(header::NAME, header, format!("a record of {} bytes does not fit", new.len())));
    }
    let result = edit.replace(compare, new);
    edit.finish(result.map(|found| (found, found)))
}

/// Frees all nodes and the header, not what the records refer to.
pub fn delete_tree(store: &Store, header: Address) -> Result<()> {
    let edit = Edit::open(store, header)?;
    free_all(store, |visit| edit.tree.extents(store, visit))
}

/// Smallest and largest number of records of a node of `depth` other than the root.
fn bounds(header: &Header, geometry: &Geometry, depth: u16, at: Address) -> Result<(usize, usize)> {
    let most = geometry.level(depth).map_or(0, |l| l.max_records);
    let part = |percent: u8| most.saturating_mul(u64::from(percent.min(100))) / 100;
    let (merge, split) = (part(header.merge_percent), part(header.split_percent));
    // The counts of records in pointers and headers have 16 bits.
    if !(2..=65_535).contains(&split) {
        return Err(Error::unsupported(header::NAME, at, format!("nodes of {split} records")));
    }
    let merge = merge.min(split.saturating_sub(1) / 2).max(1);
    Ok((merge as usize, split as usize))
}

impl<'s> Edit<'s> {
    fn open(store: &'s Store, at: Address) -> Result<Self> {
        let tree = BTree2::load(store, at)?;
        for depth in 0..=tree.header.depth {
            bounds(&tree.header, &tree.geometry, depth, at)?;
        }
        Ok(Edit { store, tree, writes: Vec::new(), allocated: Vec::new(), freed: Vec::new() })
    }

    fn bounds(&self, depth: u16) -> Result<(usize, usize)> {
        bounds(&self.tree.header, &self.tree.geometry, depth, self.tree.address)
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(header::NAME, self.tree.address, detail)
    }

    /// Writes the change, if `result` has one; on an error frees the nodes that it allocated.
    fn finish<T>(self, result: Result<(T, bool)>) -> Result<T> {
        let (value, changed) = match result {
            Ok(done) => done,
            Err(error) => {
                for address in self.allocated {
                    self.store.free(address, u64::from(self.tree.header.node_size))?;
                }
                return Err(error);
            }
        };
        if changed {
            let node_size = u64::from(self.tree.header.node_size);
            for (address, bytes, node) in self.writes {
                self.store.write_at_level(address, &bytes, Level::Leaf)?;
                let charge = node.charge();
                self.store.keep(address, node, charge, &[(address, node_size)]);
            }
            self.store.write_at_level(self.tree.address, &self.tree.header.encode(self.store.ctx()), Level::Index)?;
            self.tree.keep(self.store);
            for address in self.freed {
                self.store.free(address, node_size)?;
            }
        }
        Ok(value)
    }

    fn load(&self, pointer: &NodePointer, depth: u16) -> Result<Node> {
        let node = self.tree.node(self.store, pointer, depth)?;
        Ok(Node { depth, records: self.records(node.records.clone()), children: node.children.clone() })
    }

    fn records(&self, bytes: Vec<u8>) -> Records {
        Records::new(bytes, usize::from(self.tree.header.record_size))
    }

    /// Queues `node` to be written to `address`, or to a copy if a SWMR reader may read the node
    /// there: a pointer has the number of its records, so that both change together. Returns the
    /// pointer to it.
    fn stage(&mut self, address: Address, node: Node) -> Result<NodePointer> {
        if !self.store.is_published(address, u64::from(self.tree.header.node_size)) {
            return self.stage_at(address, node);
        }
        self.freed.push(address);
        let copy = self.allocate()?;
        self.stage_at(copy, node)
    }

    /// Queues `node` to be written to `address`; returns the pointer to it.
    fn stage_at(&mut self, address: Address, node: Node) -> Result<NodePointer> {
        let total = node.total();
        let count = u16::try_from(node.records.len()).map_err(|_| self.corrupt("a node with more than 65,535 records"))?;
        let (record_type, records) = (self.tree.header.record_type, node.records.into_bytes());
        let (bytes, records, children) = if node.depth == 0 {
            let leaf = Leaf { record_type, records };
            (leaf.encode(&self.tree.header)?, leaf.records, Vec::new())
        } else {
            let internal = Internal { record_type, depth: node.depth, records, children: node.children };
            let bytes = internal.encode(&self.tree.header, &self.tree.geometry, self.store.ctx())?;
            (bytes, internal.records, internal.children)
        };
        self.writes.push((address, bytes, load::Node::new(&self.tree.header, node.depth, count, records, children)));
        Ok(NodePointer { address, records: count, total })
    }

    fn allocate(&mut self) -> Result<Address> {
        let address = self.store.allocate(u64::from(self.tree.header.node_size), SpaceKind::Metadata)?;
        self.allocated.push(address);
        Ok(address)
    }

    fn insert(&mut self, record: &[u8], compare: &mut Compare<'_>) -> Result<()> {
        let root = self.tree.header.root;
        if !root.address.is_defined() {
            if self.tree.header.depth > 0 {
                return Err(self.corrupt("a tree of several levels has no root"));
            }
            let address = self.allocate()?;
            self.tree.header.root = self.stage(address, Node { records: self.records(record.to_vec()), ..Node::default() })?;
            return Ok(());
        }
        let depth = self.tree.header.depth;
        let node = self.insert_below(&root, depth, record, compare)?;
        if node.records.len() <= self.bounds(depth)?.1 {
            self.tree.header.root = self.stage(root.address, node)?;
            return Ok(());
        }
        // The root splits: a new root points to both halves.
        let up = depth.checked_add(1).ok_or_else(|| self.corrupt("too deep"))?;
        self.tree.geometry =
            Geometry::new(self.tree.header.node_size, self.tree.header.record_size, up, self.store.ctx(), self.tree.address)?;
        self.tree.header.depth = up;
        self.bounds(up)?;
        let addresses = [root.address, self.allocate()?];
        let (children, records) = self.spread(node, &addresses)?;
        let address = self.allocate()?;
        self.tree.header.root = self.stage(address, Node { depth: up, records, children })?;
        Ok(())
    }

    /// The node with the record inserted in it or below it; not staged, may have one record too
    /// many.
    fn insert_below(&mut self, pointer: &NodePointer, depth: u16, record: &[u8], compare: &mut Compare<'_>) -> Result<Node> {
        let mut node = self.load(pointer, depth)?;
        let (i, equal) = node.search(compare)?;
        if equal {
            return Err(Error::corrupt(header::NAME, self.tree.address, "the tree has the record already"));
        }
        let Some(below) = depth.checked_sub(1) else {
            node.records.insert(i, record);
            return Ok(node);
        };
        let child = *node.children.get(i).ok_or_else(|| self.corrupt("a child is missing"))?;
        let changed = self.insert_below(&child, below, record, compare)?;
        self.settle(&mut node, i, changed)?;
        Ok(node)
    }

    fn remove(&mut self, compare: &mut Compare<'_>) -> Result<Option<Vec<u8>>> {
        let (root, depth) = (self.tree.header.root, self.tree.header.depth);
        if !root.address.is_defined() || root.total == 0 {
            return Ok(None);
        }
        let Some((node, record)) = self.remove_below(&root, depth, &mut Target::Matching(compare))? else { return Ok(None) };
        if !node.records.is_empty() {
            self.tree.header.root = self.stage(root.address, node)?;
        } else {
            self.freed.push(root.address);
            self.tree.header.depth = depth.saturating_sub(1);
            let none = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
            self.tree.header.root = node.children.first().copied().unwrap_or(none);
        }
        Ok(Some(record))
    }

    /// The node without the record (not staged, may have one record too few), and the record.
    fn remove_below(&mut self, pointer: &NodePointer, depth: u16, take: &mut Target<'_, '_>) -> Result<Option<(Node, Vec<u8>)>> {
        let mut node = self.load(pointer, depth)?;
        let (i, equal) = match take {
            Target::Matching(compare) => node.search(compare)?,
            Target::Last if depth == 0 => (node.records.len().saturating_sub(1), !node.records.is_empty()),
            Target::Last => (node.records.len(), false),
        };
        let Some(below) = depth.checked_sub(1) else {
            return Ok(if equal { node.records.remove(i).map(|record| (node, record)) } else { None });
        };
        let child = *node.children.get(i).ok_or_else(|| self.corrupt("a child is missing"))?;
        // A record of an internal node is replaced by its predecessor, which is in a leaf.
        let mut last = Target::Last;
        let found = self.remove_below(&child, below, if equal { &mut last } else { take })?;
        let (changed, mut record) = match found {
            Some(found) => found,
            None if equal => return Err(self.corrupt("a leaf holds no record")),
            None => return Ok(None),
        };
        if equal {
            record = node.records.replace(i, &record).ok_or_else(|| self.corrupt("a record is missing"))?;
        }
        self.settle(&mut node, i, changed)?;
        Ok(Some((node, record)))
    }

    fn replace(&mut self, compare: &mut Compare<'_>, new: &[u8]) -> Result<bool> {
        let (mut pointer, mut depth) = (self.tree.header.root, self.tree.header.depth);
        if !pointer.address.is_defined() {
            return Ok(false);
        }
        loop {
            let mut node = self.load(&pointer, depth)?;
            let (i, equal) = node.search(compare)?;
            if equal && node.records.replace(i, new).is_some() {
                // It keeps its number of records.
                self.stage_at(pointer.address, node)?;
                return Ok(true);
            }
            let (Some(&child), Some(below)) = (node.children.get(i), depth.checked_sub(1)) else { return Ok(false) };
            (pointer, depth) = (child, below);
        }
    }

    /// Stages the changed child `i` of `node`; balances it with a sibling if it has too many or too
    /// few records.
    fn settle(&mut self, node: &mut Node, i: usize, child: Node) -> Result<()> {
        let (least, most) = self.bounds(child.depth)?;
        let count = child.records.len();
        if (least..=most).contains(&count) {
            let own = node.children.get(i).map(|c| c.address).ok_or_else(|| self.corrupt("a child is missing"))?;
            let pointer = self.stage(own, child)?;
            if let Some(p) = node.children.get_mut(i) {
                *p = pointer;
            }
            return Ok(());
        }
        let neighbours = [i.checked_sub(1), i.checked_add(1)];
        let siblings = neighbours.into_iter().flatten().filter_map(|n| node.children.get(n).map(|p| (usize::from(p.records), n)));
        if count > most {
            return match siblings.min().filter(|&(n, _)| n < most) {
                Some((_, sibling)) => self.share(node, i, child, sibling, 2),
                None => {
                    let own = node.children.get(i).map(|c| c.address).ok_or_else(|| self.corrupt("a child is missing"))?;
                    let addresses = [own, self.allocate()?];
                    let (children, records) = self.spread(child, &addresses)?;
                    node.children.splice(i..=i, children);
                    // One record separates two parts.
                    node.records.insert(i, &records.into_bytes());
                    Ok(())
                }
            };
        }
        let (n, sibling) = siblings.max().ok_or_else(|| self.corrupt("an internal node without records"))?;
        let parts = if n.saturating_add(count) < most { 1 } else { 2 };
        self.share(node, i, child, sibling, parts)
    }

    /// Spreads the records of `child` (the changed child `i`), of its neighbour `sibling` and the
    /// record between them over `parts` nodes.
    fn share(&mut self, node: &mut Node, i: usize, child: Node, sibling: usize, parts: usize) -> Result<()> {
        let missing = || Error::corrupt(header::NAME, self.tree.address, "a child is missing");
        let first = i.min(sibling);
        let pointer = *node.children.get(sibling).ok_or_else(missing)?;
        let own = node.children.get(i).map(|c| c.address).ok_or_else(missing)?;
        let separator = node.records.get(first).ok_or_else(missing)?.to_vec();
        let other = self.load(&pointer, child.depth)?;
        let (mut left, right, addresses) =
            if i < sibling { (child, other, [own, pointer.address]) } else { (other, child, [pointer.address, own]) };
        left.records.push(&separator);
        left.records.extend(&right.records);
        left.children.extend(right.children);
        let kept = addresses.get(..parts).unwrap_or(&addresses);
        self.freed.extend(addresses.get(parts..).unwrap_or_default());
        let (children, records) = self.spread(left, kept)?;
        node.children.splice(first..=first.saturating_add(1), children);
        node.records.remove(first);
        node.records.insert(first, &records.into_bytes());
        Ok(())
    }

    /// Stages the contents of `pool` evenly in nodes at `addresses`; returns the pointers and the
    /// records between them.
    fn spread(&mut self, pool: Node, addresses: &[Address]) -> Result<(Vec<NodePointer>, Records)> {
        let (all, mut done) = (pool.records, 0usize);
        let mut children = pool.children.into_iter();
        let (mut pointers, mut between) = (Vec::new(), self.records(Vec::new()));
        for (k, &address) in addresses.iter().enumerate() {
            let parts = addresses.len().saturating_sub(k);
            let left = all.len().saturating_sub(done);
            let share = left.saturating_add(1).checked_div(parts).unwrap_or(0).saturating_sub(1);
            let share = if parts == 1 { left } else { share };
            let node = Node {
                depth: pool.depth,
                records: all.part(done, share),
                children: children.by_ref().take(if pool.depth > 0 { share.saturating_add(1) } else { 0 }).collect(),
            };
            pointers.push(self.stage(address, node)?);
            if parts > 1 {
                done = done.saturating_add(share);
                between.push(all.get(done).ok_or_else(|| self.corrupt("too few records to share"))?);
                done = done.saturating_add(1);
            }
        }
        Ok((pointers, between))
    }
}

#[cfg(test)]
pub(in crate::structures) use tests::check;

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
