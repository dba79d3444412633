//! Extensible array index: element i of the array is chunk number i, the unlimited dimension
//! slowest.
//!
//! Development versions before libhdf5 1.10 numbered chunks over the current extent when the
//! unlimited dimension was not the first (h5fc_ext*.h5 of libhdf5's own tests). Like libhdf5, this
//! index reads most chunks of such files as not allocated.

use super::linear::Linear;
use super::records::Records;
use super::row_major::RowMajor;
use super::traits::{ChunkIndex, Place, Visit};
use crate::base::{Address, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::chunk_record::{ChunkRecord, RecordFormat};
use crate::format::earray::{data_block, header};
use crate::meta::{Store, extent};
use crate::structures::earray::ExtensibleArray;
use crate::structures::estimate::Estimate;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) struct Index {
    address: Address,
    linear: Linear,
    records: Records,
    row_major: RowMajor,
}

impl Index {
    pub(super) fn new(address: Address, grid: ChunkGrid, records: Records) -> Result<Self> {
        let linear = Linear::new(&grid, 1, header::NAME, address)?;
        Ok(Index { address, linear, records, row_major: RowMajor::new(&grid) })
    }

    fn open(&self, store: &Store) -> Result<Option<(Arc<ExtensibleArray>, RecordFormat)>> {
        if !self.address.is_defined() {
            return Ok(None);
        }
        let array = ExtensibleArray::open(store, self.address)?;
        let h = array.header();
        let format = self.records.array_format(store.ctx(), h.client, h.element_size, header::NAME, self.address)?;
        Ok(Some((array, format)))
    }
}

impl ChunkIndex for Index {
    fn name(&self) -> &'static str {
        "extensible array"
    }

    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        let Some(number) = self.linear.index(scaled) else { return Ok(None) };
        let Some((array, format)) = self.open(store)? else { return Ok(None) };
        let decode = |e: &[u8]| format.decode_element(e, store.ctx(), data_block::NAME, self.address);
        Ok(array.get(store, number, decode)?.flatten())
    }

    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        let Some((array, format)) = self.open(store)? else { return Ok(()) };
        let mut scaled = Vec::new();
        array.iterate_from(store, 0, &mut |i, e| match format.decode_element(e, store.ctx(), data_block::NAME, self.address)? {
            Some(record) if self.linear.scaled(i, &mut scaled) => f(&scaled, record),
            _ => Ok(ControlFlow::Continue(())),
        })
    }

    fn iterate_from(&self, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        if !self.linear.is_row_major() {
            return self.row_major.iterate_from(self, store, from, f);
        }
        let (Some(start), Some((array, format))) = (self.linear.index(from), self.open(store)?) else { return Ok(()) };
        let mut scaled = Vec::new();
        array.iterate_from(store, start, &mut |i, e| {
            let is_there = format.is_allocated(e, store.ctx(), self.address)? && self.linear.scaled(i, &mut scaled);
            if is_there { f(&scaled) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    fn is_ordered(&self) -> bool {
        self.linear.is_row_major()
    }

    fn stored_run(&self, store: &Store, from: &[u64], most: u64) -> Result<u64> {
        let Some((array, format)) = self.open(store)? else { return Ok(0) };
        let is_set = |e: &[u8]| format.is_allocated(e, store.ctx(), self.address);
        self.linear.stored_run(from, most, &is_set, &mut |start, f| array.iterate_from(store, start, f))
    }

    fn takes_maximum(&self, next: &ChunkGrid) -> bool {
        Linear::new(next, 1, header::NAME, self.address).is_ok_and(|next| next.numbers_as(&self.linear))
    }

    fn estimate(&self, store: &Store) -> Result<Estimate> {
        let Some((array, format)) = self.open(store)? else { return Ok(Estimate::default()) };
        array.estimate(store, &mut |e| format.is_allocated(e, store.ctx(), self.address))
    }

    fn extents(&self, store: &Store, _k: u16, visit: &mut extent::Visit<'_>) -> Result<()> {
        if self.address.is_defined() { ExtensibleArray::extents(store, self.address, visit) } else { Ok(()) }
    }
}
