//! Zeroes, allocates and copies ranges of datasets; stores chunks of other containers.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use super::super::portable::takes;
use super::Change;
use super::change_parts::DataChange;
use super::holes::Touched;
use crate::base::limits::IO_PIECE_BYTES as PIECE;
use crate::base::{Error, Result};
use crate::connector::stored::{ChunkStorage, StoredChunk, unlike};
use crate::connector::{Form, ObjectId, edit};
use crate::dataset::layout::{CopyUnit, Progress, Seek};
use std::ops::Range;

/// Zeros written by one operation, bytes.
const STEP_BYTES: u64 = 16 << 20;
/// Stored chunks copied by one operation.
const COPY_CHUNKS_MAX: u64 = 4096;
/// Bytes copied by one call.
const COPY_BYTES_MAX: u64 = 1 << 30;

impl NativeConnector {
    /// Runs operations on a dataset, each of which returns where the next one begins. This bounds
    /// the changes of one operation, which are in memory at once.
    pub(super) fn in_steps(&self, id: ObjectId, step: &dyn Fn(&Change<'_>, u64) -> Result<Option<u64>>) -> Result<()> {
        let mut next = Some(0);
        while let Some(at) = next {
            next = self.operate(&[id], |c| step(c, at))?;
        }
        Ok(())
    }
}

impl DataChange<'_> {
    /// Zeroes `range` of the dataset from byte `from` on; `punch`: makes elements of a sparse
    /// dataset undefined. Returns where the next step begins, if any is left.
    pub(super) fn zero(&self, id: ObjectId, range: Range<u64>, from: u64, punch: bool) -> Result<Option<u64>> {
        let d = self.change.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "variable-length elements cannot be zeroed as bytes"));
        }
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() {
            return Ok(None);
        }
        // A log knows, too, but zeros in it read as zeros, and are not stored if the fill value is.
        let knows = d.layout().definition().is_some() && d.layout().logged().is_none();
        if !punch {
            self.change.connector.holes().note_holes(id, d.bytes.size, Touched::Written(range.clone()))?;
        }
        if (if knows { punch } else { d.bytes.fill.is_zero() })
            && let Some(progress) = d.layout().zero(&self.change.operation(&d, &d.space), &range, from)?
        {
            let next = self.progressed(&d, progress)?;
            if punch && next.is_none() {
                self.change.connector.holes().note_holes(id, d.bytes.size, Touched::Punched(range))?;
            }
            return Ok(next);
        }
        let zeros = vec![0u8; PIECE];
        let (mut at, end) = (range.start.max(from), range.end);
        let stop = end.min(at.saturating_add(STEP_BYTES));
        while at < stop {
            let d = self.change.dataset(id)?;
            // Unwritten bytes are zeros and stay unwritten.
            if let (true, Some(hole)) = (d.bytes.fill.is_zero() && !knows, d.bytes.unwritten(at)?) {
                at = hole.max(at.saturating_add(1));
                continue;
            }
            let n = usize::try_from(stop.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            self.write(id, Form::Main, at, zeros.get(..n).unwrap_or_default())?;
            at = at.saturating_add(n as u64);
        }
        Ok((at < end).then_some(at))
    }

    /// Allocates storage for `range` of the dataset from byte `from` on. Returns where the next
    /// step begins, if any is left.
    pub(super) fn allocate(&self, id: ObjectId, range: Range<u64>, from: u64) -> Result<Option<u64>> {
        let d = self.change.writable_dataset(id)?;
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() || d.datatype.contains_vlen() {
            return Ok(None);
        }
        let progress = d.layout().allocate(&self.change.operation(&d, &d.space), &range, from)?;
        self.progressed(&d, progress)
    }

    /// Stores the result of one step over a range. Returns where the next step begins.
    pub(super) fn progressed(&self, d: &Dataset, progress: Progress) -> Result<Option<u64>> {
        if let Some(layout) = &progress.layout {
            self.set_layout(d, layout)?;
        }
        if progress.changed {
            self.change.changed(d.id);
            self.change.objects().touch(d.id)?;
        }
        Ok(progress.next)
    }

    /// Copies the first bytes of a range. Returns their number; 0 at the end of the source.
    fn copy(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        let (s, d) = (self.change.dataset(from.0)?, self.change.dataset_for_chunks(to.0)?);
        if s.datatype.contains_vlen() || d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "variable-length elements are not copied as bytes"));
        }
        let len = len.min(s.bytes.size.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        self.change.connector.holes().note_holes(to.0, d.bytes.size, Touched::Written(to.1..to.1.saturating_add(len)))?;
        let unit = d.layout().copy_unit(&d.bytes, &s.bytes).filter(|unit| from.1 % unit.bytes == to.1 % unit.bytes);
        let Some(CopyUnit { bytes: slab, chunks }) = unit else {
            return self.copy_bytes(&s, from.1, to, len);
        };
        let head = from.1 % slab;
        if head > 0 {
            return self.copy_bytes(&s, from.1, to, len.min(slab.saturating_sub(head)));
        }
        let (end, grown) = (to.1.saturating_add(len), d.bytes.size.max(to.1.saturating_add(len)));
        let whole = match len / slab {
            // Both datasets end with these rows.
            0 if len == s.bytes.size.saturating_sub(from.1) && grown == end => 1,
            0 => return self.copy_bytes(&s, from.1, to, len),
            n => n.min((COPY_CHUNKS_MAX / chunks).max(1)),
        };
        let n = whole.saturating_mul(slab).min(len);
        let end = to.1.saturating_add(n);
        if end > d.bytes.size {
            self.resize(&d, end)?;
        }
        let (s, d) = (self.change.dataset(from.0)?, self.change.dataset(to.0)?);
        if let Some(layout) = d.layout().copy_stored(&self.change.operation(&d, &d.space), &s.bytes, from.1 / slab, to.1 / slab, whole)? {
            self.set_layout(&d, &layout)?;
        }
        self.change.changed(d.id);
        self.change.objects().touch(d.id)?;
        Ok(n)
    }

    /// Copies about a piece of bytes. What is undefined in the source becomes so in the target, if
    /// both know that and it reads the same.
    fn copy_bytes(&self, s: &Dataset, at: u64, to: (ObjectId, u64), len: u64) -> Result<u64> {
        // Its filters may take stored chunks alone.
        let d = self.change.writable_dataset(to.0)?;
        let knows = |d: &Dataset| d.layout().definition().is_some();
        let size = d.element_size.max(1);
        let alike = s.element_size == d.element_size && s.bytes.fill == d.bytes.fill && at % size == to.1 % size;
        if !(knows(s) && knows(&d) && alike) {
            return self.copy_piece(s, at, to, len);
        }
        let end = at.saturating_add(len);
        let (mut from, mut copied) = (at, 0u64);
        while from < end && copied < PIECE as u64 {
            // A copy within one dataset changes it.
            let s = self.change.dataset(s.id)?;
            let env = &self.change.connector.options.environment;
            let seek = |what| Ok::<_, Error>(s.layout().seek(&s.bytes, env, from, what)?.unwrap_or(end).min(end));
            let target = (to.0, to.1.saturating_add(from.saturating_sub(at)));
            let data = seek(Seek::Data)?;
            let n = if data > from {
                self.leave_undefined(&s, from, target, data.saturating_sub(from))?
            } else {
                let n = self.copy_piece(&s, from, target, seek(Seek::Hole)?.saturating_sub(from))?;
                copied = copied.saturating_add(n);
                n
            };
            if n == 0 {
                break;
            }
            from = from.saturating_add(n);
        }
        Ok(from.saturating_sub(at))
    }

    fn copy_piece(&self, s: &Dataset, at: u64, to: (ObjectId, u64), len: u64) -> Result<u64> {
        let mut piece = vec![0; usize::try_from(len).unwrap_or(PIECE).min(PIECE)];
        let n = s.bytes.read(&self.change.connector.options.environment, at, &mut piece)?;
        self.write_elements(to.0, to.1, piece.get(..n).unwrap_or_default())?;
        Ok(n as u64)
    }

    /// Makes whole elements of the target undefined, and copies bytes of parts. Returns the number
    /// of bytes that it did first.
    fn leave_undefined(&self, s: &Dataset, at: u64, to: (ObjectId, u64), len: u64) -> Result<u64> {
        let d = self.change.dataset(to.0)?;
        let size = d.element_size.max(1);
        let (end, within) = (to.1.saturating_add(len), to.1 % size);
        if within > 0 || len < size {
            return self.copy_piece(s, at, to, len.min(size.saturating_sub(within)));
        }
        let end = end.saturating_sub(end % size);
        if end > d.bytes.size {
            self.resize(&d, end)?;
        }
        self.erase_bytes(to.0, to.1..end)?;
        self.change.dirty_chunks().flush_if_many(to.0)?;
        self.change.objects().touch(to.0)?;
        Ok(end.saturating_sub(to.1))
    }

    /// Stores chunks of another container as they are.
    pub(super) fn store_chunks(&self, id: ObjectId, storage: &ChunkStorage, chunks: &[StoredChunk]) -> Result<()> {
        let d = self.change.dataset_for_chunks(id)?;
        let stored = d.layout().stored_chunks().filter(|_| takes(&d, storage)).ok_or_else(unlike)?;
        chunks.iter().try_for_each(|chunk| storage.check(&chunk.bytes))?;
        self.change.connector.holes().note_holes(id, d.bytes.size, Touched::Written(0..d.bytes.size))?;
        let chunks: Vec<_> = chunks.iter().map(|c| (c.scaled.as_slice(), c.mask, c.bytes.as_slice())).collect();
        if let Some(layout) = stored.store_portable(&self.change.operation(&d, &d.space), &chunks)? {
            self.set_layout(&d, &layout)?;
        }
        self.change.changed(id);
        self.change.objects().touch(id)
    }
}

