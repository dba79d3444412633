//! Room on the disk for what is written later, so that a full disk is met when it can still be told.

use super::{GRANULE, State, WRITTEN_MAX};
use crate::file::overlay::SECTOR;
use crate::file::{WriteDriver, read_all};
use std::io;
use std::ops::Range;

/// Room on the disk is taken in pieces of this size for what is written later, the larger the longer the file is; bytes.
const PROVIDED: u64 = 64 << 10;
const PROVIDED_MAX: u64 = 4 << 20;
/// Such a part of the file at a time.
const PROVIDED_PART: u64 = 64;

impl State {
    /// Takes room on the disk for `part`, and around it if there is some. False when the file system cannot do that.
    pub(super) fn provide(&mut self, driver: &dyn WriteDriver, part: &Range<u64>) -> io::Result<bool> {
        // Before it may be holes, which stay what they are.
        let around = |before: u64, behind: u64| {
            let end = part.end.checked_next_multiple_of(behind).unwrap_or(part.end);
            part.start - part.start % before..end.min(self.len).max(part.end)
        };
        let unit = if self.tight { PROVIDED } else { (self.len / PROVIDED_PART).clamp(PROVIDED, PROVIDED_MAX) };
        let (wide, narrow) = (around(PROVIDED, unit - unit % PROVIDED), around(GRANULE, GRANULE));
        self.provide_all(driver, wide).or_else(|_| {
            // What was found of it is taken now: no more of that.
            self.tight = true;
            self.provide_all(driver, narrow)
        })
    }

    fn provide_all(&mut self, driver: &dyn WriteDriver, range: Range<u64>) -> io::Result<bool> {
        for (part, there) in self.provided.split(range) {
            if there {
                continue;
            }
            if self.unsure || !driver.provide(part.start, part.end.saturating_sub(part.start))? {
                self.unsure = true;
                return Ok(false);
            }
            self.provided.insert(part);
        }
        Ok(true)
    }

    /// Makes certain that live bytes can be written where they are, those of `parts` that are not fresh: when a commit has marked
    /// the file it is too late to find out. What the file holds stays as it is.
    pub(super) fn secure_live(&mut self, driver: &dyn WriteDriver, parts: &[(Range<u64>, bool)]) -> io::Result<()> {
        parts.iter().filter(|(_, fresh)| !fresh).try_for_each(|(part, _)| self.secure(driver, part))
    }

    /// The same for what the next commit writes.
    pub(in crate::file) fn secure_changed(&mut self, driver: &dyn WriteDriver) -> io::Result<()> {
        self.overlay.changed().iter().try_for_each(|part| self.secure(driver, part))
    }

    fn secure(&mut self, driver: &dyn WriteDriver, part: &Range<u64>) -> io::Result<()> {
        if self.provided.count() > WRITTEN_MAX && self.lacks(part).is_some() {
            // It can be asked again.
            self.provided.clear();
        }
        while let Some(lack) = self.lacks(part) {
            if self.look(driver, lack.start) {
                continue;
            }
            // A hole stays one but for what is written, else a few bytes here and there would fill a large dataset.
            let end = lack.end.checked_next_multiple_of(GRANULE).unwrap_or(lack.end);
            if !self.provide_all(driver, lack.start - lack.start % GRANULE..end)? {
                self.rewrite(driver, lack)?;
            }
            // The room is durable before the mark is.
            self.unsynced = true;
        }
        Ok(())
    }

    /// The first of `part` that is not known to have room.
    fn lacks(&self, part: &Range<u64>) -> Option<Range<u64>> {
        self.provided.split(part.clone()).into_iter().find(|(_, there)| !there).map(|(lack, _)| lack)
    }

    /// Asks whether what lies at `offset` has storage, and how much around it; few questions for a file without holes.
    fn look(&mut self, driver: &dyn WriteDriver, offset: u64) -> bool {
        let at = offset - offset % GRANULE;
        let Some(end) = driver.stored_to(at).filter(|end| *end > offset) else { return false };
        // Storage comes in whole sectors at least.
        let whole = |end: u64| end.checked_next_multiple_of(SECTOR).unwrap_or(end);
        self.provided.insert(at..whole(end));
        let unit = (self.len / PROVIDED_PART).max(PROVIDED);
        let before = at - at % (unit - unit % GRANULE);
        if !self.provided.split(before..at).iter().all(|(_, there)| *there)
            && let Some(end) = driver.stored_to(before)
        {
            self.provided.insert(before..whole(end));
        }
        true
    }

    /// Takes room where the file system cannot on request: the live bytes in `part` are written as they are. Nobody else writes them
    /// meanwhile, as only a commit does.
    fn rewrite(&mut self, driver: &dyn WriteDriver, part: Range<u64>) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            let end = part.end.min(at.saturating_add(PROVIDED_MAX));
            let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
            read_all(driver, &mut bytes, at)?;
            driver.write_at(&bytes, at)?;
            self.len = self.len.max(end);
            at = end;
        }
        let sectors = part.start - part.start % SECTOR..part.end.checked_next_multiple_of(SECTOR).unwrap_or(part.end);
        self.provided.insert(sectors);
        Ok(())
    }
}
