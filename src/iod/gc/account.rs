//! Bytes of packs that versions reference, counted record by record.
//!
//! The table of the floor has the values of that version, and the changes of its record. A record
//! that the floor passes takes its values from the table of later records to it, and the values
//! before them out of it.

use super::state::{GcState, PackId, Table};
use crate::base::{Address, Error, Result};
use crate::iod::node::Node;
use crate::iod::record::Delta;
use crate::iod::subtree::Subtree;
use crate::iod::{Cell, Container, Data, Entry, Extent, Record, Snapshot};
use std::collections::{BTreeSet, HashSet};
use std::ops::{Bound, ControlFlow};

fn pack(extent: &Extent) -> PackId {
    (extent.session, extent.pack)
}

fn add(table: &mut Table, extent: &Extent) {
    let bytes = table.entry(pack(extent)).or_insert(0);
    *bytes = bytes.saturating_add(extent.len.into());
}

fn subtract(table: &mut Table, extent: &Extent) -> Result<()> {
    let wrong = || Error::corrupt("state of garbage collection", Address(extent.session), "it misses references of a pack");
    let bytes = table.get_mut(&pack(extent)).ok_or_else(wrong)?;
    *bytes = bytes.checked_sub(extent.len.into()).ok_or_else(wrong)?;
    Ok(())
}

/// Where the bytes of a value are in a pack.
fn extent(cell: Option<&Cell>) -> Option<&Extent> {
    match cell.map(|cell| &cell.data) {
        Some(Data::Extent(extent)) if extent.original().is_none() => Some(extent),
        _ => None,
    }
}

impl GcState {
    /// Counts the references of a record after the floor.
    pub(super) fn add_record(&mut self, record: &Record, entries: &[Entry]) {
        if let Delta::Extent(delta) = &record.delta {
            add(&mut self.recent, delta);
        }
        entries.iter().filter_map(|entry| extent(entry.cell.as_ref())).for_each(|e| add(&mut self.recent, e));
        self.accounted = record.version;
        if !entries.is_empty() {
            self.changed = record.version;
        }
    }

    /// Moves the floor to a record; `before` is the version before it, whose record has `delta`.
    fn pass(&mut self, container: &Container, before: &Snapshot, delta: Option<&Extent>, record: &Record, entries: &[Entry]) -> Result<()> {
        if let Some(delta) = delta {
            subtract(&mut self.base, delta)?;
        }
        if let Delta::Extent(delta) = &record.delta {
            subtract(&mut self.recent, delta)?;
            add(&mut self.base, delta);
        }
        for entry in entries {
            if let Some(old) = extent(before.get(container, &entry.key)?.as_ref()) {
                subtract(&mut self.base, old)?;
            }
            if let Some(new) = extent(entry.cell.as_ref()) {
                subtract(&mut self.recent, new)?;
                add(&mut self.base, new);
            }
        }
        self.recent.retain(|_, bytes| *bytes > 0);
        Ok(())
    }

    /// Moves the floor from `snapshot` to version `target`. Calls `at` with each of the versions
    /// `stops` on the way, and with the target.
    pub(in crate::iod) fn pass_to(
        &mut self,
        container: &Container,
        snapshot: &mut Snapshot,
        target: u64,
        stops: &BTreeSet<u64>,
        at: &mut dyn FnMut(&mut Snapshot) -> Result<()>,
    ) -> Result<()> {
        let mut delta = delta_of(container, snapshot.version())?;
        container.each_record(snapshot.version(), target, &mut |record, hash, entries| {
            self.pass(container, snapshot, delta.as_ref(), record, &entries)?;
            delta = in_pack(record);
            snapshot.advance_by(record, hash, entries)?;
            if stops.contains(&record.version) {
                self.tags.insert(record.version, positive(&self.base));
                at(snapshot)?;
            }
            Ok(())
        })?;
        at(snapshot)
    }

    /// Counts the records after the last one that was counted, up to `last`.
    pub(in crate::iod) fn catch_up(&mut self, container: &Container, last: u64) -> Result<()> {
        container.each_record(self.accounted, last, &mut |record, _, entries| {
            self.add_record(record, &entries);
            Ok(())
        })
    }
}

/// The packs of a table that are referenced.
pub(super) fn positive(table: &Table) -> Table {
    table.iter().filter(|(_, bytes)| **bytes > 0).map(|(pack, bytes)| (*pack, *bytes)).collect()
}

fn in_pack(record: &Record) -> Option<Extent> {
    if let Delta::Extent(extent) = &record.delta { Some(*extent) } else { None }
}

/// Where the changes of the record of a version are, if in a pack.
fn delta_of(container: &Container, version: u64) -> Result<Option<Extent>> {
    Ok(container.read_record(version)?.and_then(|(record, _)| in_pack(&record)))
}

/// References of all values of a version, and of its record. Reads all its tree.
pub(super) fn references(container: &Container, snapshot: &Snapshot) -> Result<Table> {
    let mut table = Table::new();
    if let Some(delta) = delta_of(container, snapshot.version())? {
        add(&mut table, &delta);
    }
    let _ = snapshot.scan(container, &(Bound::Unbounded, Bound::Unbounded), &mut |_, cell| {
        extent(Some(cell)).into_iter().for_each(|e| add(&mut table, e));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(table)
}

/// Packs with nodes of the trees. Reads the nodes that are no leaves.
pub(in crate::iod) fn node_packs(container: &Container, roots: &[Extent]) -> Result<BTreeSet<PackId>> {
    let mut seen = HashSet::new();
    let mut packs = BTreeSet::new();
    // Levels decrease, which ends the walk. Trees share nodes: each is read once.
    let mut left: Vec<Subtree> = roots.iter().map(Subtree::of_root).collect();
    while let Some(at) = left.pop() {
        if !seen.insert(at.extent) {
            continue;
        }
        packs.insert(pack(&at.extent));
        let node = at.open(container)?;
        match &*node {
            Node::Inner(1, children) => packs.extend(children.iter().map(|(_, leaf)| pack(leaf))),
            _ => left.extend(at.children(&node, 0)),
        }
    }
    Ok(packs)
}
