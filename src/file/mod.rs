//! Bytes at offsets, with no HDF5 meaning: the driver trait and its implementations.

pub mod commit;
pub mod confined;
pub mod directory;
pub mod fault;
pub mod follower_locks;
pub mod host_file;
pub mod journal;
pub mod journal_path;
pub mod memory;
pub mod overlay;
pub mod posix;
pub mod recorder;
pub mod space;
pub mod transaction;

use std::io;
use std::time::SystemTime;

/// Which file this is, whatever name it was opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// What is known of the backing file beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// Which file it is.
    pub identity: Identity,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of storage it takes: fewer than its length where it has holes.
    pub allocated: u64,
    /// Last access.
    pub atime: SystemTime,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
}

/// What tells one state of a file from another: it changes with every change of the file, except for one that comes so soon
/// after another that the system's clock did not tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Which file it is.
    pub identity: Identity,
    /// Length in bytes.
    pub len: u64,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
}

impl Status {
    /// The state that this describes.
    pub fn stamp(&self) -> Stamp {
        Stamp { identity: self.identity, len: self.len, mtime: self.mtime, ctime: self.ctime }
    }
}

/// A file as the engine sees it. Offsets are absolute bytes.
pub trait FileDriver: Send + Sync {
    /// Identity, length and times now.
    fn status(&self) -> io::Result<Status>;

    /// Length, and bytes of storage, as [`FileDriver::status`] tells them.
    fn extent(&self) -> io::Result<(u64, u64)> {
        self.status().map(|s| (s.len, s.allocated))
    }

    /// Fills the front of `buf` from `offset`; returns the bytes read, less than asked only at end of file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// If `offset` lies in a hole, which takes no storage and reads as zeros, where the hole ends.
    fn hole_end(&self, _offset: u64) -> Option<u64> {
        None
    }

    /// Tells the system that `len` bytes from `offset` will be read soon.
    fn advise(&self, _offset: u64, _len: u64) {}

    /// Shows mounts that change the file that it is followed, as long as it is open.
    fn announce_follower(&self) {}

    /// True while a mount changes the file, which leaves space alone for [`space::REST`] that a follower may still read.
    fn is_changed_by_mount(&self) -> bool {
        false
    }
}

/// As [`FileDriver::read_at`], but less than asked is nothing else than the end of the file, whatever the driver.
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

/// A file that can be changed. No method returns before the whole of what it was asked is done, or failed.
pub trait WriteDriver: FileDriver {
    /// Writes all of `bytes` from `offset` on; beyond the end the file grows.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the file `len` bytes long: cut, or followed by zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Takes room on the disk for the first `len` bytes, if the file system can, so that writing there needs none.
    fn reserve(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Takes room on the disk for `len` bytes from `offset` on, whose content stays what it is, so that writing there needs
    /// none. False: the file system cannot do that.
    fn provide(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(true)
    }

    /// If `offset` has storage, so that writing there needs none, where that ends at least. `None` where that is not known.
    fn stored_to(&self, _offset: u64) -> Option<u64> {
        Some(u64::MAX)
    }

    /// Has the system begin to write `len` bytes from `offset` to the disk, so that less is left for [`WriteDriver::sync`].
    fn begin_writeback(&self, _offset: u64, _len: u64) {}

    /// Makes all that was written and the length durable.
    fn sync(&self) -> io::Result<()>;

    /// Shows mounts that follow the file that a mount changes it, as long as it is open.
    fn announce_writer(&self) {}

    /// True while a mount follows the file.
    fn is_followed(&self) -> bool {
        false
    }
}

/// Where the journal of a file lies: beside it.
pub trait JournalPlace: Send + Sync {
    /// The journal, if there is one that may be this file's.
    fn open(&self) -> io::Result<Option<std::sync::Arc<dyn WriteDriver>>>;

    /// Creates the journal; its name is durable when this returns. Errors: `EEXIST` when something else has the name, `ESTALE`
    /// when the file has no name any more.
    fn create(&self) -> io::Result<std::sync::Arc<dyn WriteDriver>>;

    /// True while the journal that `create` made has the name that recovery looks for.
    fn is_kept(&self) -> bool {
        true
    }

    /// Checks that the file still has a name. Error: `ESTALE` when it was deleted or replaced.
    fn check_name(&self) -> io::Result<()> {
        Ok(())
    }

    /// What has the journal's name and cannot be the journal: a sentence.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// Removes the journal that `create` made or `open` found, if it still has the name.
    fn remove(&self) -> io::Result<()>;
}
