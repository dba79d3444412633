//! What lies behind the end of file that the superblock tells, and is not ours: told before the first change, as from then on there
//! is a journal beside the file, which says that what lies there is ours. A file that is not changed stays as it is.

use super::Transaction;
use crate::file::read_all;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The superblock to be written.
#[derive(Default)]
pub struct Tail {
    waits: AtomicBool,
    superblock: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Transaction {
    /// Has `superblock`, which lies at `offset` and within a sector, written and made durable before the first change.
    pub fn tell_first(&self, offset: u64, superblock: Vec<u8>) {
        *self.tail.superblock.lock() = Some((offset, superblock));
        self.tail.waits.store(true, Ordering::Release);
    }

    /// Does it, if it was not done yet. After an error it is tried again with the next change, unless it cannot be known what the
    /// disk holds.
    pub(super) fn tell_tail(&self) -> io::Result<()> {
        if !self.tail.waits.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut superblock = self.tail.superblock.lock();
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
        tracing::warn!("what lies behind the end of the file that its superblock told is kept: it may be data");
        superblock.take();
        self.tail.waits.store(false, Ordering::Release);
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
    fn it_is_told_before_there_is_a_journal_or_nothing_is_changed() {
        // (what fails, how often, whether that is all)
        for (kind, times, ends) in [(WRITE, 0, false), (WRITE, 1, false), (WRITE, u32::MAX, true), (SYNC, 1, true)] {
            let file = Arc::new(GrowingFile::new(vec![7; 5000]));
            let driver = FaultyFile::new(file.clone(), Plan::new(kind, 0, times, Fault::Errno(libc::ENOSPC)));
            let t = Transaction::new(Arc::new(driver), Box::new(MemoryJournal::default()), 5000).unwrap();
            t.tell_first(0, vec![1; 48]);
            assert!(file.bytes() == [7; 5000], "not before there is a change");
            t.begin();
            // A write that fails once did so when the operation began: the change itself tries again.
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
