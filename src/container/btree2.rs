//! Search and ordered iteration of a version 2 B-tree.
//!
//! Internal nodes hold records too: an in-order walk visits child 0, record 0, child 1, record 1, ...
//! Every pointer says how many records lie below it, so a walk can start at any rank in
//! O(depth) node reads. Decoded nodes are kept in the store's cache.

use crate::base::{Address, Error, Result};
use crate::format::btree2::{Geometry, Header, Internal, Leaf, NodePointer, header, internal, leaf};
use crate::meta::Store;
use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Ordering of a stored record relative to the wanted key.
pub type Compare<'a> = dyn FnMut(&[u8]) -> Result<Ordering> + 'a;
/// Called with each record; `Break` ends the walk.
pub type Visit<'a> = dyn FnMut(&[u8]) -> Result<ControlFlow<()>> + 'a;

/// An open version 2 B-tree.
#[derive(Debug)]
pub struct BTree2 {
    address: Address,
    header: Header,
    geometry: Geometry,
}

/// What a node must be for its pointer to be right; kept with the cached node, because a hostile
/// file may reach one address by pointers that disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    record_type: u8,
    record_size: u16,
    node_size: u32,
    depth: u16,
    records: u16,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    records: Vec<u8>,
    /// Empty in a leaf.
    children: Vec<NodePointer>,
}

impl Node {
    fn count(&self) -> usize {
        usize::from(self.kind.records)
    }

    fn record(&self, i: usize) -> Option<&[u8]> {
        let size = usize::from(self.kind.record_size);
        let start = i.checked_mul(size)?;
        self.records.get(start..start.checked_add(size)?)
    }

