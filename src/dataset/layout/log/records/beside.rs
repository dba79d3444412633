//! What the run files of several writers have: datasets that may have grown, and their elements.
//!
//! Runs of writers follow those of the HDF5 file, ascending by the number of the writer: of an
//! element that two writers wrote, that of the higher number counts. The first dimension of a
//! dataset is the longest one that the file or a run has.

use super::dataset::{Dataset, Placed, State, WriterRuns};
use super::events::{Event, Events};
use super::extent::Source;
use super::pages::Pages;
use super::run_records::{RunRecord, each_record};
use super::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::format::log::record::{Head, IDS_MAX};
use crate::format::log::run::{RunDataset, RunHead};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "run file of a log writer";

fn corrupt(detail: &'static str) -> Error {
    Error::corrupt(NAME, Address::UNDEF, detail)
}

/// Opens the run files beside a file; those that were joined are left out.
pub(crate) type WriterSource = dyn Fn() -> Result<Vec<WriterRuns>> + Send + Sync;

/// The run files beside a file, read.
#[derive(Default)]
pub(crate) struct Beside {
    /// By their numbers among those of log datasets.
    pub(super) runs: BTreeMap<u32, WriterRuns>,
    events: Events,
    /// Datasets of runs, with the longest first dimension.
    written: HashMap<u64, RunDataset>,
    /// First dimensions of datasets in runs of version 0, which is what the HDF5 file had.
    fixed: HashMap<u64, u64>,
}

impl Beside {
    /// Reads the run files `files`. Errors: one of them is damaged, two contradict each other.
    pub(crate) fn read(files: Vec<WriterRuns>) -> Result<Beside> {
        let mut all = Beside { runs: files.into_iter().map(|runs| (runs.log(), runs)).collect(), ..Beside::default() };
        for (log, runs) in all.runs.clone() {
            let (grows, mut has_datasets) = (runs.head.identity.is_some(), false);
            let read = runs.each_run(&mut |head, run, at| {
                has_datasets |= !head.datasets.is_empty();
                all.enter(head, run, (log, at), grows)
            });
            read.map_err(|e| Error::corrupt(NAME, Address::UNDEF, format!("the run file of writer {}: {e}", runs.head.writer)))?;
            if !has_datasets {
                all.runs.remove(&log);
            }
        }
        Ok(all)
    }

    fn enter(&mut self, head: &RunHead, run: &[u8], (log, offset): (u32, u64), grows: bool) -> Result<()> {
        for d in &head.datasets {
            if d.id >= IDS_MAX {
                return Err(corrupt("a dataset ID beyond all"));
            }
            let first = d.dims.first().copied().unwrap_or(0);
            if !grows && self.fixed.insert(d.id, first).is_some_and(|before| before != first) {
                return Err(corrupt("runs of a dataset with two shapes"));
            }
            let known = self.written.entry(d.id).or_insert_with(|| d.clone());
            if known.element_size != d.element_size || known.dims.len() != d.dims.len() || known.dims.get(1..) != d.dims.get(1..) {
                return Err(corrupt("runs of a dataset with two shapes"));
            }
            if known.dims.first() < d.dims.first() {
                known.clone_from(d);
            }
        }
        each_record(head, run, offset, &mut |record| match record {
            RunRecord::Written { head: Head { dataset, selection, deflated: false }, offset, .. } => {
                let placed = Placed { selection, deflated: false, stored: 0, log, offset };
                self.events.add(dataset, &Event::Write(placed));
                Ok(())
            }
            RunRecord::Written { .. } => Err(corrupt("a deflated record")),
            RunRecord::Erased(_) => Err(corrupt("a record of erased elements")),
        })
    }

    /// True if no run has a dataset.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// IDs of the datasets that runs are of.
    pub(crate) fn datasets(&self) -> impl Iterator<Item = u64> {
        self.written.keys().copied()
    }

