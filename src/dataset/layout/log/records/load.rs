//! What a file has of a log when it is opened: log datasets, index, and runs that the index lacks.

use super::dataset::{Dataset, LogGroup, Placed, State};
use super::events::{Event, Events};
use super::tables;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::environment::Environment;
use crate::format::Reader;
use crate::format::log::record::{Head, IDS_MAX, NAME};
use crate::format::log::run::{Erased, RUN_PROBE_BYTES, RunDataset, RunHead, TO_THE_END, probe, read_erased};
use foldhash::HashMap;

/// Longest run, bytes.
pub(super) const RUN_BYTES_MAX: u64 = 1 << 30;

/// A log that was opened.
pub(super) struct Opened {
    pub(super) group: LogGroup,
    pub(super) state: State,
    /// Where the next run goes.
    pub(super) tail: (u32, u64),
    pub(super) next_sequence: u64,
    /// Records of runs that the index lacks.
    pub(super) unindexed: u64,
    events: Events,
    /// What the runs of writers did, after that, and the datasets that these were of.
    pub(super) beside: Events,
    pub(super) written: HashMap<u64, RunDataset>,
    /// Datasets that runs were of.
    pub(super) shapes: HashMap<u64, RunDataset>,
}

impl Opened {
    /// Opens the log of `group`: reads the runs that its index lacks.
    pub(super) fn new(group: LogGroup) -> Result<Opened> {
        let state = group.state.unwrap_or_default();
        let tail = (u32::try_from(state.indexed_log).unwrap_or(u32::MAX), state.indexed_bytes);
        let next_sequence = state.sequence;
        let (events, beside, shapes, written) = (Events::default(), Events::default(), HashMap::default(), HashMap::default());
        let mut opened = Opened { group, state, tail, next_sequence, unindexed: 0, events, beside, written, shapes };
        if state.indexed_log == 0 && opened.group.released.is_none() {
            opened.next_sequence = opened.first_sequence()?;
        }
        if opened.group.released.is_some() {
            return Ok(opened);
        }
        opened.enter_log()?;
        opened.enter_writers()?;
        Ok(opened)
    }

    /// Enters the runs that the index lacks.
    fn enter_log(&mut self) -> Result<()> {
        let mut pending = Vec::new();
        let (mut at, mut sequence) = (self.tail, self.next_sequence);
        let numbers: Vec<u32> = self.group.logs.range(self.tail.0..).map(|(n, _)| *n).collect();
        for number in numbers {
            // Runs go on in the next log dataset where they do not fit into the last one.
            at = if number == at.0 { at } else { (number, 0) };
            while let Some((head, run)) = self.run_at(at, Some(sequence))? {
                let (start, continued) = (at, head.continued);
                at.1 = at.1.saturating_add(head.bytes);
                sequence = sequence.saturating_add(1);
                if continued {
                    pending.push(start);
                } else {
                    let serial = head.serial;
                    if self.group.state.is_none() {
                        self.state.serial = self.state.serial.max(serial);
                    } else if serial > self.state.serial {
                        return Ok(());
                    }
                    for place in pending.drain(..) {
                        // Read again: they may be more than fit into memory.
                        let again = || Error::corrupt(NAME, Address::UNDEF, "a run that changed");
                        let (head, run) = self.run_at(place, None)?.ok_or_else(again)?;
                        self.enter_run(&head, &run, place)?;
                    }
                    self.enter_run(&head, &run, start)?;
                    (self.tail, self.next_sequence) = (at, sequence);
                }
            }
        }
        Ok(())
    }

    /// Sequence number of the first run: log datasets before it may have been freed. The first ones
    /// that are left may have no run: nothing fitted into them.
    fn first_sequence(&self) -> Result<u64> {
        for log in self.group.logs.values().filter(|log| log.len >= RUN_PROBE_BYTES as u64) {
            let mut start = [0; RUN_PROBE_BYTES];
            self.group.store.read_raw(log.address, &mut start)?;
            if let Some((sequence, _)) = probe(&start) {
                return Ok(sequence);
            }
        }
        Ok(0)
    }

    /// The run at a place, if it is whole and has this sequence number, or any.
    pub(super) fn run_at(&self, (number, offset): (u32, u64), sequence: Option<u64>) -> Result<Option<(RunHead, Vec<u8>)>> {
        let Some(log) = self.group.logs.get(&number).copied() else { return Ok(None) };
        let at = log.address.checked_add(offset).ok_or_else(|| Error::corrupt(NAME, log.address, "ends past 2^64"))?;
        whole_run(log.len.saturating_sub(offset), sequence, &|buf| self.group.store.read_raw(at, buf))
    }

