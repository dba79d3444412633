//! What a log is made of: its group, log datasets, datasets, and the records that supply them.

use super::extents::{Extents, Source};
use crate::base::{Address, Error, Result};
use crate::dataset::layout::DatasetBytes;
use crate::dataset::layout::log::block_index::Rows;
use crate::dataset::layout::log::released::ReleasedLog;
use crate::dataset::layout::traits::Measure;
use crate::format::log::record::{NAME, Selection};
use crate::meta::Store;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

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

    /// The shape with a first dimension that no element exceeds: for records of a dataset that may
    /// have grown since.
    pub(super) fn unbounded(dims: &[u64], element_size: u64) -> Shape {
        let mut shape = Shape::new(dims, element_size);
        shape.dims.iter_mut().take(1).for_each(|d| *d = i64::MAX as u64);
        shape
    }

    /// False for a shape of [`Shape::unbounded`].
    pub(super) fn is_bounded(&self) -> bool {
        self.dims.first() != Some(&(i64::MAX as u64))
    }

    /// Takes over a longer first dimension. A shorter one may be of a reader of an older state;
    /// elements past the extent are unwritten anyway.
    pub(super) fn extend(&mut self, other: &Shape) {
        if self.dims.first() < other.dims.first() {
            self.clone_from(other);
        }
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

/// A dataset in the log.
pub(super) struct Dataset {
    pub(super) shape: Shape,
    pub(super) extents: Extents,
    /// New records are deflated.
    pub(super) deflates: bool,
    pub(super) deflated: Vec<Deflated>,
}

impl Dataset {
    /// A dataset without elements.
    pub(super) fn new(shape: Shape) -> Dataset {
        Dataset { shape, extents: Extents::default(), deflates: false, deflated: Vec::new() }
    }

    /// Number of the log dataset that has the source, and the offset there.
    pub(super) fn place_of(&self, source: Source) -> Option<(u32, u64)> {
        match source {
            Source::Staged { .. } => None,
            Source::Stored { log, offset } => Some((log, offset)),
            Source::Deflated { record, .. } => self.deflated.get(record as usize).map(|d| (d.placed.log, d.placed.offset)),
        }
    }

    /// What the dataset has in the log.
    pub(super) fn measure(&self) -> Measure {
        let mut all = Measure { ordered: true, ..Measure::default() };
        let mut before = (0, 0);
        for extent in self.extents.all() {
            all.written = all.written.saturating_add(extent.end.saturating_sub(extent.first).saturating_mul(self.shape.element_size));
            all.extents = all.extents.saturating_add(1);
            all.deflated |= matches!(extent.source, Source::Deflated { .. });
            let Some(place) = self.place_of(extent.source) else { continue };
            all.ordered &= place >= before;
            before = place;
            all.logs.insert(place.0);
        }
        all
    }

    /// The next elements from `at` on that are in log datasets up to number `last`, at most `most`.
    pub(super) fn next_in(&self, at: u64, last: u32, most: u64) -> Option<Range<u64>> {
        let mut found: Option<Range<u64>> = None;
        for extent in self.extents.within(at..u64::MAX, self.shape.element_size) {
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
        found
    }

    /// Enters a record, which replaces all elements that it has.
    pub(super) fn enter(&mut self, placed: Placed) -> Result<()> {
        let size = self.shape.element_size;
        let Dataset { shape, extents, deflated, .. } = self;
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
