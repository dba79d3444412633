//! Read-ahead: decodes the next chunks of a sequential reader in the background.

use super::storage::Chunked;
use crate::dataset::chunk::format::READ_AHEAD_CHUNK_MAX_BYTES;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::dataset::chunk::reading::Located;
use crate::dataset::environment::Environment;
use crate::dataset::layout::traits::{BackgroundTurn, DatasetBytes};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Least read-ahead window, bytes.
const WINDOW_MIN_BYTES: u64 = 4 << 20;
/// Decoded bytes of one read-ahead task: waking a thread costs as much as decoding a small chunk.
const TASK_BYTES: u64 = 256 << 10;
/// Most chunks considered by one call.
const CALL_CHUNKS_MAX: u64 = 1024;

/// A dataset, what all datasets share, and what runs tasks that read it.
pub(super) type Background<'a> = (&'a Arc<DatasetBytes>, &'a Arc<Environment>, &'a Arc<dyn BackgroundTurn>);

/// Decodes filtered chunks that begin between byte `from` and the end of the read-ahead window of a
/// sequential reader at byte `at`. Returns the end of the bytes covered.
///
/// The window is a slab of chunks if the cache has room: a reader of a slab reads each of its
/// chunks until the slab's end, and the next slab is decoded meanwhile.
pub(super) fn read_ahead(c: &Chunked, (dataset, env, turn): Background<'_>, at: u64, from: u64) -> u64 {
    let (bytes, budget) = (c.grid.chunk_bytes(), env.cache.budget());
    if !c.format.has_variable_size() || bytes > (budget / 8).min(READ_AHEAD_CHUNK_MAX_BYTES) {
        return from;
    }
    let slab = c.grid.slab_bytes();
    let window = if slab <= budget / 4 { slab.max(WINDOW_MIN_BYTES) } else { WINDOW_MIN_BYTES };
    let end = at.saturating_add(window).min(dataset.size);
    let first = c.grid.first_chunk_from(from);
    let mut task = ReadAheadTask::new(dataset, env, turn);
    let mut done = end;
    for chunk in first..c.grid.first_chunk_from(end) {
        // Chunks that are not read yet take at most a quarter of the cache.
        let full = |task: &ReadAheadTask| task.queued().saturating_add(env.cache.unread_bytes()).saturating_add(bytes) > budget / 4;
        if chunk.saturating_sub(first) > CALL_CHUNKS_MAX || full(&task) {
            done = c.grid.first_byte_in(chunk, 0).unwrap_or(from);
            break;
        }
        if !env.cache.contains(c.key(chunk)) && env.dirty.get(c.key(chunk)).is_none() {
            task.add(chunk, bytes);
            if task.bytes >= TASK_BYTES {
                std::mem::replace(&mut task, ReadAheadTask::new(dataset, env, turn)).start();
            }
        }
    }
    task.start();
    done
}

/// Chunks that one thread decodes.
struct ReadAheadTask {
    dataset: Arc<DatasetBytes>,
    env: Arc<Environment>,
    turn: Arc<dyn BackgroundTurn>,
    chunks: Vec<u64>,
    bytes: u64,
}

impl ReadAheadTask {
    fn new(dataset: &Arc<DatasetBytes>, env: &Arc<Environment>, turn: &Arc<dyn BackgroundTurn>) -> Self {
        ReadAheadTask { dataset: dataset.clone(), env: env.clone(), turn: turn.clone(), chunks: Vec::new(), bytes: 0 }
    }

    /// Decoded bytes of the chunks in all read-ahead tasks.
    fn queued(&self) -> u64 {
        self.env.read_ahead_bytes.load(Ordering::Relaxed)
    }

    fn add(&mut self, chunk: u64, bytes: u64) {
        self.chunks.push(chunk);
        self.bytes = self.bytes.saturating_add(bytes);
        self.env.read_ahead_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn start(self) {
        if self.chunks.is_empty() {
            return;
        }
        self.env.clone().pool.spawn(move || self.decode());
    }

    /// Decodes the chunks, but those that are in memory or that another thread decodes. They are
    /// found and claimed in the turn.
    fn decode(&self) {
        let Some(c) = Chunked::of(&*self.dataset.layout) else { return };
        let mut located = None;
        self.turn.run(&mut || {
            let clean = self.chunks.iter().filter(|chunk| self.env.dirty.get(c.key(**chunk)).is_none());
            let batch: Vec<_> = clean.map(|chunk| ChunkPieces { chunk: *chunk, pieces: Vec::new() }).collect();
            // Errors are ignored: the reader of the chunk gets them.
            located = Located::find(c.chunks_of(&self.dataset, &self.env), &batch).ok();
        });
        if let Some(located) = located {
            located.decode_ahead();
        }
    }
}

impl Drop for ReadAheadTask {
    fn drop(&mut self) {
        self.env.read_ahead_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
