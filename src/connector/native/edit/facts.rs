//! Setting derived facts: what a dataset shall be, from what is said and what it is.
//!
//! What is not said stays, as far as it fits what is said:
//!
//! | not said | is then |
//! |---|---|
//! | shape | the same; with elements of another size the last dimension takes as many as fit the bytes |
//! | maxshape | the same if only the type changes; after a new shape the first dimension stays unlimited if it was |
//! | chunks | the same while shape, maxshape and element size are; else of a size that is chosen |
//! | filters | the same |
//! | fillvalue | the same bytes if the elements have as many, else the default |
//! | layout | the same, or chunks where the others need them |
//!
//! Facts that only describe (`kind`, `index`, `storage`, `offset`, `external`, and the layouts `external` and `virtual`) are taken
//! and ignored: programs that copy extended attributes set them.

use super::attributes::Values;
use super::names::stream;
use super::{Change, Dataset};
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::dataset::create::{Creation, Layout, dataset_messages};
use crate::dataset::storage::Storage;
use crate::dataset::types;
use crate::dataset::types::parse::{ChunksSpec, DatasetSpec, FillSpec, LayoutSpec, parse_datatype_in, parse_fact};
use crate::filter::pipeline::Pipeline;
use crate::format::message::dataspace::Extent;
use crate::format::message::datatype::Datatype;
use crate::format::message::fill_value::Fill;
use crate::meta::Store;
use std::sync::Arc;

/// Facts that say nothing that could be set.
const DESCRIPTIVE: [&str; 5] = ["external", "index", "kind", "offset", "storage"];
/// Bytes of a chunk whose size is chosen, at most; small datasets get smaller ones.
const CHUNK_BYTES: (u64, u64) = (16 << 10, 1 << 20);
/// Chunks that a dataset of known size is cut into, about.
const CHUNKS_WANTED: u64 = 64;
/// Longest dimension of a chunk along one that can grow and has nothing yet.
const GROWING: u64 = 1024;

pub(super) fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// What makes no dataset is the caller's mistake.
pub(super) fn refused(e: Error) -> Error {
    match e {
        Error::Unsupported { detail, .. } => invalid(detail),
        Error::Limit { detail, .. } => invalid(detail),
        other => other,
    }
}