    /// First record in `from..` for which `before` is false.
    fn partition(&self, from: usize, before: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<usize> {
        let (mut low, mut high) = (from, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.record(middle) {
                Some(record) if before(record)? => low = middle.saturating_add(1),
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

/// Nodes and records one operation may still visit: a file whose pointers form a cycle or share
/// nodes ends here, after no more work than an honest tree of the stated size asks for.
struct Budget {
    nodes: u64,
    records: u64,
}

impl BTree2 {
    /// Opens the tree whose header is at `address`. Errors: corrupt header, or one that states more
    /// records than the file has room for.
    pub fn open(store: &Store, address: Address) -> Result<Arc<BTree2>> {
        store.cached(address, || {
            let bytes = store.read(address, Header::size(store.ctx()) as u64, header::NAME)?;
            let header = Header::decode(&bytes, address, store.ctx())?;
            let geometry = header.geometry(store.ctx(), address)?;
            let most = store.len()? / u64::from(header.record_size).max(1);
            if header.root.total > most {
                return Err(Error::corrupt(header::NAME, address, format!("{} records, the file holds at most {most}", header.root.total)));
            }
            let charge = size_of::<BTree2>().saturating_add(usize::from(header.depth).saturating_mul(40));
            Ok((BTree2 { address, header, geometry }, charge))
        })
    }

    /// Address of the header.
    pub fn address(&self) -> Address {
        self.address
    }

    /// What the records are (`Header::record_type`).
    pub fn record_type(&self) -> u8 {
        self.header.record_type
    }

    /// Bytes of a record.
    pub fn record_size(&self) -> u16 {
        self.header.record_size
    }

    /// Records in the whole tree.
    pub fn len(&self) -> u64 {
        self.header.root.total
    }

    /// True when the tree holds no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A record for which `compare` says `Equal`, if any.
    pub fn find(&self, store: &Store, compare: &mut Compare<'_>) -> Result<Option<Vec<u8>>> {
        let mut pointer = self.header.root;
        let mut depth = self.header.depth;
        if self.is_empty() {
            return Ok(None);
        }
        loop {
            let node = self.node(store, &pointer, depth)?;
            let mut found = None;
            let at = node.partition(0, &mut |record| {
                let order = compare(record)?;
                if order == Ordering::Equal {
                    found = Some(record.to_vec());
                }
                Ok(order == Ordering::Less)
            })?;
            if found.is_some() {
                return Ok(found);
            }
            let (Some(&child), Some(below)) = (node.children.get(at), depth.checked_sub(1)) else { return Ok(None) };
            (pointer, depth) = (child, below);
        }
    }

    /// Visits, in order, all records for which `compare` says `Equal` (duplicate hash keys).
    pub fn find_range(&self, store: &Store, compare: &mut Compare<'_>, f: &mut Visit<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut budget = self.budget();
        self.range(store, &self.header.root, self.header.depth, compare, f, &mut budget).map(drop)
    }

    /// Visits every record in order.
    pub fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        self.iterate_from(store, 0, f)
    }

    /// Visits every record in order from the one with `rank` records before it. A rank at or past
    /// the end visits nothing.
    pub fn iterate_from(&self, store: &Store, rank: u64, f: &mut Visit<'_>) -> Result<()> {
        if rank >= self.len() {
            return Ok(());
        }
        let mut budget = self.budget();
        let mut skip = rank;
        self.walk(store, &self.header.root, self.header.depth, &mut skip, f, &mut budget).map(drop)
    }

    fn budget(&self) -> Budget {
        // Every node of an honest tree holds a record; leave room for emptied leaves.
        let records = self.len();
        Budget { nodes: records.saturating_mul(2).saturating_add(64), records }
    }

    fn spend(&self, left: &mut u64, what: &'static str) -> Result<()> {
        *left = left.checked_sub(1).ok_or_else(|| Error::corrupt(header::NAME, self.address, format!("more {what} than it states")))?;
        Ok(())
    }

    fn walk(
        &self,
        store: &Store,
        pointer: &NodePointer,
        depth: u16,
        skip: &mut u64,
        f: &mut Visit<'_>,
        budget: &mut Budget,
    ) -> Result<ControlFlow<()>> {
        self.spend(&mut budget.nodes, "nodes")?;
        let node = self.node(store, pointer, depth)?;
        for i in 0..=node.count() {
            if let (Some(child), Some(below)) = (node.children.get(i), depth.checked_sub(1)) {
                if child.total <= *skip {
                    *skip = skip.saturating_sub(child.total);
                } else if self.walk(store, child, below, skip, f, budget)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let Some(record) = node.record(i) else { break };
            if *skip > 0 {
                *skip = skip.saturating_sub(1);
                continue;
            }
            self.spend(&mut budget.records, "records")?;
            if f(record)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn range(
        &self,
        store: &Store,
        pointer: &NodePointer,
        depth: u16,
        compare: &mut Compare<'_>,
        f: &mut Visit<'_>,
        budget: &mut Budget,
    ) -> Result<ControlFlow<()>> {
        self.spend(&mut budget.nodes, "nodes")?;
        let node = self.node(store, pointer, depth)?;
        let first = node.partition(0, &mut |record| Ok(compare(record)? == Ordering::Less))?;
        let end = node.partition(first, &mut |record| Ok(compare(record)? == Ordering::Equal))?;
        for i in first..=end {
            if let (Some(child), Some(below)) = (node.children.get(i), depth.checked_sub(1))
                && self.range(store, child, below, compare, f, budget)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            let Some(record) = node.record(i).filter(|_| i < end) else { break };
            self.spend(&mut budget.records, "records")?;
            if f(record)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn node(&self, store: &Store, pointer: &NodePointer, depth: u16) -> Result<Arc<Node>> {
        let h = &self.header;
        let kind = Kind { record_type: h.record_type, record_size: h.record_size, node_size: h.node_size, depth, records: pointer.records };
        let node = store.cached(pointer.address, || self.load(store, pointer, kind))?;
        if node.kind == kind {
            Ok(node)
        } else {
            Err(Error::corrupt(leaf::NAME, pointer.address, "two pointers to the node disagree about it"))
        }
    }

    fn load(&self, store: &Store, pointer: &NodePointer, kind: Kind) -> Result<(Node, usize)> {
        let (h, at) = (&self.header, pointer.address);
        let node = if kind.depth == 0 {
            let bytes = store.read(at, Leaf::used(h, kind.records) as u64, leaf::NAME)?;
            Node { kind, records: Leaf::decode(&bytes, at, h, kind.records)?.records, children: Vec::new() }
        } else {
            let used = Internal::used(h, &self.geometry, kind.depth, kind.records);
            let bytes = store.read(at, used as u64, internal::NAME)?;
            let n = Internal::decode(&bytes, at, h, &self.geometry, kind.depth, kind.records, store.ctx())?;
            Node { kind, records: n.records, children: n.children }
        };
        let children = node.children.len().saturating_mul(size_of::<NodePointer>());
        let charge = size_of::<Node>().saturating_add(node.records.len()).saturating_add(children);
        Ok((node, charge))
    }
}
