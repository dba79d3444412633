//! Allocator of a file's space.
//!
//! Three kinds of space: *fresh* space was allocated since the last commit, so that the durable
//! state does not reference it and it may be written in place; *free* space is referenced neither
//! by the present nor by the durable state; *freed* space is still referenced by the durable state
//! and becomes free with the next commit.
//!
//! While a mount follows the file, space that a commit makes free *rests* first: the follower may
//! still read the state before that commit.
//!
//! Files with paged file space follow libhdf5's rules for its page buffer (H5MF.c): a block shorter
//! than a page is in one page with blocks of its kind only; a longer one starts a page and owns its
//! last page.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

mod free_list;
mod ranges;
mod recorded;
mod retained;

use free_list::FreeList;
pub use ranges::Ranges;
use recorded::Recorded;

/// Length of the space for small metadata, bytes.
const RESERVE_BYTES: u64 = 8 << 10;
/// Time that freed space rests while a mount follows the file.
pub const REST: Duration = Duration::from_secs(5);
/// Commits within this time share one entry of resting space.
const REST_BATCH_WINDOW: Duration = Duration::from_millis(250);

/// Free and allocated space of a file without what is free at its end, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Free.
    pub free: u64,
    /// Free in one range, at most.
    pub largest: u64,
    /// Free after the next commit.
    pub freed: u64,
    /// End of allocated space.
    pub end: u64,
}

/// Use of space; relevant only in files with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// Metadata.
    Metadata,
    /// Elements and global heaps.
    Raw,
}

/// Pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Bytes of a page.
    pub size: u64,
    /// Offset of the first page.
    pub origin: u64,
}

impl Pages {
    /// Start of the page that holds `at`.
    fn down(&self, at: u64) -> u64 {
        let within = at.saturating_sub(self.origin) % self.size.max(1);
        at.saturating_sub(within)
    }

    /// `at`, rounded up to the start of a page.
    pub fn up(&self, at: u64) -> Option<u64> {
        let start = self.down(at);
        if start == at { Some(at) } else { start.checked_add(self.size) }
    }

    /// The part of `range` that consists of whole pages.
    fn whole(&self, range: Range<u64>) -> Range<u64> {
        let start = self.up(range.start).unwrap_or(u64::MAX);
        start..self.down(range.end).max(start)
    }

    /// A place for `len` bytes in `range`, at a multiple of `align` and within one page.
    fn fit(&self, range: Range<u64>, len: u64, align: u64) -> Option<Range<u64>> {
        let mut at = range.start.checked_next_multiple_of(align)?;
        loop {
            let end = at.checked_add(len).filter(|end| *end <= range.end)?;
            let last = self.down(end.saturating_sub(1));
            if last <= at {
                return Some(at..end);
            }
            at = last.checked_next_multiple_of(align)?;
        }
    }
}

/// Freed space that must not be reused yet.
#[derive(Debug)]
struct Resting {
    /// Times of the first and the last commit that freed it.
    times: Range<Instant>,
    space: Ranges,
    parts: [Ranges; 2],
}

/// Allocator of one file. Offsets are absolute.
#[derive(Debug, Default)]
pub struct Space {
    /// Free space; in files with pages, whole pages.
    free: FreeList,
    /// Free parts of pages, by pool: metadata, raw.
    parts: [FreeList; 2],
    /// Space for small metadata, before raw data at the end of the file: metadata past raw data
    /// would keep the file from being truncated when the raw data goes. Free space after a trim.
    reserve: FreeList,
    fresh: Ranges,
    freed: Ranges,
    /// Freed parts of pages, by pool.
    freed_parts: [Ranges; 2],
    /// Resting space, oldest first.
    resting: VecDeque<Resting>,
    /// End of allocated space.
    end: u64,
    /// Initial end.
    initial_end: u64,
    /// Allocations that span the initial end.
    spanning: Ranges,
    pages: Option<Pages>,
    /// Freed space stays out of use.
    retains: bool,
    recorded: Recorded,
}

fn of<T>(both: &mut [T; 2], pool: Pool) -> &mut T {
    let [metadata, raw] = both;
    match pool {
        Pool::Metadata => metadata,
        Pool::Raw => raw,
    }
}

