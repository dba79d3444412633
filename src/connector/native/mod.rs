//! The connector for HDF5 files: this engine.

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
pub mod log;
mod log_access;
mod log_members;
mod log_names;
mod members;
mod named_types;
pub mod object;
mod onion;
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
pub mod variable;
pub mod virtual_;

pub use create::create;
pub use recover::{Recovered, examine, open_for_reading, open_to_change, open_to_recover, open_to_rescue, recover, share_lock};

use super::salvage::Salvage;
use super::stored;
use super::{
    AttributeNames, Budget, Chunks, Connector, Content, DatasetInfo, Datatype, ElementSet, Elsewhere, Form, Link, LinkFacts, LinkTarget,
    Newlines, ObjectId, ObjectInfo, ObjectProperties, Result, TargetVisitor, Value,
};
use crate::base::locks::{Mutex, RwLock};
use crate::base::{Address, Error, limits};
use crate::dataset::environment::Environment;
use crate::dataset::layout::virtual_::MissingPolicy;
use crate::file::FileDriver;
use crate::file::posix::PosixFile;
use crate::format::message::{comment, link};
use crate::format::object_header::kind as message;
use crate::structures::group::{self, order};
use damaged_lists::DamagedLists;
use dataset::Dataset;
use external::Neighbours;
use file::HdfFile;
use log_names::Named;
use lru::LruCache;
use object::Object;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

/// Open datasets kept.
const DATASETS_KEPT: NonZeroUsize = NonZeroUsize::new(2048).unwrap();
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
    datasets: Mutex<LruCache<ObjectId, Arc<OpenDataset>>>,
    paths: Mutex<std::collections::HashMap<u32, paths::Paths>>,
    /// Long lists of attribute names: a listing asks for them once for every few names.
    attribute_names: Mutex<LruCache<ObjectId, AttributeNames>>,
    damaged_lists: DamagedLists,
    options: Options,
    /// Only of a file that may be changed.
    editing: Option<edit::Editing>,
    /// The permitted changes of a log writer, which changes no other file than its own.
    log_writer: OnceLock<edit::Restricted>,
}

/// An open dataset with its byte forms.
pub struct OpenDataset {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    main: Arc<dyn Content>,
    exact: Arc<dyn Content>,
    /// The main form where it is lines.
    lines: Option<Arc<variable::VariableContent>>,
    /// The state of the container that it was opened in.
    generation: u64,
}

impl OpenDataset {
    fn is_virtual(&self) -> bool {
        self.dataset.layout().mapped().is_some()
    }
}

