//! Driver over bytes in memory: tests, fuzzing and the reference model.

use super::{FileDriver, Identity, Status};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// An immutable file in memory.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    bytes: Arc<[u8]>,
    id: u64,
}

impl MemoryFile {
    /// A file that holds `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        MemoryFile { bytes: bytes.into(), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl FileDriver for MemoryFile {
    fn status(&self) -> io::Result<Status> {
        let t = SystemTime::UNIX_EPOCH;
        Ok(Status {
            identity: Identity { device: u64::MAX, inode: self.id },
            len: self.bytes.len() as u64,
            allocated: self.bytes.len() as u64,
            atime: t,
            mtime: t,
            ctime: t,
        })
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}
