//! Reads a virtual dataset: finds the source elements of a range and fetches them.
//!
//! ```text
//! linear number --virtual selection--> ordinal --source selection--> linear number in the source
//! ```
//!
//! Source: H5Dvirtual.c (`H5D__virtual_init_all`, `H5D__virtual_pre_io`, `H5D__virtual_read`).
//! Elements past the end of a source that shrank read as the fill value; in libhdf5 they are
//! undefined.

use super::convert::Gather;
use super::dataset::{Segment, Source, SourceOpener, VirtualDataset};
use super::mapping::{Kind, Mapping, STRUCTURE, corrupt};
use crate::base::Result;
use crate::base::budget::Budget;
use crate::base::selection::Selection;
use crate::base::view::View;
use crate::dataset::layout::source_reads::SourceReads;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Steps allowed for any request, besides those in proportion to its size.
const REQUEST_STEPS_MIN: u64 = 1 << 24;
/// Most mappings per element, averaged over a request.
const OVERLAP_MAX: u64 = 256;

/// Handling of a missing source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Reads that need the source fail with the error of [`SourceOpener::missing`].
    Error,
    /// Reads return fill values, as in libhdf5.
    Fill,
}

/// Called with a source and one of its segments.
pub(crate) type Visitor<'v> = &'v mut dyn FnMut(&Arc<dyn Source>, Segment) -> Result<()>;

/// Names of a source file and dataset.
type Names = (Arc<[u8]>, Arc<[u8]>);

/// One request.
struct Request<'r> {
    opener: &'r dyn SourceOpener,
    shape: &'r [u64],
    elements: Range<u64>,
    missing: MissingPolicy,
    /// Sources opened for this request.
    opened: HashMap<Names, Option<Arc<dyn Source>>>,
    /// Steps left for searches.
    steps: Budget,
    /// Mapped elements left; bounds the work for many overlapping mappings.
    mapped: Budget,
}

impl VirtualDataset {
    /// Fills `buf` with raw data from `byte_offset` of the row-major extent `shape`
    /// ([`VirtualDataset::extent`]). Unmapped elements read as the fill value.
    pub(crate) fn read(
        &self,
        opener: &dyn SourceOpener,
        reads: SourceReads<'_>,
        shape: &[u64],
        byte_offset: u64,
        buf: &mut [u8],
        missing: MissingPolicy,
    ) -> Result<()> {
        let size = self.element_size;
        let end = byte_offset.checked_add(buf.len() as u64).ok_or_else(|| corrupt("a range past 2^64"))?;
        let phase = byte_offset.checked_rem(size).unwrap_or(0) as usize;
        for (b, f) in buf.iter_mut().zip(self.fill.iter().cycle().skip(phase)) {
            *b = *f;
        }
        let elements = byte_offset.checked_div(size).unwrap_or(0)..end.div_ceil(size.max(1));
        let mut gather = Gather::new(&self.datatype, size, reads, byte_offset, buf);
        self.segments(opener, shape, elements, missing, &mut |source, segment| gather.add(source, segment))?;
        gather.flush()
    }

