//! Defined elements of datasets in sparse chunks: data and holes exact to the element, sets of
//! defined elements, and erasing.

use super::read::Chunked;
use super::write::ChunkWriter;
use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::cache::Found;
use crate::dataset::environment::Environment;
use crate::dataset::layout::traits::Seek;
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of chunks that one call of [`ChunkWriter::erase`] decodes, about.
const STEP_BYTES: u64 = 64 << 20;

/// Chunks whose sets are in memory at once.
const STEP_CHUNKS: usize = 1024;
/// Most blocks of one answer.
const BLOCKS_MAX: u64 = 1 << 22;

/// Sets of the chunks that one call looks at; `None`: the chunk is not stored.
type Sets = HashMap<u64, Option<ElementSet>>;

/// The part of the block `first .. end` of the dataset that lies in the chunk at `origin`, in the
/// chunk's coordinates.
fn local_block(origin: &[u64], chunk_dims: &[u64], first: &[u64], end: &[u64]) -> ElementSet {
    let local =
        |at: &[u64]| -> Vec<u64> { at.iter().zip(origin).zip(chunk_dims).map(|((x, o), n)| x.saturating_sub(*o).min(*n)).collect() };
    ElementSet::block(&local(first), &local(end))
}

impl Chunked {
    /// True if chunks know which of their elements were written.
    pub(super) fn knows_defined(&self) -> bool {
        self.format.knows_defined()
    }

    /// The defined elements of a chunk, in its own coordinates; `None` if it is not stored.
    /// `decode`: also keeps its decoded values in the cache, for a reader who comes next.
    fn defined_in(&self, env: &Environment, store: &Store, number: u64, decode: bool) -> Result<Option<ElementSet>> {
        let (key, scaled) = (self.key(number), self.grid.scaled(number));
        if self.grid.chunk_bytes() > env.whole_chunk_max() {
            return Err(Error::limit("chunk", Address::UNDEF, "sparse chunks of this size need a larger --cache-size"));
        }
        let set = match env.dirty.get(key) {
            Some(chunk) => chunk.image().defined().cloned(),
            None if decode || env.cache.contains(key) => self.decoded_set(env, store, number)?,
            None => match self.index.lookup(store, &scaled)? {
                Some(record) => self.format.defined(store, record, self.grid.is_edge(&scaled))?,
                None => None,
            },
        };
        let Some(set) = set else { return Ok(None) };
        if !self.grid.is_edge(&scaled) {
            return Ok(Some(set));
        }
        // Nothing past the extent is there.
        let origin = self.chunks.origin(&scaled).unwrap_or_default();
        let end: Vec<u64> = self.chunks.shape.iter().zip(&origin).map(|(n, at)| n.saturating_sub(*at)).collect();
        set.intersection(&ElementSet::block(&vec![0; end.len()], &end)).map(Some)
    }

    fn decoded_set(&self, env: &Environment, store: &Store, number: u64) -> Result<Option<ElementSet>> {
        let scaled = self.grid.scaled(number);
        let Some(record) = self.index.lookup(store, &scaled)? else { return Ok(None) };
        let load = || self.format.decode(store, record, self.grid.is_edge(&scaled));
        match env.cache.get(self.key(number), self.grid.chunk_bytes(), load)? {
            Found::Chunk(chunk) => Ok(chunk.image().defined().cloned()),
            Found::OnDisk(_) => Err(Error::corrupt("chunk", record.address, "a sparse chunk in the disk cache")),
        }
    }

    /// Numbers of dirty chunks, ascending.
    fn dirty_numbers(&self, env: &Environment) -> Vec<u64> {
        env.dirty.of(self.number).into_iter().map(|(key, _)| key.chunk).collect()
    }

