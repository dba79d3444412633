//! Reading a version past damage, for checks.

use super::cell::Extent;
use super::container::Container;
use super::keys::{self, Key};
use super::node::Node;
use super::objects::{Objects, failed};
use super::range::{KeyRange, Visit, overlay};
use super::record;
use super::snapshot::Snapshot;
use super::tree::node;
use crate::base::{Address, Error, Result};
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
        let mut walk = Walk { objects, damaged, f, nodes: &mut nodes, last: None };
        snapshot.root().map_or(Ok(ControlFlow::Continue(())), |root| walk.node(root, None, None))
    };
    let _ = overlay(snapshot.delta(), &all, |cell| cell.as_ref(), below, f)?;
    Ok(nodes)
}

struct Walk<'a, 'b, 'c, 'd> {
    objects: &'a Objects,
    damaged: &'a mut Damaged<'b>,
    f: &'a mut Visit<'c>,
    nodes: &'d mut Nodes,
    /// The last key that was visited.
    last: Option<Key>,
}

impl Walk<'_, '_, '_, '_> {
    /// Visits the values below a node. Levels decrease, which bounds the recursion.
    fn node(&mut self, extent: &Extent, level: Option<u8>, least: Option<&Key>) -> Result<ControlFlow<()>> {
        let found = match node(self.objects, extent, level) {
            Ok(found) => found,
            Err(e) => {
                (self.damaged)(e);
                return Ok(ControlFlow::Continue(()));
            }
        };
        self.nodes.count = self.nodes.count.saturating_add(1);
        self.nodes.bytes = self.nodes.bytes.saturating_add(extent.len.into());
        let first = match &*found {
            Node::Leaf(entries) => entries.first().map(|(key, _)| key),
            Node::Inner(_, children) => children.first().map(|(key, _)| key),
        };
        // A look-up goes by the least keys of the parent.
        let ascends = first > self.last.as_ref() && least.is_none_or(|least| first == Some(least));
        if !ascends {
            (self.damaged)(Error::corrupt("tree node", Address(extent.offset), "its keys are not those that its parent states"));
            return Ok(ControlFlow::Continue(()));
        }
        match &*found {
            Node::Leaf(entries) => {
                for (key, cell) in entries {
                    if (self.f)(key, cell)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                self.last = entries.last().map(|(key, _)| key.clone());
            }
            Node::Inner(level, children) => {
                for (least, child) in children {
                    if self.node(child, Some(level.saturating_sub(1)), Some(least))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
