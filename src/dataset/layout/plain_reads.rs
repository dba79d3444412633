//! Reads of elements that are stored as they are, by a caller with a lock that it releases while a
//! disk is read.

use super::traits::Deferred;
use crate::base::{Address, Result};
use crate::meta::Store;
use std::cell::RefCell;

/// True if a disk has the first or the last of `len` bytes from `address`, and no memory.
pub(super) fn is_on_disk(store: &Store, address: Address, len: usize) -> bool {
    let last = address.checked_add((len as u64).saturating_sub(1)).unwrap_or(address);
    [address, last].iter().any(|at| store.read_raw_in_memory(*at, &mut [0]).is_ok_and(|there| !there))
}

/// Reads stored bytes; notes those that only a disk has instead of waiting for it.
pub(super) struct PlainReads<'a> {
    store: &'a Store,
    /// Address and length of what a disk must be read for; `None`: it is read at once.
    cold: Option<RefCell<Vec<(Address, usize)>>>,
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
                    cold.borrow_mut().push((address, buf.len()));
                }
                Ok(())
            }
        }
    }

    /// Brings what was noted into the memory of the host. `None`: nothing was noted, all reads are
    /// done.
    pub fn deferred(self) -> Option<Deferred<'a>> {
        let PlainReads { store, cold } = self;
        let cold = cold.map(RefCell::into_inner).filter(|cold| !cold.is_empty())?;
        Some(Box::new(move || cold.into_iter().for_each(|(address, len)| store.warm(address, len))))
    }
}
