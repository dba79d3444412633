//! A dataset's bytes as a file: fixed-size elements as they are.

use super::dataset::Dataset;
use crate::base::Result;
use crate::connector::{Content, FILL_BYTES_MAX};
use crate::dataset::environment::Environment;
use crate::dataset::layout::{AlwaysTurn, BackgroundTurn, Seek};
use std::ops::Range;
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
    let size = dataset.layout().io_bytes().clamp(BLOCK_SIZES.0, BLOCK_SIZES.1).next_power_of_two();
    u32::try_from(size).unwrap_or(4096)
}

impl Content for FixedContent {
    fn size(&self) -> Result<u64> {
        Ok(self.dataset.bytes.size)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = &self.dataset.bytes;
        let Some(buf) = bytes.clip(offset, buf) else { return Ok(0) };
        bytes.layout.read(bytes, &self.environment, offset, buf).map(|()| buf.len())
    }

    fn beyond(&self, offset: u64, buf: &mut [u8]) -> bool {
        let fill = &self.dataset.bytes.fill;
        if !fill.is_zero() {
            fill.fill(offset, buf);
        }
        !fill.is_zero()
    }

    fn allocated(&self) -> Result<u64> {
        self.dataset.layout().allocated(&self.dataset.bytes, &self.environment)
    }

    fn allocated_exactly(&self) -> Result<u64> {
        self.dataset.layout().allocated_exactly(&self.dataset.bytes, &self.environment)
    }

    fn block_size(&self) -> u32 {
        block_size(&self.dataset)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.dataset.bytes.seek(&self.environment, offset, what)
    }

    fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let bytes = &self.dataset.bytes;
        match bytes.element_size {
            1..=FILL_BYTES_MAX => bytes.written(&self.environment, offset),
            _ => Ok((offset < bytes.size).then_some(offset..bytes.size)),
        }
    }

    fn read_ahead(&self, at: u64, from: u64) -> u64 {
        let always: Arc<dyn BackgroundTurn> = Arc::new(AlwaysTurn);
        self.dataset.layout().read_ahead(&self.dataset.bytes, &self.environment, at, from, &always)
    }
}
