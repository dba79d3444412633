//! The log of a file: reading, staging, runs, the index.

use super::beside::{BesideKept, WriterSource};
use super::dataset::{Dataset, LogDataset, LogSource, State};
use super::load::Opened;
use super::pages::Pages;
use super::runs::Run;
use super::shape::Shape;
use super::state::{Found, Inner, Member, Undo, missing};
use super::tables::{self, Indexed};
use crate::base::locks::{Mutex, MutexGuard};
use crate::base::{Address, Error, Result};
use crate::dataset::environment::Environment;
use crate::format::Writer;
use crate::format::log::record::{CONTROL_ID, IndexEntry, NAME};
use crate::format::log::run::{Erased, TO_THE_END};
use foldhash::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Least and largest size of a log dataset that is not for one longer run, bytes.
const LOG_BYTES: (u64, u64) = (64 << 10, 1 << 30);
/// Records after which the index is written, unless more are indexed.
const UNINDEXED_MAX: u64 = 1 << 20;
/// Bytes of the index table that are written at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// The log of a file.
pub(crate) struct RecordLog {
    pub(super) environment: Arc<Environment>,
    open: Box<LogSource>,
    pub(super) writers: Box<WriterSource>,
    /// Locked before `state`.
    pub(super) beside: Mutex<BesideKept>,
    /// Opened at the first use. Locked before `state`.
    pub(super) opened: Mutex<Option<Arc<Opened>>>,
    pub(super) state: Mutex<Inner>,
    /// Where extents of its datasets are packed.
    pub(super) pages: Arc<Pages>,
    is_released: bool,
}

impl RecordLog {
    /// The log whose group `open` opens, beside which are the run files that `writers` opens.
    /// `is_released`: it is one of the released log VOL.
    pub(crate) fn new(environment: Arc<Environment>, open: Box<LogSource>, writers: Box<WriterSource>, is_released: bool) -> Self {
        RecordLog {
            environment,
            open,
            writers,
            beside: Mutex::default(),
            opened: Mutex::default(),
            state: Mutex::default(),
            pages: Arc::default(),
            is_released,
        }
    }

    /// True if it is stored as the released log VOL does.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Opens the log at its first use.
    pub(super) fn opened(&self) -> Result<Arc<Opened>> {
        let mut kept = self.opened.lock();
        if let Some(opened) = &*kept {
            return Ok(opened.clone());
        }
        let mut group = (self.open)()?;
        if self.state.lock().ignores_index {
            group.forget_index();
        }
        let released = self.load_released(&group)?;
        let beside = self.beside()?;
        let opened = Arc::new(Opened::new(group, beside.clone())?);
        let mut inner = self.state.lock();
        if inner.is_open {
            // Only the index is another one.
            drop(inner);
            *kept = Some(opened.clone());
            return Ok(opened);
        }
        inner.is_open = true;
        inner.logs.clone_from(&opened.group.logs);
        inner.writers.clone_from(&beside.runs);
        inner.tail = opened.tail;
        inner.sequence = opened.next_sequence;
        inner.state = opened.state;
        // A run of an operation that was rolled back may have later IDs.
        let seen = opened.changed().max().map_or(0, |id| id.saturating_add(1));
        inner.next_id = opened.group.next_id.max(seen);
        match released {
            Some((released, datasets)) => (inner.released, inner.datasets) = (Some(released), datasets),
            // The ID 0 belongs to the log.
            None => inner.next_id = inner.next_id.max(1),
        }
        inner.unindexed = opened.unindexed;
        inner.is_indexed = opened.unindexed == 0 && opened.changed().next().is_none();
        drop(inner);
        *kept = Some(opened.clone());
        Ok(opened)
    }

