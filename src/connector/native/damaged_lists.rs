//! Damage that was met in lists of links and attributes, which have what could be read.

use crate::base::Error;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Objects that are remembered.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The first damage in the lists of each object.
pub struct DamagedLists(Mutex<LruCache<ObjectId, Error>>);

impl DamagedLists {
    /// None so far.
    pub fn new() -> Self {
        DamagedLists(Mutex::new(lru_cache(KEPT)))
    }

    /// Notes what was met in a list of the object `id`.
    pub fn note(&self, id: ObjectId, damage: Option<Error>) {
        if let Some(e) = damage {
            self.0.lock().get_or_insert(id, || e);
        }
    }

    /// What was met in lists of the object `id`.
    pub fn of(&self, id: ObjectId) -> Option<Error> {
        self.0.lock().get(&id).cloned()
    }
}
