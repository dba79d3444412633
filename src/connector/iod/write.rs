//! Writing elements: chunks are changed in memory, and encoded by a commit or when many are there.

use super::dataset::Dataset;
use super::image::{Body, Change, out_of_range};
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::datatype::References;
use crate::base::{Error, Result};
use crate::dataset::chunk::image::ChunkImage;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::iod::{Key, Ranges};
use std::sync::Arc;

/// Bytes that are zeroed at a time.
const ZEROED_BYTES: usize = 1 << 20;

/// Offsets in a chunk of `d`, and lengths, of the rows of its pieces.
fn parts(d: &Dataset, chunk: &ChunkPieces) -> impl Iterator<Item = (u64, usize)> {
    chunk.pieces.iter().flat_map(|piece| d.grid.rows(piece).map(|(at, _)| (at, piece.len)))
}

fn too_large(reason: &'static str) -> Error {
    Error::refused(libc::EFBIG, reason)
}

impl ObjectAccess {
    /// Changes a chunk by `f`, which gets it and the ranges that were written; `f` returns `None`
    /// for bytes that the chunk does not have. `covered`: `f` writes all of it.
    pub(super) fn edit_chunk(
        &self,
        state: &mut State,
        d: &Dataset,
        key: Key,
        covered: bool,
        f: impl FnOnce(&mut dyn ChunkImage, &mut Ranges) -> Option<()>,
    ) -> Result<()> {
        if d.knows_defined() {
            // It could not be read again.
            self.chunks.check_changed(d)?;
        }
        let there = state.changes.get(&key).cloned();
        if let Some(Change { body: Body::Dirty(chunk), ranges: before }) = &there
            && state.owns(chunk)
        {
            let (memory, mut ranges) = (chunk.memory(), before.clone());
            let done = chunk.chunk.change(|image| f(image, &mut ranges));
            state.note_in_place(&key, memory, chunk);
            let done = done?;
            if ranges != *before {
                state.change(key, Body::Dirty(chunk.clone()), ranges);
            }
            return done.ok_or_else(|| out_of_range(d.id));
        }
        let (mut image, mut ranges) = match there {
            Some(Change { body: Body::Dirty(chunk), ranges }) => (chunk.chunk.now(), ranges),
            other => (
                if covered { self.chunks.blank(d, true)? } else { self.chunks.chunk(state, d, &key)? },
                other.map_or_else(Ranges::default, |c| c.ranges),
            ),
        };
        let done = f(&mut *Arc::make_mut(&mut image).0, &mut ranges);
        image.check(done, d.id)?;
        state.put_chunk(key, image, ranges);
        Ok(())
    }

    /// Overwrites elements from `offset`, within the size.
    pub(super) fn write_elements(&self, state: &mut State, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<()> {
        let variable = d.datatype.contains_vlen();
        for chunk in d.grid.pieces(offset, bytes.len()) {
            let key = d.chunk_key(chunk.chunk);
            let covered = chunk.bytes() == d.grid.chunk_bytes();
            self.edit_chunk(state, d, key, covered, |image, ranges| {
                image.gather(&d.grid, &chunk, bytes)?;
                match variable {
                    true => *ranges = Ranges::whole(),
                    false => parts(d, &chunk).for_each(|(at, len)| ranges.add(at..at.saturating_add(len as u64))),
                }
                Some(())
            })?;
            self.values.bound(state)?;
        }
        Ok(())
    }

    /// Writes bytes of a dataset of fixed-size elements; extends it if it may grow.
    pub(super) fn write_bytes(&self, state: &mut State, id: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| too_large("past the end of the largest file"))?;
        let d = match end > d.size {
            true => {
                self.resize(state, &d, end)?;
                self.dataset_of(state, id)?
            }
            false => d,
        };
        match References::of(&d.datatype) {
            Some(places) => {
                let kept = self.with_references(state, &d, offset, bytes, &places)?;
                self.write_elements(state, &d, offset, &kept)?;
            }
            None => self.write_elements(state, &d, offset, bytes)?,
        }
        state.touch(id)
    }

