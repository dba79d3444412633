//! Datasets: metadata to types, shapes and the grid of chunks; chunks to bytes.

use super::ids::no_such;
use super::image::out_of_range;
use super::state::State;
use super::types::TypeOf;
use crate::base::datatype::Datatype;
use crate::base::element_set::ElementSet;
use crate::base::fill::Fill;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result, limits};
use crate::connector::stored::piece_elements;
use crate::dataset::chunk::changed::{SharedImage, Unencoded};
use crate::dataset::chunk::format::{self, ChunkFormat, Parts};
use crate::dataset::chunk::image::{ChunkImage, Image};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::source::FetchedChunk;
use crate::dataset::create::usual_fill_time;
use crate::dataset::creation::{Creation, NewLayout};
use crate::dataset::fill::FillPattern;
use crate::dataset::layout::{chunked_like, new_compact, new_contiguous};
use crate::filter::pipeline::Pipeline;
use crate::format::Context;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::message::dataspace::Dataspace;
use crate::format::message::fill_value::FillValue;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::object_header::kind;
use crate::iod::{Key, keys};
use std::sync::Arc;

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
#[derive(Clone)]
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
    /// Form of its chunks in memory and as values.
    pub format: Arc<dyn ChunkFormat>,
    /// Chunks in bytes; one dimension of pieces without chunks.
    pub grid: ByteGrid,
    /// Elements of a piece.
    piece: [u64; 1],
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
        let piece = [piece_elements(element_size)];
        let grid = match &storage {
            Storage::Chunked(chunk) => ByteGrid::new(&space.dims, chunk, element_size),
            _ => ByteGrid::new(&[elements.unwrap_or(0)], &piece, element_size),
        };
        let grid = grid.ok_or_else(|| Error::corrupt("dataset", Address(id), "its chunks do not fit its shape"))?;
        if grid.chunk_bytes() > limits::CHUNK_BYTES_MAX.min(u32::MAX.into()) {
            return Err(Error::limit("dataset", Address(id), "chunks of 4 GiB"));
        }
        let pattern = FillPattern::of(&fill, element_size);
        let chunk_dims = match &storage {
            Storage::Chunked(dims) => dims.as_slice(),
            Storage::Compact | Storage::Contiguous => &piece,
        };
        let (chunk_bytes, sections, raw_edges) = (grid.chunk_bytes(), None, false);
        let (fill_pattern, filters) = (&pattern, &pipeline);
        let parts = Parts { chunk_bytes, chunk_dims, element_size, fill: fill_pattern, pipeline: filters, sections, raw_edges };
        let (format, metadata_bytes) = (format::open_value(&parts), 0);
        Ok(Dataset {
            id,
            datatype,
            named: None,
            space,
            element_size,
            fill,
            pattern,
            storage,
            pipeline,
            format,
            grid,
            piece,
            size,
            metadata_bytes,
        })
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

    /// Layout for a copy of it.
    pub fn new_layout(&self) -> NewLayout {
        match &self.storage {
            Storage::Compact => new_compact(),
            Storage::Contiguous => new_contiguous(),
            Storage::Chunked(dims) => chunked_like(&*self.format, dims.clone()),
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
            filters: self.new_layout().kind.user_filters(&self.pipeline.filters),
            fill: self.fill.fill.clone(),
            fill_time: Some(self.fill.write_time).filter(|t| *t <= 2),
            allocation_time: Some(self.fill.allocation_time),
            elsewhere: None,
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

    /// Dimensions of a chunk, elements.
    pub fn chunk_dims(&self) -> &[u64] {
        match &self.storage {
            Storage::Chunked(dims) => dims,
            Storage::Compact | Storage::Contiguous => &self.piece,
        }
    }

    /// True if chunks know which of their elements were written.
    pub fn knows_defined(&self) -> bool {
        self.format.knows_defined()
    }

    /// A chunk without written elements. `covered`: all of them are written next.
    pub fn blank(&self, covered: bool) -> Result<SharedImage> {
        self.format.blank((!covered).then_some(&self.pattern)).map(Unencoded::shared)
    }

    /// The record of a chunk with this stored length and filter mask.
    fn record(&self, size: u64, mask: u32) -> ChunkRecord {
        ChunkRecord { address: Address(self.id), size, form: StoredForm::Whole { filter_mask: mask } }
    }

    /// Decodes the stored bytes of a chunk.
    pub fn decode(&self, stored: Vec<u8>, mask: u32) -> Result<Image> {
        let record = self.record(stored.len() as u64, mask);
        self.format.decode_fetched(stored, record)
    }

    /// The written elements of a chunk, from its stored bytes; `None`: it does not know them.
    pub fn defined_in(&self, stored: &[u8], mask: u32) -> Result<Option<ElementSet>> {
        let source = FetchedChunk { address: Address(self.id), bytes: stored };
        self.format.defined(&source, self.record(stored.len() as u64, mask), false)
    }

    /// Visits the elements of a chunk that are stored: those that were written, if it knows them.
    pub fn each_stored_element(&self, image: &dyn ChunkImage, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = usize::try_from(self.element_size).unwrap_or(usize::MAX).max(1);
        if let Some(stored) = self.format.stored_as_is(image).or_else(|| image.dense()) {
            return stored.chunks_exact(size).try_for_each(f);
        }
        let (mut element, mut at) = (vec![0; size], 0u64);
        while let Some(next) = image.defined().and_then(|defined| defined.next_element(self.chunk_dims(), at)) {
            image.read(next.saturating_mul(self.element_size), &mut element).ok_or_else(|| out_of_range(self.id))?;
            f(&element)?;
            at = next.saturating_add(1);
        }
        Ok(())
    }
}
