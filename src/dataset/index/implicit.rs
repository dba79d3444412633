//! Implicit index: all chunks of the maximum extent are unfiltered, in one block allocated when the
//! dataset was created. A chunk's number determines its address.

use super::linear::Linear;
use super::records::Records;
use super::traits::{ChunkIndex, Place, Visit};
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::{ChunkGrid, ChunkRange};
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::meta::Store;
use crate::structures::estimate::Estimate;

const NAME: &str = "implicit chunk index";

pub(super) struct Index {
    address: Address,
    linear: Linear,
    grid: ChunkGrid,
    chunk_bytes: u64,
}

impl Index {
    pub(super) fn new(address: Address, grid: ChunkGrid, records: Records) -> Result<Self> {
        if records.shape.has_sizes() {
            return Err(Error::corrupt(NAME, address, "the dataset has filters, but the index stores no chunk sizes"));
        }
        let linear = Linear::new(&grid, 0, NAME, address)?;
        Ok(Index { address, linear, grid, chunk_bytes: records.chunk_bytes })
    }
}

impl ChunkIndex for Index {
    fn name(&self) -> &'static str {
        "implicit"
    }

    fn lookup(&self, _: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        let (Some(number), true) = (self.linear.index(scaled), self.address.is_defined()) else { return Ok(None) };
        let address = number.checked_mul(self.chunk_bytes).and_then(|n| self.address.checked_add(n));
        let address = address.ok_or_else(|| Error::corrupt(NAME, self.address, "a chunk lies past 2^64"))?;
        Ok(Some(ChunkRecord { address, size: self.chunk_bytes, form: StoredForm::WHOLE }))
    }

    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        let all = self.grid.range(&vec![0; self.grid.rank()], &self.grid.shape)?;
        let Some(range) = all.filter(|_| self.address.is_defined()) else { return Ok(()) };
        self.walk(store, &range, &range.first, f)
    }

    fn iterate_from(&self, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        let all = self.grid.range(&vec![0; self.grid.rank()], &self.grid.shape)?;
        let Some(range) = all.filter(|_| self.address.is_defined() && self.grid.contains(from)) else { return Ok(()) };
        self.walk(store, &range, from, &mut |scaled, _| f(scaled))
    }

    fn estimate(&self, _: &Store) -> Result<Estimate> {
        Ok(Estimate::dense(if self.address.is_defined() { self.grid.total().unwrap_or(u64::MAX) } else { 0 }))
    }

    fn is_complete(&self, store: &Store) -> Result<bool> {
        let last: Vec<u64> = self.grid.counts().iter().map(|n| n.saturating_sub(1)).collect();
        if !self.address.is_defined() || !self.grid.contains(&last) {
            return Ok(false);
        }
        let Some(record) = self.lookup(store, &last)? else { return Ok(false) };
        let len = store.file_len()?;
        let inside = record.address.checked_add(record.size).is_some_and(|end| end.0 <= len);
        if inside { Ok(true) } else { Err(Error::corrupt(NAME, self.address, format!("chunk {last:?} ends past the end of the file"))) }
    }
}

impl Index {
    /// Visits the chunks of `range` from the chunk `from` on.
    fn walk(&self, store: &Store, range: &ChunkRange, from: &[u64], f: &mut Visit<'_>) -> Result<()> {
        let len = store.file_len()?;
        for scaled in range.iter_from(from) {
            let record = self.lookup(store, &scaled)?;
            // Addresses ascend, so the end of the file bounds the walk over a hostile extent.
            let inside = |r: &ChunkRecord| r.address.checked_add(r.size).is_some_and(|end| end.0 <= len);
            let Some(record) = record.filter(inside) else {
                return Err(Error::corrupt(NAME, self.address, format!("chunk {scaled:?} ends past the end of the file")));
            };
            if f(&scaled, record)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
