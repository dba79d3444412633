//! Logs after crashes, failed operations and full disks.

use super::super::tests::{editor, options};
use super::super::{NativeConnector, create};
use super::fault_tests::bytes;
use super::flush::LogFlush;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::connector::edit::{Edit, Erase};
use crate::connector::{Connector, Form, LinkTarget, ObjectId};
use crate::file::fault::{Fault, FaultyFile, FaultyPlace, LENGTH, Plan, WRITE};
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::filter::{Params, deflate};
use crate::format::Writer;
use crate::format::log::record::{Head, Selection};
use crate::format::log::run::{RUN_PROBE_BYTES, RunDataset, RunHead, probe};
use std::path::PathBuf;
use std::sync::Arc;

/// A container in memory, and its file.
pub(super) struct Opened {
    pub(super) file: Arc<GrowingFile>,
    pub(super) c: Arc<NativeConnector>,
}

pub(super) fn open_with(bytes: Vec<u8>, plan: &Arc<Plan>) -> Result<Opened> {
    let file = Arc::new(GrowingFile::new(bytes));
    let driver = Arc::new(FaultyFile::new(file.clone(), plan.clone()));
    let place = Box::new(FaultyPlace::new(MemoryJournal::default(), plan.clone()));
    let c = NativeConnector::writable_over(driver, place, PathBuf::from("/"), options())?;
    Ok(Opened { file, c })
}

pub(super) fn open(bytes: Vec<u8>) -> Opened {
    open_with(bytes, &Plan::new(0, 0, 0, Fault::Short)).unwrap()
}

/// What a crash now leaves, opened.
pub(super) fn crashed(opened: &Opened) -> Opened {
    open(opened.file.bytes())
}

pub(super) fn empty(released: bool, plan: &Arc<Plan>) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    create(&path, &crate::connector::new_file::NewFile::of_version(true)).unwrap();
    let opened = open_with(std::fs::read(path).unwrap(), plan).unwrap();
    if released {
        opened.c.log_by_default(true).unwrap();
    }
    opened
}

/// An empty dataset of bytes in the log.
fn dataset(c: &NativeConnector, name: &str) -> ObjectId {
    let id = c.create_file(c.root(), name.as_bytes()).unwrap();
    let fact = br#"{"dtype": "|u1", "shape": [0], "maxshape": [null], "layout": "log"}"#;
    editor(c).set_fact(id, "dataset", fact).unwrap();
    id
}

pub(super) fn found(c: &NativeConnector, name: &str) -> ObjectId {
    match c.lookup(c.root(), name.as_bytes()).unwrap().map(|link| link.target) {
        Some(LinkTarget::Hard(id)) => id,
        other => panic!("{name}: {other:?}"),
    }
}

fn content(c: &NativeConnector, name: &str) -> Vec<u8> {
    bytes(c, found(c, name))
}

/// Appends what is staged, without a commit.
pub(super) fn flush(c: &NativeConnector) {
    c.change(&[]).unwrap().log().flush_log(LogFlush::Early).unwrap();
}

/// A run of a session that was killed stayed in a log dataset; the next session had no room there
/// and began another one. Recovery read the old run, and lost all that was committed after it.
#[test]
fn a_stale_run_before_a_new_log_dataset_does_not_count() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let d = dataset(&first.c, "d");
    first.c.write(d, 0, &[1; 100]).unwrap();
    first.c.commit().unwrap();
    first.c.write(d, 0, &[2; 5000]).unwrap();
    flush(&first.c);
    let second = crashed(&first);
    assert_eq!(content(&second.c, "d"), [1; 100]);
    let d = found(&second.c, "d");
    second.c.write(d, 0, &[3; 100_000]).unwrap();
    second.c.commit().unwrap();
    let third = crashed(&second);
    assert_eq!(content(&third.c, "d"), [3; 100_000]);
}

/// A run of a commit that a crash ended before its structures were durable counted once another
/// commit had reached that state.
#[test]
fn a_run_of_a_torn_commit_does_not_count_later() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let d = dataset(&first.c, "d");
    first.c.write(d, 0, &[1; 100]).unwrap();
    first.c.commit().unwrap();
    first.c.write(d, 0, &[2; 5000]).unwrap();
    first.c.create_group(first.c.root(), b"g").unwrap();
    first.c.change(&[]).unwrap().log().flush_log(LogFlush::Commit).unwrap();
    let second = crashed(&first);
    assert_eq!(content(&second.c, "d"), [1; 100]);
    let d = found(&second.c, "d");
    second.c.write(d, 0, &[3; 100_000]).unwrap();
    second.c.commit().unwrap();
    let third = crashed(&second);
    assert_eq!(content(&third.c, "d"), [3; 100_000]);
}

