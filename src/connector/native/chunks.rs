//! The stored chunks of a dataset, for the chunks view.

use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::Chunks;
use crate::dataset::layout::StoredChunks as Stored;
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
