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
use super::connector_parts::LogCompaction;
use super::flush::LogFlush;
use super::log::LogRoom;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::log::{CompactProgress, Compacted, EditLog};
use crate::dataset::layout::{Measure, RecordLog};
use foldhash::HashSet;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Elements that are moved at once, bytes.
const PIECE_BYTES: u64 = 8 << 20;
/// Elements that are moved at one idle moment, bytes.
const IDLE_BYTES: u64 = 64 << 20;
/// A log with fewer dead bytes is not compacted when the container is idle, bytes.
const IDLE_DEAD_MIN_BYTES: u64 = 1 << 20;
/// A log with fewer dead bytes is not compacted when the container is closed, bytes.
const CLOSE_DEAD_MIN_BYTES: u64 = 64 << 10;
/// A log with more live bytes is not compacted when the container is closed, bytes.
const CLOSE_LIVE_MAX_BYTES: u64 = 256 << 20;
/// Between two looks for dead bytes at least this part of the log is appended: 1 / this.
const LOOK_PART: u64 = 16;
/// A log in which at most one of so many bytes is dead is compacted on request only if elements are
/// out of order.
const DEAD_PART: u64 = 64;
/// Longest log dataset of a compaction, bytes. What is missing is in further ones.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Room for heads of runs, bytes.
const RUN_ROOM_BYTES: u64 = 4 << 10;
/// Bytes of the head of a record, about.
const HEAD_BYTES: u64 = 64;
/// A second pass follows if more than this part of the file is free: 1 / this.
const FREE_PART: u64 = 10;

/// Least number of bytes that must be appended before a log of `total` bytes, `dead` of them dead,
/// is compacted when the container is idle: each of them makes at most one other dead.
fn missing_dead(dead: u64, total: u64) -> u64 {
    IDLE_DEAD_MIN_BYTES.saturating_sub(dead).max(total.saturating_sub(dead.saturating_mul(2)))
}

/// What datasets have in the log.
#[derive(Default)]
struct Survey {
    datasets: VecDeque<ObjectId>,
    /// Bytes of their elements, and what those take in the log.
    written: u64,
    stored: u64,
    /// Pieces of them.
    extents: u64,
    /// Every dataset has its elements in their order.
    ordered: bool,
    /// The stored length of some deflated records is not known.
    unmeasured: bool,
    /// Numbers of the log datasets that have elements of them.
    logs: BTreeSet<u32>,
}

impl Survey {
    fn add(&mut self, id: ObjectId, mut measure: Measure) {
        self.written = self.written.saturating_add(measure.written);
        self.stored = self.stored.saturating_add(measure.stored);
        self.extents = self.extents.saturating_add(measure.extents);
        self.ordered &= measure.ordered;
        self.unmeasured |= measure.unmeasured;
        self.logs.append(&mut measure.logs);
        self.datasets.push_back(id);
    }

    /// Bytes that the elements and heads of their records need in the log.
    fn live(&self) -> u64 {
        let stored = if self.unmeasured { self.written } else { self.stored };
        stored.saturating_add(self.extents.saturating_mul(HEAD_BYTES))
    }
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

impl LogCompaction<'_> {
    /// The log of records, opened. Errors: there is none, or it cannot be opened.
    fn log_to_edit(&self) -> Result<Arc<RecordLog>> {
        let access = self.connector.access();
        let log = access.record_log().ok_or_else(|| Error::refused(libc::ENODATA, "the file has no log that is written"))?;
        log.last_number().map(|_| log)
    }

    /// What the dataset `only`, or all, have in the log, and whether some bytes of the log are
    /// dead.
    fn survey(&self, only: Option<ObjectId>) -> Result<(Survey, bool)> {
        let (mut all, mut wanted) = (Survey::default(), Survey { ordered: true, ..Survey::default() });
        self.connector.each_in_log(&mut |id, _, measure| {
            if only.is_none_or(|only| only == id) {
                wanted.add(id, measure.clone());
            }
            all.add(id, measure);
        })?;
        let bytes = self.log_to_edit()?.totals()?.bytes;
        // A log that other software or an earlier version wrote may have deflated records of which
        // it is not known how long they are.
        let has_dead = bytes > 0 && (all.unmeasured || bytes.saturating_sub(all.stored) > bytes / DEAD_PART);
        Ok((wanted, has_dead))
    }

