//! Times of what is changed.

use super::FsResult;
use super::container::ContainerFs;
use super::nodes::{Node, NodeKind};
use super::types::Changes;
use crate::base::Error;
use crate::connector::ObjectId;
use crate::connector::edit::Edit;

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Times that this mount knows of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamps {
    /// Its content or its names were changed, or the time was set.
    pub mtime: Option<SystemTime>,
    /// Set.
    pub atime: Option<SystemTime>,
    /// Anything of it was changed, its own names too.
    pub ctime: SystemTime,
}

impl ContainerFs {
    /// Something was changed in these objects.
    pub(super) fn touched(&self, objects: &[ObjectId]) {
        self.dirty.store(true, Ordering::Release);
        let now = SystemTime::now();
        objects.iter().for_each(|id| self.stamp(*id, now, |s| s.mtime = Some(now)));
        objects.iter().for_each(|id| self.note_elsewhere(*id));
    }

    /// Notes times of an object that was changed `now`.
    pub(super) fn stamp(&self, id: ObjectId, now: SystemTime, f: impl FnOnce(&mut Stamps)) {
        let mut changed = self.changed.lock();
        let mut stamps = changed.get(&id).copied().unwrap_or(Stamps { mtime: None, atime: None, ctime: now });
        stamps.ctime = now;
        f(&mut stamps);
        changed.put(id, stamps);
    }

    /// Something was changed around this object: its names.
    pub(super) fn renamed(&self, node: &NodeKind) {
        if let Some(id) = node.object() {
            self.stamp(id, SystemTime::now(), |_| {});
        }
    }

    /// Where the bytes of a dataset end before its attribute `name` is changed, if that may change it.
    pub(super) fn end_before(&self, node: &Node, name: &[u8]) -> Option<u64> {
        let fact = name.starts_with(b"user.h5dir.") && name != b"user.h5dir.attributes";
        let id = node.kind.object().filter(|_| fact && matches!(node.kind, NodeKind::Dataset(..)))?;
        self.end_of(id)
    }

    /// An attribute of `id` was changed, before which its bytes ended at `end`. That is no change of its bytes: who copies a file
    /// sets its times first. But a fact may have made it longer or shorter.
    pub(super) fn attribute_changed(&self, id: ObjectId, end: Option<u64>) {
        if end.is_some() && self.end_of(id) != end {
            return self.touched(&[id]);
        }
        self.dirty.store(true, Ordering::Release);
        self.stamp(id, SystemTime::now(), |_| {});
        self.note_elsewhere(id);
    }

    /// Sets times: recorded, in seconds, where the object does that, and remembered.
    pub(super) fn set_times(&self, edit: &dyn Edit, id: ObjectId, changes: &Changes) -> FsResult<()> {
        let seconds = |t: SystemTime| u32::try_from(t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())).unwrap_or(u32::MAX);
        let failed = |e: Error| self.refused(Some(id), &e);
        if let Some(mtime) = changes.mtime {
            edit.set_mtime(id, seconds(mtime)).map_err(failed)?;
        }
        if let Some(atime) = changes.atime {
            edit.set_atime(id, seconds(atime)).map_err(failed)?;
        }
        self.dirty.store(true, Ordering::Release);
        self.stamp(id, SystemTime::now(), |s| (s.mtime, s.atime) = (changes.mtime.or(s.mtime), changes.atime.or(s.atime)));
        Ok(())
    }
}
