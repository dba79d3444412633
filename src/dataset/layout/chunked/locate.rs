//! Finds and decodes the chunks of a dataset in a file.

use super::storage::Chunked;
use crate::base::{Error, Result};
use crate::dataset::chunk::cache::Chunk;
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::format::{Large, LargeReader};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::pieces::{ByteGrid, ChunkPieces};
use crate::dataset::chunk::reading::{self, ChunkFinder, ChunkLocation, ClaimedChunk, FoundChunk};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::dataset::index::ChunkRecord;
use crate::dataset::layout::plain_reads::is_on_disk;
use crate::dataset::layout::traits::Deferred;
use crate::meta::Store;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Smallest chunk whose decode needs a permit of the decoding gate, bytes.
const GATED_CHUNK_MIN_BYTES: u64 = 4 << 20;

/// A chunk in the file.
#[derive(Clone, Copy)]
pub(super) struct StoredChunk {
    pub record: ChunkRecord,
    /// The chunk extends past the extent of the dataset.
    is_edge: bool,
}

/// Where a chunk in a file is.
type Location = ChunkLocation<StoredChunk, Arc<DirtyChunk>>;

/// The chunks of a dataset in a file.
#[derive(Clone, Copy)]
pub(super) struct FileChunks<'a> {
    pub chunked: &'a Chunked,
    pub env: &'a Environment,
    pub store: &'a Store,
    /// The store by which chunks are found in the index: that of readers who do not wait for a
    /// disk, or `store`.
    pub index_store: &'a Store,
    /// Value of elements that were never written.
    pub fill: &'a FillPattern,
}

impl FileChunks<'_> {
    /// The changed chunk in a temporary file of which `t` are pieces, and the range of these, if a
    /// disk must be read for that.
    fn changed_on_disk(self, t: &ChunkPieces) -> Option<(FileImage, Range<u64>)> {
        if self.env.images.now().0 == 0 {
            return None;
        }
        let image = self.env.dirty.get(self.chunked.key(t.chunk))?.in_file()?;
        let range = self.chunked.grid.covering_range(t);
        (!image.file().is_in_memory(&range)).then_some((image, range))
    }

    /// Has the host read changed chunks in temporary files into its memory, of which `pieces` are
    /// and which only a disk has; `None`: there are none.
    pub(super) fn warm_changed<'b>(self, pieces: &[ChunkPieces]) -> Option<Deferred<'b>> {
        if !self.env.dirty.has(self.chunked.number) {
            return None;
        }
        let cold: Vec<_> = pieces.iter().filter_map(|t| self.changed_on_disk(t)).collect();
        let warm = |(image, range): (FileImage, Range<u64>)| image.file().warm(range);
        if cold.is_empty() { None } else { Some(Box::new(move || cold.into_iter().for_each(warm))) }
    }

    /// True if the chunk of which `t` are pieces must be decoded first, or read from a disk. Reads
    /// find errors.
    pub(super) fn is_long(self, t: &ChunkPieces) -> bool {
        if self.changed_on_disk(t).is_some() {
            return true;
        }
        if self.in_memory(std::slice::from_ref(t)).iter().any(Option::is_some) {
            return false;
        }
        match self.find(t) {
            Ok(FoundChunk::Cached { key, .. }) => !self.env.cache.contains(key),
            Ok(FoundChunk::File(_)) => true,
            Ok(FoundChunk::Location(ChunkLocation::Direct(stored))) => {
                let covering = self.chunked.grid.covering_range(t);
                let len = usize::try_from(covering.end.saturating_sub(covering.start)).unwrap_or(usize::MAX);
                stored.record.address.checked_add(covering.start).is_some_and(|at| is_on_disk(self.store, at, len))
            }
            Err(Error::OnDisk { .. }) => true,
            Ok(FoundChunk::Location(_)) | Err(_) => false,
        }
    }

    fn decode_one(self, stored: StoredChunk) -> Result<Image> {
        let FileChunks { chunked: c, env, store, .. } = self;
        let bytes = c.grid.chunk_bytes();
        let weight = bytes.saturating_mul(2).saturating_add(stored.record.size);
        let _permit = (bytes >= GATED_CHUNK_MIN_BYTES).then(|| env.decoding.enter(weight));
        c.format.decode(store, stored.record, stored.is_edge)
    }
}

