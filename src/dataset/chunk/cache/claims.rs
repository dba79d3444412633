//! Several chunks are claimed at once: a reader decodes those that nothing else decodes, and waits
//! for the others.

use super::{Chunk, ChunkCache, Pending, Reservation, Slot};
use crate::base::Result;
use crate::dataset::chunk::key::CacheKey;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A chunk that another thread decodes.
pub(crate) struct Loading<'a> {
    cache: &'a ChunkCache,
    pending: Arc<Pending>,
}

impl Loading<'_> {
    /// Waits for the chunk. The caller is no thread of a pool on which other threads wait.
    pub(crate) fn wait(self) -> Result<Arc<Chunk>> {
        self.cache.counters.waits.fetch_add(1, Ordering::Relaxed);
        self.pending.wait()
    }
}

/// What a thread that needs a chunk has of it.
pub(crate) enum Claim<'a> {
    /// The chunk, in memory.
    Ready(Arc<Chunk>),
    /// Its place: the caller decodes it.
    Ours(Reservation<'a>),
    /// Another thread decodes it.
    Loading(Loading<'a>),
    /// It was decoded earlier, and is at this offset of the disk cache.
    OnDisk(u64),
}

impl ChunkCache {
    /// Claims chunks by key and decoded size, bytes. A reservation whose chunk is removed meanwhile
    /// does not cache it, so the caller may decode without the lock that it had for claiming.
    pub(crate) fn claim(&self, chunks: impl Iterator<Item = (CacheKey, u64)>) -> Vec<Claim<'_>> {
        let (mut victims, mut claims) = (Vec::new(), Vec::new());
        let mut state = self.memory.state.lock();
        for (key, size) in chunks {
            let key = self.key(key);
            claims.push(match state.slots.get(&key) {
                Some(Slot::Ready(chunk)) => Claim::Ready(chunk.clone()),
                Some(Slot::Loading(pending)) => Claim::Loading(Loading { cache: self, pending: pending.clone() }),
                None => match self.disk_cache.find(key.1) {
                    Some(at) => Claim::OnDisk(at),
                    None => Claim::Ours(self.reserve_slot(&mut state, key, size, &mut victims)),
                },
            });
        }
        drop(state);
        self.save_unfinished(victims);
        for claim in &claims {
            match claim {
                Claim::Ready(_) => drop(self.counters.hits.fetch_add(1, Ordering::Relaxed)),
                Claim::Ours(reservation) => self.count_decode(reservation),
                Claim::OnDisk(_) => drop(self.counters.disk_cache_hits.fetch_add(1, Ordering::Relaxed)),
                Claim::Loading(_) => {}
            }
        }
        claims
    }

    /// The places of those of several chunks, keys and decoded bytes, that the caller decodes.
    /// `None`: the others.
    pub(crate) fn reserve(&self, chunks: impl Iterator<Item = (CacheKey, u64)>) -> Vec<Option<Reservation<'_>>> {
        let ours = |claim| if let Claim::Ours(reservation) = claim { Some(reservation) } else { None };
        self.claim(chunks).into_iter().map(ours).collect()
    }
}