impl Space {
    /// An allocator with all bytes up to `end` in use.
    pub fn new(end: u64) -> Self {
        Space { end, initial_end: end, ..Space::default() }
    }

    /// Sets the file's pages and rounds the end up to a page. Called before the first allocation.
    pub fn set_pages(&mut self, pages: Pages) {
        self.pages = Some(pages).filter(|p| p.size > 0);
        self.end = pages.up(self.end).unwrap_or(self.end);
    }

    /// The file's pages, if it has any.
    pub fn pages(&self) -> Option<Pages> {
        self.pages
    }

    /// Initial end of allocated space.
    pub fn initial_end(&self) -> u64 {
        self.initial_end
    }

    /// `at`, rounded up to a page if the file has pages; `None` if that exceeds 2^64 bytes.
    pub fn up(&self, at: u64) -> Option<u64> {
        match self.pages {
            Some(pages) => pages.up(at),
            None => Some(at),
        }
    }

    /// End of allocated space.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Allocates `len` bytes at a multiple of `align`; `None` if the file would exceed 2^63 bytes.
    /// In a file with pages a block of a page or more starts a page, whatever `align` is.
    pub fn allocate(&mut self, len: u64, align: u64, pool: Pool) -> Option<u64> {
        let align = align.max(1);
        if !self.resting.is_empty()
            && let Some(then) = Instant::now().checked_sub(REST)
        {
            self.end_rest_since(Some(then));
        }
        let Some(pages) = self.pages else { return self.take_reserved(len, align, pool) };
        if len >= pages.size {
            let end = pages.origin.checked_add(len).and_then(|end| pages.up(end))?;
            return self.take(end.saturating_sub(pages.origin), 1);
        }
        if let Some(at) = self.take_part(pages, len, align, pool) {
            return Some(at);
        }
        let page = self.take(pages.size, 1)?;
        let page = page..page.saturating_add(pages.size);
        self.fresh.remove(page.clone());
        of(&mut self.parts, pool).insert(page);
        // Ignores `align` if the aligned block does not fit into a page.
        self.take_part(pages, len, align, pool).or_else(|| self.take_part(pages, len, 1, pool))
    }

    fn take_part(&mut self, pages: Pages, len: u64, align: u64, pool: Pool) -> Option<u64> {
        let list = of(&mut self.parts, pool);
        // On one side of the end of a page.
        let enough = len.saturating_add(align).saturating_mul(2);
        let range = list.find_fitting(len, align, enough, |range| pages.fit(range, len, align))?;
        list.remove(range.clone());
        self.note_allocated(range.clone());
        Some(range.start)
    }

