//! Changes to a version 2 B-tree: create, insert, remove, replace, delete.
//!
//! Every node but the root keeps between `merge` and `split` records, the numbers that the header's
//! percentages say (libhdf5 looks for exactly these numbers when it goes on with the tree):
//!
//! ```text
//! one too many: share with a sibling that has room, else split in two, one record going up
//! one too few:  join with a sibling where both fit in one node, one record coming down, else share
//! root:         split -> the tree grows by a level;  no record left -> its only child is the root
//! ```
//!
//! Everything is computed in memory first and written at the end: an error leaves the tree as it was.
//! H5.format.4.0, "Version 2 B-trees".

mod records;

use super::btree2::{self, BTree2, Compare};
use crate::base::{Address, Error, Result, limits};
use crate::format::btree2::{Geometry, Header, Internal, Leaf, NodePointer, header, leaf};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use records::Records;
use std::cmp::Ordering;
use std::collections::HashSet;

/// A node in memory.
#[derive(Debug, Clone, Default)]
struct Node {
    depth: u16,
    records: Records,
    /// Empty in a leaf.
    children: Vec<NodePointer>,
}

impl Node {
    /// Position of the first record that is not before the key, and whether it is equal to it.
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

/// Which record to take out of a subtree.
enum Take<'a, 'b> {
    Matching(&'a mut Compare<'b>),
    Last,
}

/// One change under way.
struct Edit<'s> {
    store: &'s Store,
    at: Address,
    header: Header,
    geometry: Geometry,
    /// Bytes, and what they are when they are read again.
    writes: Vec<(Address, Vec<u8>, btree2::Node)>,
    taken: Vec<Address>,
    freed: Vec<Address>,
}

/// Creates an empty tree; nodes are allocated when records come. `split_percent` and `merge_percent` as
/// libhdf5 has them (100 and 40 everywhere). Errors: fewer than two records in a leaf, no space.
pub fn create(store: &Store, record_type: u8, record_size: u16, node_size: u32, split_percent: u8, merge_percent: u8) -> Result<Address> {
    let root = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
    let header = Header { record_type, node_size, record_size, depth: 0, split_percent, merge_percent, root };
    let geometry = header.geometry(store.ctx(), Address::UNDEF)?;
    bounds(&header, &geometry, 0, Address::UNDEF)?;
    store.put(&header.encode(store.ctx()), SpaceKind::Metadata)
}

/// Inserts `record` where `compare` (stored record against the new one) says. Errors: a record that is
/// equal, or damage on the way; nothing was written then.
pub fn insert(store: &Store, header: Address, record: &[u8], compare: &mut Compare<'_>) -> Result<()> {
    let mut edit = Edit::open(store, header)?;
    if record.len() != usize::from(edit.header.record_size) {
        let detail = format!("a record of {} bytes in a tree of records of {}", record.len(), edit.header.record_size);
        return Err(Error::corrupt(header::NAME, header, detail));
    }
    let result = edit.insert(record, compare);
    edit.finish(result.map(|()| ((), true)))
}

/// Removes and returns the record for which `compare` says `Equal`, if there is one.
pub fn remove(store: &Store, header: Address, compare: &mut Compare<'_>) -> Result<Option<Vec<u8>>> {
    let mut edit = Edit::open(store, header)?;
    let result = edit.remove(compare);
    edit.finish(result.map(|found| (found.clone(), found.is_some())))
}

/// Puts `new` in the place of the record for which `compare` says `Equal`; the order must stay what it was.
/// False when there is no such record.
pub fn replace(store: &Store, header: Address, compare: &mut Compare<'_>, new: &[u8]) -> Result<bool> {
    let mut edit = Edit::open(store, header)?;
    if new.len() != usize::from(edit.header.record_size) {
        return Err(Error::corrupt(header::NAME, header, format!("a record of {} bytes does not fit", new.len())));
    }
    let result = edit.replace(compare, new);
    edit.finish(result.map(|found| (found, found)))
}

/// Gives back all nodes and the header. What the records stand for is not touched.
pub fn delete_tree(store: &Store, header: Address) -> Result<()> {
    let edit = Edit::open(store, header)?;
    let mut nodes = HashSet::new();
    let most = edit.header.root.total.saturating_mul(2).saturating_add(64);
    if edit.header.root.address.is_defined() {
        edit.collect(&edit.header.root, edit.header.depth, most, &mut nodes)?;
    }
    for node in nodes {
        store.free(node, u64::from(edit.header.node_size))?;
    }
    store.free(header, Header::size(store.ctx()) as u64)
}

