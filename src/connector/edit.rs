//! Changes of a container that was opened for reading and writing.
//!
//! Each call is one operation. All readers see it when it returns, and the next commit contains it
//! as a whole or not at all. Calls may come from several threads.

use super::log::EditLog;
use super::maps::EditMaps;
use super::stored::{self, ChunkStorage, Original, StoredChunk};
use super::{DatasetSpec, Datatype, ElementSet, Form, NewAttribute, NewValue, ObjectId, ObjectProperties, Ownership, Result, Target};
use crate::base::Error;
use crate::dataset::creation::MESSAGE_MAX_BYTES;
use std::ops::Range;

/// Longest comment of an object, bytes: the message has a NUL after it.
const COMMENT_MAX: usize = MESSAGE_MAX_BYTES - 1;

/// Errors: a comment that no object can have.
pub(crate) fn check_comment(comment: &[u8]) -> Result<()> {
    if comment.contains(&0) {
        return Err(Error::refused(libc::EINVAL, "a comment has no NUL"));
    }
    if comment.len() > COMMENT_MAX {
        return Err(Error::refused(libc::E2BIG, "a comment has at most 65,527 bytes"));
    }
    Ok(())
}

/// Calls `f` with the offset of each of `ranges` and what it gets of `bytes`, which are for all of
/// them.
pub(crate) fn each_range<'b>(ranges: &[Range<u64>], bytes: &'b [u8], f: &mut dyn FnMut(u64, &'b [u8]) -> Result<()>) -> Result<()> {
    let mut rest = bytes;
    for range in ranges {
        let n = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let (part, more) = rest.split_at_checked(n).ok_or_else(|| Error::refused(libc::EINVAL, "fewer bytes than the ranges have"))?;
        f(range.start, part)?;
        rest = more;
    }
    Ok(())
}

/// What a rename does if the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Replaces it.
    Replace,
    /// Fails.
    Refuse,
    /// Exchanges both.
    Exchange,
}

/// What a change of a dataset does with its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Keeps their bytes, in the new type and shape.
    Kept,
    /// Drops them: others are written next.
    Dropped,
}

/// A reference to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewReference {
    /// It names nothing.
    Nil,
    /// It names this.
    To(Target),
    /// What it names is not known: it becomes nil.
    Unknown,
}

/// The operations of a writable container. An error caused by the caller is
/// [`crate::base::Error::Refused`], which has the errno.
pub trait Edit: Send + Sync {
    /// Writes bytes of a dataset. Extends it if they end past it and its maximum shape allows.
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// [`Edit::write`] through one of the forms of the dataset.
    fn write_as(&self, id: ObjectId, _form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(id, offset, bytes)
    }

    /// Writes to ranges of a dataset's bytes that ascend and do not overlap, within its size:
    /// `bytes` has what each of them gets, one after another. Elements are of fixed size. An error
    /// may leave some ranges written.
    fn write_ranges(&self, id: ObjectId, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        each_range(ranges, bytes, &mut |offset, part| self.write(id, offset, part))
    }

    /// Sets elements of variable length, whose numbers in row-major order are in `elements`, runs
    /// that ascend and do not overlap. `values` has what they get, one after another. All or none.
    fn set_elements_of(&self, _id: ObjectId, _elements: &[Range<u64>], _values: &NewValue) -> Result<()> {
        let reason = "containers of this kind have no elements of variable length";
        Err(Error::refused(libc::EOPNOTSUPP, reason))
    }

    /// [`Edit::set_size`] through one of the forms of the dataset.
    fn set_size_as(&self, id: ObjectId, _form: Form, size: u64) -> Result<()> {
        self.set_size(id, size)
    }

