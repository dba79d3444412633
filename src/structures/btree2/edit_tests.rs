//! Random changes against a model, with nodes small enough for several levels.

use super::*;
use crate::meta::edit::testing::empty;
use crate::structures::btree2::BTree2;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

fn key(record: &[u8]) -> u32 {
    u32::from_be_bytes(record[..4].try_into().unwrap())
}

fn by(k: u32) -> impl FnMut(&[u8]) -> Result<Ordering> {
    move |r| Ok(key(r).cmp(&k))
}

fn record(k: u32, value: u32) -> Vec<u8> {
    [k.to_be_bytes(), value.to_be_bytes()].concat()
}

/// Checks the bounds of every node and every count; returns the number of nodes.
pub fn check(store: &Store, at: Address) -> usize {
    fn node(e: &Edit<'_>, p: &NodePointer, depth: u16, root: bool) -> usize {
        let n = e.load(p, depth).unwrap();
        let (least, most) = e.bounds(depth).unwrap();
        assert!(p.records as usize <= most && (root || p.records as usize >= least), "{} at depth {depth}", p.records);
        assert!(p.records > 0);
        assert_eq!(n.total(), p.total);
        1 + n.children.iter().map(|c| node(e, c, depth - 1, false)).sum::<usize>()
    }
    let e = Edit::open(store, at).unwrap();
    if e.tree.header.root.address.is_defined() { node(&e, &e.tree.header.root, e.tree.header.depth, true) } else { 0 }
}

fn contents(store: &Store, at: Address) -> BTreeMap<u32, u32> {
    let tree = BTree2::open(store, at).unwrap();
    let mut all = BTreeMap::new();
    let mut last = None;
    tree.iterate(store, &mut |r| {
        assert!(last < Some(key(r)));
        last = Some(key(r));
        all.insert(key(r), u32::from_be_bytes(r[4..].try_into().unwrap()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(all.len() as u64, tree.len());
    all
}

fn random(seed: &mut u64) -> u32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 16) as u32
}

fn churn(node_size: u32, split: u8, merge: u8, steps: u32) {
    let (store, file) = empty();
    let at = create(&store, 10, 8, node_size, split, merge).unwrap();
    let mut model = BTreeMap::new();
    let mut seed = 0x1234_5678_9abc_def1 ^ u64::from(node_size);
    let mut depth = 0;
    for step in 0..steps {
        // Grow, then shrink, then grow again.
        let growing = (step / (steps / 4)).is_multiple_of(2);
        let k = random(&mut seed) % 700;
        match random(&mut seed) % 8 {
            0 => {
                assert_eq!(replace(&store, at, &mut by(k), &record(k, step)).unwrap(), model.contains_key(&k));
                model.entry(k).and_modify(|v| *v = step);
            }
            n if (n < 6) == growing => {
                let done = insert(&store, at, &record(k, step), &mut by(k)).is_ok();
                assert_eq!(done, !model.contains_key(&k));
                model.entry(k).or_insert(step);
            }
            _ => {
                let found = remove(&store, at, &mut by(k)).unwrap();
                assert_eq!(found, model.remove(&k).map(|v| record(k, v)));
            }
        }
        if step % 16 == 0 {
            check(&store, at);
            assert_eq!(contents(&store, at), model);
            depth = depth.max(Edit::open(&store, at).unwrap().tree.header.depth);
        }
    }
    assert!(depth >= 2, "only {depth} levels of internal nodes");
    for k in model.into_keys() {
        remove(&store, at, &mut by(k)).unwrap().unwrap();
    }
    assert_eq!(check(&store, at), 0);
    delete_tree(&store, at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all space is freed");
}

#[test]
fn random_changes_against_a_model() {
    churn(64, 100, 40, 4000);
    churn(100, 100, 40, 4000);
    churn(160, 90, 30, 4000);
}

#[test]
fn ascending_descending_and_deleted() {
    let (store, file) = empty();
    let at = create(&store, 10, 8, 128, 100, 40).unwrap();
    for k in 0..600 {
        insert(&store, at, &record(k, k), &mut by(k)).unwrap();
    }
    for k in (600..1200).rev() {
        insert(&store, at, &record(k, k), &mut by(k)).unwrap();
    }
    let nodes = check(&store, at);
    assert!(nodes < 1200 / 6, "{nodes} nodes");
    for k in 0..300 {
        remove(&store, at, &mut by(k)).unwrap().unwrap();
    }
    check(&store, at);
    assert_eq!(contents(&store, at).into_keys().collect::<Vec<_>>(), (300..1200).collect::<Vec<_>>());
    delete_tree(&store, at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48);
}

#[test]
fn bad_input_changes_nothing() {
    let (store, file) = empty();
    assert!(create(&store, 10, 8, 17, 100, 40).is_err());
    assert!(create(&store, 10, 60, 100, 100, 40).is_err());
    let at = create(&store, 10, 8, 64, 100, 40).unwrap();
    for k in 0..100 {
        insert(&store, at, &record(k, k), &mut by(k)).unwrap();
    }
    store.commit().unwrap();
    let before = file.bytes();
    assert!(insert(&store, at, &record(50, 1), &mut by(50)).is_err());
    assert!(insert(&store, at, &[1; 7], &mut by(500)).is_err());
    assert!(replace(&store, at, &mut by(5), &[1; 9]).is_err());
    assert!(!replace(&store, at, &mut by(500), &[1; 8]).unwrap());
    assert_eq!(remove(&store, at, &mut by(500)).unwrap(), None);
    store.commit().unwrap();
    assert!(file.bytes() == before);
}

/// Any damaged byte leads to an error or to a change, not to a panic.
#[test]
fn damage_does_not_panic() {
    let (store, file) = empty();
    let at = create(&store, 10, 8, 64, 100, 40).unwrap();
    for k in 0..60 {
        insert(&store, at, &record(k, k), &mut by(k)).unwrap();
    }
    store.close().unwrap();
    let bytes = file.bytes();
    for i in 48..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[i] ^= change;
            let (store, _) = crate::meta::edit::testing::writable(bad);
            let _ = insert(&store, at, &record(1000, 1), &mut by(1000));
            let _ = remove(&store, at, &mut by(i as u32 % 60));
            let _ = delete_tree(&store, at);
        }
    }
}
