//! Which bytes of the file are in use, by which time they may be used again.
//!
//! Three kinds of space: *fresh* was allocated since the last commit, so nothing durable points there and
//! it may be written in place; *free* is pointed to by nothing, neither now nor in the durable state;
//! *freed* is still pointed to by the durable state and becomes free with the next commit.
//!
//! While a mount follows the file, space that a commit would make free is *resting* first: the follower may still read
//! the state before that commit, and finds nothing else there.
//!
//! Files with paged file space keep apart what libhdf5's page buffer reads a page at a time (H5MF.c): blocks shorter
//! than a page lie within one that holds only blocks of their kind, longer ones begin a page and have all of their last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Range};
use std::time::{Duration, Instant};

/// How long space that a commit freed stays as it is while a mount follows the file.
pub const REST: Duration = Duration::from_secs(5);
/// Space freed within this time is kept as one.
const REST_STEP: Duration = Duration::from_millis(250);

/// Disjoint ranges, neighbours joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, which may overlap others.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&s, &e)) = self.0.range(..=start).next_back()
            && e >= start
        {
            if e >= end {
                return;
            }
            start = s;
        }
        while let Some((&s, &e)) = self.0.range((Bound::Excluded(range.start), Bound::Included(end))).next() {
            self.0.remove(&s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes out what lies in `range`; returns what was there.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        if range.is_empty() {
            return out;
        }
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        let touched: Vec<_> = self.0.range(first..range.end).map(|(&s, &e)| s..e).filter(|r| r.end > range.start).collect();
        for r in touched {
            self.0.remove(&r.start);
            if r.start < range.start {
                self.0.insert(r.start, range.start);
            }
            if r.end > range.end {
                self.0.insert(range.end, r.end);
            }
            out.push(r.start.max(range.start)..r.end.min(range.end));
        }
        out
    }

    /// The parts of `range` that are in the set (true) or not (false), in order.
    pub fn split(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let before = self.0.range(..=range.start).next_back();
        if before.is_some_and(|(_, &e)| e >= range.end) && !range.is_empty() {
            return vec![(range, true)];
        }
        let mut out = Vec::new();
        let mut at = range.start;
        let first = before.map_or(range.start, |(&s, _)| s);
        for (&s, &e) in self.0.range(first..range.end.max(first)) {
            if e <= at {
                continue;
            }
            if s > at {
                out.push((at..s, false));
            }
            let stop = e.min(range.end);
            out.push((s.max(at)..stop, true));
            at = stop;
        }
        if at < range.end {
            out.push((at..range.end, false));
        }
        out
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&s, &e)| s..e)
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.iter().map(|r| r.end.saturating_sub(r.start)).sum()
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Free ranges that can be found by their sizes.
#[derive(Debug, Default)]
struct FreeList {
    ranges: Ranges,
    sizes: BTreeSet<(u64, u64)>,
}

impl FreeList {
    fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // What a damaged file gives back twice would be given out twice.
        for (part, _) in self.ranges.split(range.clone()).into_iter().filter(|(_, free)| *free) {
            self.remove(part);
        }
        self.ranges.insert(range.clone());
        // The joined range that now holds it replaces its neighbours.
        let Some((&s, &e)) = self.ranges.0.range(..=range.start).next_back() else { return };
        for edge in [s..range.start, range.end..e] {
            if !edge.is_empty() {
                self.sizes.remove(&(edge.end.saturating_sub(edge.start), edge.start));
            }
        }
        self.sizes.insert((e.saturating_sub(s), s));
    }

    fn remove(&mut self, range: Range<u64>) {
        let Some((&s, &e)) = self.ranges.0.range(..=range.start).next_back() else { return };
        self.sizes.remove(&(e.saturating_sub(s), s));
        self.ranges.remove(range.clone());
        for edge in [s..range.start, range.end..e] {
            if !edge.is_empty() {
                self.sizes.insert((edge.end.saturating_sub(edge.start), edge.start));
            }
        }
    }

    /// The smallest range with room for `len` bytes at a multiple of `align`.
    fn find(&self, len: u64, align: u64) -> Option<Range<u64>> {
        let fits = |&(size, start): &(u64, u64)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(len)?;
            (end <= start.saturating_add(size)).then_some(at..end)
        };
        self.sizes.range((len, 0)..).take(64).find_map(fits)
    }
}

/// What space is for, which counts only in files with pages.
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
    /// Bytes of one.
    pub size: u64,
    /// Where the first begins.
    pub origin: u64,
}

