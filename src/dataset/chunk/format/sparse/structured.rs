//! Profile "structured": a chunk is stored as sections, in the encoding of HDF5's "structured
//! chunk" proposal. No released libhdf5 opens such a dataset.
//!
//! ```text
//! section 0   encoded dataspace (H5Sencode) with the defined elements selected | checksum
//! section 1   their values, in the order of the selection
//! ```
//!
//! Each section has filters of its own ([`crate::format::message::section_filters`]). The chunk's
//! record in the index has the offset of section 1, and sizes and filter masks of both. Elements of
//! variable length have a third section in the proposal; such datasets are not read.

use super::coded::{self, corrupt};
use super::image::{Geometry, SparseImage};
use super::profile::{NewChunks, SparseProfile, ZSTD, check_filters};
use crate::base::datatype::Datatype;
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result, limits};
use crate::dataset::chunk::format::parts::{Parts, SectionParts};
use crate::dataset::chunk::format::traits::{ChunkFormat, Large, LargeReader, SPARSE, refuse};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::fill::FillPattern;
use crate::filter::registry::DEFLATE;
use crate::filter::{FilterError, FilterSpec, Pipeline};
use crate::format::chunk_record::{ChunkRecord, RecordShape, Sections, StoredForm};
use crate::format::message::filter_pipeline::{FilterDescription, FilterPipeline};
use crate::format::message::section_filters::SectionFilters;
use crate::format::selection::SerializedSelection;
use crate::format::set_selection::Versions;
use crate::format::sparse_chunk::{NAME, decode_selection, encode_selection};
use crate::format::{Reader, Writer};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Name of the profile.
const PROFILE: &str = "structured";
/// Sections of a chunk.
const SECTIONS: u8 = 2;
/// Number of the section with the selection.
const SELECTION: usize = 0;
/// Number of the section with the values.
const VALUES: usize = 1;
/// Most numbers in a stored selection; a reader refuses more.
const NUMBERS_MAX: u64 = 1 << 24;
/// Bytes of a section beyond those of its numbers or elements.
const SLACK_BYTES: u64 = 1 << 20;

/// Creates datasets of this profile.
pub(crate) struct Structured;

impl SparseProfile for Structured {
    fn name(&self) -> &'static str {
        PROFILE
    }

    fn stored_filters(&self, _chunks: &NewChunks<'_>, filters: &[FilterSpec]) -> Result<Vec<FilterSpec>> {
        check_filters(filters)?;
        Ok(filters.to_vec())
    }

    fn user_filters(&self, filters: &[FilterSpec]) -> Vec<FilterSpec> {
        filters.to_vec()
    }

    fn sections(&self) -> Option<u8> {
        Some(SECTIONS)
    }

    /// The selection has the filters that compress; its numbers are no elements to shuffle, and it
    /// has a checksum.
    fn section_filters(&self, filters: &[FilterDescription]) -> Option<SectionFilters> {
        let compressors: Vec<_> = filters.iter().filter(|f| matches!(f.id, DEFLATE | ZSTD)).cloned().collect();
        let sections = [(SELECTION as u8, compressors), (VALUES as u8, filters.to_vec())];
        Some(SectionFilters { sections: sections.into_iter().filter(|(_, filters)| !filters.is_empty()).collect() })
    }

    fn check_type(&self, datatype: &Datatype) -> Result<()> {
        let reason = "profile \"structured\" stores no elements of variable length: use \"map\" or \"filter\"";
        if datatype.contains_vlen() { Err(Error::refused(libc::EOPNOTSUPP, reason)) } else { Ok(()) }
    }

    fn warning(&self) -> Option<&'static str> {
        Some("no released libhdf5 opens a dataset of profile \"structured\"; h5py's visititems and h5dump stop at it")
    }
}

struct Format {
    geometry: Arc<Geometry>,
    /// Filters of each section.
    pipelines: [Pipeline; SECTIONS as usize],
    /// Some section has filters: records have sizes and masks of each.
    is_filtered: bool,
    /// Chunks that extend past the extent are stored without filters.
    raw_edges: bool,
}

