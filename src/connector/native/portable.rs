//! The stored elements of a dataset for other containers: to be moved, or referred to.

use super::dataset::Dataset;
use super::file::HdfFile;
use crate::base::{Address, Error, Result};
use crate::connector::stored::{BATCH_CHUNKS_MAX, ChunkStorage, Original, StoredChunk, StoredChunks};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::layout::{PortableChunk, StoredChunks as Stored};
use std::path::PathBuf;
use std::sync::Arc;

/// The stored chunks of `dataset`, for another container; `None`: its elements are copied.
pub(super) fn stored(dataset: &Arc<Dataset>) -> Option<Arc<dyn StoredChunks>> {
    match PortableChunks::of(dataset) {
        Some(chunks) => Some(Arc::new(chunks)),
        None => Some(Arc::new(Pieces::without_storage(dataset)?)),
    }
}

/// The stored elements of `dataset`: chunks, or pieces of its block. `None`: they are of no use
/// outside of the file.
pub(super) fn referable(dataset: &Arc<Dataset>) -> Option<Arc<dyn StoredChunks>> {
    original(dataset)?;
    match PortableChunks::referable(dataset) {
        Some(chunks) => Some(Arc::new(chunks)),
        None => Some(Arc::new(Pieces::of(dataset)?)),
    }
}

/// Path or URL of a file. `None`: its name is not known.
pub(super) fn location(file: &HdfFile) -> Option<PathBuf> {
    match file.store.driver().url() {
        Some(url) => Some(PathBuf::from(url)),
        None => (!file.name.is_empty()).then(|| file.directory.join(&file.name)),
    }
}

/// The file of a dataset. `None`: its name is not known.
fn original(dataset: &Dataset) -> Option<Original> {
    let file = &dataset.object.file;
    Some(Original { path: location(file)?, identity: file.identity })
}

/// The chunks of a dataset for another container.
struct PortableChunks {
    dataset: Arc<Dataset>,
    storage: ChunkStorage,
}

impl PortableChunks {
    /// Those of `dataset`, to be moved; `None`: they are valid there only.
    fn of(dataset: &Arc<Dataset>) -> Option<PortableChunks> {
        let moves = dataset.layout().stored_chunks().is_some_and(Stored::is_allocated_by_chunk);
        Self::referable(dataset).filter(|_| moves)
    }

    /// Those of `dataset`, to be referred to; `None`: they are valid there only.
    fn referable(dataset: &Arc<Dataset>) -> Option<PortableChunks> {
        let is_portable = dataset.layout().stored_chunks().is_some_and(Stored::is_portable);
        let storage = is_portable.then(|| storage(dataset))??.portable()?;
        Some(PortableChunks { dataset: dataset.clone(), storage })
    }
}

/// How the chunks of a dataset are stored, if it has chunks.
fn storage(d: &Dataset) -> Option<ChunkStorage> {
    let (datatype, dims, filters) = (d.datatype.clone(), d.space.dims.clone(), d.pipeline.filters.clone());
    let profile = d.layout().for_copy().kind.profile();
    Some(ChunkStorage { datatype, dims, chunk: d.chunk_dims()?, filters, profile, fill: d.bytes.fill.clone() })
}

/// True if chunks stored by `other` are valid in `dataset`.
pub(super) fn takes(dataset: &Dataset, other: &ChunkStorage) -> bool {
    let takes = dataset.layout().stored_chunks().is_some_and(Stored::takes_portable);
    takes && storage(dataset).is_some_and(|own| own.is_like(other)) && other.clone().portable().is_some()
}

impl StoredChunks for PortableChunks {
    fn storage(&self) -> &ChunkStorage {
        &self.storage
    }

    fn original(&self) -> Option<Original> {
        original(&self.dataset)
    }

    fn next(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<StoredChunk>> {
        let (d, none) = (&self.dataset, || Error::unsupported("dataset", self.dataset.object.header.address, "the layout has no chunks"));
        let grid = ByteGrid::new(&d.space.dims, &self.storage.chunk, d.element_size).ok_or_else(none)?;
        let from = match after {
            Some(scaled) => grid.linear(scaled).ok_or_else(none)?.saturating_add(1),
            None => 0,
        };
        let chunks = d.layout().stored_chunks().ok_or_else(none)?.portable(&d.bytes, from, budget, BATCH_CHUNKS_MAX)?;
        let all = self.storage.mask_of_all();
        let moved = |c: PortableChunk| {
            let offset = d.bytes.store.offset(c.address, "chunk").ok();
            let chunk = StoredChunk { scaled: c.scaled, mask: c.mask.unwrap_or(all), bytes: c.bytes, offset };
            self.storage.verify(&chunk).map(|()| chunk)
        };
        chunks.into_iter().map(moved).collect()
    }
}

/// Pieces of a contiguous dataset; none if it has no storage.
struct Pieces {
    dataset: Arc<Dataset>,
    storage: ChunkStorage,
    address: Address,
}

impl Pieces {
    /// Those of `dataset`; `None`: it is not contiguous, or they are of no use outside of the file.
    fn of(dataset: &Arc<Dataset>) -> Option<Pieces> {
        let address = dataset.layout().describe(&dataset.bytes).address?;
        let elements = dataset.bytes.size.checked_div(dataset.element_size)?;
        let storage = ChunkStorage::pieces(dataset.datatype.clone(), elements, dataset.bytes.fill.clone()).portable()?;
        Some(Pieces { dataset: dataset.clone(), storage, address })
    }

    /// [`Pieces::of`] a dataset without storage: in a copy, nothing is stored either.
    fn without_storage(dataset: &Arc<Dataset>) -> Option<Pieces> {
        Pieces::of(dataset).filter(|pieces| !pieces.address.is_defined())
    }
}

impl StoredChunks for Pieces {
    fn storage(&self) -> &ChunkStorage {
        &self.storage
    }

    fn original(&self) -> Option<Original> {
        original(&self.dataset)
    }

    fn next(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<StoredChunk>> {
        let (data, piece) = (&self.dataset.bytes, self.storage.chunk_bytes().max(1));
        if !self.address.is_defined() {
            return Ok(Vec::new());
        }
        let first = after.and_then(<[u64]>::first).map_or(0, |n| n.saturating_add(1));
        let (mut chunks, mut sum) = (Vec::new(), 0u64);
        for number in first..data.size.div_ceil(piece) {
            let at = number.saturating_mul(piece);
            let len = data.size.saturating_sub(at).min(piece);
            let outside = || Error::corrupt("contiguous data layout", self.address, "ends past 2^64");
            let address = self.address.checked_add(at).ok_or_else(outside)?;
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            data.store.read_raw(address, &mut bytes)?;
            let offset = Some(data.store.offset(address, "raw data")?);
            chunks.push(StoredChunk { scaled: vec![number], mask: 0, bytes, offset });
            sum = sum.saturating_add(len);
            if sum >= budget || chunks.len() >= BATCH_CHUNKS_MAX {
                break;
            }
        }
        Ok(chunks)
    }
}
