//! Changes to a file that become durable together or not at all.
//!
//! New bytes go to fresh space, which the durable state does not reference: elements directly to
//! the file, small structures in batches of some megabytes (see `background_write`) or with the
//! commit. Changes of live bytes wait in memory. A commit
//!
//! 1. makes the new bytes and the file's length durable;
//! 2. if the file grew and no journal is needed, records the new EOF in the superblock, one sector;
//! 3. publishes the changes of live bytes. Changes within one sector are written in place. Else
//!    they go to the journal, the superblock is marked so that no reader accepts the file, the
//!    changes are applied, and the superblock is settled; each step is durable before the next.
//!
//! After a crash at any step the file is in the old or the new state, or marked with the journal
//! beside it. See docs/DESIGN-crash.md.

use super::overlay::{Bytes, Overlay};
use super::space::{Pages, Pool, Ranges, Space, SpaceUsage};
use super::write_order::{DATA_LEVEL, WriteOrder};
use super::{JournalPlace, WriteDriver, read_all};
use crate::base::free_ranges::FreeRanges;
use crate::base::locks::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod background_write;
mod eof_extension;
mod free_record;
pub(super) mod journal_room;
mod order;
mod reading;
mod reserve;

use background_write::BackgroundWrite;
use free_record::RecordState;
use journal_room::JournalRoom;

/// Least and largest growth of the file's length, so that few commits record a new EOF, bytes.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Unit of lengths and of tracked ranges, bytes.
pub(super) const GRANULE: u64 = 4096;
/// Largest number of tracked ranges of written or allocated bytes.
const TRACKED_RANGES_MAX: usize = 1 << 14;
/// Length of a sequential run after which its writeback is started, bytes.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// Longest structure kept in memory; longer ones are written to the file at once, bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Dirty bytes between background writes of fresh sectors.
pub(super) const BATCH_BYTES: u64 = 4 << 20;

pub(super) struct TransactionState {
    pub(super) overlay: Overlay,
    pub(super) space: Space,
    /// Length of the file.
    pub(super) len: u64,
    /// EOF in the durable superblock.
    pub(super) recorded_eof: u64,
    /// True if fresh space was written since the last sync.
    pub(super) unsynced: bool,
    /// Bytes written to fresh space since the last sync.
    pub(super) unsynced_bytes: u64,
    /// Error number of a sync before a commit: the kernel reports it to no other.
    pub(super) sync_error: Option<i32>,
    /// Last sequential run written to fresh space, without the part whose writeback was started.
    run: Range<u64>,
    /// Length at open, or the recorded EOF if that is larger. Bytes past it are zeros, except for
    /// `written`.
    initial_len: u64,
    written: Ranges,
    /// Ranges known to have storage.
    stored: Ranges,
    /// True if the file system cannot allocate storage on request.
    cannot_allocate: bool,
    /// True after an allocation of storage failed: only small pieces are requested.
    low_space: bool,
    /// Dirty bytes at which the next background write starts.
    pub(super) batch_limit: u64,
    /// Allocated storage and length when the file was opened.
    allocated: (u64, u64),
    /// The operation under way.
    operation: Option<Operation>,
    /// Changed live bytes in the order of the commit, if readers without locks need one.
    pub(super) order: Option<WriteOrder>,
    pub(super) free_record: RecordState,
}

impl TransactionState {
    /// Adds `part` to the sequential run; returns the run when it is long enough for writeback.
    fn extend_run(&mut self, part: &Range<u64>) -> Option<Range<u64>> {
        // A small gap, from alignment, does not end a run.
        let follows = part.start >= self.run.end && part.start.saturating_sub(self.run.end) < GRANULE;
        self.run = if follows { self.run.start..part.end } else { part.clone() };
        if self.run.end.saturating_sub(self.run.start) < WRITEBACK_BYTES {
            return None;
        }
        let run = self.run.clone();
        self.run = run.end..run.end;
        Some(run)
    }

    /// Records a write past the length at open.
    fn note_written(&mut self, range: Range<u64>) {
        if range.end <= self.initial_len {
            return;
        }
        // Rounded to granules, so that close writes share a range.
        let start = range.start.saturating_sub(range.start % GRANULE).max(self.initial_len);
        self.written.insert(start..range.end.checked_next_multiple_of(GRANULE).unwrap_or(range.end));
        if self.written.count() > TRACKED_RANGES_MAX {
            let end = self.written.iter().last().map_or(range.end, |last| last.end);
            self.written.insert(self.initial_len..end);
        }
    }

