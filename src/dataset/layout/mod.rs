//! Storage layouts: one file or folder per layout, opened by [`open`] from the data layout message.

mod chunked;
mod compact;
mod contiguous;
mod external;
mod parts;
mod registry;
mod traits;
pub mod virtual_;

pub(crate) use parts::{Parts, Surroundings};
pub(crate) use registry::open;
pub use traits::Seek;
pub(crate) use traits::{CopyUnit, DatasetBytes, DirtyList, Layout, Operation, Progress, Segment, StoredChunks, batch_len};
