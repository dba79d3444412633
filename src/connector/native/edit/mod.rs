//! Operations of the container model on an HDF5 file.
//!
//! Two locks order them. One operation or one commit at a time holds `writers`. Readers of
//! structures hold `lock` shared. An operation holds it exclusively while it changes structures, so
//! that no reader sees a part of it. A commit syncs without it.

mod attributes;
mod bounds_check;
#[cfg(test)]
mod bounds_check_tests;
#[cfg(test)]
mod bounds_tests;
pub(super) mod bytes_file;
mod change;
mod comments;
mod commit;
mod current_content;
mod data;
mod defined;
mod errors;
mod fast_write;
#[cfg(test)]
mod fault_tests;
mod flush;
#[cfg(test)]
mod full_tests;
mod holes;
#[cfg(test)]
mod large_tests;
mod link_order;
mod log;
mod log_compact;
#[cfg(test)]
mod log_model_tests;
mod log_released;
#[cfg(test)]
mod log_tests;
mod named_types;
mod names;
mod new_file;
mod object_state;
mod open;
mod pending;
mod prepare;
#[cfg(test)]
mod prepare_tests;
mod ranges;
#[cfg(test)]
mod ranges_tests;
mod references;
mod refused;
mod relayout;
mod reserve;
mod rewrite;
mod sequences;
#[cfg(test)]
mod sequences_tests;
#[cfg(test)]
mod small_tests;
mod swmr;
#[cfg(test)]
mod swmr_tests;
#[cfg(test)]
mod times_tests;
mod write_errors;
#[cfg(test)]
mod write_errors_tests;

pub use current_content::CurrentContent;

use super::dataset::{Dataset, key};
use super::{NativeConnector, ownership};
use crate::base::lock_order::{Locked, Rank};
use crate::base::{Error, Result, waiting};
use crate::connector::edit::{Allocate, CopyRange, Edit, Elements, Erase, NewReference, Taken};
use crate::connector::log::EditLog;
use crate::connector::stored::{ChunkStorage, StoredChunk};
use crate::connector::{DatasetSpec, Datatype, Form, NewAttribute, NewValue, ObjectId, Ownership};
use crate::meta::Store;
use crate::structures::before_first_write::BeforeFirstWrite;
use crate::structures::global_heap::edit::FreeSpace;
use object_state::{Objects, Pending};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use reserve::is_full;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Memory for dirty chunks: divisor of the chunk cache's budget, and least bytes.
const DIRTY_PART: u64 = 4;
const DIRTY_MIN: u64 = 64 << 10;
/// Replacements of committed bytes in memory at which a commit is made, bytes.
const WAITING_MAX: u64 = 64 << 20;

/// State of a connector that may change its file.
#[derive(Default)]
pub struct Editing {
    writers: Mutex<()>,
    lock: RwLock<()>,
    /// State of single objects.
    objects: Objects,
    /// Raised by every change except of elements in place. Virtual datasets then resolve their
    /// sources again.
    generation: AtomicU64,
    /// Layouts that are prepared.
    pub(super) preparations: prepare::Preparations,
    /// Write-back of dirty chunks.
    flusher: flush::Flusher,
    /// Commits that callers wait for.
    commits: commit::SharedCommits,
    /// Free space of global heap collections.
    heaps: Mutex<FreeSpace>,
    /// K of version 1 chunk B-trees.
    pub(super) btree_k: u16,
    /// What precedes the first change, and whether that was made.
    first: BeforeFirstWrite,
    begun: AtomicBool,
    /// The session writes no index of the log: a dataset that the index needs cannot be read.
    unshaped_failed: AtomicBool,
    /// The compaction of the log that continues when the container is idle.
    compaction: log_compact::IdleCompaction,
    /// The permitted changes, if this is a SWMR writer.
    pub(super) swmr: OnceLock<swmr::SwmrEdit>,
}

thread_local! {
    /// This thread holds the exclusive lock, so that its reads must not acquire it.
    static EXCLUSIVE: Cell<bool> = const { Cell::new(false) };
}

impl Editing {
    /// Invalidates what virtual datasets resolved.
    fn new_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Waits for the operation or commit under way.
    fn writer(&self) -> Locked<MutexGuard<'_, ()>> {
        Locked::acquire(Rank::Writers, || waiting::take(|| self.writers.try_lock(), || self.writers.lock()))
    }
}

/// The exclusive lock.
struct Exclusive<'a>(#[allow(dead_code)] Locked<RwLockWriteGuard<'a, ()>>);

