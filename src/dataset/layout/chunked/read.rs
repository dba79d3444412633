//! Reads chunked datasets: splits requests by chunk, and finds and decodes the chunks.

use super::locate::ChunkLocation;
use super::storage::Chunked;
use crate::base::{Address, Error, Result, buffers};
use crate::dataset::chunk::format::READ_AHEAD_CHUNK_MAX_BYTES;
use crate::dataset::chunk::pieces::{ChunkPieces, Piece};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::dataset::layout::plain_reads::PlainReads;
use crate::dataset::layout::traits::{Deferred, Seek};
use crate::meta::Store;
use std::cell::RefCell;

/// Bytes of a request handled at a time, to bound the number of pieces.
const SLICE_BYTES: usize = 1 << 20;
/// A range of a chunk on disk is read whole if it is at most this many times the requested bytes.
const COVERING_FACTOR: u64 = 2;
/// Ranges up to this length are read into a thread-local buffer, bytes.
const SCRATCH_MAX_BYTES: usize = 64 << 10;

thread_local! {
    /// Buffer for a short range of a stored chunk, at most [`SCRATCH_MAX_BYTES`].
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Rows of chunks in one slice of a request, to bound the number of pieces of tiny chunks.
const SLICE_ROWS: u64 = 8192;

/// What a read needs beside the dataset.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub env: &'a Environment,
    pub store: &'a Store,
    /// Value of elements that were never written.
    pub fill: &'a FillPattern,
}

/// Reads of stored bytes, of which one is pending, into the request's buffer. Joins adjacent reads,
/// to save system calls.
struct DirectReads<'a> {
    reads: PlainReads<'a>,
    at: Address,
    from: usize,
    len: usize,
}

impl<'a> DirectReads<'a> {
    fn new(reads: PlainReads<'a>) -> Self {
        DirectReads { reads, at: Address::UNDEF, from: 0, len: 0 }
    }

    fn add(&mut self, at: Address, p: &Piece, buf: &mut [u8]) -> Result<()> {
        let follows =
            self.len > 0 && self.from.checked_add(self.len) == Some(p.in_buffer) && self.at.checked_add(self.len as u64) == Some(at);
        if follows {
            self.len = self.len.saturating_add(p.len);
            return Ok(());
        }
        self.flush(buf)?;
        (self.at, self.from, self.len) = (at, p.in_buffer, p.len);
        Ok(())
    }

    fn flush(&mut self, buf: &mut [u8]) -> Result<()> {
        let len = std::mem::take(&mut self.len);
        match buf.get_mut(self.from..self.from.saturating_add(len)) {
            Some(part) if len > 0 => self.reads.read(self.at, part),
            _ => Ok(()),
        }
    }
}

impl Chunked {
    /// Length of the hole at `offset`; 0 if it is not known, or does not matter to a read of `len`
    /// bytes.
    pub(super) fn hole_at(&self, env: &Environment, store: &Store, offset: u64, len: usize) -> usize {
        let Some((chunk, end)) = self.grid.chunk_at(offset) else { return 0 };
        let is_short = end.saturating_sub(offset) >= len as u64;
        if is_short || !self.index.is_ordered() || env.cache.contains(self.key(chunk)) {
            return 0;
        }
        // Errors are reported by the read.
        let Ok(None) = self.index.lookup(store, &self.grid.scaled(chunk)) else { return 0 };
        let Ok(next) = self.seek_in_file(store, offset, Seek::Data) else { return 0 };
        usize::try_from(next.unwrap_or(u64::MAX).saturating_sub(offset)).unwrap_or(usize::MAX)
    }

