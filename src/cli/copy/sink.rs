//! The destination of a copy: what both kinds of it can do.

use crate::cli::failure::reason;
use crate::cli::side::Meta;
use crate::cli::side::container::{Container, Held, ObjectContent, ObjectSource};
use crate::fs::model::{ChunkStorage, Definition, ObjectModel, Original, StoredChunk, StoredLink};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Bits of a mode that a copy keeps: a copy never runs as another user.
pub(super) const KEPT_MODE_BITS: u32 = 0o1777;
/// Bits of a mode that a copy without `-a` takes over.
pub(super) const PLAIN_MODE_BITS: u32 = 0o777;

/// A file to be made.
pub(super) struct NewFile<'a> {
    /// Its name.
    pub(super) name: &'a [u8],
    /// Attributes of the source.
    pub(super) meta: &'a Meta,
    /// There is a file of this name.
    pub(super) exists: bool,
    /// The source has a type: an existing dataset is replaced instead of overwritten.
    pub(super) typed: bool,
    /// An existing dataset that cannot be overwritten is replaced.
    pub(super) force: bool,
    /// An existing dataset gets as many rows as the source has.
    pub(super) resize: bool,
}

/// A link to be made.
pub(super) enum NewLink {
    /// A symbolic link to this target.
    Target(Vec<u8>),
    /// A link as another container stores it.
    Stored(StoredLink),
    /// A hard link to a group of the destination.
    Group(Arc<Held>),
}

/// A finished file that may get more names.
#[derive(Clone)]
pub(super) enum Finished {
    /// In a container.
    Object(Arc<Held>),
    /// A local file: path below the top directory of the destination, device and inode number.
    Local(Rc<Vec<Vec<u8>>>, (u64, u64)),
}

/// A directory of the destination.
pub(super) trait SinkDirectory {
    /// Device or container, and inode number.
    fn identity(&self) -> io::Result<(u64, u64)>;

    /// Attributes of the file `name`; `None` if there is none. Links are not followed.
    fn find(&self, name: &[u8]) -> io::Result<Option<Meta>>;

    /// The existing directory `name`; no link.
    fn enter(&self, name: &[u8]) -> io::Result<Rc<dyn SinkDirectory>>;

    /// Makes a directory. Only its owner can use it until it gets the mode of `meta`.
    fn make_directory(&self, name: &[u8], meta: &Meta) -> io::Result<Rc<dyn SinkDirectory>>;

