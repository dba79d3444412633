//! Datasets: metadata to types, shapes and the grid of chunks; chunks to bytes.

use super::ids::no_such;
use super::state::State;
use super::types::TypeOf;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result, limits};
use crate::connector::stored::piece_elements;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::create::usual_fill_time;
use crate::dataset::creation::{Creation, NewLayout};
use crate::dataset::fill::FillPattern;
use crate::dataset::layout::{new_chunked, new_compact, new_contiguous};
use crate::filter::FilterError;
use crate::filter::pipeline::Pipeline;
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::message::dataspace::Dataspace;
use crate::format::message::fill_value::FillValue;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::object_header::kind;
use crate::iod::{Key, keys};
use std::borrow::Cow;

/// Chunk size of a file of bytes. Chunks without filters are stored up to their last written byte.
pub(super) const BYTES_CHUNK: u64 = 1 << 20;
/// Largest size shown: files cannot be larger.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The storage of a dataset, as its layout message states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Storage {
    Compact,
    Contiguous,
    /// Dimensions of a chunk, elements.
    Chunked(Vec<u64>),
}

/// A dataset.
#[derive(Debug, Clone)]
pub(super) struct Dataset {
    pub id: u64,
    pub datatype: Datatype,
    /// The named datatype that it refers to.
    pub named: Option<u64>,
    pub space: Dataspace,
    pub element_size: u64,
    pub fill: FillValue,
    pub pattern: FillPattern,
    pub storage: Storage,
    pub pipeline: Pipeline,
    /// Chunks in bytes; one dimension of pieces without chunks.
    pub grid: ByteGrid,
    /// Bytes of all elements.
    pub size: u64,
    /// Stored bytes of its metadata.
    pub metadata_bytes: u64,
}

impl Dataset {
    /// Decodes the metadata of `id`.
    pub fn open(state: &State, id: u64) -> Result<Dataset> {
        let headers = state.headers(id)?;
        let at = Address(id);
        let message = |number: u16| headers.get(&number).map(|cell| state.container.bytes_of(&keys::header(id, number), cell)).transpose();
        let needed = |number: u16| message(number)?.ok_or_else(|| no_such(id, "it is not a dataset"));
        let ctx = &Context::DEFAULT;
        let TypeOf { datatype, named } = state.type_of(&needed(kind::DATATYPE)?, id)?;
        let space = Dataspace::decode(&needed(kind::DATASPACE)?, ctx, at)?;
        let fill = FillValue::decode(&needed(kind::FILL_VALUE)?, at)?;
        let layout = DataLayout::decode(&needed(kind::DATA_LAYOUT)?, ctx, at)?;
        let pipeline = match message(kind::FILTER_PIPELINE)? {
            Some(body) => Pipeline::from(&FilterPipeline::decode(&body, at)?),
            None => Pipeline::default(),
        };
        let storage = match layout.class {
            Class::Compact { .. } => Storage::Compact,
            Class::Contiguous { .. } => Storage::Contiguous,
            Class::Chunked(c) if c.sections.is_none() => Storage::Chunked(c.chunk_dims),
            _ => return Err(Error::unsupported("data layout message", at, "a layout that containers do not have")),
        };
        let metadata_bytes = headers.values().fold(0u64, |n, cell| n.saturating_add(cell.len()));
        Ok(Dataset { named, metadata_bytes, ..Dataset::of(id, datatype, space, fill, storage, pipeline)? })
    }

    /// A dataset of these properties.
    pub fn of(id: u64, datatype: Datatype, space: Dataspace, fill: FillValue, storage: Storage, pipeline: Pipeline) -> Result<Dataset> {
        let element_size = datatype.element_size();
        let elements = space.elements();
        let size = elements.and_then(|n| n.checked_mul(element_size)).filter(|n| *n <= SIZE_MAX);
        let too_large = || Error::limit("dataset", Address(id), "larger than a file can be (2^63 bytes)");
        let size = size.ok_or_else(too_large)?;
        let grid = match &storage {
            Storage::Chunked(chunk) => ByteGrid::new(&space.dims, chunk, element_size),
            _ => ByteGrid::new(&[elements.unwrap_or(0)], &[piece_elements(element_size)], element_size),
        };
        let grid = grid.ok_or_else(|| Error::corrupt("dataset", Address(id), "its chunks do not fit its shape"))?;
        if grid.chunk_bytes() > limits::CHUNK_BYTES_MAX.min(u32::MAX.into()) {
            return Err(Error::limit("dataset", Address(id), "chunks of 4 GiB"));
        }
        let pattern = FillPattern::of(&fill, element_size);
        Ok(Dataset { id, datatype, named: None, space, element_size, fill, pattern, storage, pipeline, grid, size, metadata_bytes: 0 })
    }

