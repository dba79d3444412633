//! Random changes against a model, comparison with heaps libhdf5 made, and damage.

use super::*;
use crate::format::free_space::{self, Client};
use crate::meta::edit::testing::{empty, writable};
use crate::meta::extent::collect;
use crate::structures::fractal_heap::FractalHeap;
use std::collections::BTreeMap as Map;

/// Blocks of 64 to 256 bytes: nested indirect blocks after a few dozen objects.
const SMALL: HeapParams = HeapParams {
    id_length: 7,
    max_managed_size: 200,
    width: 4,
    start_block_size: 64,
    max_direct_size: 256,
    max_heap_bits: 20,
    start_root_rows: 1,
    checksum: true,
};

fn random(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 16) as usize
}

/// Checks the header's counts and the objects against `model`.
fn check(store: &Store, at: Address, model: &Map<Vec<u8>, Vec<u8>>) {
    let heap = FractalHeap::open(store, at).unwrap();
    let mut edit = Edit::open(store, at).unwrap();
    let h = heap.header().clone();
    let mut stats = Statistics::default();
    let mut used = 0;
    for (id, object) in model {
        assert_eq!(&heap.object(store, id).unwrap(), object);
        let n = object.len() as u64;
        match edit.heap.ids.decode(id).unwrap() {
            HeapId::Tiny(_) => (stats.tiny_objects, stats.tiny_size) = (stats.tiny_objects + 1, stats.tiny_size + n),
            HeapId::Managed { .. } => (stats.managed_objects, used) = (stats.managed_objects + 1, used + n),
            _ => (stats.huge_objects, stats.huge_size) = (stats.huge_objects + 1, stats.huge_size + n),
        }
    }
    let overhead = edit.heap.geometry.direct_overhead() as u64;
    let (mut blocks, mut room) = (0, 0);
    for (a, n) in edit.block_extents().unwrap() {
        if store.read(a, 4, "t").unwrap() == b"FHDB" {
            (blocks, room) = (blocks + n, room + n - overhead);
        }
    }
    let rows = u32::from(h.table.root_rows);
    let whole = if rows > 0 { edit.capacity(rows).unwrap() } else { room };
    assert_eq!(h.free_space, whole - used);
    stats.allocated_size = blocks;
    (stats.managed_size, stats.iterator) = (h.statistics.managed_size, h.statistics.iterator);
    assert_eq!(h.statistics, stats);
    // All bytes of blocks without an object are in the list of holes.
    if h.free_space_manager.is_defined() {
        let bytes = store.read(h.free_space_manager, free_space::Header::size(store.ctx()), "t").unwrap();
        let f = free_space::Header::decode(&bytes, h.free_space_manager, store.ctx(), Client::FractalHeap).unwrap();
        let list = f.decode_list(&store.read(f.list, f.list_size, "t").unwrap(), h.free_space_manager, store.ctx()).unwrap();
        assert_eq!((f.sections, f.stored, f.ghosts), (list.len() as u64, list.len() as u64, 0));
        assert_eq!((f.space, f.list_allocated), (list.iter().map(|s| s.size).sum(), f.list_size));
        assert_eq!(f.space, room - used);
        assert!(list.is_sorted());
    } else {
        assert_eq!(room, used);
    }
}

