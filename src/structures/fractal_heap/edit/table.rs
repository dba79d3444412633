//! Doubling table of a heap during a change: locates blocks, adds blocks at the iterator.
//!
//! ```text
//! no root -> one direct block -> root indirect block of a few rows -> twice the rows, and so on;
//! rows above the largest direct block hold indirect blocks, created when the iterator reaches them
//! ```

use super::state::{DirectBlockPlace, Edit};
use crate::base::{Address, Error, Result, limits};
use crate::format::fractal_heap::header::NAME;
use crate::format::fractal_heap::indirect::{self, Entry, IndirectBlock};
use crate::meta::extent::collect;
use crate::structures::fractal_heap::load::IndirectRef;

const NO_BLOCK: Entry = Entry { address: Address::UNDEF, size: 0, mask: 0 };
/// Steps of the iterator to one block: it passes each row of each of at most 64 levels once.
const ITERATOR_STEPS_MAX: usize = 64 * 64;

/// Error for an entry that the indirect block at `address` does not have.
fn beyond_rows(address: Address) -> Error {
    Error::corrupt(indirect::NAME, address, "an entry past its last row")
}

impl Edit<'_> {
    fn too_large(&self) -> Error {
        Error::limit(NAME, self.heap.address, "the heap is full")
    }

    fn entry(&mut self, block: IndirectRef, row: u32, column: u64) -> Result<Entry> {
        let (found, _) = self.indirect.get(self.store, &self.heap, block)?;
        found.entry(row, column, &self.heap.geometry).copied().ok_or_else(|| beyond_rows(block.address))
    }

    fn set_entry(&mut self, block: IndirectRef, row: u32, column: u64, address: Address) -> Result<()> {
        let i = u64::from(row).saturating_mul(self.heap.geometry.width).saturating_add(column);
        let (found, changed) = self.indirect.get(self.store, &self.heap, block)?;
        let entry = usize::try_from(i).ok().and_then(|i| found.entries.get_mut(i));
        entry.ok_or_else(|| beyond_rows(block.address))?.address = address;
        *changed = true;
        Ok(())
    }

    /// Allocates an indirect block, which `finish` writes; returns its address.
    fn new_indirect(&mut self, rows: u32, offset: u64, mut entries: Vec<Entry>) -> Result<Address> {
        if self.heap.geometry.indirect_size(rows) > limits::METADATA_BLOCK_MAX {
            return Err(self.too_large());
        }
        let (direct, indirect) = self.heap.geometry.entries(rows);
        entries.resize(usize::try_from(direct.saturating_add(indirect)).map_err(|_| self.too_large())?, NO_BLOCK);
        let address = self.allocate(self.heap.geometry.indirect_size(rows))?;
        self.indirect.0.insert(address.0, (IndirectBlock { heap: self.heap.address, offset, rows, entries }, true));
        Ok(address)
    }

    /// The direct block that holds heap offset `offset`.
    pub(super) fn locate(&mut self, offset: u64) -> Result<DirectBlockPlace> {
        let (store, heap, indirect) = (self.store, &self.heap, &mut self.indirect);
        let at = heap.locate(offset, &mut |block, row, column| {
            Ok(indirect.get(store, heap, block)?.0.entry(row, column, &heap.geometry).copied())
        })?;
        Ok(DirectBlockPlace { address: at.address, offset: at.offset, size: at.size, new: false })
    }

    /// Bytes for objects in all direct blocks below a root indirect block of `rows` rows.
    pub(super) fn capacity(&self, rows: u32) -> Result<u64> {
        let g = &self.heap.geometry;
        let mut per_block: Vec<u128> = Vec::new();
        let sum = |rows: &[u128]| rows.iter().fold(0u128, |n, &b| n.saturating_add(b.saturating_mul(u128::from(g.width))));
        for row in 0..rows {
            let size = g.block_size(row).ok_or_else(|| self.too_large())?;
            per_block.push(if row < g.max_direct_rows {
                u128::from(size.saturating_sub(g.direct_overhead() as u64))
            } else {
                let below = g.child_rows(row).unwrap_or(0) as usize;
                sum(per_block.get(..below).ok_or_else(|| self.too_large())?)
            });
        }
        u64::try_from(sum(&per_block)).map_err(|_| self.too_large())
    }

    /// First row whose blocks have `size` bytes.
    fn row_of(&self, size: u64) -> u32 {
        match size.checked_div(self.heap.geometry.start_block_size).and_then(u64::checked_ilog2).unwrap_or(0) {
            0 => 0,
            n => n.saturating_add(1),
        }
    }

    /// Replaces the root by a root indirect block of `rows` rows.
    fn set_root(&mut self, rows: u32) -> Result<()> {
        let (old, had) = (self.heap.header.table.root, u32::from(self.heap.header.table.root_rows));
        let mut entries = Vec::new();
        let mut covered = 0;
        if had > 0 {
            let root = IndirectRef { address: old, rows: had, offset: 0 };
            entries = self.indirect.get(self.store, &self.heap, root)?.0.entries.clone();
            covered = self.capacity(had)?;
            self.indirect.0.remove(&old.0);
            self.freed.push((old, self.heap.geometry.indirect_size(had)));
        } else if old.is_defined() {
            entries.push(Entry { address: old, ..NO_BLOCK });
            covered = self.heap.header.table.start_block_size.saturating_sub(self.heap.geometry.direct_overhead() as u64);
        }
        let more = self.capacity(rows)?.checked_sub(covered).ok_or_else(|| self.heap.corrupt("the table would shrink"))?;
        let span = self.heap.geometry.block_offset(rows, 0).ok_or_else(|| self.too_large())?;
        self.heap.header.table.root_rows = u16::try_from(rows).map_err(|_| self.too_large())?;
        self.heap.header.table.root = self.new_indirect(rows, 0, entries)?;
        self.heap.header.free_space = self.heap.header.free_space.saturating_add(more);
        self.heap.header.statistics.managed_size = span;
        Ok(())
    }

    /// Allocates a direct block for an object of `length` bytes.
    pub(super) fn next_block(&mut self, length: u64) -> Result<DirectBlockPlace> {
        let overhead = self.heap.geometry.direct_overhead() as u64;
        let (start, most) = (self.heap.header.table.start_block_size, self.heap.header.table.max_direct_size);
        let least = length.saturating_add(overhead).checked_next_power_of_two().unwrap_or(u64::MAX).max(start);
        if least > most {
            return Err(self.heap.corrupt("its largest managed object exceeds the largest block"));
        }
        let root = self.heap.header.table.root;
        if !root.is_defined() && least == start {
            let address = self.allocate(start)?;
            (self.heap.header.table.root, self.heap.header.table.root_rows) = (address, 0);
            self.heap.header.free_space = self.heap.header.free_space.saturating_add(start.saturating_sub(overhead));
            let s = &mut self.heap.header.statistics;
            (s.managed_size, s.allocated_size) = (start, s.allocated_size.saturating_add(start));
            return Ok(DirectBlockPlace { address, offset: 0, size: start, new: true });
        }
        if self.heap.header.table.root_rows == 0 {
            let rows = match u32::from(self.heap.header.table.start_root_rows) {
                0 => self.heap.geometry.max_rows,
                n => n.max(self.row_of(least).saturating_add(1)),
            };
            if rows > self.heap.geometry.max_rows {
                return Err(self.too_large());
            }
            self.set_root(rows)?;
            self.heap.header.statistics.iterator = if root.is_defined() { start } else { 0 };
        }
        for _ in 0..ITERATOR_STEPS_MAX {
            if let Some(place) = self.step(least)? {
                return Ok(place);
            }
        }
        Err(self.heap.corrupt("the iterator finds no place for a block"))
    }

    /// Advances the iterator by one step; returns a new direct block of at least `least` bytes if
    /// it fits there.
    fn step(&mut self, least: u64) -> Result<Option<DirectBlockPlace>> {
        let too_large = self.too_large();
        let iterator = self.heap.header.statistics.iterator;
        let t = &self.heap.header.table;
        let mut block = IndirectRef { address: t.root, rows: u32::from(t.root_rows), offset: 0 };
        // A child has fewer rows than its parent: at most 64 turns.
        loop {
            let g = &self.heap.geometry;
            let Some((row, column)) = iterator.checked_sub(block.offset).and_then(|o| g.locate(o)) else { return Err(too_large) };
            if row >= block.rows {
                // Only the root has an end: the end of a child is its parent's next entry.
                return self.double(block.rows, least).map(|()| None);
            }
            let (Some(size), Some(at)) = (g.block_size(row), g.block_offset(row, column).and_then(|o| o.checked_add(block.offset))) else {
                return Err(too_large);
            };
            if row < g.max_direct_rows {
                if size < least {
                    // Skips blocks too small for the object.
                    let next = self.row_of(least).min(block.rows);
                    let next = g.block_offset(next, 0).and_then(|o| o.checked_add(block.offset));
                    self.heap.header.statistics.iterator = next.filter(|&n| n > iterator).ok_or(too_large)?;
                    return Ok(None);
                }
                if at != iterator || self.entry(block, row, column)?.address.is_defined() {
                    return Err(self.heap.corrupt("the iterator points into a block"));
                }
                let address = self.allocate(size)?;
                self.set_entry(block, row, column, address)?;
                let s = &mut self.heap.header.statistics;
                s.iterator = at.checked_add(size).ok_or(too_large)?;
                s.allocated_size = s.allocated_size.saturating_add(size);
                return Ok(Some(DirectBlockPlace { address, offset: at, size, new: true }));
            }
            let Some(below) = g.child_rows(row).filter(|&n| n > 0 && n < block.rows) else { return Err(too_large) };
            let mut address = self.entry(block, row, column)?.address;
            if !address.is_defined() {
                if self.heap.geometry.block_size(below.saturating_sub(1)).is_none_or(|largest| largest < least) {
                    let next = self.heap.geometry.block_offset(row.saturating_add(1), 0).and_then(|o| o.checked_add(block.offset));
                    self.heap.header.statistics.iterator = next.ok_or(too_large)?;
                    return Ok(None);
                }
                address = self.new_indirect(below, at, Vec::new())?;
                self.set_entry(block, row, column, address)?;
            }
            block = IndirectRef { address, rows: below, offset: at };
        }
    }

    /// Doubles the rows of the root, to at least what a block of `least` bytes needs.
    fn double(&mut self, rows: u32, least: u64) -> Result<()> {
        let needed = if rows < self.heap.geometry.max_direct_rows { self.row_of(least).saturating_add(1) } else { 0 };
        let more = rows.saturating_mul(2).min(self.heap.geometry.max_rows).max(needed);
        if more <= rows || more > self.heap.geometry.max_rows {
            return Err(self.too_large());
        }
        self.set_root(more)
    }

    /// Address and size of every direct and indirect block.
    pub(super) fn block_extents(&mut self) -> Result<Vec<(Address, u64)>> {
        let (store, heap, indirect) = (self.store, &self.heap, &mut self.indirect);
        let blocks = collect(|visit| heap.block_extents(store, &mut |at| Ok(indirect.get(store, heap, at)?.0.entries.clone()), visit))?;
        Ok(blocks.into_iter().map(|e| (e.address, e.len)).collect())
    }
}
