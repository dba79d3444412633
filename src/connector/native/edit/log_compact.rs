//! Compaction of the log of records, and its index from the records alone.
//!
//! 1. A new log dataset is created. Everything that is appended from now on goes there or further.
//! 2. The elements that are in earlier log datasets are read and staged again, in their order, a
//!    piece at a time: a piece is an operation, between which others are served.
//! 3. One commit makes a new index durable, and frees the earlier log datasets that no dataset
//!    needs.
//!
//! A compaction that ends early leaves elements in both places, and the newer record counts.

use super::super::NativeConnector;
use super::super::record_log;
use super::flush::LogFlush;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::log::{CompactProgress, Compacted, EditLog, Log};
use crate::dataset::layout::RecordLog;
use foldhash::HashSet;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Elements that are moved at once, bytes.
const PIECE_BYTES: u64 = 8 << 20;
/// Elements that are moved at one idle moment, bytes.
const IDLE_BYTES: u64 = 64 << 20;
/// A log with fewer dead bytes is not compacted when the container is idle, bytes.
const IDLE_DEAD_MIN_BYTES: u64 = 64 << 20;
/// Between two looks for dead bytes at least this part of the log is appended: 1 / this.
const LOOK_PART: u64 = 16;
/// A log in which at most one of so many bytes is dead is compacted only if elements are out of
/// order.
const DEAD_PART: u64 = 64;

/// Least number of bytes that must be appended before a log of `total` bytes, `dead` of them dead,
/// is compacted when the container is idle: each of them makes at most one other dead.
fn missing_dead(dead: u64, total: u64) -> u64 {
    IDLE_DEAD_MIN_BYTES.saturating_sub(dead).max(total.saturating_sub(dead.saturating_mul(2)))
}

/// A compaction under way.
pub(super) struct Compaction {
    /// Datasets to be moved, and the next byte of the first one.
    datasets: VecDeque<ObjectId>,
    at: u64,
    /// Number of the last log dataset that is to be freed.
    last: u32,
    moved: u64,
    total: u64,
}

/// The compaction that continues when the container is idle.
pub(super) type IdleCompaction = Mutex<Option<Compaction>>;

impl NativeConnector {
    fn log_to_edit(&self) -> Result<Arc<RecordLog>> {
        self.record_log().ok_or_else(|| Error::refused(libc::ENODATA, "the file has no log that is written"))
    }

    /// Begins a compaction of the dataset `only` or of all; `None`: there is nothing to do.
    fn begin_compaction(&self, only: Option<ObjectId>) -> Result<Option<Compaction>> {
        let log = self.log_to_edit()?;
        self.commit_all(false)?;
        let mut found = Compaction { datasets: VecDeque::new(), at: 0, last: log.last_number()?, moved: 0, total: 0 };
        let (mut stored, mut new, mut ordered, mut unmeasured) = (0u64, 0u64, true, false);
        self.each_in_log(&mut |id, _, measure| {
            stored = stored.saturating_add(measure.stored);
            unmeasured |= measure.unmeasured;
            if only.is_none_or(|only| only == id) {
                ordered &= measure.ordered;
                found.total = found.total.saturating_add(measure.written);
                new = new.saturating_add(if measure.unmeasured { measure.written } else { measure.stored });
                found.datasets.push_back(id);
            }
        })?;
        if only.is_some() && found.datasets.is_empty() {
            return Err(Error::refused(libc::ENODATA, "the dataset is not in the log"));
        }
        let bytes = log.totals()?.bytes;
        // A log that other software or an earlier version wrote may have deflated records of which
        // it is not known how long they are.
        let is_dense = !unmeasured && bytes.saturating_sub(stored) <= bytes / DEAD_PART;
        if bytes == 0 || (ordered && is_dense) {
            return Ok(None);
        }
        let change = self.change(&[])?;
        // Heads of records take some more; what is missing is in further log datasets. There is one
        // also if nothing is moved: numbers of log datasets are not used again.
        change.add_log(&log, new.saturating_add(new / DEAD_PART).min(1 << 30), LogFlush::Early)?;
        Ok(Some(found))
    }

