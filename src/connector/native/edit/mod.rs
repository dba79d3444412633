//! Changes of an HDF5 file: operations of the container model to changes of its structures.
//!
//! Two locks order them. `writers` is held by one operation, or one commit, at a time. `lock` is held
//! shared by everything that reads structures and exclusively while an operation changes them, so that
//! nobody sees half of it; a commit writes to the disk without it.

mod attributes;
#[cfg(test)]
mod bounds_tests;
mod data;
mod facts;
#[cfg(test)]
mod fault_tests;
mod flush;
mod in_place;
#[cfg(test)]
mod large_tests;
mod live;
mod lost;
#[cfg(test)]
mod lost_tests;
mod names;
mod npy;
mod open;
mod plan;
mod ranges;
#[cfg(test)]
mod ranges_tests;
mod references;
mod refused;
mod relayout;
mod rewrite;
mod sequences;
#[cfg(test)]
mod sequences_tests;
#[cfg(test)]
mod small_tests;
mod stream;
#[cfg(test)]
mod times_tests;
mod typed;
mod vet;
#[cfg(test)]
mod vet_tests;

pub use live::LiveContent;
pub use plan::{check_fact, check_new_file};

use super::NativeConnector;
use super::dataset::{Dataset, number};
use crate::base::{Error, Result, waiting};
use crate::connector::edit::{Edit, Existing, NpyHeader, Taken};
use crate::connector::{Form, ObjectId};
use crate::container::first_change::FirstChange;
use crate::container::global_heap_edit::FreeSpace;
use crate::dataset::newlines::Newlines;
use crate::dataset::types::parse::DatasetSpec;
use crate::meta::Store;
use foldhash::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Changed chunks kept in memory, as a part of the chunk cache's budget; bytes at least.
const DIRTY_PART: u64 = 4;
const DIRTY_MIN: u64 = 64 << 10;
/// Changes of live bytes kept in memory before a commit, bytes.
const WAITING_MAX: u64 = 64 << 20;

/// What a connector that may change its file keeps for it.
#[derive(Default)]
pub struct Editing {
    writers: Mutex<()>,
    lock: RwLock<()>,
    /// Objects in use, with how often.
    held: Mutex<HashMap<ObjectId, u32>>,
    /// Objects without a name that are still in use.
    nameless: Mutex<HashSet<ObjectId>>,
    /// When the times of objects were last set, seconds since 1970.
    touched: Mutex<HashMap<ObjectId, u32>>,
    /// Rises with whatever is more than elements in their places: what virtual datasets found out of their sources is outdated then.
    generation: AtomicU64,
    /// What was said of new files that cannot be true before more is said.
    wishes: Mutex<HashMap<ObjectId, DatasetSpec>>,
    /// Newlines inside strings whose lines are written next.
    newlines: Mutex<HashMap<ObjectId, Newlines>>,
    /// New files that were refused their `user.h5dir.dataset` while they were open.
    refused: refused::Refused,
    /// References in elements of datasets that were made by this mount.
    references: references::References,
    /// Attributes with references to what is not there yet.
    pending: Mutex<HashMap<ObjectId, typed::Pending>>,
    /// Forms of variable-length elements that are being written.
    rewrites: Mutex<HashMap<ObjectId, rewrite::Rewrite>>,
    /// Files made through this mount, about which nothing more was said.
    streams: Mutex<HashSet<ObjectId>>,
    /// Writes changed chunks out.
    flusher: flush::Flusher,
    /// Datasets that were looked at before they were changed, with what is wrong with them.
    vetted: Mutex<HashMap<ObjectId, Option<Error>>>,
    /// Chunks that could not be.
    losses: lost::Losses,
    /// Free space of global heap collections.
    heaps: Mutex<FreeSpace>,
    /// K of version 1 chunk B-trees.
    pub(super) btree_k: u16,
    /// What the first change has to begin with, and whether it was made.
    first: FirstChange,
    begun: AtomicBool,
}

thread_local! {
    /// This thread holds a lock exclusively: what it reads meanwhile must not ask for it.
    static EXCLUSIVE: Cell<bool> = const { Cell::new(false) };
}

impl Editing {
    /// Objects may be others now than they were, or elsewhere.
    fn new_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Waits until no other operation changes anything.
    fn writer(&self) -> MutexGuard<'_, ()> {
        waiting::take(|| self.writers.try_lock(), || self.writers.lock())
    }
}

/// The exclusive lock.
struct Exclusive<'a>(#[allow(dead_code)] RwLockWriteGuard<'a, ()>);