impl<'a> ChunkFinder<'a> for FileChunks<'a> {
    type Stored = StoredChunk;
    type Changed = Arc<DirtyChunk>;

    fn grid(self) -> &'a ByteGrid {
        &self.chunked.grid
    }

    fn env(self) -> &'a Environment {
        self.env
    }

    fn fill(self) -> &'a FillPattern {
        self.fill
    }

    /// Dirty and cached chunks.
    fn in_memory(self, batch: &[ChunkPieces]) -> Vec<Option<Location>> {
        let FileChunks { chunked: c, env, .. } = self;
        let is_dirty = env.dirty.has(c.number);
        let dirty = |t: &ChunkPieces| is_dirty.then(|| env.dirty.get(c.key(t.chunk))).flatten().map(ChunkLocation::Changed);
        if !c.format.has_variable_size() && batch.iter().all(|t| reading::is_dense(&c.grid, t)) {
            // Dense reads of unfiltered chunks bypass the cache.
            return batch.iter().map(dirty).collect();
        }
        let ready = env.cache.ready(batch.iter().map(|t| c.key(t.chunk)));
        let cached = |t: &ChunkPieces, chunk| ChunkLocation::Memory(c.key(t.chunk).into(), chunk);
        batch.iter().zip(ready).map(|(t, chunk)| dirty(t).or_else(|| chunk.map(|chunk| cached(t, chunk)))).collect()
    }

    fn find(self, t: &ChunkPieces) -> Result<FoundChunk<'a, StoredChunk, Arc<DirtyChunk>>> {
        let FileChunks { chunked: c, env, store, .. } = self;
        let scaled = c.grid.scaled(t.chunk);
        let Some(record) = c.index.lookup(self.index_store, &scaled)? else { return Ok(FoundChunk::Location(ChunkLocation::Fill)) };
        let (key, is_edge, len) = (c.key(t.chunk), c.grid.is_edge(&scaled), c.grid.chunk_bytes());
        let direct = |record| FoundChunk::Location(ChunkLocation::Direct(StoredChunk { record, is_edge }));
        let cached = FoundChunk::Cached { key: key.into(), len, stored: StoredChunk { record, is_edge } };
        if c.format.is_plain(is_edge) {
            return Ok(if reading::is_direct(&c.grid, env, t) { direct(record) } else { cached });
        }
        Ok(match c.format.open_large(LargeReader { env, source: store, key, record, is_edge })? {
            Some(Large::Direct(record)) => direct(record),
            Some(Large::Made(file)) => FoundChunk::Location(ChunkLocation::ChunkFile(file)),
            Some(Large::File(decode)) => FoundChunk::File(decode),
            None => cached,
        })
    }

    /// Threads of the pool decode, one chunk each.
    fn decode(self, claimed: Vec<ClaimedChunk<'a, StoredChunk>>) -> Vec<Result<Arc<Chunk>>> {
        let one = |(reservation, stored): ClaimedChunk<'a, StoredChunk>| reservation.finish(self.decode_one(stored));
        match claimed.len() {
            0 | 1 => claimed.into_iter().map(one).collect(),
            _ => self.env.pool.install(|| claimed.into_par_iter().map(one).collect()),
        }
    }

    fn copy_changed(self, chunk: &Arc<DirtyChunk>, t: &ChunkPieces, buf: &mut [u8]) -> Result<()> {
        let grid = &self.chunked.grid;
        if let Some(image) = chunk.in_file() {
            return reading::copy_stored(grid, t, buf, &|at, part| image.file().read(at, part));
        }
        chunk.scatter(grid, t, buf)
    }
}
