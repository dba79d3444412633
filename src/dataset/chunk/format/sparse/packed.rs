//! Profile "filter": a chunk is stored as a selection and the values of its defined elements
//! ([`crate::format::sparse_chunk`]), behind a private filter that libhdf5 applies as a plugin.
//!
//! The filter is the first of the pipeline; the others compress its output. A chunk whose bit of
//! the filter is set in the filter mask is stored dense, as a writer without the plugin does.

use super::coded;
use super::image::{Geometry, SparseImage};
use super::profile::{NewChunks, OPTIONAL, SparseProfile, check_filters};
use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::chunk::format::parts::Parts;
use crate::dataset::chunk::format::traits::{ChunkFormat, Large, LargeReader, SPARSE, memory_len, refuse};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::fill::FillPattern;
use crate::filter::{FilterSpec, Pipeline};
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use crate::format::sparse_chunk::SparseChunk;
use std::any::Any;
use std::sync::Arc;

/// Identifier of the filter, of the range for private use.
pub(crate) const FILTER_ID: u16 = 32800;
/// Name of the filter in the file.
const FILTER_NAME: &[u8] = b"h5dir sparse chunk";
/// First client data value: "h5ds", and the version of the format.
const MAGIC: u32 = u32::from_le_bytes(*b"h5ds");
const VERSION: u32 = 1;
/// Name of the profile.
const PROFILE: &str = "filter";
/// Longest fill value in the client data, bytes.
const FILL_BYTES_MAX: usize = 4096;
/// Bytes of an image beyond twice those of the chunk's elements.
const IMAGE_SLACK_BYTES: u64 = 1 << 20;

struct Packed {
    geometry: Arc<Geometry>,
    /// The filters behind the private one.
    rest: Pipeline,
}

/// The private filter of a dataset. Client data: magic, version, element size, rank, chunk
/// dimensions, length of the fill value in bytes (0: zeros), its bytes, four a value.
fn filter(dims: &[u64], element_size: u64, fill: &[u8]) -> Option<FilterSpec> {
    let number = |n: u64| u32::try_from(n).ok();
    if fill.len() > FILL_BYTES_MAX {
        return None;
    }
    let mut cd_values = vec![MAGIC, VERSION, number(element_size)?, number(dims.len() as u64)?];
    for dim in dims {
        cd_values.push(number(*dim)?);
    }
    cd_values.push(number(fill.len() as u64)?);
    for part in fill.chunks(4) {
        let mut bytes = [0; 4];
        bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        cd_values.push(u32::from_le_bytes(bytes));
    }
    Some(FilterSpec { id: FILTER_ID, flags: OPTIONAL, name: FILTER_NAME.to_vec(), cd_values })
}

/// Creates datasets of this profile.
pub(crate) struct Filter;

impl SparseProfile for Filter {
    fn name(&self) -> &'static str {
        PROFILE
    }

    fn stored_filters(&self, chunks: &NewChunks<'_>, filters: &[FilterSpec]) -> Result<Vec<FilterSpec>> {
        check_filters(filters)?;
        let first = filter(chunks.dims, chunks.element_size, chunks.fill.element());
        let first = first.ok_or_else(|| Error::refused(libc::EINVAL, "the chunks or the fill value are too large for this profile"))?;
        Ok(std::iter::once(first).chain(filters.iter().cloned()).collect())
    }

    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec> {
        filters.iter().filter(|f| f.id != FILTER_ID).cloned().collect()
    }
}

/// Opens the format if the private filter is the first.
pub(in crate::dataset::chunk::format) fn open(parts: &Parts<'_>) -> Option<Arc<dyn ChunkFormat>> {
    let (first, rest) = parts.pipeline.filters.split_first()?;
    let geometry = Geometry::of(parts);
    let is_ours = first.id == FILTER_ID && first.cd_values.starts_with(&[MAGIC, VERSION]);
    // The client data decide what a plugin makes of the chunks; a dataset that they contradict is
    // not ours.
    let same = filter(&geometry.dims, geometry.element_size, geometry.fill.element()).is_some_and(|f| f.cd_values == first.cd_values);
    let open = is_ours && same && !parts.raw_edges;
    open.then(|| Arc::new(Packed { geometry: Arc::new(geometry), rest: Pipeline { filters: rest.to_vec() } }) as Arc<dyn ChunkFormat>)
}

/// The dense elements of a chunk whose image, before the other filters, is `image`; for the plugin.
/// `None`: the client data or the image are not valid.
pub(crate) fn decode_image(cd_values: &[u32], image: &[u8]) -> Option<Vec<u8>> {
    let record = ChunkRecord { address: Address::UNDEF, size: image.len() as u64, form: StoredForm::WHOLE };
    let format = Packed { geometry: Arc::new(geometry(cd_values)?), rest: Pipeline::default() };
    let decoded = format.decode_image(image, record).ok()?;
    decoded.to_dense().ok()
}

/// The image of a chunk of `dense` elements, those with the fill value undefined; for the plugin.
/// `None`: the client data are not valid, or those of another chunk.
pub(crate) fn encode_dense(cd_values: &[u32], dense: &[u8]) -> Option<Vec<u8>> {
    let geometry = Arc::new(geometry(cd_values)?);
    if dense.len() as u64 != geometry.bytes() {
        return None;
    }
    let image = SparseImage::of_dense(&geometry, coded::differing(dense, &geometry).ok()?, dense);
    Packed { geometry, rest: Pipeline::default() }.encode_image(&image).ok()
}

