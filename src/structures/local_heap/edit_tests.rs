//! Changes of local heaps: against a model, and damaged. The tests of symbol tables use libhdf5.

use super::*;
use crate::format::superblock::Superblock;
use crate::meta::edit::testing::{empty, writable};
use crate::structures::edit_oracle::Random;
use crate::structures::extent::free_all;
use crate::structures::local_heap::HeapNames;
use crate::structures::local_heap::LocalHeap;
use crate::structures::local_heap::extents;

/// Checks the list of free blocks like libhdf5 when it loads the heap, and that no free block holds
/// a string.
fn check(store: &Store, heap: Address, strings: &BTreeMap<u64, Vec<u8>>) {
    let ctx = store.ctx();
    let header = load_checked(store, heap).unwrap();
    let mut ranges: Vec<(u64, u64)> = strings.iter().map(|(&o, s)| (o, string_size(s.len()))).collect();
    let mut next = header.free_list;
    while next != FREE_NULL {
        let bytes = store.read(Address(header.segment.0 + next), free_min(ctx), NAME).unwrap();
        let block = FreeBlock::decode(&bytes, heap, ctx).unwrap();
        assert!(next.is_multiple_of(8) && block.size >= free_min(ctx) && block.size.is_multiple_of(8));
        ranges.push((next, block.size));
        next = block.next;
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{ranges:?}");
    assert!(ranges.last().is_none_or(|r| r.0 + r.1 <= header.segment_size));
    let names = HeapNames::open(store, heap).unwrap();
    for (&offset, string) in strings {
        assert_eq!(names.name(store, offset).unwrap(), *string);
    }
}

fn against_model(store: &Store, rounds: usize, shortest: usize, longest: usize) {
    let heap = create(store, 20).unwrap();
    let mut strings = BTreeMap::new();
    assert_eq!(insert(store, heap, b"").unwrap(), 0);
    strings.insert(0, Vec::new());
    let mut random = Random(77);
    for round in 0..rounds {
        let grow = (round / (rounds / 4)).is_multiple_of(2);
        if random.below(10) < if grow { 7 } else { 3 } {
            let string = vec![b'a' + (round % 26) as u8; shortest + random.below(longest)];
            let offset = insert(store, heap, &string).unwrap();
            assert_eq!(strings.insert(offset, string), None);
        } else if let Some(&offset) = strings.keys().nth(random.below(strings.len())).filter(|&&o| o > 0) {
            remove(store, heap, offset).unwrap();
            strings.remove(&offset);
        }
        if round % 31 == 0 {
            check(store, heap, &strings);
            store.commit().unwrap();
        }
    }
    check(store, heap, &strings);
    for &offset in strings.keys() {
        remove(store, heap, offset).unwrap();
    }
    // Bytes too few for a free block are lost unless adjacent bytes are free.
    assert!(shortest < 8 || load_checked(store, heap).unwrap().segment_size <= 256, "the segment is shortened");
    free_all(store, |visit| extents(store, heap, visit)).unwrap();
}

#[test]
fn random_changes() {
    let (store, file) = empty();
    against_model(&store, 2000, 0, 20);
    against_model(&store, 400, 8, 9000);
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "everything is freed");
}

#[test]
fn widths_of_four() {
    let ctx = Context { sizeof_addr: 4, sizeof_size: 4 };
    let (eof, none) = (Address(36), Address::UNDEF);
    let superblock = Superblock { version: 2, ctx, flags: 0, base: Address(0), eof, extension: none, root: none, legacy: None };
    let mut bytes = superblock.encode().unwrap();
    bytes.resize(36, 0);
    let (store, file) = writable(bytes);
    against_model(&store, 1000, 0, 30);
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 36);
}

#[test]
fn bad_input_is_refused() {
    let (store, _) = empty();
    let heap = create(&store, 64).unwrap();
    insert(&store, heap, b"").unwrap();
    let a = insert(&store, heap, b"first").unwrap();
    assert!(insert(&store, heap, b"a\0b").is_err() && insert(&store, heap, &vec![b'a'; limits::HEAP_NAME_MAX + 1]).is_err());
    assert!(remove(&store, heap, a + 1).is_err() && remove(&store, heap, 1 << 20).is_err());
    remove(&store, heap, a).unwrap();
    remove(&store, heap, a).unwrap();
    check(&store, heap, &BTreeMap::from([(0, Vec::new())]));
    assert!(create(&store, u64::MAX).is_err());
    assert_eq!(LocalHeap::open(&store, heap).unwrap().name(0).unwrap(), b"");
}

#[test]
fn changes_of_damaged_heaps_end() {
    let (store, file) = empty();
    let heap = create(&store, 64).unwrap();
    let offsets: Vec<u64> = (0..30).map(|n| insert(&store, heap, &vec![b'a'; n * 3]).unwrap()).collect();
    offsets.iter().step_by(3).for_each(|&o| remove(&store, heap, o).unwrap());
    store.close().unwrap();
    let intact = file.bytes();
    // Mostly the fields of the header and of free blocks, not every byte of the strings.
    for i in (48..intact.len()).filter(|&i| i < 128 || intact[i] != b'a' && i % 2 == 0) {
        for change in [1, 0xff] {
            let mut bytes = intact.clone();
            bytes[i] ^= change;
            let (store, _) = writable(bytes);
            let _ = insert(&store, heap, b"another string");
            offsets.iter().skip(22).for_each(|&o| drop(remove(&store, heap, o)));
            let _ = insert(&store, heap, &[b'x'; 3000]);
            let _ = free_all(&store, |visit| extents(&store, heap, visit));
        }
    }
}