impl<'a> Exclusive<'a> {
    fn take(lock: &'a RwLock<()>) -> Self {
        let guard = waiting::take(|| lock.try_write(), || lock.write());
        EXCLUSIVE.set(true);
        Exclusive(guard)
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        EXCLUSIVE.set(false);
    }
}

/// One operation under way.
struct Change<'a> {
    connector: &'a NativeConnector,
    editing: &'a Editing,
    _exclusive: Exclusive<'a>,
    _writer: MutexGuard<'a, ()>,
}

/// There was no room for something.
fn is_full(e: &Error) -> bool {
    matches!(e, Error::Io { errno: libc::ENOSPC | libc::EDQUOT, .. })
}

/// Changes that are made as a whole: when this goes they are done or taken back, also after a panic.
struct Attempt<'a> {
    change: &'a Change<'a>,
    store: &'a Store,
    /// The file's first change was made before.
    begun: bool,
    done: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.change.connector.options.environment.dirty.end(self.done);
        if !self.done {
            // It was taken back, too.
            self.store.set_image(!self.begun);
            self.change.connector.forget_all();
        }
        self.change.editing.begun.store(self.begun || self.done, Ordering::Release);
    }
}

/// Seconds since 1970.
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| u32::try_from(d.as_secs()).ok()).unwrap_or(0)
}

