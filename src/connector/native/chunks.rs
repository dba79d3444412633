//! The stored chunks of a dataset, as they lie in the file.

use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::Chunks;
use crate::dataset::chunk::map::Numbers;
use crate::dataset::chunked::Chunked;
use crate::dataset::index::ChunkRecord;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Chunks that are listed however little storage the file takes.
const LISTED_MIN: u64 = 1024;

/// A chunked dataset's stored chunks.
pub struct StoredChunks {
    /// The dataset; chunked, or it would not be here.
    pub dataset: Arc<Dataset>,
}

impl StoredChunks {
    fn chunked(&self) -> Result<&Chunked> {
        self.dataset.chunked().ok_or_else(|| Error::unsupported("dataset", self.dataset.object.header.address, "the layout is not chunked"))
    }

    fn record(&self, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        let c = self.chunked()?;
        if c.grid.linear(scaled).is_none() {
            return Ok(None);
        }
        c.index.lookup(&self.dataset.bytes.store, scaled)
    }
}

impl Chunks for StoredChunks {
    fn rank(&self) -> usize {
        self.dataset.space.dims.len()
    }

    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>> {
        Ok(self.record(scaled)?.map(|r| r.size))
    }

    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(record) = self.record(scaled)? else { return Ok(0) };
        let n = usize::try_from(record.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return Ok(0) };
        let at = record.address.checked_add(offset);
        self.dataset.bytes.store.read_raw(at.ok_or_else(|| Error::corrupt("chunk", record.address, "ends beyond 2^64"))?, buf)?;
        Ok(n)
    }

    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        let c = self.chunked()?;
        let store = &self.dataset.bytes.store;
        match c.map(store)?.numbers() {
            Numbers::Listed(chunks) => {
                for (next, &linear) in (1u64..).zip(chunks).skip(usize::try_from(start).unwrap_or(usize::MAX)) {
                    if f(&c.grid.scaled(linear), 0, next).is_break() {
                        break;
                    }
                }
                return Ok(());
            }
            Numbers::All => {
                // In a file that is mostly hole there may be more names than anybody can list.
                let most = (store.held()? / c.grid.chunk_bytes().max(1)).max(LISTED_MIN);
                for linear in start..c.grid.chunks().min(most) {
                    if f(&c.grid.scaled(linear), 0, linear.saturating_add(1)).is_break() {
                        break;
                    }
                }
                return Ok(());
            }
            Numbers::Many => {}
        }
        // Too many to keep: walked anew for every slice of the listing.
        let mut position = 0u64;
        c.index.iterate(store, &mut |scaled, record| {
            position = position.saturating_add(1);
            Ok(if position > start { f(scaled, record.size, position) } else { ControlFlow::Continue(()) })
        })
    }
}
