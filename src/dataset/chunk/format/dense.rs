//! Dense chunks without filters: the stored bytes are the elements, row-major.

use super::parts::Parts;
use super::traits::{ChunkFormat, Large, LargeReader, blank_dense, plain_to_file, read_plain};
use crate::base::{Address, Error, Result, limits};
use crate::dataset::chunk::dirty_file::DirtyFile;
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use std::any::Any;
use std::sync::Arc;

/// Chunks without filters.
struct Dense {
    chunk_bytes: u64,
}

/// Opens the format if the dataset has no filters.
pub(super) fn open(parts: &Parts<'_>) -> Option<Arc<dyn ChunkFormat>> {
    parts.pipeline.is_empty().then(|| Arc::new(Dense { chunk_bytes: parts.chunk_bytes }) as Arc<dyn ChunkFormat>)
}

impl ChunkFormat for Dense {
    fn has_variable_size(&self) -> bool {
        false
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        true
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        (other as &dyn Any).downcast_ref::<Dense>().is_some_and(|other| other.chunk_bytes == self.chunk_bytes)
    }

    fn stored_size(&self, _record: ChunkRecord) -> u64 {
        self.chunk_bytes
    }

    fn blank(&self, fill: Option<&FillPattern>) -> Result<Image> {
        blank_dense(self.chunk_bytes, fill)
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Image> {
        read_plain(source, self.chunk_bytes, record)
    }

    fn encode(&self, image: Image, _is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let bytes = image.into_dense();
        Ok((bytes.ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "the decoded chunk is not dense"))?, StoredForm::WHOLE))
    }

    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        Ok(Some(Large::Direct(reader.record)))
    }

    fn changes_in_files(&self, env: &Environment) -> bool {
        self.chunk_bytes <= env.whole_chunk_max().min(env.chunk_files.capacity()).min(limits::CHUNK_BYTES_MAX)
    }

    fn to_file(&self, reader: LargeReader<'_>) -> Result<DirtyFile> {
        plain_to_file(reader, self.chunk_bytes)
    }
}
