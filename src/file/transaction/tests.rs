//! Bytes in memory, the order of writes, and rollback.

use super::*;
use crate::file::FileDriver;
use crate::file::commit::Root;
use crate::file::fault::{Fault, FaultyFile, Plan, UNSURE, WRITE};
use crate::file::memory::{GrowingFile, MemoryJournal};

/// A file of 4,096 bytes, all in use, with the faults of `plan`.
fn begun(plan: &Arc<Plan>) -> (Transaction, Arc<GrowingFile>) {
    let file = Arc::new(GrowingFile::new(vec![0x11; 4096]));
    (begun_with(Arc::new(FaultyFile::new(file.clone(), plan.clone()))), file)
}

pub fn begun_with(driver: Arc<dyn WriteDriver>) -> Transaction {
    let transaction = Transaction::new(driver, Box::new(MemoryJournal::default()), 4096).unwrap();
    transaction.begin();
    transaction
}

pub fn commit(t: &Transaction) {
    let root = |_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![2; 48], settled: vec![1; 48] });
    t.commit(&root).unwrap();
}

pub fn bytes(t: &Transaction, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let n = t.read_at(&mut out, at).unwrap();
    out.truncate(n);
    out
}

fn none() -> Arc<Plan> {
    Plan::new(0, 0, 0, Fault::Errno(0))
}

#[test]
fn small_new_structures_are_read_from_memory() {
    let (t, file) = begun(&none());
    let (at, _) = t.allocate(100, 8, Pool::Metadata).unwrap();
    t.write(at, &[7; 100]).unwrap();
    assert_eq!(bytes(&t, at, 100), [7; 100]);
    let on_disk = |at: u64, len: usize| file.bytes().get(at as usize..at as usize + len).map(<[u8]>::to_vec);
    assert_eq!(on_disk(at, 100), Some(vec![0; 100]), "not before it has to be");
    // It neither hides nor overwrites adjacent elements written directly to the file.
    let (raw, _) = t.allocate(64, 8, Pool::Raw).unwrap();
    t.write_data(raw, &[9; 64]).unwrap();
    assert_eq!(bytes(&t, raw, 64), [9; 64]);
    t.finish(true);
    commit(&t);
    assert_eq!((on_disk(at, 100), on_disk(raw, 64)), (Some(vec![7; 100]), Some(vec![9; 64])));
    assert_eq!(bytes(&t, at, 100), [7; 100]);
}

#[test]
fn a_sector_with_live_and_fresh_bytes_waits_for_the_commit() {
    let (t, file) = begun(&none());
    t.free(1000..1100, Pool::Metadata);
    t.finish(true);
    commit(&t);
    t.begin();
    let (at, _) = t.allocate(64, 8, Pool::Metadata).unwrap();
    assert!((1000..1100).contains(&at), "{at}");
    t.write(at, &[5; 64]).unwrap();
    t.write(900, &[6; 10]).unwrap();
    t.finish(true);
    t.write_fresh_sectors().unwrap();
    assert_eq!(file.bytes()[900..910], [0x11; 10]);
    assert_eq!((bytes(&t, 900, 10), bytes(&t, at, 64)), (vec![6; 10], vec![5; 64]));
    commit(&t);
    assert_eq!((&file.bytes()[900..910], &file.bytes()[at as usize..at as usize + 64]), (&[6; 10][..], &[5; 64][..]));
}

#[test]
fn published_bytes_are_not_taken_for_zeros() {
    let (t, _) = begun(&none());
    let (at, _) = t.allocate(20_000, 8, Pool::Metadata).unwrap();
    t.finish(true);
    commit(&t);
    // Live, but never written: by the journal, then beside it.
    for (i, value) in [(0, 3u8), (1, 4), (2, 5)] {
        t.begin();
        t.write(at + 9000 + i * 100, &[value; 100]).unwrap();
        t.finish(true);
        commit(&t);
    }
    assert_eq!(bytes(&t, at + 9000, 300), [[3; 100], [4; 100], [5; 100]].concat());
}

