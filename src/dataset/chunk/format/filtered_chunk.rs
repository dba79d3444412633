//! The parameters of filtered chunks, and decoding of one chunk in memory.

use super::traits::{check_stored, memory_len};
use crate::base::{Error, Result, buffers};
use crate::dataset::chunk::image::{DenseImage, Image};
use crate::filter::FilterError;
use crate::filter::pipeline::Pipeline;
use crate::format::chunk_record::ChunkRecord;
use crate::meta::Store;

/// Least size of a spare buffer for stored bytes, bytes.
const SPARE_BUFFER_MIN_BYTES: usize = 1 << 20;

/// Chunks encoded by a filter pipeline.
pub(super) struct Filtered {
    /// Bytes of a chunk's elements.
    pub(super) chunk_bytes: u64,
    /// Filters.
    pub(super) pipeline: Pipeline,
    /// Chunks that extend past the extent are stored without filters.
    pub(super) raw_edges: bool,
}

impl Filtered {
    /// Reads a chunk and decodes it.
    pub(super) fn decode_filtered(&self, store: &Store, record: ChunkRecord) -> Result<Image> {
        let size = memory_len(self.chunk_bytes, record.address)?;
        check_stored(store, self.chunk_bytes, record, record.size)?;
        let len = usize::try_from(record.size).map_err(|_| Error::limit("chunk", record.address, "stored size"))?;
        // A spare buffer keeps its length, even if larger than needed: shrinking and growing it
        // would zero it again.
        let mut stored = buffers::take(len, len.saturating_mul(4).max(SPARE_BUFFER_MIN_BYTES)).unwrap_or_else(|| vec![0; len]);
        stored.resize(stored.len().max(len), 0);
        let read = stored.get_mut(..len).unwrap_or_default();
        let result = store.read_raw(record.address, read).and_then(|()| {
            self.pipeline.decode(read, record.filter_mask(), size).map_err(|e| match e {
                FilterError::Unknown { .. } | FilterError::Unsupported { .. } => Error::unsupported("chunk", record.address, e.to_string()),
                _ => Error::corrupt("chunk", record.address, e.to_string()),
            })
        });
        buffers::give(stored);
        result.map(DenseImage::boxed)
    }
}