    /// The first `STEP_CHUNKS` stored and dirty chunks with numbers in `range` for which `inside`
    /// returns true, ascending, and the number at which the next call begins.
    fn present(
        &self,
        env: &Environment,
        store: &Store,
        range: Range<u64>,
        inside: &dyn Fn(u64) -> bool,
    ) -> Result<(Vec<u64>, Option<u64>)> {
        let mut dirty = self.dirty_numbers(env);
        dirty.retain(|n| range.contains(n) && inside(*n));
        dirty.truncate(STEP_CHUNKS);
        let mut present = Vec::new();
        self.for_each_stored(store, range.start, &mut |number| {
            if number >= range.end || present.len() >= STEP_CHUNKS {
                return Ok(ControlFlow::Break(()));
            }
            if inside(number) {
                present.push(number);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        present.extend(dirty);
        present.sort_unstable();
        present.dedup();
        present.truncate(STEP_CHUNKS);
        let next = present.last().filter(|_| present.len() >= STEP_CHUNKS).map(|last| last.saturating_add(1));
        Ok((present, next))
    }

    /// Next defined ([`Seek::Data`]) or undefined byte at or after `offset`.
    pub(super) fn seek_defined(&self, env: &Environment, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let mut sets = Sets::new();
        let mut set_of = |number: u64| -> Result<Option<ElementSet>> {
            if let Some(set) = sets.get(&number) {
                return Ok(set.clone());
            }
            let set = self.defined_in(env, store, number, true)?;
            sets.insert(number, set.clone());
            Ok(set)
        };
        match what {
            Seek::Data => self.next_data(env, store, offset, &mut set_of),
            Seek::Hole => self.next_hole(offset, &mut set_of).map(Some),
        }
    }

    fn next_data(
        &self,
        env: &Environment,
        store: &Store,
        offset: u64,
        set_of: &mut dyn FnMut(u64) -> Result<Option<ElementSet>>,
    ) -> Result<Option<u64>> {
        let dirty = self.dirty_numbers(env);
        let mut seen = HashSet::new();
        let (mut at, mut best) = (offset, None);
        // Chunks in the order of their first bytes from `offset` on.
        while let Some(start) = self.grid.next_byte(at, &mut |range| self.first_unseen(store, &dirty, &seen, range))?
            && best.is_none_or(|best| start < best)
            && let Some((number, _)) = self.grid.chunk_at(start)
        {
            if let Some(set) = set_of(number)? {
                best = best.into_iter().chain(self.next_defined(number, &set, start)).min();
            }
            seen.insert(number);
            at = start;
        }
        Ok(best)
    }

    /// The first stored or dirty chunk in `range` that is not one of `seen`.
    fn first_unseen(&self, store: &Store, dirty: &[u64], seen: &HashSet<u64>, range: Range<u64>) -> Result<Option<u64>> {
        let mut from = range.start;
        while let Some(number) = self.first_present(store, dirty, from..range.end)? {
            if !seen.contains(&number) {
                return Ok(Some(number));
            }
            from = number.saturating_add(1);
        }
        Ok(None)
    }

    /// First defined byte of a chunk at or after byte `at` of the dataset, which lies in it.
    fn next_defined(&self, number: u64, set: &ElementSet, at: u64) -> Option<u64> {
        let (_, within) = self.grid.in_chunk(at)?;
        let size = self.chunks.element_size.max(1);
        let element = within / size;
        let next = set.next_element(&self.chunks.chunk_dims, element)?;
        if next == element { Some(at) } else { self.grid.byte_at(number, next.checked_mul(size)?) }
    }

    fn next_hole(&self, offset: u64, set_of: &mut dyn FnMut(u64) -> Result<Option<ElementSet>>) -> Result<u64> {
        let size = self.chunks.element_size.max(1);
        let mut at = offset;
        while let Some((number, end)) = self.grid.chunk_at(at)
            && let Some((_, within)) = self.grid.in_chunk(at)
        {
            let Some(set) = set_of(number)? else { return Ok(at) };
            let gap = set.next_gap(&self.chunks.chunk_dims, within / size).saturating_mul(size).max(within);
            let hole = at.saturating_add(gap.saturating_sub(within));
            if hole < end {
                return Ok(hole);
            }
            at = end;
        }
        Ok(self.grid.total())
    }

    /// The defined elements in the block `first .. end` of the dataset.
    pub(super) fn defined_elements(&self, env: &Environment, store: &Store, first: &[u64], end: &[u64]) -> Result<ElementSet> {
        let count: Vec<u64> = end.iter().zip(first).map(|(e, f)| e.saturating_sub(*f)).collect();
        let Some(range) = self.chunks.range(first, &count)? else { return Ok(ElementSet::default()) };
        let number = |scaled: &[u64]| self.grid.linear(scaled).ok_or_else(|| Error::limit("chunk grid", Address::UNDEF, "chunk numbers"));
        let (low, high) = (number(&range.first)?, number(&range.last)?);
        let inside = |n: u64| {
            let scaled = self.grid.scaled(n);
            scaled.iter().zip(range.first.iter().zip(&range.last)).all(|(s, (low, high))| low <= s && s <= high)
        };
        let blocks = AtomicU64::new(0);
        let one = |n: &u64| -> Result<ElementSet> {
            let past = || Error::limit("chunk grid", Address::UNDEF, "elements past 2^64");
            let origin = self.chunks.origin(&self.grid.scaled(*n)).ok_or_else(past)?;
            let wanted = local_block(&origin, &self.chunks.chunk_dims, first, end);
            let set = self.defined_in(env, store, *n, false)?.unwrap_or_default().intersection(&wanted)?;
            if blocks.fetch_add(set.blocks(), Ordering::Relaxed).saturating_add(set.blocks()) > BLOCKS_MAX {
                let reason = format!("more than {BLOCKS_MAX} blocks of defined elements: ask for a smaller selection");
                return Err(Error::refused(libc::EFBIG, reason));
            }
            set.moved(&origin).ok_or_else(past)
        };
        let mut defined = ElementSet::default();
        let mut next = Some(low);
        while let Some(from) = next {
            let numbers;
            (numbers, next) = self.present(env, store, from..high.saturating_add(1), &inside)?;
            let sets = env.pool.install(|| numbers.par_iter().map(one).collect::<Result<Vec<_>>>())?;
            let part = ElementSet::union_of(0..sets.len(), &|n| Ok(sets.get(n).cloned().unwrap_or_default()))?;
            defined = defined.union(&part)?;
        }
        Ok(defined)
    }
}

impl ChunkWriter<'_> {
    /// Makes the elements of the block `first .. end` undefined, from chunk number `from` on; frees
    /// chunks in which none is left. Returns whether the layout message changed, and the number of
    /// the chunk at which the next call begins.
    pub(crate) fn erase(&self, layout: &mut DataLayout, first: &[u64], end: &[u64], from: u64) -> Result<(bool, Option<u64>)> {
        let c = self.chunked;
        let count: Vec<u64> = end.iter().zip(first).map(|(e, f)| e.saturating_sub(*f)).collect();
        let Some(range) = self.grid.range(first, &count)? else { return Ok((false, None)) };
        let ends = c.grid.linear(&range.first).zip(c.grid.linear(&range.last));
        let (low, high) = ends.ok_or_else(|| Error::limit("chunk grid", Address::UNDEF, "chunk numbers"))?;
        let (mut changed, mut decoded) = (false, 0u64);
        let mut next = Some(low.max(from));
        while let Some(from) = next {
            let numbers;
            (numbers, next) = c.present(self.env, self.store, from..high.saturating_add(1), &|_| true)?;
            for number in numbers {
                if decoded > STEP_BYTES {
                    return Ok((changed, Some(number)));
                }
                let origin = self.grid.origin(&c.grid.scaled(number)).unwrap_or_default();
                let block = local_block(&origin, &self.grid.chunk_dims, first, end);
                if !block.is_empty() {
                    decoded = decoded.saturating_add(c.grid.chunk_bytes());
                    changed |= self.erase_in(layout, number, &block)?;
                }
            }
        }
        Ok((changed, None))
    }

    /// Makes the elements of `block` in a chunk undefined, given in the chunk's coordinates.
    /// Returns whether the layout message changed.
    fn erase_in(&self, layout: &mut DataLayout, number: u64, block: &ElementSet) -> Result<bool> {
        let c = self.chunked;
        let Some(set) = c.defined_in(self.env, self.store, number, false)? else { return Ok(false) };
        if set.intersection(block)?.is_empty() {
            return Ok(false);
        }
        if set.difference(block)?.is_empty() {
            let record = c.index.lookup(self.store, &c.grid.scaled(number))?;
            return self.free_chunk(layout, number, record);
        }
        let mut parts = Vec::new();
        let size = self.grid.element_size;
        block.for_each_run(&self.grid.chunk_dims, &mut |run| {
            let bytes = |n: u64| n.checked_mul(size).and_then(|n| usize::try_from(n).ok());
            let part = bytes(run.start).zip(bytes(run.end.saturating_sub(run.start)));
            parts.push(part.ok_or_else(|| Error::limit("chunk", Address::UNDEF, "size"))?);
            Ok(())
        })?;
        self.make_dirty(number)?.clear(&parts)?;
        Ok(false)
    }
}
