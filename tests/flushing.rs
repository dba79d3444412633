//! Changed chunks are encoded and written while others write, read and commit.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use h5dir::connector::edit::Edit;
use h5dir::connector::native::external::Neighbours;
use h5dir::connector::native::{NativeConnector, Options, create};
use h5dir::connector::{Connector, Form, ObjectId};
use h5dir::dataset::environment::Environment;
use h5dir::dataset::layout::virtual_::MissingPolicy;
use h5dir::file::fault::{Fault, FaultyFile, LENGTH, Plan, WRITE};
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::{JournalPlace, WriteDriver};
use h5dir::present::Editor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BLOCK: usize = 4096;
/// A quarter of it may wait: enough for the thread that writes chunks out.
const CACHE: u64 = 24 << 20;
const BLOCKS: u64 = 4096;

fn options() -> Options {
    Options {
        environment: Arc::new(Environment::new(CACHE, 0, 2).unwrap()),
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: Default::default(),
    }
}

fn empty() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new.h5");
    create(&path, &h5dir::connector::new_file::NewFile::of_version(false)).unwrap();
    std::fs::read(path).unwrap()
}

fn open(driver: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>) -> Arc<NativeConnector> {
    NativeConnector::writable_over(driver, place, PathBuf::from("/"), options()).unwrap()
}

/// A deflated dataset of `BLOCKS` blocks in chunks of 16.
fn dataset(c: &NativeConnector, name: &str, filters: &str) -> ObjectId {
    let edit = c.edit().unwrap();
    let id = edit.create_file(c.root(), name.as_bytes()).unwrap();
    let bytes = BLOCKS * BLOCK as u64;
    let spec = format!(r#"{{"dtype":"|u1","shape":[{bytes}],"maxshape":[null],"chunks":[65536],"filters":{filters}}}"#);
    Editor { connector: c, edit }.set_fact(id, "dataset", spec.as_bytes()).unwrap();
    id
}

/// A block that says which it is and how often it was written.
fn block(number: u64, generation: u64) -> Vec<u8> {
    (generation << 32 | number).to_le_bytes().repeat(BLOCK / 8)
}

fn check(c: &NativeConnector, id: ObjectId, generations: &[AtomicU64]) {
    let content = c.content(id, Form::Main).unwrap();
    let mut got = vec![0; BLOCK];
    for (number, generation) in generations.iter().enumerate() {
        content.read((number * BLOCK) as u64, &mut got).unwrap();
        let generation = generation.load(Ordering::SeqCst);
        let want = if generation == 0 { vec![0; BLOCK] } else { block(number as u64, generation) };
        assert!(got == want, "block {number}: {:x?}, not {:x?}", &got[..8], &want[..8]);
    }
}

fn generations() -> Vec<AtomicU64> {
    (0..BLOCKS).map(|_| AtomicU64::new(0)).collect()
}

/// Writes blocks of `id`, first in order, then anywhere.
fn write(edit: &dyn Edit, id: ObjectId, generations: &[AtomicU64], count: u64, seed: u64) {
    let mut state = seed;
    for i in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = if i < BLOCKS { i } else { (state >> 33) % BLOCKS };
        let generation = generations[number as usize].load(Ordering::SeqCst) + 1;
        edit.write(id, number * BLOCK as u64, &block(number, generation)).unwrap();
        generations[number as usize].store(generation, Ordering::SeqCst);
    }
}

#[test]
fn nothing_is_lost_or_torn_while_chunks_are_written_out() {
    let file = Arc::new(GrowingFile::new(empty()));
    let c = open(file.clone(), Box::new(MemoryJournal::default()));
    let ids = [dataset(&c, "deflated", r#"["shuffle",{"name":"deflate","level":1}]"#), dataset(&c, "plain", "[]")];
    let written = [generations(), generations()];
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..2)
            .map(|i| {
                (
                    i,
                    s.spawn({
                        let (c, ids, written) = (&c, &ids, &written);
                        move || write(c.edit().unwrap(), ids[i], &written[i], 2 * BLOCKS, i as u64)
                    }),
                )
            })
            .collect();
        s.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                c.edit().unwrap().commit().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        s.spawn(|| {
            let mut got = vec![0; BLOCK];
            while !done.load(Ordering::SeqCst) {
                for (id, number) in ids.iter().zip([7, 2077]) {
                    let before = written[usize::from(*id == ids[1])][number].load(Ordering::SeqCst);
                    c.content(*id, Form::Main).unwrap().read((number * BLOCK) as u64, &mut got).unwrap();
                    let word = u64::from_le_bytes(got[..8].try_into().unwrap());
                    assert!(got.chunks(8).all(|w| w == &got[..8]), "a block is torn");
                    assert!(word >> 32 >= before, "a block went back from {before} to {}", word >> 32);
                }
            }
        });
        for (_, w) in writers {
            w.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    for i in 0..2 {
        check(&c, ids[i], &written[i]);
    }
    c.edit().unwrap().close().unwrap();
    drop(c);
    let c = open(file, Box::new(MemoryJournal::default()));
    for i in 0..2 {
        check(&c, ids[i], &written[i]);
    }
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let file = Arc::new(GrowingFile::new(empty()));
    let plan = Plan::new(WRITE | LENGTH, 40, 1_000_000, Fault::Errno(libc::ENOSPC));
    plan.pause(true);
    let driver = Arc::new(FaultyFile::new(file.clone(), plan.clone()));
    let c = open(driver, Box::new(MemoryJournal::default()));
    let edit = c.edit().unwrap();
    let id = dataset(&c, "deflated", r#"[{"name":"deflate","level":1}]"#);
    edit.commit().unwrap();
    plan.pause(false);
    let written = generations();
    let mut told = None;
    for number in 0..BLOCKS {
        match edit.write(id, number * BLOCK as u64, &block(number, 1)) {
            Ok(()) => written[number as usize].store(1, Ordering::SeqCst),
            Err(e) => {
                told = Some((number, e));
                break;
            }
        }
    }
    // A commit finds storage for all writes that succeeded.
    let (number, told) = told.expect("the disk is full");
    assert!(matches!(told, h5dir::base::Error::Io { errno: libc::ENOSPC, .. }), "{told}");
    // Room was made.
    plan.pause(true);
    // The failed write was applied as a whole or not at all.
    let mut got = vec![0; BLOCK];
    c.content(id, Form::Main).unwrap().read(number * BLOCK as u64, &mut got).unwrap();
    written[number as usize].store(u64::from(got == block(number, 1)), Ordering::SeqCst);
    check(&c, id, &written);
    edit.close().unwrap();
    drop(c);
    check(&open(file, Box::new(MemoryJournal::default())), id, &written);
}
