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
mod change_parts;
mod comments;
mod commit;
mod connector_parts;
mod current_content;
mod data;
mod defined;
mod errors;
mod extent;
mod fast_write;
#[cfg(test)]
pub(super) mod fault_tests;
mod flush;
#[cfg(test)]
mod full_tests;
mod holes;
#[cfg(test)]
mod large_tests;
mod link_order;
mod log;
mod log_compact;
mod log_join;
#[cfg(test)]
mod log_model_tests;
mod log_released;
#[cfg(test)]
mod log_tests;
mod log_writer;
mod named_types;
mod names;
mod new_file;
mod object_state;
mod only_writer;
mod open;
mod operations;
mod other_files;
#[cfg(test)]
mod other_files_tests;
mod other_source;
mod pending;
mod prepare;
#[cfg(test)]
mod prepare_tests;
mod properties;
mod ranges;
#[cfg(test)]
mod ranges_tests;
pub(super) mod reading;
mod references;
mod refused;
mod relayout;
mod reserve;
mod restricted;
mod rewrite;
mod scattered;
mod sequences;
#[cfg(test)]
mod sequences_tests;
#[cfg(test)]
mod slow_disk_tests;
#[cfg(test)]
mod small_tests;
mod swmr;
#[cfg(test)]
mod swmr_tests;
mod through;
#[cfg(test)]
mod times_tests;
#[cfg(test)]
mod type_uses_tests;
mod write_across;
mod write_errors;
#[cfg(test)]
mod write_errors_tests;

pub use current_content::CurrentContent;
pub(super) use restricted::Restricted;

use super::NativeConnector;
use super::access::{Access, StructureLock};
use super::dataset::{Dataset, key};
use crate::base::lock_order::{Locked, Rank};
use crate::base::{Error, Result, waiting};
use crate::connector::ObjectId;
use crate::meta::Store;
use crate::structures::before_first_write::BeforeFirstWrite;
use crate::structures::global_heap::edit::FreeSpace;
use object_state::{Objects, Pending};
use parking_lot::{Mutex, MutexGuard};
use reserve::is_full;
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
    pub(super) lock: StructureLock,
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
    /// True if the file counts the uses of its named datatypes; unknown before one would go.
    counts_types: OnceLock<bool>,
    /// Sources that were written through virtual datasets.
    written_through: through::WrittenThrough,
    /// Other files that are written through virtual datasets.
    others: other_files::OtherFiles,
    /// No other container of this process writes the file.
    only_writer: OnceLock<only_writer::OnlyWriter>,
    /// The permitted changes, if this is a SWMR writer.
    pub(super) swmr: OnceLock<Restricted>,
}

impl Editing {
    /// Invalidates what virtual datasets resolved.
    fn new_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Waits for the operation or commit under way.
    fn writer(&self) -> Locked<MutexGuard<'_, ()>> {
        Locked::acquire(Rank::Writers, &self.writers, || waiting::take(|| self.writers.try_lock(), || self.writers.lock()))
    }
}

/// One operation under way.
struct Change<'a> {
    connector: &'a NativeConnector,
    editing: &'a Editing,
    /// Bytes of dirty chunks before the operation.
    dirty_before: u64,
    /// The exclusive lock.
    access: Access<'a>,
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
        if let Some(log) = change.access.written_log() {
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
        if let Some(log) = self.change.access.written_log() {
            log.end(self.kept);
        }
        if !self.kept {
            self.change.log().forget_new_log();
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
    /// The generation of `Editing`, or of what a log writer changed.
    pub(super) fn generation(&self) -> u64 {
        self.editing.as_ref().map_or(&self.log_writer_state, |e| &e.generation).load(Ordering::Acquire)
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
        let access = self.access_alone();
        let dirty_before = self.options.environment.dirty.bytes();
        let change = Change { connector: self, editing, dirty_before, access, _writer: writer };
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
        if result.as_ref().is_err_and(is_full) && (self.commits().is_relieved() || self.commits().has_unstored()) {
            drop(change);
            self.commits().commit_all(false)?;
            change = self.change(objects)?;
            result = change.atomically_reserved(|| f(&change));
        }
        let result = result?;
        change.settle()?;
        self.commits().relieve();
        Ok(result)
    }

    /// Runs an operation that may replace a dataset. Stores its dirty chunks first, because those
    /// that `f` leaves are dropped when it fails.
    fn operate_flushed<T>(&self, id: ObjectId, f: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
        let change = self.change(&[id])?;
        change.dirty_chunks().flush_dataset(id)?;
        change.log().flush_log(flush::LogFlush::Early)?;
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
        Ok(self.access.dataset(id)?.dataset.clone())
    }

    /// Drops the decoded entries of an object that changed.
    fn changed(&self, id: ObjectId) {
        self.editing.new_generation();
        self.connector.datasets.forget(id);
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
            connector.write_back().bound_dirty()?;
        }
        connector.write_back().bound_staged()?;
        if waiting > WAITING_MAX { connector.commits().commit_all(false) } else { Ok(()) }
    }
}
