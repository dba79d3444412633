//! Reads chunks: finds those of a request, claims those that must be decoded, decodes them, and
//! copies their bytes. Only finding needs the lock of a dataset that may change.

use super::cache::{Chunk, Claim, Loading, Reservation};
use super::chunk_files::ChunkFile;
use super::format::DecodeToFile;
use super::key::CacheKey;
use super::pieces::{ByteGrid, ChunkPieces};
use crate::base::{Address, Error, Result, buffers};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use std::cell::RefCell;
use std::sync::Arc;

/// Most runs of a chunk without filters that are read one by one, without the cache.
const DIRECT_RUNS_MAX: usize = 4;
/// A range of a chunk on disk is read whole if it is at most this many times the requested bytes.
const COVERING_FACTOR: u64 = 2;
/// Ranges up to this length are read into a thread-local buffer, bytes.
const SCRATCH_MAX_BYTES: usize = 64 << 10;

thread_local! {
    /// Buffer for a short range of a stored chunk, at most [`SCRATCH_MAX_BYTES`].
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where the bytes of a chunk are.
pub(crate) enum ChunkLocation<Stored, Changed> {
    /// The chunk is not stored.
    Fill,
    /// In the chunk cache.
    Memory(CacheKey, Arc<Chunk>),
    /// Changed since it was stored.
    Changed(Changed),
    /// At this offset of the disk cache.
    OnDisk(CacheKey, u64),
    /// In a temporary file: its first bytes. All others have the fill value.
    ChunkFile(Arc<ChunkFile>),
    /// Stored as its elements.
    Direct(Stored),
}

/// What finding one chunk gives.
pub(crate) enum FoundChunk<'a, Stored, Changed> {
    /// The place of the chunk's bytes.
    Location(ChunkLocation<Stored, Changed>),
    /// The chunk is too large for memory: what decodes it to a file.
    File(DecodeToFile<'a>),
    /// The cache has the chunk, of so many decoded bytes, or takes it.
    Cached { key: CacheKey, len: u64, stored: Stored },
}

/// A chunk that the caller decodes, and its place in the cache.
pub(crate) type ClaimedChunk<'a, Stored> = (Reservation<'a>, Stored);

/// Finds and decodes the chunks of one dataset in one state.
pub(crate) trait ChunkFinder<'a>: Copy {
    /// Names the stored bytes of a chunk.
    type Stored: Copy;
    /// A chunk that changed since it was stored.
    type Changed;

    /// Geometry in bytes.
    fn grid(self) -> &'a ByteGrid;

    /// The caches, bounds and threads.
    fn env(self) -> &'a Environment;

    /// Value of elements that were never written.
    fn fill(self) -> &'a FillPattern;

    /// The chunks of a batch that are in memory, as far as that shows before they are found.
    fn in_memory(self, batch: &[ChunkPieces]) -> Vec<Option<ChunkLocation<Self::Stored, Self::Changed>>>;

    /// Finds the chunk of which `t` are pieces. Decodes it only if it is a few bytes that the index
    /// has itself.
    fn find(self, t: &ChunkPieces) -> Result<FoundChunk<'a, Self::Stored, Self::Changed>>;

    /// Reads and decodes claimed chunks, several at once. Waits for no chunk that another thread
    /// decodes.
    fn decode(self, claimed: Vec<ClaimedChunk<'a, Self::Stored>>) -> Vec<Result<Arc<Chunk>>>;

    /// Copies pieces of a changed chunk into `buf`.
    fn copy_changed(self, changed: &Self::Changed, t: &ChunkPieces, buf: &mut [u8]) -> Result<()>;
}

/// Where the chunks of a finder are.
pub(crate) type LocationOf<'a, F> = ChunkLocation<<F as ChunkFinder<'a>>::Stored, <F as ChunkFinder<'a>>::Changed>;

/// Copies pieces of a chunk that is stored as its elements to the buffer of a request.
pub(crate) type Direct<'a, Stored> = dyn FnMut(Stored, &ChunkPieces, &mut [u8]) -> Result<()> + 'a;

/// Chunks of a batch: locations, and by their place in the batch those without one yet.
pub(crate) struct Located<'a, F: ChunkFinder<'a>> {
    finder: F,
    locations: Vec<Option<LocationOf<'a, F>>>,
    claimed: Vec<(usize, CacheKey, ClaimedChunk<'a, F::Stored>)>,
    files: Vec<(usize, DecodeToFile<'a>)>,
    /// Chunks that other threads decode.
    loading: Vec<(usize, CacheKey, Loading<'a>)>,
}

fn lost() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "it was not decoded")
}

/// The error of pieces that a chunk does not have.
pub(crate) fn out_of_range() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say")
}

