//! Writes on a full disk, and space that killed sessions leave.

use super::super::NativeConnector;
use super::super::tests::options;
use super::fault_tests::{bytes, dataset};
use super::is_full;
use super::write_errors_tests::{empty, find, open};
use crate::base::Error;
use crate::connector::Connector;
use crate::connector::edit::Edit;
use crate::connector::native::create;
use crate::connector::new_file::{NewFile, Strategy};
use crate::file::fault::{Fault, FaultyFile, LENGTH, Plan};
use crate::file::memory::{GrowingFile, MemoryJournal};
use std::path::PathBuf;
use std::sync::Arc;

const PIECE: usize = 64 << 10;
const PIECES: usize = 64;

const DATASETS: [&str; 4] = [
    r#"{"dtype": "u1", "shape": [4194304], "maxshape": [null], "chunks": [65536]}"#,
    r#"{"dtype": "u1", "shape": [4194304], "maxshape": [null], "chunks": [65536], "filters": ["shuffle"]}"#,
    r#"{"dtype": "u1", "shape": [4194304], "maxshape": [null], "chunks": [65536], "layout": "sparse"}"#,
    r#"{"dtype": "u1", "shape": [4194304], "maxshape": [null], "layout": "log"}"#,
];

/// The file cannot grow from some write on: each write is whole or fails, and the commit stores all
/// those that were acknowledged.
#[test]
fn a_commit_on_a_full_disk_stores_every_acknowledged_write() {
    for (fact, old) in DATASETS.iter().flat_map(|fact| [(fact, false), (fact, true)]) {
        let plan = Plan::new(LENGTH, 0, u32::MAX, Fault::Errno(libc::ENOSPC));
        plan.pause(true);
        let inner = empty();
        let file = Arc::new(FaultyFile::new(inner.clone(), plan.clone()));
        let c = NativeConnector::writable_over(file, Box::new(MemoryJournal::default()), PathBuf::from("/"), options()).unwrap();
        let id = dataset(&c, fact);
        if old {
            c.write(id, 0, &vec![1; PIECE * PIECES]).unwrap();
        }
        c.commit().unwrap();
        plan.pause(false);
        let mut expected = vec![u8::from(old); PIECE * PIECES];
        let mut failed = false;
        for (i, piece) in expected.chunks_mut(PIECE).enumerate() {
            // Bytes that no filter shortens.
            let new: Vec<u8> = (0..PIECE).map(|at| ((at * 31 + i) ^ (at >> 7)) as u8 | 2).collect();
            match c.write(id, (i * PIECE) as u64, &new) {
                Ok(()) => piece.copy_from_slice(&new),
                Err(e) => {
                    assert!(is_full(&e), "{e}");
                    failed = true;
                }
            }
        }
        // Stored chunks without filters are overwritten in place.
        assert!(failed || old, "{fact}: the disk is not full");
        assert!(bytes(&c, id) == expected, "{fact} {old}: the present state");
        c.commit().unwrap_or_else(|e| panic!("{fact} {old}: {e}"));
        let durable = open(&Arc::new(GrowingFile::new(inner.bytes())));
        let found = find(&durable, b"d");
        assert!(bytes(&durable, found) == expected, "{fact} {old}: the durable state");
    }
}

