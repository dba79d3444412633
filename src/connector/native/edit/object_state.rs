//! What a writable container keeps for single objects: one state per object, dropped in one place.
//!
//! Most objects need only [`Usage`], which is small: a mount may create a million files. What few
//! objects need is in [`Pending`].

use super::named_types::TypeUses;
use super::new_file::NEW_FILES_MAX;
use super::pending::UnresolvedAttributes;
use super::references::Copied;
use super::rewrite::Rewrite;
use super::write_errors::WriteError;
use crate::base::Error;
use crate::base::element_set::ElementSet;
use crate::base::locks::{Mutex, MutexGuard};
use crate::base::newlines::Newlines;
use crate::connector::defined::Announced;
use crate::connector::{DatasetSpec, NewValue, ObjectId};
use foldhash::HashMap;

/// Use of an object by open files and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Open files.
    pub holds: u32,
    /// It has no name. It is deleted when the last file is closed.
    pub is_nameless: bool,
    /// It was created by this mount as a file of bytes, and no type was set since.
    pub is_new_file: bool,
    /// It was such a file until its description was set, and `Pending::holes` has all its holes.
    pub has_exact_holes: bool,
    /// Its extent was set as a fact of an empty file, and no byte of it was written, punched or cut
    /// since.
    pub is_shape_only: bool,
    /// Its raw data was found to end before the EOF at open.
    pub has_sound_bounds: bool,
    /// Round and seconds since 1970 in which its times were last stored.
    stored_times: Option<(u32, u32)>,
}

/// State of an object between operations that belong together.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Facts set on a new file that must wait until its shape is known.
    pub spec: Option<DatasetSpec>,
    /// Newlines inside strings whose lines are written next.
    pub newlines: Option<Newlines>,
    /// Why `user.h5dir.dataset` of a new file was refused.
    pub refused: Option<Error>,
    /// References in elements of a dataset whose type was set by this mount.
    pub references: Option<Copied>,
    /// Attributes with references to objects that do not exist yet.
    pub attributes: Option<UnresolvedAttributes>,
    /// A fill value with references to objects that do not exist yet.
    pub fill: Option<NewValue>,
    /// Named datatypes that do not exist yet, each with the attribute that is to refer to it.
    pub types: Option<TypeUses>,
    /// Order of creation of the links of a group, of which some do not exist yet.
    pub link_order: Option<Vec<Vec<u8>>>,
    /// The form of variable-length elements that is being written.
    pub rewrite: Option<Rewrite>,
    /// Bytes of a new file that were never written, though the file has others after them.
    pub holes: ElementSet,
    /// Defined elements that were set before the bytes were written.
    pub announced: Option<Announced>,
    /// Why its raw data must not be changed.
    pub bounds_error: Option<Error>,
    /// Why written bytes could not be stored.
    pub write_error: Option<WriteError>,
}

impl Pending {
    /// True if each commit tries to set some of it.
    pub(super) fn awaits_commit(&self) -> bool {
        self.references.is_some() || self.attributes.is_some() || self.fill.is_some() || self.types.is_some() || self.link_order.is_some()
    }

    fn is_empty(&self) -> bool {
        self.spec.is_none()
            && self.newlines.is_none()
            && self.refused.is_none()
            && self.references.is_none()
            && self.attributes.is_none()
            && self.fill.is_none()
            && self.types.is_none()
            && self.link_order.is_none()
            && self.rewrite.is_none()
            && self.holes.is_empty()
            && self.announced.is_none()
            && self.bounds_error.is_none()
            && self.write_error.is_none()
    }
}

/// Both kinds of state. Entries without content are dropped.
#[derive(Default)]
struct States {
    usage: HashMap<ObjectId, Usage>,
    pending: HashMap<ObjectId, Pending>,
    /// Raised when stored times may have been rolled back.
    round: u32,
    new_files: usize,
}

/// The state of all objects of a container.
#[derive(Default)]
pub(super) struct Objects(Mutex<States>);

/// Pending states of all objects, locked.
pub(super) struct AllPending<'a>(MutexGuard<'a, States>);

impl Objects {
    /// Use of `id`.
    pub(super) fn usage(&self, id: ObjectId) -> Usage {
        self.0.lock().usage.get(&id).copied().unwrap_or_default()
    }

    /// True if an object without names is kept.
    pub(super) fn has_nameless(&self) -> bool {
        self.0.lock().usage.values().any(|usage| usage.is_nameless)
    }

    /// True if files are open on `id`.
    pub(super) fn is_held(&self, id: ObjectId) -> bool {
        self.usage(id).holds > 0
    }

