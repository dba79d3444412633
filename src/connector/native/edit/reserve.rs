//! Storage for dirty chunks and staged log records: ENOSPC reaches the operation that writes them,
//! not a later commit.
//!
//! Storage is reserved at the end of the file, where the chunks go if no free range holds them. An
//! operation for which no storage can be reserved stores its chunks at once, perhaps in free
//! ranges, or fails as a whole.
//!
//! Some storage is kept for operations that free space, on a full disk too: past the end of the
//! file for structures, as the list of free space of a heap, which a removal makes longer; in a log
//! for runs without data.

use super::super::access::Access;
use super::super::dataset::id_of;
use super::Change;
use super::connector_parts::Commits;
use super::flush::LogFlush;
use crate::base::{Address, Error, Result};

/// Stored records are at most this part longer than their memory: deflate may lengthen them.
const LONGER_PART: u64 = 64;
/// Storage for structures of removals, or that refer to stored chunks, bytes.
const STRUCTURES_BYTES: u64 = 64 << 10;
/// Storage for the head and the control records of a run, bytes.
const RUN_BYTES: u64 = 4 << 10;
/// Storage for runs without data, bytes: a removed dataset takes some 50.
const EMPTY_RUNS_BYTES: u64 = 64 << 10;
/// Bytes of memory for a byte of a sparse chunk or of the log, and for a write, at most.
const MEMORY_PER_BYTE: u64 = 2;
const MEMORY_PER_WRITE: u64 = 1 << 10;

/// True for ENOSPC and EDQUOT.
pub(super) fn is_full(e: &Error) -> bool {
    matches!(e, Error::Io { errno: libc::ENOSPC | libc::EDQUOT, .. })
}

impl Commits<'_> {
    /// True if dirty chunks or staged records are in memory.
    pub(super) fn has_unstored(&self) -> bool {
        !self.connector.options.environment.dirty.is_empty() || self.staged_bytes() > 0
    }

    /// True if an operation found no space and a commit makes space free.
    pub(super) fn is_relieved(&self) -> bool {
        self.connector.file(0).is_ok_and(|f| f.store.transaction().is_ok_and(|t| t.is_relieved()))
    }

    /// Commits on a full disk, because freed space is usable only after a commit.
    pub(super) fn relieve(&self) {
        if self.is_relieved()
            && let Err(e) = self.commit_all(false)
        {
            // The next write or commit returns the error.
            tracing::debug!("no room is made on the disk: {e}");
        }
    }

    fn staged_bytes(&self) -> u64 {
        self.connector.used_log().map_or(0, |log| log.staged_bytes())
    }
}

impl Access<'_> {
    /// Ensures storage for removals, and for all dirty chunks and staged records in memory; with
    /// `len`, for a write of that many bytes to them, if there are any. Chunks in temporary files
    /// are not counted: few of their bytes may be used.
    pub(super) fn reserve_unstored(&self, len: Option<u64>) -> Result<()> {
        let next = len.map_or(0, |len| len.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_PER_WRITE));
        let longer = |bytes: u64| bytes.saturating_add(bytes / LONGER_PART);
        let dirty = &self.connector.options.environment.dirty;
        let log = self.written_log();
        let staged = log.as_ref().map_or(0, |log| log.staged_bytes());
        if len.is_some() && dirty.bytes() == 0 && staged == 0 && log.is_none() {
            return Ok(());
        }
        let store = &self.connector.file(0)?.store;
        let transaction = store.transaction()?;
        let failed = |e| Error::io("reserve storage", Address::UNDEF, &e);
        transaction.promise_journal(dirty.bytes_in_place()).map_err(failed)?;
        // Part of a page may stay unused behind each chunk.
        let chunks = dirty.storage_bytes().saturating_mul(if transaction.pages().is_some() { 2 } else { 1 });
        let mut tail = chunks.saturating_add(STRUCTURES_BYTES);
        if let Some(log) = log {
            let around = if staged > 0 || next > 0 { RUN_BYTES } else { 0 };
            let records = longer(staged).saturating_add(next).saturating_add(around).saturating_add(EMPTY_RUNS_BYTES);
            // The first runs go to the unused end of the last log dataset, if they fit.
            let (at, room) = log.last_log().map_or((Address::UNDEF, 0), |(_, log, used)| {
                (log.address.checked_add(used).unwrap_or(Address::UNDEF), log.len.saturating_sub(used))
            });
            if room > 0 {
                let at = store.offset(at, "log")?;
                transaction.reserve_range(at..at.saturating_add(records.min(room))).map_err(failed)?;
            }
            if records > room {
                tail = tail.saturating_add(records);
            }
        }
        transaction.reserve_growth(tail.saturating_add(next)).map_err(failed)
    }
}

impl Change<'_> {
    /// Makes the changes of `f`, or none if it fails or the storage of its dirty chunks cannot be
    /// reserved.
    pub(super) fn atomically_reserved<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.needs_space()?;
        self.atomically(|| {
            let done = f()?;
            self.reserve_or_store(before)?;
            Ok(done)
        })
    }

    /// Measures that only operations in need of space raise, bytes: the end of allocated space,
    /// dirty chunks, staged records.
    fn needs_space(&self) -> Result<[u64; 3]> {
        let connector = self.connector;
        Ok([self.store()?.transaction()?.end(), connector.options.environment.dirty.bytes(), connector.commits().staged_bytes()])
    }

    /// True if the operation under way needs no storage but what is kept: it frees as much space as
    /// it takes. `before`: `needs_space` before it.
    fn frees_space(&self, before: [u64; 3]) -> Result<bool> {
        let [end, unstored @ ..] = self.needs_space()?;
        let [end_before, unstored_before @ ..] = before;
        let more = unstored.iter().zip(unstored_before).any(|(now, before)| *now > before);
        Ok(!more && (end <= end_before || self.store()?.transaction()?.frees_what_it_takes()))
    }

    /// Ensures storage for the journal of what was changed where it is.
    fn reserve_changes(&self) -> Result<()> {
        let store = self.store()?;
        let transaction = store.transaction()?;
        match transaction.reserve_changes() {
            Err(e) if !transaction.frees_more_than_it_takes() => Err(Error::io("reserve storage", Address::UNDEF, &e)),
            _ => Ok(()),
        }
    }

    /// Reserves storage, or stores the dirty chunks. `before`: `needs_space` before the operation.
    fn reserve_or_store(&self, before: [u64; 3]) -> Result<()> {
        self.reserve_changes()?;
        let Err(full) = self.access.reserve_unstored(None) else { return Ok(()) };
        if !is_full(&full) {
            return Err(full);
        }
        if self.frees_space(before)? {
            return Ok(());
        }
        let dirty = &self.connector.options.environment.dirty;
        let stored = dirty.datasets().into_iter().try_for_each(|n| self.dirty_chunks().flush_within(id_of(n)));
        // A damaged dataset does not take its chunks: the commit reports that.
        stored.and_then(|()| self.log().flush_log(LogFlush::Within)).map_err(|_| full)?;
        let [end, ..] = before;
        if !self.connector.commits().has_unstored() && self.access.written_log().is_none() && self.store()?.transaction()?.end() <= end {
            // All of it is in free ranges.
            return self.reserve_changes();
        }
        // What an earlier operation staged is not appended within another.
        self.access.reserve_unstored(None)
    }
}
