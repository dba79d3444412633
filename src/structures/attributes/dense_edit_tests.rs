//! Dense attributes: names of one hash, bad input, damage. `structures::oracle` tests them with
//! libhdf5.

use super::*;
use crate::format::message::attribute::Attribute;
use crate::meta::edit::testing::empty;
use crate::structures::attributes::dense::{find, list_by};
use std::ops::ControlFlow;

fn message(name: &str, data: &[u8]) -> Vec<u8> {
    let dataspace = [&[2, 1, 0, 1][..], &(data.len() as u64).to_le_bytes()].concat();
    let datatype = vec![0x10, 8, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    let (name, name_tail, data) = (name.as_bytes().to_vec(), vec![0], data.to_vec());
    Attribute { version: 3, datatype_shared: false, dataspace_shared: false, charset: 0, name, name_tail, datatype, dataspace, data }
        .encode()
}

#[test]
fn names_of_one_hash_and_replacement() {
    let (store, file) = empty();
    let at = create(&store, true).unwrap();
    let names = ["k69209", "k155448", "k227042", "k192421", "k92415", "k257792"];
    for (n, name) in (0u32..).zip(names) {
        insert(&store, &at, &message(name, &[n as u8]), 4, n).unwrap();
    }
    for name in names {
        for data in [vec![1], vec![2; 900], vec![3; 70_000], vec![4]] {
            assert!(replace(&store, &at, &message(name, &data)).unwrap());
            let found = find(&store, at.heap, at.name_index, name.as_bytes()).unwrap();
            assert_eq!((found.len(), &found[0].body, found[0].flags), (1, &message(name, &data), 4));
        }
    }
    let mut orders = Vec::new();
    list_by(&store, at.heap, at.creation_index.unwrap(), &ATTRIBUTES.by_creation, &mut |a| {
        orders.push(a.creation_order);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(orders, [0, 1, 2, 3, 4, 5]);
    assert!(!replace(&store, &at, &message("none", &[1])).unwrap());
    for (n, name) in (0u32..).zip(names) {
        let stored = Stored { body: message(name, &[4]), flags: 4, creation_order: n };
        assert_eq!(remove(&store, &at, name.as_bytes()).unwrap(), Some(stored));
        assert_eq!(remove(&store, &at, name.as_bytes()).unwrap(), None);
    }
    delete(&store, &at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all space is freed");
}

#[test]
fn bad_input_changes_nothing() {
    let (store, file) = empty();
    let at = create(&store, true).unwrap();
    insert(&store, &at, &message("a", &[1]), 0, 1).unwrap();
    store.commit().unwrap();
    let before = file.bytes();
    assert!(insert(&store, &at, &message("a", &[1]), 0, 2).is_err());
    assert!(insert(&store, &at, &message("b", &[1]), 0, 1).is_err());
    assert!(matches!(insert(&store, &at, &message("b", &[1]), FLAG_SHARED, 2), Err(Error::Unsupported { .. })));
    assert!(insert(&store, &at, b"nonsense", 0, 2).is_err());
    store.commit().unwrap();
    assert!(file.bytes() == before);
}

/// An index record of a shared attribute in a file without shared messages.
#[test]
fn shared_attributes_need_their_heap() {
    let (store, _) = empty();
    let at = create(&store, false).unwrap();
    insert(&store, &at, &message("a", &[1]), 0, 1).unwrap();
    let record = BTree2::open(&store, at.name_index).unwrap().find(&store, &mut |_| Ok(Ordering::Equal)).unwrap().unwrap();
    let mut shared = NameRecord::decode(&record, at.name_index).unwrap();
    shared.attribute.flags |= FLAG_SHARED;
    btree2::edit::replace(&store, at.name_index, &mut |_| Ok(Ordering::Equal), &shared.encode()).unwrap();
    assert!(matches!(remove(&store, &at, b"a"), Err(Error::Corrupt { .. })));
    assert!(matches!(replace(&store, &at, &message("a", &[2])), Err(Error::Corrupt { .. })));
    delete(&store, &at).unwrap();
}