/// Checks counts and holes of a heap that libhdf5 changed too and that holds the objects `ids`.
/// True if its free-space manager has block ranges.
pub fn audit(store: &Store, at: Address, ids: &[Vec<u8>]) -> bool {
    let mut edit = Edit::open(store, at).unwrap();
    let h = edit.heap.header.clone();
    let mut extents = Vec::new();
    for id in ids {
        if let HeapId::Managed { offset, length } = edit.heap.ids.decode(id).unwrap() {
            edit.managed(offset, length).unwrap();
            extents.push((offset, length));
        }
    }
    let used: u64 = extents.iter().map(|e| e.1).sum();
    assert_eq!(h.statistics.managed_objects, extents.len() as u64);
    let blocks = edit.block_extents().unwrap();
    let direct = blocks.iter().filter(|(a, _)| store.read(*a, 4, "t").unwrap() == b"FHDB").map(|b| b.1);
    assert_eq!(h.statistics.allocated_size, direct.sum::<u64>());
    let rows = u32::from(h.table.root_rows);
    let first = h.table.start_block_size - edit.heap.geometry.direct_overhead() as u64;
    let whole = if rows > 0 { edit.capacity(rows).unwrap() } else { first };
    assert_eq!(h.free_space, if h.table.root.is_defined() { whole - used } else { 0 });
    let singles: Vec<_> = edit.holes().unwrap().singles();
    for &(offset, size) in &singles {
        let place = edit.locate(offset).unwrap();
        assert!(offset + size <= place.offset + place.size && offset >= place.offset + edit.heap.geometry.direct_overhead() as u64);
    }
    extents.extend(singles);
    extents.sort_unstable();
    assert!(extents.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
    edit.holes().unwrap().has_rows()
}

fn churn(params: &HeapParams, sizes: &[usize], steps: usize) -> (u16, usize) {
    let (store, file) = empty();
    let at = create(&store, params).unwrap();
    let mut model = Map::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let (mut rows, mut most) = (0, 0);
    for step in 0..steps {
        let growing = (step * 4 / steps).is_multiple_of(2);
        if (random(&mut seed) % 8 < 5) == growing || model.is_empty() {
            let n = 1 + random(&mut seed) % sizes[random(&mut seed) % sizes.len()];
            let object: Vec<u8> = (0..n).map(|_| random(&mut seed) as u8).collect();
            let id = insert(&store, at, &object).unwrap();
            assert_eq!(id.len(), usize::from(params.id_length));
            let tiny = id[0] == 0x20 | (n - 1) as u8;
            assert!(model.insert(id, object).is_none() || tiny);
            if tiny {
                // Equal tiny objects have equal IDs: keep the count simple.
                let (id, _) = model.iter().find(|(id, _)| id[0] >> 4 == 2).unwrap();
                let id = id.clone();
                model.remove(&id);
                remove(&store, at, &id).unwrap();
            }
        } else {
            let id = model.keys().nth(random(&mut seed) % model.len()).unwrap().clone();
            let object = model.get_mut(&id).unwrap();
            if random(&mut seed).is_multiple_of(4) {
                object.reverse();
                assert!(replace_same_size(&store, at, &id, object).unwrap());
                assert!(!replace_same_size(&store, at, &id, &[]).unwrap());
            } else {
                model.remove(&id).unwrap();
                remove(&store, at, &id).unwrap();
                assert!(remove(&store, at, &id).is_err());
            }
        }
        if step % 40 == 0 {
            check(&store, at, &model);
            let t = &FractalHeap::open(&store, at).unwrap().header().table.clone();
            (rows, most) = (rows.max(t.root_rows), most.max(model.len()));
        }
    }
    let (again, _) = writable({
        store.commit().unwrap();
        file.bytes()
    });
    delete_heap(&again, at).unwrap();
    again.close().unwrap();
    for id in model.keys() {
        remove(&store, at, id).unwrap();
    }
    check(&store, at, &Map::new());
    let h = FractalHeap::open(&store, at).unwrap().header().clone();
    assert_eq!(h, params.header(), "an emptied heap equals a new one");
    delete_heap(&store, at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all space is freed");
    (rows, most)
}

#[test]
fn random_changes_against_a_model() {
    let (rows, _) = churn(&SMALL, &[20, 60, 200], 3000);
    assert!(rows > 6, "{rows} rows: no nested indirect blocks");
    churn(&HeapParams { checksum: false, start_root_rows: 0, ..SMALL }, &[40], 1000);
    churn(&SMALL, &[30, 150, 400], 1500);
    churn(&HeapParams { id_length: 17, ..SMALL }, &[30, 150, 400], 1000);
    churn(&HeapParams::ATTRIBUTES, &[100, 4000, 5000], 400);
}

/// The objects of a heap of libhdf5, inserted into a new heap in the order of their offsets, give
/// the same header.
#[test]
fn headers_equal_those_of_libhdf5() {
    for (file, params) in [
        (&include_bytes!("../../../../tests/fixtures/heaps/links10.h5")[..], HeapParams::LINKS),
        (include_bytes!("../../../../tests/fixtures/heaps/links60.h5"), HeapParams::LINKS),
        (include_bytes!("../../../../tests/fixtures/heaps/attrs10.h5"), HeapParams::ATTRIBUTES),
    ] {
        let at = Address(file.windows(4).position(|w| w == b"FRHP").unwrap() as u64);
        let tree = file.windows(6).position(|w| w == b"BTHD\0\x05" || w == b"BTHD\0\x08").unwrap();
        let (theirs, _) = writable(file.to_vec());
        let heap = FractalHeap::open(&theirs, at).unwrap();
        let tree = crate::structures::btree2::BTree2::open(&theirs, Address(tree as u64)).unwrap();
        let mut objects = Map::new();
        let from = if tree.record_type() == 5 { 4..11 } else { 0..8 };
        tree.iterate(&theirs, &mut |r| {
            let id = &r[from.clone()];
            let key = (id[0], u32::from_le_bytes(id[1..5].try_into().unwrap()));
            objects.insert(key, heap.object(&theirs, id).unwrap());
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
        let (store, _) = empty();
        // h5dir uses smaller blocks.
        let own = create(&store, &HeapParams { max_direct_size: heap.header().table.max_direct_size, ..params }).unwrap();
        for object in objects.values() {
            insert(&store, own, object).unwrap();
        }
        let mut ours = FractalHeap::open(&store, own).unwrap().header().clone();
        let mut want = heap.header().clone();
        for h in [&mut ours, &mut want] {
            h.free_space_manager = Address(0);
            h.table.root = Address(0);
            if h.huge_btree.is_defined() {
                h.huge_btree = Address(0);
            }
        }
        assert_eq!(ours, want);
    }
}

#[test]
fn bad_input_changes_nothing() {
    let (store, file) = empty();
    assert!(create(&store, &HeapParams { width: 3, ..SMALL }).is_err());
    assert!(create(&store, &HeapParams { max_managed_size: 250, ..SMALL }).is_err());
    assert!(create(&store, &HeapParams { id_length: 4, ..SMALL }).is_err());
    let at = create(&store, &SMALL).unwrap();
    let ids: Vec<_> = (0..30).map(|n| insert(&store, at, &[n; 30]).unwrap()).collect();
    store.commit().unwrap();
    let before = file.bytes();
    assert!(insert(&store, at, &[]).is_err());
    for (i, change) in [(0, 0x30), (0, 0x40), (0, 0x10), (3, 0x80), (3, 0x10), (4, 255)] {
        let mut id = ids[3].clone();
        id[i] ^= change;
        assert!(remove(&store, at, &id).is_err(), "byte {i}");
    }
    assert!(remove(&store, at, &[0, 1]).is_err());
    store.commit().unwrap();
    assert!(file.bytes() == before);
}

#[test]
fn filtered_heaps_are_refused() {
    let file = include_bytes!("../../../../tests/fixtures/heaps/filtered12.h5");
    let at = Address(file.windows(4).position(|w| w == b"FRHP").unwrap() as u64);
    let (store, _) = writable(file.to_vec());
    assert!(matches!(insert(&store, at, &[1; 30]), Err(Error::Unsupported { .. })));
    assert!(matches!(remove(&store, at, &[0, 21, 0, 0, 0, 9, 0]), Err(Error::Unsupported { .. })));
}

#[test]
fn damage_does_not_panic() {
    let (store, file) = empty();
    let at = create(&store, &SMALL).unwrap();
    let ids: Vec<_> = (0..40).map(|n| insert(&store, at, &[n; 50]).unwrap()).collect();
    remove(&store, at, &ids[4]).unwrap();
    store.close().unwrap();
    let bytes = file.bytes();
    for i in (48..bytes.len()).filter(|&i| i < 400 || i % 3 == 0) {
        let mut bad = bytes.clone();
        bad[i] ^= [1, 0x80, 0xff][i % 3];
        let (store, _) = writable(bad);
        let _ = insert(&store, at, &[7; 44]);
        let _ = insert(&store, at, &[7; 180]);
        let _ = remove(&store, at, &ids[9]);
        let _ = delete_heap(&store, at);
    }
}

/// In files with pages, huge objects are in pages of elements, and the rest of the heap in those of
/// metadata.
#[test]
fn huge_objects_have_pages_of_their_kind() {
    let (store, _) = empty();
    store.set_pages(4096).unwrap();
    let heap = create(&store, &SMALL).unwrap();
    let id = insert(&store, heap, &[7; 1000]).unwrap();
    let raw = store.put(&[1; 100], SpaceKind::Raw).unwrap();
    let found = collect(|visit| extents(&store, heap, visit)).unwrap();
    let found: Vec<_> = found.iter().filter(|e| e.kind == SpaceKind::GlobalHeap).collect();
    let page = |a: Address| a.0 / 4096;
    assert_eq!((found.len(), page(found[0].address)), (1, page(raw)));
    assert_ne!(page(heap), page(raw));
    store.commit().unwrap();
    remove(&store, heap, &id).unwrap();
    store.commit().unwrap();
    assert_eq!(page(store.put(&[2; 1000], SpaceKind::Raw).unwrap()), page(raw), "freed huge objects leave space for elements");
}
