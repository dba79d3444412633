//! What a log has in memory: staged writes, datasets, the place of the next run.

use super::dataset::{Dataset, FIRST_WRITER, LogDataset, Scattered, State, WriterRuns};
use super::extent::{Extent, Source};
use super::extents::Replaced;
use super::runs::{Made, Maker, Run};
use super::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::format::log::record::NAME;
use crate::format::log::run::{Erased, RunDataset, RunHead, TO_THE_END, write_erased};
use foldhash::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a staged buffer, unless a single write has more.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Memory of a staged extent besides its bytes.
const EXTENT_OVERHEAD_BYTES: u64 = 112;
/// Extents of all datasets in memory that are not staged, about.
const RECENT_MAX: usize = 1 << 17;
/// Erased ranges of one run.
const ERASED_MAX: usize = 1 << 16;
/// Datasets that grew in one run, about.
const GROWN_MAX: usize = 1 << 12;

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
    /// Bytes in a run file, from an offset on.
    Beside(WriterRuns, u64),
    /// A deflated record, and the first element wanted.
    Deflated(Box<DeflatedAt>),
}

/// A deflated record in the file.
#[derive(Clone, Copy)]
pub(super) struct DeflatedAt {
    pub(super) address: Address,
    /// Bytes of the log dataset from there on.
    pub(super) left: u64,
    /// Elements of the record.
    pub(super) elements: u64,
    /// First element wanted.
    pub(super) first: u64,
}

/// An entry that is in no metadata dataset yet.
pub(super) struct Entry {
    pub(super) dataset: u64,
    pub(super) start: Vec<u64>,
    pub(super) count: Vec<u64>,
    /// Its data.
    pub(super) data: Range<Address>,
}

/// What a log of the released log VOL has in memory beside what every log has.
#[derive(Default)]
pub(super) struct Released {
    /// Entries that wait for a metadata dataset.
    pub(super) entries: Vec<Entry>,
    /// Number of metadata datasets.
    pub(super) metadata: u32,
    /// IDs that were handed out, but which no dataset and no entry has.
    pub(super) free_ids: Vec<u64>,
    /// Entries in the file select elements beyond the extent of their dataset.
    pub(super) is_clipped: bool,
}

/// An undo step of the operation under way.
pub(super) enum Undo {
    /// The extents of a range were these.
    Extents { id: u64, range: Range<u64>, before: Replaced },
    /// The dataset had this shape beside the file. `is_first`: a run had it.
    Grown { before: RunDataset, is_first: bool },
    /// The dataset was forgotten.
    Forgotten { id: u64, dataset: Box<Dataset>, staged: Vec<Range<u64>> },
    /// Erased ranges that are to be logged were so many.
    Erased(usize),
    /// The next run had this place and number.
    Tail { tail: (u32, u64), sequence: u64, continued: bool },
    /// A log dataset was created.
    Log(u32),
    /// Log datasets were freed or trimmed.
    Changed(Vec<(u32, LogDataset)>),
    /// A batch was placed, of which elements may have been staged before the operation, in these
    /// buffers.
    Placed(Box<Run>, HashMap<u32, Arc<Vec<u8>>>),
    /// Entries that wait for a metadata dataset were so many.
    Entries(usize),
    /// IDs were handed out and free like this.
    Ids(u64, Vec<u64>),
    /// The index was written. Before, the state was this; whether it is awaited, whether the index
    /// is complete, records that the index lacks, whether it is ignored.
    Indexed(State, (bool, bool, u64, bool)),
}

