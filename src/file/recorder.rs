//! A driver that logs operations on a file and its journal; crash tests replay the log.

use super::{FileDriver, JournalPlace, Status, WriteDriver};
use crate::base::locks::Mutex;
use std::io;
use std::sync::Arc;

/// File of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The container.
    File,
    /// Its journal.
    Journal,
}

/// One logged operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Bytes written at an offset.
    Write(Target, u64, Arc<[u8]>),
    /// A length set.
    SetLen(Target, u64),
    /// All steps so far on this file are durable.
    Sync(Target),
    /// The journal's name is durable.
    Create,
    /// The journal is removed, not yet durably.
    Remove,
    /// All steps so far were acknowledged as durable; logged by tests.
    Acknowledged(u64),
}

/// Steps in order.
pub type Log = Arc<Mutex<Vec<Step>>>;

/// A driver that forwards operations and logs them.
pub struct Recorder {
    inner: Arc<dyn WriteDriver>,
    target: Target,
    log: Log,
    /// True if the file system cannot allocate storage on request, so that nothing is batched.
    unsure: bool,
}

impl Recorder {
    /// Logs operations on the container `inner`.
    pub fn new(inner: Arc<dyn WriteDriver>, log: Log) -> Self {
        Recorder { inner, target: Target::File, log, unsure: false }
    }

    /// Simulates a file system that cannot allocate storage on request.
    pub fn unsure(self) -> Self {
        Recorder { unsure: true, ..self }
    }
}

impl FileDriver for Recorder {
    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
}

impl WriteDriver for Recorder {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.log.lock().push(Step::Write(self.target, offset, bytes.into()));
        self.inner.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.log.lock().push(Step::SetLen(self.target, len));
        self.inner.set_len(len)
    }

    fn allocate_storage(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(!self.unsure)
    }

    fn storage_end(&self, offset: u64) -> Option<u64> {
        self.inner.storage_end(offset).filter(|_| !self.unsure)
    }

    fn sync(&self) -> io::Result<()> {
        self.log.lock().push(Step::Sync(self.target));
        self.inner.sync()
    }
}

/// A journal place that logs operations.
pub struct RecordedPlace<P> {
    inner: P,
    log: Log,
}

impl<P: JournalPlace> RecordedPlace<P> {
    /// Logs operations on the journal at `inner`.
    pub fn new(inner: P, log: Log) -> Self {
        RecordedPlace { inner, log }
    }

    fn recorded(&self, inner: Arc<dyn WriteDriver>) -> Arc<dyn WriteDriver> {
        Arc::new(Recorder { inner, target: Target::Journal, log: self.log.clone(), unsure: false })
    }
}

impl<P: JournalPlace> JournalPlace for RecordedPlace<P> {
    fn open(&self) -> io::Result<Option<Arc<dyn WriteDriver>>> {
        Ok(self.inner.open()?.map(|f| self.recorded(f)))
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        self.log.lock().push(Step::Create);
        Ok(self.recorded(self.inner.create()?))
    }

    fn remove(&self) -> io::Result<()> {
        self.log.lock().push(Step::Remove);
        self.inner.remove()
    }
}
