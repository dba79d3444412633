//! Storage layouts: one file or folder per layout, registered in [`registry`].

mod chunked;
mod compact;
mod contiguous;
mod external;
mod log;
mod parts;
mod plain_reads;
mod registry;
mod source_reads;
mod traits;
pub mod virtual_;

pub use super::elsewhere::Segment;
pub(crate) use chunked::{like as chunked_like, new as new_chunked};
pub(crate) use contiguous::new as new_contiguous;
pub(crate) use log::{
    Anchor, Beside, InLog, LogDataset, LogFile, LogGroup, LogState, LogTotals, Metadata, RecordAnchor, RecordLog, ReleasedAnchor,
    ReleasedGroup, ReleasedLog, ReleasedMember, Run, RunDataset, WriterRuns, WriterTail,
};
pub(crate) use parts::{Parts, Surroundings};
pub(crate) use registry::{named, new_compact, new_in_log, open};
pub(crate) use source_reads::{SourcePart, SourceReads};
pub use traits::{AlwaysTurn, BackgroundTurn, Deferred, Front, Seek};
pub(crate) use traits::{CopyUnit, DatasetBytes, DirtyList, Layout, Measure, Operation, PortableChunk, Progress, StoredChunks};