/// State of a log.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) is_open: bool,
    /// The index in the file is not looked at until it was written anew.
    pub(super) ignores_index: bool,
    /// Bytes appended since the log was opened or compacted.
    pub(super) appended: u64,
    /// How many of them make a look for dead bytes worth while, if that is known.
    pub(super) look_at: Option<u64>,
    pub(super) logs: BTreeMap<u32, LogDataset>,
    /// Run files of writers, by their numbers among those of log datasets.
    pub(super) writers: BTreeMap<u32, WriterRuns>,
    /// What is staged goes to one of them.
    pub(super) is_beside: bool,
    /// Datasets that grew, but not in the HDF5 file, as they are now.
    pub(super) grown: HashMap<u64, RunDataset>,
    /// Those of them that no run has as they are now.
    pub(super) growth: BTreeSet<u64>,
    /// Where the next run goes.
    pub(super) tail: (u32, u64),
    pub(super) sequence: u64,
    /// The last run is continued.
    pub(super) is_continued: bool,
    pub(super) state: State,
    /// The next dataset ID.
    pub(super) next_id: u64,
    /// A run belongs to the next state of the file.
    pub(super) awaits_state: bool,
    /// Records that the index lacks.
    pub(super) unindexed: u64,
    /// Nothing changed since the index was written.
    pub(super) is_indexed: bool,
    pub(super) datasets: HashMap<u64, Dataset>,
    pub(super) buffers: HashMap<u32, Arc<Vec<u8>>>,
    pub(super) next_buffer: u32,
    /// Extents that came since the datasets were last looked at.
    pub(super) recent: usize,
    /// Extents in memory after that.
    pub(super) recent_least: usize,
    /// The last buffer, its dataset, and the element after its last one.
    pub(super) last: Option<(u32, u64, u64)>,
    pub(super) staged_bytes: u64,
    /// Ranges that were staged, by dataset.
    pub(super) staged: HashMap<u64, Vec<Range<u64>>>,
    /// Erased ranges that are not logged yet.
    pub(super) erased: Vec<Erased>,
    pub(super) undo: Option<Vec<Undo>>,
    /// Something was staged when the operation under way began.
    pub(super) had_staged: bool,
    /// What only a log of the released log VOL has.
    pub(super) released: Option<Released>,
}

pub(super) fn missing() -> Error {
    Error::corrupt(NAME, Address::UNDEF, "the dataset is not open")
}

impl Inner {
    pub(super) fn found(&self, dataset: &Dataset, source: Source, bytes: u64) -> Result<Found> {
        let outside = |log: u32, offset: u64| Error::corrupt(NAME, Address::UNDEF, format!("data at {offset} of log_{log}"));
        let at = |log: u32, offset: u64, bytes: u64| {
            let place = self.logs.get(&log).filter(|l| offset.checked_add(bytes).is_some_and(|end| end <= l.len));
            place.and_then(|l| Some((l.address.checked_add(offset)?, l.len))).ok_or_else(|| outside(log, offset))
        };
        Ok(match source {
            Source::Staged { buffer, at } => Found::Staged(self.buffers.get(&buffer).cloned().ok_or_else(missing)?, at),
            Source::Stored { log, offset } if log >= FIRST_WRITER => {
                let runs = self.writers.get(&log).filter(|runs| offset.checked_add(bytes).is_some_and(|end| end <= runs.len));
                Found::Beside(runs.cloned().ok_or_else(|| outside(log, offset))?, offset)
            }
            Source::Stored { log, offset } => Found::Stored(at(log, offset, bytes)?.0),
            Source::Deflated { log, offset, first, elements, .. } => {
                let (address, len) = at(log, offset, 1)?;
                let (left, first) = (len.saturating_sub(offset), first.into());
                Found::Deflated(Box::new(DeflatedAt { address, left, elements: elements.into(), first }))
            }
            Source::Scattered { record, first } => {
                let Scattered { placed, elements, .. } = dataset.scattered.get(record as usize).ok_or_else(missing)?;
                let (address, len) = at(placed.log, placed.offset, 1)?;
                let left = len.saturating_sub(placed.offset);
                Found::Deflated(Box::new(DeflatedAt { address, left, elements: *elements, first }))
            }
        })
    }

    /// Copies bytes into the last buffer, or into a new one; returns where they are.
    pub(super) fn buffer(&mut self, id: u64, elements: Range<u64>, bytes: &[u8]) -> Source {
        let continues = self.last.is_some_and(|(_, of, end)| (of, end) == (id, elements.start));
        let overhead = if continues { 0 } else { EXTENT_OVERHEAD_BYTES };
        self.staged_bytes = self.staged_bytes.saturating_add(bytes.len() as u64).saturating_add(overhead);
        if let Some((number, ..)) = self.last
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
        self.last = Some((number, id, elements.end));
        Source::Staged { buffer: number, at: 0 }
    }

    /// Notes that a range was staged.
    pub(super) fn note_staged(&mut self, id: u64, elements: Range<u64>) {
        let ranges = self.staged.entry(id).or_default();
        match ranges.last_mut() {
            Some(last) if last.end == elements.start => last.end = elements.end,
            _ => ranges.push(elements),
        }
    }

