//! Changes of fixed and extensible arrays: against models, against arrays of libhdf5
//! (`tests/fixtures/chunk_index`), and damaged.

use crate::base::{Address, Result};
use crate::file::memory::GrowingFile;
use crate::format::{Context, earray, farray};
use crate::meta::Store;
use crate::meta::edit::testing::{empty, writable};
use crate::structures::earray::ExtensibleArray;
use crate::structures::earray::edit::{self as earray_edit, Creation};
use crate::structures::farray::FixedArray;
use crate::structures::farray::edit as farray_edit;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

macro_rules! fixtures {
    ($($name:literal),*) => { [$(include_bytes!(concat!("../../tests/fixtures/chunk_index/", $name, ".h5.z"))),*] };
}

const FILES: [&[u8]; 7] =
    fixtures!["fixed_v110", "fixed_latest", "fixed_paged", "extensible_v110", "extensible_latest", "extensible_paged", "narrow"];

fn files() -> impl Iterator<Item = Vec<u8>> {
    FILES.iter().map(|packed| {
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(*packed).read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn find(bytes: &[u8], signature: &[u8; 4]) -> Vec<usize> {
    (0..bytes.len() - 4).filter(|&i| &bytes[i..i + 4] == signature).collect()
}

fn bytes_of(n: u64, size: usize) -> Vec<u8> {
    let mut e = n.to_le_bytes().to_vec();
    e.resize(size, 9);
    e
}

fn collect(walk: impl FnOnce(&mut crate::structures::paged_elements::Visit<'_>) -> Result<()>) -> BTreeMap<u64, Vec<u8>> {
    let mut all = BTreeMap::new();
    walk(&mut |i, e| {
        all.insert(i, e.to_vec());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

/// True if the element was set.
fn is_set(element: &[u8]) -> bool {
    element[..8] != [0xff; 8]
}

#[test]
fn fixed_arrays_equal_those_of_libhdf5() {
    let mut arrays = 0;
    for bytes in files() {
        let store = writable(bytes.clone()).0;
        for at in find(&bytes, b"FAHD") {
            let theirs = FixedArray::open(&store, Address(at as u64)).unwrap();
            let h = theirs.header().clone();
            let mine = farray_edit::create(&store, h.client, h.element_size, h.page_bits, h.elements).unwrap();
            let elements = collect(|f| theirs.iterate_from(&store, 0, f));
            for (&i, e) in elements.iter().rev() {
                farray_edit::set(&store, mine, i, e).unwrap();
            }
            let again = FixedArray::open(&store, mine).unwrap();
            assert_eq!(farray::Header { data_block: h.data_block, ..again.header().clone() }, h);
            assert_eq!(collect(|f| again.iterate_from(&store, 0, f)), elements);
            arrays += 1;
        }
    }
    assert!(arrays > 8, "{arrays}");
}

/// Block offsets stored in the blocks of the array at `owner`, sorted.
fn offsets(bytes: &[u8], signature: &[u8; 4], owner: Address, ctx: &Context) -> Vec<Vec<u8>> {
    let width = usize::from(ctx.sizeof_addr);
    let at = find(bytes, signature).into_iter().filter(|at| bytes[at + 6..at + 6 + width] == owner.0.to_le_bytes()[..width]);
    let mut offsets: Vec<_> = at.map(|at| bytes[at + 6 + width..at + 10 + width].to_vec()).collect();
    offsets.sort();
    offsets
}

#[test]
fn extensible_arrays_equal_those_of_libhdf5() {
    let mut arrays = 0;
    for bytes in files() {
        let (store, file) = writable(bytes.clone());
        for at in find(&bytes, b"EAHD") {
            let at = Address(at as u64);
            let theirs = ExtensibleArray::open(&store, at).unwrap();
            let h = theirs.header().clone();
            let earray::Header { client, element_size, max_bits, index_elements, min_elements, min_super_pointers, page_bits, .. } = h;
            let creation = Creation { client, element_size, max_bits, index_elements, min_elements, min_super_pointers, page_bits };
            let mine = earray_edit::create(&store, &creation).unwrap();
            let elements = collect(|f| theirs.iterate_from(&store, 0, f));
            for (&i, e) in elements.iter().rev() {
                earray_edit::set(&store, mine, i, e).unwrap();
            }
            let again = ExtensibleArray::open(&store, mine).unwrap();
            assert_eq!(earray::Header { index_block: h.index_block, ..again.header().clone() }, h);
            assert_eq!(collect(|f| again.iterate_from(&store, 0, f)), elements);
            store.commit().unwrap();
            for signature in [b"EASB", b"EADB"] {
                let [a, b] = [at, mine].map(|owner| offsets(&file.bytes(), signature, owner, store.ctx()));
                assert_eq!(a, b);
            }
            arrays += 1;
        }
    }
    assert!(arrays > 9, "{arrays}");
}

/// Sets the elements, reads them back, then deletes the array, which must shorten the file again.
fn model(
    sets: &[(u64, u64)],
    size: u8,
    create: impl FnOnce(&Store) -> Address,
    set: impl Fn(&Store, Address, u64, &[u8]) -> Result<()>,
    read: impl Fn(&Store, Address) -> BTreeMap<u64, Vec<u8>>,
    delete: impl FnOnce(&Store, Address) -> Result<()>,
) {
    let (store, file) = empty();
    let at = create(&store);
    let mut model = BTreeMap::new();
    for (step, &(i, value)) in sets.iter().enumerate() {
        let element = bytes_of(value, usize::from(size));
        set(&store, at, i, &element).unwrap();
        model.insert(i, element);
        if step % 16 == 0 {
            assert_eq!(read(&store, at), model);
        }
        if step % 50 == 7 {
            store.commit().unwrap();
        }
    }
    assert_eq!(read(&store, at), model);
    store.close().unwrap();
    let reopened = writable(file.bytes()).0;
    assert_eq!(read(&reopened, at), model);
    delete(&store, at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn fixed_arrays_return_set_elements(
        sets in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 60), 1..120), elements in 1u64..600, page_bits in 1u8..6,
        size in 8u8..20
    ) {
        let sets: Vec<_> = sets.into_iter().map(|(i, v)| (i % elements, v)).collect();
        let read = |s: &Store, a| {
            let array = FixedArray::open(s, a).unwrap();
            let mut all = collect(|f| array.iterate_from(s, 0, f));
            all.retain(|_, e| is_set(e));
            all
        };
        model(&sets, size, |s| farray_edit::create(s, 1, size, page_bits, elements).unwrap(), farray_edit::set, read, farray_edit::delete);
    }

    #[test]
    fn extensible_arrays_return_set_elements(
        sets in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 60, 1u32..12), 1..120), first in 0u8..6, min in 0u8..3,
        pointers in 0u8..4, more in 0u8..3, size in 8u8..20
    ) {
        // Smallest pages with which the data blocks of the index block are not paged.
        let page_bits = min + pointers.max(1) + more;
        let creation = Creation {
            client: 1, element_size: size, max_bits: 16, index_elements: first, min_elements: 1 << min,
            min_super_pointers: 1 << pointers, page_bits,
        };
        let sets: Vec<_> = sets.into_iter().map(|(i, v, bits)| (i % (1 << bits), v)).collect();
        let read = |s: &Store, a| {
            let array = ExtensibleArray::open(s, a).unwrap();
            assert_eq!(array.header().max_index_set, collect(|f| array.iterate_from(s, 0, f)).iter().rev().find(|(_, e)| is_set(e)).unwrap().0 + 1);
            let mut all = collect(|f| array.iterate_from(s, 0, f));
            all.retain(|_, e| is_set(e));
            all
        };
        model(&sets, size, |s| earray_edit::create(s, &creation).unwrap(), earray_edit::set, read, earray_edit::delete);
    }
}

#[test]
fn bad_parameters_are_refused_before_anything_is_written() {
    let (store, _) = empty();
    for (size, page_bits, elements) in [(8, 10, 0), (7, 10, 4), (0, 10, 4), (8, 0, 4), (8, 64, 4), (255, 10, u64::MAX)] {
        assert!(farray_edit::create(&store, 1, size, page_bits, elements).is_err());
    }
    let standard =
        Creation { client: 0, element_size: 8, max_bits: 32, index_elements: 4, min_elements: 16, min_super_pointers: 4, page_bits: 10 };
    for bad in [
        Creation { client: 4, ..standard },
        Creation { element_size: 4, ..standard },
        Creation { max_bits: 0, ..standard },
        Creation { min_elements: 3, ..standard },
        Creation { page_bits: 1, ..standard },
    ] {
        assert!(earray_edit::create(&store, &bad).is_err(), "{bad:?}");
    }
    let fixed = farray_edit::create(&store, 0, 8, 10, 100).unwrap();
    let huge = farray_edit::create(&store, 0, 8, 40, 1 << 39).unwrap();
    let extensible = earray_edit::create(&store, &standard).unwrap();
    let end = store.transaction().unwrap().end();
    assert!(farray_edit::set(&store, fixed, 100, &[1; 8]).is_err() && farray_edit::set(&store, fixed, 0, &[1; 9]).is_err());
    assert!(farray_edit::set(&store, huge, 0, &[1; 8]).is_err(), "4 TiB in one block");
    assert!(earray_edit::set(&store, extensible, 1 << 32, &[1; 8]).is_err());
    assert!(earray_edit::set(&store, extensible, 0, &[1; 7]).is_err() && earray_edit::set(&store, extensible, u64::MAX, &[1; 8]).is_err());
    assert_eq!(store.transaction().unwrap().end(), end);
    // The last element of an array of 2^32.
    earray_edit::set(&store, extensible, (1 << 32) - 1, &[1; 8]).unwrap();
    let got = ExtensibleArray::open(&store, extensible).unwrap().get(&store, (1 << 32) - 1, |e| Ok(e.to_vec())).unwrap();
    assert_eq!(got, Some(vec![1; 8]));
}

/// Sets elements and deletes the array, which may be damaged.
fn exercise(bytes: Vec<u8>, fixed: bool, at: Address) {
    let file = Arc::new(GrowingFile::new(bytes));
    let Ok(store) = Store::open_writable(file, Box::new(crate::file::memory::MemoryJournal::default())) else { return };
    for i in [0, 30, 200, 1 << 20] {
        let element = [5; 8];
        let _ = if fixed { farray_edit::set(&store, at, i, &element) } else { earray_edit::set(&store, at, i, &element) };
    }
    let _ = if fixed { farray_edit::delete(&store, at) } else { earray_edit::delete(&store, at) };
    let _ = store.close();
}

/// The draft of structured chunks gave the fixed array version 1, and the extensible array none.
#[test]
fn versions_of_structured_chunks() {
    for client in 0..4 {
        let (store, file) = empty();
        let at = farray_edit::create(&store, client, 34, 10, 3).unwrap();
        farray_edit::set(&store, at, 1, &[6; 34]).unwrap();
        let block = FixedArray::open(&store, at).unwrap().header().data_block;
        store.close().unwrap();
        let (bytes, version) = (file.bytes(), u8::from(client >= 2));
        let head = |at: Address| bytes[at.0 as usize..][..6].to_vec();
        assert_eq!(head(at), [&b"FAHD"[..], &[version, client]].concat());
        assert_eq!(head(block), [&b"FADB"[..], &[version, client]].concat());
        assert!(farray_edit::create(&Store::over_bytes(vec![0; 64]), 4, 34, 10, 3).is_err());
    }
}

#[test]
fn damaged_arrays_neither_panic_nor_hang() {
    for fixed in [true, false] {
        let (store, file) = empty();
        let at = if fixed {
            farray_edit::create(&store, 0, 8, 4, 201).unwrap()
        } else {
            let c = Creation {
                client: 0,
                element_size: 8,
                max_bits: 10,
                index_elements: 1,
                min_elements: 2,
                min_super_pointers: 2,
                page_bits: 3,
            };
            earray_edit::create(&store, &c).unwrap()
        };
        for i in [0, 3, 70, 200] {
            if fixed { farray_edit::set(&store, at, i, &[6; 8]).unwrap() } else { earray_edit::set(&store, at, i, &[6; 8]).unwrap() }
        }
        store.close().unwrap();
        let good = file.bytes();
        for i in 48..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            exercise(bad, fixed, at);
        }
        let size = 48 + 72;
        for i in 5..size - 52 {
            // With a valid checksum of the damaged header.
            let (from, len) = (at.0 as usize, if fixed { 24 } else { 68 });
            if i >= len {
                break;
            }
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[from + i] = value;
                let sum = crate::base::checksum::lookup3(&bad[from..from + len], 0).to_le_bytes();
                bad[from + len..from + len + 4].copy_from_slice(&sum);
                exercise(bad, fixed, at);
            }
        }
    }
}
