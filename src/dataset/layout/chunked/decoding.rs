//! Chunks of one request are found and claimed first, then decoded together. Only the first part
//! needs the lock of a dataset that may change.

use super::storage::Chunked;
use crate::base::Result;
use crate::dataset::chunk::cache::{Chunk, Claim, Loading, Reservation};
use crate::dataset::chunk::format::{DecodeToFile, Large, LargeReader};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::dataset::environment::Environment;
use crate::format::chunk_record::ChunkRecord;
use crate::meta::Store;
use rayon::prelude::*;
use std::sync::Arc;

/// Smallest chunk whose decode needs a permit of the decoding gate, bytes.
const GATED_CHUNK_MIN_BYTES: u64 = 4 << 20;

/// A stored chunk that was found, and that memory can hold when it is decoded.
#[derive(Clone, Copy)]
pub(super) struct StoredChunk {
    pub record: ChunkRecord,
    /// The chunk extends past the extent of the dataset.
    pub is_edge: bool,
}

/// What one thread decodes. It waits for no chunk that another thread decodes, as threads of the
/// pool do it.
enum Job<'a> {
    Chunk(Reservation<'a>, StoredChunk),
    File(DecodeToFile<'a>),
}

/// Chunks of a batch that are not in memory, by their place in the batch.
pub(super) struct Decoding<'a> {
    chunked: &'a Chunked,
    env: &'a Environment,
    store: &'a Store,
    ready: Vec<(usize, Arc<Chunk>)>,
    jobs: Vec<(usize, Job<'a>)>,
    /// Chunks that other threads decode.
    loading: Vec<(usize, Loading<'a>)>,
}

impl Chunked {
    /// Decodes a chunk.
    pub(super) fn decode(&self, env: &Environment, store: &Store, stored: StoredChunk) -> Result<Image> {
        let bytes = self.grid.chunk_bytes();
        let weight = bytes.saturating_mul(2).saturating_add(stored.record.size);
        let _permit = (bytes >= GATED_CHUNK_MIN_BYTES).then(|| env.decoding.enter(weight));
        self.format.decode(store, stored.record, stored.is_edge)
    }

    /// Claims the chunks of a batch that have filters, but for those of `ready`.
    pub(super) fn undecoded<'a>(
        &'a self,
        env: &'a Environment,
        store: &'a Store,
        batch: &[ChunkPieces],
        ready: &[Option<Arc<Chunk>>],
    ) -> Result<Decoding<'a>> {
        let mut decoding = Decoding { chunked: self, env, store, ready: Vec::new(), jobs: Vec::new(), loading: Vec::new() };
        if !self.format.has_variable_size() {
            return Ok(decoding);
        }
        let mut found = Vec::new();
        for (place, (t, _)) in batch.iter().zip(ready).enumerate().filter(|(_, (_, ready))| ready.is_none()) {
            let scaled = self.grid.scaled(t.chunk);
            let Some(record) = self.index.lookup(store, &scaled)? else { continue };
            let (key, is_edge) = (self.key(t.chunk), self.grid.is_edge(&scaled));
            if self.format.is_plain(is_edge) {
                continue;
            }
            match self.format.open_large(LargeReader { env, source: store, key, record, is_edge })? {
                Some(Large::File(decode)) => decoding.jobs.push((place, Job::File(decode))),
                Some(Large::Direct(_)) => {}
                None => found.push((place, key, StoredChunk { record, is_edge })),
            }
        }
        let keys = found.iter().map(|(_, key, _)| ((*key).into(), self.grid.chunk_bytes()));
        for (claim, (place, _, stored)) in env.cache.claim(keys).into_iter().zip(&found) {
            match claim {
                Claim::Ready(chunk) => decoding.ready.push((*place, chunk)),
                Claim::Ours(reservation) => decoding.jobs.push((*place, Job::Chunk(reservation, *stored))),
                Claim::Loading(loading) => decoding.loading.push((*place, loading)),
                // It is copied from there.
                Claim::OnDisk => {}
            }
        }
        Ok(decoding)
    }
}

impl Decoding<'_> {
    /// True if there is nothing to decode, and nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.loading.is_empty()
    }

    /// Decodes the chunks in parallel, and waits for those that other threads decode. Chunks in
    /// memory are then in `ready`, by their place in the batch. Errors: the first one.
    pub fn decode(self, ready: &mut [Option<Arc<Chunk>>]) -> Result<()> {
        let Decoding { chunked, env, store, ready: mut all, jobs, loading } = self;
        let run = |(place, job)| match job {
            Job::Chunk(reservation, stored) => reservation.finish(chunked.decode(env, store, stored)).map(|chunk| Some((place, chunk))),
            Job::File(decode) => decode().map(|_| None),
        };
        let decoded: Vec<Result<_>> = match jobs.len() {
            0 | 1 => jobs.into_iter().map(run).collect(),
            _ => env.pool.install(|| jobs.into_par_iter().map(run).collect()),
        };
        for chunk in decoded {
            all.extend(chunk?);
        }
        for (place, loading) in loading {
            all.push((place, loading.wait()?));
        }
        for (place, chunk) in all {
            if let Some(slot) = ready.get_mut(place) {
                *slot = Some(chunk);
            }
        }
        Ok(())
    }

    /// Decodes the chunks that no other thread decodes, one after the other. The reader of a chunk
    /// finds its error again.
    pub fn decode_ahead(self) {
        let Decoding { chunked, env, store, jobs, .. } = self;
        for (_, job) in jobs {
            match job {
                Job::Chunk(reservation, stored) => drop(reservation.finish(chunked.decode(env, store, stored))),
                Job::File(decode) => drop(decode()),
            }
        }
    }
}