impl NativeConnector {
    /// Held by whoever reads structures. The same thread may hold it more than once.
    pub(super) fn shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.editing
            .as_ref()
            .filter(|_| !EXCLUSIVE.get())
            .map(|e| waiting::take(|| e.lock.try_read_recursive(), || e.lock.read_recursive()))
    }

    /// Which state of its objects the file is in; see `Editing`.
    pub(super) fn generation(&self) -> u64 {
        self.editing.as_ref().map_or(0, |e| e.generation.load(Ordering::Acquire))
    }

    fn editing(&self) -> Result<&Editing> {
        self.editing.as_ref().ok_or_else(|| Error::refused(libc::EROFS, "the file is mounted read-only"))
    }

    /// Begins an operation on objects of the mounted file.
    fn change(&self, objects: &[ObjectId]) -> Result<Change<'_>> {
        let editing = self.editing()?;
        if objects.iter().any(|id| id.file != 0) {
            return Err(Error::refused(libc::EROFS, "the object belongs to another file, which is never changed"));
        }
        let writer = editing.writer();
        let exclusive = Exclusive::take(&editing.lock);
        let change = Change { connector: self, editing, _exclusive: exclusive, _writer: writer };
        if !change.store()?.is_writable() {
            return Err(Error::refused(libc::EROFS, "an earlier write to the file failed: it stays as it was last made durable"));
        }
        Ok(change)
    }

    /// One operation: made as a whole or not at all.
    fn operate<T>(&self, objects: &[ObjectId], f: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
        let change = self.change(objects)?;
        let result = change.atomically(|| f(&change))?;
        change.settle()?;
        self.relieve();
        Ok(result)
    }

    /// The same, once more when there is no room and what was removed makes some, which it does only when that is durable.
    fn operate_with_room<T>(&self, objects: &[ObjectId], f: &dyn Fn(&Change<'_>) -> Result<T>) -> Result<T> {
        match self.operate(objects, f) {
            Err(e) if is_full(&e) && self.is_relieved() => {
                self.commit_all(false)?;
                self.operate(objects, f)
            }
            done => done,
        }
    }

    fn holds_references(&self, id: ObjectId) -> Result<bool> {
        let _shared = self.shared();
        Ok(self.dataset(id)?.dataset.datatype.contains_reference())
    }

    fn is_relieved(&self) -> bool {
        self.file(0).is_ok_and(|f| f.store.transaction().is_ok_and(|t| t.is_relieved()))
    }

    /// On a full disk: what was removed makes room only when that is durable.
    fn relieve(&self) {
        if self.is_relieved()
            && let Err(e) = self.commit_all(false)
        {
            // Whoever writes on, or the next commit, is told.
            tracing::debug!("no room is made on the disk: {e}");
        }
    }

    /// Operations on a dataset, each of which tells where the next one begins: the changes of one operation are in memory at once.
    fn in_steps(&self, id: ObjectId, step: &dyn Fn(&Change<'_>, u64) -> Result<Option<u64>>) -> Result<()> {
        let mut next = Some(0);
        while let Some(at) = next {
            next = self.operate(&[id], |c| step(c, at))?;
        }
        Ok(())
    }

    /// As `operate`, on a dataset that may be made anew: its changed chunks are in the file before, since those that `f`
    /// leaves are forgotten when it fails.
    fn operate_flushed<T>(&self, id: ObjectId, f: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
        let change = self.change(&[id])?;
        change.flush_dataset(id)?;
        let result = change.atomically(|| f(&change));
        if result.is_err() {
            self.options.environment.forget(number(id));
        }
        let result = result?;
        change.settle()?;
        Ok(result)
    }

    /// Writes all changed chunks to the file, then makes everything durable.
    fn commit_all(&self, close: bool) -> Result<()> {
        let editing = self.editing()?;
        waiting::may_wait();
        if close {
            self.stop_flusher();
        }
        // What fails here is met again below.
        let _ = self.write_out_early();
        let change = self.change(&[])?;
        change.lead_references(close);
        change.lead_elements(close);
        let store = change.store()?;
        let mut flushed = change.flush_all();
        if flushed.as_ref().is_err_and(is_full) && store.transaction()?.is_relieved() {
            // What was removed first; in its room what waits for room.
            flushed = self.options.neighbours.sync().and_then(|()| store.commit()).and_then(|()| change.flush_all());
        }
        let Change { _exclusive, _writer, .. } = change;
        // Readers go on while the disk works.
        drop(_exclusive);
        let begun = editing.begun.load(Ordering::Acquire);
        // Bytes in other files before what tells of them.
        let flushed = flushed.and_then(|()| self.options.neighbours.sync());
        let told = flushed.and_then(|()| if close && begun { editing.first.close(&store) } else { Ok(()) });
        let done = told.and_then(|()| if close { store.close() } else { store.commit() });
        if done.is_err() {
            let _readers = Exclusive::take(&editing.lock);
            if store.transaction()?.has_failed() {
                editing.first.failed(&store);
            }
            if close {
                store.transaction()?.abandon();
            }
            self.forget_all();
        }
        done
    }

    /// Drops whatever was decoded.
    fn forget_all(&self) {
        self.datasets.lock().clear();
        self.attribute_names.lock().clear();
        self.options.environment.cache.clear();
        self.options.environment.spools.clear();
        self.options.environment.stored.clear();
        if let Some(e) = &self.editing {
            e.new_generation();
            e.touched.lock().clear();
            *e.heaps.lock() = FreeSpace::default();
        }
        if let Ok(file) = self.file(0) {
            file.store.forget();
        }
    }
}

impl Change<'_> {
    fn store(&self) -> Result<Arc<Store>> {
        Ok(self.connector.file(0)?.store.clone())
    }

    /// Makes the changes of `f` as a whole or, when it fails, not at all.
    fn atomically<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let store = self.store()?;
        let begun = self.editing.begun.load(Ordering::Acquire);
        let mut attempt = Attempt { change: self, store: &store, begun, done: false };
        self.connector.options.environment.dirty.begin();
        let result = store.atomically(|| {
            if !begun {
                self.editing.first.apply(&store)?;
            }
            f()
        });
        if result.as_ref().is_err_and(is_full) {
            store.transaction()?.note_starved();
        }
        attempt.done = result.is_ok();
        result
    }

    /// The dataset as it is now.
    fn dataset(&self, id: ObjectId) -> Result<Arc<Dataset>> {
        Ok(self.connector.dataset(id)?.dataset.clone())
    }

    /// What was kept of an object is out of date.
    fn changed(&self, id: ObjectId) {
        self.editing.new_generation();
        self.connector.datasets.lock().pop(&id);
        self.connector.attribute_names.lock().pop(&id);
    }

    /// Keeps what waits in memory within its bounds.
    fn settle(self) -> Result<()> {
        let waiting = self.store()?.transaction()?.waiting();
        let connector = self.connector;
        drop(self);
        connector.bound_dirty()?;
        if waiting > WAITING_MAX { connector.commit_all(false) } else { Ok(()) }
    }
}

