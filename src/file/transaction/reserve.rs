//! Allocates storage for later writes, so that ENOSPC is reported by the change and not by a later
//! write.

use super::{GRANULE, TRACKED_RANGES_MAX, Transaction, TransactionState};
use crate::file::overlay::SECTOR;
use crate::file::space::Pool;
use crate::file::{WriteDriver, read_all};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Least and largest piece of storage allocated at once; pieces grow with the file, bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Divisor of the file's length for the size of a piece.
const PIECES_PER_FILE: u64 = 64;

/// Bytes of all blocks.
fn total(blocks: &[(Range<u64>, Pool)]) -> u64 {
    blocks.iter().map(|(r, _)| r.end.saturating_sub(r.start)).fold(0, u64::saturating_add)
}

impl Transaction {
    /// Allocates storage for `range`, if the file system can. Releases the lock between pieces.
    pub fn reserve_storage(&self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at.saturating_add(PIECE_BYTES_MAX));
            self.state.write().allocate_storage(&*self.driver, &(at..end))?;
            at = end;
        }
        Ok(())
    }

    /// Records that a change failed with ENOSPC.
    pub fn note_starved(&self) {
        self.out_of_space.store(true, Ordering::Release);
    }

    /// True if a change failed with ENOSPC and a commit makes space in the file, or of the journal,
    /// free.
    pub fn is_relieved(&self) -> bool {
        self.out_of_space.load(Ordering::Acquire) && (self.state.read().space.has_freed() || self.has_long_journal())
    }

    /// Makes the end of the session free the storage of free space, as far as the file system can.
    pub fn release_free_storage(&self) {
        self.releases_storage.store(true, Ordering::Release);
    }

    /// True if the operation under way frees at least as many bytes as it allocates.
    pub fn frees_what_it_takes(&self) -> bool {
        let state = self.state.read();
        let Some(operation) = &state.operation else { return false };
        total(&operation.freed) >= total(&operation.blocks)
    }

    /// True if the operation under way frees more bytes than it allocates.
    pub fn frees_more_than_it_takes(&self) -> bool {
        let state = self.state.read();
        state.operation.as_ref().is_some_and(|operation| total(&operation.freed) > total(&operation.blocks))
    }

    /// Extends the file by storage for `len` bytes past the end of allocated space, for data that
    /// is still in memory.
    pub fn reserve_growth(&self, len: u64) -> io::Result<()> {
        let end = self.state.read().space.end();
        let goal = end.checked_add(len).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        self.reserve_range(end..goal)
    }

    /// Ensures storage for `range`, allocated bytes that are written later, or bytes past them.
    pub fn reserve_range(&self, range: Range<u64>) -> io::Result<()> {
        if self.state.read().stored.covers(&range) {
            return Ok(());
        }
        self.usable()?;
        let _idle = self.background.wait();
        self.state.write().reserve(&*self.driver, range)
    }
}

