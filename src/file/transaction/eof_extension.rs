//! Extends the recorded EOF over bytes written by another process, before our first change.
//!
//! From the first change on a journal is beside the file, which marks bytes past the recorded EOF
//! as ours. A file without changes stays as it is.

use super::Transaction;
use crate::base::locks::Mutex;
use crate::file::read_all;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Superblock to write before the first change, and its offset.
#[derive(Default)]
pub struct ScheduledEof {
    pending: AtomicBool,
    superblock: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Transaction {
    /// Schedules `superblock`, at `offset` and within a sector, to be written before the first
    /// change.
    pub fn schedule_eof(&self, offset: u64, superblock: Vec<u8>) {
        *self.scheduled_eof.superblock.lock() = Some((offset, superblock));
        self.scheduled_eof.pending.store(true, Ordering::Release);
    }

    /// Writes and syncs the scheduled superblock, if any. The next change retries after an error,
    /// unless the content of the disk is unknown.
    pub(super) fn write_scheduled_eof(&self) -> io::Result<()> {
        if !self.scheduled_eof.pending.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut superblock = self.scheduled_eof.superblock.lock();
        let Some((offset, bytes)) = superblock.as_ref() else { return Ok(()) };
        let mut old = vec![0; bytes.len()];
        read_all(&*self.driver, &mut old, *offset)?;
        let written = self.driver.write_at(bytes, *offset);
        let unknown = match &written {
            Ok(()) => self.driver.sync().err(),
            Err(_) => self.driver.write_at(&old, *offset).err(),
        };
        if let Some(e) = unknown {
            self.failed.store(true, Ordering::Release);
            return Err(e);
        }
        written?;
        tracing::warn!("kept the bytes past the recorded end of the file: they may be data");
        superblock.take();
        self.scheduled_eof.pending.store(false, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::file::fault::{Fault, FaultyFile, Plan, SYNC, WRITE};
    use crate::file::memory::{GrowingFile, MemoryJournal};
    use crate::file::space::Pool;
    use crate::file::transaction::Transaction;
    use std::sync::Arc;

    #[test]
    fn the_eof_is_extended_before_a_journal_exists_or_nothing_changes() {
        // (what fails, how often, whether that is all)
        for (kind, times, ends) in [(WRITE, 0, false), (WRITE, 1, false), (WRITE, u32::MAX, true), (SYNC, 1, true)] {
            let file = Arc::new(GrowingFile::new(vec![7; 5000]));
            let driver = FaultyFile::new(file.clone(), Plan::new(kind, 0, times, Fault::Errno(libc::ENOSPC)));
            let t = Transaction::new(Arc::new(driver), Box::new(MemoryJournal::default()), 5000).unwrap();
            t.schedule_eof(0, vec![1; 48]);
            assert!(file.bytes() == [7; 5000], "not before there is a change");
            t.begin();
            // A write that fails once did so when the operation began: the change itself tries
            // again.
            let allocated = t.allocate(100, 8, Pool::Raw);
            t.finish(allocated.is_ok());
            assert_eq!((allocated.is_err(), t.has_failed()), (ends, ends), "{kind} {times}");
            assert_eq!(t.place.open().unwrap().is_some(), times == 0);
            if ends {
                assert_eq!(file.bytes().len(), 5000);
                assert_eq!(allocated.unwrap_err().raw_os_error(), Some(libc::EROFS));
            } else {
                assert!(allocated.unwrap().0 >= 5000);
                assert!(file.bytes()[..48] == [1; 48] && file.bytes()[48..5000] == [7; 4952]);
            }
        }
    }
}
