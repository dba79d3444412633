//! Changes to a file that become durable together or not at all.
//!
//! New bytes go to space that nothing durable points to: elements straight into the file, small structures when
//! some megabytes of them are together (see `flight`), or with the commit. Changes of live bytes wait in memory. A commit
//!
//! 1. makes the new bytes and the file's length durable;
//! 2. if the file grew and there is no journal to come, tells so in the superblock, one sector: the old state with room behind it;
//! 3. publishes the changes of live bytes. All in one sector: written, and that is it. Else they go to the
//!    journal; the superblock is marked so that no reader accepts the file; the changes are made; the
//!    superblock is settled. Each step is durable before the next.
//!
//! Whatever step the machine stops at, the file is in the old or the new state, or marked with the journal
//! beside it. See docs/DESIGN-crash.md.

use super::overlay::{Bytes, Overlay};
use super::space::{Pages, Pool, Ranges, Space};
use super::{FileDriver, JournalPlace, Status, WriteDriver, read_all};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod flight;
mod room;
mod tail;

use flight::Flight;

/// The file's length grows by at least this much, so that few commits have to tell a new one; bytes.
const GROWTH_MIN: u64 = 64 << 10;
const GROWTH_MAX: u64 = 64 << 20;
const GRANULE: u64 = 4096;
/// Ranges behind the file's first end that are known to have been written.
const WRITTEN_MAX: usize = 1 << 14;
/// So much written in one run to new space goes to the disk while more comes; bytes.
const WRITEBACK: u64 = 8 << 20;

/// Longer structures go straight to the file; bytes.
const KEPT_MAX: usize = 64 << 10;
/// So much of small new structures is written together; bytes.
pub(super) const TOGETHER: u64 = 4 << 20;

/// Room that the journal has from the first operation on, so that what is removed on a full disk can be committed; bytes.
pub(super) const RESERVED: u64 = 256 << 10;
/// The least that is reserved; bytes.
const RESERVED_MIN: u64 = 4 << 10;

pub(super) struct State {
    pub(super) overlay: Overlay,
    pub(super) space: Space,
    /// Length of the file.
    pub(super) len: u64,
    /// End of file that the durable superblock tells.
    pub(super) told: u64,
    /// Bytes were written to fresh space since the last sync.
    pub(super) unsynced: bool,
    /// The last run written to new space, as far as the disk has not been told to write it.
    run: Range<u64>,
    /// From here on there were no bytes when the file was opened: zeros, but for what was written since.
    virgin: u64,
    written: Ranges,
    /// Where the disk has room for what is written later, as far as that was asked.
    provided: Ranges,
    /// The file system cannot tell that it has.
    unsure: bool,
    /// The disk had less room than was asked for.
    tight: bool,
    /// Bytes that wait when it is time to look whether some can be written.
    pub(super) look_at: u64,
    /// What the file takes on the disk beside its length, as it was when it was opened: (allocated, length).
    allocated: (u64, u64),
    /// The operation under way.
    operation: Option<Operation>,
}

impl State {
    /// `part` was written: the run that has become long enough for the disk.
    fn ran(&mut self, part: &Range<u64>) -> Option<Range<u64>> {
        // Data may be aligned: a small gap does not end a run.
        let follows = part.start >= self.run.end && part.start.saturating_sub(self.run.end) < GRANULE;
        self.run = if follows { self.run.start..part.end } else { part.clone() };
        if self.run.end.saturating_sub(self.run.start) < WRITEBACK {
            return None;
        }
        let run = self.run.clone();
        self.run = run.end..run.end;
        Some(run)
    }

    /// Bytes are written behind what the file had when it was opened.
    fn note_written(&mut self, range: Range<u64>) {
        if range.end <= self.virgin {
            return;
        }
        // Whole sectors, and what lies between two writes that are close: few ranges.
        let start = range.start.saturating_sub(range.start % GRANULE).max(self.virgin);
        self.written.insert(start..range.end.checked_next_multiple_of(GRANULE).unwrap_or(range.end));
        if self.written.count() > WRITTEN_MAX {
            let end = self.written.iter().last().map_or(range.end, |last| last.end);
            self.written.insert(self.virgin..end);
        }
    }

    /// The parts of `range` that may hold something else than zeros.
    fn written_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let old = range.start..range.end.min(self.virgin);
        let new = self.written.split(range.start.max(self.virgin)..range.end.max(self.virgin));
        let new = new.into_iter().filter(|(_, written)| *written).map(|(part, _)| part);
        Some(old).into_iter().chain(new).filter(|part| !part.is_empty()).collect()
    }
}

