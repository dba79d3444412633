//! Files of bytes among the datasets of an HDF5 file.

use super::super::dataset::Dataset;
use crate::base::datatype::Datatype;
use crate::connector::bytes_file::{CHUNK_BYTES, SMALL_CHUNK_BYTES, bytes_file};
use crate::dataset::create::usual_fill_time;

/// A file that is as it was created, but for its bytes.
pub(super) fn is_bytes_file(d: &Dataset) -> bool {
    let new = bytes_file();
    d.datatype.element_size() == 1
        && d.space.max() == [None]
        && d.pipeline.filters.is_empty()
        && d.fill.fill == new.fill
        && (d.layout().definition().is_none() || d.layout().logged().is_some())
}

/// A dataset that a new file of the same bytes becomes.
pub fn is_as_made(d: &Dataset) -> bool {
    let chosen = |chunk: u64| chunk == SMALL_CHUNK_BYTES || chunk.is_power_of_two() && (CHUNK_BYTES.0..=CHUNK_BYTES.1).contains(&chunk);
    is_bytes_file(d)
        && d.datatype == Datatype::byte()
        && d.fill.write_time == usual_fill_time(&d.datatype)
        && d.fill.allocation_time == bytes_file().layout.kind.allocation_time()
        && d.space.dims.len() == 1
        && d.chunk_dims().is_some_and(|dims| dims.into_iter().all(chosen))
}
