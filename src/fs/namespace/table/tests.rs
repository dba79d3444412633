//! Numbers and places of nodes, while names come and go.

use super::*;
use crate::connector::memory::MemoryConnector;
use crate::fs::views::{self, Class};

fn id(a: u64) -> ObjectId {
    MemoryConnector::id(a)
}

fn group(id: ObjectId) -> Item {
    views::root(id)
}

fn dataset(id: ObjectId) -> Item {
    Item::object_of(group(id).view, Class::Dataset, id)
}

#[test]
fn hard_links_share_a_number_and_directories_do_not() {
    let t = NodeTable::new(group(id(48)), false, false);
    let d = |name: &[u8]| Node::new(&t.root(), name, None, dataset(id(800))).ino;
    assert_eq!(d(b"a"), d(b"b"));
    let g = |name: &[u8]| Node::new(&t.root(), name, None, group(id(900))).ino;
    assert_ne!(g(b"a"), g(b"b"));
}

#[test]
fn a_node_goes_with_its_last_reference() {
    let t = NodeTable::new(group(id(48)), false, false);
    let make = || Node::new(&t.root(), b"g", None, group(id(900)));
    let ino = t.reference(make()).ino;
    t.reference(make());
    t.forget(ino, 1);
    assert!(t.get(ino).is_some());
    t.forget(ino, 1);
    assert!(t.get(ino).is_none() & t.is_empty());
    t.forget(ROOT, 100);
    assert!(t.get(ROOT).is_some());
}

/// Regression: dropping the deepest of 100,000 nested directories overflowed the stack.
#[test]
fn a_deep_chain_is_dropped_without_recursion() {
    let root = NodeTable::new(group(id(48)), false, false);
    let mut at = root.root();
    for i in 0..100_000 {
        at = Arc::new(Node::new(&at, b"g", None, group(id(100 + i))));
    }
    assert_eq!(at.depth(), 100_000);
    assert_eq!(at.levels_up_to(id(48)), Some(100_000));
    assert_eq!((at.levels_up_to(id(100_099)), at.levels_up_to(id(100_100)), at.levels_up_to(id(50))), (Some(0), None, None));
    drop(at);
    assert_eq!(Arc::strong_count(&root.root()), 3);
}

fn dir<'a>(t: &'a NodeTable, parent: &Arc<Node>, name: &[u8], a: u64) -> (Arc<Node>, impl Fn() -> Node + use<'a>) {
    let (parent, name) = (parent.clone(), name.to_vec());
    let make = move || Node::new(&parent, &name, None, group(id(a)));
    (t.reference(make()), make)
}

#[test]
fn a_moved_directory_keeps_its_number_and_its_children() {
    let t = NodeTable::new(group(id(48)), true, false);
    let (a, at_a) = dir(&t, &t.root(), b"a", 900);
    let (child, at_child) = dir(&t, &a, b"c", 950);
    let to = |name: &[u8]| NodePlace { parent: Some(t.root()), name: name.into(), link_name: None };
    t.moved(&[(at_a(), to(b"b"))]);
    let at_b = || Node::new(&t.root(), b"b", None, group(id(900)));
    assert_eq!((t.reference(at_b()).ino, t.number_of(&at_b())), (a.ino, a.ino));
    assert_eq!(child.path(), [b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(t.reference(at_child()).ino, child.ino);
    // The same group at the old place is another directory.
    let again = t.reference(at_a());
    assert_ne!(again.ino, a.ino);
    assert_eq!(t.number_of(&at_a()), again.ino);
    // Both change places.
    t.moved(&[(at_a(), to(b"b")), (at_b(), to(b"a"))]);
    assert_eq!((t.number_of(&at_a()), t.number_of(&at_b())), (a.ino, again.ino));
    t.forget(a.ino, 2);
    t.forget(again.ino, 1);
    t.forget(child.ino, 2);
    assert!(t.is_empty() & t.maps.lock().renumbered.is_empty());
    assert!(t.maps.lock().by_object.as_ref().unwrap().is_empty());
}

#[test]
fn a_new_object_at_an_old_address_is_another() {
    let t = NodeTable::new(group(id(48)), true, false);
    let data = || Node::new(&t.root(), b"d", None, dataset(id(800)));
    let old = t.reference(data());
    t.object_gone(id(800));
    assert!(old.is_gone());
    let new = t.reference(data());
    assert_ne!(old.ino, new.ino);
    t.forget(old.ino, 1);
    assert_eq!(t.reference(data()).ino, new.ino, "the number stays with it");
    let (dir, make) = dir(&t, &t.root(), b"g", 900);
    t.name_gone(&make());
    assert!(dir.is_gone());
    assert_ne!(t.reference(make()).ino, dir.ino);
}

#[test]
fn an_outdated_node_keeps_its_number_when_it_is_found_again() {
    let t = NodeTable::new(group(id(48)), false, true);
    let data = |parent: &Arc<Node>, name: &[u8], a: u64| Node::new(parent, name, None, dataset(id(a)));
    let (a, b) = (t.reference(data(&t.root(), b"a", 800)), t.reference(data(&t.root(), b"b", 800)));
    assert!(Arc::ptr_eq(&a, &b));
    assert_eq!(t.other_names(a.ino), [(ROOT, b"b"[..].into())]);
    let root = t.renew_root(group(id(96)), 1);
    assert!(root.state == 1 && Arc::ptr_eq(&root, &t.renew_root(group(id(7)), 1)));
    // In the new state something else lies at 800, and what `a` is at 900.
    assert!(t.outdated(&data(&root, b"c", 800)).is_some_and(|n| Arc::ptr_eq(&n, &a)));
    let renewed = t.renew(&a, data(&root, b"a", 900));
    assert_eq!((renewed.ino, renewed.state), (a.ino, 1));
    assert!(Arc::ptr_eq(&renewed, &t.renew(&a, data(&root, b"a", 900))) && t.outdated(&data(&root, b"c", 800)).is_none());
    assert_eq!(t.number_of(&data(&root, b"x", 900)), a.ino);
    let other = t.reference(data(&root, b"c", 800));
    assert_ne!(other.ino, a.ino);
    t.lose(&renewed);
    assert!(renewed.is_gone() && t.number_of(&data(&root, b"a", 900)) != a.ino);
    t.forget(a.ino, 2);
    t.forget(other.ino, 1);
    assert!(t.is_empty() && t.maps.lock().renumbered.is_empty() && t.maps.lock().other_places.as_ref().unwrap().is_empty());
}
