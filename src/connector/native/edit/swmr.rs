//! What a SWMR writer may do: write elements and add rows. libhdf5's readers cache structures and
//! take no lock, so that all other changes are refused with `EPERM`.
//!
//! `meta::header_edit` and `file::transaction` refuse what passes here and could still show readers
//! a part of a change.

use super::super::NativeConnector;
use super::Change;
use crate::base::{Address, Error, Result};
use crate::connector::edit::{Edit, Elements, Erase, NewReference, Taken};
use crate::connector::log::{CompactProgress, Compacted, EditLog};
use crate::connector::{DatasetSpec, Datatype, Form, NewAttribute, NewValue, ObjectId, ObjectProperties, Ownership};
use crate::format::object_header::kind;
use crate::meta::{ObjectHeader, Store};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The oldest superblock whose flags readers heed.
const SUPERBLOCK_VERSION_MIN: u8 = 3;

/// Changes of a container by a SWMR writer.
pub(in super::super) struct SwmrEdit(Weak<NativeConnector>);

fn refused<T>(what: &str) -> Result<T> {
    Err(Error::refused(libc::EPERM, format!("{what}: the file is mounted with --swmr, which only adds and overwrites elements")))
}

/// Errors: the file cannot have SWMR readers.
fn check_file(store: &Store) -> Result<()> {
    let superblock = store.superblock();
    let at = Address(store.base());
    if superblock.version < SUPERBLOCK_VERSION_MIN {
        let detail = format!(
            "SWMR needs version {SUPERBLOCK_VERSION_MIN}; 'h5repack -L OLD NEW', h5py with libver='latest' and 'h5dir create' make such files"
        );
        return Err(Error::unsupported("superblock", at, format!("version {}: {detail}", superblock.version)));
    }
    if superblock.extension.is_defined() && ObjectHeader::load(store, superblock.extension)?.find(kind::SHARED_MESSAGE_TABLE).is_some() {
        return Err(Error::unsupported("superblock", at, "SWMR does not allow a file with shared object header messages"));
    }
    Ok(())
}

impl NativeConnector {
    /// Makes the container that of a SWMR writer until it is closed. No operation came before.
    pub fn begin_swmr(&self) -> Result<()> {
        let store = self.file(0)?.store.clone();
        check_file(&store)?;
        // What precedes the first change of a file is not for readers.
        self.operate(&[], |_: &Change<'_>| Ok(()))?;
        self.commit_all(false)?;
        store.begin_swmr()?;
        // Nothing else sets it.
        let _ = self.editing()?.swmr.set(SwmrEdit(self.this.clone()));
        Ok(())
    }
}

impl SwmrEdit {
    fn connector(&self) -> Result<Arc<NativeConnector>> {
        self.0.upgrade().ok_or_else(|| Error::refused(libc::ESTALE, "the file is closed"))
    }

    /// The connector, and the size of the dataset `id`. Error: `EPERM` if a change of its elements
    /// could show readers a part of it.
    fn writable(&self, id: ObjectId) -> Result<(Arc<NativeConnector>, u64)> {
        let connector = self.connector()?;
        let shared = connector.shared();
        let d = connector.dataset(id)?.dataset.clone();
        let reason = if d.object.header.prefix.version == 1 {
            Err("its object header has no checksum; 'h5repack -L' makes one that has")
        } else if d.datatype.contains_vlen() || d.datatype.contains_reference() {
            Err("its elements refer to other places of the file")
        } else {
            d.layout().check_swmr()
        };
        let size = d.bytes.size;
        drop(shared);
        match reason {
            Ok(()) => Ok((connector, size)),
            Err(reason) => refused(&format!("cannot write the dataset, {reason}")),
        }
    }
}

impl Edit for SwmrEdit {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writable(id)?.0.write_as(id, form, offset, bytes)
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        let (connector, now) = self.writable(id)?;
        if size < now { refused("cannot shrink the dataset") } else { connector.set_size_as(id, form, size) }
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        let (connector, _) = self.writable(id)?;
        let now = crate::connector::Connector::dataset(&*connector, id)?.shape;
        if now.dims().unwrap_or_default().iter().zip(dims).any(|(now, next)| next < now) {
            return refused("cannot shrink the dataset");
        }
        connector.set_extent(id, dims)
    }

    fn change_dataset(&self, _id: ObjectId, _spec: DatasetSpec, _elements: Elements) -> Result<()> {
        refused("cannot change what the dataset is")
    }

    fn become_datatype(&self, _id: ObjectId, _datatype: &Datatype, _shown: &[u8]) -> Result<()> {
        refused("cannot make a datatype")
    }

    fn set_references(&self, _id: ObjectId, _first: u64, _references: Vec<NewReference>) -> Result<()> {
        refused("cannot write references")
    }

    fn zero(&self, _id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        refused("cannot punch holes")
    }

    fn erase(&self) -> Option<&dyn Erase> {
        Some(self)
    }

    fn log(&self) -> Option<&dyn EditLog> {
        Some(self)
    }

    fn set_elements(&self, _id: ObjectId, _elements: &NewValue) -> Result<()> {
        refused("cannot replace all elements")
    }

