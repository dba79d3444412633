//! The connector for HDF5 files: this engine.

mod access;
pub mod attribute;
pub mod check;
mod chunks;
mod claims;
pub mod content;
pub mod create;
mod damaged_lists;
pub mod dataset;
pub mod edit;
pub mod external;
pub mod file;
mod file_heap;
pub mod following;
pub mod in_parts;
mod info;
pub mod kind;
mod links;
pub mod log;
mod log_access;
mod log_members;
mod log_names;
mod members;
mod named_types;
pub mod object;
mod onion;
mod open_datasets;
mod ownership;
mod parts;
pub mod paths;
mod portable;
mod properties;
mod record_log;
pub mod recover;
pub mod references;
mod released_log;
pub mod remote;
mod salvage;
mod several;
mod space;
#[cfg(test)]
pub mod tests;
pub mod traverse;
mod type_uses;
pub mod variable;
pub mod virtual_;

pub use access::Access;
pub use create::create;
pub use open_datasets::OpenDataset;
pub use recover::{
    Recovered, examine, open_for_reading, open_to_change, open_to_recover, open_to_rescue, open_unwritten, recover, share_lock,
};

use super::salvage::Salvage;
use super::stored;
use super::{
    AttributeNames, Budget, Chunks, Connector, Content, DatasetInfo, Datatype, ElementSet, Elsewhere, Form, Link, LinkFacts, Newlines,
    ObjectId, ObjectInfo, ObjectProperties, Result, TargetVisitor, Value,
};
use crate::base::locks::{Mutex, RwLock};
use crate::base::lru_cache::lru_cache;
use crate::base::{Address, Error};
use crate::dataset::environment::Environment;
use crate::dataset::layout::virtual_::MissingPolicy;
use crate::file::FileDriver;
use crate::file::posix::PosixFile;
use crate::format::message::comment;
use crate::format::object_header::kind as message;
use damaged_lists::DamagedLists;
use external::Neighbours;
use file::HdfFile;
use log_names::Named;
use lru::LruCache;
use object::Object;
use open_datasets::OpenDatasets;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

/// Lists of attribute names kept, each of so many names.
const LISTS_KEPT: NonZeroUsize = NonZeroUsize::new(4).unwrap();
const ATTRIBUTES_FEW: usize = 64;
const ATTRIBUTES_MANY: usize = 200_000;
/// Other files opened at most.
const FILES_MAX: usize = 1024;

/// How a container is opened.
pub struct Options {
    /// Cache and threads.
    pub environment: Arc<Environment>,
    /// Other files that may be opened.
    pub neighbours: Arc<Neighbours>,
    /// What a missing source of a virtual dataset is.
    pub missing: MissingPolicy,
    /// The file may be damaged: objects are found without names.
    pub rescue: bool,
    /// How a log in it is shown.
    pub log: log::LogAccess,
}

/// A container that is an HDF5 file, with the files it leads to.
pub struct NativeConnector {
    this: Weak<NativeConnector>,
    files: RwLock<Vec<Arc<HdfFile>>>,
    datasets: OpenDatasets,
    paths: Mutex<std::collections::HashMap<u32, paths::Paths>>,
    /// Long lists of attribute names: a listing asks for them once for every few names.
    attribute_names: Mutex<LruCache<ObjectId, AttributeNames>>,
    damaged_lists: DamagedLists,
    options: Options,
    /// Only of a file that may be changed.
    editing: Option<edit::Editing>,
    /// The permitted changes of a log writer, which changes no other file than its own.
    log_writer: OnceLock<edit::Restricted>,
    /// Changes of extents by it.
    log_writer_state: AtomicU64,
}

impl NativeConnector {
    /// Opens `driver`, whose directory is `directory`.
    pub fn open(driver: Arc<dyn FileDriver>, directory: PathBuf, options: Options) -> Result<Arc<NativeConnector>> {
        let file = Arc::new(HdfFile::open(driver, 0, directory)?.named(&options.log.file_name).beside(options.log.writers.clone()));
        // The root group must be readable, or there is nothing to show.
        Object::open(&file, file.root)?;
        Ok(Self::assemble(file, options, None))
    }

    fn assemble(file: Arc<HdfFile>, options: Options, editing: Option<edit::Editing>) -> Arc<NativeConnector> {
        options.neighbours.own(file.identity);
        file.store.limit_cache(options.environment.metadata_bytes);
        Arc::new_cyclic(|this| NativeConnector {
            this: this.clone(),
            files: RwLock::new(vec![file]),
            datasets: OpenDatasets::new(),
            paths: Mutex::default(),
            attribute_names: Mutex::new(lru_cache(LISTS_KEPT)),
            damaged_lists: DamagedLists::new(),
            options,
            editing,
            log_writer: OnceLock::new(),
            log_writer_state: AtomicU64::new(0),
        })
    }

    /// What all datasets share.
    pub fn environment(&self) -> Arc<Environment> {
        self.options.environment.clone()
    }