/// The same bytes as those of an earlier run that was never committed are followed by the rest of
/// that commit: it counted.
#[test]
fn stale_runs_after_the_last_one_do_not_count() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let d = dataset(&first.c, "d");
    first.c.write(d, 0, &[1; 100]).unwrap();
    first.c.commit().unwrap();
    first.c.write(d, 0, &[2; 100]).unwrap();
    flush(&first.c);
    first.c.write(d, 0, &[2; 100]).unwrap();
    first.c.create_group(first.c.root(), b"g").unwrap();
    first.c.change(&[]).unwrap().log().flush_log(LogFlush::Commit).unwrap();
    let second = crashed(&first);
    let d = found(&second.c, "d");
    second.c.write(d, 0, &[3; 100]).unwrap();
    second.c.create_group(second.c.root(), b"h").unwrap();
    second.c.commit().unwrap();
    let third = crashed(&second);
    assert_eq!(content(&third.c, "d"), [3; 100]);
}

/// A commit on a full disk freed removed space first, then left out the log and succeeded.
#[test]
fn a_commit_on_a_full_disk_appends_the_log() {
    let mut relieved = 0;
    for released in [false, true] {
        for n in 0..200 {
            let plan = Plan::new(WRITE | LENGTH, n, 1, Fault::Errno(libc::ENOSPC));
            plan.pause(true);
            let opened = empty(released, &plan);
            let c = &opened.c;
            let d = dataset(c, "d");
            let gone = dataset(c, "gone");
            c.write(gone, 0, &[1; 100_000]).unwrap();
            c.commit().unwrap();
            let written: Vec<u8> = (0..90_000u32).map(|i| (i % 251) as u8).collect();
            c.write(d, 0, &written).unwrap();
            c.unlink(c.root(), b"gone", false).unwrap();
            let file = c.file(0).unwrap();
            file.store.transaction().unwrap().note_starved();
            relieved += usize::from(file.store.transaction().unwrap().is_relieved());
            plan.pause(false);
            let done = c.commit();
            plan.pause(true);
            if done.is_ok() {
                assert_eq!(content(&crashed(&opened).c, "d"), bytes(c, d), "released: {released}, fault {n}");
                assert_eq!(bytes(c, d), written);
            }
            if !plan.has_struck() {
                break;
            }
        }
    }
    assert!(relieved > 0);
}

/// What was staged before an operation that appended to the log and failed was lost: its place in
/// the log was given to the next run.
#[test]
fn a_flush_within_a_failed_operation_keeps_earlier_writes() {
    for (released, staged) in [(false, true), (false, false), (true, true), (true, false)] {
        let opened = empty(released, &Plan::new(0, 0, 0, Fault::Short));
        let c = &opened.c;
        let (d, other) = (dataset(c, "d"), dataset(c, "other"));
        c.write(d, 0, &[7; 3000]).unwrap();
        c.commit().unwrap();
        c.write(d, 1000, &[8; 1000]).unwrap();
        if !staged {
            c.commit().unwrap();
        }
        let failed = c.operate(&[other], |change| -> Result<()> {
            change.data().write(other, Form::Main, 0, &[5; 4000])?;
            change.data().write(d, Form::Main, 500, &[5; 1000])?;
            change.log().flush_log(LogFlush::Within)?;
            change.data().write(d, Form::Main, 1400, &[6; 1000])?;
            change.log().flush_log(LogFlush::Within)?;
            Err(Error::refused(libc::EIO, "a test"))
        });
        assert!(failed.is_err());
        let want = [vec![7; 1000], vec![8; 1000], vec![7; 1000]].concat();
        assert_eq!(bytes(c, d), want, "released: {released}, staged: {staged}");
        c.write(other, 0, &[9; 4000]).unwrap();
        c.commit().unwrap();
        assert_eq!(bytes(c, d), want, "released: {released}, staged: {staged}");
        assert_eq!(content(&crashed(&opened).c, "d"), want, "released: {released}, staged: {staged}");
        assert_eq!(content(&crashed(&opened).c, "other"), [9; 4000]);
    }
}

/// The end of a compaction that failed after the index left its state: elements that the index in
/// the file lacked were not looked for.
#[test]
fn an_index_that_is_rolled_back_has_no_state() {
    let opened = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let c = &opened.c;
    let d = dataset(c, "d");
    c.write(d, 0, &[1; 3000]).unwrap();
    c.commit().unwrap();
    let log = c.access().record_log().unwrap();
    let change = c.change(&[]).unwrap();
    let failed = change.atomically(|| -> Result<()> {
        change.log().write_index(&log, true, None)?;
        Err(Error::refused(libc::EIO, "a test"))
    });
    assert!(failed.is_err());
    drop(change);
    c.write(d, 0, &[2; 100]).unwrap();
    c.create_group(c.root(), b"g").unwrap();
    c.commit().unwrap();
    let want = [vec![2; 100], vec![1; 2900]].concat();
    assert_eq!(bytes(c, d), want);
    assert_eq!(content(&crashed(&opened).c, "d"), want);
}