/// Storage for what is in memory was reserved for bytes that go to their place at once.
#[test]
fn bytes_that_are_overwritten_in_place_need_no_storage() {
    let file = empty();
    let c = open(&file);
    dataset(&c, r#"{"dtype": "u1", "shape": [4194304], "layout": "contiguous"}"#);
    c.write(find(&c, b"d"), 0, &vec![1; 4 << 20]).unwrap();
    c.close().unwrap();
    // A driver that knows where storage ends.
    let (before, plan) = (file.bytes().len(), Plan::new(0, 0, 0, Fault::Short));
    let sparse = Arc::new(FaultyFile::new(file.clone(), plan));
    let c = NativeConnector::writable_over(sparse, Box::new(MemoryJournal::default()), PathBuf::from("/"), options()).unwrap();
    let id = find(&c, b"d");
    (0..4).for_each(|n| c.write(id, n << 20, &vec![2; 1 << 20]).unwrap());
    c.commit().unwrap();
    let longer = file.bytes().len() - before;
    assert!(longer < 256 << 10, "{longer} bytes");
    assert!(bytes(&c, id).iter().all(|b| *b == 2));
}

/// Creates names until the disk is full, then removes all: a removal may itself make structures
/// longer, as the list of free space of a heap of names.
fn fill_and_empty(new: &NewFile, before: usize) {
    let dir = tempfile::tempdir().unwrap();
    create(&dir.path().join("f.h5"), new).unwrap();
    let inner = Arc::new(GrowingFile::new(std::fs::read(dir.path().join("f.h5")).unwrap()));
    let plan = Plan::new(LENGTH, 0, u32::MAX, Fault::Errno(libc::ENOSPC));
    plan.pause(true);
    let file = Arc::new(FaultyFile::new(inner.clone(), plan.clone()));
    let c = NativeConnector::writable_over(file, Box::new(MemoryJournal::default()), PathBuf::from("/"), options()).unwrap();
    let name = |n: usize| format!("{n}{}", "x".repeat(n * 37 % 60)).into_bytes();
    let make = |n: usize| -> Result<(), Error> {
        let id = c.create_file(c.root(), &name(n))?;
        c.write(id, 0, &vec![n as u8; n * 97 % 3000])?;
        c.set_attribute_bytes(id, b"note", &vec![b'x'; n * 13 % 200])
    };
    (0..before).for_each(|n| make(n).unwrap());
    if before % 2 == 1 {
        c.commit().unwrap();
    }
    plan.pause(false);
    let full = (before..).find_map(|n| make(n).err().map(|e| (n, e))).unwrap();
    assert!(is_full(&full.1), "{}", full.1);
    // What is smaller may still fit.
    for len in [1000, 300, 100, 30, 10] {
        (0..full.0).for_each(|n| drop(c.set_attribute_bytes(find(&c, &name(n)), format!("{len}").as_bytes(), &vec![1; len])));
    }
    for n in (0..=full.0).filter(|n| c.lookup(c.root(), &name(*n)).unwrap().is_some()) {
        if n % 2 == 0 && n < full.0 {
            c.remove_attribute(find(&c, &name(n)), b"note").unwrap();
        }
        c.unlink(c.root(), &name(n), false).unwrap_or_else(|e| panic!("{new:?}, {before} before: {n} of {}: {e}", full.0));
    }
    c.commit().unwrap();
    let again = make(full.0 / 2);
    assert!(again.is_ok() || full.0 < 8, "{new:?}, {before} before: {again:?} after the removals");
}

#[test]
fn what_is_removed_on_a_full_disk_needs_no_space() {
    let pages = NewFile { strategy: Strategy::Page, ..NewFile::default() };
    for new in [NewFile::default(), NewFile::of_version(true), pages] {
        (0..60).step_by(3).for_each(|before| fill_and_empty(&new, before));
    }
}

#[test]
fn a_killed_session_leaves_little_unused_space() {
    let mut file = empty().bytes();
    for round in 0..60 {
        let disk = Arc::new(GrowingFile::new(file));
        // A void journal is beside the file.
        let journal = Box::new(MemoryJournal::new(Some(Vec::new())));
        let c = NativeConnector::writable_over(disk.clone(), journal, PathBuf::from("/"), options()).unwrap();
        let id = if round == 0 { c.create_file(c.root(), b"d").unwrap() } else { find(&c, b"d") };
        c.write(id, 0, &[round; 2]).unwrap();
        c.commit().unwrap();
        file = disk.bytes();
    }
    let disk = Arc::new(GrowingFile::new(file));
    let journal = Box::new(MemoryJournal::new(Some(Vec::new())));
    let c = NativeConnector::writable_over(disk.clone(), journal, PathBuf::from("/"), options()).unwrap();
    c.write(find(&c, b"d"), 0, b"end").unwrap();
    c.close().unwrap();
    let len = disk.bytes().len();
    assert!(len < 256 << 10, "{len} bytes");
}
