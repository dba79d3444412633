//! The object of a dataset in a log: what it has as attributes.

use super::records::RecordLog;
use super::released::ReleasedLog;
use crate::base::shape::Shape;
use std::sync::Arc;

/// Name of the layout.
pub(in crate::dataset::layout) const NAME: &str = "log";

/// What the object of a dataset in a log has as attributes.
pub(crate) struct Anchor {
    /// Shape of the dataset.
    pub(crate) shape: Shape,
    /// The log that it is in.
    pub(crate) log: InLog,
}

/// A dataset in a log, by the kind of log.
pub(crate) enum InLog {
    /// A log of records.
    Records(RecordAnchor),
    /// A log of the released log VOL.
    Released(ReleasedAnchor),
}

/// A dataset object whose elements are in a log of records.
pub(crate) struct RecordAnchor {
    /// Its ID in the log.
    pub(crate) id: u64,
    /// New records are deflated.
    pub(crate) deflate: bool,
    /// The log.
    pub(crate) log: Arc<RecordLog>,
}

/// A dataset object whose elements are in a log of the released log VOL.
pub(crate) struct ReleasedAnchor {
    /// Its ID in the log.
    pub(crate) id: i32,
    /// The file was written before version 1.4.
    pub(crate) legacy: bool,
    /// The log.
    pub(crate) log: Arc<ReleasedLog>,
}
