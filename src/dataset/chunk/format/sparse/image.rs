//! A sparse chunk in memory: which elements are defined, and the pages that have any.

use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result};
use crate::base::{buffers, limits};
use crate::dataset::chunk::format::parts::Parts;
use crate::dataset::chunk::image::{ChunkImage, Image};
use crate::dataset::fill::FillPattern;
use crate::filter::deflate_zeros::{Run, push, push_zeros};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Memory of a page besides its bytes, and of a block of the set.
const OVERHEAD_BYTES: u64 = 64;

type Page = Arc<[u8; PAGE_BYTES]>;

/// What all chunks of a dataset have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Dimensions of a chunk, elements.
    pub(super) dims: Vec<u64>,
    /// Bytes of an element, not 0.
    pub(super) element_size: u64,
    /// Value of undefined elements.
    pub(super) fill: FillPattern,
}

impl Geometry {
    /// The chunks of a dataset.
    pub(super) fn of(parts: &Parts<'_>) -> Self {
        Geometry { dims: parts.chunk_dims.to_vec(), element_size: parts.element_size.max(1), fill: parts.fill.clone() }
    }

    /// Elements of a chunk.
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d))
    }

    /// Bytes of a chunk's elements.
    pub(super) fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element_size)
    }

    /// The elements of which `bytes` has at least one.
    fn touched(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.element_size..bytes.end.div_ceil(self.element_size)
    }

    /// The elements that lie in `bytes` as a whole.
    fn covered(&self, bytes: &Range<u64>) -> Range<u64> {
        let first = bytes.start.div_ceil(self.element_size);
        first..(bytes.end / self.element_size).max(first)
    }

    /// The bytes of `elements`.
    pub(super) fn bytes_of(&self, elements: &Range<u64>) -> Range<u64> {
        elements.start.saturating_mul(self.element_size)..elements.end.saturating_mul(self.element_size)
    }
}

/// A decoded sparse chunk. Bytes of undefined elements have the fill value.
#[derive(Debug, Clone)]
pub(super) struct SparseImage {
    geometry: Arc<Geometry>,
    defined: ElementSet,
    /// Pages by number; those without a defined element may be missing.
    pages: BTreeMap<u64, Page>,
}

/// The parts of `bytes` in each page: page number, range in it.
fn in_pages(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let size = PAGE_BYTES as u64;
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        let page = at / size;
        let end = page.saturating_add(1).saturating_mul(size).min(bytes.end);
        let part = (at % size) as usize..(end.saturating_sub(page.saturating_mul(size))) as usize;
        let more = at < bytes.end;
        at = end;
        more.then_some((page, part))
    })
}

impl SparseImage {
    /// The image of a chunk of this format.
    pub(super) fn of(image: Image) -> Result<Box<SparseImage>> {
        let other = |_| Error::corrupt("chunk", Address::UNDEF, "the decoded chunk is not sparse");
        (image as Box<dyn Any>).downcast().map_err(other)
    }

    /// A chunk without defined elements.
    pub(super) fn blank(geometry: &Arc<Geometry>) -> Self {
        SparseImage { geometry: geometry.clone(), defined: ElementSet::default(), pages: BTreeMap::new() }
    }

    /// A chunk of `dense` elements, of which `defined` are defined.
    pub(super) fn of_dense(geometry: &Arc<Geometry>, defined: ElementSet, dense: &[u8]) -> Self {
        let mut image = SparseImage { geometry: geometry.clone(), defined: ElementSet::default(), pages: BTreeMap::new() };
        let page_elements = |n: usize| {
            let start = (n as u64).saturating_mul(PAGE_BYTES as u64);
            image.geometry.touched(&(start..start.saturating_add(PAGE_BYTES as u64)))
        };
        let mut pages = BTreeMap::new();
        for (n, bytes) in dense.chunks(PAGE_BYTES).enumerate() {
            let elements = page_elements(n);
            if defined.next_element(&geometry.dims, elements.start).is_some_and(|e| e < elements.end) {
                let mut page = [0; PAGE_BYTES];
                page.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                pages.insert(n as u64, Arc::new(page));
            }
        }
        (image.defined, image.pages) = (defined, pages);
        image
    }

