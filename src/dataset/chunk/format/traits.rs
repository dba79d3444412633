//! The chunk format trait, and helpers for formats.

use super::sparse::SparseProfile;
use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result, buffers, limits};
use crate::dataset::chunk::chunk_files::ChunkFile;
use crate::dataset::chunk::dirty_file::{DirtyFile, Stored};
use crate::dataset::chunk::image::{ChunkImage, DenseImage, Image};
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::chunk::source::{ChunkSource, FetchedChunk};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::filter::{FilterError, Pipeline};
use crate::format::chunk_record::{ChunkRecord, RecordShape, StoredForm};
use std::any::Any;
use std::sync::Arc;

/// Name of the layout of datasets in dense chunks.
pub(crate) const DENSE: &str = "chunked";
/// Name of the layout of datasets in sparse chunks.
pub(crate) const SPARSE: &str = "sparse";
/// Largest chunk that read-ahead decodes, bytes.
pub(crate) const READ_AHEAD_CHUNK_MAX_BYTES: u64 = 64 << 20;
/// Stored bytes allowed for a chunk beyond twice its decoded bytes.
const STORED_SLACK_BYTES: u64 = 1 << 20;

/// Decodes a chunk to its temporary file, unless another thread did.
pub(crate) type DecodeToFile<'a> = Box<dyn FnOnce() -> Result<Arc<ChunkFile>> + Send + 'a>;

/// A chunk that is too large to be decoded in memory.
pub(crate) enum Large<'a> {
    /// The elements are unfiltered in the container file.
    Direct(ChunkRecord),
    /// The elements are in a temporary file.
    Made(Arc<ChunkFile>),
    /// The elements belong in a temporary file, whose place in the cache of such files is taken.
    File(DecodeToFile<'a>),
}

/// Arguments for reading a chunk that may be too large for memory.
#[derive(Clone, Copy)]
pub(crate) struct LargeReader<'a> {
    /// Caches and temporary files.
    pub(crate) env: &'a Environment,
    /// Where the stored bytes are.
    pub(crate) source: &'a dyn ChunkSource,
    /// The chunk.
    pub(crate) key: ChunkKey,
    /// The chunk's record in the index.
    pub(crate) record: ChunkRecord,
    /// The chunk extends past the extent of the dataset.
    pub(crate) is_edge: bool,
}

/// The form of one chunk in memory and in the file, for all chunks of a dataset.
pub(crate) trait ChunkFormat: Any + Send + Sync {
    /// Name of the layout of datasets in such chunks.
    fn layout_name(&self) -> &'static str {
        DENSE
    }

    /// The way in which sparse chunks are stored.
    fn profile(&self) -> Option<&'static dyn SparseProfile> {
        None
    }

    /// True if chunks know which of their elements were written.
    fn knows_defined(&self) -> bool {
        false
    }

    /// True if only written elements are stored: decoding a chunk takes little more than finding
    /// them.
    fn stores_defined(&self) -> bool {
        false
    }

    /// The written elements of a stored chunk, without decoding their values where that is
    /// possible. `None`: all.
    fn defined(&self, _source: &dyn ChunkSource, _record: ChunkRecord, _is_edge: bool) -> Result<Option<ElementSet>> {
        Ok(None)
    }

    /// True if stored chunks differ in size, so that the index records each size.
    fn has_variable_size(&self) -> bool;

    /// Fields of the chunk records in the index.
    fn record_shape(&self) -> RecordShape {
        RecordShape::of_pipeline(self.has_variable_size())
    }

    /// The filters of the elements, where they are not those of the filter pipeline message.
    fn filters(&self) -> Option<&Pipeline> {
        None
    }

    /// True if chunks can be written, as far as it is not the filter pipeline message that decides.
    fn can_encode(&self) -> bool {
        true
    }

    /// True if the stored bytes of a chunk are its elements: parts can be read and changed in the
    /// file.
    fn is_plain(&self, is_edge: bool) -> bool;

    /// True if chunks that extend past the extent are stored in another form.
    fn stores_edges_differently(&self) -> bool {
        false
    }

    /// True if stored chunks of format `other` are valid in this format, byte for byte.
    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool;

    /// Bytes that a chunk occupies in the file.
    fn stored_size(&self, record: ChunkRecord) -> u64 {
        record.size
    }

    /// A chunk of fill values. `None`: the caller overwrites all elements.
    fn blank(&self, fill: Option<&FillPattern>) -> Result<Image>;

    /// Reads and decodes a chunk.
    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<Image>;

    /// Decodes a chunk whose stored bytes were fetched.
    fn decode_fetched(&self, stored: Vec<u8>, record: ChunkRecord) -> Result<Image> {
        self.decode(&FetchedChunk { address: record.address, bytes: &stored }, record, false)
    }

    /// The stored bytes of a chunk, if its image has them: nothing is encoded.
    fn stored_as_is<'a>(&self, _image: &'a dyn ChunkImage) -> Option<&'a [u8]> {
        None
    }

    /// Encodes a chunk; returns its stored bytes and how they are decoded.
    fn encode(&self, image: Image, is_edge: bool) -> Result<(Vec<u8>, StoredForm)>;

    /// Opens a chunk that is too large to be decoded in memory. `None`: it is small enough.
    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>>;

    /// True if chunks too large for memory can be changed in temporary files.
    fn changes_in_files(&self, _env: &Environment) -> bool {
        false
    }

    /// Decodes a stored chunk into a new temporary file, to be changed there.
    fn to_file(&self, _reader: LargeReader<'_>) -> Result<DirtyFile> {
        Err(refuse(&FilterError::unsupported("pipeline", "these chunks are changed in memory")))
    }

    /// Bytes of a chunk in a temporary file that are stored as they are, if it is not encoded; from
    /// `end` on it has the fill value.
    fn stored_in_file(&self, _end: u64) -> Option<u64> {
        None
    }

    /// Encodes a chunk from a temporary file.
    fn encode_file(&self, _env: &Environment, _file: &DirtyFile) -> Result<Stored> {
        Err(refuse(&FilterError::unsupported("pipeline", "these chunks are not encoded from files")))
    }
}

