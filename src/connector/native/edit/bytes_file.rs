//! A file of bytes: what a new file is before a type is declared.

use super::super::dataset::Dataset;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::shape::Extent;
use crate::dataset::creation::Creation;
use crate::dataset::layout::new_chunked;

/// Chunk size of a small file, which has one chunk, bytes. No other writer chooses this size, so
/// that a small file is recognized when it grows.
pub(super) const SMALL_CHUNK_BYTES: u64 = 480;

/// Least and largest chunk size of other new files, bytes.
pub(super) const CHUNK_BYTES: (u64, u64) = (4 << 10, 1 << 20);

/// The dataset that a new file is: bytes in one small chunk, of unlimited size.
pub(super) fn bytes_file() -> Creation {
    Creation {
        datatype: Datatype::byte(),
        extent: Extent::Simple,
        dims: vec![0],
        max_dims: Some(vec![None]),
        layout: new_chunked(vec![SMALL_CHUNK_BYTES]),
        filters: Vec::new(),
        fill: Fill::Default,
        fill_time: None,
        undefine_fill: false,
        modified: None,
        committed: None,
    }
}

/// A file that is as it was created, but for its bytes.
pub(super) fn is_bytes_file(d: &Dataset) -> bool {
    let new = bytes_file();
    d.datatype.element_size() == 1
        && d.space.max() == [None]
        && d.pipeline.filters.is_empty()
        && d.fill.fill == new.fill
        && d.layout().definition().is_none()
}

/// A dataset that a new file of the same bytes becomes.
pub fn is_as_made(d: &Dataset) -> bool {
    let chosen = |chunk: u64| chunk == SMALL_CHUNK_BYTES || chunk.is_power_of_two() && (CHUNK_BYTES.0..=CHUNK_BYTES.1).contains(&chunk);
    is_bytes_file(d)
        && d.datatype == Datatype::byte()
        && d.space.dims.len() == 1
        && d.chunk_dims().is_some_and(|dims| dims.into_iter().all(chosen))
}