    /// The defined elements.
    pub(super) fn set(&self) -> &ElementSet {
        &self.defined
    }

    /// Replaces the set of defined elements; the pages have their values.
    pub(super) fn define(&mut self, defined: ElementSet) {
        self.defined = defined;
    }

    /// Writes bytes without defining elements. `None`: out of range.
    pub(super) fn put(&mut self, at: u64, mut bytes: &[u8]) -> Option<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.geometry.bytes())?;
        for (page, part) in in_pages(at..end) {
            let (head, tail) = bytes.split_at_checked(part.len())?;
            self.page(page).get_mut(part)?.copy_from_slice(head);
            bytes = tail;
        }
        Some(())
    }

    /// A page to be changed.
    fn page(&mut self, number: u64) -> &mut [u8; PAGE_BYTES] {
        let fill = &self.geometry.fill;
        let page = self.pages.entry(number).or_insert_with(|| {
            let mut page = [0; PAGE_BYTES];
            if !fill.is_zero() {
                fill.fill(number.saturating_mul(PAGE_BYTES as u64), &mut page);
            }
            Arc::new(page)
        });
        Arc::make_mut(page)
    }

    /// Appends the bytes from `at` to `out`.
    pub(super) fn append(&self, bytes: Range<u64>, out: &mut Vec<u8>) {
        for (page, part) in in_pages(bytes) {
            match self.pages.get(&page) {
                Some(page) => out.extend_from_slice(page.get(part).unwrap_or_default()),
                None => {
                    let at = page.saturating_mul(PAGE_BYTES as u64).saturating_add(part.start as u64);
                    let from = out.len();
                    out.resize(from.saturating_add(part.len()), 0);
                    self.geometry.fill.fill(at, out.get_mut(from..).unwrap_or_default());
                }
            }
        }
    }

    /// All elements, row-major, as data and zeros. `None`: the fill value is not zero, or the chunk
    /// is above the limit for chunks.
    pub(super) fn runs(&self) -> Option<Vec<Run<'_>>> {
        if !self.geometry.fill.is_zero() || self.geometry.bytes() > limits::CHUNK_BYTES_MAX {
            return None;
        }
        let (mut runs, mut at, end) = (Vec::new(), 0u64, self.geometry.bytes());
        let zeros = |runs: &mut Vec<Run<'_>>, range: Range<u64>| {
            push_zeros(runs, usize::try_from(range.end.saturating_sub(range.start)).ok()?);
            Some(())
        };
        for (number, page) in &self.pages {
            let start = number.saturating_mul(PAGE_BYTES as u64);
            let len = usize::try_from(end.checked_sub(start)?).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
            if at < start {
                zeros(&mut runs, at..start)?;
            }
            push(&mut runs, page.get(..len)?);
            at = start.saturating_add(len as u64);
        }
        if at < end {
            zeros(&mut runs, at..end)?;
        }
        Some(runs)
    }

    /// All elements, row-major. Errors: the chunk is above the limit for chunks.
    pub(super) fn to_dense(&self) -> Result<Vec<u8>> {
        let bytes = self.geometry.bytes();
        let len = usize::try_from(bytes).ok().filter(|_| bytes <= limits::CHUNK_BYTES_MAX);
        let len = len.ok_or_else(|| Error::limit("chunk", Address::UNDEF, format!("{bytes} bytes in one chunk")))?;
        let mut out = buffers::empty(len, len.saturating_add(len / 16));
        out.try_reserve_exact(len).map_err(|_| Error::limit("chunk", Address::UNDEF, "no memory for its elements"))?;
        self.append(0..bytes, &mut out);
        Ok(out)
    }

    /// Bytes of the part at `at` of length `len`, clipped to the chunk.
    fn range(&self, at: u64, len: u64) -> Range<u64> {
        at..at.saturating_add(len).min(self.geometry.bytes()).max(at)
    }

    /// Makes the elements undefined that lie in `bytes` as a whole; defined ones at its ends get
    /// zeros there.
    fn erase(&mut self, bytes: Range<u64>) {
        let covered = self.geometry.covered(&bytes);
        for end in [self.geometry.touched(&bytes).start, bytes.end / self.geometry.element_size] {
            let element = end..end.saturating_add(1);
            let own = self.geometry.bytes_of(&element);
            let cut = own.start.max(bytes.start)..own.end.min(bytes.end);
            if cut.start < cut.end && !covered.contains(&end) && self.is_defined(end) {
                let zeros = vec![0; usize::try_from(cut.end.saturating_sub(cut.start)).unwrap_or(0)];
                self.put(cut.start, &zeros);
            }
        }
        if self.defined.next_element(&self.geometry.dims, covered.start).is_none_or(|e| e >= covered.end) {
            return;
        }
        let geometry = self.geometry.clone();
        let whole = geometry.bytes_of(&covered);
        // The set of a chunk stays small enough when elements are removed from it.
        if self.defined.remove_run(&geometry.dims, &covered).is_err() {
            return;
        }
        for (page, part) in in_pages(whole) {
            let start = page.saturating_mul(PAGE_BYTES as u64);
            if part.len() == PAGE_BYTES {
                self.pages.remove(&page);
            } else if let Some(page) = self.pages.get_mut(&page) {
                let at = start.saturating_add(part.start as u64);
                geometry.fill.fill(at, Arc::make_mut(page).get_mut(part).unwrap_or_default());
            }
        }
    }

    fn is_defined(&self, element: u64) -> bool {
        self.defined.next_element(&self.geometry.dims, element) == Some(element)
    }
}