impl Edit for NativeConnector {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        // Whoever goes on after a loss would only lose more.
        self.lost(id)?;
        self.editing()?.refused.check(id)?;
        if self.write_in_place(id, offset, bytes)? {
            return Ok(());
        }
        self.room_for_more()?;
        self.suit_chunks(id, offset, bytes.len() as u64)?;
        self.operate_with_room(&[id], &|c| c.write(id, form, offset, bytes))
    }

    fn set_npy(&self, id: ObjectId, header: &NpyHeader, emptied: bool) -> Result<()> {
        self.said_more(id);
        self.operate_flushed(id, |c| c.set_npy(id, header, emptied))
    }

    fn finish(&self, id: ObjectId, last: bool) -> Result<bool> {
        let Some(e) = &self.editing else { return Ok(false) };
        if !last {
            e.refused.check(id)?;
        }
        // A file that was only truncated is going to be written: shells close a copy of the descriptor before.
        if e.rewrites.lock().get(&id).is_none_or(|r| !r.written && !last) {
            return Ok(false);
        }
        let done = self.operate_flushed(id, |c| c.finish_form(id)).map(|()| true);
        // Whoever else has it open may write what is missing.
        if last && e.held.lock().get(&id).is_none_or(|n| *n <= 1) {
            e.rewrites.lock().remove(&id);
        }
        done
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        self.suit_size(id, size);
        self.operate(&[id], |c| c.set_size(id, form, size))?;
        // Nobody has it open, so nobody closes it.
        let held = self.editing.as_ref().is_some_and(|e| e.held.lock().contains_key(&id));
        if held { Ok(()) } else { self.finish(id, true).map(|_| ()) }
    }

    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.in_steps(id, &|c, at| c.zero(id, offset..offset.saturating_add(len), at))
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.suit_size(id, offset.saturating_add(len));
        self.in_steps(id, &|c, at| c.allocate(id, offset..offset.saturating_add(len), at))
    }

    fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        if self.holds_references(to.0)? {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are written one by one"));
        }
        self.suit_copy(from, to, len);
        self.copy_steps(from, to, len)
    }

    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.operate_with_room(&[group], &|c| c.create_file(group, name))
    }

    fn create_dataset(&self, group: ObjectId, name: &[u8], description: &[u8]) -> Result<ObjectId> {
        self.operate(&[group], |c| c.create_described(group, name, description))
    }

    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.operate_with_room(&[group], &|c| c.create_group(group, name))
    }

    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        self.operate(&[group, target], |c| c.link(group, name, target))
    }

    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        self.operate(&[group], |c| c.symlink(group, name, target))
    }

    fn external_link(&self, group: ObjectId, name: &[u8], file: &[u8], object: &[u8]) -> Result<()> {
        self.operate(&[group], |c| c.external_link(group, name, file, object))
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let gone = self.operate(&[group], |c| c.unlink(group, name, directory))?;
        self.lost_with(gone);
        Ok(gone)
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        let gone = self.operate(&[from.0, to.0], |c| c.rename(from, to, taken))?;
        self.lost_with(gone);
        Ok(gone)
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], text: &[u8], existing: Existing) -> Result<()> {
        self.operate(&[id], |c| c.set_attribute(id, name, text, existing))
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.set_attribute_bytes(id, name, bytes))
    }

    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        self.operate(&[id], |c| c.rename_attribute(id, from, to, replace))
    }

    fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        if name != "attributes" {
            self.said_more(id);
        }
        let done = self.operate_flushed(id, |c| c.set_fact(id, name, text));
        if name == "dataset" {
            self.note_refused(id, done.as_ref().err());
        }
        done
    }

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.remove_attribute(id, name))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.wish_mtime(id, seconds))
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.set_atime(id, seconds))
    }

    fn hold(&self, id: ObjectId) {
        if let Some(e) = &self.editing {
            let mut held = e.held.lock();
            let count = held.entry(id).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    fn release(&self, id: ObjectId) {
        let Some(e) = &self.editing else { return };
        {
            let mut held = e.held.lock();
            match held.get_mut(&id) {
                Some(n) if *n > 1 => {
                    *n = n.saturating_sub(1);
                    return;
                }
                _ => held.remove(&id),
            };
        }
        e.losses.closed(id);
        e.refused.forget(id);
        e.references.closed(id);
        e.newlines.lock().remove(&id);
        if e.nameless.lock().contains(&id) {
            e.losses.forget(id);
            if let Err(error) = self.operate(&[id], |c| c.delete_nameless(id)) {
                tracing::warn!("the space of a deleted object is not given back: {error}");
            }
        }
    }

    fn lost(&self, id: ObjectId) -> Result<()> {
        self.editing.as_ref().map_or(Ok(()), |e| e.losses.tell(id))
    }

    fn commit(&self) -> Result<()> {
        if self.file(0)?.store.transaction()?.has_failed() {
            return Err(Error::refused(libc::EIO, "an earlier commit failed: what was written since the one before it is lost"));
        }
        let neighbours = self.options.neighbours.is_unsynced();
        if !neighbours && self.options.environment.dirty.is_empty() && !self.file(0)?.store.transaction()?.is_dirty() {
            return Ok(());
        }
        self.commit_all(false)
    }

    fn close(&self) -> Result<()> {
        self.commit_all(true)?;
        self.editing()?.losses.untold()
    }
}
