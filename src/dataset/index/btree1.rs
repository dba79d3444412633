//! Version 1 B-tree index: keys are the chunks' offsets in elements, sizes and filter masks.

use super::records::Records;
use super::traits::{ChunkIndex, Place, Visit};
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::btree1::{Btree1Kind, ChunkKey, NAME, Node};
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::meta::{Store, extent};
use crate::structures::btree1;
use crate::structures::btree1::edit::ChunkTree;
use crate::structures::estimate::Estimate;
use std::cmp::Ordering;
use std::iter::once;
use std::ops::ControlFlow;

pub(super) struct Index {
    root: Address,
    kind: Btree1Kind,
    grid: ChunkGrid,
}

impl Index {
    pub(super) fn new(root: Address, grid: ChunkGrid, records: Records) -> Result<Self> {
        if records.chunk_bytes > u64::from(u32::MAX) {
            return Err(Error::corrupt(NAME, root, "chunks of 4 GiB in an index of 32-bit sizes"));
        }
        let dims = u8::try_from(grid.rank().saturating_add(1)).map_err(|_| Error::limit(NAME, root, "rank"))?;
        Ok(Index { root, kind: Btree1Kind::Chunk { dims }, grid })
    }

    /// Order of key `i` relative to the chunk that begins at `origin`.
    fn compare(node: &Node, i: usize, origin: &[u64]) -> Ordering {
        let key = ChunkKey::offsets_of(node.key(i).unwrap_or_default());
        key.cmp(origin.iter().copied().chain(once(0)))
    }

    /// The last child whose left key is not above the chunk that begins at `origin`.
    fn pick(node: &Node, origin: &[u64]) -> Option<usize> {
        let (mut low, mut high) = (0, node.children.len());
        while low < high {
            let middle = low.midpoint(high);
            if Self::compare(node, middle, origin) == Ordering::Greater { high = middle } else { low = middle.saturating_add(1) }
        }
        low.checked_sub(1)
    }

    fn scale(&self, offsets: impl Iterator<Item = u64>, scaled: &mut Vec<u64>) -> Result<()> {
        scaled.clear();
        for (offset, &c) in offsets.zip(&self.grid.chunk_dims) {
            if offset.checked_rem(c) != Some(0) {
                return Err(Error::corrupt(NAME, self.root, format!("offset {offset} is not a multiple of the chunk dimension {c}")));
            }
            scaled.push(offset / c.max(1));
        }
        Ok(())
    }
}

fn record(node: &Node, i: usize) -> Result<Option<(ChunkKey, ChunkRecord)>> {
    let (Some(key), Some(&address)) = (node.key(i), node.children.get(i)) else { return Ok(None) };
    let key = ChunkKey::decode(key, address)?;
    let record = ChunkRecord { address, size: u64::from(key.size), form: StoredForm::Whole { filter_mask: key.filter_mask } };
    Ok(address.is_defined().then_some((key, record)))
}

impl ChunkIndex for Index {
    fn has_checksums(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "v1 B-tree"
    }

    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        if !self.root.is_defined() || !self.grid.contains(scaled) {
            return Ok(None);
        }
        let Some(origin) = self.grid.origin(scaled) else { return Ok(None) };
        let mut pick = |node: &Node| Ok(Self::pick(node, &origin));
        let Some((leaf, i)) = btree1::find(store, self.root, self.kind, &mut pick)? else { return Ok(None) };
        if Self::compare(&leaf, i, &origin) != Ordering::Equal {
            return Ok(None);
        }
        Ok(record(&leaf, i)?.map(|(_, record)| record))
    }

    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        if !self.root.is_defined() {
            return Ok(());
        }
        let mut scaled = Vec::new();
        btree1::iterate(store, self.root, self.kind, &mut |node, i| {
            let Some((key, record)) = record(node, i)? else { return Ok(ControlFlow::Continue(())) };
            self.scale(key.offsets.iter().copied(), &mut scaled)?;
            if self.grid.contains(&scaled) { f(&scaled, record) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    fn iterate_from(&self, store: &Store, from: &[u64], f: &mut Place<'_>) -> Result<()> {
        let Some(origin) = self.grid.origin(from).filter(|_| self.root.is_defined()) else { return Ok(()) };
        let mut scaled = Vec::new();
        let mut pick = |node: &Node| Self::pick(node, &origin).unwrap_or(0);
        btree1::iterate_from(store, self.root, self.kind, &mut pick, &mut |node, i| {
            let (Some(key), true) = (node.key(i), node.children.get(i).is_some_and(|a| a.is_defined())) else {
                return Ok(ControlFlow::Continue(()));
            };
            self.scale(ChunkKey::offsets_of(key), &mut scaled)?;
            if scaled.as_slice() >= from && self.grid.contains(&scaled) { f(&scaled) } else { Ok(ControlFlow::Continue(())) }
        })
    }

    fn takes_maximum(&self, _next: &ChunkGrid) -> bool {
        true
    }

    fn estimate(&self, store: &Store) -> Result<Estimate> {
        if self.root.is_defined() { btree1::estimate(store, self.root, self.kind).map(Estimate::dense) } else { Ok(Estimate::default()) }
    }

    fn extents(&self, store: &Store, k: u16, visit: &mut extent::Visit<'_>) -> Result<()> {
        let dims: Vec<u64> = self.grid.chunk_dims.iter().copied().chain([self.grid.element_size]).collect();
        let tree = ChunkTree { root: self.root, k, dims: &dims };
        if self.root.is_defined() { btree1::edit::extents(store, &tree, visit) } else { Ok(()) }
    }
}
