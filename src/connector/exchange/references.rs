//! What the references of a dataset name.

use super::Object;
use crate::base::Error;
use crate::base::datatype::make::Maker;
use crate::base::parts::{Budget, Target};
use crate::base::value::{EXACT_BYTES_MAX, NewValue};
use crate::connector::edit::NewReference;
use crate::connector::{Form, Result};
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

/// All elements of a dataset, with what its references name, for a container whose elements refer
/// by `sizeof_addr` bytes. Errors: `EFBIG`, there are more than [`EXACT_BYTES_MAX`] bytes.
pub fn whole(object: Object<'_>, sizeof_addr: u8) -> Result<NewValue> {
    if object.connector.content(object.id, Form::Exact)?.size()? > EXACT_BYTES_MAX {
        return Err(Error::refused(libc::EFBIG, format!("its sequences with references have more than {EXACT_BYTES_MAX} bytes")));
    }
    let value = object.connector.elements(object.id)?;
    let datatype = Maker { sizeof_addr }.remake(&value.datatype)?;
    NewValue::from_value(value, datatype)
}
