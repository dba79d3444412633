//! What is on its way to the file while operations go on.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::memory::GrowingFile;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A file of which a long write waits until it may, or may not, be done.
struct Held {
    inner: GrowingFile,
    begun: Mutex<Sender<()>>,
    go: Mutex<Receiver<bool>>,
}

impl FileDriver for Held {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
}

impl WriteDriver for Held {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.len() >= 1 << 20 {
            let _ = self.begun.lock().send(());
            if !self.go.lock().recv().unwrap_or(true) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
        }
        self.inner.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// A transaction of which something has just begun to be written: where, and what lets it go on.
fn under_way() -> (Transaction, Arc<Held>, u64, Sender<bool>) {
    let ((begun, has_begun), (let_go, go)) = (channel(), channel());
    let file = Arc::new(Held { inner: GrowingFile::new(vec![0x11; 4096]), begun: Mutex::new(begun), go: Mutex::new(go) });
    let t = begun_with(file.clone());
    let (at, _) = t.allocate(2 * TOGETHER, 4096, Pool::Metadata).unwrap();
    for i in 0..TOGETHER / 4096 {
        t.write(at + i * 4096, &[3; 4096]).unwrap();
    }
    t.finish(true);
    has_begun.recv().unwrap();
    (t, file, at, let_go)
}

fn on_disk(file: &Held, at: u64, len: usize) -> Vec<u8> {
    file.inner.bytes()[at as usize..at as usize + len].to_vec()
}

#[test]
fn what_changes_on_its_way_is_written_again() {
    for well in [true, false] {
        let (t, file, at, go) = under_way();
        t.begin();
        t.write(at + 100, &[4; 8]).unwrap();
        assert_eq!(bytes(&t, at, 4096), [vec![3; 100], vec![4; 8], vec![3; 3988]].concat());
        t.finish(true);
        go.send(well).unwrap();
        // A second, and what the commit writes, need no leave.
        drop(go);
        drop(t.flight.landed());
        assert_eq!(t.waiting() < 10_000, well, "what has landed waits no more");
        assert_eq!(bytes(&t, at + 4090, 10), [3; 10]);
        commit(&t);
        assert_eq!(on_disk(&file, at, 4096), [vec![3; 100], vec![4; 8], vec![3; 3988]].concat());
        assert_eq!(on_disk(&file, at + TOGETHER - 4096, 4096), [3; 4096]);
    }
}

#[test]
fn what_is_taken_back_on_the_way_is_as_before() {
    let (t, file, at, go) = under_way();
    t.begin();
    t.write(at + 100, &[4; 8]).unwrap();
    go.send(true).unwrap();
    drop(go);
    t.finish(false);
    assert_eq!(bytes(&t, at, 4096), [3; 4096]);
    commit(&t);
    assert_eq!(on_disk(&file, at, 4096), [3; 4096]);
}

/// What is on its way has whole sectors.
#[test]
fn elements_are_written_behind_what_is_on_its_way() {
    let (t, file, at, go) = under_way();
    let t = Arc::new(t);
    t.begin();
    let written = std::thread::spawn({
        let t = t.clone();
        move || t.write_data(at + 600, &[5; 100]).unwrap()
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!written.is_finished());
    go.send(true).unwrap();
    drop(go);
    written.join().unwrap();
    t.finish(true);
    assert_eq!(on_disk(&file, at + 600, 100), [5; 100]);
    commit(&t);
    assert_eq!((on_disk(&file, at + 600, 100), bytes(&t, at + 600, 101)), (vec![5; 100], [vec![5; 100], vec![3]].concat()));
}

#[test]
fn nothing_is_written_once_the_transaction_is_gone() {
    let (t, file, at, go) = under_way();
    let gone = std::thread::spawn(move || drop(t));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!gone.is_finished());
    go.send(true).unwrap();
    drop(go);
    gone.join().unwrap();
    assert_eq!(on_disk(&file, at, 4096), [3; 4096]);
}

/// The loop that takes requests is replaced meanwhile (see [`crate::base::waiting`]).
#[test]
fn who_waits_for_what_is_on_its_way_tells() {
    use crate::base::waiting;
    for join in [false, true] {
        let (t, _file, at, go) = under_way();
        let told = Arc::new(AtomicBool::new(false));
        let t = Arc::new(t);
        let waits = std::thread::spawn({
            let (t, told) = (t.clone(), told.clone());
            move || {
                waiting::tell(Some(Arc::new(move || told.store(true, Ordering::SeqCst))));
                waiting::watch(true);
                t.begin();
                if join {
                    // Another flight is to begin.
                    for i in 0..TOGETHER / 4096 {
                        t.write(at + TOGETHER + i * 4096, &[3; 4096]).unwrap();
                    }
                } else {
                    t.write_data(at + 600, &[5; 100]).unwrap();
                }
                t.finish(true);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!waits.is_finished());
        let told = told.load(Ordering::SeqCst);
        go.send(true).unwrap();
        drop(go);
        waits.join().unwrap();
        assert!(told, "it waits and nobody knows ({join})");
    }
}
