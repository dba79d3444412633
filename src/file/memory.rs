//! Drivers over bytes in memory, for tests, fuzzing and the reference model.

use super::{FileDriver, Identity, JournalPlace, Status, WriteDriver};
use crate::base::locks::{Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// An immutable file in memory.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    bytes: Arc<[u8]>,
    id: u64,
}

impl MemoryFile {
    /// A file with the content `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        MemoryFile { bytes: bytes.into(), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl FileDriver for MemoryFile {
    fn status(&self) -> io::Result<Status> {
        Ok(status(self.id, self.bytes.len()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(read(&self.bytes, buf, offset))
    }
}

fn status(id: u64, len: usize) -> Status {
    let t = SystemTime::UNIX_EPOCH;
    Status { identity: Identity { device: u64::MAX, inode: id }, len: len as u64, allocated: len as u64, atime: t, mtime: t, ctime: t }
}

fn read(bytes: &[u8], buf: &mut [u8], offset: u64) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
    let n = rest.len().min(buf.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// A writable file in memory. All have one identity: each stands for the only file of its
/// container, even after a simulated restart.
#[derive(Debug)]
pub struct GrowingFile {
    bytes: RwLock<Vec<u8>>,
}

impl GrowingFile {
    /// A file with the content `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        GrowingFile { bytes: RwLock::new(bytes.into()) }
    }

    /// Present content.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl FileDriver for GrowingFile {
    fn status(&self) -> io::Result<Status> {
        Ok(status(0, self.bytes.read().len()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(read(&self.bytes.read(), buf, offset))
    }
}

impl WriteDriver for GrowingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        let start = usize::try_from(offset).map_err(|_| full())?;
        let end = start.checked_add(bytes.len()).ok_or_else(full)?;
        let mut file = self.bytes.write();
        if file.len() < end {
            file.resize(end, 0);
        }
        if let Some(target) = file.get_mut(start..end) {
            target.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
        self.bytes.write().resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A journal in memory.
#[derive(Default)]
pub struct MemoryJournal(Mutex<Option<Arc<GrowingFile>>>);

impl MemoryJournal {
    /// A journal with the content `bytes`, or no journal.
    pub fn new(bytes: Option<Vec<u8>>) -> Self {
        MemoryJournal(Mutex::new(bytes.map(|b| Arc::new(GrowingFile::new(b)))))
    }

    /// Content of the journal, if it exists.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.0.lock().as_ref().map(|f| f.bytes())
    }
}

impl JournalPlace for MemoryJournal {
    fn open(&self) -> io::Result<Option<Arc<dyn WriteDriver>>> {
        Ok(self.0.lock().clone().map(|f| f as Arc<dyn WriteDriver>))
    }

    fn create(&self) -> io::Result<Arc<dyn WriteDriver>> {
        Ok(self.0.lock().get_or_insert_with(|| Arc::new(GrowingFile::new(Vec::new()))).clone())
    }

    fn remove(&self) -> io::Result<()> {
        self.0.lock().take();
        Ok(())
    }
}
