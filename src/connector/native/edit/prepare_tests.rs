//! Layouts that are prepared while other operations continue.

use super::super::NativeConnector;
use super::fault_tests::{bytes, writable};
use crate::connector::edit::{Edit, Elements};
use crate::connector::{ChunksSpec, Connector, DatasetSpec, ObjectId};
use crate::file::fault::{Fault, Plan};
use std::sync::Arc;

const LEN: usize = 300_000;

fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i / 100 % 251) as u8).collect()
}

fn container() -> (Arc<NativeConnector>, ObjectId) {
    let c = writable(&Plan::new(0, 0, 0, Fault::Short));
    let id = c.create_file(c.root(), b"f").unwrap();
    c.write(id, 0, &content()).unwrap();
    (c, id)
}

fn spec() -> DatasetSpec {
    let shape = Some(vec![3, LEN as u64 / 3]);
    DatasetSpec { shape, chunks: Some(ChunksSpec::Dims(vec![1, 50_000])), ..DatasetSpec::default() }
}

/// Free bytes of the container after a commit.
fn free(c: &NativeConnector) -> u64 {
    c.commit().unwrap();
    c.file(0).unwrap().store.transaction().unwrap().space_usage().free
}

#[test]
fn a_prepared_layout_is_taken_over() {
    let (c, id) = container();
    assert!(c.prepare_change(id, &spec()).unwrap());
    assert_eq!(c.layout_progress(id), Some((LEN as u64, LEN as u64)));
    assert_eq!(bytes(&c, id), content());
    let before = c.environment().dirty.of(super::key(id)).len();
    c.change_dataset(id, spec(), Elements::Kept).unwrap();
    c.end_preparation(id);
    assert!(before > 0, "its bytes were not stored in the old layout");
    assert_eq!((bytes(&c, id), c.layout_progress(id)), (content(), None));
    assert_eq!(Connector::dataset(&*c, id).unwrap().chunks, Some(vec![1, 50_000]));
    assert!(free(&c) < LEN as u64 + 20_000, "{}", free(&c));
    // The address of the copy is that of another object.
    let other = c.create_file(c.root(), b"g").unwrap();
    c.hold(other);
    c.release(other);
    assert_eq!((bytes(&c, other), c.info(other).unwrap().links), (Vec::new(), 1));
}

fn in_log(profile: &str) -> DatasetSpec {
    DatasetSpec { layout: Some("log".into()), profile: Some(profile.into()), ..DatasetSpec::default() }
}

/// Datasets are moved into a log, within it and out of it in pieces, and other datasets are written
/// meanwhile.
#[test]
fn datasets_in_a_log_are_prepared() {
    let (c, id) = container();
    let other = c.create_file(c.root(), b"g").unwrap();
    let mut log_ids = Vec::new();
    let specs = [in_log("plain"), in_log("deflate"), in_log("plain"), spec(), in_log("deflate"), spec()];
    for (turn, spec) in specs.into_iter().enumerate() {
        assert!(c.prepare_change(id, &spec).unwrap(), "turn {turn}");
        assert_eq!(bytes(&c, id), content());
        c.write(other, turn as u64 * 100, &[turn as u8 + 1; 100]).unwrap();
        if turn % 2 == 0 {
            c.commit().unwrap();
        }
        c.change_dataset(id, spec.clone(), Elements::Kept).unwrap();
        c.end_preparation(id);
        assert_eq!(bytes(&c, id), content(), "turn {turn}");
        let measure = Connector::log(&*c).and_then(|log| log.dataset(id).unwrap());
        assert_eq!(measure.map(|m| m.written), spec.layout.map(|_| LEN as u64), "turn {turn}");
        log_ids.push(c.access().record_log().unwrap().next_id());
        if turn % 2 == 1 {
            c.commit().unwrap();
        }
        // What it takes in a log is taken over, not written again.
        let anchors = log_ids.len() as u64 - u64::from(turn >= 3) - u64::from(turn == 5);
        assert_eq!(log_ids.last(), Some(&(anchors + 1)), "turn {turn}");
    }
    let want: Vec<u8> = (1..=6).flat_map(|n| [n; 100]).collect();
    assert_eq!(bytes(&c, other), want);
}

