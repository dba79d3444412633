//! What dirty chunks need: memory now, and storage in the file and in the journal once they are
//! stored.

use crate::meta::edit::most_allocated;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stored chunks are at most this part longer than their memory: a filter may lengthen them.
const LONGER_PART: u64 = 64;
/// Most bytes of an index that storing a chunk and its neighbours changes: two pages of elements,
/// or three nodes and those above them.
const NODES_BYTES: u64 = 48 << 10;
/// Chunks that are neighbours: the entries of a node that is half full.
const NEIGHBOURS: u64 = 32;
/// Bytes of an index besides those for its chunks.
const HEADS_BYTES: u64 = 4 << 10;

/// Sums over dirty chunks, bytes.
#[derive(Debug, Default)]
pub(super) struct DirtyNeeds {
    /// Memory.
    memory: AtomicU64,
    /// Memory of those that are stored where they are.
    in_place: AtomicU64,
    /// Storage of those in memory, at most.
    storage: AtomicU64,
    /// Of indexes, what storing changes, at most.
    index: AtomicU64,
}

/// Replaces `old` by `new` in a sum.
fn exchange(sum: &AtomicU64, old: u64, new: u64) {
    sum.fetch_add(new.saturating_sub(old), Ordering::AcqRel);
    sum.fetch_sub(old.saturating_sub(new), Ordering::AcqRel);
}

/// Storage of a chunk of `memory` bytes, at most.
fn most_stored(memory: u64) -> u64 {
    if memory == 0 { 0 } else { most_allocated(memory.saturating_add(memory / LONGER_PART)) }
}

impl DirtyNeeds {
    /// A chunk took `old` bytes of memory, and takes `new`.
    pub fn exchange(&self, old: u64, new: u64, is_in_place: bool) {
        exchange(&self.memory, old, new);
        exchange(&self.storage, most_stored(old), most_stored(new));
        if is_in_place {
            exchange(&self.in_place, old, new);
        }
    }

    /// The chunks of a dataset changed `old` bytes of its index, and change `new`.
    pub fn exchange_index(&self, old: u64, new: u64) {
        exchange(&self.index, old, new);
    }

    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Acquire)
    }

    pub fn storage(&self) -> u64 {
        self.storage.load(Ordering::Acquire)
    }

    /// Bytes that a commit changes where they are.
    pub fn in_place(&self) -> u64 {
        self.in_place.load(Ordering::Acquire).saturating_add(self.index.load(Ordering::Acquire))
    }
}

/// What storing chunks may change of the chunk index of a dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IndexSize {
    /// Most bytes.
    bytes: u64,
    /// Chunks of neighbouring numbers are neighbours in it.
    is_ordered: bool,
}

impl IndexSize {
    /// That of an index of `chunks` chunks of `rank` dimensions; nodes are half full.
    pub(crate) fn of(chunks: u64, rank: usize, is_ordered: bool) -> Self {
        let entry = (rank as u64).saturating_mul(16).saturating_add(64);
        IndexSize { bytes: chunks.saturating_mul(entry).saturating_add(HEADS_BYTES), is_ordered }
    }

    /// The same index, which may have grown to `next`.
    pub(super) fn grown_to(self, next: IndexSize) -> Self {
        IndexSize { bytes: self.bytes.max(next.bytes), ..self }
    }

    /// The chunks that are neighbours of chunk `number`, and itself.
    pub(super) fn neighbours(self, number: u64) -> Range<u64> {
        let first = if self.is_ordered { number - number % NEIGHBOURS } else { number };
        first..first.saturating_add(if self.is_ordered { NEIGHBOURS } else { 1 })
    }

    /// What storing chunks in `groups` groups of neighbours changes of it, at most, bytes.
    pub(super) fn changed_by(self, groups: u64) -> u64 {
        groups.saturating_mul(NODES_BYTES).min(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_that_of_aligned_blocks() {
        let needs = DirtyNeeds::default();
        needs.exchange(0, 4096, false);
        needs.exchange(0, 100, true);
        assert_eq!((needs.memory(), needs.storage(), needs.in_place()), (4196, 8192 + 104, 100));
        needs.exchange(4096, 0, false);
        needs.exchange_index(0, 50);
        assert_eq!((needs.memory(), needs.storage(), needs.in_place()), (100, 104, 150));
    }

    #[test]
    fn few_chunks_change_some_nodes_and_many_change_all() {
        let size = IndexSize::of(10_000, 1, true);
        assert_eq!((size.changed_by(0), size.changed_by(2)), (0, 2 * NODES_BYTES));
        assert_eq!(size.changed_by(9000), 800_000 + HEADS_BYTES);
        assert_eq!((size.neighbours(65), IndexSize::of(10_000, 1, false).neighbours(65)), (64..96, 65..66));
    }
}