    /// Sets the extent of a dataset, elements a dimension, within its maximum; each element keeps
    /// its coordinates, those that come read as the fill value (H5Dset_extent). Errors: `EINVAL`
    /// for another rank, `EFBIG` past the maximum, `EPERM` for storage that has one extent, `EBUSY`
    /// while a form of it is written.
    fn set_extent(&self, _id: ObjectId, _dims: &[u64]) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "the container does not change the extents of datasets"))
    }

    /// Does most of the work of [`Edit::change_dataset`] with [`Elements::Kept`] beforehand, while
    /// other operations continue; false if there is none to do. The caller holds the object, and
    /// calls [`Edit::end_preparation`] after the change. A change of the elements between the two
    /// makes the preparation void. Errors: `EBUSY` if they change before it is done.
    fn prepare_change(&self, _id: ObjectId, _spec: &DatasetSpec) -> Result<bool> {
        Ok(false)
    }

    /// Ends what [`Edit::prepare_change`] began.
    fn end_preparation(&self, _id: ObjectId) {}

    /// Makes a dataset what `spec` states; what it does not state stays as far as it fits.
    fn change_dataset(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()>;

    /// The caller knows what the dataset is to be: from now on its layout is not adapted to the
    /// bytes written.
    fn keep_layout(&self, _id: ObjectId) {}

    /// Remembers that the description of a new file was refused with `error`, or that it was
    /// accepted. Writing to a refused one and closing it fail with the same error.
    fn note_description(&self, _id: ObjectId, _error: Option<&Error>) {}

    /// Makes a new file a named datatype. A file that holds bytes must hold `shown`, those that the
    /// datatype's file shows.
    fn become_datatype(&self, id: ObjectId, datatype: &Datatype, shown: &[u8]) -> Result<()>;

    /// Sets references of a dataset's elements, from number `first` on, by what they name. One that
    /// names an object that is not there yet is nil until the object is there.
    fn set_references(&self, id: ObjectId, first: u64, references: Vec<NewReference>) -> Result<()>;

    /// Sets all elements of a dataset, whose type and shape `elements` has. References to objects
    /// that are not there are nil: the caller does it again when all are there.
    fn set_elements(&self, _id: ObjectId, _elements: &NewValue) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "containers of this kind have no references in sequences"))
    }

    /// Makes a dataset, or its attribute `attribute`, refer to the named datatype at `path`, which
    /// must equal its type. If nothing is there yet, that is tried again before each commit.
    fn use_datatype(&self, _id: ObjectId, _attribute: Option<&[u8]>, _path: &[u8]) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "containers of this kind have no named datatypes"))
    }

    /// Sets the comment of an object; an empty one removes it.
    fn set_comment(&self, _id: ObjectId, _comment: &[u8]) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "containers of this kind have no comments"))
    }

    /// Sets the creation order of the links of a group, which tracks it from then on: those in
    /// `names` in their order. If some of them do not exist yet, it is set when they do, at the
    /// latest by the last commit. Containers that keep no order ignore it.
    fn set_link_order(&self, _group: ObjectId, _names: Vec<Vec<u8>>) -> Result<()> {
        Ok(())
    }

    /// Sets creation properties of a copied object, as far as the container has them for an object
    /// that exists.
    fn set_properties(&self, _id: ObjectId, _properties: &ObjectProperties) -> Result<()> {
        Ok(())
    }

    /// Stores the written form of variable-length elements, which are replaced as a whole. `last`:
    /// the last writer closes; a form that cannot be stored is dropped. Sets defined elements that
    /// were kept for bytes that are written next. Returns whether it did one of both.
    fn finish(&self, _id: ObjectId, _last: bool) -> Result<bool> {
        Ok(false)
    }

    /// Sets the size of a dataset, bytes, rounded up to whole rows of the first dimension. New rows
    /// have the fill value.
    fn set_size(&self, id: ObjectId, size: u64) -> Result<()>;

    /// Zeroes a range of a dataset's bytes within its size (`FALLOC_FL_ZERO_RANGE`). Frees chunks
    /// that become zero if the fill value is zero.
    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()>;

    /// Changing maps; `None`: the container has none.
    fn maps(&self) -> Option<&dyn EditMaps> {
        None
    }

    /// Making elements undefined; `None`: punching is zeroing.
    fn erase(&self) -> Option<&dyn Erase> {
        None
    }

    /// Allocation of storage; `None`: the container cannot reserve any.
    fn allocate(&self) -> Option<&dyn Allocate> {
        None
    }

    /// Upkeep of the log that datasets are in; `None`: there is no log.
    fn log(&self) -> Option<&dyn EditLog> {
        None
    }

    /// New datasets are in a log from now on, unless they state otherwise; makes the log.
    fn log_by_default(&self, _released: bool) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "containers of this kind have no log"))
    }

    /// Copies within the container; `None`: reading and writing does as well.
    fn copy_range(&self) -> Option<&dyn CopyRange> {
        None
    }

    /// True if chunks stored by `storage` can be stored in a dataset as they are.
    fn takes_chunks(&self, _id: ObjectId, _storage: &ChunkStorage) -> Result<bool> {
        Ok(false)
    }

    /// Stores chunks of another container in a dataset as they are. Errors: `EOPNOTSUPP` if it does
    /// not take some of them.
    fn store_chunks(&self, _id: ObjectId, _storage: &ChunkStorage, _chunks: &[StoredChunk]) -> Result<()> {
        Err(stored::unlike())
    }

    /// As [`Edit::store_chunks`], but refers to the bytes in `original`. Errors: `EXDEV` if
    /// the container cannot refer to that file.
    fn refer_to_chunks(&self, _id: ObjectId, _storage: &ChunkStorage, _chunks: &[StoredChunk], _original: &Original) -> Result<()> {
        Err(Error::refused(libc::EXDEV, "containers of this kind have all their bytes themselves"))
    }

    /// A new empty dataset for a stream of bytes.
    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId>;

    /// A new dataset: what `spec` makes of a new empty one for a stream of bytes.
    fn create_dataset(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId>;

    /// A new empty group.
    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId>;

    /// Another name for an object of the same file.
    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()>;

    /// A soft link to the path `target` within the container.
    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()>;

    /// An external link to the path `object` within the container `file`.
    fn external_link(&self, _group: ObjectId, _name: &[u8], _file: &[u8], _object: &[u8]) -> Result<()> {
        Err(Error::refused(libc::EPERM, "the container has no links to other files"))
    }

    /// Removes a name. `directory`: it must be an empty group (`rmdir`), or must not be a group's
    /// only name (`unlink`). An object without names is deleted when it is not held. Returns the
    /// object that lost its last name.
    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>>;

    /// Moves a name. Returns the object that lost its last name to it.
    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>>;

    /// Sets an attribute. References must name objects that are there.
    fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()>;

    /// Sets attributes, all or none; those not named stay. A reference may name an object that is
    /// not there yet: it is nil until the object is there. `attributes` must not use the container.
    fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()>;

    /// Sets an attribute's raw bytes (variable-length parts in exact form): an existing one keeps
    /// its type and shape, but a list of bytes takes any length; a new one becomes a list of bytes.
    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()>;

    /// Gives an attribute another name; one that has it already is replaced, or the rename fails
    /// with `EEXIST`.
    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()>;

    /// Removes an attribute; `ENODATA` when there is none.
    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()>;

    /// Sets the modification time, seconds since 1970, where the object's header records times;
    /// `false` where not.
    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool>;

    /// Sets the access time, seconds since 1970, where the object's header records times; `false`
    /// where not.
    fn set_atime(&self, _id: ObjectId, _seconds: u32) -> Result<bool> {
        Ok(false)
    }

    /// Sets owner, group and mode of an object. What is `None` becomes the mount's default.
    fn set_ownership(&self, id: ObjectId, ownership: &Ownership) -> Result<()>;

    /// Sets owner and group of the link `name` of `group`, which is not a hard link. They move with
    /// the link, and end with it.
    fn set_link_ownership(&self, _group: ObjectId, _name: &[u8], _ownership: &Ownership) -> Result<()> {
        Err(Error::refused(libc::EOPNOTSUPP, "links have no owners in this container"))
    }

    /// Gives the soft link `name` of `group` the path `path`, and stores `text` beside it: the text
    /// of the symbolic link that it stands for. Its owner stays. The text moves with the link, and
    /// ends with it. Errors: `EMLINK` if the group stores no more texts.
    fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()>;

    /// Keeps an object without names until [`Edit::release`] was called as often.
    fn hold(&self, id: ObjectId);

    /// Ends one [`Edit::hold`] of the object. The last one deletes an object without names.
    fn release(&self, id: ObjectId);

    /// The write error of a dataset: bytes were accepted and could not be stored, because it is
    /// damaged. Stays until it was returned once and the object is not held any more.
    /// [`Edit::commit`] makes the other datasets durable.
    fn write_error(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }

    /// The datasets that writes to `id` changed since the last call, besides it: sources of a
    /// virtual dataset.
    fn take_written_through(&self, _id: ObjectId) -> Vec<ObjectId> {
        Vec::new()
    }

    /// Waits for the change or commit under way, if one may take long.
    fn await_turn(&self) {}

    /// Makes all changes so far durable. Errors: after one of an object store, another commit may
    /// succeed; after another one nothing more can be written.
    fn commit(&self) -> Result<()>;

    /// Why nothing can be written until the changes are discarded: a commit was refused.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Drops the changes of which a commit was refused. Errors: `EINVAL` if none was.
    fn discard(&self) -> Result<()> {
        Err(Error::refused(libc::EINVAL, "no commit was refused"))
    }

    /// Shows what other writers committed, if nothing waits for a commit.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// True while bytes that are only in memory are of a new file that may still be described: a
    /// commit would store them twice.
    fn awaits_descriptions(&self) -> bool {
        false
    }

    /// Commits and ends the session: the file is closed as libhdf5 would leave it. Errors: also
    /// write errors that no call returned.
    fn close(&self) -> Result<()>;
}

