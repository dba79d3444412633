//! Datasets and chunks of an open container, with caches; reading elements.

use super::access::IodConnector;
use super::coalesce::groups;
use super::dataset::Dataset;
use super::state::State;
use crate::base::Result;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::iod::{Body, Cell, Data};
use parking_lot::RwLockReadGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Threads that read ahead, at most.
const READERS_AHEAD_MAX: usize = 16;

impl IodConnector {
    /// The dataset `id`, from the cache or decoded.
    pub(super) fn dataset_of(&self, state: &State, id: u64) -> Result<Arc<Dataset>> {
        if let Some(found) = self.datasets.lock().get(&id) {
            return Ok(found.clone());
        }
        let generation = self.generation();
        let dataset = Arc::new(Dataset::open(state, id)?);
        // A reader must not put back what a writer removed meanwhile.
        if self.generation() == generation {
            self.datasets.lock().put(id, dataset.clone());
        }
        Ok(dataset)
    }

    /// Decoded bytes of a chunk in a cell.
    pub(super) fn image(&self, d: &Dataset, cell: &Cell) -> Result<Arc<Vec<u8>>> {
        let decode = |bytes: Vec<u8>| d.decode(bytes, cell.mask).map(Arc::new);
        match &cell.data {
            Data::Inline(bytes) => decode(bytes.to_vec()),
            Data::Extent(extent) => {
                let mut images = self.images.lock();
                loop {
                    if let Some(image) = images.get(extent) {
                        return Ok(image);
                    }
                    if images.arriving.insert(*extent) {
                        break;
                    }
                    crate::base::waiting::may_wait();
                    self.arrival.wait(&mut images);
                }
                drop(images);
                let image = self.container.read(extent).and_then(decode);
                let mut images = self.images.lock();
                images.arriving.remove(extent);
                if let Ok(image) = &image {
                    images.put(*extent, image.clone());
                }
                self.arrival.notify_all();
                image
            }
        }
    }

