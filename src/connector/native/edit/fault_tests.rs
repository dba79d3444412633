//! I/O errors at each step of an operation: elements acknowledged before it stay, and no part of
//! the failed operation becomes visible later.

use super::super::tests::options;
use super::super::{NativeConnector, create};
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, Form, ObjectId};
use crate::file::FileDriver;
use crate::file::fault::{Fault, FaultyFile, FaultyPlace, LENGTH, Plan, READ, UNSURE, WRITE};
use crate::file::memory::{GrowingFile, MemoryJournal};
use std::path::PathBuf;
use std::sync::Arc;

/// A new file whose I/O fails by `plan` unless the plan is paused.
pub fn writable(plan: &Arc<Plan>) -> Arc<NativeConnector> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    create(&path, &crate::connector::new_file::NewFile::default()).unwrap();
    plan.pause(true);
    let file = Arc::new(FaultyFile::new(Arc::new(GrowingFile::new(std::fs::read(path).unwrap())), plan.clone()));
    let place = Box::new(FaultyPlace::new(MemoryJournal::default(), plan.clone()));
    NativeConnector::writable_over(file, place, PathBuf::from("/"), options()).unwrap()
}

/// A dataset as `fact` describes it.
pub fn dataset(c: &NativeConnector, fact: &str) -> ObjectId {
    let id = c.create_file(c.root(), b"d").unwrap();
    editor(c).set_fact(id, "dataset", fact.as_bytes()).unwrap();
    id
}

pub fn bytes(c: &NativeConnector, id: ObjectId) -> Vec<u8> {
    let content = c.content(id, Form::Main).unwrap();
    let mut bytes = vec![0; content.size().unwrap() as usize];
    let n = content.read(0, &mut bytes).unwrap();
    assert_eq!(n, bytes.len());
    bytes
}

const DATASETS: [&str; 6] = [
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [null, 3], "chunks": [8, 2], "fillvalue": 1}"#,
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [null, 3], "chunks": [8, 2], "filters": ["deflate 1"]}"#,
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [128, 3], "chunks": [16, 3]}"#,
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [null, 3], "chunks": [8, 2], "layout": "sparse"}"#,
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [null, 3], "chunks": [8, 2], "layout": "sparse", "profile": "filter"}"#,
    r#"{"dtype": "<i4", "shape": [40, 3], "maxshape": [null, 3], "chunks": [8, 2], "layout": "sparse", "profile": "structured", "filters": ["deflate 1"]}"#,
];

/// Allocates all of the file, so that an operation that needs space must extend it.
pub fn use_reserved(c: &NativeConnector) {
    let store = c.file(0).unwrap().store.clone();
    let transaction = store.transaction().unwrap();
    let free = transaction.extent().unwrap().0 - transaction.end();
    transaction.append(free).unwrap();
}

/// Does `operation` with the n-th fault, for every n; `check` sees the dataset after each failure,
/// with what it held before.
fn each_fault(
    committed: bool,
    operation: &dyn Fn(&NativeConnector, ObjectId) -> crate::base::Result<()>,
    check: &dyn Fn(&NativeConnector, ObjectId, &[u8]),
) {
    let mut failed = 0;
    for fact in DATASETS {
        let kinds = [(READ, libc::EIO), (WRITE, libc::ENOSPC), (LENGTH, libc::ENOSPC)];
        let kinds = kinds.iter().flat_map(|&(k, e)| [(k, e, 1), (k | UNSURE, e, 1), (k, e, u32::MAX), (k | UNSURE, e, u32::MAX)]);
        for (kind, errno, times) in kinds {
            for n in 0..1000 {
                let plan = Plan::new(kind, n, times, Fault::Errno(errno));
                let c = writable(&plan);
                let id = dataset(&c, fact);
                c.write(id, 0, &(0..480).map(|i| (i % 251) as u8 + 1).collect::<Vec<_>>()).unwrap();
                if committed {
                    c.commit().unwrap();
                }
                // These wait in memory, those of the first chunks as well as of the last.
                for at in [5, 200, 270, 471] {
                    c.write(id, at, &[0xee; 9]).unwrap();
                }
                let before = bytes(&c, id);
                use_reserved(&c);
                c.forget_all();
                plan.pause(false);
                let done = operation(&c, id);
                plan.pause(true);
                match done {
                    Ok(()) if !plan.has_struck() => break,
                    // What reads ahead or remembers may fail without harm.
                    Ok(()) => {}
                    Err(_) => {
                        failed += 1;
                        check(&c, id, &before);
                    }
                }
            }
        }
    }
    assert!(failed > 2, "{failed} failures");
}