impl<'a> Exclusive<'a> {
    fn take(lock: &'a RwLock<()>) -> Self {
        let guard = Locked::acquire(Rank::Structures, || waiting::take(|| lock.try_write(), || lock.write()));
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
    /// Bytes of dirty chunks before the operation.
    dirty_before: u64,
    _exclusive: Exclusive<'a>,
    _writer: Locked<MutexGuard<'a, ()>>,
}

/// The rollback scope of an operation: the undo of the transaction, of the dirty chunks and of the
/// caches. Dropped before `run` succeeded, also by a panic, it drops all that was decoded of the
/// changed state.
struct Rollback<'a> {
    change: &'a Change<'a>,
    store: &'a Store,
    /// The first change of the file was made before.
    begun: bool,
    kept: bool,
}

impl<'a> Rollback<'a> {
    fn begin(change: &'a Change<'a>, store: &'a Store) -> Self {
        change.connector.options.environment.dirty.begin();
        if let Some(log) = change.connector.written_log() {
            log.begin();
        }
        Rollback { change, store, begun: change.editing.begun.load(Ordering::Acquire), kept: false }
    }

    /// Runs `f`, after the first change of the file if that was not made yet. Keeps its changes if
    /// it succeeds.
    fn run<T>(mut self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = self.store.atomically(|| {
            if !self.begun {
                self.change.editing.first.apply(self.store)?;
            }
            f()
        });
        self.kept = result.is_ok();
        result
    }
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        self.change.connector.options.environment.dirty.end(self.kept);
        if let Some(log) = self.change.connector.written_log() {
            log.end(self.kept);
        }
        if !self.kept {
            self.change.connector.forget_new_log();
            // The first change of the file was rolled back, too.
            self.store.set_image(!self.begun);
            self.change.connector.forget_all();
        }
        self.change.editing.begun.store(self.begun || self.kept, Ordering::Release);
    }
}

/// Seconds since 1970.
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| u32::try_from(d.as_secs()).ok()).unwrap_or(0)
}

impl NativeConnector {
    /// The lock of readers of structures. A thread may acquire it more than once.
    pub(super) fn shared(&self) -> Option<Locked<RwLockReadGuard<'_, ()>>> {
        let editing = self.editing.as_ref().filter(|_| !EXCLUSIVE.get())?;
        let lock = || waiting::take(|| editing.lock.try_read_recursive(), || editing.lock.read_recursive());
        Some(Locked::acquire(Rank::Structures, lock))
    }

    /// The generation of `Editing`.
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
        let dirty_before = self.options.environment.dirty.bytes();
        let change = Change { connector: self, editing, dirty_before, _exclusive: exclusive, _writer: writer };
        if !change.store()?.is_writable() {
            return Err(Error::refused(libc::EROFS, "an earlier write to the file failed: it stays as it was last made durable"));
        }
        Ok(change)
    }

    /// Runs an operation as a whole or not at all. On ENOSPC, commits to release freed and reserved
    /// space, then retries once.
    fn operate<T>(&self, objects: &[ObjectId], f: impl Fn(&Change<'_>) -> Result<T>) -> Result<T> {
        let mut change = self.change(objects)?;
        let mut result = change.atomically_reserved(|| f(&change));
        if result.as_ref().is_err_and(is_full) && (self.is_relieved() || self.has_unstored()) {
            drop(change);
            self.commit_all(false)?;
            change = self.change(objects)?;
            result = change.atomically_reserved(|| f(&change));
        }
        let result = result?;
        change.settle()?;
        self.relieve();
        Ok(result)
    }

    /// Runs an operation that may replace a dataset. Stores its dirty chunks first, because those
    /// that `f` leaves are dropped when it fails.
    fn operate_flushed<T>(&self, id: ObjectId, f: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
        let change = self.change(&[id])?;
        change.flush_dataset(id)?;
        change.flush_log(flush::LogFlush::Early)?;
        let result = change.atomically_reserved(|| f(&change));
        if result.is_err() {
            self.options.environment.forget(key(id));
        }
        let result = result?;
        change.settle()?;
        Ok(result)
    }
}

