//! Finds the chunks of a request, and claims those that must be decoded. Only that needs the lock
//! of a dataset that may change: claimed chunks are decoded without it.

use super::storage::Chunked;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::cache::{Chunk, Claim, Loading, Reservation};
use crate::dataset::chunk::chunk_files::ChunkFile;
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::format::{DecodeToFile, Large, LargeReader};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::dataset::environment::Environment;
use crate::dataset::index::ChunkRecord;
use crate::meta::Store;
use rayon::prelude::*;
use std::sync::Arc;

/// Most runs of an unfiltered chunk that are read one by one from the file, without the cache.
const DIRECT_RUNS_MAX: usize = 4;
/// Smallest chunk whose decode needs a permit of the decoding gate, bytes.
const GATED_CHUNK_MIN_BYTES: u64 = 4 << 20;

/// Where the bytes of a chunk are.
pub(super) enum ChunkLocation {
    /// The chunk is not stored.
    Fill,
    Memory(Arc<Chunk>),
    Dirty(Arc<DirtyChunk>),
    /// At this offset of the disk cache.
    OnDisk(u64),
    ChunkFile(Arc<ChunkFile>),
    /// In the container file, unfiltered.
    Direct(ChunkRecord),
}

/// A stored chunk that fits in memory when it is decoded.
#[derive(Clone, Copy)]
struct StoredChunk {
    record: ChunkRecord,
    /// The chunk extends past the extent of the dataset.
    is_edge: bool,
}

/// What one thread decodes. A job waits for no chunk that another thread decodes, because threads
/// of the pool run jobs.
enum Job<'a> {
    Chunk(Reservation<'a>, StoredChunk),
    File(DecodeToFile<'a>),
}

/// What finding one chunk gives.
enum Found<'a> {
    Source(ChunkLocation),
    File(DecodeToFile<'a>),
    /// The cache has it, or takes it.
    Cached(StoredChunk),
}

/// Chunks of a batch: sources, and by their place in the batch those without one yet.
pub(super) struct Located<'a> {
    chunked: &'a Chunked,
    env: &'a Environment,
    store: &'a Store,
    sources: Vec<Option<ChunkLocation>>,
    jobs: Vec<(usize, Job<'a>)>,
    /// Chunks that other threads decode.
    loading: Vec<(usize, Loading<'a>)>,
}

impl Chunked {
    /// Finds the bytes of one chunk; decodes it if necessary.
    pub(super) fn source(&self, env: &Environment, store: &Store, t: &ChunkPieces) -> Result<ChunkLocation> {
        let sources = self.locate(env, store, std::slice::from_ref(t))?.decode()?;
        sources.into_iter().next().ok_or_else(lost)
    }

    /// Finds the chunks of a batch, and claims those that must be decoded.
    pub(super) fn locate<'a>(&'a self, env: &'a Environment, store: &'a Store, batch: &[ChunkPieces]) -> Result<Located<'a>> {
        let mut sources = self.sources_in_memory(env, batch);
        let (mut jobs, mut loading, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (t, source)) in batch.iter().zip(&mut sources).enumerate().filter(|(_, (_, source))| source.is_none()) {
            match self.find(env, store, t)? {
                Found::Source(found) => *source = Some(found),
                Found::File(decode) => jobs.push((place, Job::File(decode))),
                Found::Cached(stored) => cached.push((place, self.key(t.chunk), stored)),
            }
        }
        let keys = cached.iter().map(|(_, key, _)| ((*key).into(), self.grid.chunk_bytes()));
        for (claim, (place, _, stored)) in env.cache.claim(keys).into_iter().zip(&cached) {
            let source = match claim {
                Claim::Ready(chunk) => ChunkLocation::Memory(chunk),
                Claim::OnDisk(at) => ChunkLocation::OnDisk(at),
                Claim::Ours(reservation) => {
                    jobs.push((*place, Job::Chunk(reservation, *stored)));
                    continue;
                }
                Claim::Loading(pending) => {
                    loading.push((*place, pending));
                    continue;
                }
            };
            if let Some(slot) = sources.get_mut(*place) {
                *slot = Some(source);
            }
        }
        Ok(Located { chunked: self, env, store, sources, jobs, loading })
    }

    /// Sources of dirty and cached chunks.
    fn sources_in_memory(&self, env: &Environment, batch: &[ChunkPieces]) -> Vec<Option<ChunkLocation>> {
        let is_dirty = env.dirty.has(self.number);
        let dirty = |t: &ChunkPieces| is_dirty.then(|| env.dirty.get(self.key(t.chunk))).flatten().map(ChunkLocation::Dirty);
        if !self.format.has_variable_size() && batch.iter().all(|t| self.is_dense(t)) {
            // Dense reads of unfiltered chunks bypass the cache.
            return batch.iter().map(dirty).collect();
        }
        let ready = env.cache.ready(batch.iter().map(|t| self.key(t.chunk)));
        batch.iter().zip(ready).map(|(t, chunk)| dirty(t).or_else(|| chunk.map(ChunkLocation::Memory))).collect()
    }

    /// Finds a chunk that is not in memory.
    fn find<'a>(&'a self, env: &'a Environment, store: &'a Store, t: &ChunkPieces) -> Result<Found<'a>> {
        let scaled = self.grid.scaled(t.chunk);
        let Some(record) = self.index.lookup(store, &scaled)? else { return Ok(Found::Source(ChunkLocation::Fill)) };
        let is_edge = self.grid.is_edge(&scaled);
        if self.format.is_plain(is_edge) {
            let is_direct = t.runs() <= DIRECT_RUNS_MAX || self.is_dense(t) || self.grid.chunk_bytes() > env.cache.budget() / 4;
            return Ok(if is_direct {
                Found::Source(ChunkLocation::Direct(record))
            } else {
                Found::Cached(StoredChunk { record, is_edge })
            });
        }
        let reader = LargeReader { env, source: store, key: self.key(t.chunk), record, is_edge };
        Ok(match self.format.open_large(reader)? {
            Some(Large::Direct(record)) => Found::Source(ChunkLocation::Direct(record)),
            Some(Large::File(decode)) => Found::File(decode),
            None => Found::Cached(StoredChunk { record, is_edge }),
        })
    }

    fn decode(&self, env: &Environment, store: &Store, stored: StoredChunk) -> Result<Image> {
        let bytes = self.grid.chunk_bytes();
        let weight = bytes.saturating_mul(2).saturating_add(stored.record.size);
        let _permit = (bytes >= GATED_CHUNK_MIN_BYTES).then(|| env.decoding.enter(weight));
        self.format.decode(store, stored.record, stored.is_edge)
    }
}