#[test]
fn a_failed_change_of_the_extent_loses_nothing() {
    for (committed, next) in [(false, [40, 2]), (true, [40, 2]), (true, [21, 1]), (false, [13, 3])] {
        each_fault(committed, &|c, id| c.set_extent(id, &next), &|c, id, before| {
            assert_eq!(bytes(c, id), before);
            // Chunks that were renumbered have their numbers again.
            c.write(id, 200, &[0xdd; 4]).unwrap();
            let after = [&before[..200], &[0xdd; 4], &before[204..]].concat();
            c.commit().unwrap();
            c.environment().forget(super::key(id));
            assert_eq!(bytes(c, id), after);
        });
    }
}

#[test]
fn a_failed_shrink_loses_nothing() {
    for committed in [false, true] {
        each_fault(committed, &|c, id| c.set_size(id, 20 * 12), &|c, id, before| {
            assert_eq!(bytes(c, id), before);
            c.commit().unwrap();
            c.environment().forget(super::key(id));
            assert_eq!(bytes(c, id), before);
            c.set_size(id, 20 * 12).unwrap();
            c.commit().unwrap();
            assert_eq!(bytes(c, id), before[..240]);
        });
    }
}

#[test]
fn a_failed_write_past_the_end_leaves_no_elements_past_the_extent() {
    for committed in [false, true] {
        for len in [7, 12, 400] {
            each_fault(committed, &|c, id| c.write(id, 43 * 12 + 3, &vec![0xab; len]), &|c, id, before| {
                assert_eq!(bytes(c, id), before);
                c.set_size(id, 60 * 12).unwrap();
                let after = bytes(c, id);
                assert_eq!(after[..480], *before);
                let fill = if after[480] == 1 { [1, 0, 0, 0] } else { [0; 4] };
                assert!(after[480..].chunks(4).all(|e| e == fill), "{:?}", &after[480..]);
            });
        }
    }
}

/// A failed write of several chunks had replaced elements of the first ones.
#[test]
fn a_failed_overwrite_replaces_nothing() {
    for committed in [false, true] {
        for (at, len) in [(1, 9), (190, 100), (4, 470)] {
            each_fault(committed, &|c, id| c.write(id, at, &vec![0xab; len]), &|c, id, before| {
                assert_eq!(bytes(c, id), before, "{len} bytes at {at}");
                c.commit().unwrap();
                c.environment().forget(super::key(id));
                assert_eq!(bytes(c, id), before, "{len} bytes at {at}, stored");
            });
        }
    }
}

#[test]
fn removing_a_dataset_with_dirty_chunks_needs_no_space() {
    for (fact, committed) in DATASETS.iter().flat_map(|fact| [(fact, false), (fact, true)]) {
        let plan = Plan::new(LENGTH, 0, u32::MAX, Fault::Errno(libc::ENOSPC));
        let c = writable(&plan);
        let id = dataset(&c, fact);
        c.write(id, 0, &[7; 480]).unwrap();
        if committed {
            c.commit().unwrap();
        }
        c.write(id, 200, &[0xee; 9]).unwrap();
        use_reserved(&c);
        plan.pause(false);
        c.unlink(c.root(), b"d", false).unwrap_or_else(|e| panic!("{fact}: {e}"));
        c.commit().unwrap_or_else(|e| panic!("{fact}: {e}"));
        assert!(c.lookup(c.root(), b"d").unwrap().is_none());
    }
}
