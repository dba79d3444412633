//! Lookup and walks of version 2 B-trees: full trees of several depths, hostile ones.

use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::btree2::{Geometry, Header, Internal, Leaf, NodePointer};
use crate::meta::Store;
use crate::structures::btree2::BTree2;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

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
        let mut header = Header { record_type: 10, node_size: NODE, record_size: 8, depth, split_percent: 100, merge_percent: 40, root };
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

/// All pointers of every node lead to one child, 3^4 visits for a file of 6 nodes. The recorded
/// total, which the file's length bounds, ends the walk.
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
