//! Keeps a record of the session's free space in the file, so that a kill loses none of it.
//!
//! The record ([`crate::file::free_record`]) is in free space itself, and no commit depends on it.
//! It is written
//!
//! - before a commit that uses space which the record on disk names: what is free before and after
//!   that commit. The sync that makes new bytes durable comes next, and includes the record;
//! - after a commit: also what that commit freed. This is not synced: a power cut leaves either of
//!   both records, or none.
//!
//! So a whole record names only free space, whichever commit is the last one on disk.

use super::{Transaction, TransactionState};
use crate::file::WriteDriver;
use crate::file::free_record::{BLOCK_BYTES_MAX, FreeRecord, RANGES_MAX, RecordPlace, encoded_len};
use crate::file::journal;
use crate::file::overlay::SECTOR;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Fewest free bytes that a record is made for.
const FREE_BYTES_MIN: u64 = 1 << 10;
/// Kinds of free space.
const KINDS: usize = 3;
/// Bytes at the front of a block without which it holds no record.
const VOID_BYTES: usize = 16;

/// Block of the session's record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordBlock {
    range: Range<u64>,
    nonce: u64,
}

impl RecordBlock {
    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn place(&self) -> RecordPlace {
        RecordPlace { offset: self.range.start, nonce: self.nonce }
    }
}

/// The record of the session.
#[derive(Debug, Default)]
pub(in crate::file) struct RecordState {
    /// Block of the record on disk, if there is one.
    block: Option<RecordBlock>,
    /// Longer block for the next record.
    next: Option<RecordBlock>,
    /// True once the session is about to end.
    has_ended: bool,
}

impl RecordState {
    /// Where the record is, if there is one.
    pub(in crate::file) fn place(&self) -> Option<RecordPlace> {
        self.block.as_ref().map(RecordBlock::place)
    }
}

impl TransactionState {
    /// Length of the block that the record needs after the next commit; `None` if the present one
    /// suffices, or nothing needs a record.
    fn record_block_needed(&self) -> Option<u64> {
        let record = &self.free_record;
        if record.has_ended || record.next.is_some() || self.order.is_some() {
            return None;
        }
        let least = encoded_len(self.space.count_free_after_commit().min(KINDS * RANGES_MAX)) as u64;
        let is_wanted = match &record.block {
            Some(present) => least > present.len(),
            None => self.space.frees(FREE_BYTES_MIN),
        };
        is_wanted.then(|| least.saturating_mul(2).next_multiple_of(SECTOR).min(BLOCK_BYTES_MAX))
    }

    /// The space that neither the present state uses nor the durable one.
    fn record_for(&self, block: &RecordBlock) -> FreeRecord {
        let free = self.space.longest_free(self.recorded_eof, RANGES_MAX);
        let mut record = FreeRecord { free, pages: self.space.pages() };
        record.limit(block.len());
        record
    }
}

impl Transaction {
    /// Allocates a block for the record, with storage, so that the commit under way records an EOF
    /// past it. Not on a full disk.
    fn take_record_block(&self) -> io::Result<()> {
        let needed = self.state.read().record_block_needed();
        let Some(len) = needed.filter(|_| !self.out_of_space.load(Ordering::Acquire)) else { return Ok(()) };
        let nonce = getrandom::u64().map_err(io::Error::other)?;
        let Some(range) = self.state.write().space.take_block(len) else { return Ok(()) };
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        let extended = self.extend_file(&mut self.state.write());
        // Later writes to it must not fail.
        let stored = extended.and_then(|()| self.driver.write_at(&zeros, range.start));
        let mut state = self.state.write();
        if let Err(e) = stored {
            state.space.give_block(range);
            state.space.trim();
            return Err(e);
        }
        state.overlay.written(range.end);
        state.note_written(range.clone());
        state.unsynced = true;
        state.free_record.next = Some(RecordBlock { range, nonce });
        Ok(())
    }

    /// Replaces the record on disk by one of the space that is free before and after the commit
    /// under way, if the commit uses space that the record names.
    pub(in crate::file) fn record_before_commit(&self) -> io::Result<()> {
        // Without a longer block the record names the longest ranges.
        if let Err(e) = self.take_record_block() {
            tracing::debug!("no block for the record of free space: {e}");
        }
        let (block, record) = {
            let state = self.state.read();
            let Some(block) = state.free_record.block.clone().filter(|_| state.space.is_recorded_space_used()) else {
                return Ok(());
            };
            let record = state.record_for(&block);
            (block, record)
        };
        self.driver.write_at(&record.encode(block.nonce, block.len()), block.range.start)?;
        let mut state = self.state.write();
        state.space.set_recorded(record.free.end());
        state.unsynced = true;
        Ok(())
    }

    /// Records the space that is free after a commit. An error is harmless: the record names less
    /// space, or none.
    pub(in crate::file) fn record_after_commit(&self, journal: Option<&dyn WriteDriver>) {
        let done = self.use_next_block(journal).and_then(|()| self.update_record());
        if let Err(e) = done {
            tracing::debug!("a kill would lose free space of the file: {e}");
        }
    }

    /// Makes the journal name the new block, if there is one, and frees the present one.
    fn use_next_block(&self, journal: Option<&dyn WriteDriver>) -> io::Result<()> {
        let (present, next) = {
            let state = self.state.read();
            (state.free_record.block.clone(), state.free_record.next.clone())
        };
        let (Some(journal), Some(next)) = (journal, next) else { return Ok(()) };
        // There are never two records.
        if let Some(present) = &present {
            self.driver.write_at(&[0; VOID_BYTES], present.range.start)?;
        }
        journal::set_free_record(journal, Some(next.place()))?;
        let mut state = self.state.write();
        state.free_record.block = state.free_record.next.take();
        state.space.outdate_record();
        if let Some(present) = present {
            state.space.give_block(present.range);
        }
        Ok(())
    }

    fn update_record(&self) -> io::Result<()> {
        let (block, record) = {
            let state = self.state.read();
            let Some(block) = state.free_record.block.clone().filter(|_| state.space.is_record_outdated()) else { return Ok(()) };
            let record = state.record_for(&block);
            (block, record)
        };
        self.driver.write_at(&record.encode(block.nonce, block.len()), block.range.start)?;
        self.state.write().space.set_recorded(record.free.end());
        Ok(())
    }

    /// Frees the block of the record: the session is about to end.
    pub fn end_free_record(&self) {
        let present = {
            let mut state = self.state.write();
            let record = &mut state.free_record;
            record.has_ended = true;
            let (present, next) = (record.block.take(), record.next.take());
            state.unsynced |= present.is_some();
            present.iter().chain(&next).for_each(|block| state.space.give_block(block.range.clone()));
            present
        };
        // An error is harmless: the journal that names the record is about to be removed.
        let _ = present.map(|block| self.driver.write_at(&[0; VOID_BYTES], block.range.start));
    }
}