    /// File number `index`.
    pub fn file(&self, index: u32) -> Result<Arc<HdfFile>> {
        let files = self.files.read();
        let file = usize::try_from(index).ok().and_then(|i| files.get(i)).cloned();
        file.ok_or_else(|| Error::corrupt("object", Address::UNDEF, format!("there is no file {index}")))
    }

    /// True when a file beside the first was changed since it was opened.
    fn neighbours_changed(&self) -> bool {
        let files = self.files.read();
        files.iter().skip(1).any(|f| f.store.driver().status().is_ok_and(|now| now.stamp() != f.stamp))
    }

    /// The HDF5 file `name` that `from` names.
    pub fn neighbour(&self, from: &HdfFile, name: &[u8], what: &'static str) -> Result<Arc<HdfFile>> {
        let (driver, directory) = self.options.neighbours.open(&from.directory, name, what)?;
        let file_name = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
        self.adopt(driver, directory, OsStr::from_bytes(file_name))
    }

    fn adopt(&self, driver: PosixFile, directory: PathBuf, name: &OsStr) -> Result<Arc<HdfFile>> {
        let identity = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?.identity;
        let known = |files: &[Arc<HdfFile>]| files.iter().find(|f| f.identity == identity).cloned();
        if let Some(f) = known(&self.files.read()) {
            return Ok(f);
        }
        // Opened without the lock; if another thread was faster, its file is the one.
        let opened = self.open_beside(driver, directory, name)?;
        let mut files = self.files.write();
        if let Some(f) = known(&files) {
            return Ok(f);
        }
        if files.len() >= FILES_MAX {
            return Err(Error::limit("external link", Address::UNDEF, format!("more than {FILES_MAX} files")));
        }
        let index = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let file = Arc::new(HdfFile { index, ..opened });
        self.options.neighbours.own(file.identity);
        file.store.limit_cache(self.options.environment.metadata_bytes);
        files.push(file.clone());
        Ok(file)
    }
}

impl Connector for NativeConnector {
    fn root(&self) -> ObjectId {
        let address = self.files.read().first().map_or(Address::UNDEF, |f| f.root);
        ObjectId { file: 0, address }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (done, total) = self.editing.as_ref().and_then(|e| e.preparations.progress(None)).unwrap_or_default();
        let mut all = vec![("layout_bytes_done", done), ("layout_bytes_total", total)];
        all.extend(self.options.environment.counters());
        all.extend(self.files.read().first().map(|file| file.store.driver().counters()).unwrap_or_default());
        all
    }

    fn warning(&self) -> Option<String> {
        self.file(0).ok()?.cut_warning()
    }

    fn set_cache_bytes(&self, bytes: u64) {
        self.options.environment.cache.set_budget(bytes);
    }

    fn layout_progress(&self, id: ObjectId) -> Option<(u64, u64)> {
        self.editing.as_ref()?.preparations.progress(Some(id))
    }

    fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        self.access().info(id)
    }

    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        self.access().link_facts(group, name)
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        self.access().lookup(group, name)
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        self.each_unlocked(start, &mut |access, start, f| access.list(group, start, f), f)
    }

    fn damage(&self, id: ObjectId) -> Option<Error> {
        self.damaged_lists.of(id)
    }

    fn comment(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let access = self.access();
        let object = access.object(id)?;
        let body = object.message(message::COMMENT)?;
        Ok(body.map(|body| comment::decode(&body).to_vec()).filter(|text| !text.is_empty()))
    }

    fn properties(&self, id: ObjectId) -> Result<ObjectProperties> {
        properties::of(&self.access().object(id)?)
    }

    fn created_links(&self, group: ObjectId, limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        self.access().created_links(group, limit)
    }

    fn external(&self, from: ObjectId, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>> {
        self.access().follow_external(from.file, file, object, &mut 0)
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        self.access().follow_path(start, path, &mut 0)
    }

    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        let access = self.access();
        let is_written = self.editing.is_some() || self.log_writer.get().is_some();
        // It must be there when it is opened.
        if !is_written || self.other_files().written_elsewhere(id).is_none() {
            let fixed = access.form_of(id, form)?;
            if !is_written {
                return Ok(fixed);
            }
        }
        // What it is is looked up at each call, with an access. Layouts of other files need one,
        // too.
        Ok(Arc::new(edit::CurrentContent { connector: self.this.clone(), id, form }))
    }

    fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        let is_written = self.editing.is_some() || self.log_writer.get().is_some();
        if is_written { self.content(id, form) } else { self.access().glance(id, form) }
    }

    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo> {
        let access = self.access();
        match self.other_files().written_elsewhere(id) {
            Some((other, there)) => Ok(DatasetInfo { parts: self.parts(id.file)?, ..Connector::dataset(&*other, there)? }),
            None => info::dataset(&access, id),
        }
    }

    fn elsewhere(&self, id: ObjectId) -> Result<Option<Elsewhere>> {
        let access = self.access();
        let open = access.dataset(id)?;
        open.dataset.layout().elsewhere(&open.dataset.bytes)
    }

    fn takes_mappings(&self) -> bool {
        // The first superblock that libhdf5 accepts them with.
        self.file(0).is_ok_and(|file| file.store.superblock().version >= 2)
    }

    fn newlines(&self, id: ObjectId) -> Result<Option<Newlines>> {
        let part = |open: &OpenDataset| open.lines.as_ref().is_none_or(|lines| lines.prepare_newlines());
        let (_access, open) = self.prepared(&|access| access.dataset(id), &part)?;
        Ok(open.lines.as_ref().and_then(|lines| lines.newlines()))
    }

    fn elements(&self, id: ObjectId) -> Result<Value> {
        info::elements(self, id)
    }

    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value> {
        info::elements_in(self, id, elements)
    }

    fn references(&self, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()> {
        info::references(self, id, first, budget, f)
    }

    fn defined(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<Option<ElementSet>> {
        let access = self.access();
        if let Some((other, id)) = self.other_files().written_elsewhere(id) {
            return other.defined(id, first, end);
        }
        let d = &access.dataset(id)?.dataset;
        let defined = d.layout().definition().map(|known| known.defined(&d.bytes, &self.options.environment, first, end));
        defined.transpose()
    }

    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        let access = self.access();
        let dataset = access.dataset(id)?.dataset.clone();
        let has_chunks = dataset.layout().stored_chunks().is_some();
        Ok(has_chunks.then(|| Arc::new(chunks::StoredChunks { connector: self.this.clone(), id, dataset }) as Arc<dyn Chunks>))
    }

    fn stored(&self, id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        let access = self.access();
        let dataset = access.dataset(id)?.dataset.clone();
        // The index does not contain dirty chunks, and changes.
        Ok(if self.editing.is_none() { portable::stored(&dataset) } else { None })
    }

    fn referable(&self, id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        let access = self.access();
        let dataset = access.dataset(id)?.dataset.clone();
        Ok(if self.editing.is_none() { portable::referable(&dataset) } else { None })
    }

    fn datatype(&self, id: ObjectId) -> Result<Datatype> {
        self.access().object(id)?.datatype()
    }

    fn named_type(&self, id: ObjectId, attribute: Option<&[u8]>) -> Result<Option<ObjectId>> {
        Ok(named_types::of(&self.access().object(id)?, attribute)?.map(|address| ObjectId { address, ..id }))
    }

    fn path_of(&self, id: ObjectId) -> Option<Vec<u8>> {
        self.access().path_from_root(id)
    }

    fn location(&self) -> Option<Vec<u8>> {
        let file = self.file(0).ok()?;
        portable::location(&file).map(|path| path.into_os_string().into_vec())
    }

    fn reference_bytes(&self) -> u8 {
        self.file(0).map_or(8, |file| file.store.ctx().sizeof_addr)
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        let access = self.access();
        if let Some(names) = self.attribute_names.lock().get(&id) {
            return Ok(names.clone());
        }
        let object = access.object(id)?;
        let (mut names, damage) = attribute::names(&object)?;
        self.damaged_lists.note(id, damage);
        names.retain(|name| !ownership::is_hidden(name));
        if let Some(log) = access.log_of(&object.file) {
            names = names.iter().filter_map(|name| log.shown(Named::Attribute, name)).map(<[u8]>::to_vec).collect();
        }
        let names: AttributeNames = names.into();
        // Short lists are made again as fast as they are found.
        if (ATTRIBUTES_FEW..ATTRIBUTES_MANY).contains(&names.len()) {
            self.attribute_names.lock().put(id, names.clone());
        }
        Ok(names)
    }

    fn attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
        if ownership::is_hidden(name) {
            return Ok(None);
        }
        let access = self.access();
        let Some(stored) = access.stored_name(&self.file(id.file)?, Named::Attribute, name) else { return Ok(None) };
        info::attribute(&access, id, &stored)
    }

    fn space(&self) -> Option<&dyn super::space::Space> {
        // Dirty chunks have no extent yet.
        self.editing.is_none().then_some(self)
    }

    fn salvage(&self) -> Option<&dyn Salvage> {
        self.options.rescue.then_some(self)
    }

    fn log(&self) -> Option<&dyn super::log::Log> {
        self.file(0).ok().and_then(|file| self.access().log_of(&file)).map(|_| self as &dyn super::log::Log)
    }

    fn check(&self) -> Option<&dyn super::check::Check> {
        self.editing.is_none().then_some(self)
    }

    fn edit(&self) -> Option<&dyn super::edit::Edit> {
        if let Some(writer) = self.log_writer.get() {
            return Some(writer);
        }
        let editing = self.editing.as_ref()?;
        Some(match editing.swmr.get() {
            Some(swmr) => swmr,
            None => self as &dyn super::edit::Edit,
        })
    }
}