    /// Visits the mapped parts of `elements` (row-major numbers in `shape`), in mapping order:
    /// where two overlap, the later one wins.
    ///
    /// Callers use it directly for types that only their own file can resolve (variable-length
    /// data, references).
    pub(crate) fn segments(
        &self,
        opener: &dyn SourceOpener,
        shape: &[u64],
        elements: Range<u64>,
        missing: MissingPolicy,
        visit: Visitor,
    ) -> Result<()> {
        if shape.len() != self.stored_dims.len() {
            return Err(corrupt("the extent has another rank than the virtual dataset"));
        }
        let whole = Selection::All.over(shape)?;
        let elements = elements.start..elements.end.min(whole.elements());
        if elements.is_empty() {
            return Ok(());
        }
        let (low, high) = bounding_box(&whole, &elements);
        let n = elements.end.saturating_sub(elements.start);
        let mut request = Request {
            opener,
            shape,
            elements,
            missing,
            opened: HashMap::new(),
            steps: Budget::new(n.saturating_mul(64).saturating_add(REQUEST_STEPS_MIN), STRUCTURE),
            mapped: Budget::new(n.saturating_mul(OVERLAP_MAX), STRUCTURE),
        };
        for i in self.index.find(&low, &high) {
            let (Some(mapping), Some(blocks)) = (self.mappings.get(i as usize), self.blocks.get(i as usize)) else { continue };
            match &mapping.kind {
                Kind::Fixed => request.map(mapping, 0, &mapping.virtual_, &|_| Ok(None), visit)?,
                Kind::Growing { virtual_dim, virtual_slab, source_dim, source_slab } => {
                    let dim = |shape: &[u64], d: usize| shape.get(d).copied().unwrap_or(0);
                    let virtual_slices = virtual_slab.over(dim(shape, *virtual_dim)).len();
                    let clip = |source: &[u64]| Ok(Some(source_slab.over(dim(source, *source_dim)).len().min(virtual_slices)));
                    request.map(mapping, 0, &mapping.virtual_, &clip, visit)?;
                }
                Kind::Printf { dim, slab } => {
                    let (low, high) = (low.get(*dim).copied().unwrap_or(0), high.get(*dim).copied().unwrap_or(0));
                    for k in slab.block_from(low)..blocks.load(Ordering::Relaxed) {
                        let near = slab.nth_block(k).is_some_and(|b| b.start <= high);
                        let Some(virtual_) = mapping.virtual_.unlimited_block(k).filter(|_| near) else { break };
                        request.map(mapping, k, &virtual_, &|_| Ok(None), visit)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The smallest box that contains a range of linear numbers.
fn bounding_box(view: &View, elements: &Range<u64>) -> (Vec<u64>, Vec<u64>) {
    let mut low = view.coordinates(elements.start);
    let mut high = view.coordinates(elements.end.saturating_sub(1));
    let mut same = true;
    for ((low, high), &n) in low.iter_mut().zip(high.iter_mut()).zip(view.shape()) {
        if same {
            same = low == high;
        } else {
            (*low, *high) = (0, n.saturating_sub(1));
        }
    }
    (low, high)
}

/// True if the view contains an element of the range.
fn intersects(view: &View, elements: &Range<u64>, steps: &Budget) -> Result<bool> {
    let mut hit = false;
    let end = view.runs_within(elements.clone(), steps, &mut |_| {
        hit = true;
        Err(corrupt("stop"))
    });
    if hit { Ok(true) } else { end.map(|()| false) }
}

impl Request<'_> {
    /// Opens the source of block `number` of a mapping.
    fn open(&mut self, mapping: &Mapping, number: u64) -> Result<Option<Arc<dyn Source>>> {
        let key = (mapping.file.name(number), mapping.dataset.name(number));
        if let Some(known) = self.opened.get(&key) {
            return Ok(known.clone());
        }
        let source = self.opener.open(&key.0, &key.1)?;
        if source.is_none() && self.missing == MissingPolicy::Error {
            return Err(self.opener.missing(&key.0, &key.1));
        }
        self.opened.insert(key, source.clone());
        Ok(source)
    }

    /// Visits the elements that map from `virtual_` to the mapping's source selection.
    ///
    /// `slices` computes the number of slices in an unlimited dimension from the source's shape.
    fn map(
        &mut self,
        mapping: &Mapping,
        number: u64,
        virtual_: &Selection,
        slices: &dyn Fn(&[u64]) -> Result<Option<u64>>,
        visit: Visitor,
    ) -> Result<()> {
        self.steps.spend(1)?;
        if !intersects(&virtual_.over(self.shape)?, &self.elements, &self.steps)? {
            return Ok(());
        }
        let Some(source) = self.open(mapping, number)? else { return Ok(()) };
        let shape = source.shape();
        let clipped = slices(&shape)?.map(|n| (virtual_.first_slices(n), mapping.source.first_slices(n)));
        let (virtual_, selection) = clipped.as_ref().map_or((virtual_, &mapping.source), |(v, s)| (v, s));
        let (from, to) = (virtual_.over(self.shape)?, selection.over(&shape)?);
        if from.count() != to.count() {
            return Err(corrupt(format!("{} elements are mapped to {} of the source", from.count(), to.count())));
        }
        from.runs_within(self.elements.clone(), &self.steps, &mut |run| {
            self.mapped.spend(run.len)?;
            to.by_ordinal_within(run.ordinal..run.ordinal.saturating_add(run.len), &self.steps, &mut |part| {
                let virtual_element = run.linear.saturating_add(part.ordinal.saturating_sub(run.ordinal));
                visit(&source, Segment { virtual_element, source_element: part.linear, len: part.len })
            })
        })
    }
}
