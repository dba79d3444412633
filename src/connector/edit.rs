//! Changing a container: what the file system asks of a connector that was opened for reading and writing.
//!
//! Each call is one operation: it is seen by all readers when it returns, and is in the next commit as a
//! whole or not at all. Calls may come from several threads.

use super::{Form, ObjectId, Result};
use crate::base::Error;

pub use crate::dataset::types::parse::NpyHeader;

/// What a name that is taken means for a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// What has it loses it.
    Replace,
    /// The rename fails.
    Refuse,
    /// Both change places.
    Exchange,
}

/// Whether an attribute may or must be there when it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Either way.
    Any,
    /// It must not be there (`XATTR_CREATE`).
    Create,
    /// It must be there (`XATTR_REPLACE`).
    Replace,
}

/// The changes a container takes. Errors that are the caller's doing are [`crate::base::Error::Refused`], which carries the errno.
pub trait Edit: Send + Sync {
    /// Writes bytes of a dataset, which grows if they reach beyond its end and it may.
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The same through one of its forms.
    fn write_as(&self, id: ObjectId, _form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(id, offset, bytes)
    }

    /// [`Edit::set_size`] through one of its forms.
    fn set_size_as(&self, id: ObjectId, _form: Form, size: u64) -> Result<()> {
        self.set_size(id, size)
    }

    /// Makes a dataset what the header of a `.npy` file says. Its elements stay where only the number of rows becomes another,
    /// unless they are to be `emptied`; else they are gone.
    fn set_npy(&self, id: ObjectId, header: &NpyHeader, emptied: bool) -> Result<()>;

    /// What was written of a dataset that is only written as a whole (variable-length elements) becomes its elements. `last`:
    /// nobody writes more; what makes no elements is forgotten then. Returns whether there was anything.
    fn finish(&self, _id: ObjectId, _last: bool) -> Result<bool> {
        Ok(false)
    }

    /// Makes a dataset's bytes `size` long, or as long as whole rows of its first dimension allow. Rows that
    /// are added hold the fill value.
    fn set_size(&self, id: ObjectId, size: u64) -> Result<()>;

    /// Zeroes a range of a dataset's bytes within its size (`FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`); chunks that
    /// become wholly zero are given back where the fill value is zero.
    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()>;

    /// Allocates storage for a range of a dataset's bytes within its size, where it has places of its own that are not allocated.
    fn allocate(&self, _id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Copies bytes of one dataset to another one, or to another range of the same, which grows if they reach beyond its end and
    /// it may. Returns how many were copied, fewer than `len` only at the end of the source or because it is much. Errors:
    /// `EOPNOTSUPP` where reading and writing does as well.
    fn copy_range(&self, _from: (ObjectId, u64), _to: (ObjectId, u64), _len: u64) -> Result<u64> {
        Err(Error::refused(libc::EOPNOTSUPP, "the container copies nothing by itself"))
    }

    /// A new empty dataset for a stream of bytes.
    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId>;

    /// A new dataset that is what `description`, in the form of `user.h5dir.dataset`, makes of a new file.
    fn create_dataset(&self, group: ObjectId, name: &[u8], description: &[u8]) -> Result<ObjectId>;

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

    /// Removes a name. `directory`: it must be an empty group (`rmdir`), or must not be a group's only name (`unlink`). An
    /// object without names goes when nobody holds it. Returns the object that lost its last name.
    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>>;

    /// Moves a name. Returns the object that lost its last name to it.
    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>>;

    /// Sets an attribute: an existing one keeps its type and takes the text, a new one becomes a UTF-8 string.
    fn set_attribute(&self, id: ObjectId, name: &[u8], text: &[u8], existing: Existing) -> Result<()>;

    /// Sets an attribute's raw bytes (variable-length parts in exact form): an existing one keeps its type and shape, but a list
    /// of bytes takes any length; a new one becomes a list of bytes.
    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()>;

    /// Gives an attribute another name; one that has it already is replaced, or the rename fails with `EEXIST`.
    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()>;

    /// Sets a derived fact (`shape`, `dtype`, ..., `dataset`, `attributes`) from its text.
    fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()>;

    /// Removes an attribute; `ENODATA` when there is none.
    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()>;

    /// Sets the modification time, seconds since 1970, where the object's header records times; `false` where not.
    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool>;

    /// Sets the access time in the same way.
    fn set_atime(&self, _id: ObjectId, _seconds: u32) -> Result<bool> {
        Ok(false)
    }

    /// Keeps an object without names until [`Edit::release`] was called as often.
    fn hold(&self, id: ObjectId);

    /// See [`Edit::hold`].
    fn release(&self, id: ObjectId);

    /// Bytes that were written to a dataset and could not be stored, as it is damaged: an error as long as somebody has it open, and
    /// until it was told. [`Edit::commit`] makes the others durable.
    fn lost(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }

    /// Makes all changes so far durable. After an error nothing more can be written.
    fn commit(&self) -> Result<()>;

    /// Commits and ends the session: the file is closed as libhdf5 would leave it. Errors: also losses that nobody was told of.
    fn close(&self) -> Result<()>;
}
