//! Order of a commit's writes for readers without locks.

use super::tests::{bytes, commit};
use super::*;
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::file::overlay::SECTOR;
use crate::file::recorder::{Log, Recorder, Step, Target};

/// A transaction with ordered commits over a file of 4,096 bytes, all in use, and its writes.
fn ordered() -> (Transaction, Log) {
    let log = Log::default();
    let file = Recorder::new(Arc::new(GrowingFile::new(vec![0x11; 4096])), log.clone());
    let t = Transaction::new(Arc::new(file), Box::new(MemoryJournal::default()), 4096).unwrap();
    t.begin_order();
    (t, log)
}

/// Writes to the file: offset and number of bytes.
fn writes(log: &Log) -> Vec<(u64, usize)> {
    let of_file = |step: &Step| if let Step::Write(Target::File, at, bytes) = step { Some((*at, bytes.len())) } else { None };
    log.lock().iter().filter_map(of_file).collect()
}

fn operation(t: &Transaction, f: impl FnOnce()) {
    t.begin();
    f();
    t.finish(true);
}

#[test]
fn children_are_written_before_parents_also_within_a_sector() {
    let (t, log) = ordered();
    let (mut parent, mut child) = (0, 0);
    operation(&t, || {
        parent = t.allocate(64, 8, Pool::Metadata).unwrap().0;
        t.write(parent, &[1; 64]).unwrap();
    });
    commit(&t);
    operation(&t, || {
        child = t.allocate(64, 8, Pool::Metadata).unwrap().0;
        t.write(child, &[2; 64]).unwrap();
        t.write_at_level(parent, &[3; 64], Some(4)).unwrap();
        t.write_at_level(600, &[4; 100], Some(6)).unwrap();
        t.write_at_level(1500, &[5; 700], Some(1)).unwrap();
        t.write_data(3000, &[6; 10]).unwrap();
    });
    assert_eq!(parent / SECTOR, child / SECTOR);
    log.lock().clear();
    commit(&t);
    let all = writes(&log);
    let place = |at: u64| all.iter().position(|(start, len)| *start <= at && at < start + *len as u64).unwrap();
    let order = [place(3000), place(1500), place(parent), place(600)];
    assert!(order.is_sorted() && place(child) < place(parent), "{all:?}");
    // Each structure by one write of its own.
    assert!([(3000, 10), (1500, 700), (parent, 64), (600, 100)].iter().all(|w| all.contains(w)), "{all:?}");
    assert_eq!((bytes(&t, child, 64), bytes(&t, parent, 64)), (vec![2; 64], vec![3; 64]));
}

#[test]
fn live_bytes_without_a_level_are_refused() {
    let (t, _) = ordered();
    t.begin();
    assert_eq!(t.write(600, &[1; 10]).err().and_then(|e| e.raw_os_error()), Some(libc::EPERM));
    assert_eq!(t.write(600, &vec![1; 1 << 17]).err().and_then(|e| e.raw_os_error()), Some(libc::EPERM));
    t.finish(false);
    assert_eq!(bytes(&t, 600, 10), [0x11; 10]);
    assert!(t.end_order() && !t.end_order());
    operation(&t, || t.write(600, &[1; 10]).unwrap());
}

#[test]
fn freed_space_is_left_to_the_next_session() {
    let (t, _) = ordered();
    let mut at = 0;
    operation(&t, || {
        at = t.allocate(4096, 8, Pool::Raw).unwrap().0;
        t.write_data(at, &[1; 4096]).unwrap();
    });
    commit(&t);
    assert!(t.is_published(at..at + 10));
    operation(&t, || t.free(at..at + 4096, Pool::Raw));
    for _ in 0..3 {
        commit(&t);
        let (other, _) = t.allocate(4096, 8, Pool::Raw).unwrap();
        assert!(other >= at + 4096 && !t.is_published(other..other + 4096), "{other}");
    }
    assert!(t.trim() > at + 4096);
    assert!(t.free_space().whole.contains(&(at..at + 4096)));
}
