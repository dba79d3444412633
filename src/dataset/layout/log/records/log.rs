//! The state of a file's log.

use super::extents::{Extent, Source};
use super::load::{Dataset, Deflated, LogDataset, LogSource, Opened, Shape, State};
use super::runs::{Made, Maker, Run};
use super::tables::{self, Indexed};
use crate::base::{Address, Error, Result};
use crate::dataset::environment::Environment;
use crate::format::Writer;
use crate::format::log::record::NAME;
use crate::format::log::run::{Erased, RunDataset, RunHead, TO_THE_END, write_erased};
use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that a staged buffer grows to by writes that continue it.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Memory of a staged buffer besides its bytes, and of its extent.
const BUFFER_OVERHEAD_BYTES: u64 = 128;
/// Data of one run, about, bytes.
pub(super) const RUN_BYTES: u64 = 8 << 20;
/// Records after which the index is written, unless more are indexed.
const UNINDEXED_MAX: u64 = 1 << 20;
/// Erased ranges of one control record.
const ERASED_MAX: usize = 1 << 16;
/// Bytes of the index table that are written at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// The log of a file.
pub(crate) struct RecordLog {
    environment: Arc<Environment>,
    open: Box<LogSource>,
    /// Opened at the first use. Locked before `state`.
    opened: Mutex<Option<Arc<Opened>>>,
    state: Mutex<Inner>,
}

/// One dataset of the log, as its layout knows it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) shape: Shape,
    /// Records are deflated.
    pub(super) deflate: bool,
}

/// A piece of a read.
pub(super) enum Found {
    /// Bytes in memory, from a position on.
    Staged(Arc<Vec<u8>>, u64),
    /// Bytes in the file.
    Stored(Address),
    /// A deflated record, and the first element wanted.
    Deflated(Box<DeflatedAt>),
}

/// A deflated record in the file.
pub(super) struct DeflatedAt {
    pub(super) address: Address,
    /// Bytes of the log dataset from there on.
    pub(super) left: u64,
    /// Elements of the record.
    pub(super) elements: u64,
    /// First element wanted.
    pub(super) first: u64,
}

/// An undo step of the operation under way.
enum Undo {
    /// The extents of a range were these.
    Extents { id: u64, range: Range<u64>, before: Vec<Extent> },
    /// The dataset was forgotten.
    Forgotten { id: u64, dataset: Box<Dataset>, staged: Vec<Range<u64>> },
    /// Erased ranges that are to be logged were so many.
    Erased(usize),
    /// The next run had this place and number.
    Tail { tail: (u32, u64), sequence: u64, continued: bool },
    /// A log dataset was created.
    Log(u32),
}

#[derive(Default)]
struct Inner {
    is_open: bool,
    logs: BTreeMap<u32, LogDataset>,
    /// Where the next run goes.
    tail: (u32, u64),
    sequence: u64,
    /// The last run is continued.
    is_continued: bool,
    state: State,
    /// The next dataset ID.
    next_id: u64,
    /// A run belongs to the next state of the file.
    awaits_state: bool,
    /// Something changed since the index was written.
    unindexed: u64,
    is_indexed: bool,
    datasets: HashMap<u64, Dataset>,
    deflate: HashMap<u64, bool>,
    buffers: HashMap<u32, Arc<Vec<u8>>>,
    next_buffer: u32,
    /// The last buffer, its dataset, and the element after its last one.
    last: Option<(u32, u64, u64)>,
    staged_bytes: u64,
    /// Ranges that were staged, by dataset.
    staged: HashMap<u64, Vec<Range<u64>>>,
    /// Erased ranges that are not logged yet.
    erased: Vec<Erased>,
    undo: Option<Vec<Undo>>,
}

fn missing() -> Error {
    Error::corrupt(NAME, Address::UNDEF, "the dataset is not open")
}

impl RecordLog {
    /// The log whose group `open` opens.
    pub(crate) fn new(environment: Arc<Environment>, open: Box<LogSource>) -> Self {
        RecordLog { environment, open, opened: Mutex::default(), state: Mutex::default() }
    }

