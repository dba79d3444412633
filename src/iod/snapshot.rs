//! One version of the map: a checkpoint and the changes after it.

use super::cell::{Cell, Extent};
use super::checkpoint::Checkpoint;
use super::compare;
use super::delta::Entry;
use super::keys::Key;
use super::objects::Objects;
use super::range::{KeyRange, Values, Visit, is_empty, overlay};
use super::record::{self, Record};
use super::tree;
use crate::base::Result;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Records after which a checkpoint is due.
const RECORDS_MAX: u64 = 1000;
/// Bytes of changes after which a checkpoint is due.
const DELTA_BYTES_MAX: usize = 16 << 20;

/// What a mount reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// The version.
    pub version: u64,
    /// The checkpoint below it; 0: there is none.
    pub checkpoint: u64,
}

/// See the module's description. A clone costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    version: u64,
    hash: u64,
    checkpoint: u64,
    root: Option<Extent>,
    delta: Values<Option<Cell>>,
    delta_bytes: usize,
}

impl Snapshot {
    /// The state before the first version.
    pub fn empty() -> Snapshot {
        Snapshot::default()
    }

    /// The version of a checkpoint.
    pub fn at(checkpoint: &Checkpoint) -> Snapshot {
        let Checkpoint { version, hash, root } = *checkpoint;
        Snapshot { version, hash, checkpoint: version, root, ..Snapshot::default() }
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Hash of its record.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The version of the checkpoint below it; 0: there is none.
    pub(super) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// Itself and the checkpoint below it, as a mount pins them.
    pub fn pinned(&self) -> Pinned {
        Pinned { version: self.version, checkpoint: self.checkpoint }
    }

    pub(super) fn root(&self) -> Option<&Extent> {
        self.root.as_ref()
    }

    pub(super) fn delta(&self) -> &Values<Option<Cell>> {
        &self.delta
    }

    /// True if a checkpoint would shorten opening it noticeably.
    pub fn wants_checkpoint(&self) -> bool {
        self.version.saturating_sub(self.checkpoint) >= RECORDS_MAX || self.delta_bytes >= DELTA_BYTES_MAX
    }

    /// Makes it the version of `record`, whose bytes have this hash. Errors: the record does not
    /// follow.
    pub fn advance(&mut self, record: &Record, hash: u64, entries: &[Entry]) -> Result<()> {
        self.advance_by(record, hash, entries.iter().cloned())
    }

    /// [`Snapshot::advance`], which takes the entries.
    pub fn advance_by(&mut self, record: &Record, hash: u64, entries: impl IntoIterator<Item = Entry>) -> Result<()> {
        let is_next = record.version == self.version.saturating_add(1);
        // A fuzz target changes one record of a chain.
        if !is_next || record.previous != self.hash && !cfg!(fuzzing) {
            return Err(record::fork(record.version));
        }
        for Entry { key, cell, .. } in entries {
            let added = key.len().saturating_add(cell.as_ref().map_or(0, Cell::size));
            self.delta_bytes = self.delta_bytes.saturating_add(added);
            self.delta.insert_mut(key, cell);
        }
        (self.version, self.hash) = (record.version, hash);
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, objects: &Objects, key: &[u8]) -> Result<Option<Cell>> {
        match (self.delta.get(key), &self.root) {
            (Some(cell), _) => Ok(cell.clone()),
            (None, Some(root)) => tree::get(objects, root, key),
            (None, None) => Ok(None),
        }
    }

    /// The keys whose values may differ from those in `other`: those of the changes after both
    /// checkpoints, and those that differ in both trees. Costs the nodes that the trees do not
    /// share.
    pub(super) fn differing(&self, objects: &Objects, other: &Snapshot) -> Result<BTreeSet<Key>> {
        let changed = self.delta.keys().chain(other.delta.keys()).cloned();
        let mut all: BTreeSet<Key> = changed.collect();
        all.extend(compare::differing(objects, self.root.as_ref(), other.root.as_ref())?);
        Ok(all)
    }

    /// Visits the values in a range.
    pub fn scan(&self, objects: &Objects, range: &KeyRange, f: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        if is_empty(range) {
            return Ok(ControlFlow::Continue(()));
        }
        let below = |f: &mut Visit<'_>| match &self.root {
            Some(root) => tree::scan(objects, root, range, f),
            None => Ok(ControlFlow::Continue(())),
        };
        overlay(&self.delta, range, |cell| cell.as_ref(), below, f)
    }
}
