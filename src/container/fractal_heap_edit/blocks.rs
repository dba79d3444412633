//! The doubling table of a heap that is changed: finding blocks, and adding them where the iterator is.
//!
//! ```text
//! no root -> one direct block -> root indirect block of a few rows -> twice the rows, and so on;
//! entries of rows beyond the largest direct block are indirect blocks, created when the iterator comes there
//! ```

use super::{Edit, Place};
use crate::base::{Address, Error, Result, limits};
use crate::container::budget::Budget;
use crate::container::fractal_heap::indirect_block;
use crate::format::fractal_heap::header::NAME;
use crate::format::fractal_heap::indirect::{self, Entry, IndirectBlock};
use std::collections::HashSet;

const NO_BLOCK: Entry = Entry { address: Address::UNDEF, size: 0, mask: 0 };
/// Steps of the iterator for one block: it passes each row of each of at most 64 levels once.
const STEPS_MAX: usize = 64 * 64;

impl Edit<'_> {
    fn too_large(&self) -> Error {
        Error::limit(NAME, self.at, "the heap is full")
    }

    /// The indirect block at `address`, checked against where it must be.
    fn indirect(&mut self, address: Address, rows: u32, offset: u64) -> Result<&mut (IndirectBlock, bool)> {
        if !self.indirect.contains_key(&address.0) {
            let block = indirect_block(self.store, address, rows, &self.geometry)?;
            self.indirect.insert(address.0, (IndirectBlock::clone(&block), false));
        }
        let heap = self.at;
        let found = self.indirect.get_mut(&address.0).filter(|(b, _)| b.heap == heap && b.offset == offset && b.rows == rows);
        found.ok_or_else(|| Error::corrupt(indirect::NAME, address, "it belongs elsewhere"))
    }

    fn entry(&mut self, block: (Address, u32, u64), row: u32, column: u64) -> Result<Entry> {
        let g = self.geometry.clone();
        let (found, _) = self.indirect(block.0, block.1, block.2)?;
        found.entry(row, column, &g).copied().ok_or_else(|| Error::corrupt(indirect::NAME, block.0, "an entry beyond its rows"))
    }

    fn set_entry(&mut self, block: (Address, u32, u64), row: u32, column: u64, address: Address) -> Result<()> {
        let i = u64::from(row).saturating_mul(self.geometry.width).saturating_add(column);
        let (found, changed) = self.indirect(block.0, block.1, block.2)?;
        let entry = usize::try_from(i).ok().and_then(|i| found.entries.get_mut(i));
        let entry = entry.ok_or_else(|| Error::corrupt(indirect::NAME, block.0, "an entry beyond its rows"))?;
        entry.address = address;
        *changed = true;
        Ok(())
    }

    /// A new indirect block; it is written with `finish`.
    fn new_indirect(&mut self, rows: u32, offset: u64, mut entries: Vec<Entry>) -> Result<Address> {
        if self.geometry.indirect_size(rows) > limits::METADATA_BLOCK_MAX {
            return Err(self.too_large());
        }
        let (direct, indirect) = self.geometry.entries(rows);
        entries.resize(usize::try_from(direct.saturating_add(indirect)).map_err(|_| self.too_large())?, NO_BLOCK);
        let address = self.allocate(self.geometry.indirect_size(rows))?;
        self.indirect.insert(address.0, (IndirectBlock { heap: self.at, offset, rows, entries }, true));
        Ok(address)
    }

    /// The direct block that holds heap offset `offset`.
    pub(super) fn locate(&mut self, offset: u64) -> Result<Place> {
        let t = &self.header.table;
        let missing = || Error::corrupt(NAME, self.at, format!("heap offset {offset} is in no block"));
        if t.root_rows == 0 {
            let place = Place { address: t.root, offset: 0, size: t.start_block_size, new: false };
            return if offset < place.size && t.root.is_defined() { Ok(place) } else { Err(missing()) };
        }
        let missing = missing();
        let mut block = (t.root, u32::from(t.root_rows), 0u64);
        // A child has fewer rows than its parent: at most 64 turns.
        loop {
            let g = &self.geometry;
            let Some((row, column)) = offset.checked_sub(block.2).and_then(|o| g.locate(o)) else { return Err(missing) };
            let Some(at) = g.block_offset(row, column).and_then(|o| o.checked_add(block.2)) else { return Err(missing) };
            let (size, direct, below) = (g.block_size(row), row < g.max_direct_rows, g.child_rows(row));
            let address = self.entry(block, row, column)?.address;
            match (direct, size, below) {
                (true, Some(size), _) if address.is_defined() => return Ok(Place { address, offset: at, size, new: false }),
                (false, _, Some(below)) if address.is_defined() && below < block.1 => block = (address, below, at),
                _ => return Err(missing),
            }
        }
    }

    /// Bytes for objects that the direct blocks of a root indirect block of `rows` rows can have.
    pub(super) fn capacity(&self, rows: u32) -> Result<u64> {
        let g = &self.geometry;
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
        match size.checked_div(self.geometry.start_block_size).and_then(u64::checked_ilog2).unwrap_or(0) {
            0 => 0,
            n => n.saturating_add(1),
        }
    }

    /// Gives the heap a root indirect block of `rows` rows in place of the root it has.
    fn set_root(&mut self, rows: u32) -> Result<()> {
        let (old, had) = (self.header.table.root, u32::from(self.header.table.root_rows));
        let mut entries = Vec::new();
        let mut covered = 0;
        if had > 0 {
            entries = self.indirect(old, had, 0)?.0.entries.clone();
            covered = self.capacity(had)?;
            self.indirect.remove(&old.0);
            self.freed.push((old, self.geometry.indirect_size(had)));
        } else if old.is_defined() {
            entries.push(Entry { address: old, ..NO_BLOCK });
            covered = self.header.table.start_block_size.saturating_sub(self.geometry.direct_overhead() as u64);
        }
        let more = self.capacity(rows)?.checked_sub(covered).ok_or_else(|| self.corrupt("a table that shrinks"))?;
        let span = self.geometry.block_offset(rows, 0).ok_or_else(|| self.too_large())?;
        self.header.table.root_rows = u16::try_from(rows).map_err(|_| self.too_large())?;
        self.header.table.root = self.new_indirect(rows, 0, entries)?;
        self.header.free_space = self.header.free_space.saturating_add(more);
        self.header.statistics.managed_size = span;
        Ok(())
    }

    /// Allocates a direct block for an object of `length` bytes.
    pub(super) fn next_block(&mut self, length: u64) -> Result<Place> {
        let overhead = self.geometry.direct_overhead() as u64;
        let (start, most) = (self.header.table.start_block_size, self.header.table.max_direct_size);
        let least = length.saturating_add(overhead).checked_next_power_of_two().unwrap_or(u64::MAX).max(start);
        if least > most {
            return Err(self.corrupt("managed objects may be larger than blocks"));
        }
        let root = self.header.table.root;
        if !root.is_defined() && least == start {
            let address = self.allocate(start)?;
            (self.header.table.root, self.header.table.root_rows) = (address, 0);
            self.header.free_space = self.header.free_space.saturating_add(start.saturating_sub(overhead));
            let s = &mut self.header.statistics;
            (s.managed_size, s.allocated_size) = (start, s.allocated_size.saturating_add(start));
            return Ok(Place { address, offset: 0, size: start, new: true });
        }
        if self.header.table.root_rows == 0 {
            let rows = match u32::from(self.header.table.start_root_rows) {
                0 => self.geometry.max_rows,
                n => n.max(self.row_of(least).saturating_add(1)),
            };
            if rows > self.geometry.max_rows {
                return Err(self.too_large());
            }
            self.set_root(rows)?;
            self.header.statistics.iterator = if root.is_defined() { start } else { 0 };
        }
        for _ in 0..STEPS_MAX {
            if let Some(place) = self.step(least)? {
                return Ok(place);
            }
        }
        Err(self.corrupt("the iterator does not come to an end"))
    }

    /// One step of the iterator to a place for a direct block of at least `least` bytes.
    fn step(&mut self, least: u64) -> Result<Option<Place>> {
        let too_large = self.too_large();
        let iterator = self.header.statistics.iterator;
        let mut block = (self.header.table.root, u32::from(self.header.table.root_rows), 0u64);
        // A child has fewer rows than its parent: at most 64 turns.
        loop {
            let g = &self.geometry;
            let Some((row, column)) = iterator.checked_sub(block.2).and_then(|o| g.locate(o)) else { return Err(too_large) };
            if row >= block.1 {
                // Only the root can be at its end: a child's end is in its parent's next entry.
                return self.double(block.1, least).map(|()| None);
            }
            let (Some(size), Some(at)) = (g.block_size(row), g.block_offset(row, column).and_then(|o| o.checked_add(block.2))) else {
                return Err(too_large);
            };
            if row < g.max_direct_rows {
                if size < least {
                    // Blocks too small for the object are passed over.
                    let next = self.row_of(least).min(block.1);
                    let next = g.block_offset(next, 0).and_then(|o| o.checked_add(block.2));
                    self.header.statistics.iterator = next.filter(|&n| n > iterator).ok_or(too_large)?;
                    return Ok(None);
                }
                if at != iterator || self.entry(block, row, column)?.address.is_defined() {
                    return Err(self.corrupt("the iterator is in a block"));
                }
                let address = self.allocate(size)?;
                self.set_entry(block, row, column, address)?;
                let s = &mut self.header.statistics;
                s.iterator = at.checked_add(size).ok_or(too_large)?;
                s.allocated_size = s.allocated_size.saturating_add(size);
                return Ok(Some(Place { address, offset: at, size, new: true }));
            }
            let Some(below) = g.child_rows(row).filter(|&n| n > 0 && n < block.1) else { return Err(too_large) };
            let mut address = self.entry(block, row, column)?.address;
            if !address.is_defined() {
                if self.geometry.block_size(below.saturating_sub(1)).is_none_or(|largest| largest < least) {
                    let next = self.geometry.block_offset(row.saturating_add(1), 0).and_then(|o| o.checked_add(block.2));
                    self.header.statistics.iterator = next.ok_or(too_large)?;
                    return Ok(None);
                }
                address = self.new_indirect(below, at, Vec::new())?;
                self.set_entry(block, row, column, address)?;
            }
            block = (address, below, at);
        }
    }

    /// Twice the rows, and enough for a block of `least` bytes.
    fn double(&mut self, rows: u32, least: u64) -> Result<()> {
        let needed = if rows < self.geometry.max_direct_rows { self.row_of(least).saturating_add(1) } else { 0 };
        let more = rows.saturating_mul(2).min(self.geometry.max_rows).max(needed);
        if more <= rows || more > self.geometry.max_rows {
            return Err(self.too_large());
        }
        self.set_root(more)
    }

    /// Address and size of every direct and indirect block.
    pub(super) fn block_extents(&mut self) -> Result<Vec<(Address, u64)>> {
        let t = &self.header.table;
        let (root, rows) = (t.root, u32::from(t.root_rows));
        if !root.is_defined() {
            return Ok(Vec::new());
        }
        if rows == 0 {
            return Ok(vec![(root, t.start_block_size)]);
        }
        let mut budget = Budget::new(self.store, NAME, self.at)?;
        let mut seen = HashSet::new();
        let mut extents = Vec::new();
        let mut open = vec![(root, rows, 0u64)];
        while let Some(block) = open.pop() {
            let g = self.geometry.clone();
            let size = g.indirect_size(block.1);
            budget.spend(size)?;
            extents.push((block.0, size));
            let entries = self.indirect(block.0, block.1, block.2)?.0.entries.clone();
            for (i, entry) in (0u64..).zip(entries).filter(|(_, e)| e.address.is_defined()) {
                let row = u32::try_from(i.checked_div(g.width).unwrap_or(0)).unwrap_or(u32::MAX);
                let column = i.checked_rem(g.width).unwrap_or(0);
                let at = g.block_offset(row, column).and_then(|o| o.checked_add(block.2));
                let (Some(size), Some(at), true) = (g.block_size(row), at, seen.insert(entry.address)) else {
                    return Err(self.corrupt("a block is reached twice, or is beyond the heap"));
                };
                if row < g.max_direct_rows {
                    budget.spend(size)?;
                    extents.push((entry.address, size));
                } else {
                    let below = g.child_rows(row).filter(|&n| n < block.1).ok_or_else(|| self.corrupt("too many rows"))?;
                    open.push((entry.address, below, at));
                }
            }
        }
        Ok(extents)
    }
}
