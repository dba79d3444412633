//! Plans a dataset from a request and its present state, or the state of a new file.
//!
//! What a request leaves out:
//!
//! - shape: unchanged; if the element size changes, the last dimension takes as many elements as
//!   fit the bytes.
//! - maxshape: unchanged if only the type changes; after a new shape the first dimension stays
//!   unlimited if it was.
//! - chunks: unchanged if element size and rank are, and a chunk fits into maxshape; else, and for
//!   a file of bytes that gets a shape, of a size that is chosen.
//! - filters: unchanged.
//! - fillvalue: the same bytes if the elements have as many, else the default.
//! - layout: unchanged, or chunked where the other properties need chunks.

use super::bytes_file::{bytes_file, kept};
use super::errors::{invalid, refused};
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::shape::Extent;
use crate::base::{Error, Result};
use crate::connector::{ChunksSpec, DatasetSpec, Elsewhere, FillSpec, elsewhere_layout};
use crate::dataset::create::dataset_messages;
use crate::dataset::creation::{CreateLayout, Creation, NewLayout};
use crate::dataset::heap::HeapStore;
use crate::dataset::layout::{self, new_chunked, new_compact, new_contiguous};
use crate::dataset::parts::store_elements;
use crate::filter::pipeline::Pipeline;
use crate::format::Context;

/// Bytes of a chunk whose size is chosen, at most; small datasets get smaller ones.
const CHUNK_BYTES: (u64, u64) = (16 << 10, 1 << 20);
/// Chunks that a dataset of known size is cut into, about.
const CHUNKS_WANTED: u64 = 64;
/// Longest dimension of a chunk along one that can grow and has nothing yet.
const GROWING: u64 = 1024;

/// Bytes never written that may become written for another fill value, however few others there
/// are.
const HOLES_MAX: u64 = 1 << 30;

/// What a dataset is, in any kind of container.
#[derive(Clone)]
pub(crate) struct Now {
    /// Its properties; the layout is that of a copy.
    pub creation: Creation,
    /// Its elements lie in other files or datasets.
    pub elsewhere: bool,
    /// Bytes of its elements.
    pub size: u64,
    /// Nothing was ever written to it.
    pub blank: bool,
}

impl Now {
    /// What a new dataset with these properties is.
    pub fn new_file(creation: Creation) -> Now {
        Now { creation, elsewhere: false, size: 0, blank: true }
    }

    /// The same without what was written to it.
    pub fn emptied(self) -> Now {
        Now { blank: true, ..self }
    }

    fn max(&self) -> Vec<Option<u64>> {
        let Creation { dims, max_dims, .. } = &self.creation;
        max_dims.clone().unwrap_or_else(|| dims.iter().map(|d| Some(*d)).collect())
    }

    fn element_size(&self) -> u64 {
        self.creation.datatype.element_size()
    }

    /// A file of bytes as it is made.
    fn is_untyped(&self) -> bool {
        self.creation.datatype == Datatype::byte() && self.max() == [None] && self.creation.filters.is_empty()
    }
}

/// Errors: of `size` bytes, of which `there` were written, nearly all would be written so that they
/// read as before.
pub(crate) fn check_holes(size: u64, there: u64) -> Result<()> {
    let holes = size.saturating_sub(there);
    if holes > HOLES_MAX.max(there.saturating_mul(4)) {
        let reason = format!("{holes} bytes were never written and would be, to read as before with another fill value");
        return Err(Error::refused(libc::EFBIG, reason));
    }
    Ok(())
}

