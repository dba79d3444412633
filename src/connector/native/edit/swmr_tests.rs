//! Every state of a file that a SWMR writer leaves behind, write by write, as SWMR readers find it.

use super::super::NativeConnector;
use super::super::tests::options;
use super::fault_tests::bytes;
use crate::base::locks::Mutex;
use crate::base::{Address, Error};
use crate::connector::edit::{Edit, Elements, Taken};
use crate::connector::{Connector, DatasetSpec, Form, ObjectId};
use crate::file::memory::{GrowingFile, MemoryFile, MemoryJournal};
use crate::file::recorder::{Log, RecordedPlace, Recorder, Step, Target};
use crate::file::{FileDriver, JournalPlace, Status, WriteDriver};
use crate::format::superblock::{IN_USE, Superblock};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/swmr_images.py");
/// Names, bytes of an element, elements of a row.
const DATASETS: [(&str, usize, usize); 10] = [
    ("array", 8, 1),
    ("packed", 4, 3),
    ("tree", 4, 2),
    ("packedtree", 4, 2),
    ("fixed", 4, 1),
    ("small", 2, 1),
    ("single", 4, 1),
    ("early", 4, 1),
    ("inner/wide", 2, 70),
    ("sparse", 4, 1),
];
/// Most elements of `small`, `single` and `early`.
const FULL: u64 = 400;

fn python(arguments: &[&str]) -> String {
    let done = Command::new(crate::python::with_h5py()).arg(SCRIPT).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn writer(file: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>) -> Arc<NativeConnector> {
    NativeConnector::writable_over(file, place, PathBuf::from("/"), options()).unwrap()
}

fn reader(file: Arc<dyn FileDriver>) -> Arc<NativeConnector> {
    NativeConnector::open(file, PathBuf::from("/"), options()).unwrap()
}

fn find(c: &NativeConnector, name: &str) -> ObjectId {
    c.resolve(c.root(), format!("/{name}").as_bytes()).unwrap().unwrap()
}

/// Elements `range` of a dataset: element i is i + 1.
fn elements(range: std::ops::Range<u64>, size: usize) -> Vec<u8> {
    range.flat_map(|i| (i + 1).to_le_bytes()[..size].to_vec()).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }
}

/// A recorded session.
struct Session {
    /// The file when the session became a SWMR writer.
    base: Vec<u8>,
    steps: Vec<Step>,
    /// Sizes of all datasets after each commit.
    commits: Vec<Vec<u64>>,
    /// The file after the session.
    after: Vec<u8>,
}

/// Appends rows in `commits` commits.
fn record(commits: usize, seed: u64) -> Session {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    python(&["make", path.to_str().unwrap()]);
    let memory = Arc::new(GrowingFile::new(std::fs::read(&path).unwrap()));
    let log = Log::default();
    let file = Arc::new(Recorder::new(memory.clone(), log.clone()));
    let c = writer(file, Box::new(RecordedPlace::new(MemoryJournal::default(), log.clone())));
    c.begin_swmr().unwrap();
    log.lock().clear();
    let base = memory.bytes();
    let edit = c.edit().unwrap();
    let ids = DATASETS.map(|(name, ..)| find(&c, name));
    let (mut sizes, mut random) = (vec![0u64; DATASETS.len()], Random(seed));
    let mut all = vec![sizes.clone()];
    for _ in 0..commits {
        for _ in 0..=random.next(6) {
            let n = random.next(DATASETS.len() as u64) as usize;
            let (name, size, row) = DATASETS[n];
            let first = sizes[n] / size as u64;
            let mut last = first + (random.next(40) + 1) * row as u64;
            if ["small", "single", "early"].contains(&name) {
                last = last.min(FULL);
            }
            edit.write(ids[n], sizes[n], &elements(first..last, size)).unwrap();
            sizes[n] = last * size as u64;
        }
        edit.commit().unwrap();
        all.push(sizes.clone());
    }
    edit.close().unwrap();
    let steps = std::mem::take(&mut *log.lock());
    Session { base, steps, commits: all, after: memory.bytes() }
}

/// Applies a step to the images of the file and of the journal.
fn apply(step: &Step, file: &GrowingFile, journal: &mut Option<GrowingFile>) {
    let image = match step {
        Step::Write(Target::File, ..) | Step::SetLen(Target::File, _) => file,
        Step::Create => {
            journal.get_or_insert_with(|| GrowingFile::new(Vec::new()));
            return;
        }
        Step::Remove => return drop(journal.take()),
        _ => journal.get_or_insert_with(|| GrowingFile::new(Vec::new())),
    };
    match step {
        Step::Write(_, at, bytes) => image.write_at(bytes, *at).unwrap(),
        Step::SetLen(_, len) => image.set_len(*len).unwrap(),
        _ => {}
    }
}

