//! Access to stored chunks, for the chunks view.

use super::read::Chunked;
use crate::base::{Error, Result};
use crate::dataset::index::ChunkRecord;
use crate::dataset::layout::traits::{DatasetBytes, StoredChunks};
use std::ops::ControlFlow;

/// Chunks that are listed even if the file's allocated bytes cannot hold so many.
const LISTED_CHUNKS_MIN: u64 = 1024;

impl Chunked {
    fn record(&self, data: &DatasetBytes, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        if self.grid.linear(scaled).is_none() {
            return Ok(None);
        }
        self.index.lookup(&data.store, scaled)
    }
}

impl StoredChunks for Chunked {
    fn stored_len(&self, data: &DatasetBytes, scaled: &[u64]) -> Result<Option<u64>> {
        Ok(self.record(data, scaled)?.map(|r| r.size))
    }

    fn read(&self, data: &DatasetBytes, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(record) = self.record(data, scaled)? else { return Ok(0) };
        let n = usize::try_from(record.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return Ok(0) };
        let at = record.address.checked_add(offset);
        data.store.read_raw(at.ok_or_else(|| Error::corrupt("chunk", record.address, "ends past 2^64"))?, buf)?;
        Ok(n)
    }

    fn list(&self, data: &DatasetBytes, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        let store = &data.store;
        let mut visit = |number: u64| f(&self.grid.scaled(number), 0, number.saturating_add(1));
        if self.index.is_complete(store)? {
            // A sparse file may have more chunks than can be listed.
            let most = (store.held()? / self.grid.chunk_bytes().max(1)).max(LISTED_CHUNKS_MIN);
            let _ = (start..self.grid.chunks().min(most)).try_for_each(visit);
            return Ok(());
        }
        // Positions are chunk numbers.
        self.for_each_stored(store, start, &mut |number| Ok(visit(number)))
    }
}