impl Pages {
    /// Where the page of `at` begins.
    fn down(&self, at: u64) -> u64 {
        let within = at.saturating_sub(self.origin) % self.size.max(1);
        at.saturating_sub(within)
    }

    /// `at`, or where the next page begins.
    pub fn up(&self, at: u64) -> Option<u64> {
        let start = self.down(at);
        if start == at { Some(at) } else { start.checked_add(self.size) }
    }

    /// The whole pages within `range`.
    fn whole(&self, range: Range<u64>) -> Range<u64> {
        let start = self.up(range.start).unwrap_or(u64::MAX);
        start..self.down(range.end).max(start)
    }

    /// A place for `len` bytes in `range` at a multiple of `align` that lies within one page.
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

/// Space that commits freed and that nothing may use yet.
#[derive(Debug)]
struct Resting {
    /// When the first and the last of it were freed.
    times: Range<Instant>,
    space: Ranges,
    parts: [Ranges; 2],
}

/// See the module's description. Offsets are absolute.
#[derive(Debug, Default)]
pub struct Space {
    /// In files with pages: whole ones.
    free: FreeList,
    /// Parts of pages with metadata, and of those with elements.
    parts: [FreeList; 2],
    fresh: Ranges,
    freed: Ranges,
    /// As `parts`.
    freed_parts: [Ranges; 2],
    /// Oldest first.
    resting: VecDeque<Resting>,
    /// End of what was ever allocated.
    end: u64,
    /// Its end at first.
    first: u64,
    /// What was allocated across that.
    across: Ranges,
    pages: Option<Pages>,
}

fn of<T>(both: &mut [T; 2], pool: Pool) -> &mut T {
    let [metadata, raw] = both;
    match pool {
        Pool::Metadata => metadata,
        Pool::Raw => raw,
    }
}

impl Space {
    /// All bytes up to `end` are in use.
    pub fn new(end: u64) -> Self {
        Space { end, first: end, ..Space::default() }
    }

    /// The file has pages, and ends with one. Called before anything is allocated.
    pub fn set_pages(&mut self, pages: Pages) {
        self.pages = Some(pages).filter(|p| p.size > 0);
        self.end = pages.up(self.end).unwrap_or(self.end);
    }

    /// The file's pages, if it has any.
    pub fn pages(&self) -> Option<Pages> {
        self.pages
    }

    /// End of what is allocated.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Takes `len` bytes at a multiple of `align`; `None` when the file would pass 2^63 bytes. In a file with pages
    /// what is longer than one begins one, whatever `align` is.
    pub fn allocate(&mut self, len: u64, align: u64, pool: Pool) -> Option<u64> {
        let align = align.max(1);
        if !self.resting.is_empty()
            && let Some(then) = Instant::now().checked_sub(REST)
        {
            self.wake(Some(then));
        }
        let Some(pages) = self.pages else { return self.take(len, align) };
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
        // A multiple of `align` that leaves enough of a page is no must.
        self.take_part(pages, len, align, pool).or_else(|| self.take_part(pages, len, 1, pool))
    }

    fn take_part(&mut self, pages: Pages, len: u64, align: u64, pool: Pool) -> Option<u64> {
        let list = of(&mut self.parts, pool);
        let mut sizes = list.sizes.range((len, 0)..).take(64);
        let range = sizes.find_map(|&(size, start)| pages.fit(start..start.saturating_add(size), len, align))?;
        list.remove(range.clone());
        self.fresh.insert(range.clone());
        Some(range.start)
    }

    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        if let Some(range) = self.free.find(len, align) {
            self.free.remove(range.clone());
            self.fresh.insert(range.clone());
            return Some(range.start);
        }
        // Free space at the end is the front of what is needed.
        let mut start = self.end;
        if let Some((&s, &e)) = self.free.ranges.0.iter().next_back()
            && e == self.end
        {
            start = s;
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
        // Not every range is looked at, so that one at the end may be larger than what is needed.
        if end < self.end {
            self.free.insert(end..self.end);
        }
        self.fresh.insert(at..end);
        if at < self.first && end > self.first {
            self.across.insert(at..end);
        }
        self.end = end.max(self.end);
        Some(at)
    }