impl Change<'_> {
    fn store(&self) -> Result<Arc<Store>> {
        Ok(self.connector.file(0)?.store.clone())
    }

    /// Makes the changes of `f`, or none if it fails.
    fn atomically<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let store = self.store()?;
        let result = Rollback::begin(self, &store).run(f);
        if result.as_ref().is_err_and(is_full) {
            store.transaction()?.note_starved();
        }
        result
    }

    /// The dataset as it is now.
    fn dataset(&self, id: ObjectId) -> Result<Arc<Dataset>> {
        Ok(self.connector.dataset(id)?.dataset.clone())
    }

    /// Drops the decoded entries of an object that changed.
    fn changed(&self, id: ObjectId) {
        self.editing.new_generation();
        self.connector.datasets.lock().pop(&id);
        self.connector.attribute_names.lock().pop(&id);
    }

    /// Bounds dirty chunks and uncommitted bytes in memory after the operation. One that made no
    /// chunk dirty does not wait for the write-back.
    fn settle(self) -> Result<()> {
        let waiting = self.store()?.transaction()?.waiting();
        let connector = self.connector;
        let writes = connector.options.environment.dirty.bytes() > self.dirty_before || connector.options.environment.files_are_full();
        drop(self);
        if writes {
            connector.bound_dirty()?;
        }
        connector.bound_staged()?;
        if waiting > WAITING_MAX { connector.commit_all(false) } else { Ok(()) }
    }
}

