//! What a log is made of: its group, log datasets, datasets, and the records that supply them.

use super::extent::{Extent, Source};
use super::extents::Extents;
use super::pages::Pages;
use super::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::dataset::layout::DatasetBytes;
use crate::dataset::layout::log::released::ReleasedLog;
use crate::dataset::layout::traits::Measure;
use crate::file::FileDriver;
use crate::format::log::record::{NAME, Selection};
use crate::format::log::run::RunDataset;
use crate::format::log::writer::WriterHead;
use crate::meta::Store;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Extents of a dataset in memory while it is loaded.
const LOADED_MAX: usize = 1 << 17;

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
    /// Bytes of the log that were live when they were last counted; 0: they were not.
    pub(crate) live: u64,
}

impl State {
    /// The values of the attribute, after its version.
    pub(crate) fn values(&self) -> [u64; 6] {
        [self.serial, self.indexed_log, self.indexed_bytes, self.sequence, self.entries, self.live]
    }

    /// The state that has these values.
    pub(crate) fn of(values: [u64; 6]) -> State {
        let [serial, indexed_log, indexed_bytes, sequence, entries, live] = values;
        State { serial, indexed_log, indexed_bytes, sequence, entries, live }
    }
}

/// The group of a log.
pub(crate) struct LogGroup {
    /// Its state; `None`: it is not known, and all whole runs count.
    pub(crate) state: Option<State>,
    /// The next dataset ID.
    pub(crate) next_id: u64,
    /// New datasets are in the log.
    pub(crate) is_default: bool,
    /// Log datasets by number.
    pub(crate) logs: BTreeMap<u32, LogDataset>,
    /// The index table.
    pub(crate) index: Option<Arc<DatasetBytes>>,
    /// The skip list.
    pub(crate) skip: Option<Arc<DatasetBytes>>,
    /// The file.
    pub(crate) store: Arc<Store>,
    /// What a log of the released log VOL has instead of state, index and skip list.
    pub(crate) released: Option<ReleasedGroup>,
    /// Identity of the log; 0: it has none.
    pub(crate) identity: u64,
}

/// Number of the first run file among those of log datasets.
pub(super) const FIRST_WRITER: u32 = 1 << 31;

/// The run file of one of several writers.
#[derive(Clone)]
pub(crate) struct WriterRuns {
    /// The file.
    pub(crate) file: Arc<dyn FileDriver>,
    /// Its length, bytes.
    pub(crate) len: u64,
    /// Its head.
    pub(crate) head: WriterHead,
}

impl WriterRuns {
    /// Its number among those of log datasets.
    pub(super) fn log(&self) -> u32 {
        FIRST_WRITER.saturating_add(self.head.writer)
    }

    /// Fills `buf` from `offset` on.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.file.read_at(buf, offset).map_err(|e| Error::io("read", Address(offset), &e))?;
        if read == buf.len() { Ok(()) } else { Err(Error::corrupt(NAME, Address(offset), "a run file became shorter")) }
    }
}

/// What a log of the released log VOL has beside its data datasets; those are numbered from 1.
pub(crate) struct ReleasedGroup {
    /// Its entries.
    pub(crate) log: Arc<ReleasedLog>,
    /// The datasets in it.
    pub(crate) members: Vec<ReleasedMember>,
    /// Number of metadata datasets.
    pub(crate) metadata: u32,
}

/// A dataset in a log of the released log VOL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReleasedMember {
    /// Its ID in the log.
    pub(crate) id: i32,
    /// Dimensions, elements.
    pub(crate) dims: Vec<u64>,
    /// Bytes of an element.
    pub(crate) element_size: u64,
}

impl LogGroup {
    /// Leaves the log datasets alone, and the serial number of the state.
    pub(super) fn forget_index(&mut self) {
        (self.index, self.skip) = (None, None);
        self.state = self.state.map(|state| State { serial: state.serial, ..State::default() });
    }
}

/// Opens the group of a file's log.
pub(crate) type LogSource = dyn Fn() -> Result<LogGroup> + Send + Sync;

/// A record in a log dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) selection: Selection,
    pub(super) deflated: bool,
    /// Stored bytes of a deflated record; 0: not known.
    pub(super) stored: u32,
    pub(super) log: u32,
    /// Offset of its data in the log dataset, bytes.
    pub(super) offset: u64,
}

/// A deflated record of elements that are not next to each other. Only other software writes such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scattered {
    pub(super) placed: Placed,
    /// Elements of the record.
    pub(super) elements: u64,
    /// Linear elements from its first to its last one.
    pub(super) bounds: Range<u64>,
}

/// A dataset in the log.
pub(super) struct Dataset {
    pub(super) shape: Shape,
    pub(super) extents: Extents,
    /// New records are deflated.
    pub(super) deflates: bool,
    /// Extents refer to these records by number.
    pub(super) scattered: Vec<Scattered>,
    /// Elements of the longest deflated record; 2^64 - 1 if some are scattered.
    pub(super) longest_deflated: u64,
    /// Extents in memory at which they are packed while the dataset is loaded.
    pack_at: usize,
}

impl Dataset {
    /// A dataset without elements, whose extents are packed in `pages`.
    pub(super) fn new(shape: Shape, pages: Arc<Pages>) -> Dataset {
        let extents = Extents::new(pages);
        Dataset { shape, extents, deflates: false, scattered: Vec::new(), longest_deflated: 0, pack_at: LOADED_MAX }
    }

