//! What a SWMR writer may do: write elements and add rows. libhdf5's readers cache structures and
//! take no lock, so that all other changes are refused with `EPERM`.
//!
//! `meta::header_edit` and `file::transaction` refuse what passes here and could still show readers
//! a part of a change.

use super::super::NativeConnector;
use super::Change;
use super::restricted::{Permitted, Restricted, refusal};
use crate::base::{Address, Error, Result};
use crate::connector::edit::{Edit, Erase};
use crate::connector::{Form, ObjectId};
use crate::format::object_header::kind;
use crate::meta::{ObjectHeader, Store};
use std::sync::{Arc, Weak};

/// The oldest superblock whose flags readers heed.
const SUPERBLOCK_VERSION_MIN: u8 = 3;

/// Why other changes are refused.
const WHY: &str = "the file is mounted with --swmr, which only adds and overwrites elements";

/// Changes of a container by a SWMR writer.
struct SwmrEdit(Weak<NativeConnector>);

fn refused<T>(what: &str) -> Result<T> {
    Err(refusal(what, WHY))
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
        self.commits().commit_all(false)?;
        store.begin_swmr()?;
        // Nothing else sets it.
        let _ = self.editing()?.swmr.set(Restricted::to(SwmrEdit(self.this.clone())));
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
        let access = connector.access();
        let d = access.dataset(id)?.dataset.clone();
        let reason = if d.object.header.prefix.version == 1 {
            Err("its object header has no checksum; 'h5repack -L' makes one that has")
        } else if d.datatype.contains_vlen() || d.datatype.contains_reference() {
            Err("its elements refer to other places of the file")
        } else {
            d.layout().check_swmr()
        };
        let size = d.bytes.size;
        drop(access);
        match reason {
            Ok(()) => Ok((connector, size)),
            Err(reason) => refused(&format!("cannot write the dataset, {reason}")),
        }
    }
}

impl Permitted for SwmrEdit {
    fn why(&self) -> &'static str {
        WHY
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writable(id)?.0.write_as(id, form, offset, bytes)
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

    /// Times are in chunk 0 of the object header, which one write replaces.
    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.connector()?.set_mtime(id, seconds)
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.connector()?.set_atime(id, seconds)
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

    fn writer_closed(&self, id: ObjectId) {
        if let Ok(connector) = self.connector() {
            Erase::writer_closed(&*connector, id);
        }
    }

    fn commit(&self) -> Result<()> {
        Edit::commit(&*self.connector()?)
    }

    fn close(&self) -> Result<()> {
        Edit::close(&*self.connector()?)
    }
}
