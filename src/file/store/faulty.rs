//! A store whose requests fail from a number on, before or after they took effect.

use super::ObjectStore;
use super::memory::MemoryStore;
use crate::base::request_error::RequestError;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

/// What becomes of the request with the number of the fault, and of all after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed before it.
    Killed,
    /// It takes effect and its reply is lost, once.
    LostReply,
    /// It takes effect and its reply is lost; all after it fail, until the fault is healed.
    Outage,
    /// Reads fail from that number of reads on, until the fault is healed.
    Unreadable,
    /// From that request on, of any kind, there is no answer. All requests but creations are
    /// repeated by the store until its timeout.
    Silent,
    /// The store takes so many bytes; requests that need more fail with `ENOSPC`.
    Full,
}

/// A memory store with a fault at one of its changing requests.
pub struct FaultyStore {
    store: MemoryStore,
    fault: Fault,
    left: AtomicI64,
}

impl FaultyStore {
    /// `store`, with `fault` at the changing request of this number, from 0 on.
    pub fn new(store: MemoryStore, fault: Fault, number: i64) -> FaultyStore {
        FaultyStore { store, fault, left: AtomicI64::new(number) }
    }

    /// True if the fault occurred.
    pub fn is_hit(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    /// Requests since the fault occurred, that one included.
    pub fn since(&self) -> i64 {
        self.left.load(Ordering::Relaxed).saturating_neg().max(0)
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.left.store(i64::MAX, Ordering::Relaxed);
    }

    /// The fault occurs at the request of this number from now on; a full store has so many bytes.
    pub fn fail_at(&self, number: i64) {
        self.left.store(number, Ordering::Relaxed);
    }

    /// A request of a server that may be silent. `is_transient`: it was not repeated.
    fn ask<T>(&self, is_transient: bool, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            ..=0 => Err(RequestError { errno: libc::ETIMEDOUT, is_transient, text: "the server does not answer".into() }.into()),
            _ => f(),
        }
    }

    /// Errors: there is no room for `bytes` more.
    fn check_room(&self, bytes: &[u8]) -> io::Result<()> {
        let needed = self.store.bytes().saturating_add(bytes.len() as u64);
        let is_full = self.fault == Fault::Full && i64::try_from(needed).is_ok_and(|needed| needed > self.left.load(Ordering::Relaxed));
        if is_full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn change<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.fault {
            Fault::Unreadable | Fault::Full => return f(),
            Fault::Silent => return self.ask(false, f),
            Fault::Killed | Fault::LostReply | Fault::Outage => {}
        }
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        match self.fault {
            Fault::Killed if left <= 0 => Err(io::Error::from_raw_os_error(libc::EIO)),
            Fault::LostReply | Fault::Outage if left == 0 => {
                f()?;
                Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            }
            Fault::Outage if left < 0 => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            _ => f(),
        }
    }

    fn read<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.fault == Fault::Silent {
            return self.ask(false, f);
        }
        let unreadable = self.fault == Fault::Unreadable && self.left.fetch_sub(1, Ordering::Relaxed) <= 0;
        let down = matches!(self.fault, Fault::Killed | Fault::Outage) && self.is_hit();
        if unreadable || down { Err(io::Error::from_raw_os_error(libc::EIO)) } else { f() }
    }
}

impl ObjectStore for FaultyStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.read(|| self.store.get(key, range))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.check_room(bytes)?;
        self.change(|| self.store.put(key, bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        if self.fault == Fault::Silent {
            return self.ask(true, || self.store.create(key, bytes));
        }
        self.check_room(bytes)?;
        self.change(|| self.store.create(key, bytes))
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.read(|| self.store.list_after(prefix, after))
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.read(|| self.store.head(key))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.change(|| self.store.delete(key))
    }

    /// A full store is a folder.
    fn is_near(&self) -> bool {
        self.fault == Fault::Full
    }
}
