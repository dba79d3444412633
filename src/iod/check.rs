//! Reading a version past damage, for checks.

use super::cell::Extent;
use super::container::Container;
use super::keys;
use super::objects::{Objects, failed};
use super::range::{KeyRange, Visit, overlay};
use super::record;
use super::snapshot::Snapshot;
use super::subtree::{Subtree, Walk};
use crate::base::{Error, Result};
use std::ops::{Bound, ControlFlow};

/// Called with an error, which the check continues past.
pub type Damaged<'a> = dyn FnMut(Error) + 'a;

/// Checks the checkpoint below the version `last`, and the hashes of the records after it.
pub fn records(container: &Container, last: u64, damaged: &mut Damaged<'_>) -> Result<()> {
    let names = container.store().list_after(keys::CHECKPOINTS, "").map_err(failed("list the object store", 0))?;
    let mut snapshot = Snapshot::empty();
    for at in names.iter().rev().filter_map(|name| keys::version_of(name)).filter(|at| *at <= last) {
        match container.read_checkpoint(at) {
            Ok(checkpoint) => {
                snapshot = Snapshot::at(&checkpoint);
                break;
            }
            Err(e) => damaged(e),
        }
    }
    if snapshot.version() > 0 {
        // Garbage collection may have removed the record.
        match container.read_record(snapshot.version()) {
            Ok(Some((_, hash))) if hash != snapshot.hash() => damaged(record::fork(snapshot.version())),
            Ok(_) => {}
            Err(e) => damaged(e),
        }
    }
    if let Err(e) = container.advance_to(&mut snapshot, last) {
        damaged(e);
    }
    Ok(())
}

/// Tree nodes of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Their number.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Visits all values of a version. A damaged node of its tree is reported, and what is below it is
/// left out.
pub fn values(snapshot: &Snapshot, objects: &Objects, damaged: &mut Damaged<'_>, f: &mut Visit<'_>) -> Result<Nodes> {
    let mut nodes = Nodes::default();
    let all: KeyRange = (Bound::Unbounded, Bound::Unbounded);
    let below = |f: &mut Visit<'_>| {
        let Some(root) = snapshot.root() else { return Ok(ControlFlow::Continue(())) };
        let mut opened = |extent: &Extent| {
            nodes.count = nodes.count.saturating_add(1);
            nodes.bytes = nodes.bytes.saturating_add(extent.len.into());
        };
        let mut report = |e| {
            damaged(e);
            Ok(())
        };
        let mut walk = Walk { objects, range: &all, opened: &mut opened, damaged: &mut report, visit: f };
        walk.run(&Subtree::of_root(root))
    };
    let _ = overlay(snapshot.delta(), &all, |cell| cell.as_ref(), below, f)?;
    Ok(nodes)
}
