//! What a file has of a log when it is opened: log datasets, index, and runs that the index lacks.

use super::super::block_index::Rows;
use super::extents::{Extents, Source};
use super::tables;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::environment::Environment;
use crate::dataset::layout::DatasetBytes;
use crate::format::Reader;
use crate::format::log::record::{Head, NAME, Selection};
use crate::format::log::run::{Erased, RUN_PROBE_BYTES, RunDataset, RunHead, TO_THE_END, probe, read_erased};
use crate::meta::Store;
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Longest run, bytes.
const RUN_BYTES_MAX: u64 = 1 << 30;
/// Rows of one record that are not next to each other in the dataset.
const ROWS_MAX: u64 = 1 << 24;

/// A log dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogDataset {
    /// Its bytes.
    pub(crate) address: Address,
    /// Their number.
    pub(crate) len: u64,
}

/// State of a log as its group has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Number of the state of the file, for runs that belong to one.
    pub(crate) serial: u64,
    /// Number of the log dataset up to which the index goes; 0: there is no index.
    pub(crate) indexed_log: u64,
    /// Bytes of that log dataset that the index covers.
    pub(crate) indexed_bytes: u64,
    /// Number of the run after those that the index covers.
    pub(crate) sequence: u64,
    /// Index entries.
    pub(crate) entries: u64,
}

impl State {
    /// The values of the attribute, after its version.
    pub(crate) fn values(&self) -> [u64; 5] {
        [self.serial, self.indexed_log, self.indexed_bytes, self.sequence, self.entries]
    }

    /// The state that has these values.
    pub(crate) fn of(values: [u64; 5]) -> State {
        let [serial, indexed_log, indexed_bytes, sequence, entries] = values;
        State { serial, indexed_log, indexed_bytes, sequence, entries }
    }
}

/// The group of a log.
pub(crate) struct LogGroup {
    /// Its state.
    pub(crate) state: State,
    /// The next dataset ID.
    pub(crate) next_id: u64,
    /// Log datasets by number.
    pub(crate) logs: BTreeMap<u32, LogDataset>,
    /// The index table.
    pub(crate) index: Option<Arc<DatasetBytes>>,
    /// The skip list.
    pub(crate) skip: Option<Arc<DatasetBytes>>,
    /// The file.
    pub(crate) store: Arc<Store>,
}

/// Opens the group of a file's log.
pub(crate) type LogSource = dyn Fn() -> Result<LogGroup> + Send + Sync;

/// Shape of a dataset in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) dims: Vec<u64>,
    /// Elements below one step of each dimension.
    pub(super) strides: Vec<u64>,
    pub(super) element_size: u64,
}

impl Shape {
    pub(super) fn new(dims: &[u64], element_size: u64) -> Shape {
        let mut strides = Vec::with_capacity(dims.len());
        let mut below = 1u64;
        for d in dims.iter().rev() {
            strides.push(below);
            below = below.saturating_mul(*d);
        }
        strides.reverse();
        Shape { dims: dims.to_vec(), strides, element_size }
    }

