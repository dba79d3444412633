//! Decoded chunks: in memory, or in temporary files if they are too large for the cache.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::image::out_of_range;
use crate::base::checksum::Crc32c;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::LARGE_DATA;
use crate::dataset::chunk::changed::SharedImage;
use crate::dataset::chunk::chunk_files::{ChunkFile, StreamPlan};
use crate::dataset::chunk::format::no_room;
use crate::dataset::chunk::gate::Permit;
use crate::dataset::chunk::image::ChunkImage;
use crate::dataset::chunk::key::{CacheKey, DatasetKey, StoredExtent};
use crate::dataset::chunk::reading::ChunkLocation;
use crate::dataset::environment::Environment;
use crate::filter::pipeline::is_applied;
use crate::iod::Extent;
use std::sync::Arc;

/// Chunks up to this size are inflated to a temporary file whatever the cache size, bytes.
const STREAMED_MIN_BYTES: u64 = 2 << 30;
/// Bytes by which the stored form of a chunk may be longer than twice the chunk.
const STORED_SLACK_BYTES: u64 = 64 << 10;
/// Stored bytes that are read at a time.
const PIECE_BYTES: usize = 4 << 20;
/// Decoded bytes of the chunks that one reader holds at once, unless it is one chunk.
pub(super) const HELD_BYTES: u64 = 32 << 20;

/// Chunks up to this size are decoded in memory whatever the cache size, bytes.
const MEMORY_MIN_BYTES: u64 = 32 << 20;
/// Smallest chunk whose decode needs a permit of the decoding gate, bytes.
const GATED_MIN_BYTES: u64 = 1 << 20;

/// The stored bytes of a chunk.
#[derive(Clone, Copy)]
pub(super) struct StoredValue {
    pub extent: Extent,
    /// Filters that it was stored without.
    pub mask: u32,
}

/// Where a chunk of a container is.
pub(super) type ValueLocation = ChunkLocation<StoredValue, SharedImage>;

/// Key in the chunk cache of the chunk of `d` in `extent`.
pub(super) fn chunk_key(d: &Dataset, extent: &Extent) -> CacheKey {
    extent_key(d.id, extent, d.pipeline.is_empty())
}

/// Key of the dataset `id` in the chunk cache.
pub(super) fn dataset_key(id: u64) -> DatasetKey {
    DatasetKey { file: 0, address: Address(id) }
}

/// Key in the chunk cache of what `extent` has of the dataset `id`. `raw`: it is not decoded.
pub(super) fn extent_key(id: u64, extent: &Extent, raw: bool) -> CacheKey {
    let Extent { session, pack, offset, len, checksum } = *extent;
    let dataset = dataset_key(id);
    CacheKey::Extent { dataset, extent: StoredExtent { object: (session, pack), offset, len, checksum }, raw }
}

/// Waits until `bytes` may be decoded. The caller waits for no other thread meanwhile.
pub(super) fn permit(env: &Environment, bytes: u64) -> Option<Permit<'_>> {
    (bytes >= GATED_MIN_BYTES).then(|| env.decoding.enter(bytes))
}

impl ValueLocation {
    /// The chunk, if it is in memory.
    pub fn image(&self) -> Option<&dyn ChunkImage> {
        match self {
            ChunkLocation::Changed(image) => Some(image.image()),
            ChunkLocation::Memory(_, chunk) => Some(chunk.image()),
            _ => None,
        }
    }
}

impl Dataset {
    /// Bytes that the chunk in a cell has when it is decoded.
    pub(super) fn decoded_len(&self, cell_bytes: u64) -> u64 {
        if self.pipeline.is_empty() { cell_bytes } else { self.grid.chunk_bytes() }
    }

    /// Memory for decoding a chunk of `stored` bytes.
    pub(super) fn decoding_bytes(&self, stored: u64) -> u64 {
        match self.pipeline.is_empty() {
            true => stored,
            false => self.grid.chunk_bytes().saturating_mul(2).saturating_add(stored),
        }
    }

    /// Errors: a chunk has more stored bytes than any filter makes of it.
    pub(super) fn check_stored(&self, stored: u64) -> Result<()> {
        let len = self.grid.chunk_bytes();
        let most = if self.pipeline.is_empty() { len } else { len.saturating_mul(2).saturating_add(STORED_SLACK_BYTES) };
        if stored <= most {
            return Ok(());
        }
        Err(Error::corrupt("chunk", Address(self.id), format!("{stored} stored bytes for {len} of a chunk")))
    }

    /// True if the filters of a chunk with this mask were all left out.
    fn is_plain(&self, mask: u32) -> bool {
        (0..self.pipeline.filters.len()).all(|i| !is_applied(mask, i))
    }
}

fn refused(d: &Dataset, len: u64, need: u64) -> Error {
    let detail = format!("chunks of {len} bytes are too large for the caches: use a --cache-size of {need}");
    Error::limit(LARGE_DATA, Address(d.id), detail)
}

impl ChunkReader {
    /// True if a chunk of `stored` bytes is decoded to a temporary file.
    pub(super) fn is_large(&self, d: &Dataset, stored: u64) -> bool {
        // Which elements are defined is known in memory only.
        let len = d.decoded_len(stored);
        let fits_memory = len <= self.env.whole_chunk_max() && len > self.env.chunk_files.capacity();
        !d.knows_defined() && len > MEMORY_MIN_BYTES.max(self.env.cache.budget() / 4) && !fits_memory
    }