#[test]
fn dirty_bytes_are_bounded_and_dropped_by_a_rollback() {
    let (t, file) = begun(&none());
    t.finish(true);
    let mut last = 0;
    for i in 0..3000u64 {
        t.begin();
        let (at, _) = t.allocate(4096, 8, Pool::Metadata).unwrap();
        t.write(at, &vec![i as u8; 4096]).unwrap();
        t.finish(true);
        last = at;
    }
    // And the same amount in a background write.
    assert!(t.waiting() < 3 * BATCH_BYTES, "{}", t.waiting());
    assert_eq!(bytes(&t, last, 4096), [2999u64 as u8; 4096]);
    t.begin();
    t.write(last, &[1; 10]).unwrap();
    let (new, _) = t.allocate(100, 8, Pool::Metadata).unwrap();
    t.write(new, &[2; 100]).unwrap();
    t.finish(false);
    assert_eq!(bytes(&t, last, 10), [2999u64 as u8; 10]);
    commit(&t);
    assert_eq!(file.bytes()[last as usize..last as usize + 4096], [2999u64 as u8; 4096]);
    assert!(file.bytes().get(new as usize..new as usize + 100).is_none_or(|b| b == [0; 100]));
}

#[test]
fn an_operation_that_rewrites_the_same_bytes_needs_a_small_undo_log() {
    let (t, _) = begun(&none());
    let (at, _) = t.allocate(8192, 8, Pool::Metadata).unwrap();
    t.write(at, &[1; 8192]).unwrap();
    t.finish(true);
    commit(&t);
    t.begin();
    for i in 0..2000u32 {
        t.write(at + u64::from(i % 7000), &[i as u8; 1000]).unwrap();
    }
    assert!(t.state.read().overlay.undo_bytes() < 1 << 20, "{}", t.state.read().overlay.undo_bytes());
    t.finish(false);
    assert_eq!(bytes(&t, at, 8192), [1; 8192]);
}

#[test]
fn storage_is_allocated_before_batching() {
    let cannot_allocate = Plan::new(UNSURE, 0, 0, Fault::Errno(0));
    let (t, file) = begun(&cannot_allocate);
    let (at, _) = t.allocate(100, 8, Pool::Metadata).unwrap();
    t.write(at, &[7; 100]).unwrap();
    assert_eq!(file.bytes()[at as usize..at as usize + 100], [7; 100]);
    // The first length change extends the file, the second allocates storage, twice.
    let full = Plan::new(crate::file::fault::LENGTH, 1, 100, Fault::Errno(libc::ENOSPC));
    let (t, _) = begun(&full);
    let (at, _) = t.allocate(100, 8, Pool::Metadata).unwrap();
    assert_eq!(t.write(at, &[7; 100]).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
}

/// Else readers would read a hole of a terabyte, zero by zero.
#[test]
fn holes_are_known_while_a_file_is_changed() {
    const MIB: u64 = 1 << 20;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8 * MIB).unwrap();
    let driver = Arc::new(crate::file::host_file::HostFile::open(file.path()).unwrap().open_writable().unwrap());
    let t = Transaction::new(driver, Box::new(MemoryJournal::default()), 8 * MIB).unwrap();
    t.begin();
    assert_eq!(t.hole_end(0), Some(8 * MIB));
    // Dirty bytes and bytes of the file are no hole.
    t.write(4 * MIB, &[1; 100]).unwrap();
    assert_eq!((t.hole_end(5), t.hole_end(4 * MIB), t.hole_end(5 * MIB)), (Some(4 * MIB), None, Some(8 * MIB)));
    let (fresh, _) = t.allocate(MIB, 8, Pool::Raw).unwrap();
    t.write_data(fresh, &vec![1; MIB as usize]).unwrap();
    assert_eq!(t.hole_end(fresh), None);
    t.finish(true);
    commit(&t);
    assert_eq!((t.hole_end(MIB), t.hole_end(4 * MIB)), (Some(4 * MIB), None));
}