    /// Calls `f` with the runs of `selection`: linear elements, and the number of the first one
    /// within the selection. Elements beyond the extent are left out.
    fn each_run(&self, selection: &Selection, f: &mut dyn FnMut(Range<u64>, u64)) -> Result<()> {
        let rank = self.dims.len();
        match selection {
            Selection::Subarray { start, count } => {
                if start.iter().zip(count).zip(&self.dims).any(|((s, c), d)| *c == 0 || s >= d) {
                    return Ok(());
                }
                if rank == 0 {
                    f(0..1, 0);
                    return Ok(());
                }
                let rows = Rows::new(&self.dims, &self.strides, start, count);
                if rows.len > ROWS_MAX {
                    return Err(Error::limit(NAME, Address::UNDEF, format!("a block of {} rows", rows.len)));
                }
                for row in 0..rows.len {
                    let (first, within) = rows.at(row);
                    f(first..first.saturating_add(rows.run), within);
                }
            }
            Selection::Points(points) => {
                for (point, n) in points.chunks_exact(rank.max(1)).zip(0..) {
                    if point.iter().zip(&self.dims).all(|(x, d)| x < d) {
                        let terms = point.iter().zip(&self.strides).map(|(x, s)| x.saturating_mul(*s));
                        let at = terms.fold(0, u64::saturating_add);
                        f(at..at.saturating_add(1), n);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A record in a log dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) selection: Selection,
    pub(super) deflated: bool,
    pub(super) log: u32,
    /// Offset of its data in the log dataset, bytes.
    pub(super) offset: u64,
}

/// A deflated record: extents refer to it by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deflated {
    pub(super) placed: Placed,
    /// Elements of the record.
    pub(super) elements: u64,
}

/// What a run did to a dataset.
#[derive(Debug, Clone)]
enum Event {
    Write(Placed),
    Erase(Erased),
}

/// A dataset in the log.
pub(super) struct Dataset {
    pub(super) shape: Shape,
    pub(super) extents: Extents,
    pub(super) deflated: Vec<Deflated>,
}

impl Dataset {
    /// A dataset without elements.
    pub(super) fn new(shape: Shape) -> Dataset {
        Dataset { shape, extents: Extents::default(), deflated: Vec::new() }
    }

    /// Enters a record, which replaces all elements that it has.
    pub(super) fn enter(&mut self, placed: Placed) -> Result<()> {
        let size = self.shape.element_size;
        let Dataset { shape, extents, deflated } = self;
        let source = if placed.deflated {
            let number = u32::try_from(deflated.len());
            let number = number.map_err(|_| Error::limit(NAME, Address::UNDEF, "2^32 deflated records of a dataset"))?;
            let elements = placed.selection.elements(shape.dims.len()).unwrap_or(0);
            deflated.push(Deflated { placed: placed.clone(), elements });
            Source::Deflated { record: number, first: 0 }
        } else {
            Source::Stored { log: placed.log, offset: placed.offset }
        };
        let mut gone = Vec::new();
        shape.each_run(&placed.selection, &mut |run, first| {
            let source = match source {
                Source::Stored { log, offset } => Source::Stored { log, offset: offset.saturating_add(first.saturating_mul(size)) },
                Source::Deflated { record, .. } => Source::Deflated { record, first },
                staged @ Source::Staged { .. } => staged,
            };
            extents.set(run, Some(source), size, &mut gone);
            gone.clear();
        })
    }
}

/// A log that was opened.
pub(super) struct Opened {
    pub(super) group: LogGroup,
    /// Where the next run goes.
    pub(super) tail: (u32, u64),
    pub(super) next_sequence: u64,
    /// Records of runs that the index lacks.
    pub(super) unindexed: u64,
    events: HashMap<u64, Vec<Event>>,
    /// Datasets that runs were of.
    pub(super) shapes: HashMap<u64, RunDataset>,
}

impl Opened {
    /// Opens the log of `group`: reads the runs that its index lacks.
    pub(super) fn new(group: LogGroup) -> Result<Opened> {
        let tail = (u32::try_from(group.state.indexed_log).unwrap_or(u32::MAX), group.state.indexed_bytes);
        let next_sequence = group.state.sequence;
        let mut opened = Opened { group, tail, next_sequence, unindexed: 0, events: HashMap::default(), shapes: HashMap::default() };
        let mut pending = Vec::new();
        let (mut at, mut sequence) = (tail, next_sequence);
        let numbers: Vec<u32> = opened.group.logs.range(tail.0..).map(|(n, _)| *n).collect();
        for number in numbers {
            // Runs go on in the next log dataset where they do not fit into the last one.
            at = if number == at.0 { at } else { (number, 0) };
            while let Some((head, run)) = opened.run_at(at, sequence)? {
                let (start, continued) = (at, head.continued);
                at.1 = at.1.saturating_add(head.bytes);
                sequence = sequence.saturating_add(1);
                pending.push((start, head, run));
                if !continued {
                    if pending.last().is_some_and(|(_, head, _)| head.serial > opened.group.state.serial) {
                        return Ok(opened);
                    }
                    for (start, head, run) in pending.drain(..) {
                        opened.enter_run(&head, &run, start)?;
                    }
                    (opened.tail, opened.next_sequence) = (at, sequence);
                }
            }
        }
        Ok(opened)
    }

    /// The run at a place, if it is whole and has this sequence number.
    fn run_at(&self, (number, offset): (u32, u64), sequence: u64) -> Result<Option<(RunHead, Vec<u8>)>> {
        let Some(log) = self.group.logs.get(&number).copied() else { return Ok(None) };
        let left = log.len.saturating_sub(offset);
        let at = log.address.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, log.address, "ends past 2^64"))?;
        let mut start = [0; RUN_PROBE_BYTES];
        if left < start.len() as u64 {
            return Ok(None);
        }
        self.group.store.read_raw(at, &mut start)?;
        let Some((found, bytes)) = probe(&start) else { return Ok(None) };
        if found != sequence || bytes > left.min(RUN_BYTES_MAX) {
            return Ok(None);
        }
        let mut run = vec![0; usize::try_from(bytes).unwrap_or(0)];
        self.group.store.read_raw(at, &mut run)?;
        if !RunHead::is_whole(&mut run) {
            return Ok(None);
        }
        let head = RunHead::read(&mut Reader::new(&run, NAME, at))?;
        Ok(Some((head, run)))
    }

    fn enter_run(&mut self, head: &RunHead, run: &[u8], (log, offset): (u32, u64)) -> Result<()> {
        let mut r = Reader::new(run, NAME, Address::UNDEF);
        RunHead::read(&mut r)?;
        let datasets: HashMap<u64, &RunDataset> = head.datasets.iter().map(|d| (d.id, d)).collect();
        for _ in 0..head.records {
            if let Some(erased) = read_erased(&mut r)? {
                for e in erased {
                    self.events.entry(e.dataset).or_default().push(Event::Erase(e));
                }
                continue;
            }
            let record = Head::read(&mut r, |id| datasets.get(&id).map(|d| d.dims.len()))?;
            let Some(dataset) = datasets.get(&record.dataset) else { return Err(r.corrupt("a record of another dataset")) };
            let data = offset.saturating_add(r.position() as u64);
            let bytes = record.selection.elements(dataset.dims.len()).and_then(|n| n.checked_mul(dataset.element_size));
            let bytes = bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| r.corrupt("a record of 2^64 bytes"))?;
            if record.deflated {
                r.skip(deflated_len(r.rest(), bytes)?)?;
            } else {
                r.skip(bytes)?;
            }
            let placed = Placed { selection: record.selection, deflated: record.deflated, log, offset: data };
            self.events.entry(record.dataset).or_default().push(Event::Write(placed));
            self.unindexed = self.unindexed.saturating_add(1);
        }
        for d in &head.datasets {
            self.shapes.insert(d.id, d.clone());
        }
        Ok(())
    }