/// What taking an operation back needs to know.
#[derive(Default)]
struct Operation {
    /// What it allocated, together and one by one.
    allocated: Ranges,
    taken: Vec<(Range<u64>, Pool)>,
    /// What it gave back: taken note of when it ends.
    freed: Vec<(Range<u64>, Pool)>,
    /// What it overwrote in the file itself of bytes that are older than it, as they were there.
    overwritten: Vec<(u64, Vec<u8>)>,
    /// Where that was: each byte is kept once.
    kept: Ranges,
}

/// See the module's description.
pub struct Transaction {
    pub(super) driver: Arc<dyn WriteDriver>,
    pub(super) place: Box<dyn JournalPlace>,
    pub(super) state: Arc<RwLock<State>>,
    pub(super) flight: Flight,
    pub(super) journal: Mutex<Option<Arc<dyn WriteDriver>>>,
    tail: tail::Tail,
    /// Nothing was done yet.
    idle: AtomicBool,
    /// There was no room for something since the last commit.
    pub(super) starved: AtomicBool,
    pub(super) failed: AtomicBool,
    /// A commit failed that the journal will finish.
    pub(super) torn: AtomicBool,
    /// The file has no name any more, and the log says so.
    pub(super) nameless: AtomicBool,
}

fn read_only() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
}

impl Transaction {
    /// Changes to `driver`, whose superblock tells `told` as its end (absolute). All bytes below that are taken
    /// to be in use, and those behind it to be nobody's.
    pub fn new(driver: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>, told: u64) -> io::Result<Self> {
        let (len, allocated) = driver.extent()?;
        driver.announce_writer();
        let mut overlay = Overlay::default();
        overlay.written(len.max(told));
        let state = State {
            overlay,
            space: Space::new(told),
            len,
            told,
            unsynced: false,
            run: 0..0,
            virgin: len.max(told),
            written: Ranges::default(),
            provided: Ranges::default(),
            unsure: false,
            tight: false,
            look_at: TOGETHER,
            allocated: (allocated, len),
            operation: None,
        };
        Ok(Transaction {
            driver,
            place,
            state: Arc::new(RwLock::new(state)),
            flight: Flight::default(),
            journal: Mutex::new(None),
            tail: tail::Tail::default(),
            idle: AtomicBool::new(true),
            starved: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            nameless: AtomicBool::new(false),
        })
    }

    /// Begins an operation: a group of changes that is made as a whole or not at all.
    pub fn begin(&self) {
        // What fails here is met again by the change itself.
        if self.tell_tail().is_ok() && self.idle.swap(false, Ordering::AcqRel) {
            self.reserve();
        }
        let mut state = self.state.write();
        state.overlay.begin();
        state.operation = Some(Operation::default());
    }

    /// Creates the journal and reserves space for it. A failure here is met again, and reported, by the commit that needs it.
    fn reserve(&self) {
        let mut journal = self.journal.lock();
        if journal.is_none()
            && let Ok(file) = self.place.create()
        {
            reserve_some(&*file);
            *journal = Some(file);
        }
    }

    /// Ends the operation. If it was `done` its changes stay; else they are taken back, except what
    /// [`Transaction::write_data`] wrote. An error while that is done ends all writing.
    pub fn finish(&self, done: bool) {
        let _landed = (!done).then(|| self.flight.landed());
        let mut state = self.state.write();
        state.overlay.end(!done);
        let Some(operation) = state.operation.take() else { return };
        if done {
            for (range, pool) in operation.freed {
                state.space.free(range, pool);
            }
            let waiting = state.overlay.bytes();
            if waiting >= state.look_at {
                state.look_at = waiting.saturating_add(TOGETHER);
                drop(state);
                self.send_fresh();
            }
            return;
        }
        self.put_back(&mut state, operation.overwritten);
        for (range, pool) in operation.taken {
            state.space.free(range, pool);
        }
        // On a full disk there may be no room behind the length, where there is some in what was given back elsewhere.
        state.space.trim();
    }

    /// Writes what an operation overwrote in the file where it was. What cannot be written waits for the commit, as it was with
    /// what waited within it; what lies beside that is read from the file, so all else is written before.
    fn put_back(&self, state: &mut State, overwritten: Vec<(u64, Vec<u8>)>) {
        let mut waits = Vec::new();
        for (offset, mut bytes) in overwritten {
            if self.driver.write_at(&bytes, offset).is_err() {
                state.overlay.patch(offset, &mut bytes);
                waits.push((offset, bytes));
            }
        }
        for (offset, bytes) in waits {
            if state.overlay.write(&*self.driver, offset, &bytes, Bytes::Live).is_err() {
                // Nothing durable leads there, but this session can't go on.
                self.failed.store(true, Ordering::Release);
            }
        }
    }