impl Change<'_> {
    /// Sets a derived fact.
    pub(super) fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        if name == "attributes" {
            return self.set_attributes(id, text);
        }
        let elsewhere = name == "layout" && matches!(text.trim_ascii(), b"external" | b"virtual");
        if elsewhere || DESCRIPTIVE.contains(&name) {
            tracing::debug!("user.h5dir.{name} tells what an object is and is not set by writing it");
            return Ok(());
        }
        let store = self.store()?;
        let spec = if name == "datatype" { Ok(DatasetSpec::default()) } else { parse_fact(name, text, store.ctx().sizeof_addr) };
        let spec = spec.map_err(|e| match e {
            Error::Refused { errno: libc::EPERM, reason } => invalid(reason),
            other => other,
        })?;
        if self.connector.object(id)?.info().kind != ObjectKind::Dataset {
            return Err(invalid("only a dataset can be given types, shapes and layouts"));
        }
        let d = self.dataset(id)?;
        if name == "datatype" {
            let text = std::str::from_utf8(text).map_err(|_| invalid("a datatype is text"))?;
            return self.commit_datatype(&d, &parse_datatype_in(text, store.ctx().sizeof_addr)?);
        }
        let wish = self.editing.wishes.lock().get(&id).cloned();
        let spec = match wish {
            Some(wish) => with_wish(spec, wish),
            None => spec,
        };
        if self.is_wish(&d, &spec) {
            tracing::info!("{name} of a new file is kept until its shape is set");
            self.editing.wishes.lock().insert(id, spec);
            return Ok(());
        }
        let creation = self.plan(&d, &spec, &store)?;
        // What contradicts itself is found before anything is changed.
        dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        self.relayout(&d, &creation, spec.dtype.is_some(), None)?;
        self.editing.wishes.lock().remove(&id);
        self.touch(id)
    }

    /// Makes a new file a named datatype. Its bytes, if there are any, must be the text in which the file of such a datatype
    /// shows it.
    fn commit_datatype(&self, d: &Arc<Dataset>, datatype: &Datatype) -> Result<()> {
        let mut text = types::text(datatype).into_bytes();
        let is_text = d.bytes.size == 0
            || d.bytes.size == text.len() as u64 && {
                let want = text.clone();
                d.bytes.read(&self.connector.options.environment, 0, &mut text)?;
                text == want
            };
        if !is_stream(d) || !is_text {
            return Err(invalid("only a new file that is empty, or holds the datatype's text, becomes a named datatype"));
        }
        self.become_datatype(d, datatype)?;
        self.touch(d.id)
    }

    /// Chunks of a new file that have no sense before it has another shape: programs that copy extended attributes may set
    /// them first.
    fn is_wish(&self, d: &Dataset, spec: &DatasetSpec) -> bool {
        let Some(ChunksSpec::Dims(chunks)) = &spec.chunks else { return false };
        let only_chunks = *spec == DatasetSpec { chunks: spec.chunks.clone(), ..DatasetSpec::default() };
        only_chunks && chunks.len() != 1 && is_stream(d)
    }

    /// What the dataset shall be.
    fn plan(&self, d: &Dataset, spec: &DatasetSpec, store: &Store) -> Result<Creation> {
        match &d.bytes.storage {
            Storage::External(_) | Storage::Virtual(_) => {
                return Err(Error::refused(libc::EOPNOTSUPP, "a dataset whose elements lie elsewhere cannot be changed"));
            }
            _ => {}
        }
        let datatype = spec.dtype.clone().unwrap_or_else(|| d.datatype.clone());
        let (extent, dims) = shape(d, spec, &datatype)?;
        let same_shape = extent == d.space.extent && dims == d.space.dims;
        let max_dims = maxshape(d, spec, &dims)?;
        let fixed = dims.iter().zip(&max_dims).all(|(d, m)| *m == Some(*d));
        let fill = match &spec.fillvalue {
            None if datatype.element_size() == d.element_size => d.fill.fill.clone(),
            None => Fill::Default,
            Some(FillSpec::Undefined) => Fill::Undefined,
            Some(fill) => match fill.element(&datatype, &mut Values::new(self, store))? {
                // An empty sequence is nothing but zeros.
                Some(value) if datatype.contains_vlen() && value.iter().all(|b| *b == 0) => Fill::Default,
                Some(value) => Fill::Value(value),
                None => Fill::Default,
            },
        };
        let whole = matches!(spec.layout, Some(LayoutSpec::Compact | LayoutSpec::Contiguous)) || spec.chunks == Some(ChunksSpec::None);
        let mut filters = spec.filters.clone().unwrap_or_else(|| d.pipeline.filters.clone());
        let wants_chunks = spec.layout == Some(LayoutSpec::Chunked)
            || matches!(spec.chunks, Some(ChunksSpec::Dims(_) | ChunksSpec::Auto))
            || spec.filters.as_ref().is_some_and(|f| !f.is_empty())
            || !fixed;
        let chunked = !whole && !dims.is_empty() && (wants_chunks || d.chunked().is_some());
        if !chunked && spec.filters.is_none() {
            filters.clear();
        }
        if !(Pipeline { filters: filters.clone() }).can_encode() {
            return Err(invalid("one of the filters is not known here, or not with these values"));
        }
        let size = datatype.element_size();
        let layout = match (&spec.chunks, d.chunked_layout()) {
            _ if !chunked => match spec.layout {
                Some(LayoutSpec::Compact) => Layout::Compact,
                None if matches!(d.bytes.storage, Storage::Compact(_)) && spec.chunks.is_none() => compact_if_small(&dims, size),
                _ => Layout::Contiguous,
            },
            (Some(ChunksSpec::Dims(chunks)), _) => Layout::Chunked(chunks.clone()),
            (None, Some(old)) if same_shape && size == d.element_size && max_dims == d.space.max() => {
                Layout::Chunked(old.chunk_dims.clone())
            }
            _ => Layout::Chunked(choose_chunks(&dims, &max_dims, size)),
        };
        let same_kind = datatype.contains_vlen() == d.datatype.contains_vlen();
        let fill_time = (spec.fillvalue.is_none() && same_kind).then_some(d.fill.write_time).filter(|t| *t <= 2);
        let max_dims = (extent == Extent::Simple && d.space.max_dims.is_some() || !fixed).then_some(max_dims);
        Ok(Creation { datatype, committed: None, extent, dims, max_dims, layout, filters, fill, fill_time, modified: None })
    }
}

/// What was said before, where `spec` says nothing.
fn with_wish(mut spec: DatasetSpec, wish: DatasetSpec) -> DatasetSpec {
    let whole = matches!(spec.layout, Some(LayoutSpec::Compact | LayoutSpec::Contiguous)) || spec.null_space;
    let rank = spec.shape.as_ref().map(Vec::len);
    let fits = |chunks: &ChunksSpec| !matches!((chunks, rank), (ChunksSpec::Dims(c), Some(rank)) if c.len() != rank);
    if !whole && spec.chunks.is_none() {
        spec.chunks = wish.chunks.filter(fits);
    }
    spec
}