    fn enter_run(&mut self, head: &RunHead, run: &[u8], (log, offset): (u32, u64)) -> Result<()> {
        if let Some(d) = head.datasets.iter().find(|d| d.id >= IDS_MAX) {
            return Err(Error::corrupt(NAME, Address::UNDEF, format!("dataset ID {}", d.id)));
        }
        each_record(head, run, offset, &mut |record| {
            match record {
                RunRecord::Erased(erased) => {
                    erased.into_iter().for_each(|e| self.events.add(e.dataset, &Event::Erase(e)));
                }
                RunRecord::Written { head, offset, bytes } => {
                    let Head { dataset, selection, deflated } = head;
                    let stored = if deflated { u32::try_from(bytes).unwrap_or(0) } else { 0 };
                    let placed = Placed { selection, deflated, stored, log, offset };
                    self.events.add(dataset, &Event::Write(placed));
                    self.unindexed = self.unindexed.saturating_add(1);
                }
            }
            Ok(())
        })?;
        for d in &head.datasets {
            self.shapes.insert(d.id, d.clone());
        }
        Ok(())
    }

    /// IDs of datasets that runs changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = u64> {
        self.events.datasets()
    }

    /// Loads the dataset `id` into one without elements: its index entries, then what runs did to
    /// it.
    pub(super) fn dataset(&self, environment: &Environment, id: u64, mut dataset: Dataset) -> Result<Dataset> {
        tables::load(environment, &self.group, id, &mut dataset)?;
        self.check_written(id, &dataset.shape)?;
        let size = dataset.shape.element_size;
        let mut enter = |event| {
            match event {
                Event::Write(placed) => dataset.enter(placed)?,
                Event::Erase(e) => {
                    let end = if e.count >= TO_THE_END { u64::MAX } else { e.first.saturating_add(e.count) };
                    dataset.extents.set(e.first..end, None, size);
                }
            }
            dataset.bound();
            Ok(())
        };
        self.events.each(id, &mut enter)?;
        self.beside.each(id, &mut enter)?;
        Ok(dataset)
    }
}

/// The run at the start of `left` bytes, if it is whole and has this sequence number, or any.
/// `read` reads from the first byte on.
pub(super) fn whole_run(left: u64, sequence: Option<u64>, read: &dyn Fn(&mut [u8]) -> Result<()>) -> Result<Option<(RunHead, Vec<u8>)>> {
    let mut start = [0; RUN_PROBE_BYTES];
    if left < start.len() as u64 {
        return Ok(None);
    }
    read(&mut start)?;
    let Some((found, bytes)) = probe(&start) else { return Ok(None) };
    if sequence.is_some_and(|sequence| sequence != found) || bytes > left.min(RUN_BYTES_MAX) {
        return Ok(None);
    }
    let mut run = vec![0; usize::try_from(bytes).unwrap_or(0)];
    read(&mut run)?;
    if !RunHead::is_whole(&mut run) {
        return Ok(None);
    }
    let head = RunHead::read(&mut Reader::new(&run, NAME, Address::UNDEF))?;
    Ok(Some((head, run)))
}

/// A record of a run.
pub(super) enum RunRecord {
    /// Elements were erased.
    Erased(Vec<Erased>),
    /// Elements were written: the head, offset of the data in the log dataset, its stored bytes.
    Written { head: Head, offset: u64, bytes: u64 },
}

/// Calls `f` with the records of a whole run, which begins at `offset` of its log dataset.
pub(super) fn each_record(head: &RunHead, run: &[u8], offset: u64, f: &mut dyn FnMut(RunRecord) -> Result<()>) -> Result<()> {
    let mut r = Reader::new(run, NAME, Address::UNDEF);
    RunHead::read(&mut r)?;
    let datasets: HashMap<u64, &RunDataset> = head.datasets.iter().map(|d| (d.id, d)).collect();
    for _ in 0..head.records {
        if let Some(erased) = read_erased(&mut r)? {
            f(RunRecord::Erased(erased))?;
            continue;
        }
        let record = Head::read(&mut r, |id| datasets.get(&id).map(|d| d.dims.len()))?;
        let Some(dataset) = datasets.get(&record.dataset) else { return Err(r.corrupt("a record of another dataset")) };
        let data = offset.saturating_add(r.position() as u64);
        let bytes = record.selection.elements(dataset.dims.len()).and_then(|n| n.checked_mul(dataset.element_size));
        let bytes = bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| r.corrupt("a record of 2^64 bytes"))?;
        let stored = if record.deflated { deflated_len(r.rest(), bytes)? } else { bytes };
        r.skip(stored)?;
        f(RunRecord::Written { head: record, offset: data, bytes: stored as u64 })?;
    }
    Ok(())
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