    /// Writes a structure: in place where nothing durable points, now or later, else with the next commit. The caller knows that
    /// it ends before [`Transaction::end`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.changing()?;
        if bytes.len() <= KEPT_MAX && self.keep(offset, bytes)? {
            return Ok(());
        }
        let _landed = self.flight.landed();
        self.remember(offset, bytes.len())?;
        self.write_through(offset, bytes, Overlay::write_below)
    }

    /// Keeps bytes in memory until the commit, or until there are more of them. False where what is new has no certain room.
    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut state = self.state.write();
        let state = &mut *state;
        state.note_written(offset..offset.saturating_add(bytes.len() as u64));
        let parts = state.space.split_fresh(offset..offset.saturating_add(bytes.len() as u64));
        for (part, _) in parts.iter().filter(|(_, fresh)| *fresh) {
            if !state.provide(&*self.driver, part)? {
                return Ok(false);
            }
        }
        state.secure_live(&*self.driver, &parts)?;
        let mut rest = bytes;
        for (part, fresh) in parts {
            let n = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX).min(rest.len());
            let (piece, tail) = rest.split_at(n);
            rest = tail;
            let what = if fresh { Bytes::Fresh } else { Bytes::Live };
            state.overlay.write(&*self.driver, part.start, piece, what)?;
            if fresh {
                state.unsynced = true;
                state.len = state.len.max(part.end);
            }
        }
        Ok(true)
    }

    /// Keeps what lies in the file's fresh space that is older than the operation under way. Nothing is on its way.
    fn remember(&self, offset: u64, len: usize) -> io::Result<()> {
        let mut state = self.state.write();
        let State { space, operation: Some(operation), .. } = &mut *state else { return Ok(()) };
        let older = |ranges: &Ranges, part| ranges.split(part).into_iter().filter(|(_, there)| !there).map(|(part, _)| part);
        for (part, _) in space.split_fresh(offset..offset.saturating_add(len as u64)).into_iter().filter(|(_, fresh)| *fresh) {
            let parts: Vec<_> = older(&operation.allocated, part).flat_map(|part| older(&operation.kept, part)).collect();
            for part in parts {
                let mut bytes = vec![0; usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(0)];
                read_all(&*self.driver, &mut bytes, part.start)?;
                operation.overwritten.push((part.start, bytes));
                operation.kept.insert(part);
            }
        }
        Ok(())
    }

    /// The same for bytes that stay when the operation under way is taken back: elements.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.changing()?;
        let _landed = self.flight.landed();
        self.write_through(offset, bytes, Overlay::follow)
    }

    /// Writes to the file itself where nothing durable points. `tell`: has the overlay follow. Nothing is on its way.
    fn write_through(&self, offset: u64, bytes: &[u8], tell: fn(&mut Overlay, u64, &[u8])) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let parts = {
            let mut state = self.state.write();
            state.note_written(offset..end);
            let parts = state.space.split_fresh(offset..end);
            state.secure_live(&*self.driver, &parts)?;
            parts
        };
        for (part, fresh) in parts {
            let slice = |r: &Range<u64>| {
                let from = usize::try_from(r.start.saturating_sub(offset)).ok()?;
                let to = usize::try_from(r.end.saturating_sub(offset)).ok()?;
                bytes.get(from..to)
            };
            let piece = slice(&part).unwrap_or_default();
            if fresh {
                self.driver.write_at(piece, part.start)?;
                let mut state = self.state.write();
                state.overlay.written(part.end);
                tell(&mut state.overlay, part.start, piece);
                state.unsynced = true;
                state.len = state.len.max(part.end);
                if let Some(run) = state.ran(&part) {
                    drop(state);
                    self.driver.begin_writeback(run.start, run.end.saturating_sub(run.start));
                }
            } else {
                self.state.write().overlay.write(&*self.driver, part.start, piece, Bytes::Live)?;
            }
        }
        Ok(())
    }

    /// The file has pages of `size` bytes from `origin` on.
    pub fn set_pages(&self, pages: Pages) {
        self.state.write().space.set_pages(pages);
    }

    /// The file's pages, if it has any.
    pub fn pages(&self) -> Option<Pages> {
        self.state.read().space.pages()
    }

    /// Takes `len` bytes at a multiple of `align`. Returns whether they are zeros; else what they hold is not
    /// defined.
    pub fn allocate(&self, len: u64, align: u64, pool: Pool) -> io::Result<(u64, bool)> {
        self.changing()?;
        let mut state = self.state.write();
        let at = state.space.allocate(len, align, pool).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let range = at..at.saturating_add(len);
        let end = state.space.end();
        if end > state.len {
            let room = (end / 8).clamp(GROWTH_MIN, GROWTH_MAX);
            let longer = end.saturating_add(room).checked_next_multiple_of(GRANULE).unwrap_or(end);
            // An end of file that the superblock may tell.
            let longer = state.space.pages().and_then(|p| p.up(longer)).unwrap_or(longer);
            if let Err(e) = self.driver.set_len(longer) {
                state.space.free(range, pool);
                return Err(e);
            }
            state.len = longer;
            state.unsynced = true;
        }
        let zeros = state.written_in(range.clone()).is_empty();
        if let Some(operation) = &mut state.operation {
            operation.allocated.insert(range.clone());
            operation.taken.push((range, pool));
        }
        Ok((at, zeros))
    }

    /// The parts of `range` that may hold something else than zeros.
    pub fn written_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.state.read().written_in(range)
    }

    /// Gives `range` back; it is used again when nothing durable points there.
    pub fn free(&self, range: Range<u64>, pool: Pool) {
        let mut state = self.state.write();
        // What a damaged file says was taken beyond the end never was.
        let range = range.start..range.end.min(state.space.end());
        if range.is_empty() {
            return;
        }
        match &mut state.operation {
            Some(operation) => operation.freed.push((range, pool)),
            None => state.space.free(range, pool),
        }
    }

    /// Cuts what is free off the end; returns the end. The file gets shorter when it is closed.
    pub fn trim(&self) -> u64 {
        let mut state = self.state.write();
        state.space.end_rest();
        state.space.trim()
    }

    /// Declares that nothing durable points to `range`.
    pub fn add_free(&self, range: Range<u64>) {
        self.state.write().space.add_free(range);
    }

    /// There was no room for a change.
    pub fn note_starved(&self) {
        self.starved.store(true, Ordering::Release);
    }

    /// True when there was no room for something, and a commit makes some in the file.
    pub fn is_relieved(&self) -> bool {
        self.starved.load(Ordering::Acquire) && self.state.read().space.gives_back()
    }

    /// Memory that waits for the next commit, bytes.
    pub fn waiting(&self) -> u64 {
        self.state.read().overlay.bytes()
    }

    /// End of what is allocated, absolute.
    pub fn end(&self) -> u64 {
        self.state.read().space.end()
    }

    /// True when a commit would have something to do.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.unsynced || !state.overlay.is_empty()
    }

    /// True after a failure that leaves only reading.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Before a change.
    fn changing(&self) -> io::Result<()> {
        self.usable()?;
        self.tell_tail()
    }

    pub(super) fn usable(&self) -> io::Result<()> {
        if self.has_failed() { Err(read_only()) } else { Ok(()) }
    }
}

