//! The operations of a mounted file system, without any FUSE type.

use super::done::{Done, Invalidate};
use super::model::ObjectModel;
use super::types::{
    Attr, Caller, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, Sight,
    Statfs, Whence,
};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The kernel's caches of a mounted file system. Calls may wait for requests in flight: a thread
/// that serves a request must not make them, nor one that holds a lock which a request may need.
pub trait KernelMemory: Send + Sync {
    /// Drops the attributes and the pages, listing or target of `ino`.
    fn forget_inode(&self, ino: Ino);
    /// Drops the name `name` in directory `parent`.
    fn forget_name(&self, parent: Ino, name: &[u8]);
}

/// The operations of a mounted file system. All take `&self` and may run in parallel.
pub trait Operations: Send + Sync + 'static {
    /// The entry `name` of directory `parent`; the kernel holds one reference per successful call.
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry>;

    /// What the user of the mount should know, in one line.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The kernel drops `count` references to `ino`.
    fn forget(&self, ino: Ino, count: u64);

    /// The object of the container that `ino` is, by a number that is the same in another opening;
    /// `None`: it is no object, or that is not known.
    fn object(&self, _ino: Ino) -> Option<u64> {
        None
    }

    /// Attributes of `ino`.
    fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Target of the symbolic link `ino`.
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Opens a regular file.
    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened>;

    /// Fills `buf` from byte `offset`; returns the bytes read, less than asked only at end of file.
    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// A listing with attributes takes no longer than one without them.
    fn lists_attributes(&self) -> bool {
        true
    }

    /// True if some files are files of the host.
    fn has_host_files(&self) -> bool {
        false
    }

    /// The file of the host whose bytes are those of the open file `handle`.
    fn host_file(&self, _handle: Handle) -> Option<OwnedFd> {
        None
    }

    /// Fills `buf` with what the bytes from `offset` on, past EOF, will be when the file grows.
    /// False: they will be zeros, as the kernel assumes. For pages of the kernel only: no program
    /// may see them.
    fn pad(&self, _handle: Handle, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }

    /// Closes a handle of `open`.
    fn release(&self, ino: Ino, handle: Handle) -> Invalidate;

    /// Opens a directory.
    fn opendir(&self, ino: Ino) -> FsResult<Handle>;

    /// Entries after `offset` (0 = from the start), each with the offset to resume after it;
    /// stops when `f` breaks.
    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()>;

    /// As `readdir`, with attributes. An entry that `f` accepts (returns `Continue`) counts as
    /// looked up once, except `.` and `..`; one that `f` refuses (returns `Break`) does not.
    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()>;

    /// Closes a handle of `opendir`.
    fn releasedir(&self, ino: Ino, handle: Handle);

    /// Value of the extended attribute `name` (whole name, with its namespace).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Checks that `caller` may see the paths that a text names. Errors: `EACCES`.
    fn check_sight(&self, _ino: Ino, _sight: Sight<'_>, _caller: Caller) -> FsResult<()> {
        Ok(())
    }

    /// Names of the extended attributes, each followed by NUL.
    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// The derived fact `user.h5dir.NAME`, of at most `limit` bytes, which may be more than an
    /// extended attribute has. Errors: `ENODATA`, `E2BIG`.
    fn fact(&self, ino: Ino, name: &str, limit: u64) -> FsResult<Vec<u8>> {
        let value = self.getxattr(ino, format!("user.h5dir.{name}").as_bytes())?;
        if value.len() as u64 > limit { Err(Errno(libc::E2BIG)) } else { Ok(value) }
    }

    /// The next data or hole at or after `offset`; ENXIO past the end.
    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64>;

    /// Totals of the file system.
    fn statfs(&self) -> FsResult<Statfs>;

    /// Checks whether another process changed the container, and if so has the kernel drop what is
    /// outdated. A thread that serves a request must not call it.
    fn look(&self, _kernel: &dyn KernelMemory) {}

    /// Time between calls of `look` that are needed even if nothing is checked for changes.
    fn look_interval(&self) -> Option<Duration> {
        None
    }

    /// The counters as lines of a name and a value, as `.h5dir/status` shows them.
    fn status(&self) -> String {
        String::new()
    }

    /// Measurements in the text format of Prometheus, each with the label `mountpoint`.
    fn measurements(&self, _mountpoint: &Path) -> String {
        String::new()
    }

    /// Changes the memory for caches. False: it cannot be changed.
    fn set_cache_bytes(&self, _bytes: u64) -> bool {
        false
    }

    /// True when the operations below can succeed.
    fn is_writable(&self) -> bool {
        false
    }

    /// True if names, listings and link targets may change without a notice to the kernel.
    fn names_may_change(&self) -> bool {
        self.is_writable()
    }

    /// True if names in the directory `ino` change without a change of the container.
    fn is_volatile(&self, _ino: Ino) -> bool {
        false
    }

    /// Writes `data` at byte `offset`, or at EOF with `O_APPEND`; returns the bytes written.
    /// `mode`: flags of the descriptor now, and of this write.
    fn write(&self, _ino: Ino, _handle: Handle, _offset: u64, _data: &[u8], _mode: OpenMode) -> Done<usize> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Sets attributes; returns all of them.
    fn setattr(&self, _ino: Ino, _changes: &Changes) -> Done<Attr> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Opens the file `name`, created unless it is there; `exclusive`: it must not be there. The
    /// kernel holds one reference more.
    fn create(&self, _parent: Ino, _name: &[u8], _creator: Creator, _mode: OpenMode, _exclusive: bool) -> Done<(Entry, Opened)> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Creates an empty file. The kernel holds one reference more, as after `lookup`; so below.
    fn mknod(&self, _parent: Ino, _name: &[u8], _creator: Creator) -> Done<Entry> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Creates an empty directory.
    fn mkdir(&self, _parent: Ino, _name: &[u8], _creator: Creator) -> Done<Entry> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Removes the name of a file that is not a directory.
    fn unlink(&self, _parent: Ino, _name: &[u8]) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Removes an empty directory.
    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Moves a name; `flags` are those of renameat2(2).
    fn rename(&self, _from: (Ino, &[u8]), _to: (Ino, &[u8]), _flags: u32) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Creates another name of a file.
    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> Done<Entry> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Creates a symbolic link.
    fn symlink(&self, _parent: Ino, _name: &[u8], _target: &[u8], _creator: Creator) -> Done<Entry> {
        Err(Errno(libc::EROFS)).into()
    }

    /// True if pages that the kernel has of `ino` may hold stores that were not written yet. The
    /// caller has them written before the elements of the dataset move.
    fn has_stored_pages(&self, _ino: Ino) -> bool {
        false
    }

    /// Sets an extended attribute (whole name, with its namespace); `flags` are those of
    /// setxattr(2).
    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _flags: i32) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Removes an extended attribute.
    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Allocates, zeroes or punches; `mode` is that of fallocate(2).
    fn fallocate(&self, _ino: Ino, _handle: Handle, _offset: u64, _len: u64, _mode: i32) -> Done<()> {
        Err(Errno(libc::EROFS)).into()
    }

    /// Copies bytes between open files; returns how many, perhaps fewer than `len`. `EOPNOTSUPP`:
    /// the caller may read and write them.
    fn copy_range(&self, _from: (Handle, u64), _to: (Handle, u64), _len: u64) -> Done<u64> {
        Err(Errno(libc::EOPNOTSUPP)).into()
    }

    /// The object that `ino` shows, for a file system of another container. Errors: `EOPNOTSUPP`,
    /// it shows none.
    fn model(&self, _ino: Ino) -> FsResult<ObjectModel> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// A descriptor of the file is closed.
    fn flush(&self, _ino: Ino, _handle: Handle) -> Done<()> {
        Ok(()).into()
    }

    /// Makes all changes so far durable (fsync of a file or a directory).
    fn fsync(&self, _ino: Ino) -> Done<()> {
        self.commit().into()
    }

    /// Makes all changes so far durable, if there are any, at the end of an interval. May be left
    /// to a later call.
    fn commit(&self) -> FsResult<()> {
        Ok(())
    }

    /// Makes all changes durable and closes the container. Later calls do nothing.
    fn shutdown(&self) -> Result<(), CloseError> {
        Ok(())
    }
}
