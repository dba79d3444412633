//! Changes of a container that is mounted for one kind of change: all others are refused.

use crate::base::Error;
use crate::connector::edit::{Edit, Elements, Erase, NewReference, Taken};
use crate::connector::log::{CompactProgress, Compacted, EditLog};
use crate::connector::{DatasetSpec, Datatype, Form, NewAttribute, NewValue, ObjectId, ObjectProperties, Ownership, Result};
use std::ops::Range;

/// What is permitted, by the names of [`Edit`].
pub(super) trait Permitted: Send + Sync {
    /// Why all else is refused.
    fn why(&self) -> &'static str;
    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()>;
    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()>;
    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()>;
    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool>;
    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool>;
    fn hold(&self, _id: ObjectId) {}
    fn release(&self, _id: ObjectId) {}
    fn write_error(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }
    fn writer_closed(&self, _id: ObjectId) {}
    fn commit(&self) -> Result<()>;
    fn close(&self) -> Result<()>;
}

/// The permitted changes.
pub(in super::super) struct Restricted(Box<dyn Permitted>);

/// The refusal of `what`, which is not permitted.
pub(super) fn refusal(what: &str, why: &str) -> Error {
    Error::refused(libc::EPERM, format!("{what}: {why}"))
}

impl Restricted {
    pub(super) fn to(permitted: impl Permitted + 'static) -> Restricted {
        Restricted(Box::new(permitted))
    }

    fn refused<T>(&self, what: &str) -> Result<T> {
        Err(refusal(what, self.0.why()))
    }
}

impl Edit for Restricted {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_as(id, form, offset, bytes)
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        self.0.set_size_as(id, form, size)
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        self.0.set_extent(id, dims)
    }

    fn change_dataset(&self, _id: ObjectId, _spec: DatasetSpec, _elements: Elements) -> Result<()> {
        self.refused("cannot change what the dataset is")
    }

    fn become_datatype(&self, _id: ObjectId, _datatype: &Datatype, _shown: &[u8]) -> Result<()> {
        self.refused("cannot make a datatype")
    }

    fn set_references(&self, _id: ObjectId, _first: u64, _references: Vec<NewReference>) -> Result<()> {
        self.refused("cannot write references")
    }

    fn zero(&self, _id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        self.refused("cannot punch holes")
    }

    fn erase(&self) -> Option<&dyn Erase> {
        Some(self)
    }

    fn log(&self) -> Option<&dyn EditLog> {
        Some(self)
    }

    fn set_elements(&self, _id: ObjectId, _elements: &NewValue) -> Result<()> {
        self.refused("cannot replace all elements")
    }

    fn use_datatype(&self, _id: ObjectId, _attribute: Option<&[u8]>, _path: &[u8]) -> Result<()> {
        self.refused("cannot change what the dataset is")
    }

    fn set_comment(&self, _id: ObjectId, _comment: &[u8]) -> Result<()> {
        self.refused("cannot set a comment")
    }

    fn set_link_order(&self, _group: ObjectId, _names: Vec<Vec<u8>>) -> Result<()> {
        self.refused("cannot order links")
    }

    fn set_properties(&self, _id: ObjectId, _properties: &ObjectProperties) -> Result<()> {
        self.refused("cannot set creation properties")
    }

    fn log_by_default(&self, _released: bool) -> Result<()> {
        self.refused("cannot make a log")
    }

    fn create_file(&self, _group: ObjectId, _name: &[u8]) -> Result<ObjectId> {
        self.refused("cannot create a file")
    }

    fn create_dataset(&self, _group: ObjectId, _name: &[u8], _spec: &DatasetSpec) -> Result<ObjectId> {
        self.refused("cannot create a dataset")
    }

    fn create_group(&self, _group: ObjectId, _name: &[u8]) -> Result<ObjectId> {
        self.refused("cannot create a directory")
    }

    fn link(&self, _group: ObjectId, _name: &[u8], _target: ObjectId) -> Result<()> {
        self.refused("cannot create a hard link")
    }

    fn symlink(&self, _group: ObjectId, _name: &[u8], _target: &[u8]) -> Result<()> {
        self.refused("cannot create a symbolic link")
    }

    fn external_link(&self, _group: ObjectId, _name: &[u8], _file: &[u8], _object: &[u8]) -> Result<()> {
        self.refused("cannot create an external link")
    }

    fn unlink(&self, _group: ObjectId, _name: &[u8], _directory: bool) -> Result<Option<ObjectId>> {
        self.refused("cannot remove a name")
    }

    fn rename(&self, _from: (ObjectId, &[u8]), _to: (ObjectId, &[u8]), _taken: Taken) -> Result<Option<ObjectId>> {
        self.refused("cannot rename")
    }

    fn set_attribute(&self, _id: ObjectId, _name: &[u8], _value: &NewValue) -> Result<()> {
        self.refused("cannot set an attribute")
    }

    fn set_attributes(&self, _id: ObjectId, _attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        self.refused("cannot set attributes")
    }

    fn set_attribute_bytes(&self, _id: ObjectId, _name: &[u8], _bytes: &[u8]) -> Result<()> {
        self.refused("cannot set an attribute")
    }

    fn rename_attribute(&self, _id: ObjectId, _from: &[u8], _to: &[u8], _replace: bool) -> Result<()> {
        self.refused("cannot rename an attribute")
    }

    fn remove_attribute(&self, _id: ObjectId, _name: &[u8]) -> Result<()> {
        self.refused("cannot remove an attribute")
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.0.set_mtime(id, seconds)
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.0.set_atime(id, seconds)
    }

    fn set_ownership(&self, _id: ObjectId, _ownership: &Ownership) -> Result<()> {
        self.refused("cannot set owner or mode")
    }

    fn set_link_ownership(&self, _group: ObjectId, _name: &[u8], _ownership: &Ownership) -> Result<()> {
        self.refused("cannot set the owner of a link")
    }

    fn retarget(&self, _group: ObjectId, _name: &[u8], _path: &[u8], _text: Option<&[u8]>) -> Result<()> {
        self.refused("cannot change a link")
    }

    fn hold(&self, id: ObjectId) {
        self.0.hold(id);
    }

    fn release(&self, id: ObjectId) {
        self.0.release(id);
    }

    fn write_error(&self, id: ObjectId) -> Result<()> {
        self.0.write_error(id)
    }

    fn commit(&self) -> Result<()> {
        self.0.commit()
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl Erase for Restricted {
    fn punch(&self, _id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        self.refused("cannot punch holes")
    }

    fn erase(&self, _id: ObjectId, _first: &[u64], _end: &[u64]) -> Result<()> {
        self.refused("cannot make elements undefined")
    }

    fn set_defined(&self, _id: ObjectId, _range: Range<u64>, _defined: &[Range<u64>]) -> Result<()> {
        self.refused("cannot make elements undefined")
    }

    fn writer_closed(&self, id: ObjectId) {
        self.0.writer_closed(id);
    }
}

impl EditLog for Restricted {
    fn compact(&self, _only: Option<ObjectId>, _progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        self.refused("cannot compact the log")
    }

    fn compact_part(&self) -> Result<bool> {
        Ok(false)
    }

    fn rebuild_index(&self) -> Result<()> {
        self.refused("cannot make the index of the log")
    }
}
