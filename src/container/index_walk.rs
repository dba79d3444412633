//! Walk over a version 2 B-tree index that goes on behind nodes that cannot be read.

use super::btree2::BTree2;
use crate::base::{Error, Result};
use crate::meta::Store;
use std::ops::ControlFlow;

/// Records skipped in one walk before the rest is given up; each costs a failed descent.
const SKIPS_MAX: u32 = 10_000;

/// Called with each record and the rank after it.
pub(super) type Visit<'a> = dyn FnMut(&[u8], u64) -> Result<ControlFlow<()>> + 'a;

/// Visits the records of `tree` from rank `start` on. Returns the first damage met; the records
/// around it have been visited. Errors: those of `f` only.
pub(super) fn walk(tree: &BTree2, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<Option<Error>> {
    let mut rank = start;
    let mut first: Option<Error> = None;
    let mut last: Option<Error> = None;
    for _ in 0..SKIPS_MAX {
        let mut stop = None;
        let result = tree.iterate_from(store, rank, &mut |record| {
            rank = rank.saturating_add(1);
            match f(record, rank) {
                Ok(ControlFlow::Continue(())) => Ok(ControlFlow::Continue(())),
                other => {
                    stop = Some(other);
                    Ok(ControlFlow::Break(()))
                }
            }
        });
        if let Some(stop) = stop {
            return stop.map(|_| first);
        }
        let Err(error) = result else { return Ok(first) };
        if last.as_ref() != Some(&error) {
            tracing::warn!(%error, "skipped in the walk of an index");
            first.get_or_insert_with(|| error.clone());
            last = Some(error);
        }
        rank = rank.saturating_add(1);
        if rank >= tree.len() {
            break;
        }
    }
    Ok(first)
}
