//! What containers that are mounted together share.

use super::Result;
use crate::dataset::environment::Environment;
use std::sync::Arc;

/// Temporary files of one container of several, in multiples of the chunk cache.
const SHARED_FILES_FACTOR: u64 = 2;
/// Most bytes of decoded metadata of one file.
const METADATA_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;

/// Decode threads, and one budget of decoded chunks.
#[derive(Clone)]
pub struct Shared {
    environment: Arc<Environment>,
    disk_bytes: u64,
    metadata_bytes: usize,
}

impl Shared {
    /// For up to `containers` open containers: `cache_bytes` of decoded chunks, as much of decoded
    /// metadata, `threads` decoders. Starts threads: call it after a fork.
    pub fn new(cache_bytes: u64, threads: usize, containers: usize) -> Result<Shared> {
        let metadata_bytes = cache_bytes / (containers.max(1) as u64);
        let metadata_bytes = metadata_bytes.clamp(*METADATA_BYTES.start(), *METADATA_BYTES.end());
        Ok(Shared {
            environment: Arc::new(Environment::new(cache_bytes, 0, threads)?),
            disk_bytes: cache_bytes.saturating_mul(SHARED_FILES_FACTOR),
            metadata_bytes: usize::try_from(metadata_bytes).unwrap_or(usize::MAX),
        })
    }

    /// The part of one container.
    pub(crate) fn environment(&self) -> Arc<Environment> {
        Arc::new(self.environment.sharing(self.disk_bytes, self.metadata_bytes))
    }

    /// Changes the memory for decoded chunks.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.environment.cache.set_budget(bytes);
    }

    /// Counters of all containers, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.environment.counters()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
