//! Single chunk index: the record of the only chunk is in the data layout message.

use super::records::Records;
use super::traits::{ChunkIndex, Place, Visit};
use crate::base::{Address, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::meta::Store;
use crate::structures::estimate::Estimate;

pub(super) struct Index {
    record: Option<ChunkRecord>,
    scaled: Vec<u64>,
}

impl Index {
    pub(super) fn new(address: Address, stored: Option<(u64, StoredForm)>, grid: ChunkGrid, records: Records) -> Self {
        let scaled = vec![0; grid.rank()];
        let (size, form) = stored.unwrap_or((records.chunk_bytes, StoredForm::WHOLE));
        let allocated = address.is_defined() && grid.contains(&scaled);
        Index { record: allocated.then_some(ChunkRecord { address, size, form }), scaled }
    }
}

impl ChunkIndex for Index {
    fn name(&self) -> &'static str {
        "single chunk"
    }

    fn lookup(&self, _: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        Ok(self.record.filter(|_| scaled == self.scaled))
    }

    fn iterate(&self, _: &Store, f: &mut Visit<'_>) -> Result<()> {
        match self.record {
            Some(record) => f(&self.scaled, record).map(drop),
            None => Ok(()),
        }
    }

    fn iterate_from(&self, _: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        if self.record.is_some() && self.scaled.as_slice() >= from { f(&self.scaled).map(drop) } else { Ok(()) }
    }

    fn estimate(&self, _: &Store) -> Result<Estimate> {
        Ok(Estimate::dense(u64::from(self.record.is_some())))
    }
}
