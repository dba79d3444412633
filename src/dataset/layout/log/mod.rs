//! Log layout: the elements are in records of writes, in a log that the datasets of a file share.
//!
//! The dataset object is an anchor, without elements: its attributes are the shape and an ID in the
//! log. `records` reads and writes logs of self-describing records; `released` reads those of the
//! released log VOL. `block_index` finds the writes that supply a range of elements.

mod anchor;
mod block_index;
mod definition;
mod open;
mod piece;
mod records;
mod released;

pub(super) use anchor::NAME;
pub(crate) use anchor::{Anchor, InLog, RecordAnchor, ReleasedAnchor};
pub(super) use open::open;
pub(in crate::dataset::layout) use records::Create;
pub(crate) use records::{
    Beside, LogDataset, LogGroup, LogState, LogTotals, Metadata, RecordLog, ReleasedGroup, ReleasedMember, Run, RunDataset, WriterRuns,
    WriterTail,
};
pub(crate) use released::{LogFile, ReleasedLog};
