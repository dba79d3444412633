//! Profile "map": a chunk is stored dense and deflated, as every libhdf5 reads it, with a map of
//! its defined elements behind the compressed stream ([`crate::format::defined_map`]).
//!
//! Deflate makes a byte of 1,030 equal ones at best, and leaves repetitions in its output. So the
//! stream of a chunk with few defined elements is deflated again, by a second deflate filter, which
//! the filter mask of other chunks leaves out.
//!
//! A program that knows no maps and changes a chunk writes it without one: then every element that
//! differs from the fill value counts as defined. Maps go with chunks that are copied as they are
//! stored, as H5Ocopy does. A flag of the deflate filter marks the dataset: libhdf5 keeps it when
//! it copies the filters, and gives it no meaning.

use super::coded;
use super::image::{Geometry, SparseImage};
use super::profile::{NewChunks, OPTIONAL, SparseProfile};
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result, buffers};
use crate::dataset::chunk::format::parts::Parts;
use crate::dataset::chunk::format::traits::{ChunkFormat, Large, LargeReader, SPARSE, memory_len, refuse};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::fill::FillPattern;
use crate::filter::pipeline::is_applied;
use crate::filter::registry::{DEFLATE, FLETCHER32};
use crate::filter::{FilterError, FilterSpec, Params, Pipeline, deflate, fletcher32};
use crate::format::Reader;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::format::defined_map::{DefinedMap, MapForm};
use crate::format::selection::SerializedSelection;
use std::any::Any;
use std::sync::Arc;

/// Flag of the deflate filter of a dataset of this profile: one of those without a meaning in
/// libhdf5 (H5Z_FLAG_DEFMASK).
const MARK: u16 = 0x80;
/// Flag of the deflate filter that only streams of few bytes have: it is not one of the user's.
const AGAIN: u16 = 0x40;
/// Chunks with a stream of less than this part of their bytes are deflated again.
const AGAIN_DIVISOR: usize = 64;
/// Compression level of streams.
const AGAIN_LEVEL: u32 = 6;
/// Name of the profile.
const PROFILE: &str = "map";
/// Compression level of chunks whose filters are not said.
const DEFAULT_LEVEL: u32 = 4;
/// Compression level of maps.
const MAP_LEVEL: u32 = 6;

struct Mapped {
    geometry: Arc<Geometry>,
    /// All filters.
    pipeline: Pipeline,
    /// Position of the last deflate filter, whose stream the map follows.
    deflate: usize,
    /// That filter deflates streams of the filter before it again.
    again: bool,
}

/// The last filter but for checksums, if it is deflate.
fn stream_filter(filters: &[FilterSpec]) -> Option<usize> {
    let last = filters.iter().rposition(|f| f.id != FLETCHER32)?;
    filters.get(last).filter(|f| f.id == DEFLATE).map(|_| last)
}

/// Creates datasets of this profile.
pub(crate) struct Map;

impl SparseProfile for Map {
    fn name(&self) -> &'static str {
        PROFILE
    }

    fn stored_filters(&self, _geometry: &NewChunks<'_>, filters: &[FilterSpec]) -> Result<Vec<FilterSpec>> {
        let mut filters = filters.to_vec();
        if filters.is_empty() {
            filters.push(FilterSpec { id: DEFLATE, flags: OPTIONAL, name: Vec::new(), cd_values: vec![DEFAULT_LEVEL] });
        }
        let lacking = || Error::refused(libc::EINVAL, "the last filter of a sparse dataset is deflate, unless its profile is \"filter\"");
        let deflate = stream_filter(&filters).ok_or_else(lacking)?;
        let again = FilterSpec { id: DEFLATE, flags: OPTIONAL | MARK | AGAIN, name: Vec::new(), cd_values: vec![AGAIN_LEVEL] };
        filters.insert(deflate.saturating_add(1), again);
        Ok(filters)
    }

    fn is_read_by_stock(&self) -> bool {
        true
    }

    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec> {
        let is_users = |f: &&FilterSpec| f.id != DEFLATE || f.flags & AGAIN == 0;
        filters.iter().filter(is_users).map(|f| FilterSpec { flags: f.flags & !MARK, ..f.clone() }).collect()
    }
}