/// What the dataset `d` shall be.
pub(crate) fn plan(d: &Now, spec: &DatasetSpec, values: &mut dyn HeapStore) -> Result<Creation> {
    if let Some(elsewhere) = &spec.elsewhere {
        return plan_elsewhere(d, spec, elsewhere, values);
    }
    if d.elsewhere {
        return Err(Error::refused(libc::EOPNOTSUPP, "a dataset whose elements lie elsewhere cannot be changed"));
    }
    let datatype = spec.dtype.clone().unwrap_or_else(|| d.creation.datatype.clone());
    let (extent, dims) = shape(d, spec, &datatype)?;
    let max_dims = maxshape(d, spec, &dims)?;
    let fixed = dims.iter().zip(&max_dims).all(|(d, m)| *m == Some(*d));
    let fill = fill(d, spec, &datatype, values)?;
    let filters = spec.filters.as_ref().unwrap_or(&d.creation.filters);
    let layout = layout(d, spec, &dims, &max_dims, datatype.element_size())?;
    let dropped = !layout.kind.is_chunked() && spec.filters.is_none();
    let filters = if dropped { Vec::new() } else { filters.clone() };
    // A new file that is described as a whole can take the stored chunks of another dataset, which
    // are not encoded. Writing its elements is an error.
    let takes_chunks = d.is_untyped() && d.blank && d.size == 0 && spec.dtype.is_some() && spec.shape.is_some() && layout.kind.is_chunked();
    if !takes_chunks && !(Pipeline { filters: filters.clone() }).can_encode() {
        return Err(invalid("one of the filters is not known here, or not with these values"));
    }
    let same_kind = datatype.contains_vlen() == d.creation.datatype.contains_vlen();
    let fill_time = (spec.fillvalue.is_none() && same_kind).then(|| d.creation.fill_time.unwrap_or(2)).filter(|t| *t <= 2);
    let fill_time = spec.fill_time.or(fill_time);
    let same_layout = spec.layout.is_none() && layout.kind.name() == d.creation.layout.kind.name();
    let allocation_time = spec.allocation_time.or(d.creation.allocation_time.filter(|_| same_layout));
    let max_dims = (extent == Extent::Simple && d.creation.max_dims.is_some() || !fixed).then_some(max_dims);
    let undefine_fill = spec.undefine_fill && layout.kind.profile().is_some();
    let creation = Creation {
        datatype,
        committed: None,
        extent,
        dims,
        max_dims,
        layout,
        filters,
        fill,
        fill_time,
        allocation_time,
        elsewhere: None,
        undefine_fill,
        modified: None,
    };
    // A new file is in the log by default, which cannot hold every type.
    let by_default = d.is_untyped() && spec.layout.is_none() && creation.layout.kind.records().is_some();
    if by_default && creation.layout.kind.check(&creation).is_err() {
        let creation = Creation { layout: bytes_file().layout, ..d.creation.clone() };
        return plan(&Now { creation, ..d.clone() }, spec, values);
    }
    Ok(creation)
}

/// The fill value that is wanted.
fn fill(d: &Now, spec: &DatasetSpec, datatype: &Datatype, values: &mut dyn HeapStore) -> Result<Fill> {
    Ok(match &spec.fillvalue {
        None if datatype.element_size() == d.element_size() => d.creation.fill.clone(),
        None | Some(FillSpec::Default) => Fill::Default,
        Some(FillSpec::Undefined) => Fill::Undefined,
        Some(FillSpec::Value(fill)) if fill.datatype != *datatype => {
            return Err(invalid("the fill value has another type than the elements"));
        }
        Some(FillSpec::Value(fill)) => match store_elements(fill, values).map(Some).or_else(|e| without_reference(datatype, e))? {
            // An empty sequence is nothing but zeros.
            Some(value) if datatype.contains_vlen() && value.iter().all(|b| *b == 0) => Fill::Default,
            Some(value) => Fill::Value(value),
            None => Fill::Default,
        },
    })
}

/// What a new file shall be whose elements are `elsewhere`.
fn plan_elsewhere(d: &Now, spec: &DatasetSpec, elsewhere: &Elsewhere, values: &mut dyn HeapStore) -> Result<Creation> {
    if d.elsewhere || d.size > 0 && !d.blank {
        return Err(invalid("the dataset has elements; only a new file, which is empty, gets its elements from other places"));
    }
    let (Some(datatype), Some(dims)) = (spec.dtype.clone(), spec.shape.clone()) else {
        return Err(invalid("a dataset whose elements are in other places needs dtype and shape"));
    };
    let kind = layout::named(elsewhere_layout(elsewhere), spec.profile.as_deref())?;
    Ok(Creation {
        fill: fill(d, spec, &datatype, values)?,
        datatype,
        committed: None,
        extent: if dims.is_empty() { Extent::Scalar } else { Extent::Simple },
        max_dims: spec.maxshape.clone().filter(|max| max.iter().zip(&dims).any(|(max, now)| *max != Some(*now))),
        dims,
        layout: NewLayout { kind, chunk: Vec::new() },
        filters: Vec::new(),
        fill_time: spec.fill_time,
        allocation_time: spec.allocation_time,
        elsewhere: Some(elsewhere.clone()),
        undefine_fill: false,
        modified: None,
    })
}

/// The layout that is requested by name.
fn requested(spec: &DatasetSpec) -> Result<Option<&'static dyn CreateLayout>> {
    spec.layout.as_deref().map(|name| layout::named(name, spec.profile.as_deref())).transpose()
}