    /// Makes a map that `map` defines; `exists`: the directory is there, and must be such a map.
    fn make_map(&self, _name: &[u8], _map: &Definition, _meta: &Meta, _exists: bool) -> io::Result<Rc<dyn SinkDirectory>> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Begins a file. It has its name once it is finished.
    fn make_file(&self, new: &NewFile<'_>) -> io::Result<Box<dyn SinkFile>>;

    /// Path of a local directory below the one that the user named; `None`: it is a group.
    fn local_path(&self) -> Option<&[Vec<u8>]> {
        None
    }

    /// Makes a symbolic link, with `owner` of the owner in `meta`; `exists`: in place of another
    /// file.
    fn make_link(&self, name: &[u8], link: &NewLink, meta: &Meta, owner: bool, exists: bool) -> io::Result<()>;

    /// Makes another name of a file; `exists`: in place of another file.
    fn link(&self, name: &[u8], file: &Finished, exists: bool) -> io::Result<()>;

    /// Sets an extended attribute of the directory.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()>;

    /// Sets mode and times of the directory, and with `owner` its owner.
    fn set_meta(&self, meta: &Meta, owner: bool) -> io::Result<()>;

    /// False below `.h5dir`, where files are forms of objects.
    fn takes_xattrs(&self) -> bool {
        true
    }

    /// True if there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// What is being copied into it, as an interrupted copy noted it.
    fn marker(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Notes what is being copied into it, or with `None` that nothing is.
    fn set_marker(&self, _marker: Option<&[u8]>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// The file `name` as one that is finished.
    fn finished(&self, _name: &[u8]) -> io::Result<Option<Finished>> {
        Ok(None)
    }

    /// True in a map, where files are parts of the directory's object, without types and
    /// attributes.
    fn holds_parts(&self) -> bool {
        false
    }

    /// The directory in the main tree of a container.
    fn as_object(&self) -> Option<(&Arc<Container>, &Arc<Held>)> {
        None
    }
}

/// A file that is being made. Dropped before it is finished, nothing of it is left.
pub(super) trait SinkFile {
    /// The object of a container that it is.
    fn model(&self) -> io::Result<ObjectModel> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Writes `data` at `offset`.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// True if nothing was written in `range`, which reads as the fill value, and `fill` is its
    /// beginning.
    fn is_unwritten(&mut self, _range: Range<u64>, _fill: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Copies a range of a file of the same container; returns the bytes copied, 0 if it cannot.
    fn copy_range(&mut self, _from: &ObjectContent, _range: Range<u64>) -> io::Result<u64> {
        Ok(0)
    }

    /// True if it may take stored chunks of `from`, a file of another container.
    fn may_take_chunks(&self, _from: &ObjectSource) -> bool {
        false
    }

    /// True if chunks stored by `storage` can be stored as they are.
    fn takes_chunks(&mut self, _storage: &ChunkStorage) -> io::Result<bool> {
        Ok(false)
    }

    /// Stores chunks as they are, or refers to their bytes in `original`. False: the caller writes
    /// elements.
    fn store_chunks(&mut self, _storage: &ChunkStorage, _chunks: &[StoredChunk], _original: Option<&Original>) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes the exact form of variable-length elements instead of lines.
    fn use_exact_form(&mut self) {}

    /// Sets the length: what was not written is a hole.
    fn set_size(&mut self, size: u64) -> io::Result<()>;

    /// Ends writing: elements of variable length are converted.
    fn end_content(&mut self) -> io::Result<()>;

    /// Sets an extended attribute.
    fn set_xattr(&mut self, name: &[u8], value: &[u8]) -> io::Result<()>;

    /// Sets mode and times, and with `owner` the owner.
    fn set_meta(&mut self, meta: &Meta, owner: bool) -> io::Result<()>;

    /// Gives the file its name.
    fn finish(self: Box<Self>) -> io::Result<Finished>;
}

/// A name for a file that is not finished: random, so that no other program has it.
pub(super) fn temporary_name() -> io::Result<Vec<u8>> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    Ok(format!(".h5dir-copy-{number:016x}").into_bytes())
}

/// The target of a symbolic link in the directory `here` to the directory `there`.
pub(super) fn relative(here: &[Vec<u8>], there: &[Vec<u8>]) -> Vec<u8> {
    let common = here.iter().zip(there).take_while(|(a, b)| a == b).count();
    let up = here.iter().skip(common).map(|_| &b".."[..]);
    let names: Vec<_> = up.chain(there.iter().skip(common).map(Vec::as_slice)).collect();
    if names.is_empty() { b".".to_vec() } else { names.join(&b'/') }
}

/// `e` with `what` before its text; the errno stays where it decides what follows.
pub(super) fn with_context(e: &io::Error, what: &str) -> io::Error {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS) => io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO)),
        _ => io::Error::new(e.kind(), format!("{what}: {}", reason(e))),
    }
}

/// The attribute of a directory into which a copy was begun.
pub(super) const MARKER: &[u8] = b"user.h5dir-copy";

/// Checks that `name` is one component: it comes from a file.
pub(super) fn check_name(name: &[u8]) -> io::Result<()> {
    let wrong = matches!(name, b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0));
    if wrong { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"/", b"../x", b"a\0"] {
            assert!(check_name(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        for right in [&b"a"[..], b"...", b".a", b"%2E%2E"] {
            assert!(check_name(right).is_ok(), "{}", right.escape_ascii());
        }
        assert_ne!(temporary_name().unwrap(), temporary_name().unwrap());
    }
}
