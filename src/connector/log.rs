//! The log of a container, in which datasets store their writes.

use super::{ObjectId, Result};
pub use crate::base::log_part::{LogPart, LogValue, LogVisitor};
use std::ops::ControlFlow;

/// What a dataset has in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatasetInLog {
    /// Bytes of elements that were written.
    pub written: u64,
    /// Pieces that supply them, each next to each other in the dataset and in the log.
    pub extents: u64,
}

/// Use of the bytes of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogUse {
    /// Log datasets.
    pub logs: u64,
    /// Their bytes.
    pub total: u64,
    /// Bytes of the elements that datasets have; deflated ones count with their size before.
    pub written: u64,
    /// Bytes that no dataset needs: of replaced elements, heads, unused ends of log datasets.
    /// `None`: the stored length of some deflated records is not known.
    pub dead: Option<u64>,
    /// Index entries.
    pub indexed: u64,
    /// Records that the index lacks.
    pub unindexed: u64,
    /// Bytes in memory that are not in the log yet.
    pub staged: u64,
}

/// A log that is shown as its datasets.
pub trait Log: Send + Sync {
    /// What the dataset `id` has in the log; `None`: nothing, its elements are elsewhere.
    fn dataset(&self, id: ObjectId) -> Result<Option<DatasetInLog>>;
    /// Use of its bytes. Reads the whole index.
    fn usage(&self) -> Result<LogUse>;
    /// Calls `f` with every part of the log, what is damaged included, until it breaks.
    fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()>;
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of elements that were appended again.
    pub moved: u64,
    /// Bytes of log datasets that were freed.
    pub freed: u64,
    /// Everything was done.
    pub finished: bool,
}

/// Called with bytes moved so far and bytes to be moved; breaks to stop.
pub type CompactProgress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Upkeep of a log.
pub trait EditLog: Send + Sync {
    /// Appends the elements of the dataset `only`, or of all, again in their order, and frees log
    /// datasets that no dataset needs. The container can be used meanwhile and is valid at any
    /// moment; what is done is durable when this returns.
    fn compact(&self, only: Option<ObjectId>, progress: &mut CompactProgress<'_>) -> Result<Compacted>;

    /// Does a bounded part of a compaction if much of the log is dead; called when the container is
    /// idle. Returns true if more is to be done.
    fn compact_part(&self) -> Result<bool>;

    /// Makes the index from the records alone.
    fn rebuild_index(&self) -> Result<()>;
}
