//! B-trees and heaps against files that libhdf5 wrote.
//!
//! Structures are found by their signatures, so that nothing but the code under test is needed.
//! The check of a dense index is complete: every record's heap object is a link or attribute
//! message whose name has the hash that the record states.
//!
//! Larger files are made by `tests/fixtures/heaps/make_heaps.py` when they are needed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use h5dir::base::checksum::lookup3;
use h5dir::base::{Address, Error, Result};
use h5dir::file::memory::MemoryFile;
use h5dir::format::Reader;
use h5dir::format::shared_message::{IndexHeader, Record, SharedMessagePlace, decode_list, encode_list, list_size};
use h5dir::meta::Store;
use h5dir::structures::btree2::BTree2;
use h5dir::structures::fractal_heap::{Decode, FractalHeap};
use h5dir::structures::global_heap;
use h5dir::structures::local_heap::LocalHeap;
use h5dir::structures::shared_messages::SharedMessages;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

#[path = "support/python.rs"]
mod python;

/// A file in memory and the addresses of the signatures in it.
struct File {
    bytes: Vec<u8>,
    store: Store,
}

impl File {
    fn new(bytes: Vec<u8>) -> Option<File> {
        let store = Store::open(Arc::new(MemoryFile::new(bytes.clone()))).ok()?;
        Some(File { bytes, store })
    }

    fn open(path: &Path) -> File {
        File::new(std::fs::read(path).unwrap()).unwrap()
    }

    fn find(&self, signature: &[u8]) -> Vec<Address> {
        let base = self.store.base();
        let hits = self.bytes.windows(signature.len()).enumerate().filter(|(_, w)| *w == signature);
        hits.filter_map(|(i, _)| (i as u64).checked_sub(base)).map(Address).collect()
    }
}

/// Undoes a pipeline that is nothing but deflate.
fn inflate() -> Arc<Decode> {
    Arc::new(|_pipeline: &[u8], stored: Vec<u8>, mask: u32, size: usize| {
        if mask & 1 != 0 {
            return Ok(stored);
        }
        let mut out = Vec::new();
        let done = flate2::read::ZlibDecoder::new(&stored[..]).take(size as u64 + 1).read_to_end(&mut out);
        done.map_err(|e| Error::corrupt("deflate", Address::UNDEF, e.to_string()))?;
        Ok(out)
    })
}

fn link_name(message: &[u8]) -> Option<&[u8]> {
    let flags = *message.get(1)?;
    let mut at = 2 + usize::from(flags & 8 != 0) + if flags & 4 != 0 { 8 } else { 0 } + usize::from(flags & 16 != 0);
    let width = 1usize << (flags & 3);
    let n = message.get(at..at + width)?.iter().rev().fold(0usize, |n, &b| n << 8 | usize::from(b));
    at += width;
    message.get(at..at + n)
}

fn attribute_name(message: &[u8]) -> Option<&[u8]> {
    let start = if *message.first()? == 3 { 9 } else { 8 };
    let name = message.get(start..start + usize::from(u16::from_le_bytes([*message.get(2)?, *message.get(3)?])))?;
    name.split(|&b| b == 0).next()
}

