//! Datasets in a log of records: every write is appended, with what it is, to log datasets that
//! all datasets of the file share.
//!
//! A write becomes a staged buffer in memory. A flush cuts the staged elements that were not
//! replaced since into records, which are appended as runs. `extents` maps the elements of a dataset
//! to the latest write; `log` has the state of a file's log; `load` reads index and runs when a
//! dataset is first used; `runs` makes runs; `tables` the index table. See docs/DESIGN-log.md.

mod extents;
mod layout;
mod load;
mod log;
mod runs;
mod tables;

pub(in crate::dataset::layout) use layout::Create;
pub(crate) use layout::RecordAnchor;
pub(super) use layout::open;
pub(crate) use load::{LogDataset, LogGroup, State as LogState};
pub(crate) use log::RecordLog;