    /// The parts of `range` that may hold other bytes than zeros.
    fn written_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let old = range.start..range.end.min(self.initial_len);
        let new = self.written.split(range.start.max(self.initial_len)..range.end.max(self.initial_len));
        let new = new.into_iter().filter(|(_, written)| *written).map(|(part, _)| part);
        Some(old).into_iter().chain(new).filter(|part| !part.is_empty()).collect()
    }
}

/// Rollback data of the operation under way.
#[derive(Default)]
struct Operation {
    /// Allocated bytes, as a set and one by one.
    allocated: Ranges,
    blocks: Vec<(Range<u64>, Pool)>,
    /// Blocks to free when the operation ends.
    freed: Vec<(Range<u64>, Pool)>,
    /// Older bytes of the file that the operation overwrote directly.
    overwritten: Vec<(u64, Vec<u8>)>,
    /// Ranges of `overwritten`; each byte is kept once.
    kept: Ranges,
}

/// Changes to one file.
pub struct Transaction {
    pub(super) driver: Arc<dyn WriteDriver>,
    pub(super) place: Box<dyn JournalPlace>,
    pub(super) state: Arc<RwLock<TransactionState>>,
    pub(super) background: BackgroundWrite,
    pub(super) journal: Mutex<Option<Arc<dyn WriteDriver>>>,
    pub(super) journal_room: JournalRoom,
    scheduled_eof: eof_extension::ScheduledEof,
    /// True before the first operation.
    unused: AtomicBool,
    /// True if a change failed with ENOSPC since the last commit.
    pub(super) out_of_space: AtomicBool,
    pub(super) failed: AtomicBool,
    /// True if the end of the session frees the storage of free space.
    pub(super) releases_storage: AtomicBool,
    /// True if recovery must finish an interrupted commit.
    pub(super) interrupted: AtomicBool,
    /// True after the log has the error that the file has no name.
    pub(super) unlinked_logged: AtomicBool,
}

fn read_only() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
}

impl Transaction {
    /// A transaction over `driver`, whose superblock has the absolute EOF `recorded_eof`. Bytes
    /// before it are in use, bytes past it are not.
    pub fn new(driver: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>, recorded_eof: u64) -> io::Result<Self> {
        let (len, allocated) = driver.extent()?;
        driver.announce_writer();
        let mut overlay = Overlay::default();
        overlay.written(len.max(recorded_eof));
        let state = TransactionState {
            overlay,
            space: Space::new(recorded_eof),
            len,
            recorded_eof,
            unsynced: false,
            unsynced_bytes: 0,
            sync_error: None,
            run: 0..0,
            initial_len: len.max(recorded_eof),
            written: Ranges::default(),
            stored: Ranges::default(),
            cannot_allocate: false,
            low_space: false,
            batch_limit: BATCH_BYTES,
            allocated: (allocated, len),
            operation: None,
            order: None,
            free_record: RecordState::default(),
        };
        Ok(Transaction {
            driver,
            place,
            state: Arc::new(RwLock::new(state)),
            background: BackgroundWrite::default(),
            journal: Mutex::new(None),
            journal_room: JournalRoom::default(),
            scheduled_eof: eof_extension::ScheduledEof::default(),
            unused: AtomicBool::new(true),
            out_of_space: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            releases_storage: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            unlinked_logged: AtomicBool::new(false),
        })
    }

    /// Starts an operation: a group of changes that is applied as a whole or not at all.
    pub fn begin(&self) {
        // The change itself repeats and reports a failure.
        if self.write_scheduled_eof().is_ok() && self.unused.swap(false, Ordering::AcqRel) {
            self.reserve();
        }
        let mut state = self.state.write();
        state.overlay.begin();
        state.operation = Some(Operation::default());
    }

    /// Creates the journal and reserves space for it. The commit repeats and reports a failure.
    fn reserve(&self) {
        let mut journal = self.journal.lock();
        if journal.is_none()
            && let Ok(file) = self.place.create()
        {
            self.journal_room.begin(&*file);
            *journal = Some(file);
        }
    }

    /// Ends the operation: keeps its changes if it is `done`, else rolls them back, except for
    /// bytes of [`Transaction::write_data`]. An error of the rollback makes the transaction fail.
    pub fn finish(&self, done: bool) {
        let _idle = (!done).then(|| self.background.wait());
        let mut state = self.state.write();
        state.overlay.end(!done);
        let Some(operation) = state.operation.take() else { return };
        if done {
            for (range, pool) in operation.freed {
                state.space.free(range, pool);
            }
            let waiting = state.overlay.bytes();
            if waiting >= state.batch_limit {
                state.batch_limit = waiting.saturating_add(BATCH_BYTES);
                drop(state);
                self.start_background_write();
            }
            return;
        }
        self.restore(&mut state, operation.overwritten);
        for (range, pool) in operation.blocks {
            state.space.free(range, pool);
        }
        // On a full disk later allocations need the freed space instead of space past the length.
        state.space.trim();
    }