    /// Begins a compaction of the dataset `only` or of all; `None`: there is nothing to do. `anew`:
    /// also where the log is compact. Fails if the disk has no room for the moved elements.
    fn begin_compaction(&self, only: Option<ObjectId>, anew: bool) -> Result<Option<Compaction>> {
        let log = self.log_to_edit()?;
        self.connector.commits().commit_all(false)?;
        let (survey, has_dead) = self.survey(only)?;
        if only.is_some() && survey.datasets.is_empty() {
            return Err(Error::refused(libc::ENODATA, "the dataset is not in the log"));
        }
        if log.totals()?.bytes == 0 || (survey.ordered && !has_dead && !anew) {
            return Ok(None);
        }
        let compaction = Compaction { at: 0, last: log.last_number()?, moved: 0, total: survey.written, datasets: survey.datasets.clone() };
        let change = self.connector.change(&[])?;
        // There is a log dataset also if nothing is moved: numbers of log datasets are not used
        // again.
        change.log().add_log(&log, LogRoom::Reserved(room_for(survey.live())), LogFlush::Early)?;
        Ok(Some(compaction))
    }

    /// Moves the next piece. False: there is none.
    fn move_piece(&self, compaction: &mut Compaction) -> Result<bool> {
        let Some(id) = compaction.datasets.front().copied() else { return Ok(false) };
        let change = self.connector.change(&[id])?;
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
        let env = &self.connector.options.environment;
        d.bytes.read(env, range.start, &mut piece)?;
        change.atomically_reserved(|| d.layout().overwrite(&d.bytes, env, range.start, &piece))?;
        change.settle()?;
        compaction.at = range.end;
        compaction.moved = compaction.moved.saturating_add(piece.len() as u64);
        Ok(true)
    }

    /// Frees the first log datasets if no dataset needs them, without moving elements; returns the
    /// bytes freed. The last log dataset stays: its number must not be used again.
    fn free_dead_logs(&self) -> Result<u64> {
        let log = self.log_to_edit()?;
        self.connector.commits().commit_all(false)?;
        let Some(last) = log.last_number()?.checked_sub(1) else { return Ok(0) };
        if log.unused(last, &self.survey(None)?.0.logs)?.is_empty() {
            return Ok(0);
        }
        self.end_compaction(last)
    }

    /// Makes what was moved durable, and frees what no dataset needs; returns the bytes freed.
    fn end_compaction(&self, last: u32) -> Result<u64> {
        let log = self.log_to_edit()?;
        self.connector.commits().commit_all(false)?;
        let (mut keep, mut used) = (HashSet::default(), BTreeSet::new());
        self.connector.each_in_log(&mut |_, number, mut measure| {
            keep.insert(number);
            used.append(&mut measure.logs);
        })?;
        let change = self.connector.change(&[])?;
        // What changed since is in memory.
        change.log().flush_log(LogFlush::Early)?;
        // Datasets that are open without a name have entries too.
        let keep = (!self.connector.editing()?.objects.has_nameless()).then_some(&keep);
        let unused = if keep.is_some() { log.unused(last, &used)? } else { Vec::new() };
        let freed = unused.iter().map(|(_, log)| log.len).fold(0, u64::saturating_add);
        change.atomically(|| {
            // Closed: the unused end of the last log dataset is freed, too.
            let state = change.log().write_index(&log, true, keep)?;
            let group = change.log().log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
            for (number, _) in &unused {
                change.names().unlink(group, &record_log::log_name(*number), false)?;
            }
            log.remove_logs(&unused);
            Ok(state)
        })?;
        // Records are cached by their address.
        self.connector.options.environment.forget_decoded();
        log.count_appended(None);
        drop(change);
        self.connector.commits().commit_all(false)?;
        Ok(freed)
    }
}

/// Bytes of a log dataset for records of `live` bytes, heads of runs included.
fn room_for(live: u64) -> u64 {
    live.saturating_add(live / DEAD_PART).saturating_add(RUN_ROOM_BYTES).min(LOG_BYTES_MAX)
}

impl Compaction {
    fn next_dataset(&mut self) {
        self.datasets.pop_front();
        self.at = 0;
    }
}

