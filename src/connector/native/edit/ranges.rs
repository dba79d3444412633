//! Ranges of datasets: zeroing, allocating, copying.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use super::Change;
use super::data::PIECE;
use crate::base::{Error, Result};
use crate::connector::{Form, ObjectId};
use crate::dataset::ranges::Progress;
use crate::dataset::storage::Storage;
use crate::format::message::data_layout::DataLayout;
use std::ops::Range;
use std::sync::Arc;

/// Bytes zeroed by writing in one operation.
const STEP: u64 = 16 << 20;
/// Chunks copied as they are stored by one operation, and bytes copied by one call.
const CHUNKS_MAX: u64 = 4096;
const COPY_MAX: u64 = 1 << 30;

impl Change<'_> {
    /// Zeroes bytes within the dataset's size, from a place on that an earlier call told; returns the next one.
    pub(super) fn zero(&self, id: ObjectId, range: Range<u64>, from: u64) -> Result<Option<u64>> {
        let d = self.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "there is nothing to be zeroed in lines"));
        }
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() {
            return Ok(None);
        }
        if d.chunked().is_some() && d.bytes.fill.is_zero() {
            return self.in_chunks(&d, |layout, d| self.chunks(d).writer(self)?.zero(layout, &range, from));
        }
        let zeros = vec![0u8; PIECE];
        let (mut at, end) = (range.start.max(from), range.end);
        let stop = end.min(at.saturating_add(STEP));
        while at < stop {
            let d = self.dataset(id)?;
            // What was never written and reads as zeros stays so.
            if let (true, Some(hole)) = (d.bytes.fill.is_zero(), d.bytes.unwritten(at)?) {
                at = hole.max(at.saturating_add(1));
                continue;
            }
            let n = usize::try_from(stop.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            self.write(id, Form::Main, at, zeros.get(..n).unwrap_or_default())?;
            at = at.saturating_add(n as u64);
        }
        Ok((at < end).then_some(at))
    }

    /// Allocates storage for bytes within the dataset's size, from a place on that an earlier call told; returns the next one.
    pub(super) fn allocate(&self, id: ObjectId, range: Range<u64>, from: u64) -> Result<Option<u64>> {
        let d = self.writable_dataset(id)?;
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() || d.datatype.contains_vlen() {
            return Ok(None);
        }
        match &d.bytes.storage {
            Storage::Contiguous(address) if !address.is_defined() => {
                self.allocate_contiguous(&d, (0, 0), true)?;
                self.touch(id)?;
                Ok(None)
            }
            Storage::Chunked(_) => self.in_chunks(&d, |layout, d| self.chunks(d).writer(self)?.allocate(layout, &range, from)),
            Storage::Compact(_) | Storage::Contiguous(_) => Ok(None),
            Storage::External(_) | Storage::Virtual(_) => {
                Err(Error::refused(libc::EOPNOTSUPP, "the dataset's elements lie elsewhere: nothing is allocated for them"))
            }
        }
    }

    /// Changes which chunks a dataset has.
    fn in_chunks(&self, d: &Arc<Dataset>, f: impl FnOnce(&mut DataLayout, &Arc<Dataset>) -> Result<Progress>) -> Result<Option<u64>> {
        let mut layout = d.layout.clone();
        let progress = f(&mut layout, d)?;
        if progress.layout {
            self.set_layout(d, &layout)?;
        }
        self.changed(d.id);
        self.touch(d.id)?;
        Ok(progress.next)
    }
}

/// How the bytes of two datasets correspond whose chunks can be copied as they are stored.
struct Alike {
    /// Bytes of the rows that one row of chunks covers, and the chunks in it.
    slab: u64,
    chunks: u64,
}

