//! Trees whose nodes do not keep what their parents state.

use super::check;
use super::checkpoint::Checkpoint;
use super::compare;
use super::container::Container;
use super::gc::node_packs;
use super::keys::{Key, pack_name};
use super::node::Node;
use super::range::Values;
use super::session::{PackWriter, Session};
use super::snapshot::Snapshot;
use super::tree;
use super::{Cell, Extent};
use crate::base::checksum::crc32c;
use crate::base::{Error, Result};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Nodes in one pack.
#[derive(Default)]
struct Pack(Vec<u8>);

impl Pack {
    fn put(&mut self, node: &Node) -> Extent {
        let bytes = node.encode();
        let extent = Extent { session: 1, pack: 0, offset: self.0.len() as u64, len: bytes.len() as u32, checksum: crc32c(&bytes) };
        self.0.extend(bytes);
        extent
    }

    fn leaf(&mut self, keys: &[&str]) -> Extent {
        self.put(&Node::Leaf(keys.iter().map(|key| (Key::from(*key), Cell::inline(b"value"))).collect()))
    }

    fn inner(&mut self, level: u8, children: &[(&str, Extent)]) -> Extent {
        self.put(&Node::Inner(level, children.iter().map(|(key, extent)| (Key::from(*key), *extent)).collect()))
    }
}

/// Results of all walks of the tree: scan, check, comparison, update, packs of nodes.
fn walks(pack: &Pack, root: Extent) -> (Vec<Result<()>>, usize) {
    let store = MemoryStore::default();
    Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
    store.put(&pack_name(1, 0), &pack.0).unwrap();
    let container = Container::open(Arc::new(store.clone())).unwrap();
    let before = store.counters()[0];
    let all = (Bound::Unbounded, Bound::Unbounded);
    let scan = tree::scan(&container, &root, &all, &mut |_, _| Ok(ControlFlow::Continue(())));
    let snapshot = Snapshot::at(&Checkpoint { version: 1, hash: 0, root: Some(root) });
    let (mut found, mut count) = (Vec::new(), 0);
    check::values(&snapshot, &container, &mut |e| found.push(e), &mut |_, _| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let check = found.into_iter().next().map_or(Ok(()), Err);
    let compare = compare::differing(&container, None, Some(&root));
    let session = Session::new(9).unwrap();
    let changes: Values<Option<Cell>> = ["a", "b", "c", "d", "e", "z"].into_iter().map(|key| (Key::from(key), None)).collect();
    let update = tree::update(&container, Some(&root), &changes, &mut PackWriter::new(&container, &session));
    let packs = node_packs(&container, &[root]);
    // Nodes are cached: each stored one is read once.
    assert!((store.counters()[0] - before) as usize <= pack.0.len() / 20);
    (vec![scan.map(drop), check, compare.map(drop), update.map(drop), packs.map(drop)], count)
}

fn assert_corrupt(results: &[Result<()>], detail: &str) {
    for result in results {
        let e = result.as_ref().unwrap_err();
        assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().contains(detail), "{e}");
        assert!(e.to_string().contains("tree node") && e.to_string().contains("d/0000000000000001/00000000"), "{e}");
    }
}

#[test]
fn trees_that_keep_the_bounds_are_read() {
    let mut pack = Pack::default();
    let leaves = [pack.leaf(&["a", "b"]), pack.leaf(&["c"]), pack.leaf(&["d", "dd"])];
    let left = pack.inner(1, &[("a", leaves[0]), ("c", leaves[1])]);
    let right = pack.inner(1, &[("d", leaves[2])]);
    let root = pack.inner(2, &[("a", left), ("d", right)]);
    let (results, count) = walks(&pack, root);
    results.into_iter().for_each(|result| result.unwrap());
    assert_eq!(count, 5);
}

/// 50^13 leaves in 14 nodes.
#[test]
fn children_that_are_one_node_are_refused() {
    let names: Vec<String> = (0..50u8).map(|n| char::from(b'a' + n).to_string()).collect();
    let mut pack = Pack::default();
    let mut at = pack.leaf(&["a", "aa", "ab"]);
    for level in 1..14 {
        at = pack.inner(level, &names.iter().map(|name| (name.as_str(), at)).collect::<Vec<_>>());
    }
    assert_corrupt(&walks(&pack, at).0, "tree node");
    // Children that state the key that they have: the first one has keys past it.
    let mut pack = Pack::default();
    let leaf = pack.leaf(&["a", "b"]);
    let below = pack.leaf(&["b"]);
    let root = pack.inner(1, &[("a", leaf), ("b", below)]);
    let (results, _) = walks(&pack, root);
    // Packs are those of the parents: leaves are not read.
    assert_corrupt(&results[..4], "keys do not ascend from node to node");
}

/// A bound of a node is that of its last child, at any depth.
#[test]
fn keys_past_the_bound_of_an_ancestor_are_refused() {
    let mut pack = Pack::default();
    let past = pack.leaf(&["b", "d"]);
    let left = pack.inner(1, &[("b", past)]);
    let leaf = pack.leaf(&["c", "d"]);
    let right = pack.inner(1, &[("c", leaf)]);
    let root = pack.inner(2, &[("b", left), ("c", right)]);
    let (results, count) = walks(&pack, root);
    assert_corrupt(&results[..4], "keys do not ascend from node to node");
    // A check reads what is not damaged.
    assert_eq!(count, 2);
    let last = pack.inner(1, &[("b", past), ("c", leaf)]);
    let inner = pack.inner(2, &[("b", last), ("d", right)]);
    assert_corrupt(&walks(&pack, inner).0, "");
}

#[test]
fn other_first_keys_and_levels_are_refused() {
    let mut pack = Pack::default();
    let leaf = pack.leaf(&["b"]);
    let first = pack.inner(1, &[("a", leaf)]);
    assert_corrupt(&walks(&pack, first).0[..4], "first key");
    let inner = pack.inner(1, &[("b", leaf)]);
    let skipped = pack.inner(3, &[("b", inner)]);
    assert_corrupt(&walks(&pack, skipped).0, "level");
}
