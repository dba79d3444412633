//! File-system semantics over a container: what each operation means, without any FUSE type.
//!
//! `fuse` translates kernel requests to [`Operations`] and back and decides nothing.

pub mod container;
mod cut_names;
mod errno;
mod file;
pub mod memory;
pub mod name;
pub mod nodes;
pub mod open;
pub mod spec;
pub mod symlink;
pub mod types;
mod view;
mod xattr;

pub use open::open;
pub use spec::{ExternalPolicy, MountSpec, OpenError};
pub use types::{Attr, DirEntry, DirEntryPlus, Entry, Errno, FileKind, Handle, Ino, OpenMode, Opened, Statfs, Whence};

use std::ops::ControlFlow;

/// Result of a file-system operation: the errno a POSIX caller expects.
pub type FsResult<T> = Result<T, Errno>;

/// The operations of a mounted file system. All take `&self` and may run in parallel.
pub trait Operations: Send + Sync + 'static {
    /// The entry `name` of directory `parent`; the kernel holds one reference per successful call.
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry>;

    /// The kernel drops `count` references to `ino`.
    fn forget(&self, ino: Ino, count: u64);

    /// Attributes of `ino`.
    fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Target of the symbolic link `ino`.
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Opens a regular file.
    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened>;

    /// Fills `buf` from byte `offset`; returns the bytes read, less than asked only at end of file.
    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// Closes a handle of `open`.
    fn release(&self, ino: Ino, handle: Handle);

    /// Opens a directory.
    fn opendir(&self, ino: Ino) -> FsResult<Handle>;

    /// Entries after `offset` (0 = from the start), each with the offset to resume after it;
    /// stops when `f` breaks.
    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()>;

    /// As `readdir`, with attributes. An entry that `f` accepts (returns `Continue`) counts as looked
    /// up once, except `.` and `..`; one that `f` refuses (returns `Break`) does not.
    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()>;

    /// Closes a handle of `opendir`.
    fn releasedir(&self, ino: Ino, handle: Handle);

    /// Value of the extended attribute `name` (whole name, with its namespace).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Names of the extended attributes, each followed by NUL.
    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// The next data or hole at or after `offset`; ENXIO past the end.
    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64>;

    /// Totals of the file system.
    fn statfs(&self) -> FsResult<Statfs>;
}
