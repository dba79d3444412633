//! Lookup, ordered iteration and the walk of a version 1 B-tree of either kind.

use crate::base::{Address, Error, Result};
use crate::format::btree1::{Btree1Kind, NAME, Node};
use crate::meta::Store;
use crate::structures::budget::Budget;
use crate::structures::estimate::sample_place;
use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes read at first: most nodes fit, so that loading one costs one read.
const FIRST_READ_BYTES: u64 = 4096;

/// Bytes announced of a node that a walk will read: of most nodes all.
pub(in crate::structures) const NODE_BYTES_EXPECTED: u64 = FIRST_READ_BYTES;

/// Paths from the root to a leaf that one estimate follows.
const SAMPLED_PATHS: u64 = 16;

/// Called with the address of a node and the level that its parent implies; returns the node.
pub(super) type Load<'a> = dyn FnMut(Address, Option<u8>) -> Result<Arc<Node>> + 'a;
/// Called with a leaf and the position of a child.
pub(super) type Visit<'a> = dyn FnMut(&Node, usize) -> Result<ControlFlow<()>> + 'a;

/// The node at `address` from the store's cache, or read into it. Errors: damage; a node of another
/// kind, or of another level than `level`.
pub(in crate::structures) fn load(store: &Store, address: Address, kind: Btree1Kind, level: Option<u8>) -> Result<Arc<Node>> {
    let node = store.cached(address, |store| {
        let mut bytes = store.read_upto(address, FIRST_READ_BYTES, NAME)?;
        let used = Node::used_size(&bytes, kind, store.ctx(), address)?;
        if used > bytes.len() as u64 {
            bytes = store.read(address, used, NAME)?;
        }
        let node = Node::decode(&bytes, kind, store.ctx(), address)?;
        let charge = size_of::<Node>().saturating_add(node.byte_len());
        Ok((node, charge))
    })?;
    // A cached node may have been loaded for another tree: a hostile file lets two trees meet.
    if node.kind != kind {
        return Err(Error::corrupt(NAME, address, "trees of different kinds share the node"));
    }
    check_level(&node, address, level)?;
    Ok(node)
}

/// Errors: the node is not of the level that its parent implies.
pub(super) fn check_level(node: &Node, address: Address, level: Option<u8>) -> Result<()> {
    match level {
        Some(level) if level != node.level => {
            Err(Error::corrupt(NAME, address, format!("level is {}, its parent implies {level}", node.level)))
        }
        _ => Ok(()),
    }
}

/// Descends from `root` to a leaf by the child that `pick` selects; returns the leaf and the child
/// selected there. `None` if `pick` selects none. Cheap when the nodes are cached.
pub fn find(
    store: &Store,
    root: Address,
    kind: Btree1Kind,
    pick: &mut dyn FnMut(&Node) -> Result<Option<usize>>,
) -> Result<Option<(Arc<Node>, usize)>> {
    let (mut at, mut level) = (root, None);
    // Levels fall by one at each step, so this ends.
    loop {
        let node = load(store, at, kind, level)?;
        let Some(i) = pick(&node)? else { return Ok(None) };
        let Some(below) = node.level.checked_sub(1) else { return Ok(Some((node, i))) };
        let Some(&child) = node.children.get(i) else { return Ok(None) };
        (at, level) = (child, Some(below));
    }
}

/// Visits every child of every leaf in order, as (leaf, position of the child).
pub fn iterate(store: &Store, root: Address, kind: Btree1Kind, f: &mut dyn FnMut(&Node, usize) -> Result<ControlFlow<()>>) -> Result<()> {
    walk(store, root, &mut |at, level| load(store, at, kind, level), f)
}

/// Visits the children of leaves in order, from the first that may have the key that `pick` looks
/// for: it returns the child of a node that does.
pub fn iterate_from(
    store: &Store,
    root: Address,
    kind: Btree1Kind,
    pick: &mut dyn FnMut(&Node) -> usize,
    f: &mut dyn FnMut(&Node, usize) -> Result<ControlFlow<()>>,
) -> Result<()> {
    walk_from(store, root, &mut |at, level| load(store, at, kind, level), pick, f)
}

/// Estimates the number of children of all leaves, from the nodes on a few paths. Exact if the root
/// is a leaf.
pub fn estimate(store: &Store, root: Address, kind: Btree1Kind) -> Result<u64> {
    let root = load(store, root, kind, None)?;
    let fanout = |node: &Node| node.children.len() as u64;
    let mut sum = 0u64;
    for path in 0..SAMPLED_PATHS {
        let (mut node, mut leaves) = (root.clone(), 1u64);
        // Levels fall by one at each step, so this ends.
        while let Some(below) = node.level.checked_sub(1) {
            leaves = leaves.saturating_mul(fanout(&node));
            let sample = path.saturating_add(u64::from(below).saturating_mul(SAMPLED_PATHS));
            let i = usize::try_from(sample_place(sample, fanout(&node))).unwrap_or(usize::MAX);
            let Some(&child) = node.children.get(i) else { break };
            node = load(store, child, kind, Some(below))?;
        }
        sum = sum.saturating_add(leaves.saturating_mul(fanout(&node)));
    }
    Ok(sum / SAMPLED_PATHS)
}

