//! Directories that two sessions move at once: both moves are kept but where they make a cycle.

use super::access::IodConnector;
use super::tests::{conflict, empty, open};
use crate::connector::edit::{Edit, Taken};
use crate::connector::{Connector, LinkTarget, ObjectId};
use crate::file::store::memory::MemoryStore;
use proptest::prelude::*;
use std::collections::BTreeMap;

const GROUPS: usize = 8;

/// The parent of each group but the first, the root.
type Parents = BTreeMap<usize, usize>;

fn leads_to(parents: &Parents, mut from: usize, to: usize) -> bool {
    for _ in 0..=GROUPS {
        if from == to {
            return true;
        }
        match parents.get(&from) {
            Some(parent) => from = *parent,
            None => return false,
        }
    }
    false
}

fn is_tree(parents: &Parents) -> bool {
    parents.keys().all(|group| leads_to(parents, *group, 0))
}

fn name(group: usize) -> Vec<u8> {
    format!("g{group}").into_bytes()
}

/// A container with groups, each below an earlier one.
fn made(below: &[usize]) -> (MemoryStore, Vec<ObjectId>, Parents) {
    let store = empty();
    let c = open(&store);
    let (mut ids, mut parents) = (vec![c.root()], Parents::new());
    for (n, below) in below.iter().enumerate() {
        let parent = below % (n + 1);
        parents.insert(n + 1, parent);
        ids.push(c.create_group(ids[parent], &name(n + 1)).unwrap());
    }
    c.close().unwrap();
    (store, ids, parents)
}

/// Moves groups as the kernel lets them be moved: none below itself.
fn moved(c: &IodConnector, ids: &[ObjectId], parents: &Parents, moves: &[(usize, usize)]) -> Parents {
    let mut now = parents.clone();
    for (group, to) in moves {
        let group = 1 + group % (GROUPS - 1);
        if !leads_to(&now, *to, group) && now[&group] != *to {
            c.rename((ids[now[&group]], &name(group)), (ids[*to], &name(group)), Taken::Refuse).unwrap();
            now.insert(group, *to);
        }
    }
    now
}

fn stored(store: &MemoryStore, ids: &[ObjectId]) -> Parents {
    let c = open(store);
    let mut parents = Parents::new();
    for (parent, id) in ids.iter().enumerate() {
        for (group, moved) in ids.iter().enumerate().skip(1) {
            if let Some(link) = c.lookup(*id, &name(group)).unwrap() {
                assert_eq!(link.target, LinkTarget::Hard(*moved));
                assert_eq!(parents.insert(group, parent), None, "two places of a group");
            }
        }
    }
    parents
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn moves_of_two_sessions_are_refused_only_where_they_meet(
        below in prop::collection::vec(0..GROUPS, GROUPS - 1),
        ours in prop::collection::vec((0..GROUPS, 0..GROUPS), 1..4),
        theirs in prop::collection::vec((0..GROUPS, 0..GROUPS), 1..4),
    ) {
        let (store, ids, base) = made(&below);
        let (a, b) = (open(&store), open(&store));
        let (by_a, by_b) = (moved(&a, &ids, &base, &theirs), moved(&b, &ids, &base, &ours));
        let differs = |new: &Parents| (1..GROUPS).filter(|g| new[g] != base[g]).collect::<Vec<_>>();
        let (in_a, in_b) = (differs(&by_a), differs(&by_b));
        let mut both = by_a.clone();
        in_b.iter().for_each(|g| _ = both.insert(*g, by_b[g]));
        a.close().unwrap();
        let done = Edit::commit(&*b);
        // Moves back and forth change names too.
        let touched = |moves: &[(usize, usize)]| moves.iter().map(|(g, _)| 1 + g % (GROUPS - 1)).collect::<Vec<_>>();
        let meet = touched(&ours).iter().any(|g| touched(&theirs).contains(g));
        match done {
            Ok(()) => {
                prop_assert!(is_tree(&both) || in_a.is_empty() || in_b.is_empty(), "a cycle");
                prop_assert_eq!(stored(&store, &ids), both);
            }
            Err(_) if meet => prop_assert_eq!(stored(&store, &ids), by_a),
            Err(_) => {
                let text = conflict(done);
                prop_assert!(!is_tree(&both) && text.contains("both moved directories"), "{text}");
                prop_assert_eq!(stored(&store, &ids), by_a);
            }
        }
    }
}

/// Regression: `mv` of directories in unrelated subtrees was a conflict.
#[test]
fn directories_in_unrelated_subtrees_are_moved_by_two_sessions() {
    // 1 and 2 below the root, 3 and 4 below 1, 5 and 6 below 2.
    let (store, ids, base) = made(&[0, 0, 1, 1, 2, 2, 0]);
    let (a, b) = (open(&store), open(&store));
    let mut want = moved(&a, &ids, &base, &[(2, 4)]);
    let other = moved(&b, &ids, &base, &[(4, 6)]);
    a.close().unwrap();
    b.close().unwrap();
    want.insert(5, other[&5]);
    assert_eq!(stored(&store, &ids), want);
    assert_eq!((want[&3], want[&5]), (4, 6));
}