impl<'a, F: ChunkFinder<'a>> Located<'a, F> {
    /// Finds the chunks of a batch, and claims those that must be decoded.
    pub(crate) fn find(finder: F, batch: &[ChunkPieces]) -> Result<Self> {
        let mut locations = finder.in_memory(batch);
        let (mut files, mut cached) = (Vec::new(), Vec::new());
        for (place, (t, location)) in batch.iter().zip(&mut locations).enumerate().filter(|(_, (_, location))| location.is_none()) {
            match finder.find(t)? {
                FoundChunk::Location(found) => *location = Some(found),
                FoundChunk::File(decode) => files.push((place, decode)),
                FoundChunk::Cached { key, len, stored } => cached.push((place, key, len, stored)),
            }
        }
        let (mut claimed, mut loading) = (Vec::new(), Vec::new());
        let claims = finder.env().cache.claim(cached.iter().map(|(_, key, len, _)| (*key, *len)));
        for (claim, (place, key, _, stored)) in claims.into_iter().zip(cached) {
            let location = match claim {
                Claim::Ready(chunk) => ChunkLocation::Memory(key, chunk),
                Claim::OnDisk(at) => ChunkLocation::OnDisk(key, at),
                Claim::Ours(reservation) => {
                    claimed.push((place, key, (reservation, stored)));
                    continue;
                }
                Claim::Loading(pending) => {
                    loading.push((place, key, pending));
                    continue;
                }
            };
            if let Some(slot) = locations.get_mut(place) {
                *slot = Some(location);
            }
        }
        Ok(Located { finder, locations, claimed, files, loading })
    }

    /// True if chunks must be decoded or waited for.
    pub(crate) fn is_undecoded(&self) -> bool {
        !(self.claimed.is_empty() && self.files.is_empty() && self.loading.is_empty())
    }

    /// Decodes claimed chunks, then waits for those that other threads decode; returns where each
    /// chunk of the batch is. Errors: the first one.
    pub(crate) fn decode(self) -> Result<Vec<LocationOf<'a, F>>> {
        let Located { finder, mut locations, claimed, files, loading } = self;
        let mut put = |place: usize, location| {
            if let Some(slot) = locations.get_mut(place) {
                *slot = Some(location);
            }
        };
        let (places, chunks): (Vec<_>, Vec<_>) = claimed.into_iter().map(|(place, key, chunk)| ((place, key), chunk)).unzip();
        let decoded = if chunks.is_empty() { Vec::new() } else { finder.decode(chunks) };
        for ((place, key), chunk) in places.into_iter().zip(decoded) {
            put(place, ChunkLocation::Memory(key, chunk?));
        }
        for (place, decode) in files {
            put(place, ChunkLocation::ChunkFile(decode()?));
        }
        for (place, key, pending) in loading {
            put(place, ChunkLocation::Memory(key, pending.wait()?));
        }
        locations.into_iter().collect::<Option<Vec<_>>>().ok_or_else(lost)
    }

    /// Decodes claimed chunks one after the other, for a later read, which reports their errors.
    pub(crate) fn decode_ahead(self) {
        let Located { finder, claimed, files, .. } = self;
        claimed.into_iter().for_each(|(_, _, chunk)| drop(finder.decode(vec![chunk])));
        files.into_iter().for_each(|(_, decode)| drop(decode()));
    }
}

/// Fills `buf` with the bytes of the dataset from `offset`, whose `pieces` are of `most` chunks at
/// a time. `direct`: reads pieces of a chunk that is stored as its elements.
///
/// With `defers`, returns the chunks that must be decoded first instead of decoding them.
pub(crate) fn read<'a, F: ChunkFinder<'a>>(
    finder: F,
    pieces: &[ChunkPieces],
    (most, defers): (usize, bool),
    (offset, buf): (u64, &mut [u8]),
    direct: &mut Direct<'_, F::Stored>,
) -> Result<Option<Located<'a, F>>> {
    for batch in pieces.chunks(most.max(1)) {
        let located = Located::find(finder, batch)?;
        if defers && located.is_undecoded() {
            return Ok(Some(located));
        }
        for (t, location) in batch.iter().zip(located.decode()?) {
            copy(finder, offset, t, location, buf, direct)?;
        }
    }
    Ok(None)
}