fn lost() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "it was not decoded")
}

impl Located<'_> {
    /// True if chunks must be decoded or waited for.
    pub fn is_undecoded(&self) -> bool {
        !self.jobs.is_empty() || !self.loading.is_empty()
    }

    /// Decodes claimed chunks in parallel, waits for those that other threads decode, and returns
    /// the source of each chunk of the batch. Errors: the first one.
    pub fn decode(self) -> Result<Vec<ChunkLocation>> {
        let Located { chunked, env, store, mut sources, jobs, loading } = self;
        let run = |(place, job)| {
            let source = match job {
                Job::Chunk(reservation, stored) => reservation.finish(chunked.decode(env, store, stored)).map(ChunkLocation::Memory),
                Job::File(decode) => decode().map(ChunkLocation::ChunkFile),
            };
            source.map(|source| (place, source))
        };
        let mut decoded: Vec<Result<(usize, ChunkLocation)>> = match jobs.len() {
            0 | 1 => jobs.into_iter().map(run).collect(),
            _ => env.pool.install(|| jobs.into_par_iter().map(run).collect()),
        };
        decoded.extend(loading.into_iter().map(|(place, pending)| Ok((place, ChunkLocation::Memory(pending.wait()?)))));
        for done in decoded {
            let (place, source) = done?;
            if let Some(slot) = sources.get_mut(place) {
                *slot = Some(source);
            }
        }
        sources.into_iter().collect::<Option<Vec<_>>>().ok_or_else(lost)
    }

    /// Decodes claimed chunks one after the other, for a later read, which reports their errors.
    pub fn decode_ahead(self) {
        let Located { chunked, env, store, jobs, .. } = self;
        for (_, job) in jobs {
            match job {
                Job::Chunk(reservation, stored) => drop(reservation.finish(chunked.decode(env, store, stored))),
                Job::File(decode) => drop(decode()),
            }
        }
    }
}
