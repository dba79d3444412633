//! Many separate records in one log: memory, cost per write, the index, opening again.
//!
//! With `H5DIR_LONG` (its value, if more than 1, is the number of records, else 10 million) the
//! bounds of docs/DESIGN-log.md are checked, too, and the measured numbers are printed.

#![allow(clippy::unwrap_used, clippy::panic)]

use h5dir::connector::native::external::Neighbours;
use h5dir::connector::native::{NativeConnector, Options, create, open_for_reading, open_to_change};
use h5dir::connector::{Connector, Form, ObjectId};
use h5dir::dataset::environment::Environment;
use h5dir::dataset::layout::virtual_::MissingPolicy;
use h5dir::file::host_file::HostFile;
use h5dir::present::Editor;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const CACHE: u64 = 64 << 20;
/// Bytes of a record, and from the start of one to the next.
const RECORD: u64 = 16;
const STEP: u64 = 32;
/// Records in default runs: more than are in memory.
const SOME: u64 = 200_000;
const SMALL: u64 = 1000;

fn options() -> Options {
    Options {
        environment: Arc::new(Environment::new(CACHE, 0, 2).unwrap()),
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: Default::default(),
    }
}

fn open(path: &Path) -> Arc<NativeConnector> {
    let host = HostFile::open(path).unwrap();
    let file = open_to_change(&host).unwrap();
    NativeConnector::open_writable(&host, file, "/".into(), options()).unwrap()
}

fn reader(path: &Path) -> Arc<NativeConnector> {
    NativeConnector::open(open_for_reading(&HostFile::open(path).unwrap()).unwrap(), "/".into(), options()).unwrap()
}

