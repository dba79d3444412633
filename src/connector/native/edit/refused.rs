//! New files that were refused what `user.h5dir.dataset` says.
//!
//! `cp -a` and `tar` go on without a word when an extended attribute is refused, and end with exit status 0. The copy would be a
//! file of bytes, or of other elements, in place of a dataset. So writing and closing the file fail with the same error as long
//! as it is open; `tar` sets the attributes of the empty file before it opens it.

use super::facts::is_stream;
use super::{HashMap, NativeConnector};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use parking_lot::Mutex;

/// Most files remembered.
const REFUSED_MAX: usize = 1 << 16;
/// Errors by file.
#[derive(Default)]
pub(super) struct Refused(Mutex<HashMap<ObjectId, Error>>);

impl Refused {
    /// The error, if `id` was refused its fact.
    pub(super) fn check(&self, id: ObjectId) -> Result<()> {
        self.0.lock().get(&id).cloned().map_or(Ok(()), Err)
    }

    /// All have closed `id`, or it is gone.
    pub(super) fn forget(&self, id: ObjectId) {
        self.0.lock().remove(&id);
    }
}

impl NativeConnector {
    /// Remembers that `user.h5dir.dataset` of `id` was refused with `error`, or that it was accepted.
    pub(super) fn note_refused(&self, id: ObjectId, error: Option<&Error>) {
        let Some(editing) = &self.editing else { return };
        let Some(error @ Error::Refused { .. }) = error else { return editing.refused.forget(id) };
        let held = editing.held.lock().contains_key(&id);
        let is_new = {
            let _shared = self.shared();
            self.dataset(id).is_ok_and(|d| is_stream(&d.dataset) && (held || d.dataset.bytes.size == 0))
        };
        let mut refused = editing.refused.0.lock();
        if is_new && refused.len() < REFUSED_MAX {
            refused.insert(id, error.clone());
        }
    }
}
