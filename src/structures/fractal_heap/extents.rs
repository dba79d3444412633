//! Extents of a fractal heap: header, blocks, huge objects with their B-tree, free-space manager.

use super::load::{HUGE_KIND, Heap, IndirectRef, huge_tree};
use crate::base::{Address, Result};
use crate::format::fractal_heap::header::NAME;
use crate::format::fractal_heap::indirect::Entry;
use crate::format::fractal_heap::{HugeRecord, direct, huge, indirect};
use crate::format::free_space::Client;
use crate::meta::Store;
use crate::meta::extent::{Extent, Visit};
use crate::structures::budget::Budget;
use crate::structures::free_space::Manager;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Returns the entries of an indirect block.
pub(super) type EntriesOf<'a> = dyn FnMut(IndirectRef) -> Result<Vec<Entry>> + 'a;

/// Visits all extents of the heap whose header is at `address`.
pub(crate) fn extents(store: &Store, address: Address, visit: &mut Visit<'_>) -> Result<()> {
    let heap = Heap::load(store, address)?;
    visit(Extent::metadata(address, heap.header.encoded_len(store.ctx()), NAME))?;
    heap.block_extents(store, &mut |at| Ok(heap.indirect(store, at)?.entries.clone()), visit)?;
    heap.huge_extents(store, visit)?;
    match heap.header.free_space_manager {
        manager if manager.is_defined() => Manager::load(store, manager, Client::FractalHeap)?.extents(store, visit),
        _ => Ok(()),
    }
}

impl Heap {
    /// Visits every direct and indirect block. Errors: those of `entries_of`; a block is reached
    /// twice or exceeds the heap.
    pub fn block_extents(&self, store: &Store, entries_of: &mut EntriesOf<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let (t, g) = (&self.header.table, &self.geometry);
        let (root, rows) = (t.root, u32::from(t.root_rows));
        if !root.is_defined() {
            return Ok(());
        }
        if rows == 0 {
            let stored = self.header.filters.as_ref().map_or(t.start_block_size, |f| f.root_size);
            return visit(Extent::metadata(root, stored, direct::NAME));
        }
        let mut budget = Budget::new(store, NAME, self.address)?;
        let mut seen = HashSet::new();
        let mut open = vec![IndirectRef { address: root, rows, offset: 0 }];
        while let Some(block) = open.pop() {
            let size = g.indirect_size(block.rows);
            budget.spend(size)?;
            visit(Extent::metadata(block.address, size, indirect::NAME))?;
            for (i, entry) in (0u64..).zip(entries_of(block)?).filter(|(_, e)| e.address.is_defined()) {
                let row = u32::try_from(i.checked_div(g.width).unwrap_or(0)).unwrap_or(u32::MAX);
                let column = i.checked_rem(g.width).unwrap_or(0);
                let at = g.block_offset(row, column).and_then(|o| o.checked_add(block.offset));
                let (Some(size), Some(at), true) = (g.block_size(row), at, seen.insert(entry.address)) else {
                    return Err(self.corrupt("a block is reached twice, or exceeds the heap"));
                };
                if row < g.max_direct_rows {
                    let stored = if g.filtered { entry.size } else { size };
                    budget.spend(stored)?;
                    visit(Extent::metadata(entry.address, stored, direct::NAME))?;
                } else {
                    let below = g.child_rows(row).filter(|&n| n < block.rows).ok_or_else(|| self.corrupt("too many rows"))?;
                    open.push(IndirectRef { address: entry.address, rows: below, offset: at });
                }
            }
        }
        Ok(())
    }

    /// Visits every huge object and the blocks of their B-tree.
    fn huge_extents(&self, store: &Store, visit: &mut Visit<'_>) -> Result<()> {
        let (address, kind) = (self.header.huge_btree, self.ids.huge_record_type());
        if !address.is_defined() {
            return Ok(());
        }
        let tree = huge_tree(store, address, kind)?;
        tree.extents(store, visit)?;
        tree.iterate(store, &mut |record| {
            let r = HugeRecord::decode(record, kind, address, store.ctx())?;
            visit(Extent { kind: HUGE_KIND, ..Extent::metadata(r.address, r.length, huge::OBJECT_NAME) })?;
            Ok(ControlFlow::Continue(()))
        })
    }
}
