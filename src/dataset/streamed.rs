//! Chunks that are too large for memory: to temporary files and back.

use super::chunk::cache::ChunkKey;
use super::chunk::plain::{Plain, Stored};
use super::chunk::spool::{Spooled, StreamPlan};
use super::chunked::{Chunked, STREAMED_MIN, Source};
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::ChunkRecord;
use super::write::refuse;
use crate::base::{Address, Result, limits};
use crate::meta::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How chunks that are changed in files are encoded.
#[derive(Debug, Clone, Copy)]
pub(super) enum FromFile {
    /// As many bytes at a time as one likes.
    InPieces(StreamPlan),
    /// In memory for a moment: their filters take them as a whole.
    Whole,
}

impl Chunked {
    /// How chunks are encoded from files, and so decoded again; `None` where they cannot be.
    pub(super) fn encoding_of_files(&self, env: &Environment) -> Option<FromFile> {
        let bytes = self.grid.chunk_bytes();
        let most = env.spools.capacity().min(limits::CHUNK_BYTES_MAX);
        match StreamPlan::of(&self.pipeline, 0, bytes).filter(StreamPlan::encodes) {
            Some(plan) => (bytes <= STREAMED_MIN.max(env.cache.budget()).min(most)).then_some(FromFile::InPieces(plan)),
            None => (bytes <= env.whole_chunk_max().min(most)).then_some(FromFile::Whole),
        }
    }

    /// What is stored of a chunk in a file.
    pub(super) fn encode_file(&self, env: &Environment, file: &Plain, how: FromFile) -> Result<Stored> {
        env.streamed.fetch_add(1, Ordering::Relaxed);
        match how {
            FromFile::InPieces(plan) => file.encode(plan),
            FromFile::Whole => {
                // The chunk, and what a filter makes of it.
                let _permit = env.decoding.enter(self.grid.chunk_bytes().saturating_mul(2));
                file.encode_whole(|bytes| self.pipeline.encode(bytes).map_err(|e| refuse(&e)))
            }
        }
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
            env.share_temporary_space(0);
            env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
            Spooled::make(plan, bytes, record.size, &mut read, record.address)
        })
    }

    /// A stored chunk in a file of its own, where it can be changed.
    pub(super) fn to_file(&self, env: &Environment, store: &Store, key: ChunkKey, record: ChunkRecord) -> Result<Plain> {
        let len = self.grid.chunk_bytes();
        env.share_temporary_space(len);
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
