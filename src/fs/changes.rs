//! Records changes of objects: their times, that a commit is due, and which pages of the kernel are
//! stale.

use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{Form, ObjectId};
use crate::fs::cut_names::Names;
use crate::fs::done::{ALL_PAGES, Invalidate};
use crate::fs::mounted::Mounted;
use crate::fs::namespace::{Namespace, Node};
use crate::fs::times::Times;
use crate::fs::types::{Changes, FsResult};
use crate::fs::views::{Effects, Host};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module's description.
pub struct ChangeLog {
    mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    times: Arc<Times>,
}

impl ChangeLog {
    /// Records changes of the objects of `namespace`.
    pub fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, times: Arc<Times>) -> Self {
        ChangeLog { mounted, namespace, times }
    }

    /// Records what a change through a view did.
    pub fn record(&self, effects: Effects, invalidate: &mut Invalidate) {
        self.removed(effects.removed);
        effects.groups.iter().for_each(|id| self.mounted.cut_names.forget(Names::Links(*id)));
        effects.attributes.iter().for_each(|id| self.mounted.cut_names.forget(Names::Attributes(*id)));
        for objects in [effects.changed, effects.groups, effects.attributes] {
            self.changed(&objects, invalidate);
        }
    }

    /// The content of `objects` changed.
    pub fn changed(&self, objects: &[ObjectId], invalidate: &mut Invalidate) {
        if objects.is_empty() {
            return;
        }
        self.mounted.note_uncommitted();
        let now = SystemTime::now();
        objects.iter().for_each(|id| self.times.set(*id, now, |t| t.mtime = Some(now)));
        objects.iter().for_each(|id| self.namespace.invalidate_views(*id, invalidate));
        let Some(edit) = self.mounted.connector.edit() else { return };
        for id in objects.iter().flat_map(|id| edit.take_written_through(*id)) {
            self.times.set(id, now, |t| t.mtime = Some(now));
            invalidate.pages.extend(self.namespace.nodes.open_on(id).into_iter().map(|ino| (ino, ALL_PAGES)));
        }
    }

    /// Names of links in `groups` changed.
    pub fn names_changed(&self, groups: &[ObjectId], invalidate: &mut Invalidate) {
        self.record(Effects { groups: groups.to_vec(), ..Effects::default() }, invalidate);
    }

    /// A name of the object of `node` was created, removed or moved.
    pub fn renamed(&self, node: &Node) {
        if let Some(id) = node.item.object() {
            self.times.set(id, SystemTime::now(), |_| {});
        }
    }

    /// The object `id` lost its last name; its address may be used for another one.
    pub fn removed(&self, id: Option<ObjectId>) {
        let Some(id) = id else { return };
        self.namespace.nodes.object_gone(id);
        self.times.forget(id);
        self.mounted.forget_object(id);
    }

    /// Size of the dataset of `node` before its attribute `name` is changed, if that may change the
    /// size.
    pub fn size_before(&self, node: &Node, name: &[u8]) -> Option<u64> {
        let fact = name.starts_with(b"user.h5dir.") && name != b"user.h5dir.attributes";
        self.size(node.item.dataset().filter(|_| fact)?)
    }

    /// Size of the dataset `id` in its main form, bytes.
    pub fn size(&self, id: ObjectId) -> Option<u64> {
        self.mounted.connector.content(id, Form::Main).and_then(|c| c.size()).ok()
    }

    /// The object `id` became one of another kind.
    pub fn kind_changed(&self, id: ObjectId, invalidate: &mut Invalidate) {
        self.namespace.kind_changed(id);
        self.changed(&[id], invalidate);
    }

    /// An attribute of `id` changed; `before` is from [`ChangeLog::size_before`]. That is no change
    /// of content, as a program that copies a file sets its times first. But a fact may have
    /// changed the size: `Some` if it did.
    pub fn attribute_changed(&self, id: ObjectId, before: Option<u64>, invalidate: &mut Invalidate) -> Option<u64> {
        self.mounted.cut_names.forget(Names::Attributes(id));
        let size = before.and_then(|_| self.size(id)).filter(|size| Some(*size) != before);
        if size.is_some() {
            self.changed(&[id], invalidate);
            return size;
        }
        self.mounted.note_uncommitted();
        self.times.set(id, SystemTime::now(), |_| {});
        self.namespace.invalidate_views(id, invalidate);
        None
    }

    /// The dataset `id` became shorter by a fact: the kernel asks for the size of its files when it
    /// needs it, not before.
    pub fn shortened(&self, id: ObjectId) {
        self.namespace.nodes.of_object(id).iter().for_each(|node| node.set_shorter(true));
    }

    /// Sets times: in the object, in seconds, where it records them, and until the mount ends.
    pub fn set_times(&self, edit: &dyn Edit, id: ObjectId, changes: &Changes) -> FsResult<()> {
        let seconds = |t: SystemTime| u32::try_from(t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())).unwrap_or(u32::MAX);
        let failed = |e: Error| self.mounted.refused(Some(id), &e);
        if let Some(mtime) = changes.mtime {
            edit.set_mtime(id, seconds(mtime)).map_err(failed)?;
        }
        if let Some(atime) = changes.atime {
            edit.set_atime(id, seconds(atime)).map_err(failed)?;
        }
        self.mounted.note_uncommitted();
        self.times.set(id, SystemTime::now(), |t| (t.mtime, t.atime) = (changes.mtime.or(t.mtime), changes.atime.or(t.atime)));
        Ok(())
    }
}