    /// The first dimension that the dataset `id` has at least.
    pub(crate) fn rows(&self, id: u64) -> Option<u64> {
        self.written.get(&id)?.dims.first().copied()
    }

    /// Errors: a run file was made beside another state of the file than `state` with the next run
    /// `sequence`, or beside another file.
    pub(super) fn check_base(&self, state: &State, sequence: u64, identity: u64) -> Result<()> {
        for runs in self.runs.values() {
            let head = &runs.head;
            let detail = match head.identity {
                Some(own) if own != identity => "belongs to another HDF5 file, or to an earlier one of this name",
                _ if head.serial > state.serial || head.sequence > sequence => {
                    "was made beside a later state of the file, or beside another one"
                }
                // The file does not change as long as a run file waits.
                Some(_) if (head.serial, head.sequence) != (state.serial, sequence) => {
                    "was made beside an earlier state of the file, which changed without it since: the file may have its elements, or newer ones"
                }
                _ => continue,
            };
            return Err(Error::corrupt(NAME, Address::UNDEF, format!("that of writer {} {detail}; move it elsewhere", head.writer)));
        }
        Ok(())
    }

    /// Errors: writers wrote elements of the dataset `id` when it had another shape than `shape`.
    pub(super) fn check(&self, id: u64, shape: &Shape) -> Result<()> {
        let first = shape.dims.first().copied().unwrap_or(0);
        let is_longer = self.fixed.get(&id).is_some_and(|fixed| *fixed > first);
        let differs = |d: &RunDataset| {
            d.element_size != shape.element_size || d.dims.len() != shape.dims.len() || d.dims.get(1..) != shape.dims.get(1..)
        };
        if is_longer || self.written.get(&id).is_some_and(differs) {
            return Err(corrupt("the dataset had another shape or type when it was written: another program changed the file"));
        }
        Ok(())
    }

    /// Enters the elements of the dataset `id` into `dataset`, and its first dimension if it is
    /// longer.
    pub(super) fn add_to(&self, id: u64, dataset: &mut Dataset) -> Result<()> {
        let Some(d) = self.written.get(&id) else { return Ok(()) };
        self.check(id, &dataset.shape)?;
        dataset.shape.extend(&Shape::new(&d.dims, d.element_size));
        self.events.each(id, &mut |event| {
            if let Event::Write(placed) = event {
                dataset.enter(placed)?;
            }
            dataset.bound();
            Ok(())
        })
    }

    /// Calls `f` with the elements that runs have of the dataset `id`, which has the dimensions
    /// `dims` and elements of `element_size` bytes: offset in the dataset, and at most about `most`
    /// bytes.
    pub(crate) fn each_piece(
        &self,
        id: u64,
        (dims, element_size): (&[u64], u64),
        most: u64,
        f: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = element_size.max(1);
        let mut dataset = Dataset::new(Shape::new(dims, element_size), Arc::<Pages>::default());
        self.add_to(id, &mut dataset)?;
        for extent in dataset.extents.all(element_size) {
            let extent = extent?;
            let Source::Stored { log, offset } = extent.source else { return Err(corrupt("a deflated record")) };
            let runs = self.runs.get(&log).ok_or_else(|| corrupt("a record of another writer"))?;
            let (end, mut first, mut at) = (extent.end, extent.first, offset);
            while first < end {
                let elements = end.saturating_sub(first).min((most / size).max(1));
                let bytes = elements.saturating_mul(size);
                let mut piece = vec![0; usize::try_from(bytes).unwrap_or(0)];
                runs.read(at, &mut piece)?;
                f(first.saturating_mul(size), &piece)?;
                (first, at) = (first.saturating_add(elements), at.saturating_add(bytes));
            }
        }
        Ok(())
    }
}

/// The run files of a log, once they were read.
#[derive(Default)]
pub(super) struct BesideKept {
    pub(super) read: Option<Arc<Beside>>,
    /// They could not be read.
    pub(super) has_failed: bool,
}