    /// Bytes of a request handled at a time.
    pub(super) fn slice_bytes(&self) -> usize {
        let rows = self.grid.row_bytes().saturating_mul(SLICE_ROWS);
        usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, SLICE_BYTES)
    }

    /// Reads at most [`Chunked::slice_bytes`] from byte `offset`.
    ///
    /// With `defers`, returns what must be decoded or read from a disk first instead of doing that,
    /// unless the cache cannot hold the chunks.
    pub(super) fn read_slice<'a>(&'a self, at: Reading<'a>, defers: bool, offset: u64, buf: &mut [u8]) -> Result<Option<Deferred<'a>>> {
        let Reading { env, store, .. } = at;
        let pieces = self.grid.pieces(offset, buf.len());
        let mut direct = DirectReads::new(PlainReads::new(store, defers));
        let most = self.batch_chunks(env);
        let defers = defers && pieces.len() <= most && self.is_kept(env);
        for batch in pieces.chunks(most) {
            let located = self.locate(env, store, batch)?;
            if defers && located.is_undecoded() {
                // The read that follows finds errors.
                return Ok(Some(Box::new(|| drop(located.decode()))));
            }
            for (t, source) in batch.iter().zip(located.decode()?) {
                self.copy(at, offset, t, source, buf, &mut direct)?;
            }
        }
        direct.flush(buf)?;
        Ok(direct.reads.deferred())
    }

    /// Chunks that are held at once: they stay within a quarter of the cache.
    fn batch_chunks(&self, env: &Environment) -> usize {
        (env.cache.budget() / 4 / self.grid.chunk_bytes().max(1)).clamp(1, 1 << 16) as usize
    }

    /// True if the caches keep a chunk until the next read of it.
    fn is_kept(&self, env: &Environment) -> bool {
        let bytes = self.grid.chunk_bytes();
        // Larger ones than the cache can hold are in temporary files.
        bytes <= env.cache.budget() / 4 || bytes > READ_AHEAD_CHUNK_MAX_BYTES
    }

    fn copy(
        &self,
        from: Reading<'_>,
        offset: u64,
        t: &ChunkPieces,
        source: ChunkLocation,
        buf: &mut [u8],
        direct: &mut DirectReads<'_>,
    ) -> Result<()> {
        let Reading { env, store, fill } = from;
        match source {
            ChunkLocation::Fill => {
                for p in &t.pieces {
                    for (_, at) in self.grid.rows(p) {
                        if let Some(part) = buf.get_mut(at..at.saturating_add(p.len)) {
                            fill.fill(offset.saturating_add(at as u64), part);
                        }
                    }
                }
            }
            ChunkLocation::Memory(chunk) => {
                let out_of_range = || Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say");
                chunk.image().scatter(&self.grid, t, buf).ok_or_else(out_of_range)?;
                env.cache.record_read(self.key(t.chunk), &chunk, t.bytes());
            }
            ChunkLocation::Dirty(chunk) if chunk.file().is_some() => self.copy_stored(t, buf, &|at, part| chunk.get(at, part))?,
            ChunkLocation::Dirty(chunk) => {
                let out_of_range = || Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say");
                chunk.image().scatter(&self.grid, t, buf).ok_or_else(out_of_range)?;
            }
            ChunkLocation::ChunkFile(chunk) => {
                for p in &t.pieces {
                    for (at, to) in self.grid.rows(p) {
                        if let Some(part) = buf.get_mut(to..to.saturating_add(p.len)) {
                            chunk.read(at, part)?;
                        }
                    }
                }
            }
            ChunkLocation::Direct(record) => {
                // A single run may continue the pending read.
                if let [p] = t.pieces.as_slice()
                    && p.rows == 1
                {
                    return direct.add(record.address.checked_add(p.in_chunk).unwrap_or(Address::UNDEF), p, buf);
                }
                let read = |at: u64, part: &mut [u8]| direct.reads.read(record.address.checked_add(at).unwrap_or(Address::UNDEF), part);
                self.copy_stored(t, buf, &read)?;
            }
            ChunkLocation::OnDisk(at) => {
                let read = self.copy_stored(t, buf, &|within, part| env.cache.disk_cache().read(at, within, part));
                if let Err(e) = &read {
                    tracing::warn!("{e}; decoding the chunk again");
                    env.cache.disk_cache().remove(self.key(t.chunk).into());
                }
                // The ring may have overwritten the entry during the read.
                if read.is_err() || env.cache.disk_cache().find(self.key(t.chunk).into()) != Some(at) {
                    let source = self.source(env, store, t)?;
                    return self.copy(from, offset, t, source, buf, direct);
                }
            }
        }
        Ok(())
    }

    /// True when the pieces make up a large part of the range that covers them.
    pub(super) fn is_dense(&self, t: &ChunkPieces) -> bool {
        let range = self.grid.covering_range(t);
        range.end.saturating_sub(range.start) <= t.bytes().saturating_mul(COVERING_FACTOR)
    }

    /// Copies the pieces of a chunk on disk; `read` fills a buffer from an offset in the chunk.
    fn copy_stored(&self, t: &ChunkPieces, buf: &mut [u8], read: &dyn Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
        let range = self.grid.covering_range(t);
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        if t.runs() > 1 && self.is_dense(t) {
            let read_whole = |scratch: &mut Vec<u8>, buf: &mut [u8]| {
                scratch.resize(scratch.len().max(len), 0);
                let part = scratch.get_mut(..len).unwrap_or_default();
                read(range.start, part)?;
                self.grid.scatter(t, part, range.start, buf).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "pieces past its end"))
            };
            if len <= SCRATCH_MAX_BYTES {
                return SCRATCH.with_borrow_mut(|scratch| read_whole(scratch, buf));
            }
            let mut scratch = buffers::take(len, len.saturating_mul(4)).unwrap_or_else(|| vec![0; len]);
            let result = read_whole(&mut scratch, buf);
            buffers::give(scratch);
            return result;
        }
        for p in &t.pieces {
            for (at, to) in self.grid.rows(p) {
                if let Some(part) = buf.get_mut(to..to.saturating_add(p.len)) {
                    read(at, part)?;
                }
            }
        }
        Ok(())
    }
}
