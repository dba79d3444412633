//! Live bytes in holes of the file.

use super::tests::{begun_with, bytes, commit};
use super::*;
use crate::file::commit::Root;
use crate::file::memory::GrowingFile;
use crate::file::{FileDriver, Status};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

const BLOCK: u64 = 4096;

/// A file on a disk with a limited number of free blocks.
struct Sparse {
    inner: GrowingFile,
    stored: Mutex<BTreeSet<u64>>,
    room: AtomicUsize,
    /// True if it can allocate storage on request and report it.
    able: bool,
    asked: AtomicUsize,
    allocations: AtomicUsize,
}

impl Sparse {
    /// A file of `len` bytes, the first `stored` of which have storage.
    fn new(len: usize, stored: u64, able: bool) -> Arc<Sparse> {
        Arc::new(Sparse {
            inner: GrowingFile::new(vec![0; len]),
            stored: Mutex::new((0..stored / BLOCK).collect()),
            room: AtomicUsize::new(0),
            able,
            asked: AtomicUsize::new(0),
            allocations: AtomicUsize::new(0),
        })
    }

    fn take(&self, offset: u64, len: u64) -> io::Result<()> {
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            if !self.stored.lock().contains(&block) {
                let less = |room: usize| room.checked_sub(1);
                let taken = self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
                taken.map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
                self.stored.lock().insert(block);
            }
        }
        Ok(())
    }

    fn make_room(&self, blocks: usize) {
        self.room.store(blocks, Ordering::SeqCst);
    }
}

impl FileDriver for Sparse {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
}

impl WriteDriver for Sparse {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.take(offset, bytes.len() as u64)?;
        self.inner.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate_storage(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.allocations.fetch_add(1, Ordering::SeqCst);
        if self.able { self.take(offset, len).map(|()| true) } else { Ok(false) }
    }

    fn storage_end(&self, offset: u64) -> Option<u64> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let stored = self.stored.lock();
        let end = (offset / BLOCK..).find(|block| !stored.contains(block)).unwrap_or(0) * BLOCK;
        (self.able && end > offset).then_some(end)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// A transaction with all of the file in use.
fn begun(file: &Arc<Sparse>) -> Transaction {
    let len = file.status().unwrap().len;
    let t = Transaction::new(file.clone(), Box::new(crate::file::memory::MemoryJournal::default()), len).unwrap();
    t.begin();
    t
}

fn errno(result: io::Result<()>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// The changes need a journal: ENOSPC after the file is marked would be too late.
#[test]
fn a_write_into_a_hole_of_a_full_disk_fails_at_once() {
    for able in [true, false] {
        let file = Sparse::new(200_000, BLOCK, able);
        let t = begun(&file);
        assert_eq!(errno(t.write(50_000, &[1; 5000])), Some(libc::ENOSPC));
        assert_eq!(errno(t.write_data(90_000, &[2; 100])), Some(libc::ENOSPC));
        t.finish(true);
        commit(&t);
        file.make_room(3);
        t.begin();
        t.write(50_000, &[1; 5000]).unwrap();
        t.write_data(90_000, &[2; 100]).unwrap();
        t.finish(true);
        assert_eq!(file.room.load(Ordering::SeqCst), 0, "storage for the written bytes only");
        assert!(file.inner.bytes()[512..].iter().all(|b| *b == 0), "not before the commit");
        commit(&t);
        assert!(!t.has_failed());
        let wanted = [(49_999, vec![0]), (50_000, vec![1; 5000]), (55_000, vec![0]), (90_000, vec![2; 100]), (90_100, vec![0])];
        for (at, wanted) in wanted {
            assert_eq!(bytes(&t, at, wanted.len()), wanted);
            assert_eq!(file.inner.bytes()[at as usize..at as usize + wanted.len()], wanted);
        }
    }
}

/// A rollback could not restore bytes in a hole, on a full disk: the commit must be repeatable.
#[test]
fn a_commit_without_space_can_be_repeated() {
    for able in [true, false] {
        let file = Sparse::new(BLOCK as usize, BLOCK, able);
        let t = begun_with(file.clone());
        let (at, _) = t.allocate(2 * KEPT_BYTES_MAX as u64, BLOCK, Pool::Metadata).unwrap();
        t.finish(true);
        t.begin();
        assert_eq!(errno(t.write(at, &[3; 2 * KEPT_BYTES_MAX])), Some(libc::ENOSPC));
        t.finish(false);
        let root = |_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![2; 48], settled: vec![1; 48] });
        assert_eq!(errno(t.commit(&root)), Some(libc::ENOSPC));
        assert!(!t.has_failed() && file.inner.bytes()[0] == 0, "the commit published no byte");
        file.make_room(1000);
        commit(&t);
        assert_eq!(bytes(&t, at, 2 * KEPT_BYTES_MAX), [0; 2 * KEPT_BYTES_MAX]);
    }
}

#[test]
fn a_file_without_holes_needs_few_requests() {
    const LEN: u64 = 10_000 * BLOCK;
    for step in [7, 1, 9_999] {
        let file = Sparse::new(LEN as usize, LEN, true);
        let t = begun(&file);
        t.finish(true);
        for i in 0..10_000 {
            t.begin();
            let at = (5000 + i * step) % 10_000 * BLOCK + 100;
            if i % 2 == 0 {
                t.write(at, &[4; 8]).unwrap()
            } else {
                t.write_data(at, &[4; 8]).unwrap()
            }
            t.finish(true);
        }
        commit(&t);
        assert_eq!(file.allocations.load(Ordering::SeqCst), 0);
        let asked = file.asked.load(Ordering::SeqCst);
        assert!(asked < 150, "asked {asked} times with steps of {step}");
    }
}
