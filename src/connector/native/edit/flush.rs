//! Write-back of dirty chunks while operations continue.
//!
//! Chunks are encoded without a lock; storing them is an operation. A chunk that changes meanwhile
//! stays dirty and is encoded again later. A thread starts as soon as dirty chunks use half of
//! their memory. Writers that are faster than the thread wait for it. Those that would make more
//! chunks dirty just before a commit wait, too: it stores what is left with the exclusive lock.
//!
//! Dirty chunks that a damaged dataset does not accept are dropped (`write_errors`).

use super::super::dataset::id_of;
use super::connector_parts::WriteBack;
use super::errors::is_of_object;
use super::{DIRTY_MIN, DIRTY_PART, Editing, is_full};
use crate::base::{Result, waiting};
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::key::{ChunkKey, DatasetKey};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When what is staged is appended to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogFlush {
    /// To free memory.
    Early,
    /// To free memory, as a part of the operation under way.
    Within,
    /// For a commit.
    Commit,
}

/// Least memory for dirty chunks at which a thread is started, bytes.
const THREAD_MIN_BYTES: u64 = 4 << 20;
/// Fewer dirty bytes are left to the commit, bytes.
const EARLY_MIN_BYTES: u64 = 64 << 10;
/// Dirty bytes above which writers are held back just before a commit.
const BEFORE_COMMIT_MAX_BYTES: u64 = 1 << 20;
/// Dirty chunks stored at a time, bytes.
const STEP_BYTES: u64 = 64 << 20;
/// Rounds without the exclusive lock before a commit encodes the rest with it.
const COMMIT_ROUNDS: usize = 3;

/// State of the write-back thread.
#[derive(Default)]
pub(super) struct Flusher {
    state: Mutex<FlusherState>,
    /// Signals that some chunks were stored, that the thread ended, or that writers may go on.
    progress: Condvar,
    /// Held while chunks are chosen, encoded and stored, so that none is encoded twice.
    turn: Mutex<()>,
}

impl Flusher {
    fn turn(&self) -> MutexGuard<'_, ()> {
        waiting::take(|| self.turn.try_lock(), || self.turn.lock())
    }
}

#[derive(Default)]
struct FlusherState {
    running: bool,
    /// The thread must end, and none starts again.
    stopped: bool,
    /// Commits that are about to take the lock of writers.
    commits: usize,
}

type Chosen = Vec<(ChunkKey, Arc<DirtyChunk>)>;

fn by_dataset(chunks: Chosen) -> BTreeMap<DatasetKey, Chosen> {
    let mut all: BTreeMap<DatasetKey, Chosen> = BTreeMap::new();
    for (key, chunk) in chunks {
        all.entry(key.dataset).or_default().push((key, chunk));
    }
    all.values_mut().for_each(|chunks| chunks.sort_unstable_by_key(|(k, _)| k.chunk));
    all
}

