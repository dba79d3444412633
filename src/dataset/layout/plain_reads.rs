//! Reads of elements that are stored as they are, by a caller with a lock that it releases while a
//! disk is read.

use super::traits::Deferred;
use crate::base::{Address, Result};
use crate::file::{FileDriver, read_all};
use crate::meta::Store;
use std::cell::RefCell;
use std::sync::Arc;

/// True if a disk has the first or the last of `len` bytes from `address`, and no memory.
pub(super) fn is_on_disk(store: &Store, address: Address, len: usize) -> bool {
    let last = address.checked_add((len as u64).saturating_sub(1)).unwrap_or(address);
    [address, last].iter().any(|at| store.read_raw_in_memory(*at, &mut [0]).is_ok_and(|there| !there))
}

/// Reads stored bytes; notes those that only a disk has instead of waiting for it.
pub(super) struct PlainReads<'a> {
    store: &'a Store,
    /// What brings the noted bytes into the memory of the host; `None`: they are read at once.
    cold: Option<RefCell<Vec<Deferred<'a>>>>,
}

impl<'a> PlainReads<'a> {
    /// Reads of `store`. `defers`: they do not wait for a disk.
    pub fn new(store: &'a Store, defers: bool) -> PlainReads<'a> {
        PlainReads { store, cold: defers.then(RefCell::default) }
    }

    /// Fills `buf` with the bytes from `address`, unless it notes them.
    pub fn read(&self, address: Address, buf: &mut [u8]) -> Result<()> {
        match &self.cold {
            None => self.store.read_raw(address, buf),
            Some(cold) => {
                if !self.store.read_raw_in_memory(address, buf)? {
                    let (store, len) = (self.store, buf.len());
                    cold.borrow_mut().push(Box::new(move || store.warm(address, len)));
                }
                Ok(())
            }
        }
    }

    /// Fills `buf` from `offset` of another file by `read`, unless it notes that.
    pub fn read_other(
        &self,
        file: &Arc<dyn FileDriver>,
        offset: u64,
        buf: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if let Some(cold) = &self.cold
            && file.read_in_memory(buf, offset).is_ok_and(|n| n < buf.len())
        {
            let (file, len) = (file.clone(), buf.len());
            cold.borrow_mut().push(Box::new(move || drop(read_all(&*file, &mut vec![0; len], offset))));
            return Ok(());
        }
        read(buf)
    }

    /// Brings what was noted into the memory of the host. `None`: nothing was noted, all reads are
    /// done.
    pub fn deferred(self) -> Option<Deferred<'a>> {
        let cold = self.cold.map(RefCell::into_inner).filter(|cold| !cold.is_empty())?;
        Some(Box::new(move || cold.into_iter().for_each(|warm| warm())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Status;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A file of sevens that a disk has until it is read.
    struct Cold(AtomicBool);

    impl FileDriver for Cold {
        fn status(&self) -> io::Result<Status> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn read_at(&self, buf: &mut [u8], _: u64) -> io::Result<usize> {
            self.0.store(false, Ordering::SeqCst);
            buf.fill(7);
            Ok(buf.len())
        }

        fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            if self.0.load(Ordering::SeqCst) { Ok(0) } else { self.read_at(buf, offset) }
        }
    }

    #[test]
    fn other_files_on_a_disk_are_read_when_the_lock_is_released() {
        let (store, file) = (Store::over_bytes(vec![0; 8]), Arc::new(Cold(AtomicBool::new(true))));
        let (driver, mut buf): (Arc<dyn FileDriver>, _) = (file.clone(), [0; 100]);
        let reads = PlainReads::new(&store, true);
        reads.read_other(&driver, 5, &mut buf, |_| panic!("waited")).unwrap();
        assert!(buf == [0; 100] && file.0.load(Ordering::SeqCst));
        reads.deferred().unwrap()();
        let reads = PlainReads::new(&store, true);
        reads.read_other(&driver, 5, &mut buf, |buf| file.read_at(buf, 5).map(drop).map_err(|e| panic!("{e}"))).unwrap();
        assert!(buf == [7; 100] && reads.deferred().is_none());
    }
}
