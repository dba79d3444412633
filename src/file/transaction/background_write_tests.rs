//! Background writes concurrent with operations.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::memory::GrowingFile;
use crate::file::{FileDriver, Status};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A file that holds long writes until the test lets them succeed or fail.
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

/// A transaction with a held background write: its offset, and the sender that releases it.
fn under_way() -> (Transaction, Arc<Held>, u64, Sender<bool>) {
    let ((begun, has_begun), (let_go, go)) = (channel(), channel());
    let file = Arc::new(Held { inner: GrowingFile::new(vec![0x11; 4096]), begun: Mutex::new(begun), go: Mutex::new(go) });
    let t = begun_with(file.clone());
    let (at, _) = t.allocate(2 * BATCH_BYTES, 4096, Pool::Metadata).unwrap();
    for i in 0..BATCH_BYTES / 4096 {
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
fn sectors_changed_in_flight_are_written_again() {
    for succeeded in [true, false] {
        let (t, file, at, go) = under_way();
        t.begin();
        t.write(at + 100, &[4; 8]).unwrap();
        assert_eq!(bytes(&t, at, 4096), [vec![3; 100], vec![4; 8], vec![3; 3988]].concat());
        t.finish(true);
        go.send(succeeded).unwrap();
        // A second write, and the commit's writes, need no permission.
        drop(go);
        drop(t.background.wait());
        assert_eq!(t.waiting() < 10_000, succeeded, "written sectors are dropped");
        assert_eq!(bytes(&t, at + 4090, 10), [3; 10]);
        commit(&t);
        assert_eq!(on_disk(&file, at, 4096), [vec![3; 100], vec![4; 8], vec![3; 3988]].concat());
        assert_eq!(on_disk(&file, at + BATCH_BYTES - 4096, 4096), [3; 4096]);
    }
}

#[test]
fn a_rollback_in_flight_restores_the_bytes() {
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

/// A background write has whole sectors.
#[test]
fn elements_are_written_after_the_background_write() {
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
fn no_write_follows_the_drop_of_a_transaction() {
    let (t, file, at, go) = under_way();
    let gone = std::thread::spawn(move || drop(t));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!gone.is_finished());
    go.send(true).unwrap();
    drop(go);
    gone.join().unwrap();
    assert_eq!(on_disk(&file, at, 4096), [3; 4096]);
}

/// Another event loop takes requests meanwhile (see [`crate::base::waiting`]).
#[test]
fn a_wait_for_the_background_write_is_reported() {
    use crate::base::waiting;
    for join in [false, true] {
        let (t, _file, at, go) = under_way();
        let reported = Arc::new(AtomicBool::new(false));
        let t = Arc::new(t);
        let waits = std::thread::spawn({
            let (t, reported) = (t.clone(), reported.clone());
            move || {
                waiting::set_hook(Some(Arc::new(move || reported.store(true, Ordering::SeqCst))));
                waiting::arm(true);
                t.begin();
                if join {
                    // Starts another background write.
                    for i in 0..BATCH_BYTES / 4096 {
                        t.write(at + BATCH_BYTES + i * 4096, &[3; 4096]).unwrap();
                    }
                } else {
                    t.write_data(at + 600, &[5; 100]).unwrap();
                }
                t.finish(true);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!waits.is_finished());
        let reported = reported.load(Ordering::SeqCst);
        go.send(true).unwrap();
        drop(go);
        waits.join().unwrap();
        assert!(reported, "an unreported wait ({join})");
    }
}