impl NativeConnector {
    /// Opens `driver`, whose directory is `directory`.
    pub fn open(driver: Arc<dyn FileDriver>, directory: PathBuf, options: Options) -> Result<Arc<NativeConnector>> {
        let file = Arc::new(HdfFile::open(driver, 0, directory)?.named(&options.log.file_name));
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
            datasets: Mutex::new(LruCache::new(DATASETS_KEPT)),
            paths: Mutex::default(),
            attribute_names: Mutex::new(LruCache::new(LISTS_KEPT)),
            damaged_lists: DamagedLists::new(),
            options,
            editing,
            log_writer: OnceLock::new(),
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

    /// The object `id`.
    pub fn object(&self, id: ObjectId) -> Result<Object> {
        Object::open(&self.file(id.file)?, id.address)
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
        let opened = HdfFile::open(Arc::new(driver), 0, directory)?.named(name);
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

    /// The dataset `id`, from the ones kept open or opened; `depth` counts virtual datasets on the
    /// way.
    pub fn dataset_at(&self, id: ObjectId, depth: usize) -> Result<Arc<OpenDataset>> {
        if depth > limits::VIRTUAL_DEPTH_MAX {
            return Err(Error::limit("virtual dataset", id.address, "virtual datasets nested too deep"));
        }
        if let Some(d) = self.datasets.lock().get(&id).filter(|d| self.is_current(d)) {
            return Ok(d.clone());
        }
        Ok(self.keep(id, self.opened(id, depth)?))
    }

    /// What changes is dropped; but a virtual dataset is changed by what happens to others.
    fn is_current(&self, d: &OpenDataset) -> bool {
        !d.is_virtual() || d.generation == self.generation()
    }

    /// Opens the dataset of `object`; `depth`: virtual datasets on the way to it.
    fn open_dataset(&self, object: Object, id: ObjectId, depth: usize) -> Result<Dataset> {
        Dataset::open(object, id, |object| virtual_::NativeSurroundings { connector: self, object: object.clone(), depth })
    }

    fn opened(&self, id: ObjectId, depth: usize) -> Result<Arc<OpenDataset>> {
        let generation = self.generation();
        let dataset = Arc::new(self.open_dataset(self.object(id)?, id, depth)?);
        let env = &self.options.environment;
        let mut lines = None;
        let (main, exact): (Arc<dyn Content>, Arc<dyn Content>) = if dataset.datatype.contains_vlen() {
            let exact = Arc::new(variable::VariableContent::new(dataset.clone(), env.clone(), false));
            match dataset.datatype.is_vlen_string() {
                true => {
                    let main = Arc::new(variable::VariableContent::new(dataset.clone(), env.clone(), true));
                    lines = Some(main.clone());
                    (main, exact)
                }
                false => (exact.clone(), exact),
            }
        } else {
            let fixed = Arc::new(content::FixedContent { dataset: dataset.clone(), environment: env.clone() });
            (fixed.clone(), fixed)
        };
        Ok(Arc::new(OpenDataset { dataset, main, exact, lines, generation }))
    }

    fn keep(&self, id: ObjectId, open: Arc<OpenDataset>) -> Arc<OpenDataset> {
        // Two threads may open it at once; both handles are right, the first stays.
        let mut kept = self.datasets.lock();
        if let Some(d) = kept.get(&id).filter(|d| self.is_current(d)) {
            return d.clone();
        }
        let gone = kept.push(id, open.clone());
        drop(kept);
        drop(gone);
        open
    }

    fn dataset(&self, id: ObjectId) -> Result<Arc<OpenDataset>> {
        self.dataset_at(id, 0)
    }

    /// A dataset's bytes as they are now.
    fn form_of(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        let d = self.dataset(id)?;
        Ok(match form {
            Form::Main => d.main.clone(),
            Form::Exact => d.exact.clone(),
        })
    }

    /// A link of the format as the connector shows it.
    fn link(file: u32, l: link::Link) -> Link {
        let target = match l.target {
            link::LinkTarget::Hard(address) => LinkTarget::Hard(ObjectId { file, address }),
            link::LinkTarget::Soft(path) => LinkTarget::Soft(path),
            link::LinkTarget::External { file, object } => LinkTarget::External { file, object },
            link::LinkTarget::UserDefined { class, .. } => LinkTarget::UserDefined(class),
        };
        Link { name: l.name, target }
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
        let _shared = self.shared();
        let object = self.object(id)?;
        Ok(ObjectInfo { ownership: ownership::of(&object), ..object.info() })
    }

    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        let _shared = self.shared();
        let object = self.object(group)?;
        let stored = self.stored_name(&object.file, log::links_of(&object.file, group.address), name);
        Ok(stored.map_or_else(LinkFacts::default, |name| ownership::of_link(&object, &name)))
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        let _shared = self.shared();
        let object = self.object(group)?;
        let Some(stored) = self.stored_name(&object.file, log::links_of(&object.file, group.address), name) else { return Ok(None) };
        let link = group::lookup(&object.file.store, &object.group_storage()?, &stored)?;
        Ok(link.map(|l| Self::link(group.file, link::Link { name: name.to_vec(), ..l })))
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        let _shared = self.shared();
        let object = self.object(group)?;
        let storage = object.group_storage()?;
        let (log, what) = (self.log_of(&object.file), log::links_of(&object.file, group.address));
        let mut members = members::Members::new(&object.file);
        let mut show = |l: link::Link, next| {
            members.add(&l);
            let shown = log.as_ref().map_or(Some(&*l.name), |log| log.shown(what, &l.name)).map(|name| name.len());
            let Some(len) = shown else { return Ok(ControlFlow::Continue(())) };
            // A log takes a byte off the front of some names.
            let name =
                if len == l.name.len() { l.name } else { l.name.get(l.name.len().saturating_sub(len)..).unwrap_or_default().to_vec() };
            Ok(f(Self::link(group.file, link::Link { name, ..l }), next))
        };
        let listed = group::list(&object.file.store, &storage, start, &mut show);
        members.announce();
        self.damaged_lists.note(group, listed?);
        Ok(())
    }

    fn damage(&self, id: ObjectId) -> Option<Error> {
        self.damaged_lists.of(id)
    }

    fn comment(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let _shared = self.shared();
        let object = self.object(id)?;
        let body = object.message(message::COMMENT)?;
        Ok(body.map(|body| comment::decode(&body).to_vec()).filter(|text| !text.is_empty()))
    }

    fn properties(&self, id: ObjectId) -> Result<ObjectProperties> {
        let _shared = self.shared();
        properties::of(&self.object(id)?)
    }

    fn created_links(&self, group: ObjectId, limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        let _shared = self.shared();
        let object = self.object(group)?;
        if !object.tracks_links()? {
            return Ok(None);
        }
        let (log, what) = (self.log_of(&object.file), log::links_of(&object.file, group.address));
        let mut names = Vec::new();
        order::list_by_creation(&object.file.store, &object.group_storage()?, &mut |l| {
            let shown = log.as_ref().map_or(Some(&*l.name), |log| log.shown(what, &l.name));
            names.extend(shown.map(<[u8]>::to_vec));
            if names.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Some(names))
    }

    fn external(&self, from: ObjectId, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>> {
        let _shared = self.shared();
        traverse::external(self, from.file, file, object, &mut 0)
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        let _shared = self.shared();
        traverse::path(self, start, path, &mut 0)
    }

    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        let _shared = self.shared();
        // It must be there when it is opened; what it is is looked up at each call. A virtual one
        // of another file may have its sources in this one.
        if self.editing.is_some() && (self.dataset(id)?.is_virtual() || id.file == 0) {
            return Ok(Arc::new(edit::CurrentContent { connector: self.this.clone(), id, form }));
        }
        self.form_of(id, form)
    }

    fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        let _shared = self.shared();
        if self.editing.is_some() || self.datasets.lock().contains(&id) {
            return self.content(id, form);
        }
        let d = self.opened(id, 0)?;
        // Chunks must be counted and variable-length data measured: what was found is kept.
        let cheap = d.dataset.layout().is_in_file() && d.dataset.layout().stored_chunks().is_none() && !d.dataset.datatype.contains_vlen();
        let d = if cheap { d } else { self.keep(id, d) };
        Ok(if form == Form::Main { d.main.clone() } else { d.exact.clone() })
    }

    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo> {
        let _shared = self.shared();
        info::dataset(self, id)
    }

    fn elsewhere(&self, id: ObjectId) -> Result<Option<Elsewhere>> {
        let _shared = self.shared();
        let open = self.dataset(id)?;
        open.dataset.layout().elsewhere(&open.dataset.bytes)
    }

    fn takes_mappings(&self) -> bool {
        // The first superblock that libhdf5 accepts them with.
        self.file(0).is_ok_and(|file| file.store.superblock().version >= 2)
    }

    fn newlines(&self, id: ObjectId) -> Result<Option<Newlines>> {
        let part = |open: &OpenDataset| open.lines.as_ref().is_none_or(|lines| lines.prepare_newlines());
        let (_shared, open) = self.prepared(&|| self.dataset(id), &part)?;
        Ok(open.lines.as_ref().and_then(|lines| lines.newlines()))
    }

    fn elements(&self, id: ObjectId) -> Result<Value> {
        info::elements(self, id)
    }

    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value> {
        info::elements_in(self, id, elements)
    }

    fn references(&self, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()> {
        let _shared = self.shared();
        info::references(self, id, first, budget, f)
    }

    fn defined(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<Option<ElementSet>> {
        let _shared = self.shared();
        let d = &self.dataset(id)?.dataset;
        let defined = d.layout().definition().map(|known| known.defined(&d.bytes, &self.options.environment, first, end));
        defined.transpose()
    }

    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        let _shared = self.shared();
        let dataset = self.dataset(id)?.dataset.clone();
        let has_chunks = dataset.layout().stored_chunks().is_some();
        Ok(has_chunks.then(|| Arc::new(chunks::StoredChunks { connector: self.this.clone(), id, dataset }) as Arc<dyn Chunks>))
    }

    fn stored(&self, id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        let _shared = self.shared();
        let dataset = self.dataset(id)?.dataset.clone();
        // The index does not contain dirty chunks, and changes.
        Ok(if self.editing.is_none() { portable::stored(&dataset) } else { None })
    }

    fn referable(&self, id: ObjectId) -> Result<Option<Arc<dyn stored::StoredChunks>>> {
        let _shared = self.shared();
        let dataset = self.dataset(id)?.dataset.clone();
        Ok(if self.editing.is_none() { portable::referable(&dataset) } else { None })
    }

    fn datatype(&self, id: ObjectId) -> Result<Datatype> {
        let _shared = self.shared();
        self.object(id)?.datatype()
    }

    fn named_type(&self, id: ObjectId, attribute: Option<&[u8]>) -> Result<Option<ObjectId>> {
        let _shared = self.shared();
        Ok(named_types::of(&self.object(id)?, attribute)?.map(|address| ObjectId { address, ..id }))
    }

    fn path_of(&self, id: ObjectId) -> Option<Vec<u8>> {
        let _shared = self.shared();
        self.path_from_root(id)
    }

    fn location(&self) -> Option<Vec<u8>> {
        let file = self.file(0).ok()?;
        portable::location(&file).map(|path| path.into_os_string().into_vec())
    }

    fn reference_bytes(&self) -> u8 {
        self.file(0).map_or(8, |file| file.store.ctx().sizeof_addr)
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        let _shared = self.shared();
        if let Some(names) = self.attribute_names.lock().get(&id) {
            return Ok(names.clone());
        }
        let object = self.object(id)?;
        let (mut names, damage) = attribute::names(&object)?;
        self.damaged_lists.note(id, damage);
        names.retain(|name| !ownership::is_hidden(name));
        if let Some(log) = self.log_of(&object.file) {
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
        let _shared = self.shared();
        let Some(stored) = self.stored_name(&self.file(id.file)?, Named::Attribute, name) else { return Ok(None) };
        info::attribute(self, id, &stored)
    }

    fn space(&self) -> Option<&dyn super::space::Space> {
        // Dirty chunks have no extent yet.
        self.editing.is_none().then_some(self)
    }

    fn salvage(&self) -> Option<&dyn Salvage> {
        self.options.rescue.then_some(self)
    }

    fn log(&self) -> Option<&dyn super::log::Log> {
        self.file(0).ok().and_then(|file| self.log_of(&file)).map(|_| self as &dyn super::log::Log)
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
