//! Filtered chunks: the stored bytes are the elements, row-major, after the filter pipeline.
//!
//! Chunks that extend past the extent may be stored without filters
//! (`H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS`).

use super::filtered_chunk::Filtered;
use super::parts::Parts;
use super::streamed;
use super::traits::{ChunkFormat, Large, LargeReader, blank_dense, encode_whole, plain_to_file, read_plain};
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::dirty_file::{DirtyFile, Stored};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use std::any::Any;
use std::sync::Arc;

/// Opens the format; it fits any dataset.
pub(super) fn open(parts: &Parts<'_>) -> Arc<dyn ChunkFormat> {
    Arc::new(Filtered { chunk_bytes: parts.chunk_bytes, pipeline: parts.pipeline.clone(), raw_edges: parts.raw_edges })
}

impl ChunkFormat for Filtered {
    fn has_variable_size(&self) -> bool {
        true
    }

    fn is_plain(&self, is_edge: bool) -> bool {
        self.raw_edges && is_edge
    }

    fn stores_edges_differently(&self) -> bool {
        self.raw_edges
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Filtered>() else { return false };
        (self.chunk_bytes, self.raw_edges) == (other.chunk_bytes, other.raw_edges) && self.pipeline.is_like(&other.pipeline)
    }

    fn blank(&self, fill: Option<&FillPattern>) -> Result<Image> {
        blank_dense(self.chunk_bytes, fill)
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<Image> {
        if self.is_plain(is_edge) { read_plain(source, self.chunk_bytes, record) } else { self.decode_filtered(source, record) }
    }

    fn encode(&self, image: Image, is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let bytes = image.into_dense().ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "the decoded chunk is not dense"))?;
        if self.is_plain(is_edge) {
            return Ok((bytes, StoredForm::WHOLE));
        }
        encode_whole(&self.pipeline, bytes)
    }

    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        if self.is_plain(reader.is_edge) {
            return Ok(Some(Large::Direct(reader.record)));
        }
        streamed::open(self, reader)
    }

    fn changes_in_files(&self, env: &Environment) -> bool {
        streamed::encoding(self, env).is_some()
    }

    fn to_file(&self, reader: LargeReader<'_>) -> Result<DirtyFile> {
        if self.is_plain(reader.is_edge) {
            return plain_to_file(reader, self.chunk_bytes);
        }
        streamed::to_file(self, reader)
    }

    fn encode_file(&self, env: &Environment, file: &DirtyFile) -> Result<Stored> {
        streamed::encode(self, env, file)
    }
}
