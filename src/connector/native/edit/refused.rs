//! New files that were refused what `user.h5dir.dataset` says.
//!
//! `cp -a` and `tar` go on without a word when an extended attribute is refused, and end with exit
//! status 0. The copy would be a file of bytes, or of other elements, in place of a dataset. So
//! writing and closing the file fail with the same error as long as it is open; `tar` sets the
//! attributes of the empty file before it opens it.

use super::bytes_file::is_bytes_file;
use super::{Editing, NativeConnector};
use crate::base::{Error, Result};
use crate::connector::ObjectId;

/// Most files remembered.
const REFUSED_MAX: usize = 1 << 16;

impl Editing {
    /// Errors: the one with which `id` was refused its fact.
    pub(super) fn check_refused(&self, id: ObjectId) -> Result<()> {
        self.objects.pending(id, |p| p.refused.clone()).flatten().map_or(Ok(()), Err)
    }
}

impl NativeConnector {
    /// Remembers that `user.h5dir.dataset` of `id` was refused with `error`, or that it was
    /// accepted.
    pub(super) fn note_refused(&self, id: ObjectId, error: Option<&Error>) {
        let Some(editing) = &self.editing else { return };
        let Some(error @ Error::Refused { .. }) = error else { return editing.objects.change_pending(id, |p| p.refused = None) };
        let held = editing.objects.is_held(id);
        let is_new = {
            let access = self.access();
            access.dataset(id).is_ok_and(|d| is_bytes_file(&d.dataset) && (held || d.dataset.bytes.size == 0))
        };
        let mut pending = editing.objects.all_pending();
        if is_new && pending.iter().filter(|(_, p)| p.refused.is_some()).count() < REFUSED_MAX {
            pending.change(id, |p| p.refused = Some(error.clone()));
        }
    }
}