/// True where a chunk of one dataset can be one of the other.
fn alike(s: &Dataset, d: &Dataset) -> Option<Alike> {
    let (a, b) = (s.chunked()?, d.chunked()?);
    let (la, lb) = (s.chunked_layout()?, d.chunked_layout()?);
    let filters = |d: &Dataset| d.pipeline.filters.iter().map(|f| (f.id, f.cd_values.clone())).collect::<Vec<_>>();
    let inner = |d: &Dataset| d.space.dims.get(1..).map(<[u64]>::to_vec);
    let same = s.element_size == d.element_size
        && la.chunk_dims == lb.chunk_dims
        && inner(s) == inner(d)
        && filters(s) == filters(d)
        && a.raw_edges == b.raw_edges
        && s.bytes.fill == d.bytes.fill
        && !a.is_implicit
        && !b.is_implicit;
    let row = inner(d)?.iter().try_fold(d.element_size, |n, d| n.checked_mul(*d))?;
    let slab = row.checked_mul(*lb.chunk_dims.first()?)?;
    let chunks = b.grid.counts().iter().skip(1).product::<u64>();
    (same && slab > 0 && chunks > 0).then_some(Alike { slab, chunks })
}

impl Change<'_> {
    /// Copies the first bytes of a range; returns how many, none at the end of the source.
    fn copy(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        let (s, d) = (self.dataset(from.0)?, self.writable_dataset(to.0)?);
        if s.datatype.contains_vlen() || d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "variable-length elements are not copied as bytes"));
        }
        let len = len.min(s.bytes.size.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        let Some(Alike { slab, chunks }) = alike(&s, &d).filter(|a| from.1 % a.slab == to.1 % a.slab) else {
            return self.copy_bytes(&s, from.1, to, len);
        };
        let head = from.1 % slab;
        if head > 0 {
            return self.copy_bytes(&s, from.1, to, len.min(slab.saturating_sub(head)));
        }
        let (end, grown) = (to.1.saturating_add(len), d.bytes.size.max(to.1.saturating_add(len)));
        let whole = match len / slab {
            // Both end with these rows.
            0 if len == s.bytes.size.saturating_sub(from.1) && grown == end => 1,
            0 => return self.copy_bytes(&s, from.1, to, len),
            n => n.min((CHUNKS_MAX / chunks).max(1)),
        };
        let n = whole.saturating_mul(slab).min(len);
        let end = to.1.saturating_add(n);
        if end > d.bytes.size {
            self.resize(&d, end)?;
        }
        let (s, d) = (self.dataset(from.0)?, self.dataset(to.0)?);
        let source = s.chunked().ok_or_else(|| s.object.lacks("chunked layout"))?;
        let first = (from.1 / slab).saturating_mul(chunks);
        let numbers = first..first.saturating_add(whole.saturating_mul(chunks));
        let mut layout = d.layout.clone();
        if self.chunks(&d).writer(self)?.adopt(&mut layout, source, numbers, (to.1 / slab).saturating_mul(chunks))? {
            self.set_layout(&d, &layout)?;
        }
        self.changed(d.id);
        self.touch(d.id)?;
        Ok(n)
    }

    fn copy_bytes(&self, s: &Dataset, at: u64, to: (ObjectId, u64), len: u64) -> Result<u64> {
        let mut piece = vec![0; usize::try_from(len).unwrap_or(PIECE).min(PIECE)];
        let n = s.bytes.read(&self.connector.options.environment, at, &mut piece)?;
        self.write_elements(to.0, to.1, piece.get(..n).unwrap_or_default())?;
        Ok(n as u64)
    }
}

impl NativeConnector {
    /// Copies a range; see [`crate::connector::edit::Edit::copy_range`].
    pub(super) fn copy_steps(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        let len = len.min(COPY_MAX);
        if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
            return Err(Error::refused(libc::EINVAL, "the ranges overlap"));
        }
        let mut done = 0u64;
        while done < len {
            let on = |(id, at): (ObjectId, u64)| (id, at.saturating_add(done));
            let step = self.change(&[from.0, to.0]).and_then(|change| {
                // What is copied as it is stored must be stored.
                change.flush_dataset(from.0)?;
                let n = change.atomically(|| change.copy(on(from), on(to), len.saturating_sub(done)))?;
                change.settle().map(|()| n)
            });
            match step {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