/// Fewest and most records of a node of `depth` that is not the root.
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
        let bytes = store.read(at, Header::size(store.ctx()) as u64, header::NAME)?;
        let header = Header::decode(&bytes, at, store.ctx())?;
        let geometry = header.geometry(store.ctx(), at)?;
        for depth in 0..=header.depth {
            bounds(&header, &geometry, depth, at)?;
        }
        Ok(Edit { store, at, header, geometry, writes: Vec::new(), taken: Vec::new(), freed: Vec::new() })
    }

    fn bounds(&self, depth: u16) -> Result<(usize, usize)> {
        bounds(&self.header, &self.geometry, depth, self.at)
    }

    fn corrupt(&self, detail: &'static str) -> Error {
        Error::corrupt(header::NAME, self.at, detail)
    }

    /// Writes what was computed (when there is something to write), or gives back what was taken.
    fn finish<T>(self, result: Result<(T, bool)>) -> Result<T> {
        let (value, changed) = match result {
            Ok(done) => done,
            Err(error) => {
                for address in self.taken {
                    self.store.free(address, u64::from(self.header.node_size))?;
                }
                return Err(error);
            }
        };
        if changed {
            let node_size = u64::from(self.header.node_size);
            for (address, bytes, node) in self.writes {
                self.store.write(address, &bytes)?;
                let charge = node.charge();
                self.store.keep(address, node, charge, &[(address, node_size)]);
            }
            self.store.write(self.at, &self.header.encode(self.store.ctx()))?;
            BTree2::keep(self.store, self.at, self.header, self.geometry);
            for address in self.freed {
                self.store.free(address, node_size)?;
            }
        }
        Ok(value)
    }

    fn load(&self, pointer: &NodePointer, depth: u16) -> Result<Node> {
        let node = btree2::Node::find(self.store, &self.header, &self.geometry, pointer, depth)?;
        Ok(Node { depth, records: self.records(node.records.clone()), children: node.children.clone() })
    }

    fn records(&self, bytes: Vec<u8>) -> Records {
        Records::new(bytes, usize::from(self.header.record_size))
    }

    /// Has `node` written to `address`; the pointer to it.
    fn stage(&mut self, address: Address, node: Node) -> Result<NodePointer> {
        let total = node.total();
        let count = u16::try_from(node.records.len()).map_err(|_| self.corrupt("a node with more than 65,535 records"))?;
        let (record_type, records) = (self.header.record_type, node.records.into_bytes());
        let (bytes, records, children) = if node.depth == 0 {
            let leaf = Leaf { record_type, records };
            (leaf.encode(&self.header)?, leaf.records, Vec::new())
        } else {
            let internal = Internal { record_type, depth: node.depth, records, children: node.children };
            let bytes = internal.encode(&self.header, &self.geometry, self.store.ctx())?;
            (bytes, internal.records, internal.children)
        };
        self.writes.push((address, bytes, btree2::Node::new(&self.header, node.depth, count, records, children)));
        Ok(NodePointer { address, records: count, total })
    }

    fn allocate(&mut self) -> Result<Address> {
        let address = self.store.allocate(u64::from(self.header.node_size), SpaceKind::Metadata)?;
        self.taken.push(address);
        Ok(address)
    }

    fn insert(&mut self, record: &[u8], compare: &mut Compare<'_>) -> Result<()> {
        let root = self.header.root;
        if !root.address.is_defined() {
            if self.header.depth > 0 {
                return Err(self.corrupt("a tree of several levels has no root"));
            }
            let address = self.allocate()?;
            self.header.root = self.stage(address, Node { records: self.records(record.to_vec()), ..Node::default() })?;
            return Ok(());
        }
        let depth = self.header.depth;
        let node = self.insert_below(&root, depth, record, compare)?;
        if node.records.len() <= self.bounds(depth)?.1 {
            self.header.root = self.stage(root.address, node)?;
            return Ok(());
        }
        // The root splits: a new root over both halves.
        let up = depth.checked_add(1).ok_or_else(|| self.corrupt("too deep"))?;
        self.geometry = Geometry::new(self.header.node_size, self.header.record_size, up, self.store.ctx(), self.at)?;
        self.header.depth = up;
        self.bounds(up)?;
        let addresses = [root.address, self.allocate()?];
        let (children, records) = self.spread(node, &addresses)?;
        let address = self.allocate()?;
        self.header.root = self.stage(address, Node { depth: up, records, children })?;
        Ok(())
    }

    /// The node with the record put in it or below it; not staged, perhaps with one record too many.
    fn insert_below(&mut self, pointer: &NodePointer, depth: u16, record: &[u8], compare: &mut Compare<'_>) -> Result<Node> {
        let mut node = self.load(pointer, depth)?;
        let (i, equal) = node.search(compare)?;
        if equal {
            return Err(Error::corrupt(header::NAME, self.at, "the record is in the tree already"));
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
        let (root, depth) = (self.header.root, self.header.depth);
        if !root.address.is_defined() || root.total == 0 {
            return Ok(None);
        }
        let Some((node, record)) = self.remove_below(&root, depth, &mut Take::Matching(compare))? else { return Ok(None) };
        if !node.records.is_empty() {
            self.header.root = self.stage(root.address, node)?;
        } else {
            self.freed.push(root.address);
            self.header.depth = depth.saturating_sub(1);
            let none = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
            self.header.root = node.children.first().copied().unwrap_or(none);
        }
        Ok(Some(record))
    }

    /// The node without the record (not staged, perhaps with one record too few), and the record.
    fn remove_below(&mut self, pointer: &NodePointer, depth: u16, take: &mut Take<'_, '_>) -> Result<Option<(Node, Vec<u8>)>> {
        let mut node = self.load(pointer, depth)?;
        let (i, equal) = match take {
            Take::Matching(compare) => node.search(compare)?,
            Take::Last if depth == 0 => (node.records.len().saturating_sub(1), !node.records.is_empty()),
            Take::Last => (node.records.len(), false),
        };
        let Some(below) = depth.checked_sub(1) else {
            return Ok(if equal { node.records.remove(i).map(|record| (node, record)) } else { None });
        };
        let child = *node.children.get(i).ok_or_else(|| self.corrupt("a child is missing"))?;
        // A record of an internal node is replaced by the one before it, which a leaf holds.
        let mut last = Take::Last;
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
        let (mut pointer, mut depth) = (self.header.root, self.header.depth);
        if !pointer.address.is_defined() {
            return Ok(false);
        }
        loop {
            let mut node = self.load(&pointer, depth)?;
            let (i, equal) = node.search(compare)?;
            if equal && node.records.replace(i, new).is_some() {
                self.stage(pointer.address, node)?;
                return Ok(true);
            }
            let (Some(&child), Some(below)) = (node.children.get(i), depth.checked_sub(1)) else { return Ok(false) };
            (pointer, depth) = (child, below);
        }
    }

    /// Stages the changed child `i` of `node`, with the help of a sibling when it has too many or too few records.
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
                    // Between two parts there is one.
                    node.records.insert(i, &records.into_bytes());
                    Ok(())
                }
            };
        }
        let (n, sibling) = siblings.max().ok_or_else(|| self.corrupt("an internal node without records"))?;
        let parts = if n.saturating_add(count) < most { 1 } else { 2 };
        self.share(node, i, child, sibling, parts)
    }

    /// Spreads the records of child `i` (its changed contents given), its neighbour `sibling` and the one
    /// between them over `parts` nodes.
    fn share(&mut self, node: &mut Node, i: usize, child: Node, sibling: usize, parts: usize) -> Result<()> {
        let missing = || Error::corrupt(header::NAME, self.at, "a child is missing");
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

    /// Stages the contents of `pool` evenly in nodes at `addresses`: the pointers, and the records between them.
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

    /// Adds the addresses of a node and of all below it.
    fn collect(&self, pointer: &NodePointer, depth: u16, most: u64, nodes: &mut HashSet<Address>) -> Result<()> {
        if nodes.len() as u64 >= most || usize::from(depth) > limits::TREE_DEPTH_MAX || !nodes.insert(pointer.address) {
            return Err(self.corrupt("a node is reached twice, or there are more than the records need"));
        }
        if let Some(below) = depth.checked_sub(1) {
            for child in &self.load(pointer, depth)?.children {
                self.collect(child, below, most, nodes)?;
            }
        } else {
            self.store.offset(pointer.address, leaf::NAME)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) use tests::check;

#[cfg(test)]
mod tests;
