//! Datasets in the log of the released log VOL, for reading.
//!
//! The dataset object is an anchor: a dataset without elements, with the shape and an ID as
//! attributes. All writes of a file are in its log files (one, or one per group of ranks): data
//! datasets, and metadata datasets whose entries name a dataset ID, blocks and the place of their
//! data. Elements of a later write replace those of earlier ones; later is further back in the
//! data datasets, whatever the order of the entries.

mod directory;
mod dump;
mod layout;

pub(crate) use directory::{LogFile, ReleasedLog};
pub(super) use layout::open;
