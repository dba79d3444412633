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

/// A decoded node.
#[derive(Debug)]
pub(super) struct Node {
    kind: Kind,
    /// One after another.
    pub(super) records: Vec<u8>,
    /// Empty in a leaf.
    pub(super) children: Vec<NodePointer>,
}

impl Kind {
    fn new(h: &Header, depth: u16, records: u16) -> Self {
        Kind { record_type: h.record_type, record_size: h.record_size, node_size: h.node_size, depth, records }
    }
}

impl Node {
    /// A node of `count` records at `depth` of the tree of `header`.
    pub(super) fn new(header: &Header, depth: u16, count: u16, records: Vec<u8>, children: Vec<NodePointer>) -> Self {
        Node { kind: Kind::new(header, depth, count), records, children }
    }

    /// Bytes of memory, about.
    pub(super) fn charge(&self) -> usize {
        let children = self.children.len().saturating_mul(size_of::<NodePointer>());
        size_of::<Node>().saturating_add(self.records.len()).saturating_add(children)
    }

    /// The node that `pointer` says is at `depth`. Errors: damage; another pointer says otherwise.
    pub(super) fn find(store: &Store, header: &Header, geometry: &Geometry, pointer: &NodePointer, depth: u16) -> Result<Arc<Node>> {
        let kind = Kind::new(header, depth, pointer.records);
        let node = store.cached(pointer.address, || {
            let node = Node::load(store, header, geometry, pointer, kind)?;
            let charge = node.charge();
            Ok((node, charge))
        })?;
        if node.kind == kind {
            Ok(node)
        } else {
            Err(Error::corrupt(leaf::NAME, pointer.address, "two pointers to the node disagree about it"))
        }
    }