    /// Fetches the chunks of a dataset with bytes in `range` that are in no cache, by threads.
    /// False: enough threads do that already.
    pub(super) fn fetch_ahead(&self, state: &State, d: &Arc<Dataset>, range: std::ops::Range<u64>) -> Result<bool> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
        let mut missing = Vec::new();
        for chunk in d.grid.pieces(range.start, len) {
            let Some(cell) = state.get(&d.chunk_key(chunk.chunk))? else { continue };
            if let Data::Extent(extent) = &cell.data
                && self.images.lock().get(extent).is_none()
            {
                missing.push(cell);
            }
        }
        if missing.is_empty() {
            return Ok(true);
        }
        if self.readers_ahead.load(Ordering::Relaxed) >= READERS_AHEAD_MAX {
            return Ok(false);
        }
        let connector = self.shared()?;
        let groups = groups(&missing);
        for part in groups.chunks(groups.len().div_ceil(READERS_AHEAD_MAX / 2).max(1)) {
            let (connector, d, part) = (connector.clone(), d.clone(), part.to_vec());
            connector.readers_ahead.fetch_add(1, Ordering::Relaxed);
            let fetch = move || {
                for group in &part {
                    connector.fetch_group(&d, group);
                }
                connector.readers_ahead.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("h5dir-ahead".into()).spawn(fetch).is_err() {
                self.readers_ahead.fetch_sub(1, Ordering::Relaxed);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first bytes of the chunk `source`, fetched and decoded if need be.
    fn resolved(&self, d: &Dataset, source: Source) -> Result<Arc<Vec<u8>>> {
        match source {
            Source::Image(image) => Ok(image),
            Source::Cell(cell) => self.image(d, &cell),
            Source::Nothing => Ok(Arc::default()),
        }
    }

    /// The first bytes of a chunk; none if there is no such chunk.
    pub(super) fn chunk(&self, state: &State, d: &Dataset, key: &[u8]) -> Result<Arc<Vec<u8>>> {
        self.resolved(d, Source::of(state, key)?)
    }

    /// Fills the front of `buf` with the bytes of a dataset from `offset`; returns how many.
    pub(super) fn read_elements(&self, state: &State, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = d.readable(offset, buf.len());
        for chunk in d.grid.pieces(offset, n) {
            let image = self.chunk(state, d, &d.chunk_key(chunk.chunk))?;
            copy_out(d, &chunk, &image, buf);
        }
        Ok(n)
    }

    /// As [`Self::read_elements`]. `state` is not locked while chunks are fetched and decoded.
    pub(super) fn read_unlocked(&self, state: RwLockReadGuard<'_, State>, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = d.readable(offset, buf.len());
        let locate = |chunk: ChunkPieces| Ok((Source::of(&state, &d.chunk_key(chunk.chunk))?, chunk));
        let located = d.grid.pieces(offset, n).into_iter().map(locate).collect::<Result<Vec<_>>>()?;
        drop(state);
        let cells = located.iter().filter_map(|(source, _)| if let Source::Cell(cell) = source { Some(cell.clone()) } else { None });
        let fetched = self.fetch_several(d, &cells.collect::<Vec<_>>());
        let mut passed = Vec::new();
        for (source, chunk) in located {
            let extent = match &source {
                Source::Cell(Cell { data: Data::Extent(extent), .. }) => Some(*extent),
                _ => None,
            };
            let there = extent.and_then(|extent| fetched.get(&extent).cloned());
            let image = there.map_or_else(|| self.resolved(d, source), Ok)?;
            if copy_out(d, &chunk, &image, buf) >= image.len() as u64 {
                passed.extend(extent);
            }
        }
        drop(fetched);
        if !passed.is_empty() {
            let mut images = self.images.lock();
            passed.into_iter().for_each(|extent| images.pass(extent));
        }
        Ok(n)
    }

    /// Fetches and decodes the chunks of which a write leaves bytes as they are, so that the state
    /// is not locked meanwhile. The write finds errors again.
    pub(super) fn fetch_for_write(&self, id: u64, offset: u64, len: usize) -> Result<()> {
        let state = self.state.read_recursive();
        let d = self.dataset_of(&state, id)?;
        let n = d.readable(offset, len);
        let mut sources = Vec::new();
        for chunk in d.grid.pieces(offset, n).iter().filter(|chunk| chunk.bytes() < d.grid.chunk_bytes()) {
            sources.push(Source::of(&state, &d.chunk_key(chunk.chunk))?);
        }
        drop(state);
        sources.into_iter().try_for_each(|source| self.resolved(&d, source).map(drop))
    }
}

/// Where the bytes of a chunk are. All of it stays as it is when the state changes.
enum Source {
    /// A chunk that is not encoded.
    Image(Arc<Vec<u8>>),
    /// An encoded chunk.
    Cell(Cell),
    /// There is no such chunk.
    Nothing,
}

impl Source {
    fn of(state: &State, key: &[u8]) -> Result<Source> {
        match state.changes.get(key).map(|c| &c.body) {
            Some(Body::Dirty(image)) => Ok(Source::Image(image.clone())),
            _ => Ok(state.get(key)?.map_or(Source::Nothing, Source::Cell)),
        }
    }
}

/// Copies pieces of a chunk into `buf`; bytes that `image` does not have are of the fill value.
/// Returns where the last piece ends in the chunk.
fn copy_out(d: &Dataset, chunk: &ChunkPieces, image: &[u8], buf: &mut [u8]) -> u64 {
    let mut end = 0;
    for piece in &chunk.pieces {
        for (at, to) in d.grid.rows(piece) {
            end = at.saturating_add(piece.len as u64);
            let Some(target) = buf.get_mut(to..to.saturating_add(piece.len)) else { continue };
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(image.len());
            let there = image.get(from..from.saturating_add(piece.len).min(image.len())).unwrap_or_default();
            let (front, rest) = target.split_at_mut(there.len());
            front.copy_from_slice(there);
            d.pattern.fill(at.saturating_add(there.len() as u64), rest);
        }
    }
    end
}
