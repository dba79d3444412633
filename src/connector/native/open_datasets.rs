//! Open datasets: those that are kept, and how one is opened.

use super::access::Access;
use super::content::FixedContent;
use super::dataset::Dataset;
use super::object::Object;
use super::variable::VariableContent;
use super::virtual_::NativeSurroundings;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::base::{Error, Result, limits};
use crate::connector::{Connector, Content, Form, ObjectId};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Open datasets kept.
const DATASETS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2047);

/// An open dataset with its byte forms.
pub struct OpenDataset {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    main: Arc<dyn Content>,
    exact: Arc<dyn Content>,
    /// The main form where it is lines.
    pub(super) lines: Option<Arc<VariableContent>>,
    /// The state of the container that it was opened in.
    generation: u64,
    /// A thread may keep it after a log writer changed its extent.
    is_written_beside: bool,
}

impl OpenDataset {
    pub(super) fn is_virtual(&self) -> bool {
        self.dataset.layout().mapped().is_some()
    }

    /// Its bytes in one form.
    pub(super) fn form(&self, form: Form) -> Arc<dyn Content> {
        match form {
            Form::Main => self.main.clone(),
            Form::Exact => self.exact.clone(),
        }
    }

    /// A change drops the datasets that it changed; but a virtual one is changed by what happens to
    /// others.
    fn is_of(&self, generation: u64) -> bool {
        !(self.is_virtual() || self.is_written_beside) || self.generation == generation
    }
}

/// The datasets that were used last.
pub(super) struct OpenDatasets(Mutex<LruCache<ObjectId, Arc<OpenDataset>>>);

impl OpenDatasets {
    pub fn new() -> Self {
        OpenDatasets(Mutex::new(lru_cache(DATASETS_KEPT)))
    }

    /// The dataset `id`, if it is kept as it is in `generation`.
    fn get(&self, id: ObjectId, generation: u64) -> Option<Arc<OpenDataset>> {
        self.0.lock().get(&id).filter(|d| d.is_of(generation)).cloned()
    }

    /// Keeps `open` as the dataset `id`. Two threads may open it at once; both are right, the first
    /// stays, and is returned.
    fn keep(&self, id: ObjectId, open: Arc<OpenDataset>, generation: u64) -> Arc<OpenDataset> {
        let mut kept = self.0.lock();
        if let Some(d) = kept.get(&id).filter(|d| d.is_of(generation)) {
            return d.clone();
        }
        let gone = kept.push(id, open.clone());
        drop(kept);
        drop(gone);
        open
    }

    /// True if the dataset `id` is kept.
    fn has(&self, id: ObjectId) -> bool {
        self.0.lock().contains(&id)
    }

    /// The dataset `id`, if it is kept, be it not as it is now.
    pub fn peek(&self, id: ObjectId) -> Option<Arc<OpenDataset>> {
        self.0.lock().peek(&id).cloned()
    }

    /// Forgets the dataset `id`.
    pub fn forget(&self, id: ObjectId) {
        self.0.lock().pop(&id);
    }

    /// Forgets all.
    pub fn forget_all(&self) {
        self.0.lock().clear();
    }
}

impl Access<'_> {
    /// The dataset `id`, from the ones kept open or opened; `depth` counts virtual datasets on the
    /// way.
    pub fn dataset_at(&self, id: ObjectId, depth: usize) -> Result<Arc<OpenDataset>> {
        if depth > limits::VIRTUAL_DEPTH_MAX {
            return Err(Error::limit("virtual dataset", id.address, "virtual datasets nested too deep"));
        }
        match self.connector.datasets.get(id, self.connector.generation()) {
            Some(open) => Ok(open),
            None => Ok(self.connector.datasets.keep(id, self.opened(id, depth)?, self.connector.generation())),
        }
    }

    /// The dataset `id`.
    pub fn dataset(&self, id: ObjectId) -> Result<Arc<OpenDataset>> {
        self.dataset_at(id, 0)
    }

    /// Opens the dataset of `object`; `depth`: virtual datasets on the way to it.
    pub(super) fn open_dataset(&self, object: Object, id: ObjectId, depth: usize) -> Result<Dataset> {
        Dataset::open(object, id, |object| NativeSurroundings { access: self, object: object.clone(), depth })
    }

    fn opened(&self, id: ObjectId, depth: usize) -> Result<Arc<OpenDataset>> {
        let generation = self.connector.generation();
        let dataset = Arc::new(self.open_dataset(self.object(id)?, id, depth)?);
        let env = &self.connector.options.environment;
        let mut lines = None;
        let (main, exact): (Arc<dyn Content>, Arc<dyn Content>) = if dataset.datatype.contains_vlen() {
            let exact = Arc::new(VariableContent::new(dataset.clone(), env.clone(), false));
            match dataset.datatype.is_vlen_string() {
                true => {
                    let main = Arc::new(VariableContent::new(dataset.clone(), env.clone(), true));
                    lines = Some(main.clone());
                    (main, exact)
                }
                false => (exact.clone(), exact),
            }
        } else {
            let fixed = Arc::new(FixedContent { dataset: dataset.clone(), environment: env.clone() });
            (fixed.clone(), fixed)
        };
        let is_written_beside = self.connector.log_writer.get().is_some();
        Ok(Arc::new(OpenDataset { dataset, main, exact, lines, generation, is_written_beside }))
    }

    /// The bytes of the dataset `id` as they are now.
    pub(super) fn form_of(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        match self.connector.other_files().written_elsewhere(id) {
            Some((other, there)) => other.content(there, form),
            None => Ok(self.dataset(id)?.form(form)),
        }
    }

    /// The bytes of the dataset `id`, which is likely to be used once, of a container that does not
    /// change.
    pub(super) fn glance(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        if self.connector.datasets.has(id) {
            return self.form_of(id, form);
        }
        let open = self.opened(id, 0)?;
        // Chunks must be counted and variable-length data measured: what was found is kept.
        let d = &open.dataset;
        let is_cheap = d.layout().is_in_file() && d.layout().stored_chunks().is_none() && !d.datatype.contains_vlen();
        let open = if is_cheap { open } else { self.connector.datasets.keep(id, open, self.connector.generation()) };
        Ok(open.form(form))
    }
}
