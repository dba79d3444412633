//! A dataset's bytes as a file: fixed-size elements as they are.

use super::dataset::Dataset;
use crate::base::Result;
use crate::connector::Content;
use crate::dataset::environment::Environment;
use crate::dataset::storage::Seek;
use std::sync::Arc;

/// Smallest and largest preferred I/O size, bytes.
const BLOCK_SIZES: (u64, u64) = (4096, 4 << 20);

/// Elements of fixed size, verbatim.
pub struct FixedContent {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// Cache and threads.
    pub environment: Arc<Environment>,
}

/// Preferred I/O size of a dataset: its chunk, within reason.
pub fn block_size(dataset: &Dataset) -> u32 {
    let chunk = dataset.chunked().map_or(128 << 10, |c| c.grid.chunk_bytes());
    let size = chunk.clamp(BLOCK_SIZES.0, BLOCK_SIZES.1).next_power_of_two();
    u32::try_from(size).unwrap_or(4096)
}

impl Content for FixedContent {
    fn size(&self) -> Result<u64> {
        Ok(self.dataset.bytes.size)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.dataset.bytes.read(&self.environment, offset, buf)
    }

    fn beyond(&self, offset: u64, buf: &mut [u8]) -> bool {
        let fill = &self.dataset.bytes.fill;
        if !fill.is_zero() {
            fill.fill(offset, buf);
        }
        !fill.is_zero()
    }

    fn allocated(&self) -> Result<u64> {
        self.dataset.bytes.allocated(&self.environment)
    }

    fn block_size(&self) -> u32 {
        block_size(&self.dataset)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        if let Some(c) = self.dataset.chunked()
            && self.dataset.bytes.fill.is_zero()
            && self.environment.dirty.has(c.number)
        {
            return c.seek_changed(&self.environment, &self.dataset.bytes.store, offset, what);
        }
        self.dataset.bytes.seek(offset, what)
    }

    fn read_ahead(&self, at: u64, from: u64) -> u64 {
        self.dataset.bytes.read_ahead(&self.environment, at, from)
    }
}
