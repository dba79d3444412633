//! A dataset as an array.

use super::attributes::one_value;
use super::codecs::codecs;
use super::dtype::{Kind, ZarrType, zarr_type};
use super::grid::Grid;
use super::scales::has_scales;
use super::{FILL_VALUE, ZarrFormat};
use crate::base::{Address, Error, Result};
use crate::connector::{Chunks, Connector, Content, DatasetInfo, Fill, Form, ObjectId};
use crate::present::json::Json;
use std::sync::{Arc, OnceLock};

/// Elements of variable length in a chunk.
const TEXTS_OF_CHUNK: u64 = 1 << 12;

/// A dataset as an array of a format.
pub struct ZarrArray {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) id: ObjectId,
    pub(super) format: ZarrFormat,
    pub(super) info: DatasetInfo,
    pub(super) dtype: ZarrType,
    /// Its chunks, without the dimensions of an array datatype.
    pub(super) grid: Grid,
    /// Where its chunks are, if it is in some.
    pub(super) chunks: Option<Arc<dyn Chunks>>,
    /// What decodes stored chunks, in the order of writing; `None`: chunks are shown decoded.
    pub(super) codecs: Option<Vec<Json>>,
    /// An element of the dataset that was never written.
    pub(super) fill: Vec<u8>,
    /// The attribute `_FillValue` as an element, in version 2, if it is the fill value.
    pub(super) mask: Option<Vec<u8>>,
    /// It may belong to netCDF, where the fill value of version 2 is `_FillValue`.
    masks: bool,
    content: OnceLock<Arc<dyn Content>>,
}

/// True for the same element; none stands for zeros.
fn is_same_fill(a: &[u8], b: &[u8]) -> bool {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
    a == b || (is_zero(a) && is_zero(b))
}

impl ZarrArray {
    /// The dataset `id`; `None`: Zarr has no such arrays. `evenly`: the elements of a dataset
    /// without chunks are cut into whole chunks only, or not at all.
    pub fn open(connector: &Arc<dyn Connector>, id: ObjectId, format: ZarrFormat, evenly: bool) -> Result<Option<ZarrArray>> {
        let info = connector.dataset(id)?;
        let Some(dims) = info.shape.dims().map(<[u64]>::to_vec) else { return Ok(None) };
        let Some(dtype) = zarr_type(&info.datatype) else { return Ok(None) };
        let size = info.datatype.element_size();
        let chunks = if dtype.kind == Kind::Text || info.chunks.is_none() { None } else { connector.chunks(id)? };
        let grid = match (dtype.kind, &chunks, &info.chunks) {
            (Kind::Text, ..) => Grid::cut(dims, (4 << 20) / TEXTS_OF_CHUNK, false),
            (_, Some(_), Some(chunk)) => Grid::new(dims, chunk.clone()),
            _ => Grid::cut(dims, size, evenly),
        };
        let large = || Error::limit("dataset", Address::UNDEF, "2^64 elements or more");
        let grid = grid.ok_or_else(large)?;
        let portable = chunks.as_ref().is_some_and(|chunks| chunks.is_portable()) && info.profile.is_none();
        let codecs = if portable && dtype.segments.is_empty() { codecs(&info.filters, format) } else { None };
        let element = usize::try_from(size).map_err(|_| large())?;
        let fill = match &info.fill {
            Fill::Value(bytes) if bytes.len() == element => bytes.clone(),
            _ => Vec::new(),
        };
        let (mut mask, mut masks) = (None, false);
        if format == ZarrFormat::V2 && dtype.kind != Kind::Text {
            let found = one_value(&**connector, id, FILL_VALUE, &info.datatype)?;
            masks = found.is_some() || has_scales(&**connector, id)?;
            mask = found.filter(|found| is_same_fill(found, &fill));
        }
        Ok(Some(ZarrArray {
            connector: connector.clone(),
            id,
            format,
            info,
            dtype,
            grid,
            chunks,
            codecs,
            fill,
            mask,
            masks,
            content: OnceLock::new(),
        }))
    }

    /// The fill value of version 2, an element; `None`: null. xarray takes elements that have it
    /// for missing ones, so it is `_FillValue` of netCDF where there may be one.
    pub(super) fn fill_of_v2(&self) -> Option<&[u8]> {
        let is_zero = self.fill.iter().all(|b| *b == 0);
        match &self.mask {
            Some(mask) => Some(mask),
            None => Some(self.fill.as_slice()).filter(|_| !is_zero && !self.masks),
        }
    }

    /// True if chunks that were never written are shown: readers would take another value for their
    /// elements.
    pub(super) fn shows_all(&self) -> bool {
        let read = self.fill_of_v2().unwrap_or_default();
        self.format == ZarrFormat::V2 && self.dtype.kind != Kind::Text && !is_same_fill(read, &self.fill)
    }

    /// Makes [`ZarrArray::shows_all`] false: xarray takes elements that were never written for
    /// missing ones.
    pub(super) fn show_written(&mut self) {
        self.masks = false;
    }

    /// Number of dimensions of the array.
    pub fn rank(&self) -> usize {
        self.grid.dims.len().saturating_add(self.dtype.dims.len())
    }

    /// Dimensions of the array.
    pub(super) fn shape(&self) -> Vec<u64> {
        [self.grid.dims.as_slice(), &self.dtype.dims].concat()
    }

    /// Dimensions of a chunk of the array.
    pub(super) fn chunk_shape(&self) -> Vec<u64> {
        [self.grid.chunk.as_slice(), &self.dtype.dims].concat()
    }

    /// Bytes of an element of the dataset.
    pub(super) fn element_size(&self) -> u64 {
        self.info.datatype.element_size()
    }

    /// The bytes of the elements.
    pub(super) fn content(&self) -> Result<&Arc<dyn Content>> {
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let content = self.connector.content(self.id, Form::Exact)?;
        Ok(self.content.get_or_init(|| content))
    }
}