fn dataset(c: &NativeConnector, name: &str, profile: &str, records: u64) -> ObjectId {
    let edit = c.edit().unwrap();
    let id = edit.create_file(c.root(), name.as_bytes()).unwrap();
    let spec = format!(r#"{{"dtype":"<u2","shape":[{}],"layout":"log","profile":"{profile}"}}"#, records * STEP / 2);
    Editor { connector: c, edit }.set_fact(id, "dataset", spec.as_bytes()).unwrap();
    id
}

/// Record `n` in the order of writing: its place, and its bytes, which deflate.
fn record(n: u64, records: u64) -> (u64, [u8; RECORD as usize]) {
    // A multiplier that has no divisor in common with the number: every place comes once.
    let at = n * 1_000_003 % records;
    let mut bytes = [0; RECORD as usize];
    bytes[..8].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    (at * STEP, bytes)
}

/// Compares every `every`-th record.
fn check(c: &NativeConnector, id: ObjectId, records: u64, every: u64) {
    let content = c.content(id, Form::Main).unwrap();
    let mut got = [0; STEP as usize];
    for n in (0..records).step_by(every as usize) {
        let (at, want) = record(n, records);
        content.read(at, &mut got).unwrap();
        assert!(got[..RECORD as usize] == want && got[RECORD as usize..] == [0; 16], "record {n}");
    }
}

fn id_of(c: &NativeConnector, name: &str) -> ObjectId {
    use h5dir::connector::LinkTarget;
    let link = c.lookup(c.root(), name.as_bytes()).unwrap().unwrap();
    let LinkTarget::Hard(id) = link.target else { panic!("{name} is no object") };
    id
}

fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn long() -> Option<u64> {
    let value = std::env::var("H5DIR_LONG").ok()?;
    Some(value.parse().ok().filter(|n| *n > 1).unwrap_or(10_000_000))
}

/// Writes, commits now and then; returns seconds of each tenth.
fn write(c: &NativeConnector, id: ObjectId, records: u64) -> Vec<f64> {
    let edit = c.edit().unwrap();
    let tenth = records / 10;
    (0..10)
        .map(|part| {
            let begin = Instant::now();
            for n in part * tenth..(part + 1) * tenth {
                let (at, bytes) = record(n, records);
                edit.write(id, at, &bytes).unwrap();
                if n % 300_000 == 0 {
                    edit.commit().unwrap();
                }
            }
            edit.commit().unwrap();
            begin.elapsed().as_secs_f64()
        })
        .collect()
}

#[test]
fn many_records() {
    let (records, is_long) = (long().unwrap_or(SOME), long().is_some());
    let place = tempfile::tempdir_in(std::env::var("TMPDIR").unwrap_or("/var/tmp".into())).unwrap();
    let (path, copy) = (place.path().join("f.h5"), place.path().join("copy.h5"));
    create(&path, &h5dir::connector::new_file::NewFile::of_version(false)).unwrap();
    let before = memory("VmHWM");
    let c = open(&path);
    let (big, small) = (dataset(&c, "big", "plain", records), dataset(&c, "small", "plain", SMALL));
    write(&c, small, SMALL);
    let parts = write(&c, big, records);
    check(&c, big, records, 97);
    // As a crash leaves it: the index lacks some records or all.
    std::fs::copy(&path, &copy).unwrap();
    let begin = Instant::now();
    c.edit().unwrap().close().unwrap();
    let closed = begin.elapsed().as_secs_f64();
    drop(c);
    let peak = memory("VmHWM") - before;

    let begin = Instant::now();
    let c = open(&path);
    let (big, small) = (id_of(&c, "big"), id_of(&c, "small"));
    c.info(big).unwrap();
    let opened = begin.elapsed().as_secs_f64();
    let first = |id| {
        let begin = Instant::now();
        check(&c, id, SMALL.min(records), SMALL);
        begin.elapsed().as_secs_f64()
    };
    let (of_small, of_big) = (first(small), {
        let begin = Instant::now();
        check(&c, big, records, records);
        begin.elapsed().as_secs_f64()
    });
    check(&c, small, SMALL, 1);
    check(&c, big, records, 101);
    drop(c);
    let begin = Instant::now();
    let c = reader(&copy);
    check(&c, id_of(&c, "big"), records, 101);
    let recovered = begin.elapsed().as_secs_f64();
    let peak_all = memory("VmHWM") - before;
    println!(
        "{records} records: {:.2} us a write, tenths {}; close {:.2} s a million; peak {} MB, with reading {} MB; \
         open {:.1} ms; first read of {SMALL} records {:.2} ms, of all {:.2} s; without the index {recovered:.2} s",
        1e6 * parts.iter().sum::<f64>() / records as f64,
        parts.iter().map(|s| format!("{:.2}", 1e7 * s / records as f64)).collect::<Vec<_>>().join(" "),
        closed / (records as f64 / 1e6),
        peak >> 20,
        peak_all >> 20,
        1e3 * opened,
        1e3 * of_small,
        of_big,
    );
    if is_long {
        assert!(peak_all < CACHE + (64 << 20), "{peak_all} bytes");
        assert!(opened < 0.02, "{opened} s");
    }
}

/// Deflated records: their stored lengths are known again after the file was closed, so that dead
/// bytes are.
#[test]
fn lengths_of_deflated_records() {
    let place = tempfile::tempdir().unwrap();
    let (path, copy) = (place.path().join("f.h5"), place.path().join("copy.h5"));
    create(&path, &h5dir::connector::new_file::NewFile::of_version(false)).unwrap();
    let c = open(&path);
    let id = dataset(&c, "d", "deflate", 3000);
    // Records of one that deflates, twice; then two thirds of each again.
    let edit = c.edit().unwrap();
    let piece = |n: u64| [n as u8; 3000];
    for turn in 0..2u64 {
        for n in 0..24 {
            edit.write(id, n * 4000, &piece(n + turn)).unwrap();
        }
        edit.commit().unwrap();
    }
    for n in 0..24 {
        edit.write(id, n * 4000 + 1000, &piece(n + 2)[..2000]).unwrap();
    }
    edit.commit().unwrap();
    let written = Connector::log(&*c).unwrap().usage().unwrap();
    std::fs::copy(&path, &copy).unwrap();
    edit.close().unwrap();
    let dead = |c: &NativeConnector| {
        let all = Connector::log(c).unwrap().usage().unwrap();
        assert_eq!(all.written, 24 * 3000);
        let live = all.total - all.dead.unwrap();
        // Each part of a record that is left counts as such.
        assert!(live > 24 * 8 && live < 24 * 100, "{all:?}");
        live
    };
    let live = written.total - written.dead.unwrap();
    assert_eq!(dead(&reader(&path)), live, "by the index");
    assert_eq!(dead(&reader(&copy)), live, "by the records");
}