/// Opens the format if the dataset is marked.
pub(in crate::dataset::chunk::format) fn open(parts: &Parts<'_>) -> Option<Arc<dyn ChunkFormat>> {
    let deflate = stream_filter(&parts.pipeline.filters).filter(|_| !parts.raw_edges)?;
    let marked = parts.pipeline.filters.get(deflate).filter(|f| f.flags & MARK != 0)?;
    let again = marked.flags & AGAIN != 0;
    Some(Arc::new(Mapped { geometry: Arc::new(Geometry::of(parts)), pipeline: parts.pipeline.clone(), deflate, again }))
}

impl Mapped {
    /// The stored map of a chunk, as bytes; `None`: it has none, or one that is of another chunk.
    fn find_map<'a>(&self, stored: &'a [u8], mask: u32) -> Option<DefinedMap<'a>> {
        let applied = |i: usize| is_applied(mask, i);
        let first = self.again.then(|| self.deflate.checked_sub(1)).flatten();
        let is_first = |i: usize| applied(i) && self.pipeline.filters.get(i).is_some_and(|f| f.id == DEFLATE);
        if !applied(self.deflate) && !first.is_some_and(is_first) {
            return None;
        }
        let behind = self.deflate.checked_add(1)?..self.pipeline.filters.len();
        let checksums = behind.filter(|i| applied(*i)).count();
        let data = stored.get(..stored.len().checked_sub(checksums.checked_mul(fletcher32::Trailing::LEN)?)?)?;
        DefinedMap::decode(data)
    }

    /// The stored map of a chunk; `None`: it has none.
    fn map(&self, stored: &[u8], record: ChunkRecord) -> Result<Option<ElementSet>> {
        let Some(map) = self.find_map(stored, record.filter_mask()) else { return Ok(None) };
        let most = coded::bytes_max(&self.geometry);
        let inflated = match map.inflated {
            None => None,
            Some(len) => {
                let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                let params = Params { cd_values: &[], expected: bytes(len.min(most)), limit: bytes(most) };
                let inflated = deflate::decode(map.body, &params);
                Some(inflated.map_err(|e| Error::corrupt("map of defined elements", record.address, e.to_string()))?)
            }
        };
        let body = inflated.as_deref().unwrap_or(map.body);
        let set = match map.form {
            MapForm::Bitmap => coded::of_bitmap(body, &self.geometry)?,
            MapForm::Selection => {
                let mut r = Reader::new(body, "map of defined elements", record.address);
                SerializedSelection::decode(&mut r)?.to_set(&self.geometry.dims)?
            }
        };
        Ok(Some(set))
    }

    fn inflate(&self, stored: &[u8], record: ChunkRecord) -> Result<Vec<u8>> {
        let size = memory_len(self.geometry.bytes(), record.address)?;
        self.pipeline.decode(stored, record.filter_mask(), size).map_err(|e| match e {
            FilterError::Unknown { .. } | FilterError::Unsupported { .. } => Error::unsupported("chunk", record.address, e.to_string()),
            _ => Error::corrupt("chunk", record.address, e.to_string()),
        })
    }

    /// The stream of a chunk without other filters before it; its zeros are not looked at. `None`:
    /// there is none.
    fn deflated_runs(&self, image: &SparseImage, filters: &[FilterSpec]) -> Option<Vec<u8>> {
        let [filter] = filters else { return None };
        let runs = image.runs()?;
        let params = Params { cd_values: &filter.cd_values, expected: 0, limit: usize::MAX };
        deflate::encode_runs(&runs, &params).ok().flatten()
    }

    /// The filters before the map, applied to the elements of a chunk; the filter mask.
    fn deflated(&self, image: &SparseImage) -> Result<(Vec<u8>, u32)> {
        let most = usize::try_from(self.geometry.bytes()).unwrap_or(usize::MAX) / AGAIN_DIVISOR;
        let first = self.deflate.saturating_add(usize::from(!self.again));
        let filters = self.pipeline.filters.get(..first).unwrap_or_default();
        let (stream, mask) = match self.deflated_runs(image, filters) {
            Some(stream) => (stream, 0),
            None => Pipeline { filters: filters.to_vec() }.encode(image.to_dense()?).map_err(|e| refuse(&e))?,
        };
        if first.checked_sub(1).is_none_or(|i| !is_applied(mask, i)) {
            return Err(Error::refused(libc::EOPNOTSUPP, "a sparse chunk could not be deflated"));
        }
        let Some(again) = self.pipeline.filters.get(self.deflate).filter(|_| self.again) else { return Ok((stream, mask)) };
        if stream.len() < most {
            let params = Params { cd_values: &again.cd_values, expected: stream.len(), limit: usize::MAX };
            if let Some(twice) = deflate::encode(&stream, &params).ok().flatten().filter(|twice| twice.len() < stream.len()) {
                return Ok((twice, mask));
            }
        }
        let left_out = u32::try_from(self.deflate).ok().and_then(|i| 1u32.checked_shl(i)).unwrap_or(0);
        Ok((stream, mask | left_out))
    }

    /// `stream` with the map of `set`.
    fn with_map(&self, stream: &[u8], set: &ElementSet) -> Result<Vec<u8>> {
        let (form, body) = match coded::selection(set, &self.geometry) {
            Some(selection) => (MapForm::Selection, coded::encoded(&selection)),
            None => (MapForm::Bitmap, coded::bitmap(set, &self.geometry)?),
        };
        let params = Params { cd_values: &[MAP_LEVEL], expected: body.len(), limit: usize::MAX };
        let deflated = deflate::encode(&body, &params).map_err(|e| refuse(&e))?.filter(|d| d.len() < body.len());
        let inflated = deflated.is_some().then_some(body.len() as u64);
        Ok(DefinedMap { stream, form, inflated, body: deflated.as_deref().unwrap_or(&body) }.encode())
    }
}

