//! A driver that fails as planned, for I/O fault tests.

use super::{FileDriver, JournalPlace, Status, WriteDriver};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this errno and does nothing.
    Errno(i32),
    /// A write of the first half, then `ENOSPC`; a short read of half the bytes.
    Short,
}

/// Operations to count and the ones that fail; shared by a file and its journal.
#[derive(Debug)]
pub struct Plan {
    /// Operations before the first failure.
    left: AtomicI64,
    /// Number of consecutive failures.
    times: i64,
    fault: Fault,
    kinds: u8,
    paused: AtomicBool,
}

/// Reads.
pub const READ: u8 = 1;
/// Writes.
pub const WRITE: u8 = 2;
/// Syncs.
pub const SYNC: u8 = 4;
/// Length changes.
pub const LENGTH: u8 = 8;
/// Creating and removing the journal.
pub const NAME: u8 = 16;
/// Not an operation: the file system can neither allocate storage on request nor report it.
pub const UNSURE: u8 = 32;

impl Plan {
    /// Fails operation `n` (from 0) of `kinds` and the `times - 1` operations after it.
    pub fn new(kinds: u8, n: u64, times: u32, fault: Fault) -> Arc<Plan> {
        Arc::new(Plan {
            left: AtomicI64::new(i64::try_from(n).unwrap_or(i64::MAX)),
            times: i64::from(times),
            fault,
            kinds,
            paused: AtomicBool::new(false),
        })
    }

    /// Pauses or resumes the plan; while it is paused, no operation counts or fails.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    /// Repeats the fault after `n` operations.
    pub fn arm(&self, n: i64) {
        self.left.store(n, Ordering::SeqCst);
    }

    /// True after the fault.
    pub fn has_struck(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn strike(&self, kind: u8) -> Option<Fault> {
        if self.kinds & kind == 0 || self.paused.load(Ordering::SeqCst) {
            return None;
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        (left <= 0 && left > -self.times).then_some(self.fault)
    }

    fn check(&self, kind: u8) -> io::Result<()> {
        match self.strike(kind) {
            None => Ok(()),
            Some(Fault::Errno(e)) => Err(io::Error::from_raw_os_error(e)),
            Some(Fault::Short) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        }
    }
}

/// A driver that forwards operations unless the plan fails them.
pub struct FaultyFile {
    inner: Arc<dyn WriteDriver>,
    plan: Arc<Plan>,
    /// Initial length; bytes past it may be holes.
    first: u64,
}

impl FaultyFile {
    /// Wraps `inner` with the faults of `plan`.
    pub fn new(inner: Arc<dyn WriteDriver>, plan: Arc<Plan>) -> Self {
        let first = inner.extent().map_or(0, |(len, _)| len);
        FaultyFile { inner, plan, first }
    }
}

impl FileDriver for FaultyFile {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.plan.strike(READ) {
            None => self.inner.read_at(buf, offset),
            Some(Fault::Errno(e)) => Err(io::Error::from_raw_os_error(e)),
            Some(Fault::Short) => {
                let half = buf.len().div_ceil(2);
                self.inner.read_at(buf.get_mut(..half).unwrap_or_default(), offset)
            }
        }
    }
}

impl WriteDriver for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.plan.strike(WRITE) {
            None => self.inner.write_at(bytes, offset),
            Some(Fault::Errno(e)) => Err(io::Error::from_raw_os_error(e)),
            Some(Fault::Short) => {
                self.inner.write_at(bytes.get(..bytes.len() / 2).unwrap_or_default(), offset)?;
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plan.check(LENGTH)?;
        self.inner.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.inner.reserve(len)
    }

    fn allocate_storage(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.plan.check(LENGTH)?;
        Ok(self.inner.allocate_storage(offset, len)? && self.plan.kinds & UNSURE == 0)
    }

    fn storage_end(&self, offset: u64) -> Option<u64> {
        (self.plan.kinds & UNSURE == 0 && offset < self.first).then_some(self.first)
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.check(SYNC)?;
        self.inner.sync()
    }
}

/// A journal place that fails as planned.
pub struct FaultyPlace<P> {
    inner: P,
    plan: Arc<Plan>,
}

impl<P: JournalPlace> FaultyPlace<P> {
    /// Wraps `inner` with the faults of `plan`.
    pub fn new(inner: P, plan: Arc<Plan>) -> Self {
        FaultyPlace { inner, plan }
    }
}

impl<P: JournalPlace> JournalPlace for FaultyPlace<P> {
    fn open(&self) -> io::Result<Option<Arc<dyn WriteDriver>>> {
        self.plan.check(NAME)?;
        let wrap = |inner| Arc::new(FaultyFile::new(inner, self.plan.clone())) as Arc<dyn WriteDriver>;
        Ok(self.inner.open()?.map(wrap))
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        self.plan.check(NAME)?;
        Ok(Arc::new(FaultyFile::new(self.inner.create()?, self.plan.clone())))
    }

    fn is_kept(&self) -> bool {
        self.inner.is_kept()
    }

    fn check_name(&self) -> io::Result<()> {
        self.inner.check_name()
    }

    fn remove(&self) -> io::Result<()> {
        self.plan.check(NAME)?;
        self.inner.remove()
    }
}
