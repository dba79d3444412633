//! Damaged files with datasets whose storage begins past the end of the file. Once the file has
//! grown, that space belongs to other structures.

use super::super::NativeConnector;
use super::fault_tests::{bytes, dataset};
use super::write_errors_tests::{empty, find, open};
use crate::base::{Address, Error};
use crate::connector::Connector;
use crate::connector::ObjectId;
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::index::{ChunkRecord, write};
use crate::file::memory::GrowingFile;
use crate::format::chunk_record::{RecordShape, StoredForm};
use crate::format::message::data_layout::{DataLayout, Layout};
use std::sync::Arc;

/// Length of the storage past the end of the file, and its distance from the end, bytes.
const LEN: u64 = 4096;
const BEHIND: u64 = 64 << 10;

const KINDS: [&str; 6] = [
    r#"{"dtype": "u1", "shape": [40960], "layout": "contiguous"}"#,
    r#"{"dtype": "u1", "shape": [4096], "chunks": [4096]}"#,
    r#"{"dtype": "u1", "shape": [40960], "chunks": [4096]}"#,
    r#"{"dtype": "u1", "shape": [40960], "maxshape": [null], "chunks": [4096], "filters": ["deflate 1"]}"#,
    r#"{"dtype": "u1", "shape": [40960], "maxshape": [null], "chunks": [4096]}"#,
    r#"{"dtype": "u1", "shape": [640, 64], "maxshape": [null, null], "chunks": [64, 64]}"#,
];

/// Sets the dataset's storage address to one past the end of the file.
fn damage(c: &NativeConnector, id: ObjectId, end: u64) {
    let address = Address(end + BEHIND);
    c.operate(&[id], |change| {
        let d = change.dataset(id)?;
        let mut layout = d.message.clone();
        let changed = match &mut layout.class {
            Layout::Contiguous { address: at, .. } => {
                *at = address;
                true
            }
            _ => {
                let (shape, max_shape, chunk_dims) = (d.space.dims.clone(), d.space.max(), d.chunk_dims().unwrap());
                let grid = ChunkGrid { shape, max_shape, chunk_dims, element_size: d.element_size };
                let (store, shape) = (change.store()?, RecordShape::of_pipeline(!d.pipeline.filters.is_empty()));
                let last = grid.total().unwrap() - 1;
                let scaled = ByteGrid::new(&grid.shape, &grid.chunk_dims, grid.element_size).unwrap().scaled(last);
                let record = ChunkRecord { address, size: LEN, form: StoredForm::WHOLE };
                write::insert(&store, &mut layout, &grid, shape, change.editing.btree_k, &scaled, record)?.layout
            }
        };
        if changed { change.data().set_layout(&d, &DataLayout { ..layout }) } else { Ok(()) }
    })
    .unwrap();
}

/// A file with a dataset that `fact` describes, opened again.
fn file_with(fact: &str) -> (Arc<GrowingFile>, Arc<NativeConnector>, ObjectId) {
    let file = empty();
    let c = open(&file);
    let id = dataset(&c, fact);
    c.close().unwrap();
    drop(c);
    let c = open(&file);
    (file, c, id)
}

#[test]
fn storage_claimed_past_eof_is_neither_written_nor_freed() {
    for fact in KINDS {
        let (file, c, id) = file_with(fact);
        damage(&c, id, file.bytes().len() as u64);
        c.close().unwrap();
        drop(c);
        let size = file.bytes().len() as u64;
        let c = open(&file);
        let other = editor(&c).create_dataset(c.root(), b"other", br#"{"dtype": "u1", "shape": [1048576], "chunks": [4096]}"#).unwrap();
        c.write(other, 0, &vec![5; 1 << 20]).unwrap();
        c.commit().unwrap();
        assert!(file.bytes().len() as u64 > size + BEHIND + LEN);
        let refused =
            |done: crate::base::Result<()>| assert!(matches!(done, Err(Error::Corrupt { structure: "raw data", .. })), "{fact}: {done:?}");
        let len = c.content(id, crate::connector::Form::Main).unwrap().size().unwrap();
        refused(c.write(id, len - 9, &[9; 9]));
        refused(c.write(id, 0, &[9; 9]));
        refused(c.zero(id, len - 4096, 4096));
        refused(editor(&c).set_fact(id, "dtype", b"\"<i1\""));
        if fact.contains("null") {
            refused(c.set_size(id, 64));
        }
        c.unlink(c.root(), b"d", false).unwrap();
        c.commit().unwrap();
        let more = editor(&c).create_dataset(c.root(), b"more", br#"{"dtype": "u1", "shape": [1048576], "chunks": [4096]}"#).unwrap();
        c.write(more, 0, &vec![6; 1 << 20]).unwrap();
        c.close().unwrap();
        let after = open(&file);
        for (name, byte) in [(b"other".as_slice(), 5), (b"more", 6)] {
            assert!(bytes(&after, find(&after, name)).iter().all(|b| *b == byte), "{fact}");
        }
    }
}

#[test]
fn what_came_since_the_file_was_opened_is_written_again_and_again() {
    for fact in KINDS {
        let (_file, c, id) = file_with(fact);
        for round in 0..3 {
            let size = bytes(&c, id).len();
            c.write(id, 0, &vec![round; size]).unwrap();
            c.commit().unwrap();
            c.forget_all();
            c.write(id, 5, &[round + 9; 7]).unwrap();
            assert_eq!(bytes(&c, id)[4..13], [[round].as_slice(), &[round + 9; 7], &[round]].concat());
        }
        // Another one takes its place.
        c.unlink(c.root(), b"d", false).unwrap();
        c.commit().unwrap();
        let next = dataset(&c, fact);
        let size = bytes(&c, next).len();
        c.write(next, 0, &vec![8; size]).unwrap();
        c.commit().unwrap();
        c.forget_all();
        c.write(next, 5, &[9; 7]).unwrap();
        c.close().unwrap();
    }
}

#[test]
fn a_dataset_whose_index_is_damaged_is_not_written() {
    let file = empty();
    let c = open(&file);
    let id = dataset(&c, KINDS[3]);
    c.write(id, 0, &[1; 40960]).unwrap();
    c.commit().unwrap();
    let Layout::Chunked(layout) = c.access().dataset(id).unwrap().dataset.message.class.clone() else { panic!("no chunks") };
    c.operate(&[id], |change| change.store()?.write(layout.index.address(), &[0; 8])).unwrap();
    c.close().unwrap();
    drop(c);
    let c = open(&file);
    for _ in 0..2 {
        assert!(matches!(c.write(id, 0, &[2; 9]), Err(Error::Corrupt { structure: "extensible array header", .. })));
    }
    c.unlink(c.root(), b"d", false).unwrap();
    c.close().unwrap();
}
