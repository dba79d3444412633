//! How files are copied.

use super::sink::PLAIN_MODE_BITS;
use crate::cli::side::{Meta, SideKind};
use crate::fs::model::Definition;
use std::io;

/// How datasets of a copy are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// As they are.
    Kept,
    /// As they are, but those of a log as ordinary ones.
    NoLog,
    /// As new datasets of the destination, which has a log.
    InLog,
}

impl Storage {
    /// The definition of a copy that is stored so.
    pub(super) fn of(self, definition: Definition) -> Definition {
        match self {
            Storage::Kept => definition,
            Storage::NoLog => definition.without_log(),
            Storage::InLog => definition.in_log(),
        }
    }
}

/// How files are copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Directories are copied.
    pub(super) recursive: bool,
    /// Owners, and modes as they are, are kept.
    pub(super) owner: bool,
    /// Bits of modes that are not kept without `owner`.
    pub(super) umask: u32,
    /// Directories that are there get the attributes of their sources.
    pub(super) archive: bool,
    /// The destination was made for this copy.
    pub(super) new_destination: bool,
    /// Extended attributes are kept.
    pub(super) xattrs: bool,
    /// An attribute that the destination cannot have is a warning.
    pub(super) xattrs_may_fail: bool,
    /// Existing files stay as they are.
    pub(super) no_clobber: bool,
    /// Only files that are newer than existing ones replace them.
    pub(super) update: bool,
    /// Nothing is changed.
    pub(super) dry_run: bool,
    /// What cannot be overwritten is replaced.
    pub(super) force: bool,
    /// Existing datasets get another number of rows.
    pub(super) resize: bool,
    /// How datasets are stored.
    pub(super) storage: Storage,
    /// Virtual datasets get elements of their own.
    pub(super) dereference: bool,
    /// The copy refers to the bytes of elements where they are, if it can.
    pub(super) link: bool,
}

impl Manner {
    /// True if `found` stays because `source` is not newer. Times of a destination that has whole
    /// seconds only are compared by seconds.
    fn is_current(&self, source: &Meta, found: &Meta) -> bool {
        let since = |meta: &Meta| meta.mtime.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let (source, found) = (since(source), since(found));
        let is_older = if found.subsec_nanos() == 0 { source.as_secs() <= found.as_secs() } else { source <= found };
        self.update && is_older
    }

    /// False if the existing file `found` stays. Errors: a file cannot replace a directory.
    pub(super) fn may_replace(&self, source: &Meta, found: Option<&Meta>) -> io::Result<bool> {
        match found {
            Some(_) if self.no_clobber => Ok(false),
            Some(there) if there.kind == SideKind::Directory => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            Some(there) if there.kind == SideKind::Other => {
                Err(io::Error::other("the destination is a device, pipe or socket; use 'h5dir cat'"))
            }
            Some(there) => Ok(!self.is_current(source, there)),
            None => Ok(true),
        }
    }

    /// Attributes of the copy of a file with those of `source`; `found`: those of the file that it
    /// replaces.
    pub(super) fn attributes(&self, source: &Meta, found: Option<&Meta>) -> Meta {
        let perm = match found.filter(|found| found.kind == SideKind::Regular) {
            _ if self.owner => source.perm,
            // As with cp: what was private stays private.
            Some(found) => found.perm & PLAIN_MODE_BITS,
            None => source.perm & PLAIN_MODE_BITS & !self.umask,
        };
        Meta { perm, ..source.clone() }
    }
}