/// Opens the format if chunks have its sections.
pub(in crate::dataset::chunk::format) fn open(parts: &Parts<'_>) -> Option<Arc<dyn ChunkFormat>> {
    let SectionParts { filters, .. } = parts.sections.filter(|s| s.count == SECTIONS)?;
    let of = |number: usize| {
        let found = filters.sections.iter().find(|(section, _)| usize::from(*section) == number);
        let filters = found.map(|(_, filters)| filters.clone()).unwrap_or_default();
        Pipeline::from(&FilterPipeline { version: 2, filters })
    };
    let pipelines = [of(SELECTION), of(VALUES)];
    let is_filtered = pipelines.iter().any(|p| !p.is_empty());
    Some(Arc::new(Format { geometry: Arc::new(Geometry::of(parts)), pipelines, is_filtered, raw_edges: parts.raw_edges }))
}

/// Bytes of section `number` in a chunk of `size` bytes. `None`: they are not in the chunk.
fn section_range(sections: &Sections, size: u64, number: usize) -> Option<Range<u64>> {
    let start = *sections.offsets.get(number)?;
    let end = if number == VALUES { size } else { *sections.offsets.get(number.checked_add(1)?)? };
    (start <= end && end <= size).then_some(start..end)
}

impl Format {
    /// Most bytes of a section before filters.
    fn section_max(&self, number: usize) -> u64 {
        match number {
            SELECTION => {
                // Two corners for each element, numbers of eight bytes.
                let numbers = self.geometry.elements().saturating_mul(self.geometry.dims.len() as u64).saturating_mul(2);
                numbers.min(NUMBERS_MAX).saturating_mul(8).saturating_add(SLACK_BYTES)
            }
            _ => self.geometry.bytes().saturating_mul(2).saturating_add(SLACK_BYTES),
        }
    }

    /// True if the sections of such a chunk are stored without filters.
    fn is_raw(&self, is_edge: bool) -> bool {
        !self.is_filtered || self.raw_edges && is_edge
    }

    /// Reads a section and undoes its filters.
    fn section(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool, number: usize) -> Result<Vec<u8>> {
        let StoredForm::Sections(sections) = record.form else { return Err(corrupt(record, "a chunk without sections")) };
        let range = section_range(&sections, record.size, number);
        let range = range.ok_or_else(|| corrupt(record, format!("sections at {:?} of {} bytes", sections.offsets, record.size)))?;
        let len = range.end.saturating_sub(range.start);
        let address = record.address.checked_add(range.start).filter(|at| at.checked_add(len).is_some());
        let address = address.filter(|at| source.end().is_ok_and(|end| at.0.saturating_add(len) <= end));
        let address = address.ok_or_else(|| corrupt(record, format!("section {number} reaches past the end of the file")))?;
        let most = self.section_max(number);
        if len > most.saturating_mul(2) || len > limits::CHUNK_BYTES_MAX {
            return Err(Error::limit(NAME, record.address, format!("{len} stored bytes in section {number}")));
        }
        let mut stored = vec![0; usize::try_from(len).map_err(|_| Error::limit(NAME, record.address, "size of a section"))?];
        source.read(address, &mut stored)?;
        let pipeline = self.pipelines.get(number).filter(|p| !p.is_empty() && len > 0 && !self.is_raw(is_edge));
        let Some(pipeline) = pipeline else { return Ok(stored) };
        let unfiltered = sections.unfiltered.get(number).copied().unwrap_or(0);
        if unfiltered > most {
            return Err(Error::limit(NAME, record.address, format!("section {number} has {unfiltered} bytes before filters")));
        }
        let (mask, limit) = (sections.masks.get(number).copied().unwrap_or(0), usize::try_from(most).unwrap_or(usize::MAX));
        let decoded = pipeline.decode_upto(&stored, mask, limit).map_err(|e| match e {
            FilterError::Unknown { .. } | FilterError::Unsupported { .. } => Error::unsupported(NAME, record.address, e.to_string()),
            _ => corrupt(record, format!("section {number}: {e}")),
        })?;
        if decoded.len() as u64 == unfiltered {
            return Ok(decoded);
        }
        Err(corrupt(record, format!("section {number} has {} bytes before filters, its record says {unfiltered}", decoded.len())))
    }

