//! What a file has of a log when it is opened: log datasets, index, and runs that the index lacks.

use super::beside::Beside;
use super::dataset::{Dataset, LogGroup, Placed, State};
use super::events::{Event, Events};
use super::run_records::{RunRecord, each_record, whole_run};
use super::tables;
use crate::base::{Address, Error, Result};
use crate::dataset::environment::Environment;
use crate::format::log::record::{Head, IDS_MAX, NAME};
use crate::format::log::run::{RUN_PROBE_BYTES, RunDataset, RunHead, TO_THE_END, probe};
use foldhash::HashMap;
use std::sync::Arc;

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
    /// The run files of writers.
    beside: Arc<Beside>,
    /// Datasets that runs were of.
    pub(super) shapes: HashMap<u64, RunDataset>,
}

impl Opened {
    /// Opens the log of `group`: reads the runs that its index lacks. Errors: `beside` does not
    /// belong to it.
    pub(super) fn new(group: LogGroup, beside: Arc<Beside>) -> Result<Opened> {
        let state = group.state.unwrap_or_default();
        let tail = (u32::try_from(state.indexed_log).unwrap_or(u32::MAX), state.indexed_bytes);
        let next_sequence = state.sequence;
        let (events, shapes) = (Events::default(), HashMap::default());
        let mut opened = Opened { group, state, tail, next_sequence, unindexed: 0, events, beside, shapes };
        if state.indexed_log == 0 && opened.group.released.is_none() {
            opened.next_sequence = opened.first_sequence()?;
        }
        if opened.group.released.is_some() {
            return Ok(opened);
        }
        opened.enter_log()?;
        opened.beside.check_base(&opened.state, opened.next_sequence, opened.group.identity)?;
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
        self.beside.add_to(id, &mut dataset)?;
        Ok(dataset)
    }
}
