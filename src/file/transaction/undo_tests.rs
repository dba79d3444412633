//! An operation that wrote to the file itself is taken back.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::fault::{Fault, FaultyFile, Plan, UNSURE, WRITE};
use crate::file::memory::GrowingFile;

/// Also where the disk takes the one write that puts bytes back and not the other.
#[test]
fn what_is_put_back_is_not_hidden_by_what_could_not_be() {
    let len = 2 * KEPT_MAX;
    // Writes: the structure (0), twice anew (1, 2), its restoring: the newer (3), which fails, the older (4).
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

/// The same of two structures in one sector, on a file system that cannot take room: small ones are written at once. Where both
/// fail, what is known of the second must not be patched from what stands in for the first.
#[test]
fn neighbours_that_could_not_be_put_back_are_right() {
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

/// An operation keeps what it overwrites once.
#[test]
fn a_long_structure_written_again_and_again_is_kept_once() {
    let len = 2 * KEPT_MAX;
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

/// One is written to the file itself, of which a part waits in memory.
#[test]
fn a_long_structure_that_is_taken_back_leaves_what_waited_within_it() {
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    let t = begun_with(file.clone());
    let (at, _) = t.allocate(2 * KEPT_MAX as u64, 4096, Pool::Metadata).unwrap();
    t.write(at + 1000, &[3; 10]).unwrap();
    t.finish(true);
    let before = bytes(&t, at, 2 * KEPT_MAX);
    assert_eq!((before[999], before[1000]), (0, 3));
    t.begin();
    t.write(at + 2000, &[4; 10]).unwrap();
    t.write(at, &[5; 2 * KEPT_MAX]).unwrap();
    t.write(at + 3000, &[6; 10]).unwrap();
    assert_eq!(bytes(&t, at + 2999, 2), [5, 6]);
    t.finish(false);
    assert!(bytes(&t, at, 2 * KEPT_MAX) == before);
    commit(&t);
    assert!(bytes(&t, at, 2 * KEPT_MAX) == before);
    assert!(file.bytes()[at as usize..at as usize + 2 * KEPT_MAX] == before);
}

/// An operation that changes much keeps whole blocks to take them back.
#[test]
fn elements_stay_when_structures_beside_them_are_taken_back() {
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
