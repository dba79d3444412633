//! The parameters of filtered chunks, and decoding of one chunk in memory.

use super::traits::{check_stored, memory_len};
use crate::base::{Error, Result, buffers};
use crate::dataset::chunk::image::{DenseImage, Image};
use crate::dataset::chunk::source::ChunkSource;
use crate::filter::FilterError;
use crate::filter::pipeline::Pipeline;
use crate::format::chunk_record::ChunkRecord;

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
    pub(super) fn decode_filtered(&self, source: &dyn ChunkSource, record: ChunkRecord) -> Result<Image> {
        let size = memory_len(self.chunk_bytes, record.address)?;
        check_stored(source, self.chunk_bytes, record, record.size)?;
        let len = usize::try_from(record.size).map_err(|_| Error::limit("chunk", record.address, "stored size"))?;
        let decode = |stored: &[u8]| {
            self.pipeline.decode(stored, record.filter_mask(), size).map(DenseImage::boxed).map_err(|e| match e {
                FilterError::Unknown { .. } | FilterError::Unsupported { .. } => Error::unsupported("chunk", record.address, e.to_string()),
                _ => Error::corrupt("chunk", record.address, e.to_string()),
            })
        };
        if let Some(stored) = source.in_memory(record.address, len) {
            return decode(stored);
        }
        // A spare buffer keeps its length, even if larger than needed: shrinking and growing it
        // would zero it again.
        let mut stored = buffers::take(len, len.saturating_mul(4).max(SPARE_BUFFER_MIN_BYTES)).unwrap_or_else(|| vec![0; len]);
        stored.resize(stored.len().max(len), 0);
        let read = stored.get_mut(..len).unwrap_or_default();
        let result = source.read(record.address, read).and_then(|()| decode(read));
        buffers::give(stored);
        result
    }
}
