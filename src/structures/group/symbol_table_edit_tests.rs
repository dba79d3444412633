//! Changes of old-style groups: against a model, damaged, and with libhdf5.

use super::*;
use crate::meta::edit::testing::{empty, writable};
use crate::structures::edit_oracle::{Random, Scratch, python, replace};
use crate::structures::group::symbol_table::SymbolTable as OpenSymbolTable;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Model = BTreeMap<Vec<u8>, LinkTarget>;

fn read_all(store: &Store, table: &SymbolTable) -> Model {
    let group = OpenSymbolTable::open(store, table.btree, table.heap).unwrap();
    let mut all = Model::new();
    group
        .list(store, 0, &mut |link, _| {
            assert!(all.last_key_value().is_none_or(|(last, _)| *last < link.name));
            all.insert(link.name, link.target);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    for (name, target) in &all {
        assert_eq!(group.lookup(store, name).unwrap().unwrap().target, *target);
    }
    all
}

/// Checks what libhdf5 relies on; returns the number of B-tree levels. `strict`: each key after a
/// symbol table node is its last name.
fn check(store: &Store, table: &SymbolTable, strict: bool) -> usize {
    let size = Node::allocated_size(Btree1Kind::Group, table.internal_k, store.ctx());
    let load = |a: Address| Node::decode(&store.read(a, size, BTREE).unwrap(), Btree1Kind::Group, store.ctx(), a).unwrap();
    let names = HeapNames::open(store, table.heap).unwrap();
    let name = |n: &Node, j: usize| names.name(store, group_key(n.key(j).unwrap(), store.ctx(), table.btree).unwrap()).unwrap();
    let mut row = vec![table.btree];
    let mut levels = 1;
    loop {
        let nodes: Vec<Node> = row.iter().map(|&a| load(a)).collect();
        for (i, n) in nodes.iter().enumerate() {
            let neighbour = |at: Option<usize>| at.and_then(|at| row.get(at)).copied().unwrap_or(Address::UNDEF);
            assert_eq!((n.left, n.right), (neighbour(i.checked_sub(1)), neighbour(Some(i + 1))));
            assert!(n.children.len() <= usize::from(table.internal_k) * 2 && (row.len() == 1 || !n.children.is_empty()));
            if let Some(next) = nodes.get(i + 1) {
                assert_eq!(name(n, n.children.len()), name(next, 0));
            }
            assert!((0..n.children.len()).all(|j| name(n, j) < name(n, j + 1)));
            for (j, &child) in n.children.iter().enumerate() {
                if n.level == 0 {
                    let symbols = read(store, table, child).unwrap();
                    let all: Vec<_> = symbols.entries.iter().map(|e| names.name(store, e.name_offset).unwrap()).collect();
                    assert!(all.is_sorted_by(|a, b| a < b) && name(n, j) < all[0]);
                    let last = all.last().unwrap();
                    assert!(if strict { *last == name(n, j + 1) } else { *last <= name(n, j + 1) });
                } else {
                    let child = load(child);
                    assert_eq!((name(n, j), name(n, j + 1)), (name(&child, 0), name(&child, child.children.len())));
                }
            }
        }
        if nodes[0].level == 0 {
            return levels;
        }
        row = nodes.iter().flat_map(|n| n.children.clone()).collect();
        levels += 1;
    }
}

fn apply(store: &Store, table: &SymbolTable, model: &mut Model, random: &mut Random, round: usize, grow: bool) {
    let name = format!("{:03}{}", random.below(500), "n".repeat(random.below(30) / 6 * 5)).into_bytes();
    if random.below(10) < if grow { 8 } else { 2 } {
        let target = match random.below(2) {
            0 => LinkTarget::Hard(Address(round as u64)),
            _ => LinkTarget::Soft(vec![b's'; random.below(40)]),
        };
        match insert(store, table, &name, &target) {
            Ok(()) => assert_eq!(model.insert(name, target), None),
            Err(e) => assert!(matches!(e, Error::Io { errno: libc::EEXIST, .. }) && model.contains_key(&name), "{e}"),
        }
    } else {
        // Random names rarely exist.
        let name = model.range(name.clone()..).next().filter(|_| !round.is_multiple_of(8)).map_or(name, |(n, _)| n.clone());
        assert_eq!(remove(store, table, &name).unwrap(), model.remove(&name));
    }
}

fn against_model(leaf_k: u16, internal_k: u16, rounds: usize) -> usize {
    let (store, file) = empty();
    let table = create(&store, leaf_k, internal_k, 30).unwrap();
    let (mut model, mut random, mut deepest) = (Model::new(), Random(31), 0);
    for round in 0..rounds {
        apply(&store, &table, &mut model, &mut random, round, (round / (rounds / 4)).is_multiple_of(2));
        if round % 61 == 0 {
            deepest = deepest.max(check(&store, &table, true));
            assert_eq!(read_all(&store, &table), model);
            store.commit().unwrap();
        }
    }
    check(&store, &table, true);
    for name in model.keys().cloned().collect::<Vec<_>>() {
        assert_eq!(remove(&store, &table, &name).unwrap(), model.remove(&name));
    }
    assert_eq!(check(&store, &table, true), 1);
    insert(&store, &table, b"again", &LinkTarget::Hard(Address(1))).unwrap();
    assert_eq!(read_all(&store, &table).len(), 1);
    delete(&store, &table).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "everything is freed");
    deepest
}

#[test]
fn random_changes() {
    assert!(against_model(1, 1, 1600) > 5);
    assert!(against_model(2, 2, 1600) > 3);
    assert!(against_model(4, 16, 1600) > 1);
}

#[test]
fn bad_input_is_refused() {
    let (store, _) = empty();
    let table = create(&store, 4, 16, 88).unwrap();
    let hard = LinkTarget::Hard(Address(5));
    for name in [&b""[..], b"a\0b", &vec![b'n'; limits::HEAP_NAME_MAX + 1]] {
        assert!(insert(&store, &table, name, &hard).is_err());
    }
    let external = LinkTarget::External { file: vec![], object: vec![] };
    assert!(insert(&store, &table, b"a", &external).is_err());
    assert!(insert(&store, &table, b"a", &LinkTarget::Soft(b"x\0y".to_vec())).is_err());
    assert!(insert(&store, &SymbolTable { leaf_k: 0, ..table }, b"a", &hard).is_err());
    assert_eq!(remove(&store, &table, b"a").unwrap(), None);
    assert!(read_all(&store, &table).is_empty());
    assert!(create(&store, 0, 16, 88).is_err() && create(&store, 4, 0, 88).is_err());
}

#[test]
fn changes_of_damaged_groups_end() {
    let (store, file) = empty();
    let table = create(&store, 1, 1, 30).unwrap();
    for n in 0..14 {
        insert(&store, &table, format!("{}", n * 5 % 14).as_bytes(), &LinkTarget::Soft(b"value".to_vec())).unwrap();
    }
    store.close().unwrap();
    let intact = file.bytes();
    let mut random = Random(9);
    for _ in 0..500 {
        let mut bytes = intact.clone();
        for _ in 0..1 + random.below(3) {
            let at = 48 + random.below(bytes.len() - 48);
            bytes[at] = [0, 1, 0xff, 0x40, bytes[random.below(intact.len())]][random.below(5)];
        }
        let (store, _) = writable(bytes);
        for n in 0..8 {
            let name = format!("{}", random.below(20));
            let _ = match n % 2 {
                0 => insert(&store, &table, name.as_bytes(), &LinkTarget::Soft(b"v".to_vec())),
                _ => remove(&store, &table, name.as_bytes()).map(drop),
            };
        }
        let _ = delete(&store, &table);
    }
}

/// The root group's symbol table, cached in the superblock.
fn root(store: &Store) -> SymbolTable {
    let legacy = store.superblock().legacy.clone().unwrap();
    let at = |i: usize| Address(u64::from_le_bytes(legacy.root.scratch[i..i + 8].try_into().unwrap()));
    SymbolTable { btree: at(0), heap: at(8), leaf_k: legacy.group_leaf_k, internal_k: legacy.group_internal_k }
}

/// The links as make_old_edit.py prints them.
fn json(model: &Model) -> serde_json::Value {
    let one = |(name, target): (&Vec<u8>, &LinkTarget)| {
        let value = match target {
            LinkTarget::Soft(value) => serde_json::Value::from(String::from_utf8(value.clone()).unwrap()),
            _ => serde_json::Value::Null,
        };
        (String::from_utf8(name.clone()).unwrap(), value)
    };
    serde_json::Value::from_iter(model.iter().map(one))
}

#[test]
fn libhdf5_reads_and_changes_it() {
    let scratch = Scratch::new("group");
    let (path, links) = (scratch.path("f.h5"), scratch.path("links"));
    let target = Address(python(&["group", &path]).parse().unwrap());
    let mut random = Random(17);
    for turn in 0..3 {
        let (store, file) = writable(std::fs::read(&path).unwrap());
        let table = root(&store);
        assert_eq!((table.leaf_k, table.internal_k), (1, 2));
        let levels = check(&store, &table, false);
        assert!(turn == 0 || levels > 2);
        let mut model = read_all(&store, &table);
        for round in 0..500 {
            let name = format!("{:03} {}", random.below(400), "n".repeat(random.below(3) * 9)).into_bytes();
            if random.below(3) > 0 {
                let to = if round % 2 == 0 { LinkTarget::Hard(target) } else { LinkTarget::Soft(format!("/to/{round}").into_bytes()) };
                if insert(&store, &table, &name, &to).is_ok() {
                    assert_eq!(model.insert(name, to), None);
                }
            } else if let Some(name) = model.range(name..).next().map(|(n, _)| n.clone()).filter(|n| n != b"target") {
                assert_eq!(remove(&store, &table, &name).unwrap(), model.remove(&name));
            }
        }
        assert_eq!(read_all(&store, &table), model);
        assert!(check(&store, &table, false) > 2);
        // The object's header, version 1, counts the hard links at byte 4.
        let count = model.values().filter(|t| matches!(t, LinkTarget::Hard(_))).count() as u32;
        store.write(Address(target.0 + 4), &count.to_le_bytes()).unwrap();
        // Finally a group that h5dir created.
        let own = if turn == 2 { create(&store, 1, 2, 20).unwrap() } else { table };
        if turn == 2 {
            model.iter().for_each(|(name, to)| insert(&store, &own, name, to).unwrap());
            delete(&store, &table).unwrap();
        }
        store.close().unwrap();
        let mut bytes = file.bytes();
        let addresses = |t: &SymbolTable| [t.btree.0.to_le_bytes(), t.heap.0.to_le_bytes()].concat();
        replace(&mut bytes, &addresses(&table), &addresses(&own));
        std::fs::write(&path, bytes).unwrap();
        std::fs::write(&links, json(&model).to_string()).unwrap();
        python(&["check_group", &path, &links]);
        python(&["change_group", &path, &links]);
        let (store, _) = writable(std::fs::read(&path).unwrap());
        let now: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&links).unwrap()).unwrap();
        assert_eq!(json(&read_all(&store, &root(&store))), now);
    }
}
