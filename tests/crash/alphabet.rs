//! All sequences of up to three operations from a small alphabet, on a small file of each superblock version: each operation is
//! an unacknowledged change or a commit, the sequence ends with a commit, and the machine stops everywhere.

use super::images;
use super::random::Random;
use super::sessions::{self, Session};
use super::{VARIANTS, wrong};
use h5dir::base::Error;
use h5dir::connector::Connector;
use h5dir::connector::edit::Taken;
use h5dir::connector::native::NativeConnector;
use h5dir::connector::{Form, ObjectId};
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::recorder::{Log, RecordedPlace, Recorder, Step};
use h5dir::present::{Editor, Existing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    Create,
    Write,
    Append,
    Truncate,
    Mkdir,
    RenameOver,
    Unlink,
    SetAttribute,
    RemoveAttribute,
    Commit,
}

use Letter::*;

/// The alphabet.
const ALPHABET: [Letter; 10] = [Create, Write, Append, Truncate, Mkdir, RenameOver, Unlink, SetAttribute, RemoveAttribute, Commit];

/// A file with two streams, an attribute and a group.
fn start(version: u8) -> Vec<u8> {
    static FILES: Mutex<BTreeMap<u8, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock().unwrap();
    files
        .entry(version)
        .or_insert_with(|| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("f.h5");
            make(version, &path);
            std::fs::read(path).unwrap()
        })
        .clone()
}

fn make(version: u8, path: &Path) {
    let script = "
import h5py, sys
path, version = sys.argv[1], int(sys.argv[2])
bounds = {0: ('earliest', 'v108'), 2: ('v108', 'v108'), 3: ('v110', 'v110')}[version]
with h5py.File(path, 'w', libver=bounds) as f:
    for name in 'ab':
        d = f.create_dataset(name, data=bytearray(b'0123456789' * 60), dtype='u1', maxshape=(None,), chunks=(256,))
    d = f['a']
    d.attrs['x'] = 'value'
    f.create_group('g')['inner'] = 1
assert open(path, 'rb').read()[8] == version, open(path, 'rb').read()[8]
";
    let status =
        std::process::Command::new(super::python::with_h5py()).args(["-c", script]).arg(path).arg(version.to_string()).status().unwrap();
    assert!(status.success());
}

fn named(c: &NativeConnector, name: &[u8]) -> Option<ObjectId> {
    c.lookup(c.root(), name).ok().flatten().and_then(|l| match l.target {
        h5dir::connector::LinkTarget::Hard(id) => Some(id),
        _ => None,
    })
}

fn act(c: &NativeConnector, letter: Letter, n: u8) -> Result<(), Error> {
    let edit = Connector::edit(c).unwrap();
    let root = c.root();
    let Some(a) = named(c, b"a") else {
        // It was renamed or unlinked: another takes its place.
        return if letter == Commit { edit.commit() } else { edit.create_file(root, b"a").map(drop) };
    };
    let size = c.content(a, Form::Main).and_then(|c| c.size())?;
    match letter {
        Create => edit.create_file(root, &[b'n', b'0' + n]).and_then(|id| edit.write(id, 0, &[n; 700])),
        Write => edit.write(a, size / 3, &[0xa0 + n; 90]),
        Append => edit.write(a, size, &[0xb0 + n; 300]),
        Truncate => edit.set_size(a, size / 2),
        Mkdir => edit.create_group(root, &[b'd', b'0' + n]).map(drop),
        RenameOver => edit.rename((root, b"a"), (root, b"b"), Taken::Replace).map(drop),
        Unlink => edit.unlink(root, b"a", false).map(drop),
        SetAttribute => Editor { connector: c, edit }.set_attribute(a, b"y", &vec![b'0' + n; 30 + usize::from(n) * 100], Existing::Any),
        RemoveAttribute => edit.remove_attribute(a, b"x"),
        Commit => edit.commit(),
    }
}