impl LogCompaction<'_> {
    /// Compacts the dataset `only` or all. Where the first pass could put the elements only past
    /// the space that it freed, a second one moves them there, so that the file can be cut.
    fn compact_whole(&self, only: Option<ObjectId>, progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        // Their space may have room for what is moved.
        let freed = self.free_dead_logs()?;
        let Some(mut compaction) = self.begin_compaction(only, false)? else {
            self.connector.file(0)?.store.transaction()?.release_free_storage();
            return Ok(Compacted { freed, finished: true, ..Compacted::default() });
        };
        let mut done = self.run_compaction(&mut compaction, progress)?;
        done.freed = done.freed.saturating_add(freed);
        let space = self.connector.file(0)?.store.transaction()?.space_usage();
        let room = room_for(self.survey(only)?.0.live());
        let can_move = done.finished && done.freed > 0 && space.free > space.end / FREE_PART && space.largest >= room;
        if can_move && let Some(mut again) = self.begin_compaction(only, true)? {
            done.finished = self.run_compaction(&mut again, progress)?.finished;
        }
        self.connector.file(0)?.store.transaction()?.release_free_storage();
        Ok(done)
    }

    fn run_compaction(&self, compaction: &mut Compaction, progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        let mut finished = true;
        while self.move_piece(compaction)? {
            if progress(compaction.moved, compaction.total).is_break() {
                finished = false;
                break;
            }
        }
        let freed = self.end_compaction(compaction.last)?;
        Ok(Compacted { moved: compaction.moved, freed, finished })
    }

    /// Compacts the log before the container is closed, if more of it is dead than live. An error
    /// leaves the log as it is: nothing depends on it.
    pub(super) fn compact_to_close(&self) {
        if let Err(e) = self.try_compact_to_close() {
            tracing::warn!("the log is not compacted: {e}");
        }
    }

    fn try_compact_to_close(&self) -> Result<()> {
        let Some(log) = self.connector.access().record_log().filter(|log| log.appended() > 0 || log.staged_bytes() > 0) else {
            return Ok(());
        };
        let mut idle = self.connector.editing()?.compaction.lock();
        *idle = None;
        let many_dead = |live: u64| {
            let totals = log.totals()?;
            let used = totals.bytes.saturating_sub(totals.unused).saturating_add(totals.staged);
            Ok(used.saturating_sub(live) > live.max(CLOSE_DEAD_MIN_BYTES))
        };
        // A guess from what was live when it was last counted: counting reads the whole index.
        if !many_dead(log.live())? {
            return Ok(());
        }
        // It commits, before what takes long.
        self.free_dead_logs()?;
        let survey = self.survey(None)?.0;
        let live = survey.live().saturating_add(log.staged_bytes());
        log.note_live(live);
        if many_dead(live)? && !survey.unmeasured && live <= CLOSE_LIVE_MAX_BYTES {
            self.compact_whole(None, &mut |_, _| ControlFlow::Continue(()))?;
        }
        Ok(())
    }
}

impl EditLog for NativeConnector {
    fn compact(&self, only: Option<ObjectId>, progress: &mut CompactProgress<'_>) -> Result<Compacted> {
        // One at a time.
        let mut idle = self.editing()?.compaction.lock();
        *idle = None;
        self.compaction().compact_whole(only, progress)
    }

    fn compact_part(&self) -> Result<bool> {
        let Some(mut under_way) = self.editing()?.compaction.try_lock() else { return Ok(false) };
        if under_way.is_none() {
            let log = self.compaction().log_to_edit()?;
            let look_at = match log.look_at() {
                Some(bytes) => bytes,
                None => IDLE_DEAD_MIN_BYTES.max(log.totals()?.bytes / 2),
            };
            if log.appended() < look_at {
                return Ok(false);
            }
            // A look reads the whole index.
            let (survey, total) = (self.compaction().survey(None)?.0, log.totals()?.bytes);
            let dead = if survey.unmeasured { 0 } else { total.saturating_sub(survey.live()) };
            let missing = missing_dead(dead, total);
            if missing > 0 {
                log.count_appended(Some(missing.max(total / LOOK_PART)));
                return Ok(false);
            }
            log.count_appended(None);
            if self.compaction().free_dead_logs()? > 0 {
                return Ok(false);
            }
            *under_way = self.compaction().begin_compaction(None, false)?;
        }
        let Some(compaction) = &mut *under_way else { return Ok(false) };
        let until = compaction.moved.saturating_add(IDLE_BYTES);
        while compaction.moved < until {
            match self.compaction().move_piece(compaction) {
                Ok(true) => {}
                Ok(false) => {
                    let last = compaction.last;
                    *under_way = None;
                    self.compaction().end_compaction(last)?;
                    self.file(0)?.store.transaction()?.release_free_storage();
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
        let log = self.compaction().log_to_edit()?;
        self.commits().commit_all(false)?;
        let change = self.change(&[])?;
        log.forget_index()?;
        change.atomically(|| change.log().write_index(&log, false, None))?;
        drop(change);
        self.commits().commit_all(false)
    }
}