    fn use_datatype(&self, _id: ObjectId, _attribute: Option<&[u8]>, _path: &[u8]) -> Result<()> {
        refused("cannot change what the dataset is")
    }

    fn set_comment(&self, _id: ObjectId, _comment: &[u8]) -> Result<()> {
        refused("cannot set a comment")
    }

    fn set_link_order(&self, _group: ObjectId, _names: Vec<Vec<u8>>) -> Result<()> {
        refused("cannot order links")
    }

    fn set_properties(&self, _id: ObjectId, _properties: &ObjectProperties) -> Result<()> {
        refused("cannot set creation properties")
    }

    fn log_by_default(&self, _released: bool) -> Result<()> {
        refused("cannot make a log")
    }

    fn create_file(&self, _group: ObjectId, _name: &[u8]) -> Result<ObjectId> {
        refused("cannot create a file")
    }

    fn create_dataset(&self, _group: ObjectId, _name: &[u8], _spec: &DatasetSpec) -> Result<ObjectId> {
        refused("cannot create a dataset")
    }

    fn create_group(&self, _group: ObjectId, _name: &[u8]) -> Result<ObjectId> {
        refused("cannot create a directory")
    }

    fn link(&self, _group: ObjectId, _name: &[u8], _target: ObjectId) -> Result<()> {
        refused("cannot create a hard link")
    }

    fn symlink(&self, _group: ObjectId, _name: &[u8], _target: &[u8]) -> Result<()> {
        refused("cannot create a symbolic link")
    }

    fn external_link(&self, _group: ObjectId, _name: &[u8], _file: &[u8], _object: &[u8]) -> Result<()> {
        refused("cannot create an external link")
    }

    fn unlink(&self, _group: ObjectId, _name: &[u8], _directory: bool) -> Result<Option<ObjectId>> {
        refused("cannot remove a name")
    }

    fn rename(&self, _from: (ObjectId, &[u8]), _to: (ObjectId, &[u8]), _taken: Taken) -> Result<Option<ObjectId>> {
        refused("cannot rename")
    }

    fn set_attribute(&self, _id: ObjectId, _name: &[u8], _value: &NewValue) -> Result<()> {
        refused("cannot set an attribute")
    }

    fn set_attributes(&self, _id: ObjectId, _attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        refused("cannot set attributes")
    }

    fn set_attribute_bytes(&self, _id: ObjectId, _name: &[u8], _bytes: &[u8]) -> Result<()> {
        refused("cannot set an attribute")
    }

    fn rename_attribute(&self, _id: ObjectId, _from: &[u8], _to: &[u8], _replace: bool) -> Result<()> {
        refused("cannot rename an attribute")
    }

    fn remove_attribute(&self, _id: ObjectId, _name: &[u8]) -> Result<()> {
        refused("cannot remove an attribute")
    }

    /// Times are in chunk 0 of the object header, which one write replaces.
    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.connector()?.set_mtime(id, seconds)
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.connector()?.set_atime(id, seconds)
    }

    fn set_ownership(&self, _id: ObjectId, _ownership: &Ownership) -> Result<()> {
        refused("cannot set owner or mode")
    }

    fn set_link_ownership(&self, _group: ObjectId, _name: &[u8], _ownership: &Ownership) -> Result<()> {
        refused("cannot set the owner of a link")
    }

    fn retarget(&self, _group: ObjectId, _name: &[u8], _path: &[u8], _text: Option<&[u8]>) -> Result<()> {
        refused("cannot change a link")
    }

    fn hold(&self, id: ObjectId) {
        let _ = self.connector().map(|c| c.hold(id));
    }

    fn release(&self, id: ObjectId) {
        let _ = self.connector().map(|c| c.release(id));
    }

    fn write_error(&self, id: ObjectId) -> Result<()> {
        self.connector()?.write_error(id)
    }

    fn commit(&self) -> Result<()> {
        Edit::commit(&*self.connector()?)
    }

    fn close(&self) -> Result<()> {
        Edit::close(&*self.connector()?)
    }
}

/// An element that becomes undefined is one that a reader has seen.
impl Erase for SwmrEdit {
    fn punch(&self, _id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        refused("cannot punch holes")
    }

    fn erase(&self, _id: ObjectId, _first: &[u64], _end: &[u64]) -> Result<()> {
        refused("cannot make elements undefined")
    }

    fn set_defined(&self, _id: ObjectId, _range: Range<u64>, _defined: &[Range<u64>]) -> Result<()> {
        refused("cannot make elements undefined")
    }

    fn writer_closed(&self, id: ObjectId) {
        if let Ok(connector) = self.connector() {
            Erase::writer_closed(&*connector, id);
        }
    }
}

/// The log stays as it is.
impl EditLog for SwmrEdit {
    fn compact(&self, _only: Option<ObjectId>, _progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        refused("cannot compact the log")
    }

    fn compact_part(&self) -> Result<bool> {
        Ok(false)
    }

    fn rebuild_index(&self) -> Result<()> {
        refused("cannot make the index of the log")
    }
}
