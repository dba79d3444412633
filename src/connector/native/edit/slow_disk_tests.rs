//! Readers of stored bytes that wait for a disk, and operations beside them.

use super::super::NativeConnector;
use super::super::create;
use super::super::tests::{editor, options};
use super::fault_tests::bytes;
use crate::base::locks::Mutex;
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId};
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::file::{FileDriver, Status, WriteDriver};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Shorter reads are of metadata, and never wait.
const DATA_MIN: usize = 32 << 10;

/// A file on a disk that waits for the test.
struct SlowDisk {
    inner: GrowingFile,
    /// Shorter reads never wait.
    least: AtomicUsize,
    /// The next read that is long enough waits.
    is_cold: AtomicBool,
    begun: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl FileDriver for SlowDisk {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if buf.len() >= self.least.load(Ordering::SeqCst) && self.is_cold.swap(false, Ordering::SeqCst) {
            let _ = self.begun.lock().send(());
            let _ = self.go.lock().recv();
        }
        self.inner.read_at(buf, offset)
    }

    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let is_cold = buf.len() >= self.least.load(Ordering::SeqCst) && self.is_cold.load(Ordering::SeqCst);
        if is_cold { Ok(0) } else { self.inner.read_at(buf, offset) }
    }
}

impl WriteDriver for SlowDisk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// What a reader waits for.
#[derive(Clone, Copy)]
enum WaitsFor {
    Data,
    /// Nodes of the chunk index of an open dataset.
    Index,
    /// The same, of a source of the virtual dataset that is read.
    IndexOfSource,
}

/// Calls `f` with the dataset that `fact` describes while a reader of all of it waits for the disk;
/// returns what the reader read.
fn read_beside(fact: &str, f: impl FnOnce(&NativeConnector, ObjectId) + Send) -> Vec<u8> {
    read_waiting(WaitsFor::Data, fact, f)
}

fn read_waiting(what: WaitsFor, fact: &str, f: impl FnOnce(&NativeConnector, ObjectId) + Send) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.h5");
    create(&path, &crate::connector::new_file::NewFile::default()).unwrap();
    let ((begun, has_begun), (let_go, go)) = (channel(), channel());
    let disk = Arc::new(SlowDisk {
        inner: GrowingFile::new(std::fs::read(path).unwrap()),
        least: AtomicUsize::new(DATA_MIN),
        is_cold: AtomicBool::new(false),
        begun: Mutex::new(begun),
        go: Mutex::new(go),
    });
    let c = NativeConnector::writable_over(disk.clone(), Box::new(MemoryJournal::default()), PathBuf::from("/"), options()).unwrap();
    let id = c.create_file(c.root(), b"d").unwrap();
    editor(&c).set_fact(id, "dataset", fact.as_bytes()).unwrap();
    c.write(id, 0, &vec![7; 1 << 20]).unwrap();
    let read_id = if matches!(what, WaitsFor::IndexOfSource) { c.create_file(c.root(), b"v").unwrap() } else { id };
    if read_id != id {
        let fact = r#"{"dtype": "u1", "shape": [1048576], "layout": "virtual", "virtual": [{"source": ".:/d"}]}"#;
        editor(&c).set_fact(read_id, "dataset", fact.as_bytes()).unwrap();
    }
    c.commit().unwrap();
    if !matches!(what, WaitsFor::Data) {
        assert!(bytes(&c, read_id) == vec![7; 1 << 20]);
        disk.least.store(0, Ordering::SeqCst);
        c.file(0).unwrap().store.forget();
    }
    c.environment().forget_decoded();
    disk.is_cold.store(true, Ordering::SeqCst);
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| bytes(&c, read_id));
        has_begun.recv().unwrap();
        let (done, is_done) = channel();
        let changed = &c;
        let writer = scope.spawn(move || {
            f(changed, id);
            done.send(()).unwrap();
        });
        let passed = is_done.recv_timeout(Duration::from_secs(60));
        let_go.send(()).unwrap();
        writer.join().unwrap();
        assert!(passed.is_ok(), "{fact}: the operation waited for the reader");
        reader.join().unwrap()
    });
    assert!(read == bytes(&c, read_id), "{fact}");
    read
}

const FACTS: [&str; 3] = [
    r#"{"dtype": "u1", "shape": [1048576], "layout": "contiguous"}"#,
    r#"{"dtype": "u1", "shape": [1048576], "chunks": [65536]}"#,
    r#"{"dtype": "u1", "shape": [8, 131072], "chunks": [4, 32768]}"#,
];

#[test]
fn operations_do_not_wait_for_a_reader_that_waits_for_the_disk() {
    for fact in FACTS {
        let read = read_beside(fact, |c, _| {
            let other = c.create_file(c.root(), b"other").unwrap();
            c.write(other, 0, b"bytes").unwrap();
            c.commit().unwrap();
        });
        assert!(read == vec![7; 1 << 20], "{fact}");
    }
}

#[test]
fn what_changes_while_a_reader_waits_for_the_disk_is_read_anew() {
    for fact in FACTS {
        let read = read_beside(fact, |c, id| {
            c.write(id, 0, &vec![8; 1 << 20]).unwrap();
            c.commit().unwrap();
        });
        assert!(read == vec![8; 1 << 20], "{fact}");
        let read = read_beside(fact, |c, id| {
            // Elsewhere, and the old place has other bytes.
            editor(c).set_fact(id, "chunks", if fact.contains("131072") { b"[8, 1000]" } else { b"[1000]" }).unwrap();
            c.commit().unwrap();
            let other = c.create_file(c.root(), b"other").unwrap();
            c.write(other, 0, &vec![9; 2 << 20]).unwrap();
            c.commit().unwrap();
        });
        assert!(read == vec![7; 1 << 20], "{fact}");
    }
}

/// Nodes of indexes were read with the lock of readers.
#[test]
fn operations_do_not_wait_for_a_reader_of_an_index_on_a_disk() {
    let indexes = [
        r#"{"dtype": "u1", "shape": [1048576], "chunks": [4096]}"#,
        r#"{"dtype": "u1", "shape": [1048576], "chunks": [4096], "filters": ["deflate 1"]}"#,
        r#"{"dtype": "u1", "shape": [1048576], "maxshape": [null], "chunks": [4096], "filters": ["shuffle", "deflate 1"]}"#,
        r#"{"dtype": "u1", "shape": [1024, 1024], "maxshape": [null, null], "chunks": [64, 64], "filters": ["deflate 1"]}"#,
        r#"{"dtype": "u1", "shape": [1024, 1024], "maxshape": [null, null], "chunks": [64, 64]}"#,
    ];
    for fact in indexes {
        for what in [WaitsFor::Index, WaitsFor::IndexOfSource] {
            let is_vector = fact.contains("[1048576]");
            if matches!(what, WaitsFor::IndexOfSource) && !is_vector {
                continue;
            }
            let read = read_waiting(what, fact, |c, _| {
                let other = c.create_file(c.root(), b"other").unwrap();
                c.write(other, 0, b"bytes").unwrap();
                c.commit().unwrap();
            });
            assert!(read == vec![7; 1 << 20], "{fact}");
            let read = read_waiting(what, fact, |c, id| {
                c.write(id, 0, &vec![8; 1 << 20]).unwrap();
                c.commit().unwrap();
            });
            assert!(read == vec![8; 1 << 20], "{fact}");
        }
    }
}