    /// The dataset `id` as a run names it.
    pub(super) fn in_run(&self, id: u64) -> RunDataset {
        RunDataset { id, element_size: self.shape.element_size, dims: self.shape.dims.clone() }
    }

    /// Packs the extents that are not staged. They stay in memory if that fails.
    pub(super) fn pack(&mut self) {
        if let Err(e) = self.extents.pack(self.shape.element_size) {
            tracing::debug!("extents of a dataset in a log stay in memory: {e}");
        }
    }

    /// Keeps a dataset that is loaded within its memory.
    pub(super) fn bound(&mut self) {
        if self.extents.recent() >= self.pack_at {
            self.pack();
            self.pack_at = self.extents.recent().saturating_mul(2).max(LOADED_MAX);
        }
    }

    /// Number of the log dataset that has the source, and the offset there.
    pub(super) fn place_of(&self, source: Source) -> Option<(u32, u64)> {
        match source {
            Source::Staged { .. } => None,
            Source::Stored { log, offset } => Some((log, offset)),
            Source::Deflated { log, offset, .. } => Some((log, offset)),
            Source::Scattered { record, .. } => self.scattered.get(record as usize).map(|d| (d.placed.log, d.placed.offset)),
        }
    }

    /// The linear elements that the deflated record of an extent was written with, from the first
    /// to the last one, whether or not later records replaced them. `None`: it is not deflated.
    pub(super) fn record_bounds(&self, extent: &Extent) -> Option<Range<u64>> {
        match extent.source {
            Source::Deflated { first, elements, .. } => {
                let start = extent.first.saturating_sub(first.into());
                Some(start..start.saturating_add(elements.into()))
            }
            Source::Scattered { record, .. } => Some(self.scattered.get(record as usize).map_or(0..u64::MAX, |s| s.bounds.clone())),
            Source::Staged { .. } | Source::Stored { .. } => None,
        }
    }

    /// What the dataset has in the log.
    pub(super) fn measure(&self) -> Result<Measure> {
        let mut all = Measure { ordered: true, ..Measure::default() };
        let mut before = (0, 0);
        for extent in self.extents.all(self.shape.element_size) {
            let extent = extent?;
            let elements = extent.end.saturating_sub(extent.first);
            let bytes = elements.saturating_mul(self.shape.element_size);
            all.written = all.written.saturating_add(bytes);
            all.extents = all.extents.saturating_add(1);
            let stored = match extent.source {
                Source::Stored { .. } => bytes,
                // A part of a record counts as such: the rest is dead.
                Source::Deflated { elements: whole, stored, .. } if stored > 0 => {
                    u64::from(stored).saturating_mul(elements).checked_div(whole.into()).unwrap_or(0)
                }
                Source::Staged { .. } => 0,
                Source::Deflated { .. } | Source::Scattered { .. } => {
                    all.unmeasured = true;
                    0
                }
            };
            all.stored = all.stored.saturating_add(stored);
            let Some(place) = self.place_of(extent.source) else { continue };
            all.ordered &= place >= before;
            before = place;
            all.logs.insert(place.0);
        }
        Ok(all)
    }

    /// The next elements from `at` on that are in log datasets up to number `last`, at most `most`.
    pub(super) fn next_in(&self, at: u64, last: u32, most: u64) -> Result<Option<Range<u64>>> {
        let mut found: Option<Range<u64>> = None;
        for extent in self.extents.within(at..u64::MAX, self.shape.element_size) {
            let extent = extent?;
            let old = self.place_of(extent.source).is_some_and(|(log, _)| log <= last);
            match &mut found {
                None if old => found = Some(extent.first..extent.end),
                None => {}
                Some(range) if old && range.end == extent.first => range.end = extent.end,
                Some(_) => break,
            }
            if let Some(range) = &mut found
                && range.end.saturating_sub(range.start) >= most
            {
                range.end = range.start.saturating_add(most);
                break;
            }
        }
        Ok(found)
    }

    /// Enters a record, which replaces all elements that it has.
    pub(super) fn enter(&mut self, placed: Placed) -> Result<()> {
        let size = self.shape.element_size;
        let linear = if placed.deflated { self.shape.linear(&placed.selection) } else { None };
        let source = match linear {
            _ if !placed.deflated => Source::Stored { log: placed.log, offset: placed.offset },
            Some(range) if let Ok(elements) = u32::try_from(range.end.saturating_sub(range.start)) => {
                let Placed { log, offset, stored, .. } = placed;
                Source::Deflated { log, offset, first: 0, elements, stored }
            }
            _ => {
                let number = u32::try_from(self.scattered.len());
                let record = number.map_err(|_| Error::limit(NAME, Address::UNDEF, "2^32 scattered records of a dataset"))?;
                let elements = placed.selection.elements(self.shape.dims.len()).unwrap_or(0);
                let bounds = self.shape.bounds(&placed.selection);
                self.scattered.push(Scattered { placed: placed.clone(), elements, bounds });
                Source::Scattered { record, first: 0 }
            }
        };
        let longest = match source {
            Source::Deflated { elements, .. } => elements.into(),
            Source::Scattered { .. } => u64::MAX,
            Source::Staged { .. } | Source::Stored { .. } => 0,
        };
        self.longest_deflated = self.longest_deflated.max(longest);
        let Dataset { shape, extents, .. } = self;
        shape.each_run(&placed.selection, &mut |run, first| {
            extents.set(run, Some(source.after(first, size)), size);
            Ok(())
        })
    }
}