/// The chunks that the client data of the private filter describe.
fn geometry(cd_values: &[u32]) -> Option<Geometry> {
    let mut values = cd_values.iter().copied();
    let mut number = || values.next().map(u64::from);
    if number()? != u64::from(MAGIC) || number()? != u64::from(VERSION) {
        return None;
    }
    let (element_size, rank) = (number()?, number()?);
    if element_size == 0 || rank == 0 || rank > limits::RANK_MAX as u64 {
        return None;
    }
    let dims = (0..rank).map(|_| number()).collect::<Option<Vec<u64>>>()?;
    let fill_len = usize::try_from(number()?).ok()?;
    let mut fill: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
    fill.truncate(fill_len);
    let geometry = Geometry { fill: FillPattern::new(&fill, element_size), dims, element_size };
    (geometry.bytes() <= limits::CHUNK_BYTES_MAX).then_some(geometry)
}

impl Packed {
    /// The chunk's image, after the other filters.
    fn image(&self, stored: &[u8], record: ChunkRecord) -> Result<Vec<u8>> {
        let most = self.geometry.bytes().saturating_mul(2).saturating_add(IMAGE_SLACK_BYTES);
        let limit = usize::try_from(most).map_err(|_| Error::limit("chunk", record.address, "size"))?;
        self.rest.decode_upto(stored, record.filter_mask() >> 1, limit).map_err(|e| coded::corrupt(record, e.to_string()))
    }

    /// A chunk that is stored dense.
    fn decode_dense(&self, stored: &[u8], record: ChunkRecord) -> Result<SparseImage> {
        let size = memory_len(self.geometry.bytes(), record.address)?;
        let dense = self.rest.decode(stored, record.filter_mask() >> 1, size).map_err(|e| coded::corrupt(record, e.to_string()))?;
        let defined = coded::differing(&dense, &self.geometry)?;
        Ok(SparseImage::of_dense(&self.geometry, defined, &dense))
    }

    /// Decodes the chunk's image.
    fn decode_image(&self, image: &[u8], record: ChunkRecord) -> Result<SparseImage> {
        match SparseChunk::decode(image, self.geometry.elements(), record.address)? {
            SparseChunk::Selected { selection, values } => {
                coded::unpack(&self.geometry, selection.to_set(&self.geometry.dims)?, Some(&selection), values, record)
            }
            SparseChunk::Bitmap { bitmap, values } => {
                coded::unpack(&self.geometry, coded::of_bitmap(bitmap, &self.geometry)?, None, values, record)
            }
        }
    }

    /// The image of a chunk.
    fn encode_image(&self, image: &SparseImage) -> Result<Vec<u8>> {
        coded::check_set(image.set())?;
        let values = coded::values(image, &self.geometry)?;
        Ok(match coded::selection(image.set(), &self.geometry) {
            Some(selection) => SparseChunk::Selected { selection, values: &values }.encode(&self.geometry.dims),
            None => {
                let bitmap = coded::bitmap(image.set(), &self.geometry)?;
                SparseChunk::Bitmap { bitmap: &bitmap, values: &values }.encode(&self.geometry.dims)
            }
        })
    }
}

impl ChunkFormat for Packed {
    fn layout_name(&self) -> &'static str {
        SPARSE
    }

    fn profile(&self) -> Option<&'static dyn SparseProfile> {
        Some(&Filter)
    }

    fn knows_defined(&self) -> bool {
        true
    }

    fn stores_defined(&self) -> bool {
        true
    }

    fn has_variable_size(&self) -> bool {
        true
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        false
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Packed>() else { return false };
        self.geometry == other.geometry && self.rest.is_like(&other.rest)
    }

    fn blank(&self, _fill: Option<&FillPattern>) -> Result<Image> {
        Ok(Box::new(SparseImage::blank(&self.geometry)))
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Image> {
        let stored = coded::read(source, &self.geometry, record)?;
        if record.filter_mask() & 1 != 0 {
            return Ok(Box::new(self.decode_dense(&stored, record)?));
        }
        let image = self.image(&stored, record)?;
        Ok(Box::new(self.decode_image(&image, record)?))
    }

    fn defined(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Option<ElementSet>> {
        let stored = coded::read(source, &self.geometry, record)?;
        if record.filter_mask() & 1 != 0 {
            return Ok(Some(self.decode_dense(&stored, record)?.set().clone()));
        }
        match SparseChunk::decode(&self.image(&stored, record)?, self.geometry.elements(), record.address)? {
            SparseChunk::Selected { selection, .. } => selection.to_set(&self.geometry.dims).map(Some),
            SparseChunk::Bitmap { bitmap, .. } => coded::of_bitmap(bitmap, &self.geometry).map(Some),
        }
    }

    fn encode(&self, image: Image, _is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let encoded = self.encode_image(&*SparseImage::of(image)?)?;
        let (stored, mask) = self.rest.encode(encoded).map_err(|e| refuse(&e))?;
        Ok((stored, StoredForm::Whole { filter_mask: mask << 1 }))
    }

    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        coded::check_large(&self.geometry, &reader)
    }
}
