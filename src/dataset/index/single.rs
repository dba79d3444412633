//! Single chunk index: the data layout message itself says where the one chunk is.

use super::{ChunkIndex, ChunkRecord, Records, Visit};
use crate::base::{Address, Result};
use crate::dataset::chunk::ChunkGrid;
use crate::meta::Store;

pub(super) struct Index {
    record: Option<ChunkRecord>,
    scaled: Vec<u64>,
}

impl Index {
    pub(super) fn new(address: Address, filtered: Option<(u64, u32)>, grid: ChunkGrid, records: Records) -> Self {
        let scaled = vec![0; grid.rank()];
        let (size, filter_mask) = filtered.unwrap_or((records.chunk_bytes, 0));
        let there = address.is_defined() && grid.contains(&scaled);
        Index { record: there.then_some(ChunkRecord { address, size, filter_mask }), scaled }
    }
}

impl ChunkIndex for Index {
    fn lookup(&self, _: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        Ok(self.record.filter(|_| scaled == self.scaled))
    }

    fn iterate(&self, _: &Store, f: &mut Visit<'_>) -> Result<()> {
        match self.record {
            Some(record) => f(&self.scaled, record).map(drop),
            None => Ok(()),
        }
    }
}
