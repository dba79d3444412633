//! Reads concurrent with changes.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::memory::GrowingFile;
use crate::file::{FileDriver, Status};
use std::sync::OnceLock;

/// What happens when the file was read, before the reader gets its bytes.
type AfterRead = Box<dyn Fn() + Send + Sync>;

/// A file with something that happens after each read.
struct Watched {
    inner: GrowingFile,
    after: OnceLock<AfterRead>,
    reads: std::sync::atomic::AtomicUsize,
}

impl FileDriver for Watched {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.inner.read_at(buf, offset)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(after) = self.after.get() {
            after();
        }
        Ok(n)
    }
}

impl WriteDriver for Watched {
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

fn watched() -> (Arc<Transaction>, Arc<Watched>) {
    let file = Arc::new(Watched { inner: GrowingFile::new(vec![0x11; 8192]), after: OnceLock::new(), reads: Default::default() });
    (Arc::new(begun_with(file.clone())), file)
}

fn reads(file: &Watched) -> usize {
    file.reads.load(Ordering::Relaxed)
}

#[test]
fn a_writer_waits_for_no_read_of_the_file() {
    let (t, file) = watched();
    t.write(100, &[1; 8]).unwrap();
    let writer = Arc::downgrade(&t);
    let written = Box::new(move || {
        let Some(t) = writer.upgrade() else { return };
        // On the same thread, which has no lock then.
        if !t.state.is_locked() {
            t.state.write().overlay.write(&GrowingFile::new(vec![0x11; 8192]), 200, &[2; 8], Bytes::Live).unwrap();
        }
    });
    assert!(file.after.set(written).is_ok());
    // More than the block that memory has.
    let found = bytes(&t, 0, 5000);
    assert_eq!((&found[100..108], &found[200..208], found[300]), (&[1; 8][..], &[2; 8][..], 0x11));
}

/// Between the read of the file and that of memory the commit moves bytes from there to here.
#[test]
fn bytes_that_a_commit_moves_meanwhile_are_read() {
    let (t, file) = watched();
    t.write(100, &[7; 8]).unwrap();
    t.finish(true);
    let committer = Arc::downgrade(&t);
    let once = std::sync::atomic::AtomicBool::new(false);
    let moves = Box::new(move || {
        if !once.swap(true, Ordering::Relaxed)
            && let Some(t) = committer.upgrade()
        {
            commit(&t);
        }
    });
    let before = reads(&file);
    assert!(file.after.set(moves).is_ok());
    assert_eq!(bytes(&t, 90, 5000)[10..18], [7; 8]);
    assert!(reads(&file) > before + 1, "it is read again");
    assert_eq!(file.inner.bytes()[100..108], [7; 8]);
}
