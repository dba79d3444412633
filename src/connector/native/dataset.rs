//! Datasets of HDF5 files: header messages to storage.

use super::object::Object;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::{Error, Result, limits};
use crate::connector::ObjectId;
use crate::connector::plan::Now;
use crate::dataset::chunk::key::DatasetKey;
use crate::dataset::creation::Creation;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::dataset::layout::{self, DatasetBytes, Layout, Parts, Surroundings};
use crate::filter::pipeline::Pipeline;
use crate::format::message::data_layout::DataLayout;
use crate::format::message::dataspace::Dataspace;
use crate::format::message::fill_value::FillValue;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::object_header::kind;
use std::ops::ControlFlow;
use std::ops::Range;
use std::sync::Arc;

/// Largest size shown: files cannot be larger.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Bytes of elements that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Called with whole elements, or with the error of reading some.
pub type VisitElements<'a> = dyn FnMut(Result<&[u8]>) -> Result<ControlFlow<()>> + 'a;

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
    /// Data layout message. Compact data is in `bytes` only.
    pub message: DataLayout,
    /// Filters.
    pub pipeline: Pipeline,
    /// Its bytes.
    pub bytes: Arc<DatasetBytes>,
}

impl Dataset {
    /// What it is, for a plan of what it becomes.
    pub(super) fn now(&self) -> Result<Now> {
        let layout = self.layout().for_copy();
        let creation = Creation {
            datatype: self.datatype.clone(),
            committed: None,
            extent: self.space.extent,
            dims: self.space.dims.clone(),
            max_dims: self.space.max_dims.clone(),
            filters: layout.kind.user_filters(&self.pipeline.filters),
            layout,
            fill: self.fill.fill.clone(),
            fill_time: Some(self.fill.write_time),
            allocation_time: Some(self.fill.allocation_time),
            elsewhere: None,
            undefine_fill: false,
            modified: None,
        };
        Ok(Now { creation, elsewhere: !self.layout().is_in_file(), size: self.bytes.size, blank: self.bytes.is_blank()? })
    }

    /// Opens the dataset of `object`.
    pub(crate) fn open<S: Surroundings>(object: Object, id: ObjectId, surroundings: impl Fn(&Object) -> S) -> Result<Dataset> {
        let datatype = object.datatype()?;
        let mut space = object.dataspace()?;
        let element_size = datatype.element_size();
        let at = object.header.address;
        let mut fill = fill_value(&object)?;
        let pattern = FillPattern::of(&fill, element_size);
        let pipeline = match object.message(kind::FILTER_PIPELINE)? {
            Some(body) => Pipeline::from(&FilterPipeline::decode(&body, at)?),
            None => Pipeline::default(),
        };
        let body = object.message(kind::DATA_LAYOUT)?.ok_or_else(|| object.lacks("data layout"))?;
        let mut message = DataLayout::decode(&body, object.file.store.ctx(), at)?;
        drop(body);
        let storage = layout::open(Parts {
            store: &object.file.store,
            header: at,
            number: key(id),
            message: &mut message,
            space: &mut space,
            datatype: &datatype,
            fill: &pattern,
            pipeline: &pipeline,
            surroundings: &surroundings(&object),
        })?;
        if fill.version == 0 {
            fill.allocation_time = storage.for_copy().kind.allocation_time();
        }
        let pipeline = storage.filters().cloned().unwrap_or(pipeline);
        let size = space.elements().and_then(|n| n.checked_mul(element_size)).filter(|n| *n <= SIZE_MAX);
        let size = size.ok_or_else(|| Error::limit("dataset", at, "larger than a file can be (2^63 bytes)"))?;
        let bytes = DatasetBytes { size, element_size, fill: pattern, layout: storage, store: object.file.store.clone() };
        Ok(Dataset { object, id, datatype, space, element_size, fill, message, pipeline, bytes: Arc::new(bytes) })
    }

    /// Elements in all.
    pub fn elements(&self) -> u64 {
        self.bytes.size.checked_div(self.element_size).unwrap_or(0)
    }

    /// Calls `f` with the elements in `range`, bytes, that were written, a piece of whole elements
    /// at a time, or with the error of reading a piece, which ends the walk. Dirty elements are
    /// included.
    pub fn written_elements(&self, env: &Environment, range: Range<u64>, f: &mut VisitElements<'_>) -> Result<()> {
        let size = self.element_size.max(1);
        if size > limits::ELEMENT_BYTES_MAX {
            return f(Err(Error::limit("dataset", self.object.header.address, format!("elements of {size} bytes")))).map(drop);
        }
        let mut piece = vec![0u8; usize::try_from((PIECE_BYTES / size).max(1).saturating_mul(size)).unwrap_or(0)];
        let (mut at, stop) = (range.start, range.end.min(self.bytes.size));
        while at < stop {
            // A hole of the file may end within an element, which is then read.
            let hole = || self.layout().file_hole_end(&self.bytes, at).filter(|end| end / size > at / size);
            let unwritten = self.bytes.unwritten(at).ok().flatten().or_else(hole);
            if let Some(end) = unwritten.filter(|_| !env.dirty.has(key(self.id))) {
                // Chunks end between elements, but need not end with one of a piece.
                at = (end / size).saturating_mul(size).max(at.saturating_add(size));
                continue;
            }
            let most = usize::try_from(stop.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
            let n = match self.bytes.read(env, at, piece.get_mut(..most).unwrap_or_default()) {
                Ok(n) => n,
                Err(e) => return f(Err(e)).map(drop),
            };
            if f(Ok(piece.get(..n).unwrap_or_default()))?.is_break() {
                return Ok(());
            }
            at = at.saturating_add((n as u64).max(1));
        }
        Ok(())
    }

    /// How the elements are stored.
    pub fn layout(&self) -> &dyn Layout {
        &*self.bytes.layout
    }

    /// Dimensions of a chunk, elements, if the layout has chunks.
    pub fn chunk_dims(&self) -> Option<Vec<u64>> {
        self.layout().describe(&self.bytes).chunk_dims
    }
}

fn fill_value(object: &Object) -> Result<FillValue> {
    let at = object.header.address;
    if let Some(body) = object.message(kind::FILL_VALUE)? {
        return FillValue::decode(&body, at);
    }
    match object.message(kind::FILL_VALUE_OLD)? {
        Some(body) => FillValue::decode_old(&body, at),
        None => Ok(FillValue { version: 0, allocation_time: 2, write_time: 2, fill: Fill::Undefined }),
    }
}

/// The key of the dataset in the chunk caches.
pub(crate) fn key(id: ObjectId) -> DatasetKey {
    DatasetKey { file: id.file, address: id.address }
}

/// The dataset of a key.
pub(crate) fn id_of(key: DatasetKey) -> ObjectId {
    ObjectId { file: key.file, address: key.address }
}
