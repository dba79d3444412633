//! Changes of chunk B-trees: against a model, damaged, and with libhdf5.

use super::*;
use crate::meta::edit::{
    SpaceKind,
    testing::{empty, writable},
};
use crate::structures::btree1;
use crate::structures::edit_oracle::{Random, Scratch, python, replace as patch};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Model = BTreeMap<Vec<u64>, (u32, u32, Address)>;

/// The chunks that the reader returns.
fn read(store: &Store, tree: &ChunkTree<'_>) -> Model {
    let mut all = Model::new();
    btree1::iterate(store, tree.root, kind(tree.dims.len()).unwrap(), &mut |node, i| {
        let key = ChunkKey::decode(node.key(i).unwrap(), Address(0)).unwrap();
        assert!(all.last_key_value().is_none_or(|(last, _)| *last < key.offsets));
        all.insert(key.offsets, (key.size, key.filter_mask, node.children[i]));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

/// Checks what libhdf5 relies on; returns the number of levels.
fn check(store: &Store, tree: &ChunkTree<'_>) -> usize {
    let kind = kind(tree.dims.len()).unwrap();
    let size = Node::allocated_size(kind, tree.k, store.ctx());
    let load = |a: Address| Node::decode(&store.read(a, size, NAME).unwrap(), kind, store.ctx(), a).unwrap();
    let mut row = vec![tree.root];
    let mut levels = 1;
    loop {
        let nodes: Vec<Node> = row.iter().map(|&a| load(a)).collect();
        for (i, n) in nodes.iter().enumerate() {
            let neighbour = |at: Option<usize>| at.and_then(|at| row.get(at)).copied().unwrap_or(Address::UNDEF);
            assert_eq!((n.left, n.right), (neighbour(i.checked_sub(1)), neighbour(Some(i + 1))));
            assert!(n.children.len() <= usize::from(tree.k) * 2 && (row.len() == 1 || !n.children.is_empty()));
            assert_eq!(n.level, nodes[0].level);
            if let Some(next) = nodes.get(i + 1) {
                assert_eq!(n.key(n.children.len()), next.key(0));
            }
            let offsets = |j| ChunkKey::offsets_of(n.key(j).unwrap()).collect::<Vec<_>>();
            assert!((0..n.children.len()).all(|j| offsets(j) < offsets(j + 1)));
            for key in (0..=n.children.len()).filter_map(|j| n.key(j)) {
                assert!(ChunkKey::offsets_of(key).zip(tree.dims).all(|(o, d)| o % d == 0));
            }
        }
        if nodes[0].level == 0 {
            return levels;
        }
        for n in &nodes {
            for (j, &child) in n.children.iter().enumerate() {
                let child = load(child);
                assert_eq!((n.key(j), n.key(j + 1)), (child.key(0), child.key(child.children.len())));
            }
        }
        row = nodes.iter().flat_map(|n| n.children.clone()).collect();
        levels += 1;
    }
}

fn apply(store: &Store, tree: &ChunkTree<'_>, model: &mut Model, offsets: Vec<u64>, value: Option<(u32, u32, Address)>) {
    let entry = |(key, address): (ChunkKey, Address)| (key.size, key.filter_mask, address);
    let was = match value {
        Some((size, filter_mask, address)) => {
            let key = ChunkKey { size, filter_mask, offsets: offsets.clone() };
            let was = insert_chunk(store, tree, &key, address).unwrap().map(entry);
            assert_eq!(was, model.insert(offsets, (size, filter_mask, address)));
            return;
        }
        None => remove_chunk(store, tree, &offsets).unwrap().map(entry),
    };
    assert_eq!(was, model.remove(&offsets));
}

fn against_model(seed: u64, k: u16, rounds: usize, order: fn(&mut Random, usize) -> usize) -> usize {
    let (store, file) = empty();
    let dims = [4u64, 6, 8];
    let tree = ChunkTree { root: create_chunk_tree(&store, 2, k).unwrap(), k, dims: &dims };
    let (mut model, mut random, mut deepest) = (Model::new(), Random(seed), 0);
    for round in 0..rounds {
        let n = order(&mut random, round);
        let offsets = vec![(n / 20) as u64 * 4, (n % 20) as u64 * 6, 0];
        // More insertions, then more removals.
        let grow = (round / (rounds / 4)).is_multiple_of(2);
        let value = (random.below(10) < if grow { 8 } else { 2 })
            .then(|| (1 + random.below(99) as u32, random.below(2) as u32, Address(round as u64)));
        apply(&store, &tree, &mut model, offsets, value);
        if round % 97 == 0 {
            deepest = deepest.max(check(&store, &tree));
            assert_eq!(read(&store, &tree), model);
            store.commit().unwrap();
        }
    }
    check(&store, &tree);
    assert_eq!(read(&store, &tree), model);
    for offsets in model.keys().cloned().collect::<Vec<_>>() {
        apply(&store, &tree, &mut model, offsets, None);
    }
    assert_eq!(check(&store, &tree), 1);
    delete_tree(&store, &tree).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all nodes are freed");
    deepest
}

#[test]
fn random_changes() {
    let anywhere = |r: &mut Random, _: usize| r.below(400);
    assert!(against_model(1, 1, 3000, anywhere) > 6);
    assert!(against_model(2, 2, 3000, anywhere) > 4);
    assert!(against_model(3, 16, 2000, anywhere) > 1);
    assert!(against_model(4, 2, 1600, |_, round| round % 400) > 3);
    assert!(against_model(5, 2, 1600, |_, round| 399 - round % 400) > 3);
}

#[test]
fn bad_input_is_refused() {
    let (store, _) = empty();
    let dims = [4u64, 8];
    let tree = ChunkTree { root: create_chunk_tree(&store, 1, 2).unwrap(), k: 2, dims: &dims };
    let key = |offsets: &[u64]| ChunkKey { size: 1, filter_mask: 0, offsets: offsets.to_vec() };
    for offsets in [&[3, 0][..], &[4], &[4, 8], &[4, 0, 0], &[u64::MAX - 3, 0]] {
        assert!(insert_chunk(&store, &tree, &key(offsets), Address(9)).is_err(), "{offsets:?}");
    }
    assert!(insert_chunk(&store, &ChunkTree { k: 0, ..tree }, &key(&[0, 0]), Address(9)).is_err());
    assert!(insert_chunk(&store, &ChunkTree { root: Address(3), ..tree }, &key(&[0, 0]), Address(9)).is_err());
    assert_eq!(remove_chunk(&store, &tree, &[0, 0]).unwrap(), None);
    assert!(read(&store, &tree).is_empty());
}

#[test]
fn changes_of_damaged_trees_end() {
    let (store, file) = empty();
    let dims = [1u64, 8];
    let tree = ChunkTree { root: create_chunk_tree(&store, 1, 1).unwrap(), k: 1, dims: &dims };
    for n in 0..20u64 {
        insert_chunk(&store, &tree, &ChunkKey { size: 1, filter_mask: 0, offsets: vec![n * 2, 0] }, Address(n)).unwrap();
    }
    store.close().unwrap();
    let intact = file.bytes();
    let mut random = Random(9);
    for _ in 0..600 {
        let mut bytes = intact.clone();
        for _ in 0..1 + random.below(3) {
            let at = 48 + random.below(bytes.len() - 48);
            bytes[at] = [0, 1, 0xff, 0x40, bytes[random.below(intact.len())]][random.below(5)];
        }
        let (store, _) = writable(bytes);
        for n in 0..10 {
            let offsets = vec![random.below(45) as u64, 0];
            let _ = match n % 2 {
                0 => insert_chunk(&store, &tree, &ChunkKey { size: 2, filter_mask: 0, offsets }, Address(7)),
                _ => remove_chunk(&store, &tree, &offsets),
            };
        }
        let _ = delete_tree(&store, &tree);
    }
}

/// Random changes of a dataset of libhdf5, which then reads and changes it; two rounds.
fn with_libhdf5(name: &str, shape: [usize; 2], chunk: [usize; 2], rank: usize) {
    let scratch = Scratch::new(name);
    let (path, raw) = (scratch.path("f.h5"), scratch.path("raw"));
    let text = |n: [usize; 2]| n[..rank].iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    python(&["chunks", &path, &text(shape), &text(chunk)]);
    let mut elements = vec![0i32; shape[0] * shape[1]];
    elements[0] = 7;
    let dims: Vec<u64> = chunk[..rank].iter().map(|&c| c as u64).chain([4]).collect();
    let mut random = Random(11);
    for turn in 0..2 {
        let bytes = std::fs::read(&path).unwrap();
        let root = bytes.windows(5).position(|w| w == b"TREE\x01").unwrap();
        let (store, file) = writable(bytes);
        let tree = ChunkTree { root: Address(root as u64), k: 2, dims: &dims };
        let levels = check(&store, &tree);
        assert!(turn == 0 || levels > 2, "libhdf5 leaves a valid tree");
        for round in 0..900 {
            let at = [random.below(shape[0] / chunk[0]) * chunk[0], random.below(shape[1] / chunk[1]) * chunk[1]];
            let offsets: Vec<u64> = at[..rank].iter().map(|&o| o as u64).chain([0]).collect();
            let remove = random.below(4) == 0;
            let value = if remove { 0 } else { round + 1 };
            for i in 0..chunk[0] {
                for j in 0..chunk[1] {
                    elements[(at[0] + i) * shape[1] + at[1] + j] = value;
                }
            }
            let size = (chunk[0] * chunk[1] * 4) as u32;
            let old = if remove {
                remove_chunk(&store, &tree, &offsets).unwrap()
            } else {
                let data: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), chunk[0] * chunk[1]).flatten().collect();
                let child = store.put(&data, SpaceKind::Raw).unwrap();
                insert_chunk(&store, &tree, &ChunkKey { size, filter_mask: 0, offsets }, child).unwrap()
            };
            if let Some((key, address)) = old {
                store.free(address, u64::from(key.size)).unwrap();
            }
        }
        assert!(check(&store, &tree) > 2);
        // Finally a tree that h5dir created.
        let own = ChunkTree { root: if turn == 0 { tree.root } else { create_chunk_tree(&store, rank, 2).unwrap() }, ..tree };
        if turn == 1 {
            for (offsets, (size, filter_mask, address)) in read(&store, &tree) {
                insert_chunk(&store, &own, &ChunkKey { size, filter_mask, offsets }, address).unwrap();
            }
            delete_tree(&store, &tree).unwrap();
        }
        store.close().unwrap();
        let mut bytes = file.bytes();
        patch(&mut bytes, &tree.root.0.to_le_bytes(), &own.root.0.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        std::fs::write(&raw, elements.iter().flat_map(|e| e.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        python(&["check_chunks", &path, &raw]);
        python(&["change_chunks", &path, &raw]);
        let raw = std::fs::read(&raw).unwrap();
        elements = raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    }
}

#[test]
fn libhdf5_reads_and_changes_it() {
    with_libhdf5("chunks2", [60, 90], [3, 5], 2);
    with_libhdf5("chunks1", [1200, 1], [3, 1], 1);
}
