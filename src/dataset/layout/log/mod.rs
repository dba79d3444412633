//! Log layout: the elements are in records of writes, in a log that the datasets of a file share.
//!
//! `block_index` finds the writes that supply a range of elements; `released` reads the log of the
//! released log VOL.

mod block_index;
mod released;

pub(crate) use released::{Anchor, LogFile, ReleasedLog};
pub(super) use released::{NAME, open};
