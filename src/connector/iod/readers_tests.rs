//! Readers beside writers, operations that are undone, and the memory of long strings.

use super::access::IodConnector;
use super::state::State;
use super::tests::{bytes, empty, open, open_in, shown, spec};
use crate::base::Error;
use crate::base::locks::Mutex;
use crate::connector::edit::{Edit, Elements};
use crate::connector::{ChunksSpec, Connector, DatasetSpec, Form, ObjectId};
use crate::dataset::layout::Seek;
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::keys;
use crate::present::parse::parse_datatype;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A store of which one request says that it begins, and waits until it may go on.
pub(super) struct WaitingStore {
    pub store: MemoryStore,
    /// The kind of request, and what the key of its object begins with.
    pub at: (&'static str, &'static str),
    pub begun: Sender<()>,
    pub go_on: Mutex<Option<Receiver<()>>>,
}

impl WaitingStore {
    fn wait(&self, request: &str, key: &str) {
        if request == self.at.0
            && key.starts_with(self.at.1)
            && let Some(go_on) = self.go_on.lock().take()
        {
            let _ = self.begun.send(());
            let _ = go_on.recv();
        }
    }
}

impl ObjectStore for WaitingStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.wait("get", key);
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.wait("put", key);
        self.store.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.wait("create", key);
        self.store.create(key, bytes)
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.store.list_after(prefix, after)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.store.head(key)
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.store.delete(key)
    }
}

fn strings(c: &IodConnector, lines: &[u8]) -> ObjectId {
    let spec = DatasetSpec {
        dtype: Some(parse_datatype("str").unwrap()),
        shape: Some(vec![0]),
        maxshape: Some(vec![None]),
        ..DatasetSpec::default()
    };
    let id = c.create_dataset(c.root(), b"v", &spec).unwrap();
    c.hold(id);
    c.write(id, 0, lines).unwrap();
    c.finish(id, true).unwrap();
    c.release(id);
    id
}

/// A writer waited for a reader of strings whose store did not answer.
#[test]
fn a_reader_that_waits_for_the_store_leaves_writers_alone() {
    let store = empty();
    let lines: Vec<u8> = (0..40_000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let c = open(&store);
    let id = strings(&c, &lines);
    c.close().unwrap();
    let ((begun, began), (go, go_on)) = (channel(), channel());
    let waiting = Arc::new(WaitingStore { store, at: ("get", keys::PACKS), begun, go_on: Mutex::new(None) });
    let c = open_in(waiting.clone(), None).unwrap();
    *waiting.go_on.lock() = Some(go_on);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| bytes(&*c, id));
        began.recv_timeout(Duration::from_secs(60)).expect("the reader asks the store");
        let (done, is_done) = channel();
        let writer = scope.spawn({
            let c = &c;
            move || {
                c.create_group(c.root(), b"g").unwrap();
                let _ = done.send(());
            }
        });
        let written = is_done.recv_timeout(Duration::from_secs(60));
        let _ = go.send(());
        writer.join().unwrap();
        assert!(reader.join().unwrap() == lines);
        assert!(written.is_ok(), "the writer waited for the reader");
    });
}

/// All requests of readers waited while a commit waited for the store.
#[test]
fn readers_wait_for_no_commit() {
    let store = empty();
    let ((begun, began), (go, go_on)) = (channel(), channel());
    let waiting = Arc::new(WaitingStore { store, at: ("create", keys::RECORDS), begun, go_on: Mutex::new(None) });
    let c = open_in(waiting.clone(), None).unwrap();
    let id = c.create_dataset(c.root(), b"d", &spec("u1", &[100_000])).unwrap();
    let v = strings(&c, b"one\ntwo\n");
    c.write(id, 0, &[7; 100_000]).unwrap();
    *waiting.go_on.lock() = Some(go_on);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| Edit::commit(&*c));
        began.recv_timeout(Duration::from_secs(60)).expect("the commit asks the store");
        let (done, is_done) = channel();
        let reader = scope.spawn({
            let c = &c;
            move || {
                c.hold(id);
                assert_eq!((bytes(&**c, id), bytes(&**c, v)), (vec![7; 100_000], b"one\ntwo\n".to_vec()));
                assert_eq!(shown(&**c).into_keys().collect::<Vec<_>>(), ["/d", "/v"]);
                let content = c.content(id, Form::Main).unwrap();
                assert!(content.allocated().unwrap() > 0 && content.seek(0, Seek::Data).unwrap() == Some(0));
                c.catch_up().unwrap();
                c.release(id);
                let _ = done.send(());
            }
        });
        let read = is_done.recv_timeout(Duration::from_secs(60));
        let _ = go.send(());
        reader.join().unwrap();
        commit.join().unwrap().unwrap();
        assert!(read.is_ok(), "the reader waited for the commit");
    });
}

