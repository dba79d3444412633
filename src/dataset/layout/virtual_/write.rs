//! Writes a virtual dataset: finds where the elements of a range are, and converts numbers.
//!
//! Source: H5Dvirtual.c (`H5D__virtual_write`). There, too, a write to elements without a source
//! fails before anything is written, and an element that several mappings have goes to all their
//! sources.

use super::convert::Transfer;
use super::dataset::{Segment, Source, SourceOpener, VirtualDataset};
use super::read::MissingPolicy;
use crate::base::selection::Selection;
use crate::base::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of elements that are converted at once.
const CONVERTED_BYTES: usize = 1 << 16;

/// Called with a source, and bytes to be written at an offset of it.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&Arc<dyn Source>, u64, &[u8]) -> Result<()>;

/// Bytes to be written to a virtual dataset.
pub(crate) struct NewBytes<'b> {
    /// Offset of the first one.
    pub(crate) offset: u64,
    /// They.
    pub(crate) bytes: &'b [u8],
    /// The whole elements that they are a part of, with the bytes around them.
    pub(crate) elements: Cow<'b, [u8]>,
}

impl VirtualDataset {
    /// The numbers of the elements that `len` bytes from `offset` are a part of.
    pub(super) fn elements_of(&self, offset: u64, len: u64) -> Range<u64> {
        let size = self.element_size.max(1);
        offset / size..offset.saturating_add(len).div_ceil(size)
    }

    /// Visits the sources of `elements` with the range of bytes that each part has. Errors:
    /// `EPERM`, an element has no source; `EOPNOTSUPP`, a source of a type without conversion.
    pub(super) fn check_covered(
        &self,
        opener: &dyn SourceOpener,
        shape: &[u64],
        elements: Range<u64>,
        visit: &mut dyn FnMut(&Arc<dyn Source>, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let index = |element: u64| usize::try_from(element.saturating_sub(elements.start)).unwrap_or(usize::MAX);
        let mut covered = vec![false; index(elements.end)];
        let mut known: Option<Arc<dyn Source>> = None;
        self.segments(opener, shape, elements.clone(), MissingPolicy::Error, &mut |source, s| {
            if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, source)) {
                self.transfer(source)?;
                known = Some(source.clone());
            }
            let part = index(s.virtual_element)..index(s.virtual_element.saturating_add(s.len));
            covered.get_mut(part).unwrap_or_default().fill(true);
            let size = source.element_size();
            let start = s.source_element.saturating_mul(size);
            visit(source, start..start.saturating_add(s.len.saturating_mul(size)))
        })?;
        let Some(first) = covered.iter().position(|covered| !covered) else { return Ok(()) };
        let at = Selection::All.over(shape)?.coordinates(elements.start.saturating_add(first as u64));
        Err(Error::refused(libc::EPERM, format!("no source of the virtual dataset has its element {at:?}")))
    }

    /// Calls `put` with what each source gets of `new`, whose elements [`Self::check_covered`]
    /// found. Errors: `ERANGE`, a source has a type without one of the values.
    pub(super) fn write(&self, opener: &dyn SourceOpener, shape: &[u64], new: &NewBytes<'_>, put: Put<'_>) -> Result<()> {
        let elements = self.elements_of(new.offset, new.bytes.len() as u64);
        let first = elements.start;
        self.segments(opener, shape, elements, MissingPolicy::Error, &mut |source, s| match self.transfer(source)? {
            Transfer::Same => self.put_part(source, s, new, put),
            transfer => self.put_converted(source, s, transfer, (first, &new.elements), put),
        })
    }

    fn transfer(&self, source: &Arc<dyn Source>) -> Result<Transfer> {
        Transfer::new(&self.datatype, self.element_size, &source.datatype_bytes(), source.element_size())
            .map_err(|_| Error::refused(libc::EOPNOTSUPP, "a source of the virtual dataset has another datatype"))
    }

    /// True if elements of `source` are stored in another type.
    pub(super) fn converts(&self, source: &Arc<dyn Source>) -> Result<bool> {
        Ok(self.transfer(source)? != Transfer::Same)
    }

    /// Puts the bytes that the segment has, which need not be whole elements.
    fn put_part(&self, source: &Arc<dyn Source>, s: Segment, new: &NewBytes<'_>, put: Put<'_>) -> Result<()> {
        let size = self.element_size;
        let begin = s.virtual_element.saturating_mul(size);
        let start = begin.max(new.offset);
        let end = begin.saturating_add(s.len.saturating_mul(size)).min(new.offset.saturating_add(new.bytes.len() as u64));
        let at = |offset: u64| usize::try_from(offset.saturating_sub(new.offset)).unwrap_or(usize::MAX);
        let Some(bytes) = new.bytes.get(at(start)..at(end)).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        put(source, s.source_element.saturating_mul(size).saturating_add(start.saturating_sub(begin)), bytes)
    }

    /// Puts the elements of the segment in the type of the source. `(first, elements)`: number of
    /// the first of these elements.
    fn put_converted(
        &self,
        source: &Arc<dyn Source>,
        s: Segment,
        transfer: Transfer,
        (first, elements): (u64, &[u8]),
        put: Put<'_>,
    ) -> Result<()> {
        let size = usize::try_from(self.element_size).unwrap_or(usize::MAX);
        let start = usize::try_from(s.virtual_element.saturating_sub(first)).unwrap_or(usize::MAX).saturating_mul(size);
        let len = usize::try_from(s.len).unwrap_or(usize::MAX).saturating_mul(size);
        let values = elements.get(start..start.saturating_add(len)).unwrap_or_default();
        let per_piece = CONVERTED_BYTES.checked_div(size).unwrap_or(0).max(1);
        let mut to = s.source_element.saturating_mul(source.element_size());
        for values in values.chunks(per_piece.saturating_mul(size)) {
            let mut stored = Vec::with_capacity(values.len());
            for value in values.chunks_exact(size) {
                transfer.store(value, &mut stored)?;
            }
            put(source, to, &stored)?;
            to = to.saturating_add(stored.len() as u64);
        }
        Ok(())
    }
}
