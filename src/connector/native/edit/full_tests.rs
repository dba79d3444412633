//! Writes on a full disk, and space that killed sessions leave.

use super::super::NativeConnector;
use super::super::tests::options;
use super::fault_tests::{bytes, dataset};
use super::is_full;
use super::write_errors_tests::{empty, find, open};
use crate::connector::Connector;
use crate::connector::edit::Edit;
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