    /// Moves the next piece. False: there is none.
    fn move_piece(&self, compaction: &mut Compaction) -> Result<bool> {
        let Some(id) = compaction.datasets.front().copied() else { return Ok(false) };
        let change = self.change(&[id])?;
        // Deleted meanwhile, perhaps.
        let Ok(d) = change.dataset(id) else {
            compaction.next_dataset();
            return Ok(true);
        };
        let next = match d.layout().logged() {
            Some(logged) => logged.next_in(compaction.at, compaction.last, PIECE_BYTES)?,
            None => None,
        };
        let Some(range) = next else {
            compaction.next_dataset();
            return Ok(true);
        };
        let mut piece = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let env = &self.options.environment;
        d.bytes.read(env, range.start, &mut piece)?;
        change.atomically(|| d.layout().overwrite(&d.bytes, env, range.start, &piece))?;
        change.settle()?;
        compaction.at = range.end;
        compaction.moved = compaction.moved.saturating_add(piece.len() as u64);
        Ok(true)
    }

    /// Makes what was moved durable, and frees what no dataset needs; returns the bytes freed.
    fn end_compaction(&self, last: u32) -> Result<u64> {
        let log = self.log_to_edit()?;
        self.commit_all(false)?;
        let (mut keep, mut used) = (HashSet::default(), BTreeSet::new());
        self.each_in_log(&mut |_, number, mut measure| {
            keep.insert(number);
            used.append(&mut measure.logs);
        })?;
        let change = self.change(&[])?;
        // What changed since is in memory.
        change.flush_log(LogFlush::Early)?;
        // Datasets that are open without a name have entries too.
        let keep = (!self.editing()?.objects.has_nameless()).then_some(&keep);
        let unused = if keep.is_some() { log.unused(last, &used)? } else { Vec::new() };
        let freed = unused.iter().map(|(_, log)| log.len).fold(0, u64::saturating_add);
        change.atomically(|| {
            // Closed: the unused end of the last log dataset is freed, too.
            let state = change.write_index(&log, true, keep)?;
            let group = change.log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
            for (number, _) in &unused {
                change.unlink(group, &record_log::log_name(*number), false)?;
            }
            log.remove_logs(&unused);
            Ok(state)
        })?;
        // Records are cached by their address.
        self.options.environment.cache.clear();
        log.count_appended(None);
        drop(change);
        self.commit_all(false)?;
        Ok(freed)
    }
}

impl Compaction {
    fn next_dataset(&mut self) {
        self.datasets.pop_front();
        self.at = 0;
    }
}

impl EditLog for NativeConnector {
    fn compact(&self, only: Option<ObjectId>, progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        // One at a time.
        let mut idle = self.editing()?.compaction.lock();
        *idle = None;
        let Some(mut compaction) = self.begin_compaction(only)? else { return Ok(Compacted { finished: true, ..Compacted::default() }) };
        let mut finished = true;
        while self.move_piece(&mut compaction)? {
            if progress(compaction.moved, compaction.total).is_break() {
                finished = false;
                break;
            }
        }
        let freed = self.end_compaction(compaction.last)?;
        Ok(Compacted { moved: compaction.moved, freed, finished })
    }

    fn compact_part(&self) -> Result<bool> {
        let Some(mut under_way) = self.editing()?.compaction.try_lock() else { return Ok(false) };
        if under_way.is_none() {
            let log = self.log_to_edit()?;
            let look_at = match log.look_at() {
                Some(bytes) => bytes,
                None => IDLE_DEAD_MIN_BYTES.max(log.totals()?.bytes / 2),
            };
            if log.appended() < look_at {
                return Ok(false);
            }
            let usage = self.usage()?;
            let missing = missing_dead(usage.dead.unwrap_or(0), usage.total);
            if missing > 0 {
                // A look reads the whole index.
                log.count_appended(Some(missing.max(usage.total / LOOK_PART)));
                return Ok(false);
            }
            log.count_appended(None);
            *under_way = self.begin_compaction(None)?;
        }
        let Some(compaction) = &mut *under_way else { return Ok(false) };
        let until = compaction.moved.saturating_add(IDLE_BYTES);
        while compaction.moved < until {
            match self.move_piece(compaction) {
                Ok(true) => {}
                Ok(false) => {
                    let last = compaction.last;
                    *under_way = None;
                    self.end_compaction(last)?;
                    return Ok(false);
                }
                Err(e) => {
                    *under_way = None;
                    return Err(e);
                }
            }
        }
        Ok(true)
    }

    fn rebuild_index(&self) -> Result<()> {
        let log = self.log_to_edit()?;
        self.commit_all(false)?;
        let change = self.change(&[])?;
        log.forget_index()?;
        change.atomically(|| change.write_index(&log, false, None))?;
        drop(change);
        self.commit_all(false)
    }
}