impl WriteBack<'_> {
    /// Memory for dirty chunks, bytes.
    pub(super) fn dirty_budget(&self) -> u64 {
        (self.connector.options.environment.cache.budget() / DIRTY_PART).max(DIRTY_MIN)
    }

    /// Keeps dirty chunks within their memory. The caller holds no lock.
    pub(super) fn bound_dirty(&self) -> Result<()> {
        let dirty = &self.connector.options.environment.dirty;
        let budget = self.dirty_budget();
        if self.connector.options.environment.files_are_full() {
            self.bound_files()?;
        }
        if dirty.bytes() <= budget / 2 {
            return Ok(());
        }
        let editing = self.connector.editing()?;
        if budget >= THREAD_MIN_BYTES {
            self.start_flusher(editing);
        }
        while dirty.bytes() > budget {
            let mut state = editing.flusher.state.lock();
            if state.running {
                waiting::may_wait();
                editing.flusher.progress.wait(&mut state);
                continue;
            }
            drop(state);
            // The thread ended with an error, which occurs again here.
            let chosen = dirty.choose((budget / 2).min(STEP_BYTES));
            match self.store(chosen.clone()) {
                Ok(0) => self.store_exclusively(chosen)?,
                Ok(_) => {}
                Err(e) if is_full(&e) && self.connector.file(0)?.store.transaction()?.is_relieved() => {
                    self.connector.commits().commit_all(false)?
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Keeps dirty chunks in temporary files within their bounds.
    fn bound_files(&self) -> Result<()> {
        let env = &self.connector.options.environment;
        while env.files_are_full() {
            let chosen = env.dirty.choose_files(1);
            if chosen.is_empty() {
                // Readers have the others until they have read them.
                break;
            }
            match self.store(chosen.clone()) {
                Ok(0) => self.store_exclusively(chosen)?,
                Ok(_) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits while a commit holds writers back. The caller holds no lock. Errors: dirty chunks
    /// exceed their memory and cannot be stored, as on a full disk.
    pub(super) fn admit_write(&self) -> Result<()> {
        self.let_commit_pass()?;
        let many =
            self.connector.options.environment.dirty.bytes() > self.dirty_budget() || self.connector.options.environment.files_are_full();
        if many { self.bound_dirty() } else { Ok(()) }
    }

    /// Waits while a commit holds writers back and more than a little is dirty.
    fn let_commit_pass(&self) -> Result<()> {
        let (dirty, flusher) = (&self.connector.options.environment.dirty, &self.connector.editing()?.flusher);
        if dirty.bytes() <= BEFORE_COMMIT_MAX_BYTES {
            return Ok(());
        }
        let mut state = flusher.state.lock();
        while state.commits > 0 && dirty.bytes() > BEFORE_COMMIT_MAX_BYTES {
            waiting::may_wait();
            flusher.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Stores chunks with the exclusive lock: chunks that change all the time, or of a damaged
    /// dataset.
    fn store_exclusively(&self, chunks: Chosen) -> Result<()> {
        let change = self.connector.change(&[])?;
        for (n, chunks) in by_dataset(chunks) {
            let dirty = &self.connector.options.environment.dirty;
            let there: Chosen = chunks.into_iter().filter(|(key, chunk)| dirty.contains(*key, chunk)).collect();
            change.dirty_chunks().flush_or_drop(id_of(n), &there)?;
        }
        Ok(())
    }

    /// Starts the thread unless it runs.
    fn start_flusher(&self, editing: &Editing) {
        let mut state = editing.flusher.state.lock();
        let Some(this) = self.connector.this.upgrade().filter(|_| !state.running && !state.stopped) else { return };
        let thread = std::thread::Builder::new().name("h5dir-flush".into()).spawn(move || {
            let _ended = this.editing.as_ref().map(|e| Ended(&e.flusher));
            if let Err(e) = this.write_back().flush_while_needed() {
                // The next write or commit gets the error, too, and returns it.
                tracing::debug!("dirty chunks cannot be stored: {e}");
            }
        });
        state.running = thread.is_ok();
    }

    fn flush_while_needed(&self) -> Result<()> {
        let budget = self.dirty_budget();
        let dirty = &self.connector.options.environment.dirty;
        let editing = self.connector.editing()?;
        while dirty.bytes() > budget / 4 && !editing.flusher.state.lock().stopped {
            let turn = editing.flusher.turn();
            if self.store(dirty.choose((budget / 4).min(STEP_BYTES)))? == 0 {
                break;
            }
            drop(turn);
            editing.flusher.progress.notify_all();
        }
        Ok(())
    }

    /// Encodes chunks without a lock, then stores them. Returns the number of stored chunks.
    fn store(&self, chunks: Chosen) -> Result<usize> {
        let env = &self.connector.options.environment;
        let mut entered = 0usize;
        for (n, chunks) in by_dataset(chunks) {
            let id = id_of(n);
            let batch_len = {
                let access = self.connector.access();
                let open = access.dataset(id).ok();
                open.and_then(|d| d.dataset.layout().write_back().map(|w| w.batch_len(env, &chunks))).unwrap_or(1)
            };
            for batch in chunks.chunks(batch_len.max(1)) {
                // The dataset may have been deleted, and its address reused.
                let (dataset, batch) = {
                    let access = self.connector.access();
                    let there: Chosen = batch.iter().filter(|(key, chunk)| env.dirty.contains(*key, chunk)).cloned().collect();
                    (access.dataset(id), there)
                };
                // A damaged dataset fails again in `store_exclusively`.
                let Ok(d) = &dataset else { continue };
                let encoded = d.dataset.layout().write_back().map_or_else(|| Ok(Vec::new()), |w| w.encode(env, &batch));
                match encoded.and_then(|encoded| self.connector.change(&[id])?.dirty_chunks().enter_encoded(id, encoded)) {
                    Ok(n) => entered = entered.saturating_add(n),
                    Err(e) if is_of_object(&e) => {
                        self.store_exclusively(batch)?;
                        entered = entered.saturating_add(1);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(entered)
    }

    /// Stores the dirty chunks of one dataset while other operations continue.
    pub(super) fn store_dataset(&self, dataset: DatasetKey, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            let chunks = self.connector.options.environment.dirty.of(dataset);
            if chunks.is_empty() || self.store(chunks)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Stores most dirty chunks before a commit, while other operations continue.
    pub(super) fn store_before_commit(&self) -> Result<()> {
        // Only one round: a file that changes again would be encoded for nothing.
        let env = &self.connector.options.environment;
        if env.images.now().0 > 0 {
            self.store(env.dirty.choose_files(u64::MAX))?;
        }
        self.store_rounds()
    }

    /// Stores most dirty chunks in memory, also those that become dirty meanwhile.
    pub(super) fn store_rounds(&self) -> Result<()> {
        let (dirty, flusher) = (&self.connector.options.environment.dirty, &self.connector.editing()?.flusher);
        for _ in 0..COMMIT_ROUNDS {
            let _turn = flusher.turn();
            if dirty.bytes() < EARLY_MIN_BYTES || self.store(dirty.choose(u64::MAX))? == 0 {
                break;
            }
            flusher.progress.notify_all();
        }
        Ok(())
    }

    /// Stops the thread for good, and waits for its end.
    pub(super) fn stop_flusher(&self) {
        let Some(editing) = &self.connector.editing else { return };
        let mut state = editing.flusher.state.lock();
        state.stopped = true;
        while state.running {
            editing.flusher.progress.wait(&mut state);
        }
    }
}

impl Editing {
    /// Holds writers back that would make more chunks dirty, until the result is dropped.
    pub(super) fn hold_writers(&self) -> HeldWriters<'_> {
        let mut state = self.flusher.state.lock();
        state.commits = state.commits.saturating_add(1);
        HeldWriters(&self.flusher)
    }
}

/// A commit that is about to take the lock of writers.
pub(super) struct HeldWriters<'a>(&'a Flusher);

impl Drop for HeldWriters<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.commits = state.commits.saturating_sub(1);
        self.0.progress.notify_all();
    }
}

/// Records the end of the thread, also by a panic.
struct Ended<'a>(&'a Flusher);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = false;
        self.0.progress.notify_all();
    }
}