/// Visits every child of every leaf in order; `load` loads each node when the walk reaches it.
pub(super) fn walk(store: &Store, root: Address, load: &mut Load<'_>, f: &mut Visit<'_>) -> Result<()> {
    walk_from(store, root, load, &mut |_| 0, f)
}

fn walk_from(store: &Store, root: Address, load: &mut Load<'_>, pick: &mut dyn FnMut(&Node) -> usize, f: &mut Visit<'_>) -> Result<()> {
    let mut budget = Budget::new(store, NAME, root)?;
    let mut enter = |at, level| {
        let node = load(at, level)?;
        budget.spend(node.used(store.ctx()))?;
        if node.level > 0 {
            store.announce(node.children.iter().copied(), NODE_BYTES_EXPECTED);
        }
        Ok(node)
    };
    let first = enter(root, None)?;
    let at = pick(&first);
    let mut stack = vec![(first, at)];
    // Descends to the first leaf; levels fall by one at each step.
    while let Some((node, next)) = stack.last_mut()
        && let Some(below) = node.level.checked_sub(1)
        && let Some(&child) = node.children.get(*next)
    {
        *next = next.saturating_add(1);
        let node = enter(child, Some(below))?;
        let at = pick(&node);
        stack.push((node, at));
    }
    while let Some((node, next)) = stack.last_mut() {
        let i = *next;
        *next = next.saturating_add(1);
        let Some(&child) = node.children.get(i) else {
            stack.pop();
            continue;
        };
        match node.level.checked_sub(1) {
            Some(below) => stack.push((enter(child, Some(below))?, 0)),
            None => {
                if f(node, i)?.is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::btree1::ChunkKey;
    use crate::format::{Context, Writer};

    const KIND: Btree1Kind = Btree1Kind::Chunk { dims: 2 };

    fn node(level: u8, entries: &[(u64, u64)], last: u64) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"TREE").u8(1).u8(level).u16(entries.len() as u16).u64(u64::MAX).u64(u64::MAX);
        for &(key, child) in entries {
            w.u32(8).u32(0).u64(key).u64(0).u64(child);
        }
        w.u32(0).u32(0).u64(last).u64(0);
        w.into_bytes()
    }

    /// A root at 0 with two leaves at 256 and 512.
    fn tree(children: [u64; 2]) -> Vec<u8> {
        let mut file = node(1, &[(0, children[0]), (20, children[1])], 40);
        file.resize(256, 0);
        file.extend(node(0, &[(0, 7000), (10, 7001)], 20));
        file.resize(512, 0);
        file.extend(node(0, &[(20, 7002), (30, 7003)], 40));
        file.resize(1024, 0);
        file
    }

    fn key(node: &Node, i: usize) -> u64 {
        ChunkKey::offsets_of(node.key(i).unwrap()).next().unwrap()
    }

    fn lookup(store: &Store, wanted: u64) -> Result<Option<u64>> {
        let leaf = find(store, Address(0), KIND, &mut |n| Ok((0..n.children.len()).rev().find(|&i| key(n, i) <= wanted)))?;
        Ok(leaf.map(|(n, i)| n.children[i].0))
    }

    #[test]
    fn finds_and_walks() {
        let store = Store::over_bytes(tree([256, 512]));
        assert_eq!(lookup(&store, 30).unwrap(), Some(7003));
        assert_eq!(lookup(&store, 15).unwrap(), Some(7001));
        let mut seen = Vec::new();
        iterate(&store, Address(0), KIND, &mut |n, i| {
            seen.push((key(n, i), n.children[i].0));
            Ok(if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        assert_eq!(seen, [(0, 7000), (10, 7001), (20, 7002)]);
    }

    #[test]
    fn cycles_and_shared_nodes_end() {
        // A root that is its own child: the level is wrong.
        let store = Store::over_bytes(tree([0, 0]));
        assert!(lookup(&store, 30).is_err());
        assert!(iterate(&store, Address(0), KIND, &mut |_, _| Ok(ControlFlow::Continue(()))).is_err());
        // Seven levels of nodes whose forty children are one node: 40^7 leaves in two thousand
        // bytes each.
        let mut file = Vec::new();
        for level in (0..8u8).rev() {
            let below = u64::from(8 - level) * 2048;
            file.extend(node(level, &vec![(0, below); 40], 1));
            file.resize(below as usize, 0);
        }
        let store = Store::over_bytes(file);
        let mut n = 0u32;
        let end = iterate(&store, Address(0), KIND, &mut |_, _| {
            n += 1;
            Ok(ControlFlow::Continue(()))
        });
        assert!(end.is_err() && n < 1000, "{n}");
    }

    #[test]
    fn kinds_do_not_mix() {
        let store = Store::over_bytes(tree([256, 512]));
        assert!(lookup(&store, 1).unwrap().is_some());
        let other = Btree1Kind::Chunk { dims: 3 };
        assert!(iterate(&store, Address(0), other, &mut |_, _| Ok(ControlFlow::Continue(()))).is_err());
        assert!(iterate(&store, Address(0), Btree1Kind::Group, &mut |_, _| Ok(ControlFlow::Continue(()))).is_err());
        assert_eq!(Node::prefix_size(&Context::DEFAULT), 24);
    }
}
