//! What was derived from states of a container, kept for the next request.

use super::dataset::Dataset;
use super::form_index::FormIndex;
use super::state::State;
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::iod::Key;
use foldhash::HashMap;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Datasets whose decoded headers, or counted bytes, are kept.
const DATASETS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Indexes of forms that are kept.
const FORMS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// Metadata of a dataset up to which it is kept decoded, bytes.
const KEPT_METADATA_BYTES: u64 = 32 << 10;

/// Where a listing ended.
#[derive(Clone)]
pub(super) struct Cursor {
    /// The object whose values are listed.
    pub id: u64,
    /// Values before.
    pub position: u64,
    /// Number of the state.
    pub generation: u64,
    /// The last key.
    pub key: Key,
}

/// See the module's description.
pub(super) struct Derived {
    /// Decoded headers, by object and revision.
    datasets: Mutex<LruCache<(u64, u64), Arc<Dataset>>>,
    /// Indexes of the forms of variable-length elements, of datasets as they were decoded.
    forms: Mutex<LruCache<(u64, bool), (Arc<Dataset>, Arc<FormIndex>)>>,
    /// Bytes stored for datasets, counted or estimated, with the state.
    counted: Mutex<LruCache<u64, (u64, u64)>>,
    /// Paths of all objects, with the state.
    paths: Mutex<(u64, HashMap<u64, Vec<u8>>)>,
    /// Where the last listing ended.
    pub cursor: Mutex<Option<Cursor>>,
}

impl Default for Derived {
    fn default() -> Self {
        Derived {
            datasets: Mutex::new(lru_cache(DATASETS_MAX)),
            forms: Mutex::new(lru_cache(FORMS_MAX)),
            counted: Mutex::new(lru_cache(DATASETS_MAX)),
            paths: Mutex::default(),
            cursor: Mutex::default(),
        }
    }
}

impl Derived {
    /// The dataset `id`.
    pub fn dataset(&self, state: &State, id: u64) -> Result<Arc<Dataset>> {
        let key = (id, state.revision(id));
        if let Some(found) = self.datasets.lock().get(&key) {
            return Ok(found.clone());
        }
        let dataset = Arc::new(Dataset::open(state, id)?);
        if dataset.metadata_bytes <= KEPT_METADATA_BYTES {
            self.datasets.lock().put(key, dataset.clone());
        }
        Ok(dataset)
    }

    /// The index of the form of `d`, which changes only with `d`: all readers of it share one.
    pub fn form_index(&self, d: &Arc<Dataset>, lines: bool) -> Arc<FormIndex> {
        let mut forms = self.forms.lock();
        if let Some((of, index)) = forms.get(&(d.id, lines))
            && Arc::ptr_eq(of, d)
        {
            return index.clone();
        }
        let index = Arc::<FormIndex>::default();
        forms.put((d.id, lines), (d.clone(), index.clone()));
        index
    }

    /// Shares the index of the form of `d` no longer.
    pub fn forget_form(&self, d: &Dataset) {
        let mut forms = self.forms.lock();
        forms.pop(&(d.id, true));
        forms.pop(&(d.id, false));
    }

    /// The bytes stored for the dataset `id` in `state`, if they were counted.
    pub fn counted(&self, state: &State, id: u64) -> Option<u64> {
        self.counted.lock().get(&id).filter(|(generation, _)| *generation == state.generation()).map(|(_, bytes)| *bytes)
    }

    /// Keeps the bytes stored for the dataset `id` in `state`.
    pub fn note_counted(&self, state: &State, id: u64, bytes: u64) {
        self.counted.lock().put(id, (state.generation(), bytes));
    }

    /// The path of the object `id` in `state`; the first call for a state makes those of all
    /// objects by `walk`, while others wait for them.
    pub fn path(&self, state: &State, id: u64, walk: impl FnOnce() -> Result<HashMap<u64, Vec<u8>>>) -> Result<Option<Vec<u8>>> {
        let mut paths = self.paths.lock();
        if paths.0 != state.generation() {
            *paths = (state.generation(), walk()?);
        }
        Ok(paths.1.get(&id).cloned())
    }
}
