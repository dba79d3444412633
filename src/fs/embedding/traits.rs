//! What an embedder says: where a file is, and how the answers about it read outside.

use crate::fs::operations::KernelMemory;
use crate::fs::types::{Attr, CloseError, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened};
use crate::fs::{Done, Invalidate, Operations};
use std::ops::ControlFlow;
use std::time::Duration;

/// What a request does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It reads bytes, names, extended attributes, or what stat(2) shows of names in it.
    Read,
    /// It changes bytes, names or extended attributes.
    Change,
    /// It reads what stat(2) shows of the file itself.
    Stat,
    /// It changes that, or gives the file another name.
    SetStat,
    /// It makes changes durable.
    Sync,
}

/// Where a file is.
pub enum At<T> {
    /// In the file system of the embedder.
    Own,
    /// In an embedded one.
    Inside(T),
    /// In an embedded one that is not open, so nothing is to be closed or made durable there. Only
    /// for [`Use::Sync`] and [`Embedder::at_close`].
    Closed,
}

/// A file that was looked up in an embedded file system.
pub struct Entered {
    /// The entry outside.
    pub entry: Entry,
    /// The embedded file system counts a look-up that the embedder does not keep.
    pub surplus: bool,
}

/// A file of an embedded file system, for the time of one request. "Outside" are the numbers that
/// the kernel uses.
pub trait Inside {
    /// The embedded file system.
    fn operations(&self) -> &dyn Operations;

    /// The number of the file there.
    fn ino(&self) -> Ino;

    /// True if `other` is in the same file system.
    fn is_beside(&self, other: &Self) -> bool;

    /// Attributes of the file, which is `outside`.
    fn attr(&self, outside: Ino, attr: Attr) -> Attr {
        Attr { ino: outside, ..attr }
    }

    /// The embedded file system counted a look-up of `name` in this directory.
    fn entered(&self, name: &[u8], entry: Entry) -> FsResult<Entered>;

    /// An entry of a listing, not taken by the kernel: neither side counts it.
    fn refused(&self, entered: &Entered);

    /// The number outside of `inner`, listed as `name` in this directory, `.` or `..` among them.
    fn listed(&self, name: &[u8], inner: Ino) -> Ino;

    /// This open directory is going to be listed.
    fn lists(&self) {}

    /// The file that is `outside` was opened.
    fn opened(&self, outside: Ino, opened: Opened, mode: OpenMode) -> FsResult<Opened>;

    /// This directory was opened.
    fn opened_directory(&self, handle: Handle) -> Handle;

    /// What the kernel must drop, in the numbers outside.
    fn outward(&self, invalidate: Invalidate) -> Invalidate;

    /// Removes a name of this directory; `is_directory`: it must be one.
    fn remove(&self, name: &[u8], is_directory: bool) -> Done<()> {
        remove_name(self.operations(), self.ino(), name, is_directory)
    }

    /// Moves a name of this directory to another one beside it, `to`.
    fn rename(&self, name: &[u8], to: (&Self, &[u8]), flags: u32) -> Done<()> {
        self.operations().rename((self.ino(), name), (to.0.ino(), to.1), flags)
    }
}

/// Removes `name` of the directory `parent`; `is_directory`: it must be one.
pub fn remove_name(operations: &dyn Operations, parent: Ino, name: &[u8], is_directory: bool) -> Done<()> {
    if is_directory { operations.rmdir(parent, name) } else { operations.unlink(parent, name) }
}

/// A file system that shows others within it.
pub trait Embedder: Send + Sync + 'static {
    /// A file of an embedded file system.
    type Inside<'a>: Inside;

    /// The file system of the embedder itself. It gets the requests for its own files, and those
    /// for the mount as a whole.
    fn own(&self) -> &dyn Operations;

    /// Where `ino` is; opens the embedded file system if it is not open.
    fn at(&self, ino: Ino, by: Use) -> FsResult<At<Self::Inside<'_>>>;

    /// Where the open file `handle` is, and its handle there. `ino` is its number, or 0: some
    /// requests have none.
    fn at_handle(&self, ino: Ino, handle: Handle) -> FsResult<At<(Self::Inside<'_>, Handle)>>;

    /// As [`Embedder::at_handle`], to close it: opens nothing.
    fn at_close(&self, ino: Ino, handle: Handle) -> FsResult<At<(Self::Inside<'_>, Handle)>>;

    /// The open file `handle` of an embedded file system was closed, `inside` unless that was
    /// closed before.
    fn closed(&self, handle: Handle, inside: Option<&Self::Inside<'_>>);

    /// The kernel drops `count` references to `ino`.
    fn forget(&self, ino: Ino, count: u64);

    /// What stat(2) shows of a file that is [`At::Own`] for [`Use::Stat`].
    fn own_attr(&self, ino: Ino) -> FsResult<Attr> {
        self.own().getattr(ino)
    }

    /// Looks a name of an own directory up.
    fn own_lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.own().lookup(parent, name)
    }

    /// Lists an own directory with attributes.
    fn own_list_plus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.own().readdirplus(ino, handle, offset, f)
    }

    /// See [`Operations::look`].
    fn look(&self, kernel: &dyn KernelMemory) {
        self.own().look(kernel);
    }

    /// See [`Operations::look_interval`].
    fn look_interval(&self) -> Option<Duration> {
        self.own().look_interval()
    }

    /// See [`Operations::shutdown`].
    fn shutdown(&self) -> Result<(), CloseError> {
        self.own().shutdown()
    }
}

impl<T> At<T> {
    /// The same place for a request that needs the file system to be open. Errors: `ESTALE`.
    pub(super) fn open(self) -> FsResult<Option<T>> {
        match self {
            At::Own => Ok(None),
            At::Inside(at) => Ok(Some(at)),
            At::Closed => Err(Errno(libc::ESTALE)),
        }
    }
}
