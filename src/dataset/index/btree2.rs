//! Version 2 B-tree index: records of type 10 (unfiltered), 11 (filtered), 12 and 13 (structured
//! chunks), ordered by scaled offsets.

use super::records::Records;
use super::traits::{ChunkIndex, Place, Visit};
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::btree2::header::NAME;
use crate::format::chunk_record::{ChunkRecord, RecordFormat};
use crate::meta::{Store, extent};
use crate::structures::btree2::BTree2;
use crate::structures::estimate::Estimate;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Record type of unfiltered chunks; the others have the numbers after it.
pub(super) const UNFILTERED_RECORD_TYPE: u8 = 10;

pub(super) struct Index {
    address: Address,
    grid: ChunkGrid,
    records: Records,
}

impl Index {
    pub(super) fn new(address: Address, grid: ChunkGrid, records: Records) -> Self {
        Index { address, grid, records }
    }

    fn open(&self, store: &Store) -> Result<Option<(Arc<BTree2>, RecordFormat)>> {
        if !self.address.is_defined() {
            return Ok(None);
        }
        let tree = BTree2::open(store, self.address)?;
        let format = self.records.format(store.ctx());
        let (kind, size) = (UNFILTERED_RECORD_TYPE.saturating_add(format.client()), format.btree2_size(self.grid.rank(), store.ctx()));
        if tree.record_type() == kind && usize::from(tree.record_size()) == size {
            return Ok(Some((tree, format)));
        }
        let found = format!("records of type {} and {} bytes", tree.record_type(), tree.record_size());
        Err(Error::corrupt(NAME, self.address, format!("{found}, the dataset implies type {kind} and {size} bytes")))
    }
}

impl ChunkIndex for Index {
    fn name(&self) -> &'static str {
        "v2 B-tree"
    }

    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        if !self.grid.contains(scaled) {
            return Ok(None);
        }
        let Some((tree, format)) = self.open(store)? else { return Ok(None) };
        let ctx = store.ctx();
        let found = tree.find(store, &mut |record| Ok(format.btree2_scaled(record, ctx).cmp(scaled.iter().copied())))?;
        let Some(record) = found else { return Ok(None) };
        Ok(format.decode_btree2(&record, self.grid.rank(), ctx, self.address)?.0)
    }

    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        let Some((tree, format)) = self.open(store)? else { return Ok(()) };
        tree.iterate(store, &mut |record| match format.decode_btree2(record, self.grid.rank(), store.ctx(), self.address)? {
            (Some(chunk), scaled) if self.grid.contains(&scaled) => f(&scaled, chunk),
            _ => Ok(ControlFlow::Continue(())),
        })
    }

    fn iterate_from(&self, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        let Some((tree, format)) = self.open(store)? else { return Ok(()) };
        let ctx = store.ctx();
        let mut compare = |record: &[u8]| {
            let before = format.btree2_scaled(record, ctx).lt(from.iter().copied());
            Ok(if before { Ordering::Less } else { Ordering::Equal })
        };
        let mut scaled = Vec::with_capacity(from.len());
        tree.find_range(store, &mut compare, &mut |record| {
            scaled.clear();
            scaled.extend(format.btree2_scaled(record, ctx));
            let is_there = self.grid.contains(&scaled) && format.is_allocated(record, ctx, self.address)?;
            if is_there { f(&scaled) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    fn stored_run(&self, store: &Store, from: &[u64], most: u64) -> Result<u64> {
        let (Some((tree, format)), Some(first)) = (self.open(store)?, self.grid.number(from)) else { return Ok(0) };
        let ctx = store.ctx();
        let rank = |number: u64| {
            let scaled = self.grid.scaled(number);
            tree.rank(store, &mut |record| Ok(format.btree2_scaled(record, ctx).cmp(scaled.iter().copied())))
        };
        // The chunks before chunk n are stored without a gap if as many records are.
        let before = rank(first)?;
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = high.saturating_sub(high.saturating_sub(low) / 2);
            let records = rank(first.saturating_add(middle))?.saturating_sub(before);
            if records >= middle { low = middle } else { high = middle.saturating_sub(1) }
        }
        Ok(low)
    }

    fn takes_maximum(&self, _next: &ChunkGrid) -> bool {
        true
    }

    fn estimate(&self, store: &Store) -> Result<Estimate> {
        Ok(Estimate::dense(self.open(store)?.map_or(0, |(tree, _)| tree.len())))
    }

    fn extents(&self, store: &Store, _k: u16, visit: &mut extent::Visit<'_>) -> Result<()> {
        self.open(store)?.map_or(Ok(()), |(tree, _)| tree.extents(store, visit))
    }
}
