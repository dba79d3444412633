//! Write errors of a damaged dataset: its callers get EIO, and the other datasets are still stored.

use super::super::tests::options;
use super::super::{NativeConnector, create};
use super::fault_tests::{bytes, dataset};
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, LinkTarget, ObjectId};
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::format::message::data_layout::Layout;
use std::path::PathBuf;
use std::sync::Arc;

const CHUNKED: &str = r#"{"dtype": "u1", "shape": [40960], "maxshape": [null], "chunks": [4096], "filters": ["deflate 1"]}"#;

pub fn open(file: &Arc<GrowingFile>) -> Arc<NativeConnector> {
    NativeConnector::writable_over(file.clone(), Box::new(MemoryJournal::default()), PathBuf::from("/"), options()).unwrap()
}

/// A new file.
pub fn empty() -> Arc<GrowingFile> {
    let dir = tempfile::tempdir().unwrap();
    create(&dir.path().join("f.h5"), &crate::connector::new_file::NewFile::default()).unwrap();
    Arc::new(GrowingFile::new(std::fs::read(dir.path().join("f.h5")).unwrap()))
}

/// The object that a name of the root leads to.
pub fn find(c: &NativeConnector, name: &[u8]) -> ObjectId {
    match c.lookup(c.root(), name).unwrap().unwrap().target {
        LinkTarget::Hard(id) => id,
        other => panic!("{other:?}"),
    }
}

/// A container with a damaged dataset `d` that has chunks waiting and a sound one with as many.
fn container() -> (Arc<GrowingFile>, Arc<NativeConnector>, ObjectId, ObjectId) {
    let file = empty();
    let c = open(&file);
    let damaged = dataset(&c, CHUNKED);
    let sound = editor(&c).create_dataset(c.root(), b"sound", CHUNKED.as_bytes()).unwrap();
    c.write(damaged, 0, &[1; 4096]).unwrap();
    c.commit().unwrap();
    [damaged, sound].iter().for_each(|id| c.write(*id, 4096, &[2; 8192]).unwrap());
    let Layout::Chunked(layout) = c.access().dataset(damaged).unwrap().dataset.message.class.clone() else { panic!("no chunks") };
    c.operate(&[damaged], |change| change.store()?.write(layout.index.address(), &[0; 8])).unwrap();
    (file, c, damaged, sound)
}

fn is_eio(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Refused { errno: libc::EIO, .. }))
}

#[test]
fn what_a_damaged_dataset_does_not_take_keeps_nothing_from_the_disk() {
    let (file, c, damaged, sound) = container();
    c.hold(damaged);
    assert_eq!(c.write_error(damaged), Ok(()));
    c.commit().unwrap();
    assert!(c.environment().dirty.is_empty(), "nothing stays dirty");
    assert_eq!(c.write_error(sound), Ok(()));
    // While it is open, each query returns the error and further writes fail.
    for _ in 0..2 {
        assert!(is_eio(&c.write_error(damaged)) && is_eio(&c.write(damaged, 0, &[3; 9])));
    }
    c.write(sound, 0, &[4; 4096]).unwrap();
    c.commit().unwrap();
    c.release(damaged);
    assert_eq!(c.write_error(damaged), Ok(()), "the next opening starts without an error");
    // As after a kill.
    let durable = open(&Arc::new(GrowingFile::new(file.bytes())));
    let found = find(&durable, b"sound");
    assert_eq!(bytes(&durable, found)[..12288], [[4; 4096].as_slice(), &[2; 8192]].concat());
}

#[test]
fn a_write_error_that_no_call_returned_is_returned_by_close() {
    for returned in [false, true] {
        let (file, c, damaged, _) = container();
        c.hold(damaged);
        c.commit().unwrap();
        if returned {
            assert!(is_eio(&c.write_error(damaged)));
        }
        c.release(damaged);
        assert_eq!(c.close().is_err(), !returned);
        let after = open(&file);
        assert_eq!(bytes(&after, find(&after, b"sound"))[4096..12288], [2; 8192]);
    }
    // The last commit loses something itself.
    let (file, c, ..) = container();
    assert!(is_eio(&c.close()));
    let after = open(&file);
    assert_eq!(bytes(&after, find(&after, b"sound"))[4096..12288], [2; 8192]);
}

#[test]
fn a_removed_dataset_takes_its_loss_along() {
    for held in [false, true] {
        let (_, c, damaged, _) = container();
        c.commit().unwrap();
        if held {
            c.hold(damaged);
        }
        c.unlink(c.root(), b"d", false).unwrap();
        if held {
            assert!(is_eio(&c.write_error(damaged)), "it is open and can be read");
            c.release(damaged);
        }
        c.close().unwrap();
    }
}

#[test]
fn a_damaged_dataset_does_not_stop_writes_that_fill_the_memory() {
    let (_, c, damaged, sound) = container();
    // More chunks than the cache holds: those of other datasets are written, those of the
    // damaged one are dropped.
    c.write(sound, 0, &vec![5; 1 << 20]).unwrap();
    c.write(sound, 1 << 20, &vec![6; 1 << 20]).unwrap();
    c.commit().unwrap();
    assert!(is_eio(&c.write_error(damaged)));
    assert!(c.environment().dirty.is_empty());
    assert_eq!(bytes(&c, sound), [vec![5; 1 << 20], vec![6; 1 << 20]].concat());
}