/// Records of `tree`, all of them.
fn records(file: &File, tree: &BTree2) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    tree.iterate(&file.store, &mut |r| {
        all.push(r.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

/// `iterate_from` at some ranks, and `find` / `find_range` of some records, agree with `iterate`.
fn check_search(file: &File, tree: &BTree2, all: &[Vec<u8>], key: fn(&[u8]) -> u64) {
    let n = all.len();
    for rank in [0, 1, n / 3, n / 2, n.saturating_sub(1), n, n + 5] {
        let mut seen = Vec::new();
        tree.iterate_from(&file.store, rank as u64, &mut |r| {
            seen.push(r.to_vec());
            Ok(if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        assert_eq!(seen, all.iter().skip(rank).take(3).cloned().collect::<Vec<_>>(), "rank {rank}");
    }
    for r in all.iter().step_by((n / 50).max(1)) {
        let want = key(r);
        let found = tree.find(&file.store, &mut |x| Ok(key(x).cmp(&want))).unwrap().unwrap();
        assert_eq!(key(&found), want);
        let mut range = Vec::new();
        let mut visit = |x: &[u8]| {
            range.push(x.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        tree.find_range(&file.store, &mut |x| Ok(key(x).cmp(&want)), &mut visit).unwrap();
        assert_eq!(range, all.iter().filter(|x| key(x) == want).cloned().collect::<Vec<_>>());
    }
    assert_eq!(tree.find(&file.store, &mut |x| Ok(key(x).cmp(&u64::MAX))).unwrap(), None);
}

fn number(r: &[u8], at: usize, n: usize) -> u64 {
    r[at..at + n].iter().rev().fold(0, |v, &b| v << 8 | u64::from(b))
}

/// Sort key (its leading part), position and length of the heap ID, name hash position.
type Shape = (fn(&[u8]) -> u64, usize, usize, Option<usize>);

fn shape(record_type: u8) -> Option<Shape> {
    match record_type {
        5 => Some((|r| number(r, 0, 4), 4, 7, Some(0))),
        6 => Some((|r| number(r, 0, 8), 8, 7, None)),
        8 => Some((|r| number(r, 13, 4), 0, 8, Some(13))),
        9 => Some((|r| number(r, 9, 4), 0, 8, None)),
        _ => None,
    }
}

/// Checks every dense index of the file; returns (trees, objects).
fn check_dense(file: &File) -> (usize, usize) {
    let heaps: Vec<_> = file.find(b"FRHP").iter().filter_map(|&a| FractalHeap::open_with_filters(&file.store, a, inflate()).ok()).collect();
    let (mut trees, mut objects) = (0, 0);
    for address in file.find(b"BTHD") {
        let Ok(tree) = BTree2::open(&file.store, address) else { continue };
        let Some((key, at, n, hash)) = shape(tree.record_type()) else { continue };
        let Ok(all) = records(file, &tree) else { continue };
        assert_eq!(all.len() as u64, tree.len());
        let name = if tree.record_type() < 8 { link_name } else { attribute_name };
        let shared = |r: &[u8]| tree.record_type() >= 8 && r[8] & 2 != 0;
        let matches = |heap: &FractalHeap, r: &[u8]| {
            heap.object(&file.store, &r[at..at + n])
                .is_ok_and(|o| name(&o).is_some_and(|name| hash.is_none_or(|h| u64::from(lookup3(name, 0)) == number(r, h, 4))))
        };
        let own: Vec<_> = all.iter().filter(|r| !shared(r)).collect();
        let good = heaps.iter().filter(|h| own.iter().all(|r| matches(h, r))).count();
        assert!(good > 0, "no heap fits the tree of type {} at {address} ({} records)", tree.record_type(), all.len());
        if !all.is_empty() {
            check_search(file, &tree, &all, key);
        }
        trees += 1;
        objects += own.len();
    }
    (trees, objects)
}

fn fixture(name: &str) -> File {
    File::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/heaps").join(name))
}

fn large(name: &str) -> File {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/heaps/make_heaps.py");
        let status = std::process::Command::new(python::with_h5py()).arg(script).arg(dir.path()).status().unwrap();
        assert!(status.success(), "{script}");
        dir
    });
    File::open(&made.path().join(name))
}

#[test]
fn dense_links() {
    assert_eq!(check_dense(&fixture("links10.h5")), (2, 20));
    assert_eq!(check_dense(&fixture("links60.h5")), (2, 120));
    let file = fixture("filtered12.h5");
    assert_eq!(check_dense(&file), (2, 26));
    // The long link is a huge object: found through a B-tree of type 2.
    let trees = file.find(b"BTHD").into_iter().filter_map(|a| BTree2::open(&file.store, a).ok());
    let kinds: Vec<_> = trees.map(|t| (t.record_type(), t.len())).collect();
    assert!(kinds.contains(&(2, 1)), "{kinds:?}");
    let file = fixture("filtered12.h5");
    let plain = FractalHeap::open(&file.store, file.find(b"FRHP")[0]).unwrap();
    assert!(matches!(plain.object(&file.store, &[0, 21, 0, 0, 0, 9, 0]), Err(Error::Unsupported { .. })));
}

#[test]
fn dense_attributes_and_a_huge_one() {
    let file = fixture("attrs10.h5");
    assert_eq!(check_dense(&file), (2, 22));
    let heap = FractalHeap::open(&file.store, file.find(b"FRHP")[0]).unwrap();
    let tree = file.find(b"BTHD").iter().find_map(|&a| BTree2::open(&file.store, a).ok().filter(|t| t.record_type() == 8)).unwrap();
    let huge = |r: &[u8]| Ok(number(r, 13, 4).cmp(&u64::from(lookup3(b"huge", 0))));
    let record = tree.find(&file.store, &mut |r| huge(r)).unwrap().unwrap();
    let message = heap.object(&file.store, &record[..8]).unwrap();
    let data: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    assert!(message.ends_with(&data));
}

#[test]
fn large_indexes() {
    assert_eq!(check_dense(&large("links1000.h5")), (2, 2000));
    assert_eq!(check_dense(&large("links50000.h5")), (2, 100_000));
    assert_eq!(check_dense(&large("links300000.h5")), (2, 600_000));
    assert_eq!(check_dense(&large("filtered5000.h5")), (2, 10_002));
    assert_eq!(check_dense(&large("attrs3000.h5")), (2, 6002));
}

/// Collections of `file` and the objects in them.
fn strings(file: &File) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for c in file.find(b"GCOL") {
        for i in 1..=65_535u32 {
            match global_heap::object(&file.store, c, i) {
                Ok(o) => all.push(o.to_vec()),
                Err(_) => break,
            }
        }
    }
    all
}

#[test]
fn variable_length_strings() {
    let want: Vec<_> = (0..5).map(|i| format!("string {i} {}", "x".repeat(i)).into_bytes()).collect();
    let mut got = strings(&fixture("vlen.h5"));
    got.sort();
    assert_eq!(got, want);
}

#[test]
fn many_variable_length_strings() {
    let mut got = strings(&large("vlen100000.h5"));
    let mut want: Vec<_> = (0..100_000).map(|i| format!("string {i} {}", "x".repeat(i % 50)).into_bytes()).collect();
    want.push(vec![b'y'; 3 << 20]);
    got.sort();
    want.sort();
    assert!(got == want);
}

#[test]
fn old_style_names() {
    let file = fixture("old.h5");
    let heaps = file.find(b"HEAP");
    let heap = LocalHeap::open(&file.store, heaps[0]).unwrap();
    let mut names = Vec::new();
    for offset in (8u64..).step_by(8).take_while(|&o| heap.name(o).is_ok()) {
        let name = heap.name(offset).unwrap();
        if name.starts_with(b"name") {
            names.push(String::from_utf8(name.to_vec()).unwrap());
        }
    }
    for i in (0..10).filter(|&i| i != 3) {
        assert!(names.contains(&format!("name{i}")), "{names:?}");
    }
    assert!(heap.name(u64::MAX).is_err());
}

fn shared_records(file: &File, index: &IndexHeader) -> Result<Vec<Record>> {
    let ctx = file.store.ctx();
    if index.index_type == 1 {
        let tree = BTree2::open(&file.store, index.index)?;
        assert_eq!(tree.record_type(), 7);
        return records(file, &tree)?.iter().map(|r| Record::decode(&mut Reader::new(r, "record", index.index), ctx)).collect();
    }
    let size = list_size(index.list_max, ctx) as u64;
    let bytes = file.store.read(index.index, size, "list")?;
    let list = decode_list(&bytes, index.index, index, ctx)?;
    let used = list_size(index.messages, ctx);
    assert_eq!(encode_list(&list, index.list_max, ctx)[..used], bytes[..used]);
    Ok(list)
}

/// Every message in a heap of a shared message index has the hash that its record states.
fn check_shared(file: &File) -> usize {
    let mut messages = 0;
    for table in file.find(b"SMTB") {
        let Some(shared) = (1..=8).find_map(|n| SharedMessages::open(&file.store, table, n).ok()) else { continue };
        for index in shared.indexes().iter().filter(|i| i.index.is_defined()) {
            let all = shared_records(file, index).unwrap();
            assert_eq!(all.len(), usize::from(index.messages));
            for record in &all {
                let SharedMessagePlace::Heap { id, .. } = &record.place else { continue };
                let kinds = (0..16u16).filter(|k| index.message_types & 1 << k != 0);
                let bytes: Vec<_> = kinds.map(|k| (k, shared.message(&file.store, k, id).unwrap())).collect();
                assert!(bytes.iter().any(|(k, m)| lookup3(m, u32::from(*k)) == record.hash));
                messages += 1;
            }
        }
    }
    messages
}

#[test]
fn shared_messages() {
    assert!(check_shared(&fixture("sohm.h5")) >= 3);
}

#[test]
fn large_shared_messages() {
    assert_eq!(check_shared(&large("sohm400.h5")), 401);
}
