//! What the references of a dataset name.

use super::Object;
use crate::base::parts::{Budget, Target};
use crate::connector::Result;
use crate::connector::edit::NewReference;
use std::ops::ControlFlow;

/// References of one batch.
const BATCH: usize = 8192;
/// Bytes of one batch, about.
const BATCH_BYTES: usize = 16 << 20;
/// Most bytes of what one batch names.
const LIMIT_BYTES: u64 = 256 << 20;

/// What the references of the dataset `object` name, from number `first` on: some of them, none at
/// the end.
pub fn references(object: Object<'_>, first: u64) -> Result<Vec<NewReference>> {
    let (mut batch, mut bytes) = (Vec::new(), 0usize);
    let total = object.connector.dataset(object.id)?.references.unwrap_or(0);
    if first >= total {
        return Ok(batch);
    }
    object.connector.references(object.id, first, &mut Budget::tight(LIMIT_BYTES), &mut |target| {
        bytes = bytes.saturating_add(target.as_ref().map_or(0, Target::memory));
        batch.push(target.map_or(NewReference::Nil, NewReference::To));
        let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(batch)
}