/// `file` with a run of this record after the last one.
fn with_run(opened: &Opened, dataset: RunDataset, head: &Head, data: &[u8]) -> Vec<u8> {
    let (_, log, used) = opened.c.access().record_log().unwrap().last_log().unwrap();
    let (mut at, end) = (log.address.0 as usize, (log.address.0 + used) as usize);
    let mut file = opened.file.bytes();
    let mut sequence = 0;
    while at < end {
        let (number, len) = probe(&file[at..at + RUN_PROBE_BYTES]).unwrap();
        (sequence, at) = (number + 1, at + len as usize);
    }
    let mut records = Writer::new();
    head.write(dataset.dims.len(), &mut records);
    records.bytes(data);
    let head = RunHead { sequence, serial: 0, bytes: 0, records: 1, continued: false, datasets: vec![dataset] };
    let run = head.encode(&records.into_bytes());
    file[at..at + run.len()].copy_from_slice(&run);
    file
}

/// A run with a dataset ID of 2^60 took a skip list of 2^64 bytes when the file was closed.
#[test]
fn dataset_ids_are_bounded() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let d = dataset(&first.c, "d");
    first.c.write(d, 0, &[1; 100]).unwrap();
    first.c.commit().unwrap();
    let selection = Selection::Subarray { start: vec![0], count: vec![4] };
    let head = Head { dataset: 1 << 60, selection, deflated: false };
    let file = with_run(&first, RunDataset { id: 1 << 60, element_size: 1, dims: vec![4] }, &head, &[1; 4]);
    let opened = open(file);
    let d = found(&opened.c, "d");
    let done = opened.c.write(d, 0, &[2; 10]).and_then(|()| opened.c.close());
    let Err(Error::Corrupt { address, .. }) = done else { panic!("{done:?}") };
    assert_eq!(address, Address::UNDEF);
}

/// Elements of a long deflated record that another program wrote were there again when the dataset
/// was made longer after it was opened again: the index has such records as a whole.
#[test]
fn erased_elements_of_long_records_stay_erased() {
    for columns in [300, 150] {
        let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
        let id = first.c.create_file(first.c.root(), b"d").unwrap();
        let fact = br#"{"dtype": "|u1", "shape": [2000, 300], "maxshape": [null, 300], "layout": "log"}"#;
        editor(&first.c).set_fact(id, "dataset", fact).unwrap();
        first.c.write(id, 0, &[1]).unwrap();
        first.c.commit().unwrap();
        let selection = Selection::Subarray { start: vec![0, 0], count: vec![2000, columns] };
        let head = Head { dataset: 1, selection, deflated: true };
        let params = Params { cd_values: &[6], expected: 0, limit: usize::MAX };
        let data = deflate::encode(&vec![5; 2000 * columns as usize], &params).unwrap().unwrap();
        let file = with_run(&first, RunDataset { id: 1, element_size: 1, dims: vec![2000, 300] }, &head, &data);
        let second = open(file);
        let d = found(&second.c, "d");
        let row = [vec![5; columns as usize], vec![0; 300 - columns as usize]].concat();
        assert!(bytes(&second.c, d) == row.repeat(2000), "{columns} columns");
        second.c.set_size(d, 1000 * 300).unwrap();
        second.c.close().unwrap();
        let third = crashed(&second);
        third.c.set_size(found(&third.c, "d"), 2000 * 300).unwrap();
        let want = [row.repeat(1000), vec![0; 1000 * 300]].concat();
        assert!(content(&third.c, "d") == want, "{columns} columns");
    }
}