/// Checks that `len` stored bytes lie in the file and are at most about twice the chunk's decoded
/// bytes.
pub(in crate::dataset) fn check_stored(source: &dyn ChunkSource, chunk_bytes: u64, record: ChunkRecord, len: u64) -> Result<()> {
    if record.address.0.checked_add(len).is_none_or(|end| source.end().is_ok_and(|l| end > l)) {
        return Err(Error::corrupt("chunk", record.address, format!("{len} stored bytes reach past the end of the file")));
    }
    let most = chunk_bytes.saturating_mul(2).saturating_add(STORED_SLACK_BYTES);
    if len > limits::CHUNK_BYTES_MAX || len > most {
        return Err(Error::limit("chunk", record.address, format!("{len} stored bytes for {chunk_bytes} of a chunk")));
    }
    Ok(())
}

/// Converts `chunk_bytes` to `usize`. Errors: above the limit for chunks.
pub(super) fn memory_len(chunk_bytes: u64, address: Address) -> Result<usize> {
    if chunk_bytes > limits::CHUNK_BYTES_MAX {
        return Err(Error::limit("chunk", address, format!("{chunk_bytes} bytes in one chunk")));
    }
    usize::try_from(chunk_bytes).map_err(|_| Error::limit("chunk", address, "size"))
}

/// A dense chunk of fill values, or of zeros.
pub(super) fn blank_dense(chunk_bytes: u64, fill: Option<&FillPattern>) -> Result<Image> {
    let mut bytes = vec![0; memory_len(chunk_bytes, Address::UNDEF)?];
    if let Some(fill) = fill.filter(|f| !f.is_zero()) {
        fill.fill(0, &mut bytes);
    }
    Ok(DenseImage::boxed(bytes))
}

/// Reads a chunk whose stored bytes are its elements.
pub(super) fn read_plain(source: &dyn ChunkSource, chunk_bytes: u64, record: ChunkRecord) -> Result<Image> {
    let len = memory_len(chunk_bytes, record.address)?;
    check_stored(source, chunk_bytes, record, chunk_bytes)?;
    let mut bytes = buffers::take(len, len.saturating_add(len / 16)).unwrap_or_else(|| vec![0; len]);
    bytes.resize(len, 0);
    source.read(record.address, &mut bytes)?;
    Ok(DenseImage::boxed(bytes))
}

/// Copies a chunk whose stored bytes are its elements into a temporary file.
pub(super) fn plain_to_file(reader: LargeReader<'_>, chunk_bytes: u64) -> Result<DirtyFile> {
    let LargeReader { env, source, record, .. } = reader;
    env.share_temporary_space(chunk_bytes);
    check_stored(source, chunk_bytes, record, chunk_bytes)?;
    DirtyFile::filled(chunk_bytes, &FillPattern::zero(), chunk_bytes, &mut |at, buf| {
        source.read(record.address.checked_add(at).unwrap_or(Address::UNDEF), buf)
    })
}

/// Applies a pipeline to a whole chunk.
pub(super) fn encode_whole(pipeline: &Pipeline, bytes: Vec<u8>) -> Result<(Vec<u8>, StoredForm)> {
    let (stored, filter_mask) = pipeline.encode(bytes).map_err(|e| refuse(&e))?;
    Ok((stored, StoredForm::Whole { filter_mask }))
}

/// Maps a filter's encoding error.
pub(in crate::dataset) fn refuse(e: &FilterError) -> Error {
    match e {
        // Transient: a retry may find enough memory.
        FilterError::TooLarge { .. } => {
            Error::Io { operation: "find memory to encode a chunk", address: Address::UNDEF, errno: libc::ENOMEM }
        }
        _ => Error::refused(libc::EOPNOTSUPP, format!("a chunk cannot be encoded: {e}")),
    }
}