    fn load(store: &Store, h: &Header, geometry: &Geometry, pointer: &NodePointer, kind: Kind) -> Result<Node> {
        let at = pointer.address;
        if kind.depth == 0 {
            let bytes = store.read(at, Leaf::used(h, kind.records) as u64, leaf::NAME)?;
            return Ok(Node { kind, records: Leaf::decode(&bytes, at, h, kind.records)?.records, children: Vec::new() });
        }
        let used = Internal::used(h, geometry, kind.depth, kind.records);
        let bytes = store.read(at, used as u64, internal::NAME)?;
        let n = Internal::decode(&bytes, at, h, geometry, kind.depth, kind.records, store.ctx())?;
        Ok(Node { kind, records: n.records, children: n.children })
    }

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
            let most = store.room()? / u64::from(header.record_size).max(1);
            if header.root.total > most {
                return Err(Error::corrupt(header::NAME, address, format!("{} records, the file holds at most {most}", header.root.total)));
            }
            let tree = BTree2 { address, header, geometry };
            let charge = tree.charge();
            Ok((tree, charge))
        })
    }

    fn charge(&self) -> usize {
        size_of::<BTree2>().saturating_add(usize::from(self.header.depth).saturating_mul(40))
    }

    /// Has the tree known by a header that was written in this moment.
    pub(super) fn keep(store: &Store, address: Address, header: Header, geometry: Geometry) {
        let tree = BTree2 { address, header, geometry };
        let charge = tree.charge();
        store.keep(address, tree, charge, &[(address, Header::size(store.ctx()) as u64)]);
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
        Node::find(store, &self.header, &self.geometry, pointer, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Context;

    const CTX: &Context = &Context::DEFAULT;
    const NODE: u32 = 64;

    /// A full tree of `depth` with 8-byte big-endian records 0, 2, 4, ... and its file.
    struct Built {
        bytes: Vec<u8>,
        header: Header,
        next: u64,
    }

    impl Built {
        fn new(depth: u16) -> Built {
            let root = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
            let mut header =
                Header { record_type: 10, node_size: NODE, record_size: 8, depth, split_percent: 100, merge_percent: 40, root };
            let g = header.geometry(CTX, Address(0)).unwrap();
            let mut b = Built { bytes: vec![0; 128], header: header.clone(), next: 0 };
            header.root = b.node(&g, depth);
            b.header = header;
            b.write_header();
            b
        }

        fn write_header(&mut self) {
            let h = self.header.encode(CTX);
            self.bytes[64..64 + h.len()].copy_from_slice(&h);
        }

        fn record(&mut self) -> [u8; 8] {
            self.next += 2;
            (self.next - 2).to_be_bytes()
        }

        fn node(&mut self, g: &Geometry, depth: u16) -> NodePointer {
            let n = g.level(depth).unwrap().max_records as u16;
            let (mut records, mut children) = (Vec::new(), Vec::new());
            for i in 0..=n {
                if depth > 0 {
                    children.push(self.node(g, depth - 1));
                }
                if i < n {
                    records.extend(self.record());
                }
            }
            let total = u64::from(n) + children.iter().map(|c| c.total).sum::<u64>();
            let bytes = match depth {
                0 => Leaf { record_type: 10, records }.encode(&self.header).unwrap(),
                _ => Internal { record_type: 10, depth, records, children }.encode(&self.header, g, CTX).unwrap(),
            };
            let address = Address(self.bytes.len() as u64);
            self.bytes.extend(bytes);
            NodePointer { address, records: n, total }
        }

        fn open(&self) -> (Store, Result<Arc<BTree2>>) {
            let store = Store::over_bytes(self.bytes.clone());
            let tree = BTree2::open(&store, Address(64));
            (store, tree)
        }
    }

    fn value(r: &[u8]) -> u64 {
        u64::from_be_bytes(r.try_into().unwrap())
    }

    #[test]
    fn every_record_by_rank_and_by_key() {
        for depth in 0..5 {
            let (store, tree) = Built::new(depth).open();
            let tree = tree.unwrap();
            let n = tree.len();
            for rank in (0..=n).step_by(if depth > 3 { 17 } else { 1 }) {
                let mut seen = Vec::new();
                let mut visit = |r: &[u8]| {
                    seen.push(value(r) / 2);
                    Ok(if seen.len() < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
                };
                tree.iterate_from(&store, rank, &mut visit).unwrap();
                assert_eq!(seen, (rank..n.min(rank + 5)).collect::<Vec<_>>());
                let want = rank * 2;
                let found = tree.find(&store, &mut |r| Ok(value(r).cmp(&want))).unwrap();
                assert_eq!(found.map(|r| value(&r)), (rank < n).then_some(want));
                assert_eq!(tree.find(&store, &mut |r| Ok(value(r).cmp(&(want + 1)))).unwrap(), None);
            }
        }
    }

    #[test]
    fn ranges_of_equal_keys() {
        let (store, tree) = Built::new(3).open();
        let tree = tree.unwrap();
        for (low, high) in [(0, 1), (5, 40), (0, tree.len()), (7, 7), (30, 31)] {
            let mut seen = Vec::new();
            let mut compare = |r: &[u8]| {
                let v = value(r) / 2;
                Ok(if v < low {
                    Ordering::Less
                } else if v < high {
                    Ordering::Equal
                } else {
                    Ordering::Greater
                })
            };
            let mut visit = |r: &[u8]| {
                seen.push(value(r) / 2);
                Ok(ControlFlow::Continue(()))
            };
            tree.find_range(&store, &mut compare, &mut visit).unwrap();
            assert_eq!(seen, (low..high).collect::<Vec<_>>());
        }
        let failing = &mut |_: &[u8]| Err(Error::corrupt("test", Address(0), "no"));
        assert!(tree.find(&store, failing).is_err());
    }

    #[test]
    fn an_empty_tree() {
        let mut b = Built::new(0);
        b.header.root = NodePointer { address: Address::UNDEF, records: 0, total: 0 };
        b.write_header();
        let (store, tree) = b.open();
        let tree = tree.unwrap();
        assert!(tree.is_empty());
        assert_eq!(tree.find(&store, &mut |_| Ok(Ordering::Equal)).unwrap(), None);
        tree.iterate(&store, &mut |_| unreachable!()).unwrap();
    }

    /// All pointers of every node lead to one child: 3^4 visits for a file of 6 nodes; the stated
    /// total, which the file's length bounds, ends it.
    #[test]
    fn shared_nodes_end() {
        let mut b = Built::new(4);
        let g = b.header.geometry(CTX, Address(64)).unwrap();
        let mut pointer = b.node(&g, 0);
        for depth in 1..=4 {
            let n = g.level(depth).unwrap().max_records as u16;
            let children = vec![pointer; usize::from(n) + 1];
            let node = Internal { record_type: 10, depth, records: vec![0; usize::from(n) * 8], children };
            let total = u64::from(n) + pointer.total * (u64::from(n) + 1);
            let address = Address(b.bytes.len() as u64);
            b.bytes.extend(node.encode(&b.header, &g, CTX).unwrap());
            pointer = NodePointer { address, records: n, total };
        }
        b.header.root = NodePointer { total: 20, ..pointer };
        b.write_header();
        let (store, tree) = b.open();
        let mut n = 0;
        let mut visit = |_: &[u8]| {
            n += 1;
            Ok(ControlFlow::Continue(()))
        };
        assert!(tree.unwrap().iterate(&store, &mut visit).is_err());
        assert_eq!(n, 20);
        b.header.root.total = 1 << 40;
        b.write_header();
        assert!(b.open().1.is_err());
    }

    /// A node that is its own child: the depths disagree.
    #[test]
    fn a_cycle_ends() {
        let mut b = Built::new(2);
        let g = b.header.geometry(CTX, Address(64)).unwrap();
        let address = Address(b.bytes.len() as u64);
        let own = NodePointer { address, records: 1, total: 9 };
        let node = Internal { record_type: 10, depth: 2, records: vec![0; 8], children: vec![own, own] };
        b.bytes.extend(node.encode(&b.header, &g, CTX).unwrap());
        b.header.root = own;
        b.write_header();
        let (store, tree) = b.open();
        let tree = tree.unwrap();
        assert!(tree.iterate(&store, &mut |_| Ok(ControlFlow::Continue(()))).is_err());
        assert!(tree.find(&store, &mut |_| Ok(Ordering::Less)).is_err());
    }
}