/// Whether a layout without chunks is requested.
pub(crate) fn is_unchunked(spec: &DatasetSpec) -> Result<bool> {
    Ok(spec.chunks == Some(ChunksSpec::None) || requested(spec)?.is_some_and(|l| !l.is_chunked()))
}

/// The layout for elements of `size` bytes.
fn layout(d: &Now, spec: &DatasetSpec, dims: &[u64], max_dims: &[Option<u64>], size: u64) -> Result<NewLayout> {
    let (requested, unchunked) = (requested(spec)?, is_unchunked(spec)?);
    let chunked_by_name = requested.is_some_and(CreateLayout::is_chunked);
    let needs_chunks = chunked_by_name
        || matches!(spec.chunks, Some(ChunksSpec::Dims(_) | ChunksSpec::Auto))
        || spec.filters.as_ref().is_some_and(|f| !f.is_empty());
    if needs_chunks && unchunked {
        return Err(invalid("only a dataset in chunks has chunks and filters"));
    }
    if requested.is_none() && !needs_chunks && !unchunked && d.creation.layout.kind.records().is_some() {
        return Ok(d.creation.layout.clone());
    }
    if chunked_by_name && dims.is_empty() {
        return Err(invalid("a dataset without dimensions cannot be in chunks"));
    }
    let fixed = dims.iter().zip(max_dims).all(|(d, m)| *m == Some(*d));
    let old = d.creation.layout.chunk_dims();
    if unchunked || dims.is_empty() || !needs_chunks && fixed && old.is_none() {
        return Ok(match requested.filter(|l| !l.is_chunked()) {
            Some(kind) => NewLayout { kind, chunk: Vec::new() },
            None if d.creation.layout == new_compact() && spec.chunks.is_none() => compact_if_small(dims, size),
            None => new_contiguous(),
        });
    }
    // Chunks of a file of bytes were chosen for what it held.
    let same = dims == d.creation.dims && max_dims == d.max();
    let chunk = match (&spec.chunks, old) {
        (Some(ChunksSpec::Dims(chunks)), _) => chunks.clone(),
        (None, Some(old)) if size == d.element_size() && (same || !d.is_untyped() && fit(old, max_dims)) => {
            if d.is_untyped() {
                kept(old)
            } else {
                old.to_vec()
            }
        }
        _ => choose_chunks(dims, max_dims, size),
    };
    let old_kind = match (spec.profile.as_ref().filter(|_| requested.is_none()), old) {
        (Some(profile), Some(_)) => {
            let none = || invalid(format!("layout {} has no profile {profile}", d.creation.layout.kind.name()));
            Some(d.creation.layout.kind.with_profile(profile).ok_or_else(none)?)
        }
        (_, old) => old.map(|_| d.creation.layout.kind),
    };
    let kind = requested.or(old_kind);
    Ok(kind.map_or_else(|| new_chunked(chunk.clone()), |kind| NewLayout { kind, chunk: chunk.clone() }))
}

/// A fill value whose reference cannot be made is null.
fn without_reference(datatype: &Datatype, e: Error) -> Result<Option<Vec<u8>>> {
    if !datatype.contains_reference() {
        return Err(e);
    }
    tracing::warn!("the fill value of a dataset is null, as its reference cannot be made: {e}");
    Ok(None)
}

/// The extent that is wanted.
fn shape(d: &Now, spec: &DatasetSpec, datatype: &Datatype) -> Result<(Extent, Vec<u64>)> {
    let size = datatype.element_size();
    let reshaped = |dims: &[u64]| dims.iter().try_fold(size, |n, d| n.checked_mul(*d));
    // The bytes of variable-length elements are counted when they are read.
    let counted = !datatype.contains_vlen() || d.creation.datatype.contains_vlen();
    let (extent, dims) = if spec.null_space {
        (Extent::Null, Vec::new())
    } else if let Some(dims) = &spec.shape {
        (if dims.is_empty() { Extent::Scalar } else { Extent::Simple }, dims.clone())
    } else if size == d.element_size() || d.size == 0 || !counted {
        (d.creation.extent, d.creation.dims.clone())
    } else {
        if !d.is_untyped() && !d.blank {
            let reason = format!("its elements have {} bytes, not {size}: give the shape as well, in user.h5dir.dataset", d.element_size());
            return Err(invalid(reason));
        }
        let mut dims = d.creation.dims.clone();
        let last = dims.last_mut().ok_or_else(|| invalid(format!("one element of {} bytes is none of {size}", d.element_size())))?;
        let bytes = last.saturating_mul(d.element_size());
        if size == 0 || bytes % size != 0 {
            return Err(invalid(format!("{bytes} bytes are no whole number of elements of {size} bytes")));
        }
        *last = bytes / size;
        (d.creation.extent, dims)
    };
    if spec.only_blank && !d.blank {
        return Err(invalid(no_extent(d, &dims)));
    }
    let bytes = if extent == Extent::Null { Some(0) } else { reshaped(&dims) };
    if counted && bytes != Some(d.size) && !d.blank {
        let have = d.size;
        let want = bytes.map_or("more than 2^64".to_owned(), |n| n.to_string());
        return Err(invalid(format!("the dataset has {have} bytes, and {want} are needed for {dims:?} elements of {size} bytes")));
    }
    Ok((extent, dims))
}