    pub(super) fn set(&mut self, id: u64, range: Range<u64>, source: Option<Source>) -> Result<()> {
        let dataset = self.datasets.get_mut(&id).ok_or_else(missing)?;
        let before = dataset.extents.set(range.clone(), source, dataset.shape.element_size);
        self.recent = self.recent.saturating_add(1);
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Extents { id, range, before });
        }
        Ok(())
    }

    /// The dataset `now` has `rows` in its first dimension from now on.
    pub(super) fn grow(&mut self, now: RunDataset, rows: u64) {
        let mut next = now.clone();
        next.dims.iter_mut().take(1).for_each(|d| *d = rows);
        let is_first = self.growth.insert(now.id);
        self.grown.insert(now.id, next);
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Grown { before: now, is_first });
        }
    }

    /// Forgets the staged bytes, which are in the log.
    pub(super) fn clear_buffers(&mut self) {
        self.buffers.clear();
        self.last = None;
        self.staged_bytes = 0;
    }

    pub(super) fn note_erased(&mut self, erased: Erased) {
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Erased(self.erased.len()));
        }
        self.erased.push(erased);
        self.is_indexed = false;
    }

    pub(super) fn undo(&mut self, step: Undo) {
        match step {
            Undo::Extents { id, range, before } => {
                let Some(dataset) = self.datasets.get_mut(&id) else { return };
                let size = dataset.shape.element_size;
                dataset.extents.restore(&range, before, size);
            }
            Undo::Grown { before, is_first } => {
                if is_first {
                    self.growth.remove(&before.id);
                }
                self.grown.insert(before.id, before);
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
            Undo::Changed(logs) => self.logs.extend(logs),
            Undo::Placed(batch, buffers) => self.unplace(&batch, buffers),
            Undo::Entries(len) => self.released.iter_mut().for_each(|released| released.entries.truncate(len)),
            Undo::Ids(next, free) => {
                self.next_id = next;
                self.released.iter_mut().for_each(|released| released.free_ids.clone_from(&free));
            }
            Undo::Indexed(state, rest) => {
                self.state = state;
                (self.awaits_state, self.is_indexed, self.unindexed, self.ignores_index) = rest;
            }
        }
    }

    pub(super) fn next_run(&mut self, commit: bool) -> Result<Option<Run>> {
        // A commit ends what runs before it began.
        if self.staged.is_empty() && self.erased.is_empty() && self.growth.is_empty() && !(commit && self.is_continued) {
            return Ok(None);
        }
        let mut maker = Maker::default();
        let rest = self.erased.split_off(self.erased.len().min(ERASED_MAX));
        let erased = std::mem::replace(&mut self.erased, rest);
        if !erased.is_empty() {
            write_erased(&mut maker.writer, &erased);
        }
        let controls = u64::from(!erased.is_empty());
        maker.bytes = maker.writer.position() as u64;
        let mut datasets = self.partly_erased(&erased);
        // Elements are written after everything that was erased before.
        let mut ids: Vec<u64> = if self.erased.is_empty() { self.staged.keys().copied().collect() } else { Vec::new() };
        ids.sort_unstable();
        for id in ids {
            if maker.is_enough(0) {
                break;
            }
            let (Some(mut ranges), Some(dataset)) = (self.staged.remove(&id), self.datasets.get(&id)) else { continue };
            match stage_records(&mut maker, (id, dataset), &mut ranges, &self.buffers) {
                Ok(rest) if rest.is_empty() => {}
                Ok(rest) => drop(self.staged.insert(id, rest)),
                Err(e) => {
                    self.staged.insert(id, ranges);
                    self.stage_again(maker.made);
                    self.erase_again(erased);
                    return Err(e);
                }
            }
            datasets.insert(id, self.grown.get(&id).cloned().unwrap_or_else(|| dataset.in_run(id)));
            self.growth.remove(&id);
        }
        while datasets.len() < GROWN_MAX
            && let Some(id) = self.growth.pop_first()
        {
            datasets.extend(self.grown.get(&id).map(|d| (id, d.clone())));
        }
        let datasets = datasets.into_values().collect();
        let records = (maker.made.len() as u64).saturating_add(controls);
        let head = RunHead { sequence: self.sequence, serial: 0, bytes: 0, records, continued: false, datasets };
        Ok(Some(Run { head, records: maker.writer.into_bytes(), made: maker.made, erased, is_bare: false }))
    }

    /// The datasets that have elements beside the `erased` ones, by ID. A reader of the run needs
    /// their shapes for the index entries of those.
    fn partly_erased(&self, erased: &[Erased]) -> BTreeMap<u64, RunDataset> {
        let part = erased.iter().filter(|e| (e.first, e.count) != (0, TO_THE_END));
        part.filter_map(|e| Some((e.dataset, self.datasets.get(&e.dataset)?.in_run(e.dataset)))).collect()
    }

    /// Puts erased ranges of a run that is not written back, before those that came since.
    pub(super) fn erase_again(&mut self, erased: Vec<Erased>) {
        let since = std::mem::replace(&mut self.erased, erased);
        self.erased.extend(since);
    }

    /// Puts the elements of records that are not written back to the staged ones.
    pub(super) fn stage_again(&mut self, made: Vec<Made>) {
        for made in made {
            self.staged.entry(made.dataset).or_default().push(made.elements);
        }
    }

    /// Makes the place of a record that of its elements.
    pub(super) fn enter(&mut self, made: Made, log: u32, offset: u64) -> Result<()> {
        self.unindexed = self.unindexed.saturating_add(1);
        let dataset = self.datasets.get_mut(&made.dataset).ok_or_else(missing)?;
        let offset = offset.saturating_add(made.offset);
        let source = match made.deflated {
            Some((elements, stored)) => {
                dataset.longest_deflated = dataset.longest_deflated.max(elements.into());
                Source::Deflated { log, offset, first: 0, elements, stored }
            }
            None => Source::Stored { log, offset },
        };
        dataset.extents.set(made.elements, Some(source), dataset.shape.element_size);
        self.recent = self.recent.saturating_add(1);
        Ok(())
    }

    /// Adds a dataset that was loaded, unless it is there.
    pub(super) fn add(&mut self, id: u64, loaded: Dataset) {
        self.recent = self.recent.saturating_add(loaded.extents.recent());
        self.datasets.entry(id).or_insert(loaded);
        self.pack();
    }

    /// Packs extents if many are in memory. What an operation changed can be undone only as long as
    /// they are not packed.
    pub(super) fn pack(&mut self) {
        if self.recent < RECENT_MAX.max(self.recent_least) || self.undo.is_some() {
            return;
        }
        let mut sizes: Vec<(usize, u64)> = self.datasets.iter().map(|(id, d)| (d.extents.recent(), *id)).collect();
        sizes.sort_unstable();
        let mut all: usize = sizes.iter().map(|(n, _)| n).sum();
        while let Some((recent, id)) = sizes.pop().filter(|_| all > RECENT_MAX / 2) {
            let Some(dataset) = self.datasets.get_mut(&id) else { continue };
            dataset.pack();
            all = all.saturating_sub(recent.saturating_sub(dataset.extents.recent()));
        }
        // Staged ones stay; so do all if the disk is full.
        (self.recent, self.recent_least) = (0, all);
    }
}