impl ChunkFormat for Mapped {
    fn layout_name(&self) -> &'static str {
        SPARSE
    }

    fn profile(&self) -> Option<&'static dyn SparseProfile> {
        Some(&Map)
    }

    fn knows_defined(&self) -> bool {
        true
    }

    fn has_variable_size(&self) -> bool {
        true
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        false
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Mapped>() else { return false };
        self.geometry == other.geometry && self.pipeline.is_like(&other.pipeline)
    }

    fn blank(&self, _fill: Option<&FillPattern>) -> Result<Image> {
        Ok(Box::new(SparseImage::blank(&self.geometry)))
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Image> {
        let stored = coded::read(source, &self.geometry, record)?;
        let dense = self.inflate(&stored, record)?;
        let defined = match self.map(&stored, record)? {
            Some(defined) => defined,
            None => coded::differing(&dense, &self.geometry)?,
        };
        let image = SparseImage::of_dense(&self.geometry, defined, &dense);
        buffers::give(dense);
        Ok(Box::new(image))
    }

    fn defined(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Option<ElementSet>> {
        let stored = coded::read(source, &self.geometry, record)?;
        match self.map(&stored, record)? {
            Some(defined) => Ok(Some(defined)),
            None => coded::differing(&self.inflate(&stored, record)?, &self.geometry).map(Some),
        }
    }

    fn encode(&self, image: Image, _is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let image = SparseImage::of(image)?;
        coded::check_set(image.set())?;
        let (stream, mask) = self.deflated(&image)?;
        let mapped = self.with_map(&stream, image.set())?;
        let behind = self.pipeline.filters.get(self.deflate.saturating_add(1)..).unwrap_or_default();
        let (stored, _) = Pipeline { filters: behind.to_vec() }.encode(mapped).map_err(|e| refuse(&e))?;
        Ok((stored, StoredForm::Whole { filter_mask: mask }))
    }

    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        coded::check_large(&self.geometry, &reader)
    }
}

#[cfg(test)]
#[path = "mapped_tests.rs"]
mod tests;
