//! Walks over the records or the nodes of a version 2 B-tree.
//!
//! Internal nodes hold records too: an in-order walk visits child 0, record 0, child 1, record 1,
//! ... Every pointer holds the number of records below it, so a walk starts at any rank after
//! O(depth) node reads. Loaded nodes stay in the store's cache.

use super::load::BTree2;
use super::read::Compare;
use crate::base::{Error, Result, limits};
use crate::format::btree2::{Header, NodePointer, header, internal, leaf};
use crate::meta::Store;
use crate::meta::extent::{self, Extent};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Called with each record; `Break` ends the walk.
pub type Visit<'a> = dyn FnMut(&[u8]) -> Result<ControlFlow<()>> + 'a;
/// Called with each record and the rank after it; `Break` ends the walk.
pub(in crate::structures) type RankVisit<'a> = dyn FnMut(&[u8], u64) -> Result<ControlFlow<()>> + 'a;

/// Records skipped in one walk before the rest is given up; each costs a failed descent.
const SKIPPED_RECORDS_MAX: u32 = 10_000;
/// Nodes that a walk may visit besides two a record: room for leaves that became empty.
const SPARE_NODES: u64 = 64;

/// One walk over records. A file whose pointers form a cycle or share nodes exhausts the budget of
/// nodes or records after no more work than a valid tree of the recorded size needs.
struct Walk<'a, 'c, 'v> {
    tree: &'a BTree2,
    store: &'a Store,
    /// Records before the first one to visit.
    skip: u64,
    /// Restricts the walk to the records for which it returns `Equal`.
    compare: Option<&'a mut Compare<'c>>,
    nodes_left: u64,
    records_left: u64,
    f: &'a mut Visit<'v>,
}

impl Walk<'_, '_, '_> {
    /// Visits the node at `pointer` and all nodes below it.
    fn node(&mut self, pointer: &NodePointer, depth: u16) -> Result<ControlFlow<()>> {
        self.nodes_left = self.tree.spend(self.nodes_left, "nodes")?;
        let node = self.tree.node(self.store, pointer, depth)?;
        let (first, end) = match &mut self.compare {
            None => {
                self.tree.announce(self.store, &node.children);
                (0, node.count())
            }
            Some(compare) => {
                let first = node.partition(0, &mut |record| Ok(compare(record)? == Ordering::Less))?;
                (first, node.partition(first, &mut |record| Ok(compare(record)? == Ordering::Equal))?)
            }
        };
        for i in first..=end {
            if let (Some(child), Some(below)) = (node.children.get(i), depth.checked_sub(1)) {
                if child.total <= self.skip {
                    self.skip = self.skip.saturating_sub(child.total);
                } else if self.node(child, below)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let Some(record) = node.record(i).filter(|_| i < end) else { break };
            if self.skip > 0 {
                self.skip = self.skip.saturating_sub(1);
                continue;
            }
            self.records_left = self.tree.spend(self.records_left, "records")?;
            if (self.f)(record)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl BTree2 {
    /// Visits, in order, all records for which `compare` returns `Equal` (duplicate hash keys).
    pub fn find_range(&self, store: &Store, compare: &mut Compare<'_>, f: &mut Visit<'_>) -> Result<()> {
        self.walk(store, 0, Some(compare), f)
    }

    /// Visits every record in order.
    pub fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        self.walk(store, 0, None, f)
    }

    /// Visits every record in order from the one with `rank` records before it. A rank at or past
    /// the end visits nothing.
    pub fn iterate_from(&self, store: &Store, rank: u64, f: &mut Visit<'_>) -> Result<()> {
        self.walk(store, rank, None, f)
    }

    fn walk(&self, store: &Store, skip: u64, compare: Option<&mut Compare<'_>>, f: &mut Visit<'_>) -> Result<()> {
        if skip >= self.len() {
            return Ok(());
        }
        let mut walk = Walk { tree: self, store, skip, compare, nodes_left: self.nodes_max(), records_left: self.len(), f };
        walk.node(&self.header.root, self.header.depth).map(drop)
    }

    /// Announces nodes that a walk will read.
    fn announce(&self, store: &Store, children: &[NodePointer]) {
        store.announce(children.iter().map(|child| child.address), u64::from(self.header.node_size));
    }

    /// Upper bound of the nodes of a valid tree: every node but emptied leaves holds a record.
    fn nodes_max(&self) -> u64 {
        self.len().saturating_mul(2).saturating_add(SPARE_NODES)
    }

    fn spend(&self, left: u64, what: &'static str) -> Result<u64> {
        left.checked_sub(1).ok_or_else(|| Error::corrupt(header::NAME, self.address, format!("more {what} than its header states")))
    }

    /// Visits the header and all nodes. Reads internal nodes only. Errors: damage, more nodes than
    /// the records need.
    pub fn extents(&self, store: &Store, visit: &mut extent::Visit<'_>) -> Result<()> {
        visit(Extent::metadata(self.address, Header::size(store.ctx()) as u64, header::NAME))?;
        let (root, depth) = (&self.header.root, self.header.depth);
        let mut nodes_left = self.nodes_max();
        if root.address.is_defined() { self.node_extents(store, root, depth, &mut nodes_left, visit) } else { Ok(()) }
    }

    fn node_extents(
        &self,
        store: &Store,
        pointer: &NodePointer,
        depth: u16,
        nodes_left: &mut u64,
        visit: &mut extent::Visit<'_>,
    ) -> Result<()> {
        *nodes_left = self.spend(*nodes_left, "nodes")?;
        if usize::from(depth) > limits::TREE_DEPTH_MAX {
            return Err(Error::corrupt(header::NAME, self.address, "too deep"));
        }
        let len = u64::from(self.header.node_size);
        match depth.checked_sub(1) {
            Some(below) => {
                let node = self.node(store, pointer, depth)?;
                visit(Extent::metadata(pointer.address, len, internal::NAME))?;
                node.children.iter().try_for_each(|child| self.node_extents(store, child, below, nodes_left, visit))
            }
            None => visit(Extent::metadata(pointer.address, len, leaf::NAME)),
        }
    }
}

/// Visits the records of `tree` from rank `start` on, past nodes that cannot be read. Returns the
/// first damage found. Errors: those of `f` only.
pub(in crate::structures) fn walk_past_damage(tree: &BTree2, store: &Store, start: u64, f: &mut RankVisit<'_>) -> Result<Option<Error>> {
    let mut rank = start;
    let mut first: Option<Error> = None;
    let mut last: Option<Error> = None;
    for _ in 0..SKIPPED_RECORDS_MAX {
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
            tracing::warn!(%error, "skipped damaged records of a B-tree");
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