/// Appends records of what is staged in `ranges` and was not replaced. Returns the ranges that are
/// left when the run is long enough.
pub(super) fn stage_records(
    maker: &mut Maker,
    (id, dataset): (u64, &Dataset),
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
    let (mut pending, mut waiting, mut done): (Vec<Extent>, u64, u64) = (Vec::new(), 0, 0);
    for (i, range) in ranges.iter().enumerate() {
        // Ranges overlap where elements were staged more than once.
        let part = range.start.max(done)..range.end;
        if part.is_empty() {
            continue;
        }
        done = done.max(range.end);
        let mut end = done;
        for extent in dataset.extents.within(part, size) {
            let extent = extent?;
            if !matches!(extent.source, Source::Staged { .. }) {
                continue;
            }
            if pending.last().is_some_and(|last| last.end != extent.first) {
                maker.add((id, &dataset.shape, dataset.deflates), &pending, &copy)?;
                pending.clear();
                waiting = 0;
            }
            waiting = waiting.saturating_add(extent.end.saturating_sub(extent.first).saturating_mul(size));
            pending.push(extent);
            // A range may have more than fits into a run.
            if !maker.is_bare && maker.is_enough(waiting) {
                end = extent.end;
                break;
            }
        }
        if maker.is_enough(waiting) {
            maker.add((id, &dataset.shape, dataset.deflates), &pending, &copy)?;
            let rest = ranges.get(i..).unwrap_or_default().iter().map(|r| r.start.max(end)..r.end);
            return Ok(rest.filter(|r| !r.is_empty()).collect());
        }
    }
    maker.add((id, &dataset.shape, dataset.deflates), &pending, &copy)?;
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::super::pages::Pages;
    use super::*;

    /// A run that could not be made, for an error of the temporary file, left its elements out of
    /// all later runs.
    #[test]
    fn a_run_that_fails_stays_staged() {
        let (mut inner, pages) = (Inner::default(), Arc::new(Pages::default()));
        let stage = |inner: &mut Inner, id: u64, range: Range<u64>| {
            let source = inner.buffer(id, range.clone(), &vec![7; (range.end - range.start) as usize]);
            inner.set(id, range.clone(), Some(source)).unwrap();
            inner.staged.entry(id).or_default().push(range);
        };
        for id in [1, 2] {
            let mut dataset = Dataset::new(Shape::new(&[100], 1), pages.clone());
            dataset.extents.set(0..100, Some(Source::Stored { log: 1, offset: 0 }), 1);
            dataset.extents.pack(1).unwrap();
            inner.datasets.insert(id, dataset);
            stage(&mut inner, id, 10..20);
        }
        // As after an operation that was rolled back: some of the range is not staged.
        inner.staged.entry(2).or_default().push(30..40);
        pages.lose();
        assert!(inner.next_run(true).is_err());
        assert!(inner.staged[&1].iter().cloned().eq(std::iter::once(10..20)));
        assert_eq!(inner.staged.get(&2), Some(&vec![10..20, 30..40]));
    }

    /// A range of more than 1 GiB made a run that was too long to be read: what an fsync had
    /// acknowledged was lost.
    #[test]
    fn a_long_range_is_cut_into_runs() {
        let (mut inner, pages) = (Inner::default(), Arc::new(Pages::default()));
        inner.datasets.insert(1, Dataset::new(Shape::new(&[30 << 20], 1), pages));
        for n in 0..30 {
            let range = n << 20..(n + 1) << 20;
            let source = inner.buffer(1, range.clone(), &vec![n as u8; 1 << 20]);
            inner.set(1, range.clone(), Some(source)).unwrap();
            inner.note_staged(1, range);
        }
        let (mut at, mut longest) = (0, 0);
        while let Some(run) = inner.next_run(true).unwrap() {
            longest = longest.max(run.len());
            for made in run.made {
                assert_eq!(made.elements.start, at);
                at = made.elements.end;
            }
        }
        assert!(at == 30 << 20 && longest < 10 << 20, "{at} {longest}");
    }

    /// A write past the end that failed would leave the dataset longer: what it loaded stays.
    #[test]
    fn growth_that_is_undone_is_in_no_run() {
        let mut inner = Inner::default();
        let now = RunDataset { id: 1, element_size: 1, dims: vec![4, 2] };
        let rows = |inner: &mut Inner| -> Vec<_> {
            std::iter::from_fn(|| inner.next_run(true).unwrap()).map(|run| run.head.datasets.iter().map(|d| d.dims[0]).collect()).collect()
        };
        inner.grow(now.clone(), 6);
        assert_eq!((rows(&mut inner), rows(&mut inner)), (vec![vec![6]], Vec::<Vec<u64>>::new()));
        inner.datasets.insert(1, Dataset::new(Shape::new(&[9, 2], 1), Arc::default()));
        inner.undo = Some(Vec::new());
        inner.grow(RunDataset { dims: vec![6, 2], ..now.clone() }, 9);
        let source = inner.buffer(1, 16..18, &[7; 2]);
        inner.set(1, 16..18, Some(source)).unwrap();
        for step in inner.undo.take().unwrap().into_iter().rev() {
            inner.undo(step);
        }
        assert_eq!((rows(&mut inner), inner.grown[&1].dims[0]), (Vec::new(), 6));
        let source = inner.buffer(1, 0..2, &[8; 2]);
        inner.set(1, 0..2, Some(source)).unwrap();
        inner.note_staged(1, 0..2);
        assert_eq!(rows(&mut inner), [[6]]);
    }
}