    /// The state, in which the dataset is loaded.
    fn with(&self, member: &Member) -> Result<MutexGuard<'_, Inner>> {
        let opened = self.opened()?;
        let known = |inner: &mut Inner| {
            // Deflated records are in log datasets only.
            let deflates = member.deflate && !inner.is_beside;
            let dataset = inner.datasets.get_mut(&member.id)?;
            dataset.shape.extend(&member.shape);
            // One that was loaded for the index alone does not know.
            dataset.deflates = deflates;
            Some(())
        };
        let mut inner = self.state.lock();
        if known(&mut inner).is_some() {
            return Ok(inner);
        }
        drop(inner);
        // Loaded without the lock; if another thread was faster, its dataset stays.
        let mut loaded = self.load(&opened, member.id, member.shape.clone())?;
        let mut inner = self.state.lock();
        loaded.deflates = member.deflate && !inner.is_beside;
        inner.add(member.id, loaded);
        Ok(inner)
    }

    /// Reads a dataset from the log.
    pub(super) fn load(&self, opened: &Opened, id: u64, shape: Shape) -> Result<Dataset> {
        opened.dataset(&self.environment, id, Dataset::new(shape, self.pages.clone()))
    }

    /// What supplies the elements of `range`: pieces, and ranges that were not written.
    pub(super) fn suppliers(&self, member: &Member, range: Range<u64>) -> Result<(Vec<(Range<u64>, Found)>, Vec<Range<u64>>)> {
        let inner = self.with(member)?;
        let dataset = inner.datasets.get(&member.id).ok_or_else(missing)?;
        let (mut pieces, mut gaps, mut at) = (Vec::new(), Vec::new(), range.start);
        for extent in dataset.extents.within(range.clone(), member.shape.element_size) {
            let extent = extent?;
            gaps.extend((extent.first > at).then_some(at..extent.first));
            at = extent.end;
            let bytes = extent.end.saturating_sub(extent.first).saturating_mul(member.shape.element_size);
            pieces.push((extent.first..extent.end, inner.found(dataset, extent.source, bytes)?));
        }
        gaps.extend((at < range.end).then_some(at..range.end));
        Ok((pieces, gaps))
    }

    /// The first written element at or after `at`, or the first one that was not.
    pub(super) fn seek(&self, member: &Member, at: u64, written: bool) -> Result<Option<u64>> {
        let inner = self.with(member)?;
        let extents = &inner.datasets.get(&member.id).ok_or_else(missing)?.extents;
        if written { extents.next_written(at) } else { extents.next_unwritten(at).map(Some) }
    }

    /// Elements that were written.
    pub(super) fn written(&self, member: &Member) -> Result<u64> {
        let inner = self.with(member)?;
        inner.datasets.get(&member.id).map_or(Ok(0), |d| d.extents.elements())
    }

    /// Stages a write of whole elements from `first` on.
    pub(super) fn stage(&self, member: &Member, first: u64, bytes: &[u8]) -> Result<()> {
        let mut inner = self.with(member)?;
        let inner = &mut *inner;
        let size = member.shape.element_size.max(1);
        let end = first.saturating_add((bytes.len() as u64).checked_div(size).unwrap_or(0));
        let source = inner.buffer(member.id, first..end, bytes);
        inner.set(member.id, first..end, Some(source))?;
        inner.note_staged(member.id, first..end);
        Ok(())
    }

    /// Makes elements unwritten.
    pub(super) fn erase(&self, member: &Member, range: Range<u64>) -> Result<()> {
        let mut inner = self.with(member)?;
        if inner.released.is_some() && !inner.has_stored(member.id, &range) {
            return inner.set(member.id, range, None);
        }
        let count = if range.end == u64::MAX { TO_THE_END } else { range.end.saturating_sub(range.start) };
        inner.note_erased(Erased { dataset: member.id, first: range.start, count });
        inner.set(member.id, range, None)
    }

    /// Elements beside `range` whose deflated record was written with elements of `range`, too. The
    /// index lists such a record as a whole, so that these elements must be written again when
    /// `range` is erased: also where later records, or staged elements, replaced those of `range`.
    pub(super) fn shared_records(&self, member: &Member, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let inner = self.with(member)?;
        let dataset = inner.datasets.get(&member.id).ok_or_else(missing)?;
        let most = dataset.longest_deflated;
        if most == 0 {
            return Ok(Vec::new());
        }
        let sides = [range.start.saturating_sub(most)..range.start, range.end..range.end.saturating_add(most)];
        let mut parts = Vec::new();
        for extent in sides.into_iter().flat_map(|side| dataset.extents.within(side, member.shape.element_size)) {
            let extent = extent?;
            let bounds = dataset.record_bounds(&extent);
            parts.extend(bounds.is_some_and(|b| b.start < range.end && b.end > range.start).then_some(extent.first..extent.end));
        }
        Ok(parts)
    }

    /// Forgets a dataset that is deleted.
    pub(super) fn forget(&self, member: &Member) -> Result<()> {
        let mut inner = self.with(member)?;
        let inner = &mut *inner;
        if inner.released.is_none() || inner.has_stored(member.id, &(0..u64::MAX)) {
            inner.note_erased(Erased { dataset: member.id, first: 0, count: TO_THE_END });
        }
        inner.free_id(member.id);
        let dataset = inner.datasets.remove(&member.id);
        // Later loads find nothing.
        let mut empty = Dataset::new(member.shape.clone(), self.pages.clone());
        empty.deflates = member.deflate;
        inner.datasets.insert(member.id, empty);
        let staged = inner.staged.remove(&member.id).unwrap_or_default();
        if let (Some(undo), Some(dataset)) = (&mut inner.undo, dataset) {
            undo.push(Undo::Forgotten { id: member.id, dataset: Box::new(dataset), staged });
        }
        Ok(())
    }

    /// True if new datasets are in the log.
    pub(crate) fn is_default(&self) -> Result<bool> {
        Ok(self.is_released || self.opened()?.group.is_default)
    }

    /// Takes a new dataset ID. The caller stores [`RecordLog::next_id`].
    pub(crate) fn take_id(&self) -> Result<u64> {
        self.opened()?;
        self.state.lock().take_id()
    }

    /// The ID of the next dataset.
    pub(crate) fn next_id(&self) -> u64 {
        self.state.lock().next_id
    }

    /// Begins an operation that can be undone.
    pub(crate) fn begin(&self) {
        let mut inner = self.state.lock();
        inner.had_staged = !inner.staged.is_empty() || !inner.erased.is_empty();
        inner.undo = Some(Vec::new());
    }

    /// True if something was staged when the operation under way began.
    pub(crate) fn had_staged(&self) -> bool {
        self.state.lock().had_staged
    }

    /// Ends the operation; undoes its changes unless they are `kept`.
    pub(crate) fn end(&self, kept: bool) {
        let mut inner = self.state.lock();
        let undo = inner.undo.take().unwrap_or_default();
        if !kept {
            undo.into_iter().rev().for_each(|step| inner.undo(step));
        }
        inner.pack();
    }

    /// Memory of staged elements, bytes.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.state.lock().staged_bytes
    }

    /// Number of the last log dataset; 0: there is none.
    pub(crate) fn last_number(&self) -> Result<u32> {
        self.opened()?;
        Ok(self.state.lock().logs.keys().next_back().copied().unwrap_or(0))
    }

    /// Size for a new log dataset that holds a run of `run` bytes: what the datasets will need if
    /// the rest of them is written like the part that is (section "File flush" of the design).
    pub(crate) fn estimate(&self, run: u64) -> u64 {
        let inner = self.state.lock();
        let used = inner.logs.values().map(|log| log.len).fold(0, u64::saturating_add);
        let (mut written, mut all) = (0u64, 0u64);
        // Those loaded for the index alone have no extent.
        for d in inner.datasets.values().filter(|d| d.shape.is_bounded()) {
            written = written.saturating_add(d.extents.elements().unwrap_or(0).saturating_mul(d.shape.element_size));
            let elements = d.shape.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
            all = all.saturating_add(elements.saturating_mul(d.shape.element_size));
        }
        let whole = u128::from(used).saturating_mul(u128::from(all)).checked_div(u128::from(written.max(1))).unwrap_or(0);
        let rest = u64::try_from(whole).unwrap_or(u64::MAX).saturating_sub(used);
        // Not far more than the log has: the datasets may stay as they are. Not far less either, so
        // that log datasets stay few.
        let (least, most) = LOG_BYTES;
        run.max(rest.clamp((used / 8).clamp(least, most), used.saturating_mul(4).clamp(least, most)))
    }

    /// Adds the log dataset `number`, which was created.
    pub(crate) fn add_log(&self, number: u32, log: LogDataset) {
        let mut inner = self.state.lock();
        inner.undo.iter_mut().for_each(|undo| undo.push(Undo::Log(number)));
        inner.logs.insert(number, log);
    }

    /// The next run, of at most about [`RUN_BYTES`]; `None` if everything is in the log. `commit`:
    /// the last run of a commit is not continued.
    pub(crate) fn next_run(&self, commit: bool) -> Result<Option<Run>> {
        let mut inner = self.state.lock();
        let run = inner.next_run(commit)?;
        if run.is_none() {
            inner.clear_buffers();
        }
        Ok(run)
    }

    /// Place of a run of `len` bytes: address in the file. `None`: there is no room.
    pub(crate) fn place(&self, len: u64) -> Option<Address> {
        let inner = self.state.lock();
        let number = inner.logs.keys().next_back().copied()?;
        let log = inner.logs.get(&number).copied()?;
        let from = if inner.tail.0 == number { inner.tail.1 } else { 0 };
        if from.checked_add(len)? > log.len {
            return None;
        }
        // Nothing is placed yet, so that an undo finds the old tail.
        log.address.checked_add(from)
    }

    /// True if more runs follow.
    pub(crate) fn has_more(&self) -> bool {
        let inner = self.state.lock();
        !inner.staged.is_empty() || !inner.erased.is_empty() || !inner.growth.is_empty()
    }

    /// True if something waits for a commit.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.has_more() || self.has_entries() || self.state.lock().is_continued
    }

    /// Index entries that [`RecordLog::write_index`] will make, about.
    pub(crate) fn index_entries(&self) -> u64 {
        let inner = self.state.lock();
        inner.state.entries.saturating_add(inner.unindexed)
    }

    /// The state of the file that a run belongs to: the `next` one or the present one.
    pub(crate) fn serial(&self, next: bool) -> u64 {
        let inner = self.state.lock();
        inner.state.serial.saturating_add(u64::from(next || inner.awaits_state))
    }

    /// Stages what `run` has again: it was not written.
    pub(crate) fn restore(&self, run: Run) {
        let mut inner = self.state.lock();
        let grown: Vec<u64> = run.head.datasets.iter().map(|d| d.id).filter(|id| inner.grown.contains_key(id)).collect();
        inner.growth.extend(grown);
        inner.stage_again(run.made);
        inner.erase_again(run.erased);
    }

    /// Enters `run`, which was written to its place. `next`: it belongs to the next state of the
    /// file.
    pub(crate) fn placed(&self, run: Run, next: bool, continued: bool) -> Result<()> {
        let mut inner = self.state.lock();
        let inner = &mut *inner;
        let (len, shift) = (run.len(), run.head_len());
        let step = Undo::Tail { tail: inner.tail, sequence: inner.sequence, continued: inner.is_continued };
        if let Some(undo) = &mut inner.undo {
            undo.push(step);
        }
        inner.is_continued = continued;
        if let Some(last) = inner.logs.keys().next_back().copied().filter(|last| *last != inner.tail.0) {
            inner.tail = (last, 0);
        }
        let (log, offset) = inner.tail;
        for made in run.made {
            inner.enter(made, log, offset.saturating_add(shift))?;
        }
        inner.tail.1 = offset.saturating_add(len);
        inner.appended = inner.appended.saturating_add(len);
        inner.sequence = inner.sequence.saturating_add(1);
        inner.is_indexed = false;
        inner.awaits_state |= next;
        inner.pack();
        Ok(())
    }

    /// The state to store in the next commit, if a run belongs to it.
    pub(crate) fn awaited_state(&self) -> Option<State> {
        let inner = self.state.lock();
        let next = State { serial: inner.state.serial.saturating_add(1), ..inner.state };
        inner.awaits_state.then_some(next)
    }

    /// The file has reached `state`.
    pub(crate) fn reached(&self, state: State) {
        let mut inner = self.state.lock();
        inner.state = state;
        inner.awaits_state = false;
    }

    /// True if the index is to be written. `close`: because the file is closed.
    pub(crate) fn wants_index(&self, close: bool) -> bool {
        let inner = self.state.lock();
        let many = inner.unindexed >= UNINDEXED_MAX.max(inner.state.entries);
        (close || many) && !inner.is_indexed && !inner.logs.is_empty()
    }

    /// Passes the index table to `put` in pieces. Returns the skip list, and the state of a file
    /// that has both. Everything is in the log. Entries of datasets that are not in memory are
    /// copied, but those of an ID that is not in `keep`.
    pub(crate) fn write_index(
        &self,
        keep: Option<&HashSet<u64>>,
        put: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<(Vec<u8>, State)> {
        let opened = self.opened()?;
        // Datasets that only runs changed, which the index lacks.
        for id in opened.changed() {
            self.load_changed(&opened, id)?;
        }
        let mut old = tables::indexed(&self.environment, &opened.group)?;
        old.retain(|e| keep.is_none_or(|keep| keep.contains(&e.id)));
        let unshaped: HashSet<u64> = self.unshaped().into_iter().collect();
        if old.iter().any(|e| unshaped.contains(&e.id)) {
            // Their old entries have erased elements.
            return Err(missing());
        }
        // `put` uses the log. The caller excludes readers.
        let datasets = std::mem::take(&mut self.state.lock().datasets);
        let written = self.write_entries(&opened, &old, &datasets, put);
        let mut inner = self.state.lock();
        inner.datasets = datasets;
        let (skip, entries) = written?;
        let state = State {
            serial: inner.state.serial.saturating_add(u64::from(inner.awaits_state)),
            indexed_log: inner.tail.0.into(),
            indexed_bytes: inner.tail.1,
            sequence: inner.sequence,
            entries,
            live: inner.state.live,
        };
        Ok((skip, state))
    }

    /// Passes the entries of all datasets to `put`. Returns skip list and number of entries.
    fn write_entries(
        &self,
        opened: &Opened,
        old: &[Indexed],
        datasets: &HashMap<u64, Dataset>,
        put: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<(Vec<u8>, u64)> {
        let mut ids: Vec<u64> = datasets.keys().copied().chain(old.iter().map(|e| e.id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut table = Pieces { put, at: 0, writer: Writer::new() };
        let mut skip: Vec<(u64, u64)> = Vec::new();
        let mut entries = 0u64;
        let old: HashMap<u64, &Indexed> = old.iter().map(|e| (e.id, e)).collect();
        for id in ids {
            let begin = table.at.saturating_add(table.writer.position() as u64);
            let count = match (datasets.get(&id), old.get(&id)) {
                (Some(dataset), _) => {
                    let rank = dataset.shape.dims.len();
                    tables::write(id, dataset, &mut |entry| table.entry(entry, rank))?
                }
                (None, Some(e)) => {
                    table.copy(&self.environment, opened, e.start..e.end)?;
                    e.count
                }
                (None, None) => 0,
            };
            table.pass(false)?;
            let index = usize::try_from(id).map_err(|_| Error::limit(NAME, Address::UNDEF, "dataset IDs of 2^64"))?;
            if count > 0 {
                skip.resize(index.saturating_add(1).max(skip.len()), (0, 0));
                if let Some(entry) = skip.get_mut(index) {
                    *entry = (begin, count);
                }
                entries = entries.saturating_add(count);
            }
        }
        table.pass(true)?;
        let skip = skip.iter().flat_map(|(at, n)| [at.to_le_bytes(), n.to_le_bytes()].concat()).collect();
        Ok((skip, entries))
    }

    /// The index was written, of `state`, which the next commit stores. The log is opened again
    /// with it where another dataset is used.
    pub(crate) fn indexed(&self, state: State) {
        *self.opened.lock() = None;
        let mut inner = self.state.lock();
        let step = Undo::Indexed(inner.state, (inner.awaits_state, inner.is_indexed, inner.unindexed, inner.ignores_index));
        if let Some(undo) = &mut inner.undo {
            undo.push(step);
        }
        inner.state = state;
        (inner.awaits_state, inner.is_indexed, inner.unindexed, inner.ignores_index) = (false, true, 0, false);
    }

    /// The last log dataset, and how much of it is used, bytes.
    pub(crate) fn last_log(&self) -> Option<(u32, LogDataset, u64)> {
        let inner = self.state.lock();
        let (number, log) = inner.logs.iter().next_back()?;
        Some((*number, *log, if *number == inner.tail.0 { inner.tail.1 } else { 0 }))
    }
}

/// The index table in pieces.
struct Pieces<'a> {
    put: &'a mut dyn FnMut(u64, &[u8]) -> Result<()>,
    at: u64,
    writer: Writer,
}

impl Pieces<'_> {
    /// Appends an entry of a dataset of `rank`, or one of the log.
    fn entry(&mut self, entry: &IndexEntry, rank: usize) -> Result<()> {
        let rank = if entry.head.dataset == CONTROL_ID { 1 } else { rank };
        entry.write(rank, &mut self.writer);
        self.pass(false)
    }

    /// Passes what has been written, if it is enough or the `last` piece.
    fn pass(&mut self, last: bool) -> Result<()> {
        if self.writer.position() < TABLE_PIECE_BYTES && !last {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.writer).into_bytes();
        (self.put)(self.at, &bytes)?;
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Appends bytes of the old index table.
    fn copy(&mut self, environment: &Environment, opened: &Opened, range: Range<u64>) -> Result<()> {
        let Some(table) = &opened.group.index else { return Err(missing()) };
        let mut at = range.start;
        while at < range.end {
            let n = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX).min(TABLE_PIECE_BYTES);
            let mut piece = vec![0; n];
            table.read(environment, at, &mut piece)?;
            self.writer.bytes(&piece);
            self.pass(false)?;
            at = at.saturating_add(n as u64);
        }
        Ok(())
    }
}
