//! Sums the extents of a file: live, free and dead bytes.

use super::NativeConnector;
use super::claims::{Claims, claim_all};
use crate::base::{Address, Error, Result};
use crate::connector::space::{Space, SpaceUse};
use crate::file::space::Ranges;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::Extent;
use std::ops::Range;

/// Most runs of adjacent extents that are remembered, to find bytes that are claimed twice.
const RUNS_MAX: usize = 1 << 22;

/// Sums of one file.
struct Sum<'a> {
    used: SpaceUse,
    /// End of the file: the first address past it.
    end: u64,
    live: Ranges,
    free: Ranges,
    /// The object that was found damaged last.
    damaged: Option<Address>,
    report: &'a mut dyn FnMut(&Error),
}

impl Sum<'_> {
    /// Adds the part of `range` in the file to `set`. Returns the bytes that were not in the set,
    /// and those that were. Assumes that none was once the set is full.
    fn add(set: &mut Ranges, range: Range<u64>, checked: &mut bool) -> (u64, u64) {
        let len = |r: &Range<u64>| r.end.saturating_sub(r.start);
        if set.count() >= RUNS_MAX {
            *checked = false;
            return (len(&range), 0);
        }
        let (mut new, mut known) = (0u64, 0u64);
        for (part, is_known) in set.split(range.clone()) {
            let sum = if is_known { &mut known } else { &mut new };
            *sum = sum.saturating_add(len(&part));
        }
        set.insert(range);
        (new, known)
    }

    /// The part of a range that is in the file.
    fn clip(&self, start: u64, len: u64) -> Range<u64> {
        let start = start.min(self.end);
        start..start.saturating_add(len).min(self.end)
    }
}

impl Claims for Sum<'_> {
    fn live(&mut self, _object: Option<Address>, extent: Extent) {
        let range = self.clip(extent.address.0, extent.len);
        let past_end = extent.len.saturating_sub(range.end.saturating_sub(range.start));
        let (new, known) = Self::add(&mut self.live, range, &mut self.used.overlaps_checked);
        let used = &mut self.used;
        used.past_end = used.past_end.saturating_add(past_end);
        used.claimed_twice = used.claimed_twice.saturating_add(known);
        let sum = match extent.kind {
            _ if extent.shared => &mut used.heap,
            SpaceKind::Raw => &mut used.raw,
            SpaceKind::Metadata | SpaceKind::GlobalHeap => &mut used.metadata,
        };
        *sum = sum.saturating_add(new);
    }

    fn free(&mut self, range: Range<u64>) {
        let range = self.clip(range.start, range.end.saturating_sub(range.start));
        for (part, is_live) in self.live.split(range) {
            let len = part.end.saturating_sub(part.start);
            let (new, known) = if is_live { (0, len) } else { Self::add(&mut self.free, part, &mut self.used.overlaps_checked) };
            self.used.free = self.used.free.saturating_add(new);
            self.used.claimed_twice = self.used.claimed_twice.saturating_add(known);
        }
    }

    fn damaged(&mut self, object: Option<Address>, error: &Error) {
        // The first damage of an object is reported.
        if object.is_none() || object != self.damaged {
            self.damaged = object;
            self.used.unreadable = self.used.unreadable.saturating_add(1);
            (self.report)(error);
        }
    }
}

impl Space for NativeConnector {
    fn space(&self, damaged: &mut dyn FnMut(&Error)) -> Result<SpaceUse> {
        let _shared = self.shared();
        let file = self.file(0)?;
        let (end, user_block) = (file.store.file_len()?, file.store.base());
        let total = end.saturating_add(user_block);
        let used = SpaceUse { total, metadata: user_block, overlaps_checked: true, ..SpaceUse::default() };
        let mut sum = Sum { used, end, live: Ranges::default(), free: Ranges::default(), damaged: None, report: damaged };
        claim_all(self, &file, &mut sum)?;
        Ok(sum.used)
    }
}
