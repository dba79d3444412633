//! Times of objects that were changed through this mount.
//!
//! They are finer than the times that a container records, and exist where it records none.

use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::time::SystemTime;

/// Objects whose times are kept.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Times of an object that this mount changed.
#[derive(Debug, Clone, Copy)]
pub struct ObjectTimes {
    /// Its content or its names changed, or the time was set.
    pub mtime: Option<SystemTime>,
    /// The time was set.
    pub atime: Option<SystemTime>,
    /// Anything of it changed, or a name that leads to it.
    pub ctime: SystemTime,
}

/// Times by object.
pub struct Times(Mutex<LruCache<ObjectId, ObjectTimes>>);

impl Default for Times {
    fn default() -> Self {
        Times(Mutex::new(lru_cache(OBJECTS_MAX)))
    }
}

impl Times {
    /// The times of `id`, if this mount changed it.
    pub fn get(&self, id: ObjectId) -> Option<ObjectTimes> {
        self.0.lock().peek(&id).copied()
    }

    /// Sets the ctime of `id` to `now`, and by `f` other times.
    pub fn set(&self, id: ObjectId, now: SystemTime, f: impl FnOnce(&mut ObjectTimes)) {
        let mut all = self.0.lock();
        let mut times = all.get(&id).copied().unwrap_or(ObjectTimes { mtime: None, atime: None, ctime: now });
        times.ctime = now;
        f(&mut times);
        all.put(id, times);
    }

    /// Forgets the times of `id`.
    pub fn forget(&self, id: ObjectId) {
        self.0.lock().pop(&id);
    }
}
