//! Rollback of operations that wrote to the file directly.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::fault::{Fault, FaultyFile, Plan, UNSURE, WRITE};
use crate::file::memory::GrowingFile;

/// Also if one of the two restoring writes fails.
#[test]
fn restored_bytes_are_not_hidden_by_failed_restores() {
    let len = 2 * KEPT_BYTES_MAX;
    // Writes: the structure (0), two changes (1, 2), restores: the newer (3), which fails, the
    // older (4).
    let plan = Plan::new(WRITE, 3, 1, Fault::Errno(libc::ENOSPC));
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    let t = begun_with(Arc::new(FaultyFile::new(file.clone(), plan.clone())));
    let (at, _) = t.allocate(len as u64, 4096, Pool::Metadata).unwrap();
    t.write(at, &vec![3; len]).unwrap();
    t.finish(true);
    t.begin();
    t.write(at, &vec![4; len]).unwrap();
    t.write(at, &vec![5; len]).unwrap();
    t.finish(false);
    assert!(plan.has_struck() && !t.has_failed());
    let seen = bytes(&t, at, 10);
    commit(&t);
    assert_eq!((seen, file.bytes()[at as usize..at as usize + 10].to_vec()), (vec![3; 10], vec![3; 10]));
}

/// Two structures in one sector, on a file system that cannot allocate storage, so that small ones
/// are written at once. If both restores fail, the dirty bytes of the first must not enter the
/// second.
#[test]
fn failed_restores_of_adjacent_structures_keep_the_bytes() {
    for failing in [1, 2] {
        let plan = Plan::new(WRITE | UNSURE, 3, failing, Fault::Errno(libc::ENOSPC));
        let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
        let t = begun_with(Arc::new(FaultyFile::new(file.clone(), plan.clone())));
        let (at, _) = t.allocate(400, 512, Pool::Metadata).unwrap();
        t.write(at, &[3; 400]).unwrap();
        t.finish(true);
        t.begin();
        t.write(at, &[4; 200]).unwrap();
        t.write(at + 200, &[5; 200]).unwrap();
        t.finish(false);
        assert!(plan.has_struck() && !t.has_failed());
        let seen = bytes(&t, at, 400);
        commit(&t);
        assert_eq!(seen, [3; 400], "{failing} fail");
        assert_eq!(file.bytes()[at as usize..at as usize + 400], [3; 400], "{failing} fail");
    }
}

/// An operation saves each overwritten byte once.
#[test]
fn a_long_structure_overwritten_often_is_saved_once() {
    let len = 2 * KEPT_BYTES_MAX;
    let t = begun_with(Arc::new(GrowingFile::new(vec![0x11; 4096])));
    let (at, _) = t.allocate(len as u64, 4096, Pool::Metadata).unwrap();
    t.write(at, &vec![3; len]).unwrap();
    t.finish(true);
    t.begin();
    for i in 0..100 {
        t.write(at, &vec![i; len]).unwrap();
    }
    let kept: usize = t.state.read().operation.as_ref().unwrap().overwritten.iter().map(|(_, b)| b.len()).sum();
    t.finish(true);
    assert!(kept <= len, "{kept} bytes are kept of {len}");
}

/// A direct write over bytes that are partly dirty in memory.
#[test]
fn a_rolled_back_long_structure_keeps_older_dirty_bytes() {
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    let t = begun_with(file.clone());
    let (at, _) = t.allocate(2 * KEPT_BYTES_MAX as u64, 4096, Pool::Metadata).unwrap();
    t.write(at + 1000, &[3; 10]).unwrap();
    t.finish(true);
    let before = bytes(&t, at, 2 * KEPT_BYTES_MAX);
    assert_eq!((before[999], before[1000]), (0, 3));
    t.begin();
    t.write(at + 2000, &[4; 10]).unwrap();
    t.write(at, &[5; 2 * KEPT_BYTES_MAX]).unwrap();
    t.write(at + 3000, &[6; 10]).unwrap();
    assert_eq!(bytes(&t, at + 2999, 2), [5, 6]);
    t.finish(false);
    assert!(bytes(&t, at, 2 * KEPT_BYTES_MAX) == before);
    commit(&t);
    assert!(bytes(&t, at, 2 * KEPT_BYTES_MAX) == before);
    assert!(file.bytes()[at as usize..at as usize + 2 * KEPT_BYTES_MAX] == before);
}

/// The undo log of a large operation keeps whole blocks.
#[test]
fn elements_survive_a_rollback_of_adjacent_structures() {
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    let t = begun_with(file.clone());
    let (at, _) = t.allocate(4096, 4096, Pool::Metadata).unwrap();
    t.write(at, &[3; 100]).unwrap();
    let (much, _) = t.allocate(4096, 4096, Pool::Metadata).unwrap();
    t.write(much, &[1; 4096]).unwrap();
    t.finish(true);
    t.begin();
    for _ in 0..100 {
        t.write(much, &[2; 4000]).unwrap();
    }
    t.write(at, &[4; 10]).unwrap();
    t.write_data(at + 200, &[9; 50]).unwrap();
    t.finish(false);
    let wanted = [vec![3; 100], vec![0; 100], vec![9; 50]].concat();
    assert_eq!(bytes(&t, at, 250), wanted);
    commit(&t);
    assert_eq!(file.bytes()[at as usize..at as usize + 250], wanted);
}