impl ChunkImage for SparseImage {
    fn element_bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    fn memory(&self) -> u64 {
        let pages = (self.pages.len() as u64).saturating_mul((PAGE_BYTES as u64).saturating_add(OVERHEAD_BYTES));
        pages.saturating_add(self.defined.blocks().saturating_mul(OVERHEAD_BYTES))
    }

    fn read(&self, at: u64, mut buf: &mut [u8]) -> Option<()> {
        let end = at.checked_add(buf.len() as u64).filter(|end| *end <= self.geometry.bytes())?;
        for (number, part) in in_pages(at..end) {
            let (head, tail) = buf.split_at_mut_checked(part.len())?;
            match self.pages.get(&number) {
                Some(page) => head.copy_from_slice(page.get(part)?),
                None => self.geometry.fill.fill(number.saturating_mul(PAGE_BYTES as u64).saturating_add(part.start as u64), head),
            }
            buf = tail;
        }
        Some(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        self.put(at, bytes)?;
        let geometry = self.geometry.clone();
        let elements = geometry.touched(&(at..at.saturating_add(bytes.len() as u64)));
        self.defined.insert_run(&geometry.dims, &elements).ok()
    }

    fn is_blank(&self, parts: &[(usize, usize)]) -> bool {
        let none = |(at, len): &(usize, usize)| {
            let elements = self.geometry.touched(&self.range(*at as u64, *len as u64));
            self.defined.next_element(&self.geometry.dims, elements.start).is_none_or(|e| e >= elements.end)
        };
        parts.iter().all(none)
    }

    fn clear(&mut self, parts: &[(usize, usize)]) {
        for (at, len) in parts {
            self.erase(self.range(*at as u64, *len as u64));
        }
    }

    fn fill(&mut self, range: Range<u64>, _fill: &FillPattern) {
        self.erase(self.range(range.start, range.end.saturating_sub(range.start)));
    }

    fn duplicate(&self) -> Image {
        Box::new(self.clone())
    }

    fn defined(&self) -> Option<&ElementSet> {
        Some(&self.defined)
    }

    fn dense(&self) -> Option<&[u8]> {
        None
    }

    fn into_dense(self: Box<Self>) -> Option<Vec<u8>> {
        None
    }
}
