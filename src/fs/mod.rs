//! File-system semantics over a container: what each operation means, without any FUSE type.
//!
//! `fuse` translates kernel requests to [`Operations`] and back and decides nothing.

mod attribute_files;
pub mod container;
pub mod create_rules;
mod cut_names;
mod errno;
mod file;
mod follow;
mod handles;
mod listing;
pub mod memory;
pub mod name;
pub mod nodes;
mod npy_write;
pub mod open;
mod padding;
pub mod page_guard;
mod replaced;
mod side;
pub mod spec;
mod status;
pub mod symlink;
mod times;
pub mod types;
mod view;
mod view_writers;
mod write;
mod xattr;

pub use open::open;
pub use spec::{ExternalPolicy, MountSpec, OpenError};
pub use types::{Attr, Changes, DirEntry, DirEntryPlus, Entry, Errno, FileKind, Handle, Ino, OpenMode, Opened, Statfs, Whence};

use page_guard::Hidden;
use std::ops::ControlFlow;

/// Result of a file-system operation: the errno a POSIX caller expects.
pub type FsResult<T> = Result<T, Errno>;

/// Why the last changes are not in the file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CloseError {
    /// The errno of the system, `EIO` for anything else.
    pub errno: Errno,
    /// One sentence.
    pub message: String,
}

/// What the kernel remembers of a mounted file system, to be forgotten. Calls may wait for requests that are under way: never made by
/// who serves one, nor with a lock that one may need.
pub trait KernelMemory: Send + Sync {
    /// The attributes and the bytes, listing or target of `ino`.
    fn forget_inode(&self, ino: Ino);
    /// What the name `name` in directory `parent` is.
    fn forget_name(&self, parent: Ino, name: &[u8]);
}

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

    /// Fills `buf`, bytes from `offset` on behind the end of a file, with what they will be when the file grows; false where these are
    /// zeros, as the kernel takes them to be. For its pages only: no program is to see them.
    fn pad(&self, _handle: Handle, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }

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

    /// Looks whether others changed the container, and if they did has the kernel forget what is not true any more. Not called by
    /// who serves a request.
    fn look(&self, _kernel: &dyn KernelMemory) {}

    /// True when the operations below can succeed.
    fn is_writable(&self) -> bool {
        false
    }

    /// Writes `data` at byte `offset`, or at the end where the file was opened so; returns the bytes written. `now`: how
    /// the descriptor is open now, or this write is to be.
    fn write(&self, _ino: Ino, _handle: Handle, _offset: u64, _data: &[u8], _now: OpenMode) -> FsResult<usize> {
        Err(Errno(libc::EROFS))
    }

    /// The last write through this handle, if pages of it must be dropped before it is answered; [`Operations::pages_dropped`] says
    /// that they are.
    fn hidden(&self, _handle: Handle) -> Option<Hidden> {
        None
    }

    /// The kernel has dropped the pages that [`Operations::hidden`] named.
    fn pages_dropped(&self, _handle: Handle) {}

    /// Files whose bytes were changed, since this was asked last, through others that show the same dataset: open ones.
    fn changed_elsewhere(&self) -> Vec<Ino> {
        Vec::new()
    }

    /// A byte of the page to be read anew, as the last change through this handle left bytes out behind it that are not zeros.
    fn skipped(&self, _handle: Handle) -> Option<u64> {
        None
    }

    /// Changes attributes; returns what they are then.
    fn setattr(&self, _ino: Ino, _changes: &Changes) -> FsResult<Attr> {
        Err(Errno(libc::EROFS))
    }

    /// Opens the file `name`, which is made unless it is there; `exclusive`: then it fails. The kernel holds
    /// one reference more.
    fn create(&self, _parent: Ino, _name: &[u8], _mode: OpenMode, _exclusive: bool) -> FsResult<(Entry, Opened)> {
        Err(Errno(libc::EROFS))
    }

    /// Makes an empty file. The kernel holds one reference more, as after `lookup`; so below.
    fn mknod(&self, _parent: Ino, _name: &[u8]) -> FsResult<Entry> {
        Err(Errno(libc::EROFS))
    }

    /// Makes an empty directory.
    fn mkdir(&self, _parent: Ino, _name: &[u8]) -> FsResult<Entry> {
        Err(Errno(libc::EROFS))
    }

    /// Removes a name that is no directory's.
    fn unlink(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Removes an empty directory.
    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Moves a name; `flags` are those of renameat2(2).
    fn rename(&self, _from: (Ino, &[u8]), _to: (Ino, &[u8]), _flags: u32) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Another name for a file.
    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> FsResult<Entry> {
        Err(Errno(libc::EROFS))
    }

    /// Makes a symbolic link.
    fn symlink(&self, _parent: Ino, _name: &[u8], _target: &[u8]) -> FsResult<Entry> {
        Err(Errno(libc::EROFS))
    }

    /// Sets an extended attribute (whole name, with its namespace); `flags` are those of setxattr(2).
    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _flags: i32) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Removes an extended attribute.
    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Allocates, zeroes or punches; `mode` is that of fallocate(2).
    fn fallocate(&self, _ino: Ino, _handle: Handle, _offset: u64, _len: u64, _mode: i32) -> FsResult<()> {
        Err(Errno(libc::EROFS))
    }

    /// Copies bytes of one open file to another one; returns how many, perhaps fewer than asked. `EOPNOTSUPP`: whoever asks may
    /// read and write them.
    fn copy_range(&self, _from: (Handle, u64), _to: (Handle, u64), _len: u64) -> FsResult<u64> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// A descriptor of the file is closed.
    fn flush(&self, _ino: Ino, _handle: Handle) -> FsResult<()> {
        Ok(())
    }

    /// Makes all changes so far durable (fsync of a file or a directory).
    fn fsync(&self, _ino: Ino) -> FsResult<()> {
        self.commit()
    }

    /// Makes all changes so far durable, if there are any.
    fn commit(&self) -> FsResult<()> {
        Ok(())
    }

    /// Makes all changes durable and closes the container: nothing is asked for afterwards. Later calls do nothing.
    fn shutdown(&self) -> Result<(), CloseError> {
        Ok(())
    }
}