    /// Gives bytes back: at once if nothing durable points there, else with the next commit. Where the file has
    /// pages, whole blocks are given back: the last page of a long one goes with it.
    pub fn free(&mut self, range: Range<u64>, pool: Pool) {
        let Some((mut range, pool)) = self.sorted(range, pool) else { return };
        // What a damaged file says lies behind its end is somebody else's by now.
        if range.start < self.first && range.end > self.first && self.across.split(range.clone()).iter().any(|(_, inside)| !inside) {
            range.end = self.first;
        }
        for (part, fresh) in self.fresh.split(range) {
            if fresh {
                self.fresh.remove(part.clone());
                self.give(part, pool);
            } else {
                // In a damaged file two objects may have the same bytes: free already, they may be somebody's by the commit.
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

    /// The part of `range` that can be used again, and as a part of which pages.
    fn sorted(&self, range: Range<u64>, pool: Pool) -> Option<(Range<u64>, Option<Pool>)> {
        let Some(pages) = self.pages else { return Some((range, None)) };
        if range.end.saturating_sub(range.start) < pages.size {
            // What crosses a page's end was not allocated by this rule.
            let within = range.end > range.start && pages.down(range.start) == pages.down(range.end.saturating_sub(1));
            return within.then_some((range, Some(pool)));
        }
        let end = match pages.down(range.start) == range.start {
            true => pages.up(range.end).filter(|e| *e <= self.end).unwrap_or(range.end),
            false => range.end,
        };
        Some((pages.whole(range.start..end), None))
    }

    /// Makes bytes free; pages that are free as a whole become anybody's.
    fn give(&mut self, range: Range<u64>, pool: Option<Pool>) {
        let (Some(pool), Some(pages)) = (pool, self.pages) else { return self.free.insert(range) };
        let list = of(&mut self.parts, pool);
        list.insert(range.clone());
        let Some((&s, &e)) = list.ranges.0.range(..=range.start).next_back() else { return };
        let whole = pages.whole(s..e);
        if !whole.is_empty() {
            list.remove(whole.clone());
            self.free.insert(whole);
        }
    }

    /// Declares bytes free that no durable structure points to.
    pub fn add_free(&mut self, range: Range<u64>) {
        self.free.insert(range);
    }

    /// Makes free what rests: the file ends, or its disk is full.
    pub fn end_rest(&mut self) {
        self.wake(None);
    }

    /// The parts of `range` that may be written in place (true).
    pub fn split_fresh(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        self.fresh.split(range)
    }

    /// True when something is free after the next commit that is not now.
    pub fn gives_back(&self) -> bool {
        !self.freed.is_empty() || self.freed_parts.iter().any(|r| !r.is_empty()) || !self.resting.is_empty()
    }

    /// What was allocated is in use now, what was freed is free, or if it is to `rest` will be after [`REST`].
    pub fn committed(&mut self, rest: bool) {
        self.fresh.clear();
        let (space, parts) = (std::mem::take(&mut self.freed), std::mem::take(&mut self.freed_parts));
        self.put_to_rest(space, parts);
        if !rest {
            self.wake(None);
        }
    }

    fn put_to_rest(&mut self, space: Ranges, parts: [Ranges; 2]) {
        if space.is_empty() && parts.iter().all(Ranges::is_empty) {
            return;
        }
        let now = Instant::now();
        match self.resting.back_mut().filter(|last| now.duration_since(last.times.start) < REST_STEP) {
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

    /// Makes free what rests since `then` or longer; `None`: all.
    fn wake(&mut self, then: Option<Instant>) {
        while self.resting.front().is_some_and(|r| then.is_none_or(|then| r.times.end <= then)) {
            let Some(Resting { space, parts: [metadata, raw], .. }) = self.resting.pop_front() else { return };
            space.iter().for_each(|r| self.give(r, None));
            metadata.iter().for_each(|r| self.give(r, Some(Pool::Metadata)));
            raw.iter().for_each(|r| self.give(r, Some(Pool::Raw)));
        }
    }

    /// Cuts free space off the end; returns the new end.
    pub fn trim(&mut self) -> u64 {
        if let Some((&s, &e)) = self.free.ranges.0.iter().next_back()
            && e == self.end
        {
            self.free.remove(s..e);
            self.end = s;
        }
        self.end
    }

    /// Bytes that can be used again now.
    pub fn free_bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(|l| l.ranges.len()).sum();
        self.free.ranges.len().saturating_add(parts)
    }

    /// Free ranges, ascending; in a file with pages the whole pages.
    pub fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.free.ranges.iter()
    }
}

#[cfg(test)]
mod tests;
