//! Open files: handles, the bytes behind them, and what an open file holds.

mod ends;
mod file;
mod files;
mod padding;
mod view_writers;

pub use file::{Holder, OpenFile};
pub use files::{OpenFiles, check_writable};
pub use padding::{note_gap, padded_end};
