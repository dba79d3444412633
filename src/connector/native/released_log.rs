//! A log of the released log VOL that is written: its groups, and what of it can be written.

use super::NativeConnector;
use super::access::Access;
use super::log_members::{SUBFILING, counts, named};
use super::object::Object;
use crate::base::shape::{Extent, Shape};
use crate::base::{Address, Error, Result};
use crate::dataset::layout::{InLog, LogDataset, LogGroup, RecordLog, ReleasedGroup, ReleasedLog, ReleasedMember};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of this structure in errors.
const NAME: &str = "log VOL file";
/// What the names of a log begin with that is written.
pub(super) const PREFIX: &str = "_";
/// The group of the log.
pub(super) const GROUP: &[u8] = b"_LOG";
/// Attribute of the root group: [`Counts`](super::log_members::Counts).
pub(super) const COUNTS: &[u8] = b"_int_att";
/// Attributes of anchors: ID, shape, largest shape.
pub(super) const ID: &[u8] = b"_ID";
pub(super) const DIMS: &[u8] = b"_dims";
pub(super) const MAX_DIMS: &[u8] = b"_mdims";
/// Configuration of files with entries of merged requests, and with data offsets of another
/// meaning.
const MERGED: i64 = 0x01;
const ALIGNED: i64 = 0x100;

/// Name of data dataset `number`, which counts from 1.
pub(super) fn data_name(number: u32) -> Vec<u8> {
    named(PREFIX, &format!("ld_{}", number.saturating_sub(1)))
}

/// Name of metadata dataset `number`, which counts from 0.
pub(super) fn metadata_name(number: u32) -> Vec<u8> {
    named(PREFIX, &format!("md_{number}"))
}

/// The log of file number `index`, to be written; opened at its first use.
pub(super) fn open(connector: &NativeConnector, index: u32, prefix: &'static str, log: &Arc<ReleasedLog>) -> Arc<RecordLog> {
    let (weak, log) = (connector.this.clone(), log.clone());
    let source = move || {
        let closed = || Error::corrupt(NAME, Address::UNDEF, "the container is closed");
        open_group(&Access::of_caller(&*weak.upgrade().ok_or_else(closed)?), index, prefix, &log)
    };
    Arc::new(RecordLog::new(connector.environment(), Box::new(source), Box::new(|| Ok(Vec::new())), true))
}

/// Opens what the log has. Errors: it has what is not written.
fn open_group(access: &Access<'_>, index: u32, prefix: &str, log: &Arc<ReleasedLog>) -> Result<LogGroup> {
    let file = access.connector.file(index)?;
    let counts = counts(&file, prefix)?;
    let refuse = |what: &'static str| Err(Error::unsupported(NAME, file.root, what));
    if prefix != PREFIX {
        return refuse("a log of a version before 1.4");
    }
    if file.store.recorded_base() != file.store.base() {
        // The first commit records another base address, from which the offsets of entries do not
        // count.
        return refuse("data offsets from before the user block was changed");
    }
    match counts.config {
        c if c & SUBFILING != 0 => return refuse("a log in subfiles"),
        c if c & MERGED != 0 => return refuse("entries of merged requests"),
        c if c & ALIGNED != 0 => return refuse("aligned data"),
        _ => {}
    }
    let (data, metadata) = log.datasets()?;
    if (i64::try_from(data.len()), i64::from(metadata)) != (Ok(counts.data), counts.metadata) {
        return Err(Error::corrupt(NAME, file.root, "other numbers of datasets than the root group states"));
    }
    let mut logs = BTreeMap::new();
    for (number, range) in (1u32..).zip(data) {
        logs.insert(number, LogDataset { address: range.start, len: range.end.0.saturating_sub(range.start.0) });
    }
    let mut members = Vec::new();
    let mut next_id = u64::try_from(counts.datasets).unwrap_or(0);
    access.each_anchor(&mut |access, id, anchor| {
        let dataset = access.dataset(id)?;
        if Object::open(&file, id.address)?.dataspace()?.extent != Extent::Null {
            return Err(Error::unsupported(NAME, id.address, "a dataset of a version before 1.4"));
        }
        let number = match anchor.log {
            InLog::Records(anchor) => i32::try_from(anchor.id).ok(),
            InLog::Released(anchor) => Some(anchor.id),
        };
        let number = number.filter(|n| *n >= 0).ok_or_else(|| Error::corrupt(NAME, id.address, "a wrong dataset ID"))?;
        next_id = next_id.max(u64::from(number.unsigned_abs()).saturating_add(1));
        let dims = if let Shape::Simple { dims, .. } = anchor.shape { dims } else { Vec::new() };
        members.push(ReleasedMember { id: number, dims, element_size: dataset.dataset.datatype.element_size() });
        Ok(())
    })?;
    let released = ReleasedGroup { log: log.clone(), members, metadata };
    Ok(LogGroup {
        state: None,
        next_id,
        is_default: true,
        logs,
        index: None,
        skip: None,
        store: file.store.clone(),
        released: Some(released),
        identity: 0,
    })
}
