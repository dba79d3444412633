//! Chunks that are too large for memory: to temporary files and back.

use super::chunk::cache::ChunkKey;
use super::chunk::plain::Plain;
use super::chunk::spool::{Spooled, StreamPlan};
use super::chunked::{Chunked, STREAMED_MIN, Source};
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::ChunkRecord;
use crate::base::{Address, Result, limits};
use crate::meta::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Chunked {
    /// How chunks are encoded in pieces, and so decoded again; `None` where they cannot be.
    pub(super) fn streamed(&self, env: &Environment) -> Option<StreamPlan> {
        let bytes = self.grid.chunk_bytes();
        let fits = bytes <= STREAMED_MIN.max(env.cache.budget()).min(env.spools.capacity()).min(limits::CHUNK_BYTES_MAX);
        StreamPlan::of(&self.pipeline, 0, bytes).filter(|plan| fits && plan.encodes())
    }

    /// A stored chunk, inflated into a file that its readers share.
    pub(super) fn spooled(
        &self,
        env: &Environment,
        store: &Store,
        key: ChunkKey,
        record: ChunkRecord,
        plan: StreamPlan,
    ) -> Result<Arc<Spooled>> {
        let bytes = self.grid.chunk_bytes();
        self.check_stored(store, record, record.size)?;
        let mut read = |from: u64, buf: &mut [u8]| store.read_raw(record.address.checked_add(from).unwrap_or(Address::UNDEF), buf);
        env.spools.get(key, bytes, || {
            env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
            Spooled::make(plan, bytes, record.size, &mut read, record.address)
        })
    }

    /// A stored chunk in a file of its own, where it can be changed.
    pub(super) fn to_file(&self, env: &Environment, store: &Store, key: ChunkKey, record: ChunkRecord) -> Result<Plain> {
        let len = self.grid.chunk_bytes();
        let source = if self.is_raw(&self.grid.scaled(key.chunk)) {
            self.check_stored(store, record, len)?;
            Some(Source::Direct(record))
        } else if let Some(plan) = StreamPlan::of(&self.pipeline, record.filter_mask, len) {
            Some(Source::Spooled(self.spooled(env, store, key, record, plan)?))
        } else {
            self.oversized(env, store, key, record)?
        };
        let zeros = FillPattern::zero();
        match source {
            Some(Source::Spooled(chunk)) => Plain::filled(len, &zeros, len, &mut |at, buf| chunk.read(at, buf)),
            Some(Source::Direct(record)) => Plain::filled(len, &zeros, len, &mut |at, buf| {
                store.read_raw(record.address.checked_add(at).unwrap_or(Address::UNDEF), buf)
            }),
            _ => {
                let file = Plain::new(len)?;
                file.write(0, &self.decode(store, record, false)?)?;
                Ok(file)
            }
        }
    }
}