    /// Bytes that a read of `len` bytes from `offset` gets.
    pub fn readable(&self, offset: u64, len: usize) -> usize {
        usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(len)
    }

    /// Elements in all.
    pub fn elements(&self) -> u64 {
        self.size.checked_div(self.element_size).unwrap_or(0)
    }

    /// True when the first dimension may change.
    pub fn resizes(&self) -> bool {
        matches!(self.storage, Storage::Chunked(_)) && !self.space.dims.is_empty()
    }

    /// Bytes of one index of the first dimension; `None`: there is no such dimension, or it has no
    /// bytes.
    pub fn row_bytes(&self) -> Option<u64> {
        let inner = self.space.dims.get(1..)?;
        inner.iter().try_fold(self.element_size, |n, d| n.checked_mul(*d)).filter(|n| *n > 0)
    }

    /// Key of the chunk with this number in the grid.
    pub fn chunk_key(&self, number: u64) -> Key {
        keys::chunk(self.id, &self.grid.scaled(number))
    }

    /// Bytes of a chunk.
    pub fn chunk_len(&self) -> usize {
        usize::try_from(self.grid.chunk_bytes()).unwrap_or(usize::MAX)
    }

    /// Layout for a copy of it.
    pub fn new_layout(&self) -> NewLayout {
        match &self.storage {
            Storage::Compact => new_compact(),
            Storage::Contiguous => new_contiguous(),
            Storage::Chunked(dims) => new_chunked(dims.clone()),
        }
    }

    /// Its properties as those of a new dataset.
    pub fn creation(&self) -> Creation {
        Creation {
            datatype: self.datatype.clone(),
            committed: self.named.map(Address),
            extent: self.space.extent,
            dims: self.space.dims.clone(),
            max_dims: self.space.max_dims.clone(),
            layout: self.new_layout(),
            filters: self.pipeline.filters.clone(),
            fill: self.fill.fill.clone(),
            fill_time: Some(self.fill.write_time).filter(|t| *t <= 2),
            allocation_time: Some(self.fill.allocation_time),
            undefine_fill: false,
            modified: None,
        }
    }

    /// True for a file of bytes as it is made.
    pub fn is_bytes_file(&self) -> bool {
        self.datatype == Datatype::byte()
            && self.space.extent == Extent::Simple
            && self.space.max() == [None]
            && self.pipeline.is_empty()
            && self.fill.fill == Fill::Default
            && self.fill.write_time == usual_fill_time(&self.datatype)
            && self.fill.allocation_time == self.new_layout().kind.allocation_time()
            && self.storage == Storage::Chunked(vec![BYTES_CHUNK])
    }

    /// The image of a chunk as stored: its first bytes; all others have the fill value.
    pub fn decode(&self, stored: Vec<u8>, mask: u32) -> Result<Vec<u8>> {
        let len = self.chunk_len();
        if self.pipeline.is_empty() {
            return match stored.len() <= len {
                true => Ok(stored),
                false => Err(Error::corrupt("chunk", Address(self.id), "it is longer than chunks of its dataset")),
            };
        }
        self.pipeline.decode(&stored, mask, len).map_err(|e| self.filter_error(&e))
    }

    /// The bytes to store for a chunk, and its filter mask.
    pub fn encode<'a>(&self, image: &'a [u8]) -> Result<(Cow<'a, [u8]>, u32)> {
        if self.pipeline.is_empty() {
            return Ok((Cow::Borrowed(image), 0));
        }
        let mut whole = image.to_vec();
        self.extend(&mut whole, self.chunk_len());
        let (stored, mask) = self.pipeline.encode(whole).map_err(|e| self.filter_error(&e))?;
        Ok((Cow::Owned(stored), mask))
    }

    fn filter_error(&self, e: &FilterError) -> Error {
        let (at, text) = (Address(self.id), e.to_string());
        match e {
            FilterError::Unknown { .. } | FilterError::Unsupported { .. } => Error::unsupported("chunk", at, text),
            FilterError::TooLarge { .. } => Error::limit("chunk", at, text),
            _ => Error::corrupt("chunk", at, text),
        }
    }

    /// Makes an image at least `len` bytes long.
    pub fn extend(&self, image: &mut Vec<u8>, len: usize) {
        let old = image.len();
        if old < len {
            image.resize(len, 0);
            if !self.pattern.is_zero()
                && let Some(new) = image.get_mut(old..)
            {
                self.pattern.fill(old as u64, new);
            }
        }
    }
}
