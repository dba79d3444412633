//! Reading a virtual dataset: which elements of which sources a range needs, and fetching them.
//!
//! ```text
//! linear numbers --virtual selection--> ordinals --source selection--> linear numbers of the source
//! ```
//!
//! Source: H5Dvirtual.c (`H5D__virtual_init_all`, `H5D__virtual_pre_io`, `H5D__virtual_read`). Where
//! libhdf5 reads beyond a source that shrank (its result is undefined), the fill value shows here.

use super::convert::Gather;
use super::mapping::{Kind, Mapping, STRUCTURE, corrupt};
use super::{Source, SourceOpener, VirtualDataset};
use crate::base::budget::Budget;
use crate::base::selection::Selection;
use crate::base::view::View;
use crate::base::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Steps of one request, beside those that its size allows.
const STEPS: u64 = 1 << 24;
/// Mappings that may map one element, on the average of a request.
const OVERLAP_MAX: u64 = 256;

/// What a missing source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPolicy {
    /// [`Error::Missing`] for reads that need it.
    Error,
    /// Fill values, as libhdf5 has it.
    Fill,
}

/// Elements of the virtual dataset and where in a source they are. Unit: elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Row-major number in the virtual dataset.
    pub virtual_element: u64,
    /// Row-major number in the source.
    pub source_element: u64,
    /// Number of elements.
    pub len: u64,
}

/// Receives segments.
pub type Visitor<'v> = &'v mut dyn FnMut(&Arc<dyn Source>, Segment) -> Result<()>;

/// File and dataset.
type Names = (Arc<[u8]>, Arc<[u8]>);

/// One request.
struct Request<'r> {
    opener: &'r dyn SourceOpener,
    shape: &'r [u64],
    elements: Range<u64>,
    missing: MissingPolicy,
    /// Sources by name, opened for this request.
    opened: HashMap<Names, Option<Arc<dyn Source>>>,
    /// Steps of all searches.
    steps: Budget,
    /// Elements that mappings may map; more is heaps of mappings one upon the other.
    mapped: Budget,
}

impl VirtualDataset {
    /// Fills `buf` with raw data from `byte_offset` on, of the row-major extent `shape`
    /// ([`VirtualDataset::extent`]): fill values where nothing is mapped.
    pub fn read(&self, opener: &dyn SourceOpener, shape: &[u64], byte_offset: u64, buf: &mut [u8], missing: MissingPolicy) -> Result<()> {
        let size = self.element_size;
        let end = byte_offset.checked_add(buf.len() as u64).ok_or_else(|| corrupt("a range past 2^64"))?;
        let phase = byte_offset.checked_rem(size).unwrap_or(0) as usize;
        for (b, f) in buf.iter_mut().zip(self.fill.iter().cycle().skip(phase)) {
            *b = *f;
        }
        let elements = byte_offset.checked_div(size).unwrap_or(0)..end.div_ceil(size.max(1));
        let mut gather = Gather::new(&self.datatype, size, byte_offset, buf);
        self.segments(opener, shape, elements, missing, &mut |source, segment| gather.add(source, segment))?;
        gather.flush()
    }

    /// Visits the parts of `elements` (row-major numbers in `shape`) that a source has, mapping after
    /// mapping: where two overlap the later one shows. For element types that only their own file
    /// can resolve (variable-length data, references).
    pub fn segments(
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
        let (low, high) = around(&whole, &elements);
        let n = elements.end.saturating_sub(elements.start);
        let mut request = Request {
            opener,
            shape,
            elements,
            missing,
            opened: HashMap::new(),
            steps: Budget::new(n.saturating_mul(64).saturating_add(STEPS), STRUCTURE),
            mapped: Budget::new(n.saturating_mul(OVERLAP_MAX), STRUCTURE),
        };
        for i in self.index.find(&low, &high) {
            let (Some(mapping), Some(blocks)) = (self.mappings.get(i as usize), self.blocks.get(i as usize)) else { continue };
            match &mapping.kind {
                Kind::Fixed => request.map(mapping, 0, &mapping.virtual_, &|_| Ok(None), visit)?,
                Kind::Growing { virtual_dim, virtual_slab, source_dim, source_slab } => {
                    let dim = |shape: &[u64], d: usize| shape.get(d).copied().unwrap_or(0);
                    let there = virtual_slab.over(dim(shape, *virtual_dim)).len();
                    let clip = |source: &[u64]| Ok(Some(source_slab.over(dim(source, *source_dim)).len().min(there)));
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

/// The smallest box around a range of linear numbers.
fn around(view: &View, elements: &Range<u64>) -> (Vec<u64>, Vec<u64>) {
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

/// True if the view has an element in the range.
fn touches(view: &View, elements: &Range<u64>, steps: &Budget) -> Result<bool> {
    let mut hit = false;
    let end = view.runs_within(elements.clone(), steps, &mut |_| {
        hit = true;
        Err(corrupt("stop"))
    });
    if hit { Ok(true) } else { end.map(|()| false) }
}

impl Request<'_> {
    /// The source of block `number` of a mapping.
    fn open(&mut self, mapping: &Mapping, number: u64) -> Result<Option<Arc<dyn Source>>> {
        let key = (mapping.file.name(number), mapping.dataset.name(number));
        if let Some(known) = self.opened.get(&key) {
            return Ok(known.clone());
        }
        let source = self.opener.open(&key.0, &key.1)?;
        if source.is_none() && self.missing == MissingPolicy::Error {
            let (file, dataset) = (String::from_utf8_lossy(&key.0), String::from_utf8_lossy(&key.1));
            let name = format!("{file}:{dataset}");
            return Err(Error::Missing { what: "virtual dataset source", name, reason: "no such file or dataset".into() });
        }
        self.opened.insert(key, source.clone());
        Ok(source)
    }

    /// Visits what `virtual_` and the mapping's source selection say. `slices` tells from the source's
    /// shape how many slices of an unlimited dimension both have.
    fn map(
        &mut self,
        mapping: &Mapping,
        number: u64,
        virtual_: &Selection,
        slices: &dyn Fn(&[u64]) -> Result<Option<u64>>,
        visit: Visitor,
    ) -> Result<()> {
        self.steps.spend(1)?;
        if !touches(&virtual_.over(self.shape)?, &self.elements, &self.steps)? {
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
