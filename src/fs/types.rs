//! Plain types of the file-system interface.

use std::time::SystemTime;

/// Result of a file-system operation: the errno a POSIX caller expects.
pub type FsResult<T> = Result<T, Errno>;

/// An errno value, positive, e.g. `libc::ENOENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Inode number: 1 is the root of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// Root of the mount.
pub const ROOT: Ino = Ino(1);

/// Number of an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The three kinds of file shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A group.
    Directory,
    /// A dataset or other bytes.
    Regular,
    /// A link.
    Symlink,
}

/// Attributes of an inode, as stat(2) returns them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u16,
    /// Hard links.
    pub nlink: u32,
    /// Size, bytes.
    pub size: u64,
    /// Allocated storage, units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size, bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: SystemTime,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
    /// Creation.
    pub btime: SystemTime,
    /// Owner.
    pub uid: u32,
    /// Group owner.
    pub gid: u32,
    /// The kernel must not cache them: the size is found while the file is read, or was not found.
    pub is_brief: bool,
}

impl Attr {
    /// Attributes of an empty file or directory of root, all of whose times are `time`.
    pub fn empty(ino: Ino, kind: FileKind, perm: u16, time: SystemTime) -> Attr {
        let [atime, mtime, ctime, btime] = [time; 4];
        let (nlink, size, blocks, blksize, uid, gid, is_brief) = (1, 0, 0, 4096, 0, 0, false);
        Attr { ino, kind, perm, nlink, size, blocks, blksize, atime, mtime, ctime, btime, uid, gid, is_brief }
    }
}

/// Answer to a lookup.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Attributes, with the inode number.
    pub attr: Attr,
    /// Generation of the inode number.
    pub generation: u64,
    /// A change made under another name may change where this one leads: the kernel must not cache
    /// it.
    pub volatile: bool,
}

/// One name of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Kind of file.
    pub kind: FileKind,
    /// File name.
    pub name: &'a [u8],
    /// Offset to resume after this entry.
    pub next: u64,
}

/// One name of a directory with its attributes.
#[derive(Debug, Clone, Copy)]
pub struct DirEntryPlus<'a> {
    /// File name.
    pub name: &'a [u8],
    /// Attributes.
    pub entry: Entry,
    /// Offset to resume after this entry.
    pub next: u64,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Opened for reading.
    pub read: bool,
    /// Opened for writing, truncation or appending.
    pub write: bool,
    /// Each write goes to the end.
    pub append: bool,
    /// Each write is durable before it is answered.
    pub sync: bool,
    /// The kernel maps files whose descriptors bypass the page cache.
    pub maps_direct: bool,
    /// A created file is empty, even if it existed.
    pub truncate: bool,
    /// The write is writeback of pages that a mapping dirtied.
    pub written_back: bool,
    /// A write, or the truncation of a file that is there, clears the set-ID bits of the file: the
    /// process has no `CAP_FSETID`.
    pub clears_set_id: bool,
}

/// Why the last changes are not in the file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CloseError {
    /// The errno of the system, `EIO` for anything else.
    pub errno: Errno,
    /// The changes are the part of a peer of a transaction that was not finished.
    pub is_unfinished: bool,
    /// One sentence.
    pub message: String,
}

/// An opened file.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// Its handle.
    pub handle: Handle,
    /// Pages cached by earlier opens are valid (FOPEN_KEEP_CACHE).
    pub keep_cache: bool,
    /// Bypass the page cache (FOPEN_DIRECT_IO): the size is unknown, or the file is only written.
    pub direct_io: bool,
    /// Closing a descriptor needs no FLUSH request (FOPEN_NOFLUSH).
    pub no_flush: bool,
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Size, bytes.
    pub size: Option<u64>,
    /// No open file sets the size: it is `truncate(2)`, or `open(2)` with `O_TRUNC`.
    pub by_path: bool,
    /// Last change of content.
    pub mtime: Option<SystemTime>,
    /// Last access.
    pub atime: Option<SystemTime>,
    /// Permission bits; those of the file type are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group owner.
    pub gid: Option<u32>,
    /// The set-ID bits are cleared: a process without `CAP_FSETID` changes the bytes.
    pub clears_set_id: bool,
}

/// State of a container: the number of what another writer made of it, and the number of changes
/// through this mount.
pub type Version = (u64, u64);

/// Owner, group and mode of a file to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creator {
    /// Owner: the user of the process.
    pub uid: u32,
    /// Group of the process. A directory with the set-group-ID bit overrides it.
    pub gid: u32,
    /// Mode, the umask applied; bits of the file type are ignored.
    pub mode: u32,
}

/// A process that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// What a process reads.
#[derive(Debug, Clone, Copy)]
pub enum Sight<'a> {
    /// The extended attribute of this name.
    Xattr(&'a [u8]),
    /// The bytes of a file.
    Bytes,
}

/// Target of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// Totals of the file system, as statfs(2) returns them.
#[derive(Debug, Clone, Copy)]
pub struct Statfs {
    /// Unit of the counts, bytes.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that can still be written.
    pub free: u64,
    /// Inodes in all; 0 when not known.
    pub files: u64,
    /// Longest file name, bytes.
    pub name_max: u32,
}