/// Sizes of all datasets, whose elements must be those that were written.
fn check(c: &NativeConnector, what: &str) -> Vec<u64> {
    let size_of = |(name, size, _): (&str, usize, usize)| {
        let content = c.content(find(c, name), Form::Main).unwrap();
        let n = content.size().unwrap();
        let mut found = vec![0; n as usize];
        let read = content.read(0, &mut found).unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
        assert_eq!(read as u64, n, "{what}: {name}");
        let want = elements(0..n / size as u64, size);
        let differs = found.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what}: {name} of {n} bytes");
        n
    };
    DATASETS.iter().map(|d| size_of(*d)).collect()
}

fn superblock(bytes: &[u8]) -> Superblock {
    Superblock::decode(bytes, Address(0)).unwrap()
}

/// The file after `h5clear -s`.
fn cleared(mut bytes: Vec<u8>) -> Vec<u8> {
    let head = Superblock { flags: 0, ..superblock(&bytes) }.encode().unwrap();
    bytes[..head.len()].copy_from_slice(&head);
    bytes
}

fn save(dir: &Path, number: usize, image: &[u8]) {
    std::fs::write(dir.join(format!("{number:06}.h5")), image).unwrap();
    std::fs::write(dir.join(format!("{number:06}.cleared")), cleared(image.to_vec())).unwrap();
}

#[test]
fn swmr_readers_find_whole_elements_after_every_write_as_libhdf5_does() {
    let session = record(40, 0x1234_5678_9abc_def1);
    let dir = tempfile::tempdir().unwrap();
    let (file, mut journal) = (GrowingFile::new(session.base.clone()), None);
    let (mut before, mut number, mut ended) = (vec![0; DATASETS.len()], 0, false);
    for step in &session.steps {
        apply(step, &file, &mut journal);
        if !matches!(step, Step::Write(Target::File, ..) | Step::SetLen(Target::File, _)) {
            continue;
        }
        let image = file.bytes();
        let head = superblock(&image);
        ended |= head.flags == 0;
        // The list of free space is written after the session.
        if ended {
            continue;
        }
        assert_eq!(head.flags, IN_USE);
        assert!(head.eof.0 <= image.len() as u64);
        number += 1;
        let sizes = check(&reader(Arc::new(MemoryFile::new(image.clone()))), &format!("write {number}"));
        assert!(sizes.iter().zip(&before).all(|(now, before)| now >= before), "write {number}: {before:?}, {sizes:?}");
        before = sizes;
        if number % 29 == 0 {
            save(dir.path(), number, &image);
        }
    }
    assert!(ended && &before == session.commits.last().unwrap());
    assert_eq!(superblock(&session.after).flags, 0);
    assert_eq!(check(&reader(Arc::new(MemoryFile::new(session.after.clone()))), "the end"), before);
    std::fs::write(dir.path().join("end.cleared"), &session.after).unwrap();
    let printed = python(&["check", dir.path().to_str().unwrap()]);
    assert_eq!(printed, format!("{} {}\n", number / 29, number / 29 + 1));
    assert!(number > 1000, "{number} writes");
}

/// A file to which the next steps of a writer are applied before each read.
struct Advancing {
    file: GrowingFile,
    steps: Vec<Step>,
    /// The next step, and the random steps per read.
    now: Mutex<(usize, Random)>,
}

impl FileDriver for Advancing {
    fn status(&self) -> std::io::Result<Status> {
        self.file.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let mut now = self.now.lock();
        for _ in 0..now.1.next(4) {
            if let Some(step) = self.steps.get(now.0) {
                apply(step, &self.file, &mut None);
                now.0 += 1;
            }
        }
        self.file.read_at(buf, offset)
    }
}

#[test]
fn swmr_readers_find_whole_elements_while_the_file_changes() {
    let session = record(40, 0x0fed_cba9_8765_4321);
    let of_file = |s: &&Step| matches!(s, Step::Write(Target::File, ..) | Step::SetLen(Target::File, _));
    let steps: Vec<Step> = session.steps.iter().filter(of_file).cloned().collect();
    let is_end = |s: &Step| matches!(s, Step::Write(_, 0, bytes) if bytes.len() >= 48 && superblock(bytes).flags == 0);
    let end = steps.iter().position(is_end).unwrap();
    for start in (0..end).step_by(13) {
        let file = GrowingFile::new(session.base.clone());
        steps[..start].iter().for_each(|step| apply(step, &file, &mut None));
        let now = Mutex::new((start, Random(start as u64 * 7919 + 1)));
        check(&reader(Arc::new(Advancing { file, steps: steps[..end].to_vec(), now })), &format!("from write {start}"));
    }
}