    /// The selection of the defined elements, and the elements.
    fn selection(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<(SerializedSelection, ElementSet)> {
        let section = self.section(source, record, is_edge, SELECTION)?;
        let mut r = Reader::new(&section, NAME, record.address);
        let selection = decode_selection(&mut r)?;
        if r.remaining() > 0 {
            return Err(corrupt(record, format!("{} bytes after the checksum of the selection", r.remaining())));
        }
        let set = selection.to_set(&self.geometry.dims).map_err(|e| corrupt(record, e.to_string()))?;
        if let SerializedSelection::Blocks { rank, corners, .. } = &selection
            && volume(*rank, corners) != Some(set.elements())
        {
            return Err(corrupt(record, "blocks of defined elements overlap"));
        }
        Ok((selection, set))
    }
}

/// Elements in blocks, counted as often as blocks have them. `None`: corners that are no block.
fn volume(rank: usize, corners: &[u64]) -> Option<u64> {
    let mut sum = 0u64;
    for block in corners.chunks(rank.checked_mul(2)?) {
        let (first, last) = block.split_at_checked(rank)?;
        let sizes = first.iter().zip(last).map(|(first, last)| last.checked_sub(*first)?.checked_add(1));
        sum = sum.checked_add(sizes.into_iter().try_fold(1u64, |n, size| n.checked_mul(size?))?)?;
    }
    Some(sum)
}

/// Numbers that a selection stores.
fn numbers(selection: &SerializedSelection) -> u64 {
    match selection {
        SerializedSelection::Points { coordinates, .. } => coordinates.len() as u64,
        SerializedSelection::Blocks { corners, .. } => corners.len() as u64,
        SerializedSelection::None(_) | SerializedSelection::All(_) | SerializedSelection::Regular { .. } => 0,
    }
}

impl ChunkFormat for Format {
    fn layout_name(&self) -> &'static str {
        SPARSE
    }

    fn profile(&self) -> Option<&'static dyn SparseProfile> {
        Some(&Structured)
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

    fn record_shape(&self) -> RecordShape {
        RecordShape::Sections { count: SECTIONS, filtered: self.is_filtered }
    }

    fn filters(&self) -> Option<&Pipeline> {
        self.pipelines.get(VALUES)
    }

    fn can_encode(&self) -> bool {
        self.pipelines.iter().all(Pipeline::can_encode)
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        false
    }

    fn stores_edges_differently(&self) -> bool {
        self.raw_edges && self.is_filtered
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        let Some(other) = (other as &dyn Any).downcast_ref::<Format>() else { return false };
        let same_edges = (self.is_filtered, self.raw_edges) == (other.is_filtered, other.raw_edges);
        same_edges && self.geometry == other.geometry && self.pipelines.iter().zip(&other.pipelines).all(|(a, b)| a.is_like(b))
    }

    fn blank(&self, _fill: Option<&FillPattern>) -> Result<Image> {
        Ok(Box::new(SparseImage::blank(&self.geometry)))
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<Image> {
        let (selection, set) = self.selection(source, record, is_edge)?;
        let values = self.section(source, record, is_edge, VALUES)?;
        Ok(Box::new(coded::unpack(&self.geometry, set, Some(&selection), &values, record)?))
    }

    fn defined(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<Option<ElementSet>> {
        Ok(Some(self.selection(source, record, is_edge)?.1))
    }

    fn encode(&self, image: Image, is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let image = SparseImage::of(image)?;
        coded::check_set(image.set())?;
        let selection = SerializedSelection::of_set(image.set(), &self.geometry.dims, Versions::Oldest);
        if numbers(&selection) > NUMBERS_MAX {
            let reason = "a sparse chunk has too many separate defined elements: use smaller chunks";
            return Err(Error::refused(libc::EFBIG, reason));
        }
        let mut head = Writer::new();
        encode_selection(&mut head, selection, &self.geometry.dims);
        let (mut chunk, mut sections) = (Vec::new(), Sections::default());
        let contents = [head.into_bytes(), coded::values(&image, &self.geometry)?];
        let places = sections.offsets.iter_mut().zip(&mut sections.unfiltered).zip(&mut sections.masks);
        for ((bytes, pipeline), ((offset, unfiltered), mask)) in contents.into_iter().zip(&self.pipelines).zip(places) {
            *offset = chunk.len() as u64;
            if self.is_filtered {
                *unfiltered = bytes.len() as u64;
            }
            if self.is_raw(is_edge) || bytes.is_empty() {
                chunk.extend_from_slice(&bytes);
                continue;
            }
            let (stored, skipped) = pipeline.encode(bytes).map_err(|e| refuse(&e))?;
            chunk.extend_from_slice(&stored);
            *mask = skipped;
        }
        Ok((chunk, StoredForm::Sections(sections)))
    }

    fn open_large<'a>(&'a self, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        coded::check_large(&self.geometry, &reader)
    }
}

#[cfg(test)]
#[path = "structured_tests.rs"]
mod tests;