/// A file that is as it was created, but for its bytes.
fn is_stream(d: &Dataset) -> bool {
    let new = stream();
    d.datatype.element_size() == 1 && d.space.max() == [None] && d.pipeline.filters.is_empty() && d.fill.fill == new.fill
}

/// Nothing was ever written to it.
pub(super) fn is_blank(d: &Dataset) -> Result<bool> {
    Ok(d.bytes.size == 0 || d.bytes.unwritten(0)?.is_some_and(|end| end >= d.bytes.size))
}

/// The extent that is wanted.
fn shape(d: &Dataset, spec: &DatasetSpec, datatype: &Datatype) -> Result<(Extent, Vec<u64>)> {
    let size = datatype.element_size();
    let reshaped = |dims: &[u64]| dims.iter().try_fold(size, |n, d| n.checked_mul(*d));
    // The bytes of variable-length elements are counted when they are read.
    let counted = !datatype.contains_vlen() || d.datatype.contains_vlen();
    let (extent, dims) = if spec.null_space {
        (Extent::Null, Vec::new())
    } else if let Some(dims) = &spec.shape {
        (if dims.is_empty() { Extent::Scalar } else { Extent::Simple }, dims.clone())
    } else if size == d.element_size || d.bytes.size == 0 || !counted {
        (d.space.extent, d.space.dims.clone())
    } else {
        let mut dims = d.space.dims.clone();
        let last = dims.last_mut().ok_or_else(|| invalid(format!("one element of {} bytes is none of {size}", d.element_size)))?;
        let bytes = last.saturating_mul(d.element_size);
        if size == 0 || bytes % size != 0 {
            return Err(invalid(format!("{bytes} bytes are no whole number of elements of {size} bytes")));
        }
        *last = bytes / size;
        (d.space.extent, dims)
    };
    let bytes = if extent == Extent::Null { Some(0) } else { reshaped(&dims) };
    if counted && bytes != Some(d.bytes.size) && !is_blank(d)? {
        let have = d.bytes.size;
        let want = bytes.map_or("more than 2^64".to_owned(), |n| n.to_string());
        return Err(invalid(format!("the dataset has {have} bytes, and {want} are needed for {dims:?} elements of {size} bytes")));
    }
    Ok((extent, dims))
}

/// The largest dimensions that are wanted, for the dimensions `dims`.
fn maxshape(d: &Dataset, spec: &DatasetSpec, dims: &[u64]) -> Result<Vec<Option<u64>>> {
    if let Some(max) = &spec.maxshape {
        if max.len() != dims.len() {
            return Err(invalid(format!("maxshape has {} dimensions, the dataset {}", max.len(), dims.len())));
        }
        return Ok(max.clone());
    }
    let fixed = || dims.iter().map(|d| Some(*d)).collect::<Vec<_>>();
    let whole = matches!(spec.layout, Some(LayoutSpec::Compact | LayoutSpec::Contiguous)) || spec.chunks == Some(ChunksSpec::None);
    let old = d.space.max();
    if whole || d.space.max_dims.is_none() {
        return Ok(fixed());
    }
    if spec.shape.is_none() && dims == d.space.dims {
        return Ok(old);
    }
    let mut max = fixed();
    if let (Some(first), Some(None)) = (max.first_mut(), old.first()) {
        *first = None;
    }
    Ok(max)
}

/// Compact as long as the header holds it.
fn compact_if_small(dims: &[u64], size: u64) -> Layout {
    let bytes = dims.iter().try_fold(size, |n, d| n.checked_mul(*d));
    if bytes.is_some_and(|n| n < 64_000) { Layout::Compact } else { Layout::Contiguous }
}

/// Chunk dimensions for a dataset about which nothing else is known: whole rows as far as they go.
fn choose_chunks(dims: &[u64], max: &[Option<u64>], size: u64) -> Vec<u64> {
    let one = |(d, m): (&u64, &Option<u64>)| match (d, m) {
        (0, Some(m)) => (*m).clamp(1, GROWING),
        (0, None) => GROWING,
        (d, None) => (*d).max(if dims.len() == 1 { GROWING } else { 1 }),
        (d, Some(_)) => *d,
    };
    let mut chunk: Vec<u64> = dims.iter().zip(max).map(one).collect();
    let bytes = |c: &[u64]| c.iter().fold(size.max(1), |n, d| n.saturating_mul(*d));
    let wanted = (bytes(&chunk) / CHUNKS_WANTED).clamp(CHUNK_BYTES.0, CHUNK_BYTES.1);
    // The slowest dimensions are cut first: reading goes along the fastest.
    for i in 0..chunk.len() {
        while bytes(&chunk) > wanted
            && let Some(d) = chunk.get_mut(i).filter(|d| **d > 1)
        {
            *d = d.div_ceil(2);
        }
    }
    chunk
}
