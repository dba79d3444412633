//! One HDF5 file of a container: its store, its superblock extension, its place in the host.

use super::log_names::FileLog;
use crate::base::locks::RwLock;
use crate::base::{Address, Error, Result};
use crate::file::writer_log::WriterLogs;
use crate::file::{FileDriver, Identity, Stamp, Status};
use crate::filter::pipeline::Pipeline;
use crate::format::cache_image;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::message::shared_message_table::SharedMessageTable;
use crate::format::object_header::kind;
use crate::meta::{ObjectHeader, Store};
use crate::structures::shared_messages::SharedMessages;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

/// An open HDF5 file.
pub struct HdfFile {
    /// Number within the connector; 0 is the mounted file.
    pub index: u32,
    /// Its bytes by address.
    pub store: Arc<Store>,
    /// Shared object header messages, if the file has any.
    pub shared: Option<Arc<SharedMessages>>,
    /// Root group.
    pub root: Address,
    /// Which file of the host it is.
    pub identity: Identity,
    /// Its state when it was opened.
    pub stamp: Stamp,
    /// Its directory (canonical), from which names in it are resolved.
    pub directory: PathBuf,
    /// Its name there; empty if it is not known.
    pub name: OsString,
    /// Where run files of log writers are beside it, if it has a place.
    pub(super) writers: Option<WriterLogs>,
    /// Its log, if it has one; `None`: that is not known yet.
    pub(super) log: RwLock<Option<Option<Arc<FileLog>>>>,
}

/// Undoes the filters of a fractal heap, whose pipeline message is `pipeline`.
fn unfilter(pipeline: &[u8], stored: Vec<u8>, mask: u32, size: usize) -> Result<Vec<u8>> {
    let message = FilterPipeline::decode(pipeline, Address::UNDEF)?;
    let decoded = Pipeline::from(&message).decode(&stored, mask, size);
    decoded.map_err(|e| Error::corrupt("fractal heap", Address::UNDEF, e.to_string()))
}

impl HdfFile {
    /// Opens `driver` as file `index`.
    pub fn open(driver: Arc<dyn FileDriver>, index: u32, directory: PathBuf) -> Result<HdfFile> {
        let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
        let file = Self::over(Store::open(driver)?, index, directory, &status)?;
        file.cut_warning().into_iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(file)
    }

    /// The warning about a truncated file, with both sizes.
    pub fn cut_warning(&self) -> Option<String> {
        let (len, recorded) = self.store.cut().ok()??;
        Some(format!("cut: the file has {len} of {recorded} bytes; reading the missing ones fails"))
    }

    /// The file, whose name in its directory is `name`.
    #[must_use]
    pub fn named(self, name: &OsStr) -> Self {
        HdfFile { name: name.to_owned(), ..self }
    }

    /// The file, beside which run files of log writers are in `writers`.
    #[must_use]
    pub fn beside(self, writers: Option<WriterLogs>) -> Self {
        HdfFile { writers, ..self }
    }

    /// The file `known` with the bytes of `own`, which is the same file of another container.
    pub fn view(own: &HdfFile, known: &HdfFile) -> HdfFile {
        HdfFile {
            index: known.index,
            store: own.store.clone(),
            shared: own.shared.clone(),
            root: own.root,
            identity: own.identity,
            stamp: own.stamp,
            directory: known.directory.clone(),
            name: known.name.clone(),
            writers: known.writers.clone(),
            log: RwLock::default(),
        }
    }

    /// The file that `store` reads, whose superblock extension is not used.
    pub fn without_extension(mut store: Store, directory: PathBuf, status: &Status) -> HdfFile {
        store.set_unfilter(Arc::new(unfilter));
        let root = store.superblock().root;
        let (identity, stamp) = (status.identity, status.stamp());
        HdfFile {
            index: 0,
            store: Arc::new(store),
            shared: None,
            root,
            identity,
            stamp,
            directory,
            name: OsString::new(),
            writers: None,
            log: RwLock::default(),
        }
    }

    /// The file that `store` reads.
    pub fn over(mut store: Store, index: u32, directory: PathBuf, status: &Status) -> Result<HdfFile> {
        store.set_unfilter(Arc::new(unfilter));
        let superblock = store.superblock().clone();
        let mut shared = None;
        if superblock.extension.is_defined() {
            let extension = ObjectHeader::load(&store, superblock.extension)?;
            Self::load_cache_image(&mut store, &extension)?;
            if let Some(m) = extension.find(kind::SHARED_MESSAGE_TABLE) {
                let m = SharedMessageTable::decode(&m.body, superblock.extension, store.ctx())?;
                shared = Some(SharedMessages::open(&store, m.table, m.indexes)?);
            }
        }
        if !superblock.root.is_defined() {
            return Err(Error::corrupt("superblock", Address(store.base()), "there is no root group"));
        }
        let (identity, stamp) = (status.identity, status.stamp());
        let (root, store) = (superblock.root, Arc::new(store));
        Ok(HdfFile { index, store, shared, root, identity, stamp, directory, name: OsString::new(), writers: None, log: RwLock::default() })
    }

    /// Dirty metadata of a cache image is nowhere else: it must be read from there.
    fn load_cache_image(store: &mut Store, extension: &ObjectHeader) -> Result<()> {
        let Some(m) = extension.find(kind::CACHE_IMAGE) else { return Ok(()) };
        if let Some((at, len)) = cache_image::decode_message(&m.body, store.ctx(), extension.address)? {
            let block = store.read(at, len, "metadata cache image")?;
            let entries = cache_image::decode(&block, store.ctx(), at)?;
            store.set_overlay(entries);
        }
        Ok(())
    }
}