/// Why the extent of a dataset does not become `dims`.
fn no_extent(d: &Now, dims: &[u64]) -> String {
    let (old, max) = (&d.creation.dims, d.max());
    if dims.len() != old.len() {
        return format!("shape {dims:?} has {} dimensions, the dataset {}: user.h5dir.reshape changes that", dims.len(), old.len());
    }
    match dims.iter().zip(&max).position(|(n, max)| max.is_some_and(|max| *n > max)) {
        Some(k) => format!("dimension {k} of shape {dims:?} is larger than its maximum: set user.h5dir.maxshape first"),
        None => format!("shape {old:?} does not become {dims:?}: user.h5dir.reshape changes the shape of the same elements"),
    }
}

/// The largest dimensions that are wanted, for the dimensions `dims`.
fn maxshape(d: &Now, spec: &DatasetSpec, dims: &[u64]) -> Result<Vec<Option<u64>>> {
    if let Some(max) = &spec.maxshape {
        if max.len() != dims.len() {
            return Err(invalid(format!("maxshape has {} dimensions, the dataset {}", max.len(), dims.len())));
        }
        return Ok(max.clone());
    }
    let fixed = || dims.iter().map(|d| Some(*d)).collect::<Vec<_>>();
    let old = d.max();
    let grows = requested(spec)?.is_some_and(CreateLayout::grows);
    if is_unchunked(spec)? && !grows || d.creation.max_dims.is_none() {
        return Ok(fixed());
    }
    if spec.shape.is_none() && dims == d.creation.dims {
        return Ok(old);
    }
    let mut max = fixed();
    if let (Some(first), Some(None)) = (max.first_mut(), old.first()) {
        *first = None;
    }
    Ok(max)
}

/// Compact as long as the header holds it.
fn compact_if_small(dims: &[u64], size: u64) -> NewLayout {
    let bytes = dims.iter().try_fold(size, |n, d| n.checked_mul(*d));
    if bytes.is_some_and(|n| n < 64_000) { new_compact() } else { new_contiguous() }
}

/// Whether chunks are of as many dimensions, and not longer than one that is limited
/// (H5D__chunk_construct).
fn fit(chunks: &[u64], max: &[Option<u64>]) -> bool {
    chunks.len() == max.len() && chunks.iter().zip(max).all(|(chunk, max)| max.is_none_or(|max| *chunk <= max))
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

/// Whether a new file can be what `spec` states, and be written.
pub fn check_new_dataset(spec: &DatasetSpec) -> Result<()> {
    check_part(spec)?;
    /// Keeps nothing.
    struct Nowhere;
    impl HeapStore for Nowhere {
        fn sequence(&mut self, _count: u32, _payload: &[u8]) -> Result<Vec<u8>> {
            Ok(vec![1; usize::from(Context::DEFAULT.sizeof_addr).saturating_add(8)])
        }

        fn object(&mut self, _path: &[u8]) -> Result<crate::base::Address> {
            Ok(crate::base::Address(0))
        }
    }
    let creation = plan(&Now::new_file(bytes_file()), spec, &mut Nowhere)?;
    dataset_messages(&Context::DEFAULT, 3, &creation).map(drop).map_err(refused)
}

/// Checks the filters and the layout of `spec`, each by itself.
pub fn check_part(spec: &DatasetSpec) -> Result<()> {
    requested(spec)?;
    if (Pipeline { filters: spec.filters.clone().unwrap_or_default() }).can_encode() {
        Ok(())
    } else {
        Err(invalid("one of the filters is not encoded here, or not with these values"))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