    /// Opens the log at its first use.
    fn opened(&self) -> Result<Arc<Opened>> {
        let mut kept = self.opened.lock();
        if let Some(opened) = &*kept {
            return Ok(opened.clone());
        }
        let opened = Arc::new(Opened::new((self.open)()?)?);
        let mut inner = self.state.lock();
        if inner.is_open {
            // Only the index is another one.
            drop(inner);
            *kept = Some(opened.clone());
            return Ok(opened);
        }
        inner.is_open = true;
        inner.logs.clone_from(&opened.group.logs);
        inner.tail = opened.tail;
        inner.sequence = opened.next_sequence;
        inner.state = opened.group.state;
        // A run of an operation that was rolled back may have later IDs.
        let seen = opened.changed().max().map_or(0, |id| id.saturating_add(1));
        inner.next_id = opened.group.next_id.max(seen).max(1);
        inner.unindexed = opened.unindexed;
        inner.is_indexed = opened.unindexed == 0 && opened.changed().next().is_none();
        drop(inner);
        *kept = Some(opened.clone());
        Ok(opened)
    }

    /// The state, in which the dataset is loaded.
    fn with(&self, member: &Member) -> Result<MutexGuard<'_, Inner>> {
        let opened = self.opened()?;
        let known = |inner: &mut Inner| inner.datasets.get_mut(&member.id).map(|d| d.shape.clone_from(&member.shape)).is_some();
        let mut inner = self.state.lock();
        if known(&mut inner) {
            return Ok(inner);
        }
        drop(inner);
        // Loaded without the lock; if another thread was faster, its dataset stays.
        let loaded = opened.dataset(&self.environment, member.id, member.shape.clone())?;
        let mut inner = self.state.lock();
        inner.datasets.entry(member.id).or_insert(loaded);
        inner.deflate.insert(member.id, member.deflate);
        Ok(inner)
    }

    /// What supplies the elements of `range`: pieces, and ranges that were not written.
    pub(super) fn suppliers(&self, member: &Member, range: Range<u64>) -> Result<(Vec<(Range<u64>, Found)>, Vec<Range<u64>>)> {
        let inner = self.with(member)?;
        let dataset = inner.datasets.get(&member.id).ok_or_else(missing)?;
        let (mut pieces, mut gaps, mut at) = (Vec::new(), Vec::new(), range.start);
        for extent in dataset.extents.within(range.clone(), member.shape.element_size) {
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
        Ok(if written { extents.next_written(at) } else { Some(extents.next_unwritten(at)) })
    }

    /// Elements that were written.
    pub(super) fn written(&self, member: &Member) -> Result<u64> {
        let inner = self.with(member)?;
        Ok(inner.datasets.get(&member.id).map_or(0, |d| d.extents.elements()))
    }

    /// Stages a write of whole elements from `first` on.
    pub(super) fn stage(&self, member: &Member, first: u64, bytes: &[u8]) -> Result<()> {
        let mut inner = self.with(member)?;
        let inner = &mut *inner;
        let size = member.shape.element_size.max(1);
        let end = first.saturating_add((bytes.len() as u64).checked_div(size).unwrap_or(0));
        let source = inner.buffer(member.id, first..end, bytes);
        inner.set(member.id, first..end, Some(source))?;
        inner.staged.entry(member.id).or_default().push(first..end);
        Ok(())
    }

    /// Makes elements unwritten.
    pub(super) fn erase(&self, member: &Member, range: Range<u64>) -> Result<()> {
        let mut inner = self.with(member)?;
        let count = if range.end == u64::MAX { TO_THE_END } else { range.end.saturating_sub(range.start) };
        inner.note_erased(Erased { dataset: member.id, first: range.start, count });
        inner.set(member.id, range, None)
    }

    /// Elements of `range` that are parts of deflated records which have others. They must be
    /// written again if those are erased.
    pub(super) fn shared_records(&self, member: &Member, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let inner = self.with(member)?;
        let dataset = inner.datasets.get(&member.id).ok_or_else(missing)?;
        let records: Vec<u32> = dataset
            .extents
            .within(range.clone(), member.shape.element_size)
            .filter_map(|e| if let Source::Deflated { record, .. } = e.source { Some(record) } else { None })
            .collect();
        if records.is_empty() {
            return Ok(Vec::new());
        }
        // Records are blocks of elements that are next to each other.
        let most = super::runs::DEFLATED_BYTES_MAX.checked_div(member.shape.element_size.max(1)).unwrap_or(1).max(1);
        let around = range.start.saturating_sub(most)..range.end.saturating_add(most);
        let outside = dataset.extents.within(around, member.shape.element_size).filter(|e| match e.source {
            Source::Deflated { record, .. } => records.contains(&record),
            _ => false,
        });
        let mut parts = Vec::new();
        for e in outside {
            parts.extend((e.first < range.start).then_some(e.first..e.end.min(range.start)));
            parts.extend((e.end > range.end).then_some(e.first.max(range.end)..e.end));
        }
        Ok(parts)
    }

    /// Forgets a dataset that is deleted.
    pub(super) fn forget(&self, member: &Member) -> Result<()> {
        let mut inner = self.with(member)?;
        let inner = &mut *inner;
        inner.note_erased(Erased { dataset: member.id, first: 0, count: TO_THE_END });
        let dataset = inner.datasets.remove(&member.id);
        // Later loads find nothing.
        inner.datasets.insert(member.id, Dataset::new(member.shape.clone()));
        let staged = inner.staged.remove(&member.id).unwrap_or_default();
        if let (Some(undo), Some(dataset)) = (&mut inner.undo, dataset) {
            undo.push(Undo::Forgotten { id: member.id, dataset: Box::new(dataset), staged });
        }
        Ok(())
    }

    /// Takes a new dataset ID. The caller stores [`RecordLog::next_id`].
    pub(crate) fn take_id(&self) -> Result<u64> {
        self.opened()?;
        let mut inner = self.state.lock();
        let id = inner.next_id;
        inner.next_id = id.saturating_add(1);
        Ok(id)
    }

    /// The ID of the next dataset.
    pub(crate) fn next_id(&self) -> u64 {
        self.state.lock().next_id
    }

    /// Begins an operation that can be undone.
    pub(crate) fn begin(&self) {
        self.state.lock().undo = Some(Vec::new());
    }

    /// Ends the operation; undoes its changes unless they are `kept`.
    pub(crate) fn end(&self, kept: bool) {
        let mut inner = self.state.lock();
        let undo = inner.undo.take().unwrap_or_default();
        if !kept {
            undo.into_iter().rev().for_each(|step| inner.undo(step));
        }
    }

    /// Memory of staged elements, bytes.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.state.lock().staged_bytes
    }

    /// Number of the current log dataset, and what is left of it, bytes.
    pub(crate) fn room(&self) -> (u32, u64) {
        let inner = self.state.lock();
        let number = inner.logs.keys().next_back().copied().unwrap_or(0);
        let used = if number == inner.tail.0 { inner.tail.1 } else { 0 };
        (number, inner.logs.get(&number).map_or(0, |log| log.len.saturating_sub(used)))
    }

    /// Number of log datasets.
    pub(crate) fn logs(&self) -> u64 {
        self.state.lock().logs.len() as u64
    }

    /// Size for a new log dataset that holds a run of `run` bytes: what the datasets will need if
    /// the rest of them is written like the part that is (section "File flush" of the design).
    pub(crate) fn estimate(&self, run: u64) -> u64 {
        const MIN: u64 = 64 << 10;
        const MAX: u64 = 1 << 30;
        let inner = self.state.lock();
        let used = inner.logs.values().map(|log| log.len).fold(0, u64::saturating_add);
        let (mut written, mut all) = (0u64, 0u64);
        for d in inner.datasets.values() {
            written = written.saturating_add(d.extents.elements().saturating_mul(d.shape.element_size));
            let elements = d.shape.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
            all = all.saturating_add(elements.saturating_mul(d.shape.element_size));
        }
        let whole = u128::from(used).saturating_mul(u128::from(all)).checked_div(u128::from(written.max(1))).unwrap_or(0);
        let rest = u64::try_from(whole).unwrap_or(u64::MAX).saturating_sub(used);
        // Never less than an eighth of what there is, so that log datasets stay few.
        run.max(rest.clamp(MIN, MAX)).max((used / 8).min(MAX))
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
            inner.buffers.clear();
            inner.last = None;
            inner.staged_bytes = 0;
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
        !inner.staged.is_empty() || !inner.erased.is_empty()
    }

    /// True if something waits for a commit.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.has_more() || self.state.lock().is_continued
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
        for made in run.made {
            inner.staged.entry(made.dataset).or_default().push(made.elements);
        }
        let since = std::mem::replace(&mut inner.erased, run.erased);
        inner.erased.extend(since);
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
        inner.sequence = inner.sequence.saturating_add(1);
        inner.is_indexed = false;
        inner.awaits_state |= next;
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
    /// that has both. Everything is in the log.
    pub(crate) fn write_index(&self, put: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<(Vec<u8>, State)> {
        let opened = self.opened()?;
        // Datasets that only runs changed, which the index lacks.
        for id in opened.changed() {
            let Some(d) = opened.shapes.get(&id) else { continue };
            if !self.state.lock().datasets.contains_key(&id) {
                let loaded = opened.dataset(&self.environment, id, Shape::new(&d.dims, d.element_size))?;
                self.state.lock().datasets.entry(id).or_insert(loaded);
            }
        }
        let old = tables::indexed(&self.environment, &opened.group)?;
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
        };
        Ok((skip, state))
    }

    /// Passes the entries of all datasets to `put`. Returns the skip list and the number of entries.
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
        for id in ids {
            let begin = table.at.saturating_add(table.writer.len() as u64);
            let count = match (datasets.get(&id), old.iter().find(|e| e.id == id)) {
                (Some(dataset), _) => tables::write(id, dataset, &mut table.writer),
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
        inner.state = state;
        (inner.awaits_state, inner.is_indexed, inner.unindexed) = (false, true, 0);
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
    /// Passes what has been written, if it is enough or the `last` piece.
    fn pass(&mut self, last: bool) -> Result<()> {
        if self.writer.len() < TABLE_PIECE_BYTES && !last {
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

impl Inner {
    fn found(&self, dataset: &Dataset, source: Source, bytes: u64) -> Result<Found> {
        let outside = |log: u32, offset: u64| Error::corrupt(NAME, Address::UNDEF, format!("data at {offset} of log_{log}"));
        let at = |log: u32, offset: u64, bytes: u64| {
            let place = self.logs.get(&log).filter(|l| offset.checked_add(bytes).is_some_and(|end| end <= l.len));
            place.and_then(|l| Some((l.address.checked_add(offset)?, l.len))).ok_or_else(|| outside(log, offset))
        };
        Ok(match source {
            Source::Staged { buffer, at } => Found::Staged(self.buffers.get(&buffer).cloned().ok_or_else(missing)?, at),
            Source::Stored { log, offset } => Found::Stored(at(log, offset, bytes)?.0),
            Source::Deflated { record, first } => {
                let Deflated { placed, elements } = dataset.deflated.get(record as usize).ok_or_else(missing)?;
                let (address, len) = at(placed.log, placed.offset, 1)?;
                let left = len.saturating_sub(placed.offset);
                Found::Deflated(Box::new(DeflatedAt { address, left, elements: *elements, first }))
            }
        })
    }

    /// Copies bytes into a buffer; returns where they are.
    fn buffer(&mut self, id: u64, elements: Range<u64>, bytes: &[u8]) -> Source {
        self.staged_bytes = self.staged_bytes.saturating_add(bytes.len() as u64);
        if let Some((number, of, end)) = self.last
            && (of, end) == (id, elements.start)
            && let Some(buffer) = self.buffers.get_mut(&number).and_then(Arc::get_mut)
            && buffer.len().saturating_add(bytes.len()) <= BUFFER_BYTES_MAX
        {
            let at = buffer.len() as u64;
            buffer.extend_from_slice(bytes);
            self.last = Some((number, id, elements.end));
            return Source::Staged { buffer: number, at };
        }
        let number = self.next_buffer;
        self.next_buffer = number.wrapping_add(1);
        self.buffers.insert(number, Arc::new(bytes.to_vec()));
        self.staged_bytes = self.staged_bytes.saturating_add(BUFFER_OVERHEAD_BYTES);
        self.last = Some((number, id, elements.end));
        Source::Staged { buffer: number, at: 0 }
    }

    fn set(&mut self, id: u64, range: Range<u64>, source: Option<Source>) -> Result<()> {
        let dataset = self.datasets.get_mut(&id).ok_or_else(missing)?;
        let mut before = Vec::new();
        dataset.extents.set(range.clone(), source, dataset.shape.element_size, &mut before);
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Extents { id, range, before });
        }
        Ok(())
    }

    fn note_erased(&mut self, erased: Erased) {
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Erased(self.erased.len()));
        }
        self.erased.push(erased);
        self.is_indexed = false;
    }

    fn undo(&mut self, step: Undo) {
        match step {
            Undo::Extents { id, range, before } => {
                let Some(dataset) = self.datasets.get_mut(&id) else { return };
                let size = dataset.shape.element_size;
                dataset.extents.set(range, None, size, &mut Vec::new());
                for e in before {
                    dataset.extents.set(e.first..e.end, Some(e.source), size, &mut Vec::new());
                }
            }
            Undo::Forgotten { id, dataset, staged } => {
                self.datasets.insert(id, *dataset);
                self.staged.entry(id).or_default().extend(staged);
            }
            Undo::Erased(len) => self.erased.truncate(len),
            Undo::Tail { tail, sequence, continued } => {
                (self.tail, self.sequence, self.is_continued) = (tail, sequence, continued);
            }
            Undo::Log(number) => drop(self.logs.remove(&number)),
        }
    }

    fn next_run(&mut self, commit: bool) -> Result<Option<Run>> {
        // A commit ends what runs before it began.
        if self.staged.is_empty() && self.erased.is_empty() && !(commit && self.is_continued) {
            return Ok(None);
        }
        let mut maker = Maker::default();
        let mut controls = 0u64;
        for erased in self.erased.chunks(ERASED_MAX) {
            write_erased(&mut maker.writer, erased);
            controls = controls.saturating_add(1);
        }
        maker.bytes = maker.writer.len() as u64;
        let mut datasets = Vec::new();
        let mut ids: Vec<u64> = self.staged.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if maker.bytes >= RUN_BYTES {
                break;
            }
            let (Some(mut ranges), Some(dataset)) = (self.staged.remove(&id), self.datasets.get(&id)) else { continue };
            let deflate = self.deflate.get(&id).copied().unwrap_or(false);
            let rest = stage_records(&mut maker, (id, dataset, deflate), &mut ranges, &self.buffers)?;
            if !rest.is_empty() {
                self.staged.insert(id, rest);
            }
            datasets.push(RunDataset { id, element_size: dataset.shape.element_size, dims: dataset.shape.dims.clone() });
        }
        let records = (maker.made.len() as u64).saturating_add(controls);
        let head = RunHead { sequence: self.sequence, serial: 0, bytes: 0, records, continued: false, datasets };
        let erased = std::mem::take(&mut self.erased);
        Ok(Some(Run { head, records: maker.writer.into_bytes(), made: maker.made, erased }))
    }

    /// Makes the place of a record that of its elements.
    fn enter(&mut self, made: Made, log: u32, offset: u64) -> Result<()> {
        self.unindexed = self.unindexed.saturating_add(1);
        let dataset = self.datasets.get_mut(&made.dataset).ok_or_else(missing)?;
        let placed =
            super::load::Placed { selection: made.selection, deflated: made.deflated, log, offset: offset.saturating_add(made.offset) };
        if placed.deflated {
            return dataset.enter(placed);
        }
        let source = Source::Stored { log, offset: placed.offset };
        dataset.extents.set(made.elements, Some(source), dataset.shape.element_size, &mut Vec::new());
        Ok(())
    }
}

