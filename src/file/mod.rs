//! Drivers: bytes at offsets of a file, without HDF5 meaning; transactions and journals over them.

pub mod attempts;
pub mod commit;
pub mod confined;
pub mod directory;
pub mod fault;
pub mod follower_locks;
pub mod free_record;
pub mod host_file;
pub mod host_path;
pub mod journal;
pub mod journal_path;
pub mod lock_holder;
pub mod members;
pub mod memory;
pub mod names;
pub mod objects;
pub mod overlay;
pub mod paged;
pub mod posix;
pub mod reader;
pub mod recorder;
#[cfg(feature = "remote")]
pub mod remote;
pub mod space;
pub mod store;
mod syscall;
pub mod transaction;
pub mod write_order;
pub mod writer_log;

use std::io;
use std::ops::Range;
use std::time::SystemTime;

/// Identity of a file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Properties of the backing file.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// Identity of the file.
    pub identity: Identity,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of allocated storage: fewer than the length if the file has holes.
    pub allocated: u64,
    /// Last access.
    pub atime: SystemTime,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
}

/// Identifies one state of a file. Changes with every change of the file, except for two changes
/// within one tick of the system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Identity of the file.
    pub identity: Identity,
    /// Length in bytes.
    pub len: u64,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
}

impl Status {
    /// The stamp of this status.
    pub fn stamp(&self) -> Stamp {
        Stamp { identity: self.identity, len: self.len, mtime: self.mtime, ctime: self.ctime }
    }
}

/// Read access to a file. Offsets are absolute bytes.
pub trait FileDriver: Send + Sync {
    /// Present identity, length and times.
    fn status(&self) -> io::Result<Status>;

    /// Length and bytes of allocated storage.
    fn extent(&self) -> io::Result<(u64, u64)> {
        self.status().map(|s| (s.len, s.allocated))
    }

    /// Fills the front of `buf` from `offset`; returns the bytes read, fewer than requested only at
    /// EOF.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As `read_at`, of bytes that the memory of the host has. Returns fewer bytes where a disk
    /// would have to be read, or at EOF.
    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset)
    }

    /// End of the hole at `offset`, which has no storage and reads as zeros; `None` if it is no
    /// hole.
    fn hole_end(&self, _offset: u64) -> Option<u64> {
        None
    }

    /// Ranges of offsets that no file of the host has; they read as zeros.
    fn gaps(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Starts read-ahead of `len` bytes from `offset`.
    fn advise(&self, _offset: u64, _len: u64) {}

    /// True if a read takes the time of a request over a network.
    fn is_remote(&self) -> bool {
        false
    }

    /// Its URL, without secrets; `None`: it is a file of this machine.
    fn url(&self) -> Option<&str> {
        None
    }

    /// Announces that the byte ranges `ranges` are likely to be read soon. Starts nothing.
    fn announce(&self, _ranges: &[Range<u64>]) {}

    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Announces to writing mounts that a mount follows the file, until the file is closed.
    fn announce_follower(&self) {}

    /// True while a mount changes the file. That mount does not reuse freed space that a follower
    /// may read for [`space::REST`].
    fn is_changed_by_mount(&self) -> bool {
        false
    }
}

/// Fills the front of `buf` from `offset`, repeating short reads; returns fewer bytes only at EOF.
pub fn read_all(driver: &dyn FileDriver, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0usize;
    while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
        match driver.read_at(rest, offset.saturating_add(done as u64))? {
            0 => break,
            n => done = done.saturating_add(n),
        }
    }
    Ok(done)
}

/// Fills the front of `buf` from `offset` of a file of `len` bytes that lie in several places;
/// returns fewer bytes only at EOF. `part` fills the front of the rest of `buf` from an offset, and
/// returns how many bytes, at least one.
fn read_parts(len: u64, buf: &mut [u8], offset: u64, part: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>) -> io::Result<usize> {
    let n = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
    let buf = buf.get_mut(..n).unwrap_or_default();
    let mut done = 0usize;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done = done.saturating_add(part(rest, offset.saturating_add(done as u64))?.max(1));
    }
    Ok(n)
}

/// Write access to a file. Every method completes its operation or fails.
pub trait WriteDriver: FileDriver {
    /// Writes all of `bytes` at `offset`; extends the file past EOF.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Sets the length to `len` bytes: truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Allocates storage for the first `len` bytes, if the file system can, so that writes there
    /// cannot fail with ENOSPC.
    fn reserve(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Allocates storage for `len` bytes from `offset` without changing them, so that writes there
    /// cannot fail with ENOSPC. False if the file system cannot do that.
    fn allocate_storage(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(true)
    }

    /// Frees the storage of `len` bytes from `offset`, which read as zeros then, if the file system
    /// can.
    fn release_storage(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// End of the allocated storage at `offset`, at least; `None` if it has none or that is
    /// unknown.
    fn storage_end(&self, _offset: u64) -> Option<u64> {
        Some(u64::MAX)
    }

    /// Starts writeback of `len` bytes from `offset`, so that [`WriteDriver::sync`] has less to
    /// write.
    fn begin_writeback(&self, _offset: u64, _len: u64) {}

    /// Makes all writes and the length durable.
    fn sync(&self) -> io::Result<()>;

    /// Announces to following mounts that a mount changes the file, until the file is closed.
    fn announce_writer(&self) {}

    /// True while a mount follows the file.
    fn is_followed(&self) -> bool {
        false
    }
}

/// Place of a file's journal, beside the file.
pub trait JournalPlace: Send + Sync {
    /// Opens the journal, if one exists that may be this file's.
    fn open(&self) -> io::Result<Option<std::sync::Arc<dyn WriteDriver>>>;

    /// Creates the journal with a durable name. Errors: `EEXIST` if another file has the name,
    /// `ESTALE` if the HDF5 file has no name any more.
    fn create(&self) -> io::Result<std::sync::Arc<dyn WriteDriver>>;

    /// True while the created journal has the name that recovery looks for.
    fn is_kept(&self) -> bool {
        true
    }

    /// Checks that the file still has a name. Error: `ESTALE` if it was deleted or replaced.
    fn check_name(&self) -> io::Result<()> {
        Ok(())
    }

    /// Describes a file with the journal's name that cannot be the journal.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Removes the journal that was created or opened, if it still has the name.
    fn remove(&self) -> io::Result<()>;
}