    /// Restores the bytes that an operation overwrote in the file. Bytes that cannot be written
    /// become dirty live bytes. They are added last, because the rest of their blocks is read from
    /// the file.
    fn restore(&self, state: &mut TransactionState, overwritten: Vec<(u64, Vec<u8>)>) {
        let mut waits = Vec::new();
        for (offset, mut bytes) in overwritten {
            if self.driver.write_at(&bytes, offset).is_err() {
                state.overlay.patch(offset, &mut bytes);
                waits.push((offset, bytes));
            }
        }
        for (offset, bytes) in waits {
            if state.overlay.write(&*self.driver, offset, &bytes, Bytes::Live).is_err() {
                // The durable state does not reference these bytes, but this session cannot
                // continue.
                self.failed.store(true, Ordering::Release);
            }
        }
    }

    /// Writes a structure: fresh bytes at once or in a batch, live bytes with the next commit. The
    /// caller checks that it ends before [`Transaction::end`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at_level(offset, bytes, None)
    }

    /// [`Transaction::write`], of live bytes with a level if commits are ordered.
    pub fn write_at_level(&self, offset: u64, bytes: &[u8], level: Option<u8>) -> io::Result<()> {
        self.changing()?;
        self.reserve_journal(offset..offset.saturating_add(bytes.len() as u64), 0)?;
        if bytes.len() <= KEPT_BYTES_MAX && self.keep_in_memory(offset, bytes, level)? {
            return Ok(());
        }
        let _idle = self.background.wait();
        self.save_overwritten(offset, bytes.len())?;
        self.write_through(offset, bytes, level, Overlay::update_undone)
    }

    /// Keeps bytes in memory until the commit or the next background write. False if fresh bytes
    /// have no allocated storage, so that a later write could fail.
    fn keep_in_memory(&self, offset: u64, bytes: &[u8], level: Option<u8>) -> io::Result<bool> {
        let mut state = self.state.write();
        let state = &mut *state;
        state.note_written(offset..offset.saturating_add(bytes.len() as u64));
        let parts = state.space.split_fresh(offset..offset.saturating_add(bytes.len() as u64));
        for (part, _) in parts.iter().filter(|(_, fresh)| *fresh) {
            if !state.allocate_storage(&*self.driver, part)? {
                return Ok(false);
            }
        }
        state.ensure_live_storage(&*self.driver, &parts)?;
        let mut rest = bytes;
        for (part, fresh) in parts {
            let n = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX).min(rest.len());
            let (piece, tail) = rest.split_at(n);
            rest = tail;
            let what = if fresh { Bytes::Fresh } else { Bytes::Live };
            if !fresh {
                state.order_live(&part, level)?;
            }
            state.overlay.write(&*self.driver, part.start, piece, what)?;
            if fresh {
                state.unsynced = true;
                state.len = state.len.max(part.end);
            }
        }
        Ok(true)
    }

    /// Saves fresh bytes older than the operation under way for a rollback. No background write is
    /// in flight.
    fn save_overwritten(&self, offset: u64, len: usize) -> io::Result<()> {
        let mut state = self.state.write();
        let TransactionState { space, operation: Some(operation), .. } = &mut *state else { return Ok(()) };
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

    /// Writes elements, which a rollback of the operation under way keeps.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.reserve_journal(offset..offset.saturating_add(bytes.len() as u64), self.journal_room.kept())?;
        self.write_promised(offset, bytes)
    }

    /// [`Transaction::write_data`], of bytes for which [`Transaction::promise_journal`] found
    /// storage.
    pub fn write_promised(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.changing()?;
        let _idle = self.background.wait();
        self.write_through(offset, bytes, Some(DATA_LEVEL), Overlay::update_kept)
    }

    /// Writes fresh bytes to the file at once, and live bytes to the overlay. `update` updates the
    /// overlay's dirty blocks. No background write is in flight.
    fn write_through(&self, offset: u64, bytes: &[u8], level: Option<u8>, update: fn(&mut Overlay, u64, &[u8])) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let parts = {
            let mut state = self.state.write();
            state.note_written(offset..end);
            let parts = state.space.split_fresh(offset..end);
            state.ensure_live_storage(&*self.driver, &parts)?;
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
                update(&mut state.overlay, part.start, piece);
                state.unsynced = true;
                state.unsynced_bytes = state.unsynced_bytes.saturating_add(piece.len() as u64);
                state.len = state.len.max(part.end);
                if let Some(run) = state.extend_run(&part) {
                    drop(state);
                    self.driver.begin_writeback(run.start, run.end.saturating_sub(run.start));
                }
            } else {
                let mut state = self.state.write();
                state.order_live(&part, level)?;
                state.overlay.write(&*self.driver, part.start, piece, Bytes::Live)?;
            }
        }
        Ok(())
    }

    /// Sets the file's pages.
    pub fn set_pages(&self, pages: Pages) {
        self.state.write().space.set_pages(pages);
    }

    /// The file's pages, if it has any.
    pub fn pages(&self) -> Option<Pages> {
        self.state.read().space.pages()
    }

    /// Allocates `len` bytes at a multiple of `align`; returns the offset, and true if the bytes
    /// are zeros. Else their content is undefined.
    pub fn allocate(&self, len: u64, align: u64, pool: Pool) -> io::Result<(u64, bool)> {
        self.changing()?;
        let mut state = self.state.write();
        let at = state.space.allocate(len, align, pool).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let range = at..at.saturating_add(len);
        self.extend_file(&mut state).inspect_err(|_| state.space.free(range.clone(), pool))?;
        let zeros = state.written_in(range.clone()).is_empty();
        if let Some(operation) = &mut state.operation {
            operation.allocated.insert(range.clone());
            operation.blocks.push((range, pool));
        }
        Ok((at, zeros))
    }

    /// Allocates at least `len` bytes past all that is in use; returns their range.
    pub fn append(&self, len: u64) -> io::Result<Range<u64>> {
        self.changing()?;
        let mut state = self.state.write();
        let range = state.space.append(len).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        self.extend_file(&mut state).inspect_err(|_| state.space.free(range.clone(), Pool::Metadata))?;
        if let Some(operation) = &mut state.operation {
            operation.allocated.insert(range.clone());
            operation.blocks.push((range.clone(), Pool::Metadata));
        }
        Ok(range)
    }

    /// Extends the file to the end of allocated space, and some bytes further.
    fn extend_file(&self, state: &mut TransactionState) -> io::Result<()> {
        let end = state.space.end();
        if end > state.len {
            let room = (end / 8).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
            let longer = end.saturating_add(room).checked_next_multiple_of(GRANULE).unwrap_or(end);
            // The superblock may record this EOF: a whole page.
            let longer = state.space.pages().and_then(|p| p.up(longer)).unwrap_or(longer);
            self.driver.set_len(longer)?;
            state.len = longer;
            state.unsynced = true;
        }
        Ok(())
    }

    /// The parts of `range` that may hold other bytes than zeros.
    pub fn written_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.state.read().written_in(range)
    }

    /// Frees `range`, which is reused once the durable state does not reference it.
    pub fn free(&self, range: Range<u64>, pool: Pool) {
        let mut state = self.state.write();
        // A damaged file may free bytes past the end, which were never allocated.
        let range = range.start..range.end.min(state.space.end());
        if range.is_empty() {
            return;
        }
        match &mut state.operation {
            Some(operation) => operation.freed.push((range, pool)),
            None => state.space.free(range, pool),
        }
    }

    /// Removes free space at the end; returns the new end. The file is truncated when it is closed.
    pub fn trim(&self) -> u64 {
        let mut state = self.state.write();
        state.space.end_rest();
        state.space.trim()
    }

    /// Treats `range`, allocated bytes whose content the durable state does not use, as fresh:
    /// writes to it go to the file at once.
    pub fn renew(&self, range: Range<u64>) {
        self.state.write().space.renew(range);
    }

    /// True if structures were changed that the next commit makes durable.
    pub fn has_changed_structures(&self) -> bool {
        !self.state.read().overlay.is_empty()
    }

    /// Adds `range`, which the durable state does not reference, to free space: as parts of pages
    /// of a pool, or for any use.
    pub fn add_free(&self, range: Range<u64>, pool: Option<Pool>) {
        self.state.write().space.add_free(range, pool);
    }

    /// Free and allocated space.
    pub fn space_usage(&self) -> SpaceUsage {
        self.state.read().space.usage()
    }

    /// Space that is free in the next session.
    pub fn free_space(&self) -> FreeRanges {
        self.state.read().space.free_next()
    }

    /// Bytes of memory for dirty blocks.
    pub fn waiting(&self) -> u64 {
        self.state.read().overlay.bytes()
    }

    /// Absolute end of allocated space.
    pub fn end(&self) -> u64 {
        self.state.read().space.end()
    }

    /// True if a commit has something to write or sync.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.unsynced || !state.overlay.is_empty()
    }

    /// True after a failure that forbids further writes.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Called before every change. Errors: the transaction has failed; the EOF cannot be extended.
    fn changing(&self) -> io::Result<()> {
        self.usable()?;
        self.write_scheduled_eof()
    }

    pub(super) fn usable(&self) -> io::Result<()> {
        if self.has_failed() { Err(read_only()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod background_write_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undo_tests;