    /// Takes small metadata from the reserve, which raw data that extends the file makes.
    fn take_reserved(&mut self, len: u64, align: u64, pool: Pool) -> Option<u64> {
        if pool == Pool::Metadata
            && len <= RESERVE_BYTES / 4
            && let Some(range) = self.reserve.find(len, align)
        {
            self.reserve.remove(range.clone());
            self.note_allocated(range.clone());
            return Some(range.start);
        }
        let extends = pool == Pool::Raw && len >= RESERVE_BYTES && self.free.find(len, align).is_none();
        if extends && self.reserve.ranges.len() < RESERVE_BYTES / 4 {
            let start = self.trim();
            let end = start.checked_add(RESERVE_BYTES)?;
            self.end = end;
            self.reserve.insert(start..end);
        }
        self.take(len, align)
    }

    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        if let Some(range) = self.free.find(len, align) {
            self.free.remove(range.clone());
            self.note_allocated(range.clone());
            return Some(range.start);
        }
        // The allocation starts in free space at the end, if any.
        let mut start = self.end;
        if let Some(last) = self.free.ranges.last()
            && last.end == self.end
        {
            start = last.start;
        }
        let at = match self.pages {
            Some(pages) => pages.up(start)?,
            None => start.checked_next_multiple_of(align)?,
        };
        let end = at.checked_add(len).filter(|&e| i64::try_from(e).is_ok())?;
        if start < self.end {
            self.free.remove(start..self.end);
        }
        if at > start && self.pages.is_none() {
            self.free.insert(start..at);
        }
        // The search is limited, so that the range at the end may be larger than needed.
        if end < self.end {
            self.free.insert(end..self.end);
        }
        self.note_allocated(at..end);
        if at < self.initial_end && end > self.initial_end {
            self.spanning.insert(at..end);
        }
        self.end = end.max(self.end);
        Some(at)
    }

    /// Frees bytes: at once if the durable state does not reference them, else with the next
    /// commit. In a file with pages `range` is a whole block; the last page of a long one is freed
    /// with it.
    pub fn free(&mut self, range: Range<u64>, pool: Pool) {
        let Some((mut range, pool)) = self.reusable(range, pool) else { return };
        // A damaged file may free a block that spans its EOF; bytes past it belong to later
        // allocations.
        if range.start < self.initial_end
            && range.end > self.initial_end
            && self.spanning.split(range.clone()).iter().any(|(_, inside)| !inside)
        {
            range.end = self.initial_end;
        }
        for (part, fresh) in self.fresh.split(range) {
            if fresh {
                self.fresh.remove(part.clone());
                self.release(part, pool);
            } else {
                // A damaged file may free bytes twice; those that are free already may be allocated
                // before the commit.
                let known = match pool {
                    None => &self.free,
                    Some(pool) => of(&mut self.parts, pool),
                };
                let mut parts = known.ranges.split(part);
                for resting in &mut self.resting {
                    let known = pool.map_or(&resting.space, |pool| &*of(&mut resting.parts, pool));
                    parts = parts.into_iter().filter(|(_, free)| !free).flat_map(|(part, _)| known.split(part)).collect();
                }
                for (part, _) in parts.into_iter().filter(|(_, free)| !free) {
                    match pool {
                        None => self.freed.insert(part),
                        Some(pool) => of(&mut self.freed_parts, pool).insert(part),
                    }
                }
            }
        }
    }

    /// The part of `range` that can be reused, and the pool of its page; `None` for whole pages.
    fn reusable(&self, range: Range<u64>, pool: Pool) -> Option<(Range<u64>, Option<Pool>)> {
        let Some(pages) = self.pages else { return Some((range, None)) };
        if range.end.saturating_sub(range.start) < pages.size {
            // A short block that spans pages was not allocated by these rules: it is lost.
            let within = range.end > range.start && pages.down(range.start) == pages.down(range.end.saturating_sub(1));
            return within.then_some((range, Some(pool)));
        }
        let end = match pages.down(range.start) == range.start {
            true => pages.up(range.end).filter(|e| *e <= self.end).unwrap_or(range.end),
            false => range.end,
        };
        Some((pages.whole(range.start..end), None))
    }

    /// Adds bytes to free space; pages that become free as a whole leave their pool.
    fn release(&mut self, range: Range<u64>, pool: Option<Pool>) {
        self.recorded.freed();
        let (Some(pool), Some(pages)) = (pool, self.pages) else { return self.free.insert(range) };
        let list = of(&mut self.parts, pool);
        list.insert(range.clone());
        let Some(joined) = list.ranges.containing(range.start) else { return };
        let whole = pages.whole(joined);
        if !whole.is_empty() {
            list.remove(whole.clone());
            self.free.insert(whole);
        }
    }

    /// Adds bytes to free space that no durable structure references: parts of pages of a pool, or
    /// bytes for any use.
    pub fn add_free(&mut self, range: Range<u64>, pool: Option<Pool>) {
        self.release(range, pool);
    }

    fn note_allocated(&mut self, range: Range<u64>) {
        self.recorded.allocated(&range);
        self.fresh.insert(range);
    }

    /// Makes allocated bytes fresh until the next commit.
    pub fn renew(&mut self, range: Range<u64>) {
        self.note_allocated(range);
    }

    /// Allocates `len` bytes, in a file with pages whole pages, past all that is in use; returns
    /// their range. `None` if the file would exceed 2^63 bytes.
    pub fn append(&mut self, len: u64) -> Option<Range<u64>> {
        let at = self.trim();
        let (at, end) = match self.pages {
            Some(pages) => {
                let at = pages.up(at)?;
                (at, pages.up(at.checked_add(len)?)?)
            }
            None => (at, at.checked_add(len)?),
        };
        if i64::try_from(end).is_err() {
            return None;
        }
        self.note_allocated(at..end);
        if at < self.initial_end && end > self.initial_end {
            self.spanning.insert(at..end);
        }
        self.end = end;
        Some(at..end)
    }

    /// Frees all resting space, at the end of the session or when the disk is full.
    pub fn end_rest(&mut self) {
        self.end_rest_since(None);
    }

    /// The parts of `range` that may be written in place (true).
    pub fn split_fresh(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        self.fresh.split(range)
    }

    /// True if the next commit makes space free.
    pub fn has_freed(&self) -> bool {
        let freed = !self.freed.is_empty() || self.freed_parts.iter().any(|r| !r.is_empty()) || !self.resting.is_empty();
        freed && !self.retains
    }

    /// Ends a commit: fresh space is in use, freed space is free, with `rest` only after [`REST`].
    pub fn committed(&mut self, rest: bool) {
        self.fresh.clear();
        let (space, parts) = (std::mem::take(&mut self.freed), std::mem::take(&mut self.freed_parts));
        self.start_rest(space, parts);
        if !rest {
            self.end_rest_since(None);
        }
    }

    fn start_rest(&mut self, space: Ranges, parts: [Ranges; 2]) {
        if space.is_empty() && parts.iter().all(Ranges::is_empty) {
            return;
        }
        let now = Instant::now();
        match self.resting.back_mut().filter(|last| now.duration_since(last.times.start) < REST_BATCH_WINDOW) {
            Some(last) => {
                last.times.end = now;
                space.iter().for_each(|r| last.space.insert(r));
                for (all, more) in last.parts.iter_mut().zip(parts) {
                    more.iter().for_each(|r| all.insert(r));
                }
            }
            None => self.resting.push_back(Resting { times: now..now, space, parts }),
        }
    }

    /// Frees space that has rested since `then`; all resting space for `None`.
    fn end_rest_since(&mut self, then: Option<Instant>) {
        while !self.retains && self.resting.front().is_some_and(|r| then.is_none_or(|then| r.times.end <= then)) {
            let Some(Resting { space, parts: [metadata, raw], .. }) = self.resting.pop_front() else { return };
            self.recorded.freed();
            self.free.insert_all(&space);
            metadata.iter().for_each(|r| self.release(r, Some(Pool::Metadata)));
            raw.iter().for_each(|r| self.release(r, Some(Pool::Raw)));
        }
    }

    /// Removes free space at the end; returns the new end.
    pub fn trim(&mut self) -> u64 {
        for range in std::mem::take(&mut self.reserve).ranges.iter() {
            self.free.insert(range);
        }
        if let Some(last) = self.free.ranges.last()
            && last.end == self.end
        {
            self.end = last.start;
            self.free.remove(last);
        }
        self.end
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(|l| l.ranges.len()).sum();
        self.free.ranges.len().saturating_add(parts)
    }

    /// Free and allocated space.
    pub fn usage(&self) -> SpaceUsage {
        let resting: u64 = self.resting.iter().map(|r| r.space.len()).sum();
        let tail = self.free.ranges.last().filter(|last| last.end == self.end);
        let end = tail.map_or(self.end, |last| last.start);
        let largest = self.free.sizes.iter().rev().find(|(_, start)| *start < end).map_or(0, |(size, _)| *size);
        let free = self.free_bytes().saturating_sub(self.end.saturating_sub(end));
        SpaceUsage { free, largest, freed: self.freed.len().saturating_add(resting), end }
    }

    /// Free ranges, ascending; in a file with pages only whole pages.
    pub fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.free.ranges.iter()
    }

    /// Free parts of pages, ascending: of metadata, of raw data.
    pub fn free_parts(&self) -> [impl Iterator<Item = Range<u64>> + '_; 2] {
        self.parts.each_ref().map(|list| list.ranges.iter())
    }
}

#[cfg(test)]
mod tests;
