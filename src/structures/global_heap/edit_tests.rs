//! Changes of global heap collections: against a model, damaged, and with libhdf5.

use super::*;
use crate::format::global_heap::Collection;
use crate::meta::edit::testing::{empty, writable};
use crate::structures::edit_oracle::{Random, Scratch, python};
use crate::structures::global_heap;
use std::collections::BTreeMap;

type Model = BTreeMap<(Address, u32), Vec<u8>>;

/// Removes object `index`; false if it does not exist.
fn remove(store: &Store, space: &mut FreeSpace, collection: Address, index: u32) -> Result<bool> {
    Ok(remove_some(store, space, collection, &[index], false)? != Removed::Nothing)
}

fn check(store: &Store, model: &Model) {
    for ((collection, index), object) in model {
        assert_eq!(&*global_heap::object(store, *collection, *index).unwrap(), &object[..]);
    }
    let mut all: Vec<Address> = model.keys().map(|k| k.0).collect();
    all.dedup();
    for address in all {
        let c = contents(store, address).unwrap();
        assert!(c.dense && c.size >= SIZE_MIN);
        // Equals the codec's encoding, which is libhdf5's, up to the free space.
        let bytes = store.read(address, c.size, NAME).unwrap();
        let decoded = Collection::decode(&bytes, address, store.ctx()).unwrap();
        let end = (c.used as usize + 16).min(bytes.len());
        assert_eq!(decoded.encode(store.ctx()).unwrap()[..end], bytes[..end]);
        assert_eq!(decoded.objects.len(), model.range((address, 0)..=(address, u32::MAX)).count());
    }
}

#[test]
fn random_changes() {
    let (store, file) = empty();
    let (mut space, mut model, mut random) = (FreeSpace::default(), Model::new(), Random(5));
    for round in 0..3000 {
        let grow = round / 750 % 2 == 0;
        if random.below(10) < if grow { 7 } else { 3 } {
            let longest = [10, 100, 1000, 9000, 70_000, 1_200_000][random.below(20).saturating_sub(14)];
            let object = vec![round as u8; random.below(longest)];
            let place = insert(&store, &mut space, &object).unwrap();
            assert_eq!(model.insert(place, object), None);
        } else if let Some(&(collection, index)) = model.keys().nth(random.below(model.len().max(1))) {
            assert!(remove(&store, &mut space, collection, index).unwrap());
            model.remove(&(collection, index));
        }
        if round % 300 == 0 {
            check(&store, &model);
            store.commit().unwrap();
        }
    }
    check(&store, &model);
    for (collection, index) in std::mem::take(&mut model).into_keys() {
        assert!(remove(&store, &mut space, collection, index).unwrap());
    }
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "everything is freed");
}

#[test]
fn small_objects_share_collections() {
    let (store, _) = empty();
    let mut space = FreeSpace::default();
    let places: Vec<_> = (0..1000).map(|n| insert(&store, &mut space, format!("string {n}").as_bytes()).unwrap()).collect();
    let mut collections: Vec<_> = places.iter().map(|p| p.0).collect();
    collections.dedup();
    assert_eq!(collections.len(), 1000 / (4080 / 32) + 1);
    assert!(!remove(&store, &mut space, collections[0], 9999).unwrap());
    assert!(!remove(&store, &mut space, collections[0], 0).unwrap());
    assert!(remove(&store, &mut space, Address(1), 1).is_err());
}

#[test]
fn changes_of_damaged_collections_end() {
    let (store, file) = empty();
    let mut space = FreeSpace::default();
    let at = insert(&store, &mut space, b"one").unwrap().0;
    for n in 0..10 {
        insert(&store, &mut space, &vec![7; n * 5]).unwrap();
    }
    store.close().unwrap();
    let intact = file.bytes();
    for i in 0..400 {
        for change in [1, 0x80, 0xff] {
            let mut bytes = intact.clone();
            bytes[at.0 as usize + i] ^= change;
            let (store, _) = writable(bytes);
            let mut space = FreeSpace { collections: vec![(at, 3000)] };
            let _ = insert(&store, &mut space, b"another object").unwrap();
            let _ = remove(&store, &mut space, at, 3);
            let _ = remove(&store, &mut space, at, 1);
        }
    }
}

#[test]
fn libhdf5_reads_and_changes_it() {
    let scratch = Scratch::new("strings");
    let (path, values) = (scratch.path("f.h5"), scratch.path("values"));
    const N: usize = 300;
    let elements: u64 = python(&["strings", &path, &N.to_string()]).parse().unwrap();
    let mut random = Random(23);
    let mut want: Vec<String> = (0..N).map(|i| format!("old {i}")).collect();
    for _ in 0..2 {
        let (store, file) = writable(std::fs::read(&path).unwrap());
        let mut space = FreeSpace::default();
        for round in 0..700 {
            let i = random.below(N);
            // Length, collection, index.
            let at = Address(elements + i as u64 * 16);
            let element = store.read(at, 16, "element").unwrap();
            let collection = Address(u64::from_le_bytes(element[4..12].try_into().unwrap()));
            let index = u32::from_le_bytes(element[12..].try_into().unwrap());
            assert_eq!(&*global_heap::object(&store, collection, index).unwrap(), want[i].as_bytes());
            assert!(remove(&store, &mut space, collection, index).unwrap());
            let longest = [10, 100, 100, 100, 5000, 80_000][random.below(6)];
            want[i] = format!("{round} {}", "w".repeat(random.below(longest)));
            let (collection, index) = insert(&store, &mut space, want[i].as_bytes()).unwrap();
            let mut element = (want[i].len() as u32).to_le_bytes().to_vec();
            element.extend(collection.0.to_le_bytes());
            element.extend(index.to_le_bytes());
            store.write_raw(at, &element).unwrap();
        }
        store.close().unwrap();
        std::fs::write(&path, file.bytes()).unwrap();
        std::fs::write(&values, serde_json::to_string(&want).unwrap()).unwrap();
        python(&["check_strings", &path, &values]);
        python(&["change_strings", &path, &values]);
        want = serde_json::from_str(&std::fs::read_to_string(&values).unwrap()).unwrap();
    }
}