/// A chunk in memory kept the bytes of an operation that failed.
#[test]
fn operations_that_fail_or_panic_change_no_chunk() {
    let c = open(&empty());
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { maxshape: Some(vec![None]), ..spec("u1", &[1000]) }).unwrap();
    let sparse = DatasetSpec { layout: Some("sparse".into()), profile: Some("map".into()), ..spec("u1", &[1000]) };
    let sparse = c.create_dataset(c.root(), b"sparse", &sparse).unwrap();
    let seven = |id| c.write(id, 0, &[7; 1000]).unwrap();
    seven(id);
    seven(sparse);
    let before = c.states.shown();
    for panics in [false, true] {
        for id in [id, sparse] {
            let failing = || {
                c.operate::<()>(|state| {
                    let d = c.objects.dataset_of(state, id.serial())?;
                    c.objects.write_elements(state, &d, 10, &[1; 100])?;
                    c.objects.write_elements(state, &d, 50, &[2; 100])?;
                    state.put_header(id.serial(), 0x1234, b"header")?;
                    state.changed(id.serial());
                    assert!(!panics, "as the test wants");
                    Err(Error::refused(libc::EINVAL, "as the test wants"))
                })
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(failing));
            assert_eq!((done.is_err(), done.is_ok_and(|done| done.is_err())), (panics, !panics));
            assert_eq!(bytes(&*c, id), [7; 1000]);
        }
        let now = c.states.shown();
        assert!(now.changes.ptr_eq(&before.changes) && now.dirty_bytes == before.dirty_bytes);
        assert_eq!(now.revision(id.serial()), before.revision(id.serial()));
    }
    c.write(id, 0, b"after").unwrap();
    Edit::commit(&*c).unwrap();
    assert_eq!(bytes(&*c, id)[..6], *b"after\x07");
    assert_eq!(c.states.shown().dirty_bytes, 0);
}

/// A reader that took a state before a dataset got another layout reads it as it was.
#[test]
fn a_reader_keeps_the_layout_that_it_began_with() {
    let c = open(&empty());
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![100])), ..spec("<u2", &[1000]) }).unwrap();
    let values: Vec<u8> = (0..1000u16).flat_map(u16::to_le_bytes).collect();
    c.write(id, 0, &values).unwrap();
    for commits in [false, true] {
        let before = c.states.shown();
        let chunks = Some(ChunksSpec::Dims(vec![if commits { 40 } else { 70 }]));
        c.change_dataset(id, DatasetSpec { chunks, ..DatasetSpec::default() }, Elements::Kept).unwrap();
        if commits {
            Edit::commit(&*c).unwrap();
        }
        let read = |state: &State| {
            let mut all = vec![0; 2000];
            let d = c.objects.dataset_of(state, id.serial()).unwrap();
            assert_eq!(c.chunks.read_together(state, &d, 0, &mut all).unwrap(), 2000);
            (all == values, d.chunk_dims().to_vec())
        };
        let (was, is) = if commits { (70, 40) } else { (100, 70) };
        assert_eq!((read(&before), read(&c.states.shown())), ((true, vec![was]), (true, vec![is])));
    }
}

/// While strings are replaced and other objects change, a reader gets old ones or new ones as a
/// whole.
#[test]
fn readers_beside_a_writer_get_whole_strings() {
    let c = open(&empty());
    let text = |n: usize| -> Vec<u8> { (0..300).flat_map(|i| format!("{n}:{}\n", "x".repeat((n * 37 + i) % 90)).into_bytes()).collect() };
    let id = strings(&c, &text(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn({
            let (c, stop) = (&c, &stop);
            move || {
                let mut reads = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    let content = c.content(id, Form::Main).unwrap();
                    let mut buf = vec![0; 100_000];
                    let n = content.read(0, &mut buf).unwrap();
                    // The writer has emptied them.
                    if n == 0 {
                        continue;
                    }
                    let lines: Vec<&[u8]> = buf[..n].split_inclusive(|b| *b == b'\n').collect();
                    let first = lines[0].split(|b| *b == b':').next().unwrap();
                    assert_eq!(lines.len(), 300);
                    assert!(lines.iter().all(|line| line.split(|b| *b == b':').next() == Some(first)), "strings of two writes");
                    reads += 1;
                }
                reads
            }
        });
        for n in 1..60 {
            c.hold(id);
            c.set_size(id, 0).unwrap();
            c.write(id, 0, &text(n)).unwrap();
            c.finish(id, true).unwrap();
            c.release(id);
            if n % 3 == 0 {
                c.create_group(c.root(), format!("g{n}").as_bytes()).unwrap();
            }
            if n % 7 == 0 {
                Edit::commit(&*c).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let _ = reader.join().unwrap();
    });
}

/// Each open file kept the string that was read last, of 64 MiB at most.
#[test]
fn long_strings_are_in_temporary_files_that_readers_share() {
    let c = open(&empty());
    let lines = [vec![b'a'; 6 << 20], vec![b'\n'], b"short\n".to_vec(), vec![b'b'; 5 << 20], vec![b'\n']].concat();
    let id = strings(&c, &lines);
    let contents: Vec<_> = (0..8).map(|_| c.content(id, Form::Main).unwrap()).collect();
    let mut buf = vec![0; 1 << 20];
    for at in [3 << 20, (6 << 20) - 5, (7 << 20) + 11] {
        for content in &contents {
            let n = content.read(at, &mut buf).unwrap();
            assert!(buf[..n] == lines[at as usize..at as usize + n]);
        }
    }
    let files = c.env.chunk_files.bytes();
    assert!((11 << 20..13 << 20).contains(&files), "{files} bytes");
    assert!(c.env.cache.bytes() <= c.env.cache.budget());
    assert!(bytes(&*c, id) == lines);
}