impl TransactionState {
    /// Allocates storage for `range`, and past it if possible. On failure the file keeps its
    /// length, so that no storage past it is taken.
    fn reserve(&mut self, driver: &dyn WriteDriver, range: Range<u64>) -> io::Result<()> {
        let unit = if self.low_space { GRANULE } else { (self.len / PIECES_PER_FILE).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) };
        let up = |end: u64, unit: u64| end.checked_next_multiple_of(unit).unwrap_or(end);
        let from = range.start - range.start % GRANULE;
        let wide = from..up(range.end.saturating_add(unit), GRANULE);
        self.reserve_exactly(driver, wide).or_else(|_| {
            self.low_space = true;
            self.reserve_exactly(driver, from..up(range.end, GRANULE))
        })
    }

    fn reserve_exactly(&mut self, driver: &dyn WriteDriver, range: Range<u64>) -> io::Result<()> {
        let len = self.len;
        if range.end > len {
            driver.set_len(range.end)?;
            (self.len, self.unsynced) = (range.end, true);
        }
        let reserved = self.allocate_ranges(driver, range.clone()).and_then(|able| match able {
            true => Ok(()),
            false => self.fill(driver, range.clone()),
        });
        if reserved.is_err() && range.end > len && driver.set_len(len).is_ok() {
            self.len = len;
            self.stored.remove(len..range.end);
        }
        reserved
    }

    /// Writes the bytes of `range` unchanged where the file system cannot allocate storage on
    /// request.
    fn fill(&mut self, driver: &dyn WriteDriver, range: Range<u64>) -> io::Result<()> {
        while let Some(missing) = self.without_storage(&range) {
            let known = driver.storage_end(missing.start).filter(|end| *end > missing.start);
            match known {
                Some(end) => self.stored.insert(missing.start..end.min(range.end)),
                None => self.rewrite(driver, missing)?,
            }
        }
        Ok(())
    }

    /// Allocates storage for `part`, and around it if possible. False if the file system cannot do
    /// that.
    pub(super) fn allocate_storage(&mut self, driver: &dyn WriteDriver, part: &Range<u64>) -> io::Result<bool> {
        // Starts at most one small piece before `part`: bytes before it may be holes, which stay.
        let around = |before: u64, behind: u64| {
            let end = part.end.checked_next_multiple_of(behind).unwrap_or(part.end);
            part.start - part.start % before..end.min(self.len).max(part.end)
        };
        let unit = if self.low_space { PIECE_BYTES_MIN } else { (self.len / PIECES_PER_FILE).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) };
        let (wide, narrow) = (around(PIECE_BYTES_MIN, unit - unit % PIECE_BYTES_MIN), around(GRANULE, GRANULE));
        self.allocate_ranges(driver, wide).or_else(|_| {
            // The failed allocation may have used up the disk's free space.
            self.low_space = true;
            self.allocate_ranges(driver, narrow)
        })
    }

    fn allocate_ranges(&mut self, driver: &dyn WriteDriver, range: Range<u64>) -> io::Result<bool> {
        for (part, there) in self.stored.split(range) {
            if there {
                continue;
            }
            if self.cannot_allocate || !driver.allocate_storage(part.start, part.end.saturating_sub(part.start))? {
                self.cannot_allocate = true;
                return Ok(false);
            }
            self.stored.insert(part);
        }
        Ok(true)
    }

    /// Ensures storage for the live bytes of `parts` (those that are not fresh): after a commit has
    /// marked the file, ENOSPC is too late. Does not change the file's content.
    pub(super) fn ensure_live_storage(&mut self, driver: &dyn WriteDriver, parts: &[(Range<u64>, bool)]) -> io::Result<()> {
        parts.iter().filter(|(_, fresh)| !fresh).try_for_each(|(part, _)| self.ensure_storage(driver, part))
    }

    /// Ensures storage for all sectors that the next commit writes.
    pub(in crate::file) fn ensure_dirty_storage(&mut self, driver: &dyn WriteDriver) -> io::Result<()> {
        self.overlay.changed().iter().try_for_each(|part| self.ensure_storage(driver, part))
    }

    fn ensure_storage(&mut self, driver: &dyn WriteDriver, part: &Range<u64>) -> io::Result<()> {
        if self.stored.count() > TRACKED_RANGES_MAX && self.without_storage(part).is_some() {
            // The driver can report these ranges again.
            self.stored.clear();
        }
        while let Some(missing) = self.without_storage(part) {
            if self.find_storage(driver, missing.start) {
                continue;
            }
            // Fills only the written part of a hole; else scattered writes would allocate a large
            // dataset.
            let end = missing.end.checked_next_multiple_of(GRANULE).unwrap_or(missing.end);
            if !self.allocate_ranges(driver, missing.start - missing.start % GRANULE..end)? {
                self.rewrite(driver, missing)?;
            }
            // The storage must be durable before the marked superblock.
            self.unsynced = true;
        }
        Ok(())
    }

    /// First part of `part` that is not known to have storage.
    fn without_storage(&self, part: &Range<u64>) -> Option<Range<u64>> {
        self.stored.split(part.clone()).into_iter().find(|(_, there)| !there).map(|(missing, _)| missing)
    }

    /// Asks the driver for the storage at `offset` and around it; true if `offset` has storage.
    /// Needs few requests for a file without holes.
    fn find_storage(&mut self, driver: &dyn WriteDriver, offset: u64) -> bool {
        let at = offset - offset % GRANULE;
        let Some(end) = driver.storage_end(at).filter(|end| *end > offset) else { return false };
        // Storage is allocated in whole sectors at least.
        let whole = |end: u64| end.checked_next_multiple_of(SECTOR).unwrap_or(end);
        self.stored.insert(at..whole(end));
        let unit = (self.len / PIECES_PER_FILE).max(PIECE_BYTES_MIN);
        let before = at - at % (unit - unit % GRANULE);
        if !self.stored.split(before..at).iter().all(|(_, there)| *there)
            && let Some(end) = driver.storage_end(before)
        {
            self.stored.insert(before..whole(end));
        }
        true
    }

    /// Allocates storage where the file system cannot do so on request: rewrites the live bytes of
    /// `part` unchanged. Only a commit writes live bytes, so that no write is lost.
    fn rewrite(&mut self, driver: &dyn WriteDriver, part: Range<u64>) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            let end = part.end.min(at.saturating_add(PIECE_BYTES_MAX));
            let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
            read_all(driver, &mut bytes, at)?;
            driver.write_at(&bytes, at)?;
            self.len = self.len.max(end);
            at = end;
        }
        let sectors = part.start - part.start % SECTOR..part.end.checked_next_multiple_of(SECTOR).unwrap_or(part.end);
        self.stored.insert(sectors);
        Ok(())
    }
}
