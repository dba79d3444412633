//! Why the last operation on an object failed: `user.h5dir.error`.

use crate::base::Error;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use lru::LruCache;
use std::num::NonZeroUsize;

/// Objects whose last failure is kept.
const OBJECTS_MAX: usize = 1024;
/// Longest text, bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// The last failures of the objects that failed last.
pub struct Reasons(Mutex<LruCache<ObjectId, String>>);

impl Default for Reasons {
    fn default() -> Self {
        Reasons(Mutex::new(lru_cache(NonZeroUsize::new(OBJECTS_MAX).unwrap_or(NonZeroUsize::MIN))))
    }
}

impl Reasons {
    /// Notes a failure of an operation on the object `id`.
    pub fn note(&self, id: ObjectId, error: &Error) {
        let mut text = error.to_string();
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        self.0.lock().put(id, text);
    }

    /// Why the last operation on the object `id` that failed did so.
    pub fn last(&self, id: ObjectId) -> Option<String> {
        self.0.lock().peek(&id).cloned()
    }

    /// Forgets the object `id`: its address may be used for another one.
    pub fn forget(&self, id: ObjectId) {
        self.0.lock().pop(&id);
    }
}
