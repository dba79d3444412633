//! Storage for the journal: ENOSPC reaches the change that makes it longer than its storage, not
//! the commit.

use super::Transaction;
use crate::file::WriteDriver;
use crate::file::overlay::SECTOR;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Space reserved for the journal at the first operation, so that removals can be committed on a
/// full disk, bytes.
pub(in crate::file) const RESERVED: u64 = 256 << 10;
/// Part of it that elements leave to structures, of which the commit itself changes some, bytes.
const FOR_STRUCTURES: u64 = RESERVED / 2;
/// Smallest reservation for the journal, bytes.
const RESERVED_MIN: u64 = 4 << 10;
/// Storage that is added at once, bytes.
const PIECE: u64 = 1 << 20;
/// Part of the changed sectors for what the journal says about them: 1 / this.
const ABOUT_PART: u64 = 16;

/// Storage that the journal has.
#[derive(Default)]
pub(in crate::file) struct JournalRoom {
    /// Bytes that are reserved.
    len: AtomicU64,
    /// Bytes that the commit changes where they are.
    promised: AtomicU64,
}

impl JournalRoom {
    /// Reserves [`RESERVED`] bytes for the journal `file`, or less on a nearly full disk.
    pub(super) fn begin(&self, file: &dyn WriteDriver) {
        let Ok(len) = file.status().map(|s| s.len) else { return };
        let mut wanted = RESERVED;
        while wanted >= RESERVED_MIN {
            // The same amount must remain for the changes to commit.
            let reserved = file.reserve(wanted.saturating_mul(2));
            if reserved.is_ok() {
                let _ = file.set_len(wanted);
                self.len.store(wanted, Ordering::Release);
                return;
            }
            // Frees storage that was partly allocated.
            let _ = file.set_len(len);
            tracing::debug!("cannot reserve {wanted} bytes for the journal: {reserved:?}");
            wanted /= 4;
        }
    }

    /// The journal `file` was written, and is void: storage past [`RESERVED`] becomes free.
    pub(in crate::file) fn shorten(&self, file: &dyn WriteDriver) {
        if self.len.fetch_min(RESERVED, Ordering::AcqRel) > RESERVED {
            let _ = file.set_len(RESERVED);
        }
    }

    /// What elements leave to others.
    pub(super) fn kept(&self) -> u64 {
        self.for_structures().saturating_add(self.promised.load(Ordering::Acquire))
    }

    /// What elements leave to structures: half of less than [`RESERVED`], and not nothing.
    fn for_structures(&self) -> u64 {
        FOR_STRUCTURES.min(self.len.load(Ordering::Acquire) / 2).max(1)
    }

    /// Reserves `len` bytes for the journal `file`, more than it has.
    fn extend(&self, file: &dyn WriteDriver, len: u64) -> io::Result<()> {
        let before = file.status()?.len;
        let wide = file.reserve(len.saturating_add(PIECE)).map(|()| len.saturating_add(PIECE));
        let reserved = wide.or_else(|_| file.reserve(len).map(|()| len));
        match reserved {
            Ok(len) => self.len.store(len, Ordering::Release),
            // Frees storage that was partly allocated.
            Err(_) => drop(file.set_len(before)),
        }
        reserved.map(drop)
    }
}

impl Transaction {
    /// Ensures storage for the journal of all changes and of a change of `range`; beside `kept`
    /// bytes for others. Changes that fit what is reserved at the first operation are not refused:
    /// they may free space. Errors: `ENOSPC`; a commit makes the journal short again.
    pub(super) fn reserve_journal(&self, range: Range<u64>, kept: u64) -> io::Result<()> {
        let room = self.room(kept);
        let len = |range: &Range<u64>| range.end.saturating_sub(range.start);
        if self.journal_bytes(len(&range)) <= room || self.is_ordered() {
            return Ok(());
        }
        // Fresh bytes are not in it.
        let parts = self.state.read().space.split_fresh(range);
        let live = parts.iter().filter(|(_, fresh)| !fresh).map(|(part, _)| len(part)).sum();
        if live == 0 { Ok(()) } else { self.reserve_room(self.journal_bytes(live), kept, room) }
    }

    /// Ensures storage for the journal of all changes and of `bytes` that the commit changes where
    /// they are. Errors: `ENOSPC`.
    pub fn promise_journal(&self, bytes: u64) -> io::Result<()> {
        self.journal_room.promised.store(bytes, Ordering::Release);
        let kept = if bytes == 0 { 0 } else { self.journal_room.for_structures() };
        let room = self.journal_room.len.load(Ordering::Acquire).saturating_sub(kept);
        self.reserve_room(self.journal_bytes(bytes), kept, room)
    }

    /// Storage that the journal has beside `kept`; without `kept` at least [`RESERVED`].
    fn room(&self, kept: u64) -> u64 {
        let len = self.journal_room.len.load(Ordering::Acquire);
        if kept == 0 { len.max(RESERVED) } else { len.saturating_sub(kept) }
    }

    /// Ensures storage for the journal of all changes so far. Errors: `ENOSPC`; what frees more
    /// than it takes may go on, as a commit may find room by then.
    pub fn reserve_changes(&self) -> io::Result<()> {
        // One sector is committed without a journal.
        if self.is_ordered() || self.state.read().overlay.changed_bytes() <= SECTOR {
            return Ok(());
        }
        let Some(mut journal) = self.journal.try_lock() else { return Ok(()) };
        if journal.is_none() {
            match self.place.create() {
                Ok(file) => {
                    self.journal_room.begin(&*file);
                    *journal = Some(file);
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                    self.note_starved();
                    return Err(e);
                }
                // The commit says why.
                Err(_) => return Ok(()),
            }
        }
        let Some(file) = journal.as_ref() else { return Ok(()) };
        let need = self.journal_bytes(0);
        if need <= self.journal_room.len.load(Ordering::Acquire) {
            return Ok(());
        }
        self.journal_room.extend(&**file, need).inspect_err(|_| self.note_starved())
    }

    /// Ensures storage for `need` bytes of the journal beside `kept`, if it is more than `room`.
    fn reserve_room(&self, need: u64, kept: u64, room: u64) -> io::Result<()> {
        if need <= room || self.is_ordered() {
            return Ok(());
        }
        // A commit writes it meanwhile, or will have a shorter one.
        let Some(journal) = self.journal.try_lock() else { return Ok(()) };
        let Some(file) = journal.as_ref() else {
            // The disk had no room for its name.
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            let has_none_yet = self.unused.load(Ordering::Acquire);
            return if kept == 0 || has_none_yet { Ok(()) } else { Err(full).inspect_err(|_| self.note_starved()) };
        };
        self.journal_room.extend(&**file, need.saturating_add(kept)).inspect_err(|_| self.note_starved())
    }

    /// True if a commit makes the journal so much shorter that small changes fit.
    pub(super) fn has_long_journal(&self) -> bool {
        let len = self.journal_room.len.load(Ordering::Acquire);
        self.journal_bytes(0) > (RESERVED / 4).min((len / 2).max(2 * RESERVED_MIN))
    }

    /// Most bytes of the journal for all changes and `len` bytes more.
    fn journal_bytes(&self, len: u64) -> u64 {
        let sectors = self.state.read().overlay.changed_bytes().saturating_add(len).saturating_add(2 * SECTOR);
        sectors.saturating_add(sectors / ABOUT_PART).saturating_add(RESERVED_MIN)
    }
}