#[test]
fn allocated_bytes_without_writes_are_zeros() {
    let (t, _) = begun(&none());
    const LEN: u64 = 1 << 28;
    let (at, zeros) = t.allocate(LEN, 4096, Pool::Raw).unwrap();
    assert!(zeros && t.written_in(at..at + LEN).is_empty());
    let old = t.written_in(0..at + 5);
    assert!(old.len() == 1 && old[0] == (0..4096));
    t.write_data(at + 10_000, b"data").unwrap();
    t.write(at + 500_000, b"structure").unwrap();
    t.free(at..at + LEN, Pool::Raw);
    t.finish(true);
    let (again, zeros) = t.allocate(LEN, 4096, Pool::Raw).unwrap();
    assert_eq!((again, zeros), (at, false));
    assert_eq!(t.written_in(at..at + LEN), [at + 8192..at + 12_288, at + 499_712..at + 503_808]);
    for i in 0..20_000 {
        t.write_data(at + 600_000 + i * 12_288, b"x").unwrap();
    }
    let parts = t.written_in(at..at + LEN);
    assert!(parts.len() < 1 << 14 && parts[0].start == at && parts.last().unwrap().end > at + 600_000 + 19_999 * 12_288);
}

/// Bytes past the recorded EOF, without a journal, would be kept at the next open.
#[test]
fn a_session_without_a_final_commit_leaves_no_bytes_past_the_recorded_eof() {
    let plan = Plan::new(WRITE, 0, 1, Fault::Errno(libc::ENOSPC));
    plan.pause(true);
    let (transaction, file) = begun(&plan);
    let (at, _) = transaction.allocate(100_000, 8, Pool::Raw).unwrap();
    transaction.write_data(at, &[7; 100_000]).unwrap();
    transaction.finish(true);
    assert!(file.bytes().len() > 100_000);
    plan.pause(false);
    let root = |_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![2; 48], settled: vec![3; 48] });
    assert_eq!(transaction.close(&root).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert!(file.bytes() == [0x11; 4096]);
}

/// A file on a nearly full disk: `reserve` allocates all free space before it fails, as ext4 does.
struct NearlyFull {
    file: GrowingFile,
    room: u64,
}

impl FileDriver for NearlyFull {
    fn status(&self) -> std::io::Result<crate::file::Status> {
        self.file.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.file.read_at(buf, offset)
    }
}

impl WriteDriver for NearlyFull {
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, len: u64) -> std::io::Result<()> {
        let now = self.file.status()?.len;
        self.file.set_len(now.max(len.min(self.room)))?;
        if len > self.room { Err(std::io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Regression: the journal's reservation filled a nearly full disk, so that removals failed.
#[test]
fn the_journal_leaves_room_on_a_nearly_full_disk() {
    for (room, reserved) in
        [(0, 56), (4 << 10, 56), (8 << 10, 4 << 10), (100 << 10, 16 << 10), (256 << 10, 64 << 10), (512 << 10, 256 << 10)]
    {
        let disk = NearlyFull { file: GrowingFile::new(vec![0; 56]), room };
        super::JournalRoom::default().begin(&disk);
        assert_eq!(disk.file.bytes().len(), reserved, "{room}");
    }
}

/// The kernel reports that bytes could not be written to one fsync of a descriptor.
#[test]
fn an_error_of_an_early_sync_fails_the_commit() {
    use crate::file::fault::SYNC;
    for (bytes, early) in [(8usize << 20, true), (64 << 10, false)] {
        let plan = Plan::new(SYNC, 0, 1, Fault::Errno(libc::EIO));
        let t = begun_with(Arc::new(FaultyFile::new(Arc::new(GrowingFile::new(vec![0; 4096])), plan.clone())));
        let (at, _) = t.allocate(bytes as u64, 8, Pool::Raw).unwrap();
        t.write_data(at, &vec![7; bytes]).unwrap();
        t.finish(true);
        t.sync_early();
        assert_eq!(plan.has_struck(), early);
        let root = |_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![2; 48], settled: vec![1; 48] });
        assert_eq!(t.commit(&root).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(t.has_failed());
    }
}
