//! Datasets of HDF5 files: header messages to storage.

use super::file::HdfFile;
use super::object::Object;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::container::local_heap::LocalHeap;
use crate::dataset::chunk::grid::ChunkGrid;
use crate::dataset::chunk::map::MapBudget;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunked::Chunked;
use crate::dataset::environment::RawFiles;
use crate::dataset::external::{External, Segment};
use crate::dataset::fill::FillPattern;
use crate::dataset::index;
use crate::dataset::storage::{DatasetBytes, Storage};
use crate::filter::pipeline::Pipeline;
use crate::format::message::data_layout::{ChunkedLayout, DONT_FILTER_PARTIAL_EDGE_CHUNKS, DataLayout, IndexInfo, Layout};
use crate::format::message::dataspace::{Dataspace, Extent};
use crate::format::message::datatype::Datatype;
use crate::format::message::external_files::ExternalFiles;
use crate::format::message::fill_value::{Fill, FillValue};
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::object_header::kind;
use std::sync::{Arc, OnceLock};

/// Largest size shown: files cannot be larger.
const SIZE_MAX: u64 = i64::MAX as u64;

/// An open dataset.
pub struct Dataset {
    /// Its object.
    pub object: Object,
    /// Which object that is.
    pub id: ObjectId,
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its extent; unlimited dimensions of a virtual dataset are as its sources say.
    pub space: Dataspace,
    /// Bytes of one element.
    pub element_size: u64,
    /// Fill value message.
    pub fill: FillValue,
    /// Layout message; compact data is in `bytes` only.
    pub layout: DataLayout,
    /// Filters.
    pub pipeline: Pipeline,
    /// Its bytes.
    pub bytes: Arc<DatasetBytes>,
}

/// What a dataset needs of its surroundings.
pub trait Surroundings {
    /// Opens raw files for `file`.
    fn raw_files(&self, file: &Arc<HdfFile>) -> Arc<dyn RawFiles>;
    /// Memory for allocation maps.
    fn maps(&self) -> Arc<MapBudget>;
    /// Storage and extent of a virtual dataset.
    fn virtual_storage(&self, parts: VirtualParts<'_>) -> Result<(Storage, Vec<u64>)>;
}

/// What is known of a virtual dataset from its header.
pub struct VirtualParts<'a> {
    /// Its object.
    pub object: &'a Object,
    /// Where the mapping lies: global heap collection and index.
    pub heap: (Address, u32),
    /// Its extent as stored.
    pub space: &'a Dataspace,
    /// Type of its elements.
    pub datatype: &'a Datatype,
    /// What unmapped elements read as.
    pub fill: &'a FillPattern,
    /// Virtual datasets on the way here.
    pub depth: usize,
}

impl Dataset {
    /// Opens the dataset of `object`.
    pub fn open(object: Object, id: ObjectId, surroundings: &dyn Surroundings, depth: usize) -> Result<Dataset> {
        let datatype = object.datatype()?;
        let mut space = object.dataspace()?;
        let element_size = datatype.element_size();
        let at = object.header.address;
        let fill = fill_value(&object)?;
        let pattern = match &fill.fill {
            Fill::Value(v) => FillPattern::new(v, element_size),
            Fill::Default | Fill::Undefined => FillPattern::zero(),
        };
        let pipeline = match object.message(kind::FILTER_PIPELINE)? {
            Some(body) => Pipeline::from(&FilterPipeline::decode(&body, at)?),
            None => Pipeline::default(),
        };
        let body = object.message(kind::DATA_LAYOUT)?.ok_or_else(|| object.lacks("data layout"))?;
        let mut layout = DataLayout::decode(&body, object.file.store.ctx(), at)?;
        drop(body);
        let storage = match &mut layout.class {
            Layout::Compact { data, .. } => Storage::Compact(std::mem::take(data)),
            Layout::Contiguous { address, .. } => match external_segments(&object)? {
                Some(segments) => Storage::External(External::new(segments, surroundings.raw_files(&object.file))),
                None => Storage::Contiguous(*address),
            },
            Layout::Chunked(c) => {
                let c = c.clone();
                let parts = ChunkedParts { object: &object, id, layout: &layout, space: &space, pipeline: &pipeline };
                Storage::Chunked(Box::new(chunked(&parts, &c, element_size, surroundings.maps())?))
            }
            Layout::Virtual { heap, index } => {
                let parts =
                    VirtualParts { object: &object, heap: (*heap, *index), space: &space, datatype: &datatype, fill: &pattern, depth };
                let (storage, dims) = surroundings.virtual_storage(parts)?;
                space.dims = dims;
                storage
            }
        };
        let size = space.elements().and_then(|n| n.checked_mul(element_size)).filter(|n| *n <= SIZE_MAX);
        let size = size.ok_or_else(|| Error::limit("dataset", at, "larger than a file can be (2^63 bytes)"))?;
        let bytes = DatasetBytes { size, fill: pattern, storage, store: object.file.store.clone() };
        Ok(Dataset { object, id, datatype, space, element_size, fill, layout, pipeline, bytes: Arc::new(bytes) })
    }