/// Appends records of what is staged in `ranges` and was not replaced. Returns the ranges that are
/// left when the run is long enough.
fn stage_records(
    maker: &mut Maker,
    (id, dataset, deflate): (u64, &Dataset, bool),
    ranges: &mut [Range<u64>],
    buffers: &HashMap<u32, Arc<Vec<u8>>>,
) -> Result<Vec<Range<u64>>> {
    ranges.sort_unstable_by_key(|r| (r.start, r.end));
    let copy = |buffer: u32, part: Range<u64>, data: &mut Vec<u8>| {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let bytes = buffers.get(&buffer).and_then(|b| b.get(at(part.start)..at(part.end)));
        data.extend_from_slice(bytes.unwrap_or_default());
    };
    let size = dataset.shape.element_size;
    let (mut pending, mut done): (Vec<Extent>, u64) = (Vec::new(), 0);
    for (i, range) in ranges.iter().enumerate() {
        // Ranges overlap where elements were staged more than once.
        let part = range.start.max(done)..range.end;
        if part.is_empty() {
            continue;
        }
        done = done.max(range.end);
        for extent in dataset.extents.within(part, size) {
            if !matches!(extent.source, Source::Staged { .. }) {
                continue;
            }
            if pending.last().is_some_and(|last| last.end != extent.first) {
                maker.add((id, &dataset.shape, deflate), &pending, &copy)?;
                pending.clear();
            }
            pending.push(extent);
        }
        let waiting: u64 = pending.iter().map(|e| e.end.saturating_sub(e.first).saturating_mul(size)).sum();
        if maker.bytes.saturating_add(waiting) >= RUN_BYTES {
            maker.add((id, &dataset.shape, deflate), &pending, &copy)?;
            let rest = ranges.get(i.saturating_add(1)..).unwrap_or_default();
            return Ok(rest.iter().filter(|r| r.end > done).map(|r| r.start.max(done)..r.end).collect());
        }
    }
    maker.add((id, &dataset.shape, deflate), &pending, &copy)?;
    Ok(Vec::new())
}
