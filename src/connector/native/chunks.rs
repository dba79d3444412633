//! The stored chunks of a dataset, for the chunks view and for other containers.

use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::Chunks;
use crate::connector::stored::{BATCH_CHUNKS_MAX, ChunkStorage, StoredChunk, StoredChunks as Moved};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::layout::{PortableChunk, StoredChunks as Stored};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A dataset with chunks.
pub struct StoredChunks {
    /// The dataset.
    pub dataset: Arc<Dataset>,
}

impl StoredChunks {
    fn stored(&self) -> Result<&dyn Stored> {
        let none = || Error::unsupported("dataset", self.dataset.object.header.address, "the layout has no chunks");
        self.dataset.layout().stored_chunks().ok_or_else(none)
    }
}

impl Chunks for StoredChunks {
    fn rank(&self) -> usize {
        self.dataset.space.dims.len()
    }

    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>> {
        self.stored()?.stored_len(&self.dataset.bytes, scaled)
    }

    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.stored()?.read(&self.dataset.bytes, scaled, offset, buf)
    }

    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        self.stored()?.list(&self.dataset.bytes, start, f)
    }
}

/// The chunks of a dataset for another container.
pub(super) struct PortableChunks {
    dataset: Arc<Dataset>,
    storage: ChunkStorage,
}

impl PortableChunks {
    /// Those of `dataset`; `None`: they are valid there only.
    pub(super) fn of(dataset: &Arc<Dataset>) -> Option<PortableChunks> {
        let is_portable = dataset.layout().stored_chunks().is_some_and(Stored::is_portable);
        let storage = is_portable.then(|| storage(dataset))??.portable()?;
        Some(PortableChunks { dataset: dataset.clone(), storage })
    }
}

/// How the chunks of a dataset are stored, if it has chunks.
fn storage(d: &Dataset) -> Option<ChunkStorage> {
    let (datatype, dims, filters) = (d.datatype.clone(), d.space.dims.clone(), d.pipeline.filters.clone());
    Some(ChunkStorage { datatype, dims, chunk: d.chunk_dims()?, filters, fill: d.bytes.fill.clone() })
}

/// True if chunks stored by `other` are valid in `dataset`.
pub(super) fn takes(dataset: &Dataset, other: &ChunkStorage) -> bool {
    let takes = dataset.layout().stored_chunks().is_some_and(Stored::takes_portable);
    takes && storage(dataset).is_some_and(|own| own.is_like(other)) && other.clone().portable().is_some()
}

impl Moved for PortableChunks {
    fn storage(&self) -> &ChunkStorage {
        &self.storage
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
            let chunk = StoredChunk { scaled: c.scaled, mask: c.mask.unwrap_or(all), bytes: c.bytes };
            self.storage.verify(&chunk).map(|()| chunk)
        };
        chunks.into_iter().map(moved).collect()
    }
}