impl Edit for NativeConnector {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        // A writer that continues after a write error would lose more.
        self.write_error(id)?;
        self.editing()?.check_refused(id)?;
        if self.write_in_place(id, offset, bytes)? {
            return Ok(());
        }
        self.admit_write()?;
        self.suit_chunks(id, offset, bytes.len() as u64)?;
        self.operate(&[id], |c| c.write(id, form, offset, bytes))
    }

    fn prepare_change(&self, id: ObjectId, spec: &DatasetSpec) -> Result<bool> {
        self.prepare(id, spec)
    }

    fn end_preparation(&self, id: ObjectId) {
        self.end_prepared(id);
    }

    fn change_dataset(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()> {
        self.change_layout(id, spec, elements)
    }

    fn keep_layout(&self, id: ObjectId) {
        self.note_declared(id);
    }

    fn note_description(&self, id: ObjectId, error: Option<&Error>) {
        self.note_refused(id, error);
    }

    fn become_datatype(&self, id: ObjectId, datatype: &Datatype, shown: &[u8]) -> Result<()> {
        self.operate_flushed(id, |c| c.commit_datatype(id, datatype, shown))
    }

    fn set_references(&self, id: ObjectId, first: u64, references: Vec<NewReference>) -> Result<()> {
        self.operate_flushed(id, |c| c.set_references(id, first, references))
    }

    fn use_datatype(&self, id: ObjectId, attribute: Option<&[u8]>, path: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.use_datatype(id, attribute, path))
    }

    fn set_comment(&self, id: ObjectId, comment: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.set_comment(id, comment))
    }

    fn set_link_order(&self, group: ObjectId, names: Vec<Vec<u8>>) -> Result<()> {
        self.operate(&[group], |c| c.set_link_order(group, &names))
    }

    fn finish(&self, id: ObjectId, last: bool) -> Result<bool> {
        let rewritten = self.finish_rewrite(id, last)?;
        self.apply_announced(id).map(|applied| rewritten || applied)
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        self.suit_size(id, size);
        self.operate(&[id], |c| c.set_size(id, form, size))?;
        // No close follows if no file is open.
        let held = self.editing.as_ref().is_some_and(|e| e.objects.is_held(id));
        if held { Ok(()) } else { self.finish(id, true).map(|_| ()) }
    }

    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.in_steps(id, &|c, at| c.zero(id, offset..offset.saturating_add(len), at, false))
    }

    fn erase(&self) -> Option<&dyn Erase> {
        Some(self)
    }

    fn log_by_default(&self, released: bool) -> Result<()> {
        self.operate(&[], |c| c.log_by_default(released))
    }

    fn log(&self) -> Option<&dyn EditLog> {
        self.record_log().map(|_| self as &dyn EditLog)
    }

    fn allocate(&self) -> Option<&dyn Allocate> {
        Some(self)
    }

    fn copy_range(&self) -> Option<&dyn CopyRange> {
        Some(self)
    }

    fn takes_chunks(&self, id: ObjectId, storage: &ChunkStorage) -> Result<bool> {
        let _shared = self.shared();
        Ok(super::portable::takes(&self.dataset(id)?.dataset, storage))
    }

    fn store_chunks(&self, id: ObjectId, storage: &ChunkStorage, chunks: &[StoredChunk]) -> Result<()> {
        self.operate(&[id], |c| c.store_chunks(id, storage, chunks))
    }

    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.create_file(group, name))
    }

    fn create_dataset(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.create_described(group, name, spec))
    }

    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.create_group(group, name))
    }

    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group, target], |c| c.link(group, name, target))
    }

    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.symlink(group, name, target))
    }

    fn external_link(&self, group: ObjectId, name: &[u8], file: &[u8], object: &[u8]) -> Result<()> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.external_link(group, name, file, object))
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let name = &*self.stored_link(group, name)?;
        let gone = self.operate(&[group], |c| c.unlink(group, name, directory))?;
        self.forget_write_error(gone);
        Ok(gone)
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        let names = (self.stored_link(from.0, from.1)?, self.stored_link(to.0, to.1)?);
        let gone = self.operate(&[from.0, to.0], |c| c.rename((from.0, &names.0), (to.0, &names.1), taken))?;
        self.forget_write_error(gone);
        Ok(gone)
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()> {
        ownership::check_name(name)?;
        let name = &*self.stored_attribute(name)?;
        self.operate(&[id], |c| c.set_attribute(id, name, value))
    }

    fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        let checked = |a: NewAttribute| {
            ownership::check_name(&a.name)?;
            Ok(NewAttribute { name: self.stored_attribute(&a.name)?.into_owned(), ..a })
        };
        let mut attributes = attributes.map(|a| a.and_then(checked));
        self.operate_flushed(id, |c| c.set_attributes(id, &mut attributes))
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        ownership::check_name(name)?;
        let name = &*self.stored_attribute(name)?;
        self.operate(&[id], |c| c.set_attribute_bytes(id, name, bytes))
    }

    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        ownership::check_name(from).and_then(|()| ownership::check_name(to))?;
        let (from, to) = (&*self.stored_attribute(from)?, &*self.stored_attribute(to)?);
        self.operate(&[id], |c| c.rename_attribute(id, from, to, replace))
    }

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        ownership::check_name(name)?;
        let name = &*self.stored_attribute(name)?;
        self.operate(&[id], |c| c.remove_attribute(id, name))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.wish_mtime(id, seconds))
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.set_atime(id, seconds))
    }

    fn set_ownership(&self, id: ObjectId, ownership: &Ownership) -> Result<()> {
        self.operate(&[id], |c| c.set_ownership(id, ownership))
    }

    fn set_link_ownership(&self, group: ObjectId, name: &[u8], ownership: &Ownership) -> Result<()> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.set_link_ownership(group, name, ownership))
    }

    fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        let name = &*self.stored_link(group, name)?;
        self.operate(&[group], |c| c.retarget(group, name, path, text))
    }

    fn hold(&self, id: ObjectId) {
        if let Some(e) = &self.editing {
            e.objects.use_object(id, |usage| usage.holds = usage.holds.saturating_add(1));
        }
    }

    fn release(&self, id: ObjectId) {
        let Some(e) = &self.editing else { return };
        let usage = e.objects.use_object(id, |usage| {
            usage.holds = usage.holds.saturating_sub(1);
            *usage
        });
        if usage.holds > 0 {
            return;
        }
        e.objects.change_pending(id, |p| {
            p.refused = None;
            p.newlines = None;
            p.write_error.take_if(|error| error.is_reported || usage.is_nameless);
            if let Some(references) = &mut p.references {
                references.writing = false;
            }
        });
        if usage.is_nameless
            && let Err(error) = self.operate(&[id], |c| c.delete_nameless(id))
        {
            tracing::warn!("object at {}: the space of the deleted object is not freed: {error}", id.address);
        }
    }

    fn write_error(&self, id: ObjectId) -> Result<()> {
        self.editing.as_ref().map_or(Ok(()), |e| e.report_write_error(id))
    }

    fn await_turn(&self) {
        self.editing.iter().for_each(|editing| drop(editing.writer()));
    }

    fn commit(&self) -> Result<()> {
        if self.file(0)?.store.transaction()?.has_failed() {
            return Err(Error::refused(libc::EIO, "an earlier commit failed: what was written since the one before it is lost"));
        }
        let neighbours = self.options.neighbours.is_unsynced();
        let logged = self.written_log().is_none_or(|log| !log.is_uncommitted());
        if !neighbours && logged && self.options.environment.dirty.is_empty() && !self.file(0)?.store.transaction()?.is_dirty() {
            return Ok(());
        }
        self.commit_shared()
    }

    fn awaits_descriptions(&self) -> bool {
        self.has_unstored_new_file()
    }

    fn close(&self) -> Result<()> {
        self.compact_to_close();
        self.commit_all(true)?;
        self.editing()?.unreported_write_error()
    }
}