    /// Errors: the chunk in a cell is too large to be decoded in memory.
    pub(super) fn check_whole(&self, d: &Dataset, stored: u64) -> Result<()> {
        d.check_stored(stored)?;
        let len = d.decoded_len(stored);
        if len <= self.env.whole_chunk_max() { Ok(()) } else { Err(refused(d, len, len.saturating_mul(4))) }
    }

    /// Errors: `EFBIG` if chunks of `d` are too large to be changed in memory.
    pub(super) fn check_changed(&self, d: &Dataset) -> Result<()> {
        let len = d.grid.chunk_bytes();
        if len <= self.env.changed_chunk_max() {
            return Ok(());
        }
        let need = len.saturating_mul(4);
        Err(Error::refused(libc::EFBIG, format!("sparse chunks of {len} bytes need a --cache-size of {need}")))
    }

    /// A large chunk in a temporary file.
    pub(super) fn decoded_file(&self, d: &Dataset, extent: &Extent, mask: u32) -> Result<Arc<ChunkFile>> {
        let (stored, files) = (u64::from(extent.len), &self.env.chunk_files);
        d.check_stored(stored)?;
        let len = d.decoded_len(stored);
        let most = STREAMED_MIN_BYTES.max(self.env.cache.budget());
        let plan = StreamPlan::of(&d.pipeline, mask, len);
        let is_plain = d.is_plain(mask);
        let is_whole = !is_plain && plan.is_none();
        if len > files.capacity() {
            return Err(Error::limit(LARGE_DATA, Address(d.id), no_room(len)));
        }
        if !is_whole && len > most {
            return Err(refused(d, len, len));
        }
        if is_whole {
            self.check_whole(d, stored)?;
        }
        files.get(chunk_key(d, extent), len, || {
            let Some(plan) = plan.filter(|_| !is_plain) else {
                return if is_plain { self.copied(d, extent) } else { self.decoded_whole(d, extent, mask) };
            };
            let mut pieces = Pieces::new(self, extent);
            let file = ChunkFile::inflate(plan, len, stored, &mut |at, buf| pieces.read(at, buf), Address(d.id))?;
            pieces.finish().map(|()| file)
        })
    }

    /// The bytes of a chunk without filters.
    fn copied(&self, d: &Dataset, extent: &Extent) -> Result<ChunkFile> {
        let len = u64::from(extent.len);
        if !d.pipeline.is_empty() && len != d.grid.chunk_bytes() {
            return Err(Error::corrupt("chunk", Address(d.id), format!("it has {len} bytes, and not those of a chunk")));
        }
        let mut pieces = Pieces::new(self, extent);
        let file = ChunkFile::copied(len, &mut |at, buf| pieces.read(at, buf), Address(d.id))?;
        pieces.finish().map(|()| file)
    }

    fn decoded_whole(&self, d: &Dataset, extent: &Extent, mask: u32) -> Result<ChunkFile> {
        let stored = u64::from(extent.len);
        let _permit = permit(&self.env, d.decoding_bytes(stored));
        let bytes = self.container.read_within("chunk", extent, stored)?;
        let image = d.decode(bytes, mask)?;
        ChunkFile::from_decoded(image.dense().ok_or_else(|| out_of_range(d.id))?, Address(d.id))
    }
}

/// Reads an extent from its beginning to its end, piece by piece, and verifies its checksum.
struct Pieces<'a> {
    reader: &'a ChunkReader,
    extent: &'a Extent,
    piece: Vec<u8>,
    /// Place of `piece` in the extent.
    at: u64,
    sum: Crc32c,
}

impl<'a> Pieces<'a> {
    fn new(reader: &'a ChunkReader, extent: &'a Extent) -> Self {
        Pieces { reader, extent, piece: Vec::new(), at: 0, sum: Crc32c::default() }
    }

    fn end(&self) -> u64 {
        self.at.saturating_add(self.piece.len() as u64)
    }

    /// Reads the next piece; false: there is none.
    fn advance(&mut self) -> Result<bool> {
        self.at = self.end();
        let len = usize::try_from(u64::from(self.extent.len).saturating_sub(self.at)).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        self.piece.resize(len, 0);
        if len > 0 {
            self.reader.container.read_part(self.extent, self.at, &mut self.piece)?;
            self.sum.add(&self.piece);
        }
        Ok(len > 0)
    }

    /// Fills `buf` from `at`, which does not decrease from call to call.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0usize;
        while done < buf.len() {
            let from = at.saturating_add(done as u64);
            if from >= self.end() && !self.advance()? {
                return Err(self.reader.container.damaged(self.extent));
            }
            let skip = usize::try_from(from.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let part = self.piece.get(skip..).unwrap_or_default();
            let target = buf.get_mut(done..).unwrap_or_default();
            let n = part.len().min(target.len());
            target.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            done = done.saturating_add(n);
        }
        Ok(())
    }

    /// Errors: the bytes have another checksum.
    fn finish(mut self) -> Result<()> {
        while self.advance()? {}
        if self.sum.finish() == self.extent.checksum { Ok(()) } else { Err(self.reader.container.damaged(self.extent)) }
    }
}
