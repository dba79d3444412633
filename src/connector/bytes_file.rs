//! A file of bytes: what a new file is before a type is declared.

use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::shape::Extent;
use crate::dataset::creation::Creation;
use crate::dataset::layout::new_chunked;

/// Chunk size of a small file, which has one chunk, bytes. No other writer chooses this size, so
/// that a small file is recognized when it grows.
pub(crate) const SMALL_CHUNK_BYTES: u64 = 480;

/// Least and largest chunk size of other new files, bytes.
pub(crate) const CHUNK_BYTES: (u64, u64) = (4 << 10, 1 << 20);

/// The dataset that a new file is: bytes in one small chunk, of unlimited size.
pub(crate) fn bytes_file() -> Creation {
    Creation {
        datatype: Datatype::byte(),
        extent: Extent::Simple,
        dims: vec![0],
        max_dims: Some(vec![None]),
        layout: new_chunked(vec![SMALL_CHUNK_BYTES]),
        filters: Vec::new(),
        fill: Fill::Default,
        fill_time: None,
        allocation_time: None,
        elsewhere: None,
        undefine_fill: false,
        modified: None,
        committed: None,
    }
}

/// Chunk dimensions that a dataset keeps when its type changes: not those of a small file.
pub(crate) fn kept(chunks: &[u64]) -> Vec<u64> {
    if chunks == [SMALL_CHUNK_BYTES] { vec![CHUNK_BYTES.0] } else { chunks.to_vec() }
}