/// Makes the link message of `name` in a version 2 object header one of an unknown version.
fn damage_link(file: &mut [u8], name: &[u8]) {
    let find = |what: &[u8], end: usize| (0..end).rev().find(|at| file[*at..].starts_with(what)).unwrap();
    let end = (0..file.len()).filter(|at| file[*at..].starts_with(name)).find(|at| file[..*at].ends_with(&[name.len() as u8])).unwrap();
    let length = |flags: u8| 3 + 8 * usize::from(flags >> 2 & 1) + usize::from(flags >> 3 & 1) + usize::from(flags >> 4 & 1);
    let message = (3..14).map(|n| end - n).find(|at| file[*at] == 1 && end - at == length(file[at + 1])).unwrap();
    let header = find(b"OHDR", end);
    let flags = file[header + 5];
    let size_at = header + 6 + 16 * usize::from(flags >> 5 & 1) + 4 * usize::from(flags >> 4 & 1);
    let width = 1 << (flags & 3);
    let size = file[size_at..size_at + width].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    let sum_at = size_at + width + size;
    file[message] = 9;
    let sum = lookup3(&file[header..sum_at], 0);
    file[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Its dataset counted as deleted, and unmounting freed its elements.
#[test]
fn compaction_frees_nothing_while_a_link_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    create(&path, &crate::connector::new_file::NewFile::default()).unwrap();
    let opened = open(std::fs::read(path).unwrap());
    for (name, byte) in [("precious", 1), ("other", 2)] {
        let id = dataset(&opened.c, name);
        opened.c.write(id, 0, &[byte; 50_000]).unwrap();
    }
    opened.c.close().unwrap();
    let healthy = opened.file.bytes();
    let mut damaged = healthy.clone();
    damage_link(&mut damaged, b"precious");
    let changed: Vec<usize> = (0..healthy.len()).filter(|at| healthy[*at] != damaged[*at]).collect();
    let opened = open(damaged);
    assert!(opened.c.lookup(opened.c.root(), b"precious").is_ok_and(|link| link.is_none()));
    let Some(LinkTarget::Hard(other)) = opened.c.lookup(opened.c.root(), b"other").unwrap().map(|link| link.target) else { panic!() };
    for byte in 3..9 {
        opened.c.write(other, 0, &[byte; 50_000]).unwrap();
        opened.c.commit().unwrap();
    }
    let error = Edit::log(&*opened.c).unwrap().compact(None, &mut |_, _| std::ops::ControlFlow::Continue(()));
    assert!(error.is_err());
    opened.c.close().unwrap();
    // The damage is mended.
    let mut file = opened.file.bytes();
    for at in changed {
        file[at] = healthy[at];
    }
    let opened = open(file);
    let Some(LinkTarget::Hard(id)) = opened.c.lookup(opened.c.root(), b"precious").unwrap().map(|link| link.target) else { panic!() };
    assert_eq!(bytes(&opened.c, id), [1; 50_000]);
}

/// All live elements were moved to free a log dataset without any: three times their space.
#[test]
fn log_datasets_without_live_elements_are_freed_before_elements_are_moved() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let d = dataset(&first.c, "d");
    first.c.write(d, 0, &[1; 300_000]).unwrap();
    first.c.close().unwrap();
    let second = crashed(&first);
    let d = found(&second.c, "d");
    second.c.write(d, 0, &[2; 300_000]).unwrap();
    let done = Edit::log(&*second.c).unwrap().compact(None, &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(done.freed >= 300_000 && done.moved == 0 && done.finished, "{done:?}");
    second.c.close().unwrap();
    assert!(content(&crashed(&second).c, "d") == [2; 300_000]);
}

/// A dataset that had grown to its maximum could not become shorter.
#[test]
fn datasets_at_their_maximum_become_shorter() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    for (name, fact) in [
        (&b"grown"[..], br#"{"dtype": "|u1", "shape": [4], "maxshape": [6], "layout": "log"}"#),
        (b"fixed", br#"{"dtype": "|u1", "shape": [6], "maxshape": [6], "layout": "log"}"#),
    ] {
        let id = first.c.create_file(first.c.root(), name).unwrap();
        editor(&first.c).set_fact(id, "dataset", fact).unwrap();
    }
    first.c.set_size(found(&first.c, "grown"), 6).unwrap();
    first.c.close().unwrap();
    let second = crashed(&first);
    let (grown, fixed) = (found(&second.c, "grown"), found(&second.c, "fixed"));
    second.c.set_size(grown, 4).unwrap();
    second.c.set_size(grown, 6).unwrap();
    assert!(matches!(second.c.set_size(grown, 7), Err(Error::Refused { errno: libc::EFBIG, .. })));
    assert!(matches!(second.c.set_size(fixed, 4), Err(Error::Refused { errno: libc::EPERM, .. })));
}

/// Elements that were punched in a log with a fill value that is not zero read as that.
#[test]
fn punched_elements_read_as_zeros() {
    let first = empty(false, &Plan::new(0, 0, 0, Fault::Short));
    let fact = br#"{"dtype": "|u1", "shape": [60], "maxshape": [null], "layout": "log", "fillvalue": 7}"#;
    let id = first.c.create_file(first.c.root(), b"d").unwrap();
    editor(&first.c).set_fact(id, "dataset", fact).unwrap();
    first.c.write(id, 10, &[1; 10]).unwrap();
    Erase::punch(&*first.c, id, 15, 30).unwrap();
    let want = [vec![7; 10], vec![1; 5], vec![0; 30], vec![7; 15]].concat();
    assert_eq!(bytes(&first.c, id), want);
    // Erasing makes them undefined.
    Erase::erase(&*first.c, id, &[40], &[50]).unwrap();
    let want = [vec![7; 10], vec![1; 5], vec![0; 25], vec![7; 20]].concat();
    first.c.close().unwrap();
    assert_eq!(content(&crashed(&first).c, "d"), want);
}