    /// `bytes` with the references that the dataset has: bytes of references are numbers of one
    /// container.
    fn with_references(&self, state: &State, d: &Dataset, offset: u64, bytes: &[u8], places: &References) -> Result<Vec<u8>> {
        let size = usize::try_from(d.element_size).unwrap_or(usize::MAX).max(1);
        let skip = usize::try_from(offset % d.element_size.max(1)).unwrap_or(0);
        let len = skip.checked_add(bytes.len()).and_then(|n| n.checked_next_multiple_of(size));
        let mut old = vec![0; len.ok_or_else(|| too_large("elements with references are too large"))?];
        self.chunks.read_elements(state, d, offset.saturating_sub(skip as u64), &mut old)?;
        let mut new = old.clone();
        if let Some(part) = new.get_mut(skip..skip.saturating_add(bytes.len())) {
            part.copy_from_slice(bytes);
        }
        for (old, new) in old.chunks_exact(size).zip(new.chunks_exact_mut(size)) {
            places.each(&mut |at, t| {
                let part = at..at.saturating_add(t.size as usize);
                if let (Some(old), Some(new)) = (old.get(part.clone()), new.get_mut(part)) {
                    new.copy_from_slice(old);
                }
                Ok(())
            })?;
        }
        Ok(new.get(skip..skip.saturating_add(bytes.len())).unwrap_or_default().to_vec())
    }

    /// Sets the size of a dataset, rounded up to whole rows.
    pub(super) fn resize(&self, state: &mut State, d: &Dataset, size: u64) -> Result<()> {
        if size == d.size {
            return Ok(());
        }
        let fixed = || match size < d.size {
            true => Error::refused(libc::EPERM, "the dataset's shape is fixed"),
            false => too_large("the dataset's shape is fixed"),
        };
        let row = d.row_bytes().filter(|_| d.resizes()).ok_or_else(fixed)?;
        let max = d.space.max().first().copied().ok_or_else(fixed)?;
        let now = d.space.dims.first().copied().ok_or_else(fixed)?;
        if max == Some(now) && size > d.size || d.space.max_dims.is_none() {
            return Err(fixed());
        }
        let rows = size.div_ceil(row);
        if max.is_some_and(|max| rows > max) {
            return Err(too_large("the dataset has as many rows as it may"));
        }
        if rows.checked_mul(row).is_none_or(|n| n > i64::MAX as u64) {
            return Err(too_large("past the end of the largest file"));
        }
        self.set_rows(state, d, rows)
    }

    /// Sets the first dimension. Elements past it are removed.
    pub(super) fn set_rows(&self, state: &mut State, d: &Dataset, rows: u64) -> Result<()> {
        let mut dims = d.space.dims.clone();
        dims.first_mut().into_iter().for_each(|first| *first = rows);
        self.set_dims(state, d, dims)
    }

    /// Removes a chunk: all of it has the fill value.
    pub(super) fn drop_chunk(&self, state: &mut State, d: &Dataset, key: Key) -> Result<()> {
        if state.snapshot.get(&state.container, &key)?.is_none() {
            return state.remove(key);
        }
        let mut ranges = Ranges::default();
        ranges.add(0..d.grid.chunk_bytes());
        state.change(key, Body::Removed, ranges);
        Ok(())
    }

    /// Zeroes a range within the size. Chunks that become zero are removed if the fill value is.
    pub(super) fn zero_bytes(&self, state: &mut State, id: u64, offset: u64, len: u64) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "variable-length elements are replaced as a whole"));
        }
        let end = offset.saturating_add(len).min(d.size);
        let mut at = offset;
        while at < end {
            let n = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(ZEROED_BYTES);
            if d.knows_defined() {
                // They become defined.
                self.write_elements(state, &d, at, &vec![0; n])?;
                at = at.saturating_add(n as u64);
                continue;
            }
            for chunk in d.grid.pieces(at, n) {
                let key = d.chunk_key(chunk.chunk);
                let exists = state.changes.get(&key).is_some_and(|c| !matches!(c.body, Body::Removed)) || state.get(&key)?.is_some();
                let span = d.grid.span(chunk.chunk);
                match (d.pattern.is_zero(), exists) {
                    (true, false) => {}
                    (true, true) if span.start >= offset && span.end <= end => self.drop_chunk(state, &d, key)?,
                    _ => self.edit_chunk(state, &d, key, false, |image, ranges| {
                        for (start, len) in parts(&d, &chunk) {
                            image.clear(&[(usize::try_from(start).ok()?, len)]);
                            ranges.add(start..start.saturating_add(len as u64));
                        }
                        Some(())
                    })?,
                }
            }
            self.values.bound(state)?;
            at = at.saturating_add(n as u64);
        }
        state.touch(id)
    }
}