fn record(version: u8, word: &[Letter]) -> Session {
    let initial = start(version);
    let log = Log::default();
    let driver = Arc::new(Recorder::new(Arc::new(GrowingFile::new(initial.clone())), log.clone()));
    let place = Box::new(RecordedPlace::new(MemoryJournal::default(), log.clone()));
    let connector = NativeConnector::writable_over(driver, place, PathBuf::from("/"), sessions::options()).unwrap();
    log.lock().clear();
    let mut states = vec![sessions::digest(&*connector)];
    let acknowledge = |states: &mut Vec<String>| {
        states.push(sessions::digest(&*connector));
        log.lock().push(Step::Acknowledged(states.len() as u64 - 1));
    };
    for (n, letter) in word.iter().enumerate() {
        match act(&connector, *letter, n as u8) {
            Ok(()) | Err(Error::Refused { .. }) => {}
            Err(e) => panic!("superblock {version}, {word:?}: {e}"),
        }
        if *letter == Commit {
            acknowledge(&mut states);
        }
    }
    let edit = Connector::edit(&*connector).unwrap();
    edit.commit().unwrap();
    acknowledge(&mut states);
    edit.close().unwrap();
    acknowledge(&mut states);
    let steps = log.lock().clone();
    Session { name: format!("superblock {version}, {word:?}"), initial, log: steps, states }
}

/// The words of `length` letters.
fn words(length: u32) -> impl Iterator<Item = Vec<Letter>> {
    (0..ALPHABET.len().pow(length)).map(move |n| (0..length).map(|i| ALPHABET[n / ALPHABET.len().pow(i) % ALPHABET.len()]).collect())
}

/// Of the images of a word of three letters every so many are looked at.
fn every() -> usize {
    if cfg!(debug_assertions) {
        331
    } else if super::long() {
        1
    } else {
        3
    }
}

/// Versions of the superblock.
const SUPERBLOCKS: [u8; 3] = [0, 2, 3];

#[test]
fn every_sequence_of_up_to_three_operations() {
    // The sequences of three are divided among the versions of the superblock.
    let versions = |(i, w): (usize, Vec<Letter>)| {
        let all = w.len() < 3 || super::long();
        SUPERBLOCKS.into_iter().enumerate().filter(move |(v, _)| all || i % SUPERBLOCKS.len() == *v).map(move |(_, v)| (v, w.clone()))
    };
    let jobs: Vec<(u8, Vec<Letter>)> = (1..=3).flat_map(words).enumerate().flat_map(versions).collect();
    let next = AtomicUsize::new(0);
    let totals = Mutex::new(BTreeMap::<(u8, usize), (usize, usize)>::new());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(4) {
            s.spawn(|| {
                while let Some((version, word)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let session = record(*version, word);
                    let (variants, every) = match word.len() {
                        1 => (VARIANTS[0], 1),
                        2 => (3, every().div_ceil(4)),
                        _ => (2, every()),
                    };
                    let (mut images, mut seed) = (0usize, u64::from(*version));
                    word.iter().for_each(|l| seed = seed * 31 + *l as u64);
                    let phase = seed as usize % every;
                    images::each(&session.initial, None, &session.log, &mut Random(seed), variants, &mut |image| {
                        images += 1;
                        if images % every == phase
                            && let Some(why) = wrong(&session, &image)
                        {
                            failures.lock().unwrap().push(format!("{}: image {images}: {why}", session.name));
                        }
                    });
                    let mut totals = totals.lock().unwrap();
                    let row = totals.entry((*version, word.len())).or_default();
                    (row.0, row.1) = (row.0 + 1, row.1 + images.div_ceil(every));
                }
            });
        }
    });
    let mut lengths = BTreeMap::new();
    for ((version, length), (words, images)) in totals.into_inner().unwrap() {
        println!("superblock {version}, {length} operations: {words:5} sequences, {images:7} images recovered");
        *lengths.entry(length).or_insert(0) += words;
    }
    for (length, words) in lengths {
        let times = if length < 3 || super::long() { SUPERBLOCKS.len() } else { 1 };
        assert_eq!(words, times * ALPHABET.len().pow(length as u32));
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}
