//! Sums the extents of a file: live, free and dead bytes, and what contradicts itself in them.

use super::NativeConnector;
use super::claims::{Claims, Depth, claim_all};
use super::file::HdfFile;
use crate::base::{Address, Error, Result};
use crate::connector::space::{Space, SpaceUse};
use crate::file::space::Ranges;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::Extent;
use std::ops::Range;

/// Most runs of adjacent extents that are remembered, to find bytes that are claimed twice.
const RUNS_MAX: usize = 1 << 22;

/// What is wrong with extents.
pub(super) enum Problem<'a> {
    /// A structure cannot be read. `again`: it is not the first one of its object.
    Unreadable { error: &'a Error, again: bool },
    /// Bytes of an extent belong to another one, too.
    ClaimedTwice(Extent, u64),
    /// Bytes of an extent are past the end of the file.
    PastEnd(Extent, u64),
    /// Bytes of a structure are named as free.
    FreeInUse(Range<u64>),
}

/// Receives a problem, and the object that has it.
pub(super) type Report<'a> = dyn FnMut(Option<Address>, Problem<'_>) + 'a;

/// Sums of one file.
pub(super) struct Sum<'a> {
    pub(super) used: SpaceUse,
    /// End of the file: the first address past it.
    end: u64,
    live: Ranges,
    free: Ranges,
    /// The object that was found damaged last.
    damaged: Option<Address>,
    report: &'a mut Report<'a>,
}

impl<'a> Sum<'a> {
    /// Of `file`; nothing is summed yet.
    pub(super) fn of(file: &HdfFile, report: &'a mut Report<'a>) -> Result<Self> {
        let (end, user_block) = (file.store.file_len()?, file.store.base());
        // Addresses that no member of the file has are in use for nothing else.
        let mut live = Ranges::default();
        let gaps = file.store.driver().gaps();
        gaps.iter().for_each(|gap| live.insert(gap.start.saturating_sub(user_block)..gap.end.saturating_sub(user_block)));
        let missing = gaps.iter().map(|gap| gap.end.saturating_sub(gap.start)).fold(0, u64::saturating_add);
        let total = end.saturating_add(user_block).saturating_sub(missing);
        let recorded_user_block = file.store.recorded_base();
        let used = SpaceUse { total, metadata: user_block, user_block, recorded_user_block, overlaps_checked: true, ..SpaceUse::default() };
        Ok(Sum { used, end, live, free: Ranges::default(), damaged: None, report })
    }

    /// Ranges that are neither live nor free, at most `most`.
    pub(super) fn dead(&self, most: usize) -> Vec<Range<u64>> {
        let gaps = self.live.split(0..self.end).into_iter().filter(|(_, is_live)| !is_live);
        let dead = gaps.flat_map(|(gap, _)| self.free.split(gap)).filter(|(_, is_free)| !is_free);
        dead.map(|(range, _)| range).take(most).collect()
    }

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
    fn live(&mut self, object: Option<Address>, extent: Extent) {
        let range = self.clip(extent.address.0, extent.len);
        let past_end = extent.len.saturating_sub(range.end.saturating_sub(range.start));
        let (new, known) = Self::add(&mut self.live, range, &mut self.used.overlaps_checked);
        if past_end > 0 {
            (self.report)(object, Problem::PastEnd(extent, past_end));
        }
        if known > 0 {
            (self.report)(object, Problem::ClaimedTwice(extent, known));
        }
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
            if is_live {
                (self.report)(None, Problem::FreeInUse(part.clone()));
            }
            let (new, known) = if is_live { (0, len) } else { Self::add(&mut self.free, part, &mut self.used.overlaps_checked) };
            self.used.free = self.used.free.saturating_add(new);
            self.used.claimed_twice = self.used.claimed_twice.saturating_add(known);
        }
    }

    fn damaged(&mut self, object: Option<Address>, error: &Error) {
        let again = object.is_some() && object == self.damaged;
        self.damaged = object;
        self.used.unreadable = self.used.unreadable.saturating_add((!again).into());
        (self.report)(object, Problem::Unreadable { error, again });
    }
}

impl Space for NativeConnector {
    fn space(&self, damaged: &mut dyn FnMut(&Error)) -> Result<SpaceUse> {
        let access = self.access();
        let file = self.file(0)?;
        let mut report = |_: Option<Address>, problem: Problem<'_>| {
            if let Problem::Unreadable { error, again: false } = problem {
                damaged(error);
            }
        };
        let mut sum = Sum::of(&file, &mut report)?;
        claim_all(&access, &file, Depth::Structures, &mut sum)?;
        Ok(sum.used)
    }
}