/// Reserves space for the journal `file`: all of [`RESERVED`], or on a disk that is nearly full a part that leaves some to the
/// HDF5 file.
fn reserve_some(file: &dyn WriteDriver) {
    let Ok(len) = file.status().map(|s| s.len) else { return };
    let mut wanted = RESERVED;
    while wanted >= RESERVED_MIN {
        // As much again must be left: what is to be committed needs it.
        let reserved = file.reserve(wanted.saturating_mul(2));
        if reserved.is_ok() {
            let _ = file.set_len(wanted);
            return;
        }
        // A part of it may have been taken.
        let _ = file.set_len(len);
        tracing::debug!("{wanted} bytes are not reserved for the journal: {reserved:?}");
        wanted /= 4;
    }
}

impl FileDriver for Transaction {
    fn status(&self) -> io::Result<Status> {
        self.driver.status()
    }

    fn extent(&self) -> io::Result<(u64, u64)> {
        let state = self.state.read();
        let (allocated, len) = state.allocated;
        Ok((state.len, if allocated == 0 { 0 } else { allocated.saturating_add(state.len.saturating_sub(len)) }))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.read();
        let there = usize::try_from(state.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        if there > 0 && state.overlay.read(offset, buf.get_mut(..there).unwrap_or_default()) {
            return Ok(there);
        }
        let n = read_all(&*self.driver, buf, offset)?;
        Ok(n.max(state.overlay.patch(offset, buf)))
    }

    fn hole_end(&self, offset: u64) -> Option<u64> {
        let state = self.state.read();
        let known = state.overlay.next(offset).unwrap_or(u64::MAX);
        if known == offset {
            return None;
        }
        self.driver.hole_end(offset).map(|end| end.min(known))
    }

    fn advise(&self, offset: u64, len: u64) {
        self.driver.advise(offset, len);
    }
}

#[cfg(test)]
mod flight_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undo_tests;
