//! Whether the raw data of a dataset lies below an address.
//!
//! All that a sound file leads to lies below the end that its superblock tells. What a damaged one leads to behind it becomes
//! somebody else's when the file grows.

use super::chunk::ChunkGrid;
use super::index::{self, ChunkRecord, Visit};
use super::storage::{DatasetBytes, Storage};
use crate::base::{Address, Result};
use crate::format::message::data_layout::DataLayout;
use std::ops::ControlFlow;

/// Raw data of a dataset that ends behind `limit`, if there is some. Chunks are looked at up to the greatest extent: those
/// outside of the present one can come into it.
pub fn beyond(bytes: &DatasetBytes, layout: &DataLayout, grid: &ChunkGrid, limit: Address) -> Result<Option<Address>> {
    let ends_behind = |at: Address, len: u64| at.checked_add(len).is_none_or(|end| end > limit);
    match &bytes.storage {
        Storage::Contiguous(at) if at.is_defined() => Ok(Some(*at).filter(|at| ends_behind(*at, bytes.size))),
        Storage::Chunked(c) if c.is_implicit => {
            let Some(first) = c.index.lookup(&bytes.store, &vec![0; grid.rank()])? else { return Ok(None) };
            let len = grid.max_total().and_then(|n| n.checked_mul(c.grid.chunk_bytes())).unwrap_or(u64::MAX);
            Ok(Some(first.address).filter(|at| ends_behind(*at, len)))
        }
        Storage::Chunked(c) => {
            let shape = grid.max_shape.iter().map(|n| n.unwrap_or(u64::MAX)).collect();
            let index = index::open(layout, &ChunkGrid { shape, ..grid.clone() }, !c.pipeline.is_empty())?;
            let mut found = None;
            let mut visit = |_: &[u64], record: ChunkRecord| {
                found = Some(record.address).filter(|at| ends_behind(*at, c.stored_size(record)));
                Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            index.iterate(&bytes.store, &mut visit as &mut Visit<'_>)?;
            Ok(found)
        }
        _ => Ok(None),
    }
}
