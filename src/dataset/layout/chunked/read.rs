//! Reads chunked datasets: splits requests by chunk.

use super::locate::{FileChunks, StoredChunk};
use super::storage::Chunked;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::format::READ_AHEAD_CHUNK_MAX_BYTES;
use crate::dataset::chunk::pieces::{ByteGrid, ChunkPieces, Piece};
use crate::dataset::chunk::reading;
use crate::dataset::environment::Environment;
use crate::dataset::index::ChunkRecord;
use crate::dataset::layout::plain_reads::PlainReads;
use crate::dataset::layout::traits::{Deferred, Seek};
use crate::meta::Store;

/// Bytes of a request handled at a time, to bound the number of pieces.
const SLICE_BYTES: usize = 1 << 20;
/// Rows of chunks in one slice of a request, to bound the number of pieces of tiny chunks.
const SLICE_ROWS: u64 = 8192;

/// Reads of stored bytes, of which one is pending, into the request's buffer. Joins adjacent reads,
/// to save system calls.
struct DirectReads<'a> {
    grid: &'a ByteGrid,
    reads: PlainReads<'a>,
    at: Address,
    from: usize,
    len: usize,
}

impl<'a> DirectReads<'a> {
    fn new(grid: &'a ByteGrid, reads: PlainReads<'a>) -> Self {
        DirectReads { grid, reads, at: Address::UNDEF, from: 0, len: 0 }
    }

    /// Reads the pieces of a chunk that is stored as its elements.
    fn copy(&mut self, record: ChunkRecord, t: &ChunkPieces, buf: &mut [u8]) -> Result<()> {
        let at = |within: u64| record.address.checked_add(within).unwrap_or(Address::UNDEF);
        // A single run may continue the pending read.
        if let [p] = t.pieces.as_slice()
            && p.rows == 1
        {
            return self.add(at(p.in_chunk), p, buf);
        }
        reading::copy_stored(self.grid, t, buf, &|within, part| self.reads.read(at(within), part))
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
    /// bytes. Error: a disk must be read for that.
    pub(super) fn hole_at(&self, env: &Environment, store: &Store, offset: u64, len: usize) -> Result<usize> {
        let Some((chunk, end)) = self.grid.chunk_at(offset) else { return Ok(0) };
        let is_short = end.saturating_sub(offset) >= len as u64;
        if is_short || !self.index.is_ordered() || env.cache.contains(self.key(chunk)) {
            return Ok(0);
        }
        let next = match self.index.lookup(store, &self.grid.scaled(chunk)) {
            Ok(None) => self.seek_in_file(store, offset, Seek::Data),
            Ok(Some(_)) => return Ok(0),
            Err(e) => Err(e),
        };
        match next {
            Ok(next) => Ok(usize::try_from(next.unwrap_or(u64::MAX).saturating_sub(offset)).unwrap_or(usize::MAX)),
            Err(e @ Error::OnDisk { .. }) => Err(e),
            // Others are reported by the read.
            Err(_) => Ok(0),
        }
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
    pub(super) fn read_slice<'a>(chunks: FileChunks<'a>, defers: bool, offset: u64, buf: &mut [u8]) -> Result<Option<Deferred<'a>>> {
        let FileChunks { chunked, env, store, .. } = chunks;
        let mut direct = DirectReads::new(&chunked.grid, PlainReads::new(store, defers));
        let (most, pieces) = (chunked.batch_chunks(env), chunked.grid.pieces(offset, buf.len()));
        if let Some(warm) = if defers { chunks.warm_changed(&pieces) } else { None } {
            return Ok(Some(warm));
        }
        let defers = defers && pieces.len() <= most && chunked.is_kept(env);
        let mut copy = |stored: StoredChunk, t: &ChunkPieces, buf: &mut [u8]| direct.copy(stored.record, t, buf);
        if let Some(located) = reading::read(chunks, &pieces, (most, defers), (offset, &mut *buf), &mut copy)? {
            // The read that follows finds errors.
            return Ok(Some(Box::new(|| drop(located.decode()))));
        }
        direct.flush(buf)?;
        Ok(direct.reads.deferred())
    }

    /// See [`Layout::is_long_read`](crate::dataset::layout::Layout::is_long_read).
    pub(super) fn is_long(chunks: FileChunks<'_>, offset: u64, len: usize) -> bool {
        let FileChunks { chunked, env, .. } = chunks;
        let end = offset.saturating_add(len as u64);
        let mut slices = (offset..end).step_by(chunked.slice_bytes());
        let is_long = |at: u64| {
            let len = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(chunked.slice_bytes());
            chunked.grid.pieces(at, len).iter().any(|t| chunks.is_long(t))
        };
        chunked.is_kept(env) && slices.any(is_long)
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
}
