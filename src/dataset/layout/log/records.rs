//! Datasets in a log of records: every write is appended, with what it is, to log datasets that
//! all datasets of the file share.
//!
//! A write becomes a staged buffer in memory. A flush cuts the staged elements that were not
//! replaced since into records, which are appended as runs. `extents` maps the elements of a
//! dataset to the latest write, most of it `packed` in `pages` of a temporary file; `state` is what
//! a log has in memory, `log` what is done with it; `load` reads the runs that the index lacks,
//! into `events`; `runs` makes runs, which `run_records` reads; `tables` the index table, with
//! `sorted` entries and the `lengths` of deflated records. `batch` has what differs in a log of the
//! released log VOL: data datasets of elements alone, and metadata datasets of entries; `writers`
//! the runs in a run file of several writers, `beside` all of these files. See docs/DESIGN-log.md.

mod batch;
mod beside;
mod dataset;
mod dump;
mod events;
mod extent;
mod extents;
mod layout;
mod lengths;
mod load;
mod log;
mod packed;
mod pages;
mod run_records;
mod runs;
mod shape;
mod sorted;
mod state;
mod tables;
mod upkeep;
mod writers;

pub(crate) use crate::format::log::run::RunDataset;
pub(crate) use batch::Metadata;
pub(crate) use beside::Beside;
pub(crate) use dataset::{LogDataset, LogGroup, ReleasedGroup, ReleasedMember, State as LogState, WriterRuns};
pub(in crate::dataset::layout) use layout::Create;
pub(super) use layout::open;
pub(crate) use log::RecordLog;
pub(crate) use runs::Run;
pub(crate) use upkeep::LogTotals;
pub(crate) use writers::WriterTail;
