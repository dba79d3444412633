//! Finds chunks that end past an address.
//!
//! In a valid file every chunk ends at or before the EOF in the superblock. A damaged file may
//! refer to space past it, which is allocated to other objects when the file grows.

use super::storage::Chunked;
use crate::base::{Address, Result};
use crate::dataset::index::{ChunkRecord, Visit};
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use std::ops::ControlFlow;

/// Address of a chunk that ends past `limit`, if there is one. Checks chunks up to the maximum
/// extent, as the dataset may grow to it.
pub(super) fn past(c: &Chunked, store: &Store, message: &DataLayout, limit: Address) -> Result<Option<Address>> {
    let ends_past = |at: Address, len: u64| at.checked_add(len).is_none_or(|end| end > limit);
    let grid = &c.chunks;
    if c.is_implicit {
        let Some(first) = c.index.lookup(store, &vec![0; grid.rank()])? else { return Ok(None) };
        let len = grid.max_total().and_then(|n| n.checked_mul(c.grid.chunk_bytes())).unwrap_or(u64::MAX);
        return Ok(Some(first.address).filter(|at| ends_past(*at, len)));
    }
    let mut found = None;
    let mut visit = |_: &[u64], record: ChunkRecord| {
        found = Some(record.address).filter(|at| ends_past(*at, c.format.stored_size(record)));
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    c.whole_index(message)?.iterate(store, &mut visit as &mut Visit<'_>)?;
    Ok(found)
}