/// A write while a dataset is moved into or out of a log cancels that, and is not lost.
#[test]
fn a_write_cancels_the_preparation_in_a_log() {
    let (c, id) = container();
    let mut want = content();
    for (turn, spec) in [in_log("plain"), spec(), in_log("deflate")].into_iter().enumerate() {
        for write in [true, false] {
            assert!(c.prepare_change(id, &spec).unwrap());
            if write {
                let at = turn * 1000 + 7;
                c.write(id, at as u64, b"changed").unwrap();
                want[at..at + 7].copy_from_slice(b"changed");
                c.end_preparation(id);
            } else {
                c.change_dataset(id, spec.clone(), Elements::Kept).unwrap();
                c.end_preparation(id);
            }
            assert_eq!(bytes(&c, id), want, "turn {turn}");
            c.commit().unwrap();
        }
    }
    // The copies that were not used have nothing in the log.
    let log = Connector::log(&*c).unwrap().usage().unwrap();
    assert_eq!(log.written, LEN as u64);
}

/// Regression: punched holes and copied ranges came back with the prepared layout.
#[test]
fn a_change_of_the_elements_makes_the_preparation_void() {
    type Change = fn(&NativeConnector, ObjectId, &mut Vec<u8>);
    let changes: [Change; 4] = [
        |c, id, want| {
            c.write(id, 5, b"changed").unwrap();
            want[5..12].copy_from_slice(b"changed");
        },
        |c, id, want| {
            c.set_size(id, 2 * LEN as u64).unwrap();
            want.resize(2 * LEN, 0);
        },
        |c, id, want| {
            c.zero(id, 1000, 150_000).unwrap();
            want[1000..151_000].fill(0);
        },
        |c, id, want| {
            let copied = c.copy_range().unwrap().copy_range((id, 0), (id, 200_000), 1000).unwrap();
            assert!(copied > 0);
            want.copy_within(..copied as usize, 200_000);
        },
    ];
    for change in changes {
        let (c, id) = container();
        assert!(c.prepare_change(id, &spec()).unwrap());
        let mut want = content();
        change(&c, id, &mut want);
        let rows = want.len() as u64 * 3 / LEN as u64;
        let spec = DatasetSpec { shape: Some(vec![rows, LEN as u64 / 3]), ..spec() };
        c.change_dataset(id, spec, Elements::Kept).unwrap();
        c.end_preparation(id);
        assert_eq!(bytes(&c, id), want);
    }
}

#[test]
fn a_preparation_that_is_not_used_leaves_nothing() {
    let (c, id) = container();
    c.commit().unwrap();
    let before = free(&c);
    assert!(c.prepare_change(id, &spec()).unwrap());
    // The file goes meanwhile.
    c.hold(id);
    c.end_preparation(id);
    assert_eq!(bytes(&c, id), content());
    c.release(id);
    assert!(free(&c) <= before + 10_000, "{before} {}", free(&c));
    // The change itself reports why it fails.
    let wrong = DatasetSpec { shape: Some(vec![7]), ..DatasetSpec::default() };
    assert!(!c.prepare_change(id, &wrong).unwrap());
    assert!(c.change_dataset(id, wrong, Elements::Kept).is_err());
}

/// Regression: bytes that were only in memory would have been lost.
#[test]
fn another_layout_than_the_prepared_one_is_made() {
    let (c, id) = container();
    assert!(c.prepare_change(id, &spec()).unwrap());
    let other = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![3, 7_000])), ..spec() };
    c.change_dataset(id, other, Elements::Kept).unwrap();
    c.end_preparation(id);
    assert_eq!((bytes(&c, id), Connector::dataset(&*c, id).unwrap().chunks), (content(), Some(vec![3, 7_000])));
}