impl NativeConnector {
    /// Copies a range of bytes, a part of it in each operation.
    pub(super) fn copy_steps(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        let len = len.min(COPY_BYTES_MAX);
        if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
            return Err(Error::refused(libc::EINVAL, "the ranges overlap"));
        }
        let mut done = 0u64;
        while done < len {
            let on = |(id, at): (ObjectId, u64)| (id, at.saturating_add(done));
            let step = self.change(&[from.0, to.0]).and_then(|change| {
                // Copies of stored chunks do not contain dirty ones.
                change.dirty_chunks().flush_dataset(from.0)?;
                let n = change.atomically_reserved(|| change.data().copy(on(from), on(to), len.saturating_sub(done)))?;
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

impl edit::Allocate for NativeConnector {
    fn allocate(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.new_files().suit_size(id, offset.saturating_add(len));
        self.in_steps(id, &|c, at| c.data().allocate(id, offset..offset.saturating_add(len), at))
    }
}

impl edit::CopyRange for NativeConnector {
    fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        if self.holds_references(to.0)? {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are written one by one"));
        }
        if self.other_files().leads_elsewhere(to.0)? {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements of other files are written one by one"));
        }
        self.new_files().suit_copy(from, to, len);
        self.copy_steps(from, to, len)
    }
}
