//! Readers of variable-length elements beside writers, and the memory of long strings.

use super::access::IodConnector;
use super::tests::{bytes, empty, environment, open};
use crate::connector::edit::Edit;
use crate::connector::{Connector, DatasetSpec, Form, ObjectId};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::Container;
use crate::present::parse::parse_datatype;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A store whose reads of packs tell that they begin, and wait until they may go on.
struct WaitingStore {
    store: MemoryStore,
    begun: Sender<()>,
    go_on: Mutex<Option<Receiver<()>>>,
}

impl ObjectStore for WaitingStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        if key.starts_with("d/")
            && let Some(go_on) = self.go_on.lock().take()
        {
            let _ = self.begun.send(());
            let _ = go_on.recv();
        }
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
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
    let waiting = WaitingStore { store, begun, go_on: Mutex::new(None) };
    let waiting = Arc::new(waiting);
    let c = {
        let container = Arc::new(Container::open(waiting.clone()).unwrap());
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        let state = super::state::State::new(container.clone(), snapshot, Some(session));
        IodConnector::new(container, state, true, environment())
    };
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