    /// Elements in all.
    pub fn elements(&self) -> u64 {
        self.bytes.size.checked_div(self.element_size).unwrap_or(0)
    }

    /// The chunked layout, if that is what it has.
    pub fn chunked_layout(&self) -> Option<&ChunkedLayout> {
        match &self.layout.class {
            Layout::Chunked(c) => Some(c),
            _ => None,
        }
    }

    /// The chunk storage, if that is what it has.
    pub fn chunked(&self) -> Option<&Chunked> {
        match &self.bytes.storage {
            Storage::Chunked(c) => Some(c),
            _ => None,
        }
    }
}

fn fill_value(object: &Object) -> Result<FillValue> {
    let at = object.header.address;
    if let Some(body) = object.message(kind::FILL_VALUE)? {
        return FillValue::decode(&body, at);
    }
    match object.message(kind::FILL_VALUE_OLD)? {
        Some(body) => FillValue::decode_old(&body, at),
        None => Ok(FillValue { version: 0, allocation_time: 2, write_time: 2, fill: Fill::Default }),
    }
}

fn external_segments(object: &Object) -> Result<Option<Vec<Segment>>> {
    let Some(body) = object.message(kind::EXTERNAL_FILES)? else { return Ok(None) };
    let store = &object.file.store;
    let message = ExternalFiles::decode(&body, store.ctx(), object.header.address)?;
    let heap = LocalHeap::open(store, message.heap)?;
    let segment = |s: &crate::format::message::external_files::Slot| -> Result<Segment> {
        Ok(Segment { name: heap.name(s.name_offset)?.to_vec(), offset: s.file_offset, size: s.size })
    };
    message.slots.iter().map(segment).collect::<Result<Vec<_>>>().map(Some)
}

/// Header messages that make chunked storage.
#[derive(Clone, Copy)]
struct ChunkedParts<'a> {
    object: &'a Object,
    id: ObjectId,
    layout: &'a DataLayout,
    space: &'a Dataspace,
    pipeline: &'a Pipeline,
}

/// A number for the chunk cache that only this dataset has.
pub fn number(id: ObjectId) -> u64 {
    u64::from(id.file) << 52 | (id.address.0 & ((1 << 52) - 1))
}

/// Storage of a chunked dataset with element type of `element_size` bytes.
fn chunked(parts: &ChunkedParts<'_>, c: &ChunkedLayout, element_size: u64, maps: Arc<MapBudget>) -> Result<Chunked> {
    let ChunkedParts { object, id, layout, space, pipeline } = *parts;
    let at = object.header.address;
    if space.extent != Extent::Simple || space.dims.len() != c.chunk_dims.len() {
        return Err(Error::corrupt(
            "data layout message",
            at,
            format!("chunks of rank {}, a dataspace of rank {}", c.chunk_dims.len(), space.dims.len()),
        ));
    }
    if c.element_size != element_size {
        return Err(Error::corrupt(
            "data layout message",
            at,
            format!("elements of {} bytes, a datatype of {element_size}", c.element_size),
        ));
    }
    let grid = ChunkGrid { shape: space.dims.clone(), max_shape: space.max(), chunk_dims: c.chunk_dims.clone(), element_size };
    let byte_grid = ByteGrid::new(&space.dims, &c.chunk_dims, element_size);
    let byte_grid = byte_grid.ok_or_else(|| Error::limit("dataset", at, "dimensions beyond 2^63 bytes"))?;
    let index = index::open(layout, &grid, !pipeline.is_empty())?;
    Ok(Chunked {
        number: number(id),
        grid: byte_grid,
        index,
        pipeline: pipeline.clone(),
        is_implicit: matches!(c.index, IndexInfo::Implicit { .. }),
        raw_edges: c.flags & DONT_FILTER_PARTIAL_EDGE_CHUNKS != 0,
        map: OnceLock::new(),
        maps,
        map_lock: parking_lot::Mutex::new(()),
    })
}
