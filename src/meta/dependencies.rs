//! Which file bytes a cache entry was decoded from, so that a write invalidates only affected
//! entries.
//!
//! An entry is loaded from a store of its own, which records what it reads ([`Reads`]). An entry
//! that uses other entries also depends on their bytes.

use crate::base::Address;
use crate::base::locks::Mutex;
use foldhash::HashMap;
use std::any::TypeId;
use std::ops::Range;
use std::sync::Arc;

/// Cache key: address and decoded type.
pub type Key = (Address, TypeId);

/// An entry decoded from more ranges is invalidated by any write.
const RANGES_MAX: usize = 128;
/// Granularity of the index, bytes.
const BLOCK_BYTES: u64 = 4096;
/// An entry that spans more blocks is invalidated by any write.
const BLOCKS_MAX: u64 = 256;
/// With more records than this the whole cache is cleared; a record takes about 50 bytes.
const RECORDS_MAX: usize = 1 << 17;

/// Address ranges that an entry was decoded from.
pub type Sources = Arc<[Range<u64>]>;

/// The bytes that one load reads; an entry that it uses counts as read where that was decoded from.
#[derive(Default)]
pub struct Reads(Mutex<Vec<Range<u64>>>);

impl Reads {
    /// Records that the load read `range`.
    pub fn add(&self, range: Range<u64>) {
        add(&mut self.0.lock(), range);
    }

    /// Records that the load used an entry decoded from `sources`.
    pub fn add_sources(&self, sources: &Sources) {
        let mut ranges = self.0.lock();
        sources.iter().for_each(|r| add(&mut ranges, r.clone()));
    }

    /// What the load read.
    pub fn into_sources(self) -> Sources {
        self.0.into_inner().into()
    }
}

fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let full = ranges.len() >= RANGES_MAX;
    match ranges.last_mut() {
        Some(last) if last.start <= range.start && range.start <= last.end => last.end = last.end.max(range.end),
        _ if full => {
            ranges.clear();
            ranges.push(0..u64::MAX);
        }
        _ => ranges.push(range),
    }
}

/// Finds the entries decoded from given bytes.
#[derive(Default)]
pub struct Index {
    blocks: HashMap<u64, Vec<(Key, Range<u64>)>>,
    /// Entries that any write invalidates.
    wide: Vec<Key>,
    records: usize,
}

/// Numbers of the blocks that `range` overlaps.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

impl Index {
    /// Adds an entry. Returns false when the index is full: the caller must clear it and the cache.
    #[must_use]
    pub fn insert(&mut self, key: Key, sources: &Sources) -> bool {
        if self.records > RECORDS_MAX {
            return false;
        }
        let reach = |r: &Range<u64>| blocks(r).end.saturating_sub(blocks(r).start);
        if sources.iter().map(reach).fold(0, u64::saturating_add) > BLOCKS_MAX {
            self.wide.push(key);
            self.records = self.records.saturating_add(1);
            return true;
        }
        for range in sources.iter() {
            for block in blocks(range) {
                self.blocks.entry(block).or_default().push((key, range.clone()));
                self.records = self.records.saturating_add(1);
            }
        }
        true
    }

    /// Removes and returns the entries that overlap `range`; other blocks may still list them.
    pub fn invalidate(&mut self, range: &Range<u64>) -> Vec<Key> {
        let mut gone = std::mem::take(&mut self.wide);
        let reach = blocks(range);
        if reach.end.saturating_sub(reach.start) > self.blocks.len() as u64 {
            let there: Vec<u64> = self.blocks.keys().copied().filter(|b| reach.contains(b)).collect();
            there.into_iter().for_each(|block| self.invalidate_block(block, range, &mut gone));
        } else {
            reach.for_each(|block| self.invalidate_block(block, range, &mut gone));
        }
        self.records = self.records.saturating_sub(gone.len());
        gone
    }

    /// Moves the entries of `block` that overlap `range` to `gone`.
    fn invalidate_block(&mut self, block: u64, range: &Range<u64>, gone: &mut Vec<Key>) {
        let Some(entries) = self.blocks.get_mut(&block) else { return };
        entries.retain(|(key, source)| {
            let stays = source.end <= range.start || range.end <= source.start;
            if !stays {
                gone.push(*key);
            }
            stays
        });
        if entries.is_empty() {
            self.blocks.remove(&block);
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Index::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;
    use std::any::TypeId;

    fn key(n: u64) -> Key {
        (Address(n), TypeId::of::<u8>())
    }

    #[test]
    fn writes_invalidate_overlapping_entries() {
        let mut index = Index::default();
        let sources = |ranges: &[Range<u64>]| -> Sources { ranges.into() };
        assert!(index.insert(key(1), &sources(&[0..100, 5000..5100])));
        let second = 100..8192;
        assert!(index.insert(key(2), &sources(std::slice::from_ref(&second))));
        let all = 0..u64::MAX;
        assert!(index.insert(key(3), &sources(std::slice::from_ref(&all))));
        assert_eq!(index.invalidate(&(8192..9000)), [key(3)]);
        assert_eq!(index.invalidate(&(99..100)), [key(1)]);
        assert_eq!(index.invalidate(&(4096..4097)), [key(2)]);
        let mut rest = index.invalidate(&(0..1 << 40));
        rest.sort_unstable();
        assert_eq!(rest, [key(1), key(2)], "of their other blocks");
        assert!(index.blocks.is_empty());
        let many: Vec<_> = (0..1000).map(|i| i * 10..i * 10 + 1).collect();
        let reads = Reads::default();
        many.iter().for_each(|r| reads.add(r.clone()));
        assert!(reads.into_sources().contains(&(0..u64::MAX)));
    }
}
