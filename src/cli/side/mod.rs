//! The sides of `cp`, `cat` and `diff`: objects of containers, and local files.
//!
//! ```text
//! argument   FILE:/PATH, a local path, or -      opened   the containers of a command
//! container  objects of a view as a source       local    local files as a source
//! whole      files and directories without a path in them
//! ```

pub(crate) mod argument;
pub(crate) mod container;
pub(crate) mod local;
pub(crate) mod opened;
pub(crate) mod whole;

use crate::fs::model::StoredLink;
use std::io;
use std::ops::Range;
use std::time::SystemTime;

/// Bytes of one read or write: several chunks are decoded at the same time.
pub(crate) const PIECE_BYTES: usize = 4 << 20;
/// Directories within each other that are walked: a path has at most 4096 bytes.
pub(crate) const DEPTH_MAX: usize = 1024;
/// Longest fact or extended attribute, bytes.
pub(crate) const FACT_MAX: u64 = 64 << 20;
/// Prefix of extended attributes that h5dir derives.
pub(crate) const FACT_PREFIX: &[u8] = b"user.h5dir.";
/// Path of the view in which datasets of strings are shown element by element, without loss.
pub(crate) const EXACT_VIEW: &[u8] = b"/.h5dir/exact";
/// Extended attribute that sets which elements are defined.
pub(crate) const DEFINED_XATTR: &[u8] = b"user.h5dir.defined";

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideKind {
    /// A directory or a group.
    Directory,
    /// A regular file or a dataset.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}

impl SideKind {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SideKind::Directory => "directory",
            SideKind::Regular => "file",
            SideKind::Symlink => "symlink",
            SideKind::Other => "special file",
        }
    }
}

/// Attributes of a file.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    /// Kind of file.
    pub(crate) kind: SideKind,
    /// Permission bits (07777).
    pub(crate) perm: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Size, bytes; of a file whose text is made at open it is 0.
    pub(crate) size: u64,
    /// Hard links.
    pub(crate) links: u64,
    /// Device or container, and inode number.
    pub(crate) identity: (u64, u64),
    /// Last access.
    pub(crate) atime: SystemTime,
    /// Last change of content.
    pub(crate) mtime: SystemTime,
}

/// A file, directory or link that is read.
pub(crate) trait Source {
    /// Its attributes.
    fn meta(&self) -> &Meta;

    /// Names in the directory, sorted.
    fn names(&self) -> io::Result<Vec<Vec<u8>>>;

    /// The file `name` of the directory. Links are not followed.
    fn child(&self, name: &[u8]) -> io::Result<Box<dyn Source>>;

    /// Target of the symbolic link.
    fn target(&self) -> io::Result<Vec<u8>>;

    /// Opens the file for reading.
    fn open(&self) -> io::Result<Box<dyn Content>>;

    /// Names of its extended attributes. Links have none.
    fn xattr_names(&self) -> io::Result<Vec<Vec<u8>>>;

    /// Value of an extended attribute; of a fact at most `FACT_MAX` bytes.
    fn xattr(&self, name: &[u8]) -> io::Result<Vec<u8>>;

    /// The link by which it was found, as its container stores it.
    fn stored_link(&self) -> io::Result<Option<StoredLink>> {
        Ok(None)
    }

    /// The object of a container that it is.
    fn as_object(&self) -> Option<&container::ObjectSource> {
        None
    }
}

/// Bytes of an open file.
pub(crate) trait Content {
    /// Fills `buf` from `offset`; fewer bytes only at EOF.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The first range at or after `offset` that is not a hole; `None` if only a hole follows.
    fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>>;

    /// The next range at or after `offset` that may have been written; bytes outside are those of a
    /// fill value, repeated at most every 64 KiB.
    fn written(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.data(offset)
    }

    /// Size, bytes.
    fn size(&self) -> io::Result<u64>;

    /// The open file of a container.
    fn as_object(&self) -> Option<&container::ObjectContent> {
        None
    }
}
