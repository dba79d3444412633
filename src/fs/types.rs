//! Plain types of the file-system interface.

use std::time::SystemTime;

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

/// What `stat` shows.
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
}

/// Answer to a lookup.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Attributes, with the inode number.
    pub attr: Attr,
    /// Generation of the inode number.
    pub generation: u64,
    /// The name may lead elsewhere after a change that is made under another: it is not to be remembered.
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
    /// What is created is empty, also if it was there.
    pub truncate: bool,
    /// Of a write: pages are written back, which a mapping changed.
    pub written_back: bool,
}

/// An opened file.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// Its handle.
    pub handle: Handle,
    /// The page cache of earlier opens is still right (FOPEN_KEEP_CACHE).
    pub keep_cache: bool,
    /// Bypass the page cache (FOPEN_DIRECT_IO): content whose size is not known, or that is only written.
    pub direct_io: bool,
    /// Closing a descriptor has nothing to do or tell (FOPEN_NOFLUSH).
    pub no_flush: bool,
}

/// What `setattr` changes; `None` = nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Size, bytes.
    pub size: Option<u64>,
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
}

/// What `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// What `statfs` shows.
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