/// Allocation of storage before it is written.
pub trait Allocate {
    /// Allocates storage for a range of a dataset's bytes within its size.
    fn allocate(&self, id: ObjectId, offset: u64, len: u64) -> Result<()>;
}

/// Copies between datasets without the bytes passing through the caller.
pub trait CopyRange {
    /// Copies `len` bytes from a position of one dataset to one of another, or of the same. The
    /// target grows if it may. Returns the number of bytes copied, fewer than `len` only at the end
    /// of the source or at the connector's limit of one call. Errors: `EOPNOTSUPP` where these two
    /// datasets must be read and written.
    fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64>;
}

/// Makes elements undefined.
pub trait Erase {
    /// Makes the elements in a range of a dataset's bytes undefined, and zeroes those that it holds
    /// a part of (`FALLOC_FL_PUNCH_HOLE`). Zeroes the range where the dataset does not know which
    /// elements are defined.
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()>;

    /// Makes the elements of the block `first .. end` per dimension undefined, or punches them.
    fn erase(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<()>;

    /// Makes the elements of `set` undefined, or punches them.
    fn erase_set(&self, id: ObjectId, set: &ElementSet) -> Result<()> {
        set.try_each_block(&mut |first, end| self.erase(id, first, end))
    }

    /// Sets which of the elements with row-major numbers in `range` are defined, and changes no
    /// value: those in `defined` (ascending, disjoint) become defined, others undefined if they
    /// have the fill value. If nothing was written yet, or the dataset is a file of bytes, it
    /// applies again in [`Edit::finish`], until [`Erase::writer_closed`] after a write. Errors:
    /// `EOPNOTSUPP` if the dataset does not know which are defined.
    fn set_defined(&self, id: ObjectId, range: Range<u64>, defined: &[Range<u64>]) -> Result<()>;

    /// Writers of the dataset have closed or flushed what they wrote, after [`Edit::finish`].
    fn writer_closed(&self, id: ObjectId);
}