    /// IDs of datasets that runs changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = u64> {
        self.events.keys().copied()
    }

    /// Loads the dataset `id`: its index entries, then what runs did to it.
    pub(super) fn dataset(&self, environment: &Environment, id: u64, shape: Shape) -> Result<Dataset> {
        let mut dataset = Dataset::new(shape);
        tables::load(environment, &self.group, id, &mut dataset)?;
        let size = dataset.shape.element_size;
        for event in self.events.get(&id).into_iter().flatten() {
            match event {
                Event::Write(placed) => dataset.enter(placed.clone())?,
                Event::Erase(e) => {
                    let end = if e.count >= TO_THE_END { u64::MAX } else { e.first.saturating_add(e.count) };
                    dataset.extents.set(e.first..end, None, size, &mut Vec::new());
                }
            }
        }
        Ok(dataset)
    }
}

/// Length of the zlib stream at the start of `bytes`, which inflates to `expected` bytes.
fn deflated_len(bytes: &[u8], expected: usize) -> Result<usize> {
    let corrupt = |detail: &'static str| Error::corrupt(NAME, Address::UNDEF, detail);
    if expected as u64 > limits::CHUNK_BYTES_MAX {
        return Err(corrupt("a deflated record of more than 4 GiB"));
    }
    let mut inflate = flate2::Decompress::new(true);
    let mut out = vec![0u8; 64 << 10];
    loop {
        let from = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
        let before = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(bytes.get(from..).unwrap_or_default(), &mut out, flate2::FlushDecompress::None);
        let status = status.map_err(|_| corrupt("a deflated record that does not inflate"))?;
        if inflate.total_out() > expected as u64 {
            return Err(corrupt("a deflated record of more bytes than it selects"));
        }
        if status == flate2::Status::StreamEnd {
            let whole = inflate.total_out() == expected as u64;
            return if whole {
                Ok(usize::try_from(inflate.total_in()).unwrap_or(usize::MAX))
            } else {
                Err(corrupt("a short deflated record"))
            };
        }
        if before == (inflate.total_in(), inflate.total_out()) {
            return Err(corrupt("a deflated record that ends early"));
        }
    }
}
