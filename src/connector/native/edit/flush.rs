//! Writing changed chunks to the file while operations go on.
//!
//! Chunks are encoded without any lock; only entering them into the index is an operation. What was changed in between
//! stays, and is encoded again later. A thread of its own does that as soon as half of what may wait does, so that
//! whoever writes goes on meanwhile; who writes faster than it waits for it.
//!
//! What a damaged dataset does not take keeps nobody else from it: see `lost`.

use super::lost::is_of_object;
use super::{DIRTY_MIN, DIRTY_PART, Editing, NativeConnector, is_full};
use crate::base::{Address, Result, waiting};
use crate::connector::ObjectId;
use crate::dataset::chunk::cache::ChunkKey;
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::write::{batch_len, encode};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Below this much to encode a thread is not worth it, bytes.
const THREAD_MIN: u64 = 4 << 20;
/// Fewer waiting bytes are not written before a commit: that takes them along.
const EARLY_MIN: u64 = 64 << 10;
/// Bytes of chunks taken at a time.
const STEP: u64 = 64 << 20;
/// Rounds of a commit before it encodes what is left while it keeps everybody out.
const ROUNDS: usize = 3;

/// Whether a thread writes chunks out.
#[derive(Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    /// Some chunks were written, or the thread ended.
    progress: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    /// It shall end.
    stopped: bool,
}

type Chosen = Vec<(ChunkKey, Arc<DirtyChunk>)>;

/// The dataset whose chunks have the number `n`.
pub(super) fn id_of(n: u64) -> ObjectId {
    ObjectId { file: 0, address: Address(n & ((1 << 52) - 1)) }
}

fn by_dataset(chunks: Chosen) -> BTreeMap<u64, Chosen> {
    let mut all: BTreeMap<u64, Chosen> = BTreeMap::new();
    for (key, chunk) in chunks {
        all.entry(key.dataset).or_default().push((key, chunk));
    }
    all.values_mut().for_each(|chunks| chunks.sort_unstable_by_key(|(k, _)| k.chunk));
    all
}

impl NativeConnector {
    /// Changed chunks that may wait in memory, bytes.
    pub(super) fn dirty_budget(&self) -> u64 {
        (self.options.environment.cache.budget() / DIRTY_PART).max(DIRTY_MIN)
    }

    /// Keeps what waits within its bounds; the caller holds no lock.
    pub(super) fn bound_dirty(&self) -> Result<()> {
        let dirty = &self.options.environment.dirty;
        let budget = self.dirty_budget();
        if self.options.environment.files_are_full() {
            self.bound_files()?;
        }
        if dirty.bytes() <= budget / 2 {
            return Ok(());
        }
        let editing = self.editing()?;
        if budget >= THREAD_MIN {
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
            // It ended: by an error, which is met again here.
            let chosen = dirty.choose((budget / 2).min(STEP));
            match self.write_out(chosen.clone()) {
                Ok(0) => self.write_out_alone(chosen)?,
                Ok(_) => {}
                Err(e) if is_full(&e) && self.file(0)?.store.transaction()?.is_relieved() => self.commit_all(false)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The same for chunks in temporary files.
    fn bound_files(&self) -> Result<()> {
        let env = &self.options.environment;
        while env.files_are_full() {
            let chosen = env.dirty.choose_files(1);
            match self.write_out(chosen.clone()) {
                Ok(0) => self.write_out_alone(chosen)?,
                Ok(_) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Where what waits cannot be written out, on a full disk, no more is taken: it would fill the memory.
    pub(super) fn room_for_more(&self) -> Result<()> {
        let many = self.options.environment.dirty.bytes() > self.dirty_budget() || self.options.environment.files_are_full();
        if many { self.bound_dirty() } else { Ok(()) }
    }

    /// Writes chunks while everybody is kept out: those that others change all the time, or whose dataset is broken.
    fn write_out_alone(&self, chunks: Chosen) -> Result<()> {
        let change = self.change(&[])?;
        for (n, chunks) in by_dataset(chunks) {
            let dirty = &self.options.environment.dirty;
            let there: Chosen = chunks.into_iter().filter(|(key, chunk)| dirty.is_there(*key, chunk)).collect();
            change.flush_or_lose(id_of(n), &there)?;
        }
        Ok(())
    }

    /// Starts the thread unless it runs.
    fn start_flusher(&self, editing: &Editing) {
        let mut state = editing.flusher.state.lock();
        let Some(this) = self.this.upgrade().filter(|_| !state.running && !state.stopped) else { return };
        let thread = std::thread::Builder::new().name("h5dir-flush".into()).spawn(move || {
            let _ended = this.editing.as_ref().map(|e| Ended(&e.flusher));
            if let Err(e) = this.flush_while_needed() {
                // Whoever writes on, or the next commit, meets it too and tells the caller.
                tracing::debug!("changed chunks could not be written: {e}");
            }
        });
        state.running = thread.is_ok();
    }

    fn flush_while_needed(&self) -> Result<()> {
        let budget = self.dirty_budget();
        let dirty = &self.options.environment.dirty;
        let editing = self.editing()?;
        while dirty.bytes() > budget / 4 && !editing.flusher.state.lock().stopped {
            if self.write_out(dirty.choose((budget / 4).min(STEP)))? == 0 {
                break;
            }
            editing.flusher.progress.notify_all();
        }
        Ok(())
    }

    /// Encodes chunks without a lock and enters them. Returns how many were entered.
    fn write_out(&self, chunks: Chosen) -> Result<usize> {
        let env = &self.options.environment;
        let mut entered = 0usize;
        for (n, chunks) in by_dataset(chunks) {
            let id = id_of(n);
            for batch in chunks.chunks(batch_len(env)) {
                // Of another dataset, if this one was deleted and its address used again, they are no chunks.
                let (dataset, batch) = {
                    let _shared = self.shared();
                    let there: Chosen = batch.iter().filter(|(key, chunk)| env.dirty.is_there(*key, chunk)).cloned().collect();
                    (self.dataset(id), there)
                };
                // Deleted meanwhile, with its chunks; or broken, which is met again when they are written alone.
                let Ok(d) = &dataset else { continue };
                let encoded = d.dataset.chunked().map_or_else(|| Ok(Vec::new()), |c| encode(env, c, &batch));
                match encoded.and_then(|encoded| self.change(&[id])?.enter_encoded(id, encoded)) {
                    Ok(n) => entered = entered.saturating_add(n),
                    Err(e) if is_of_object(&e) => {
                        self.write_out_alone(batch)?;
                        entered = entered.saturating_add(1);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(entered)
    }

    /// Before a commit: most of what waits is encoded while others go on.
    pub(super) fn write_out_early(&self) -> Result<()> {
        let dirty = &self.options.environment.dirty;
        // Once: one that is being written would be encoded for nothing.
        self.write_out(dirty.choose_files(u64::MAX))?;
        for _ in 0..ROUNDS {
            if dirty.bytes() < EARLY_MIN || self.write_out(dirty.choose(u64::MAX))? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the thread ended; it starts no more.
    pub(super) fn stop_flusher(&self) {
        let Some(editing) = &self.editing else { return };
        let mut state = editing.flusher.state.lock();
        state.stopped = true;
        while state.running {
            editing.flusher.progress.wait(&mut state);
        }
    }
}

/// Tells that the thread ended, however it does.
struct Ended<'a>(&'a Flusher);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = false;
        self.0.progress.notify_all();
    }
}