    /// Changes the use of `id`.
    pub(super) fn use_object<T>(&self, id: ObjectId, f: impl FnOnce(&mut Usage) -> T) -> T {
        let mut states = self.0.lock();
        let mut usage = states.usage.remove(&id).unwrap_or_default();
        let was_new = usage.is_new_file;
        let result = f(&mut usage);
        if usage.is_new_file && !was_new {
            usage.is_new_file = states.new_files < NEW_FILES_MAX;
        }
        states.new_files = states.new_files.saturating_add(usage.is_new_file.into()).saturating_sub(was_new.into());
        if usage != Usage::default() {
            states.usage.insert(id, usage);
        }
        result
    }

    /// Times of `id` are stored as of `seconds`; returns whether they were before.
    pub(super) fn note_times(&self, id: ObjectId, seconds: u32) -> bool {
        let round = self.0.lock().round;
        self.use_object(id, |usage| usage.stored_times.replace((round, seconds)) == Some((round, seconds)))
    }

    /// True if times of `id` are stored as of `seconds`.
    pub(super) fn has_times(&self, id: ObjectId, seconds: u32) -> bool {
        let states = self.0.lock();
        states.usage.get(&id).is_some_and(|usage| usage.stored_times == Some((states.round, seconds)))
    }

    /// The next change of `id` stores its times.
    pub(super) fn forget_times(&self, id: ObjectId) {
        self.use_object(id, |usage| usage.stored_times = None);
    }

    /// The next change of any object stores its times.
    pub(super) fn forget_all_times(&self) {
        let mut states = self.0.lock();
        states.round = states.round.wrapping_add(1);
    }

    /// Reads the pending state of `id`, if there is one.
    pub(super) fn pending<T>(&self, id: ObjectId, f: impl FnOnce(&Pending) -> T) -> Option<T> {
        self.0.lock().pending.get(&id).map(f)
    }

    /// Changes the pending state of `id`.
    pub(super) fn change_pending<T>(&self, id: ObjectId, f: impl FnOnce(&mut Pending) -> T) -> T {
        self.all_pending().change(id, f)
    }

    /// Locks the pending states of all objects.
    pub(super) fn all_pending(&self) -> AllPending<'_> {
        AllPending(self.0.lock())
    }

    /// Drops all state of `id`, which was deleted.
    pub(super) fn remove(&self, id: ObjectId) {
        self.use_object(id, |usage| *usage = Usage::default());
        self.0.lock().pending.remove(&id);
    }
}

impl AllPending<'_> {
    /// Changes the state of `id`.
    pub(super) fn change<T>(&mut self, id: ObjectId, f: impl FnOnce(&mut Pending) -> T) -> T {
        let state = self.0.pending.entry(id).or_default();
        let result = f(state);
        if state.is_empty() {
            self.0.pending.remove(&id);
        }
        result
    }

    /// Visits all states.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, &Pending)> {
        self.0.pending.iter().map(|(id, state)| (*id, state))
    }

    /// Takes a part out of all states that have it.
    pub(super) fn take<T>(&mut self, f: impl Fn(&mut Pending) -> Option<T>) -> Vec<(ObjectId, T)> {
        let taken = self.0.pending.iter_mut().filter_map(|(id, state)| f(state).map(|part| (*id, part))).collect();
        self.0.pending.retain(|_, state| !state.is_empty());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;

    #[test]
    fn states_without_content_are_dropped() {
        let (objects, id) = (Objects::default(), ObjectId { file: 0, address: Address(800) });
        objects.use_object(id, |usage| usage.holds = 1);
        objects.change_pending(id, |p| p.refused = Some(Error::refused(libc::EPERM, "test")));
        assert!(objects.is_held(id) && objects.pending(id, |p| p.refused.is_some()) == Some(true));
        objects.use_object(id, |usage| usage.holds = 0);
        objects.change_pending(id, |p| p.refused = None);
        let states = objects.0.lock();
        assert!(states.usage.is_empty() && states.pending.is_empty());
    }

    #[test]
    fn rolled_back_times_are_stored_again() {
        let (objects, id) = (Objects::default(), ObjectId { file: 0, address: Address(800) });
        assert!(!objects.note_times(id, 7) && objects.note_times(id, 7) && objects.has_times(id, 7));
        objects.forget_all_times();
        assert!(!objects.has_times(id, 7) && !objects.note_times(id, 7) && objects.note_times(id, 7));
        objects.remove(id);
        assert!(!objects.has_times(id, 7));
    }
}