/// Finds the bytes of one chunk; decodes it if necessary.
pub(crate) fn location<'a, F: ChunkFinder<'a>>(finder: F, t: &ChunkPieces) -> Result<LocationOf<'a, F>> {
    let locations = Located::find(finder, std::slice::from_ref(t))?.decode()?;
    locations.into_iter().next().ok_or_else(lost)
}

/// Copies pieces of the chunk at `location` into `buf`, whose first byte is byte `offset` of the
/// dataset. `direct`: reads pieces of a chunk that is stored as its elements.
pub(crate) fn copy<'a, F: ChunkFinder<'a>>(
    finder: F,
    offset: u64,
    t: &ChunkPieces,
    location: LocationOf<'a, F>,
    buf: &mut [u8],
    direct: &mut Direct<'_, F::Stored>,
) -> Result<()> {
    let (grid, fill, cache) = (finder.grid(), finder.fill(), &finder.env().cache);
    match location {
        ChunkLocation::Fill => fill_from(grid, fill, offset, t, 0, buf, &|_, _| Ok(())),
        ChunkLocation::Memory(key, chunk) => {
            chunk.image().scatter(grid, t, buf).ok_or_else(out_of_range)?;
            cache.record_read(key, &chunk, t.bytes());
            Ok(())
        }
        ChunkLocation::Changed(changed) => finder.copy_changed(&changed, t, buf),
        ChunkLocation::ChunkFile(file) => fill_from(grid, fill, offset, t, file.len(), buf, &|at, part| file.read(at, part)),
        ChunkLocation::Direct(stored) => direct(stored, t, buf),
        ChunkLocation::OnDisk(key, at) => {
            let read = copy_stored(grid, t, buf, &|within, part| cache.disk_cache().read(at, within, part));
            if let Err(e) = &read {
                tracing::warn!("{e}; decoding the chunk again");
                cache.disk_cache().remove(key);
            }
            // The ring may have overwritten the entry during the read.
            if read.is_err() || cache.disk_cache().find(key) != Some(at) {
                return copy(finder, offset, t, self::location(finder, t)?, buf, direct);
            }
            Ok(())
        }
    }
}

/// Copies pieces of a chunk that has `len` bytes, read by `read`, and then the fill value.
fn fill_from(
    grid: &ByteGrid,
    fill: &FillPattern,
    offset: u64,
    t: &ChunkPieces,
    len: u64,
    buf: &mut [u8],
    read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    for piece in &t.pieces {
        for (at, to) in grid.rows(piece) {
            let Some(part) = buf.get_mut(to..to.saturating_add(piece.len)) else { continue };
            let there = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(part.len());
            let (head, tail) = part.split_at_mut(there);
            if !head.is_empty() {
                read(at, head)?;
            }
            fill.fill(offset.saturating_add(to as u64).saturating_add(there as u64), tail);
        }
    }
    Ok(())
}

/// True if the pieces of a chunk that is stored as its elements are read from there, and not from
/// the cache.
pub(crate) fn is_direct(grid: &ByteGrid, env: &Environment, t: &ChunkPieces) -> bool {
    t.runs() <= DIRECT_RUNS_MAX || is_dense(grid, t) || grid.chunk_bytes() > env.cache.budget() / 4
}

/// True when the pieces make up a large part of the range that covers them.
pub(crate) fn is_dense(grid: &ByteGrid, t: &ChunkPieces) -> bool {
    let range = grid.covering_range(t);
    range.end.saturating_sub(range.start) <= t.bytes().saturating_mul(COVERING_FACTOR)
}

/// Copies the pieces of a chunk on disk; `read` fills a buffer from an offset in the chunk.
pub(crate) fn copy_stored(grid: &ByteGrid, t: &ChunkPieces, buf: &mut [u8], read: &dyn Fn(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let range = grid.covering_range(t);
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    if t.runs() > 1 && is_dense(grid, t) {
        let read_whole = |scratch: &mut Vec<u8>, buf: &mut [u8]| {
            scratch.resize(scratch.len().max(len), 0);
            let part = scratch.get_mut(..len).unwrap_or_default();
            read(range.start, part)?;
            grid.scatter(t, part, range.start, buf).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "pieces past its end"))
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
        for (at, to) in grid.rows(p) {
            if let Some(part) = buf.get_mut(to..to.saturating_add(p.len)) {
                read(at, part)?;
            }
        }
    }
    Ok(())
}
