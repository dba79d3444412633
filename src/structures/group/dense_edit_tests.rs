//! Dense links: names of one hash, bad input, damage. `structures::oracle` tests them with libhdf5.

use super::*;
use crate::format::message::link::LinkTarget;
use crate::meta::edit::testing::{empty, writable};
use crate::structures::group::dense::DenseLinks;

fn message(name: &[u8], path: &[u8], creation_order: Option<i64>) -> Vec<u8> {
    let link = Link { name: name.to_vec(), utf8: false, creation_order, target: LinkTarget::Soft(path.to_vec()) };
    link.encode(&crate::format::Context::DEFAULT).unwrap()
}

fn paths(store: &Store, at: &DenseStorage, name: &[u8]) -> Option<LinkTarget> {
    let index = at.creation_index.unwrap_or(Address::UNDEF);
    DenseLinks::open(store, at.heap, at.name_index, index).unwrap().lookup(store, name).unwrap().map(|l| l.target)
}

#[test]
fn names_of_one_hash() {
    let (store, file) = empty();
    let at = create(&store, true).unwrap();
    let names: [&[u8]; 6] = [b"k69209", b"k155448", b"k227042", b"k192421", b"k92415", b"k257792"];
    assert_eq!(lookup3(names[0], 0), lookup3(names[1], 0));
    for (n, name) in (0i64..).zip(names) {
        insert(&store, &at, &message(name, b"a", Some(n)), name, Some(n)).unwrap();
    }
    for (n, name) in (0i64..).zip(names) {
        // Managed, larger, huge, managed.
        for path in [vec![b'b'], vec![b'c'; 900], vec![b'd'; 9000], vec![b'e']] {
            assert!(remove(&store, &at, name).unwrap().is_some());
            insert(&store, &at, &message(name, &path, Some(n)), name, Some(n)).unwrap();
            assert_eq!(paths(&store, &at, name), Some(LinkTarget::Soft(path)));
        }
    }
    assert_eq!(remove(&store, &at, b"none").unwrap(), None);
    for (i, name) in names.iter().enumerate() {
        assert_eq!(remove(&store, &at, name).unwrap(), Some(message(name, b"e", Some(i as i64))));
        assert_eq!(paths(&store, &at, name), None);
        assert!(names[i + 1..].iter().all(|n| paths(&store, &at, n).is_some()));
    }
    delete(&store, &at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all space is freed");
}

#[test]
fn bad_input_changes_nothing() {
    let (store, file) = empty();
    let at = create(&store, true).unwrap();
    insert(&store, &at, &message(b"a", b"x", Some(1)), b"a", Some(1)).unwrap();
    store.commit().unwrap();
    let before = file.bytes();
    for (name, stated_name, order, stated_order) in [
        (&b"a"[..], &b"a"[..], Some(2), Some(2)),
        (b"b", b"b", None, None),
        (b"b", b"b", Some(1), Some(1)),
        (b"b", b"c", Some(2), Some(2)),
        (b"b", b"b", Some(2), Some(3)),
    ] {
        assert!(insert(&store, &at, &message(name, b"x", order), stated_name, stated_order).is_err(), "{name:?} {order:?}");
    }
    assert!(insert(&store, &at, b"nonsense", b"b", None).is_err());
    let swapped = DenseStorage { heap: at.name_index, name_index: at.heap, ..at };
    assert!(insert(&store, &swapped, &message(b"b", b"x", Some(2)), b"b", Some(2)).is_err());
    assert!(delete(&store, &swapped).is_err());
    store.commit().unwrap();
    assert!(file.bytes() == before);
    let attributes = crate::structures::attributes::dense_edit::create(&store, false).unwrap();
    assert!(insert(&store, &attributes, &message(b"b", b"x", None), b"b", None).is_err());
    crate::structures::attributes::dense_edit::delete(&store, &attributes).unwrap();
}

#[test]
fn damage_does_not_panic() {
    let (store, file) = empty();
    let at = create(&store, true).unwrap();
    for n in 0..30i64 {
        let name = format!("link{n}");
        insert(&store, &at, &message(name.as_bytes(), b"x", Some(n)), name.as_bytes(), Some(n)).unwrap();
    }
    store.close().unwrap();
    let bytes = file.bytes();
    for i in (48..bytes.len()).step_by(2).filter(|&i| bytes[i] != 0) {
        let mut bad = bytes.clone();
        bad[i] ^= [1, 0x80, 0xff][i % 3];
        let (store, _) = writable(bad);
        let _ = insert(&store, &at, &message(b"b", b"x", Some(50)), b"b", Some(50));
        let _ = remove(&store, &at, b"link7");
        let _ = delete(&store, &at);
    }
}