/// The file after a power cut: of the writes after the last sync some are lost, sector by sector.
fn after_power_cut(session: &Session, steps: usize, random: &mut Random) -> (GrowingFile, Option<GrowingFile>) {
    let (file, mut journal) = (GrowingFile::new(session.base.clone()), None);
    let done = &session.steps[..steps];
    for (i, step) in done.iter().enumerate() {
        let (Step::Write(target, at, bytes), later) = (step, &done[i..]) else {
            apply(step, &file, &mut journal);
            continue;
        };
        let durable = later.contains(&Step::Sync(*target));
        for (n, sector) in bytes.chunks(512).enumerate() {
            if durable || random.next(2) == 0 {
                apply(&Step::Write(*target, at + n as u64 * 512, sector.into()), &file, &mut journal);
            }
        }
    }
    (file, journal)
}

#[test]
fn a_crash_leaves_a_commit_of_a_swmr_writer_as_a_whole() {
    let session = record(25, 0x2468_ace1_3579_bdf1);
    let mut random = Random(99);
    let (mut last, mut completed) = (0, 0);
    for steps in 0..session.steps.len() {
        let (file, journal) = after_power_cut(&session, steps, &mut random);
        let before = file.bytes();
        let (file, place) = (Arc::new(file), MemoryJournal::new(journal.map(|j| j.bytes())));
        if superblock(&before).flags == 0 {
            break;
        }
        let driver: Arc<dyn WriteDriver> = file.clone();
        let old = crate::meta::recovery::OldJournals::Refused;
        completed += usize::from(crate::meta::recovery::finish(&driver, &place, old).unwrap());
        let sizes = check(&reader(file), &format!("cut after step {steps}"));
        let commit = session.commits.iter().rposition(|c| *c == sizes);
        let commit = commit.unwrap_or_else(|| panic!("cut after step {steps}: {sizes:?} is no commit"));
        assert!(commit >= last, "cut after step {steps}: commit {commit} after {last}");
        last = commit;
    }
    assert!(completed > 50 && last > 20, "{completed} commits completed, the last is {last}");
}

fn errno<T>(result: crate::base::Result<T>) -> i32 {
    match result {
        Err(Error::Refused { errno, .. }) => errno,
        Err(e) => panic!("{e}"),
        Ok(_) => 0,
    }
}

#[test]
fn a_swmr_writer_refuses_what_libhdf5_readers_do_not_expect() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    python(&["make", path.to_str().unwrap()]);
    let memory = Arc::new(GrowingFile::new(std::fs::read(&path).unwrap()));
    let c = writer(memory.clone(), Box::new(MemoryJournal::default()));
    c.begin_swmr().unwrap();
    let (edit, root, id) = (c.edit().unwrap(), c.root(), find(&c, "array"));
    edit.write(id, 0, &elements(0..10, 8)).unwrap();
    edit.commit().unwrap();
    let before = memory.bytes();
    assert_eq!(errno(edit.create_group(root, b"x")), libc::EPERM);
    assert_eq!(errno(edit.create_file(root, b"x")), libc::EPERM);
    assert_eq!(errno(edit.unlink(root, b"array", false)), libc::EPERM);
    assert_eq!(errno(edit.link(root, b"x", id)), libc::EPERM);
    assert_eq!(errno(edit.symlink(root, b"x", b"array")), libc::EPERM);
    assert_eq!(errno(edit.rename((root, b"array"), (root, b"x"), Taken::Replace)), libc::EPERM);
    assert_eq!(errno(edit.set_attribute_bytes(id, b"x", b"y")), libc::EPERM);
    assert_eq!(errno(edit.remove_attribute(id, b"attribute1")), libc::EPERM);
    assert_eq!(errno(edit.set_size(id, 8)), libc::EPERM);
    assert_eq!(errno(edit.zero(id, 0, 8)), libc::EPERM);
    assert_eq!(errno(edit.change_dataset(id, DatasetSpec::default(), Elements::Kept)), libc::EPERM);
    assert!(edit.allocate().is_none() && edit.copy_range().is_none());
    let erase = edit.erase().unwrap();
    assert_eq!(errno(erase.punch(id, 0, 8)), libc::EPERM);
    assert_eq!(errno(erase.erase(id, &[0], &[1])), libc::EPERM);
    assert_eq!(errno(erase.set_defined(id, 0..1, &[])), libc::EPERM);
    edit.commit().unwrap();
    assert_eq!(memory.bytes(), before);
    // Changes that pass the policy are refused by the structures.
    let refused = Edit::set_attribute_bytes(&*c, id, b"x", b"y");
    assert!(matches!(refused, Err(Error::Refused { errno: libc::EPERM, .. } | Error::Io { errno: libc::EPERM, .. })), "{refused:?}");
    let refused = Edit::create_group(&*c, root, b"x");
    assert!(matches!(refused, Err(Error::Refused { errno: libc::EPERM, .. } | Error::Io { errno: libc::EPERM, .. })), "{refused:?}");
    edit.set_size(id, 160).unwrap();
    edit.commit().unwrap();
    assert_eq!(bytes(&c, id), [elements(0..10, 8), vec![0; 80]].concat());
    edit.close().unwrap();
}
