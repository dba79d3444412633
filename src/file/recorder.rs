//! A driver that keeps a log of what is done to a file and its journal: what crash tests replay.

use super::{FileDriver, JournalPlace, Status, WriteDriver};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Which of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The container.
    File,
    /// Its journal.
    Journal,
}

/// One step.
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
    /// The journal is removed; not durable before anything else makes it so.
    Remove,
    /// The caller was told that all so far is durable: put in by tests.
    Acknowledged(u64),
}

/// The steps in their order.
pub type Log = Arc<Mutex<Vec<Step>>>;

/// Passes everything on and keeps the log.
pub struct Recorder {
    inner: Arc<dyn WriteDriver>,
    target: Target,
    log: Log,
    /// It cannot take room before it is written to: nothing is put together before it is written.
    unsure: bool,
}

impl Recorder {
    /// Records what is done to the container `inner`.
    pub fn new(inner: Arc<dyn WriteDriver>, log: Log) -> Self {
        Recorder { inner, target: Target::File, log, unsure: false }
    }

    /// As on a file system that cannot take room on request.
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

    fn provide(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(!self.unsure)
    }

    fn stored_to(&self, offset: u64) -> Option<u64> {
        self.inner.stored_to(offset).filter(|_| !self.unsure)
    }

    fn sync(&self) -> io::Result<()> {
        self.log.lock().push(Step::Sync(self.target));
        self.inner.sync()
    }
}

/// The same for the journal.
pub struct RecordedPlace<P> {
    inner: P,
    log: Log,
}

impl<P: JournalPlace> RecordedPlace<P> {
    /// Records what is done to the journal at `inner`.
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
