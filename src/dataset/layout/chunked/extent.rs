//! Changes of the extent: each element keeps its coordinates (H5D__chunk_prune_by_extent,
//! H5D__chunk_update_old_edge_chunks).

use super::write::{ChunkWriter, LOOKUP_CHUNKS_MAX, encode, not_allocated, out_of_range};
use crate::base::{Error, Result};
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::dirty_file::DirtyFile;
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::grid::ChunkRange;
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::index::{ChunkRecord, Visit, write};
use crate::dataset::layout::traits::{DirtyList, batch_len};
use crate::format::message::data_layout::DataLayout;
use crate::meta::edit::SpaceKind;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most chunks of a dataset with an implicit index that can shrink: every chunk is visited.
const PRUNED_IMPLICIT_CHUNKS_MAX: u64 = 1 << 24;

/// Most bytes of chunks of an implicit index that change with the extent.
const IN_PLACE_BYTES_MAX: u64 = 1 << 30;

/// A chunk, with regard to the next extent.
enum Within {
    All,
    /// It extends past it.
    Part,
    Nothing,
}

impl ChunkWriter<'_> {
    /// Makes what is stored that of the extent `next`, which is set afterwards. Returns whether the
    /// layout message changed.
    ///
    /// Frees chunks past it, overwrites elements past it in partial chunks with the fill value, and
    /// stores chunks anew that become, or stop being, partial edge chunks, if the format stores
    /// these unfiltered. About `budget` bytes of them are in memory.
    pub(super) fn prepare_extent(&self, layout: &mut DataLayout, next: &[u64], budget: u64) -> Result<bool> {
        let shrinks = next.iter().zip(&self.grid.shape).any(|(next, now)| next < now);
        let (mut changed, changing) =
            if shrinks { self.prune(layout, next)? } else { (false, self.new_edges(next)?.into_iter().collect()) };
        // Those that wait in memory in the form that they have then.
        let mut ready = Vec::new();
        for number in changing {
            let (key, scaled) = (self.chunked.key(number), self.chunked.grid.scaled(number));
            let chunk = self.make_dirty(number)?;
            if matches!(self.within(&scaled, next), Within::Part) {
                self.refill(key, &chunk, &scaled, next)?;
            }
            ready.extend(self.env.dirty.get(key).map(|chunk| (key, chunk)));
            if self.is_implicit() {
                // A failed operation could not undo what is stored in place.
                if (ready.len() as u64).saturating_mul(self.chunked.grid.chunk_bytes()) > IN_PLACE_BYTES_MAX {
                    let reason = format!("chunks of an implicit index that change take more than {IN_PLACE_BYTES_MAX} bytes of memory");
                    return Err(Error::refused(libc::EFBIG, reason));
                }
            } else if self.env.dirty.bytes() > budget || self.env.files_are_full() {
                changed |= self.store_ready(layout, &std::mem::take(&mut ready), next)?;
            }
        }
        Ok(changed)
    }

    /// Stores dirty chunks in the form that they have in the extent `next`.
    fn store_ready(&self, layout: &mut DataLayout, chunks: &DirtyList, next: &[u64]) -> Result<bool> {
        let mut changed = false;
        let is_edge = |scaled: &[u64]| self.grid.is_edge_of(scaled, next);
        for batch in chunks.chunks(batch_len(self.env, self.chunked.grid.chunk_bytes())) {
            changed |= self.enter(layout, &encode(self.env, self.chunked, &is_edge, batch)?)?;
        }
        self.env.flushed(chunks.iter().map(|(key, _)| *key));
        Ok(changed)
    }

    /// Frees chunks past the extent `next`, which is less in a dimension. Returns whether the
    /// layout message changed, and the numbers of stored chunks that change.
    fn prune(&self, layout: &mut DataLayout, next: &[u64]) -> Result<(bool, Vec<u64>)> {
        let (mut outside, mut changing) = (Vec::new(), Vec::new());
        if self.is_implicit() && self.grid.total().is_none_or(|n| n > PRUNED_IMPLICIT_CHUNKS_MAX) {
            return Err(Error::refused(
                libc::EPERM,
                format!("a dataset with an implicit index and more than {PRUNED_IMPLICIT_CHUNKS_MAX} chunks cannot shrink"),
            ));
        }
        let mut visit = |scaled: &[u64], record: ChunkRecord| {
            let Some(number) = self.chunked.grid.linear(scaled) else { return Ok(ControlFlow::Continue(())) };
            match self.within(scaled, next) {
                Within::All if !self.changes_form(scaled, next) => {}
                Within::All | Within::Part => changing.push(number),
                // Chunks of an implicit index stay allocated.
                Within::Nothing => outside.extend((!self.is_implicit()).then_some((number, record))),
            }
            Ok(ControlFlow::Continue(()))
        };
        self.chunked.index.iterate(self.store, &mut visit as &mut Visit<'_>)?;
        let mut changed = false;
        for (number, record) in outside {
            let (shape, scaled) = (self.chunked.format.record_shape(), self.chunked.grid.scaled(number));
            changed |= write::remove(self.store, layout, self.grid, shape, self.btree_k, &scaled)?.layout;
            self.store.free_kind(record.address, self.chunked.format.stored_size(record), SpaceKind::Raw)?;
            self.env.stored.change(self.chunked.number, 0, self.chunked.format.stored_size(record));
            self.drop_decoded(self.chunked.key(number));
        }
        for (key, chunk) in self.env.dirty.of(self.chunked.number) {
            let scaled = self.chunked.grid.scaled(key.chunk);
            match self.within(&scaled, next) {
                Within::All => {}
                Within::Part => self.refill(key, &chunk, &scaled, next)?,
                Within::Nothing => self.env.dirty.remove(key),
            }
            self.drop_decoded(key);
        }
        Ok((changed, changing))
    }

    /// True if the format stores the chunk in another form in the extent `next`.
    fn changes_form(&self, scaled: &[u64], next: &[u64]) -> bool {
        let is_edge = |shape: &[u64]| self.grid.is_edge_of(scaled, shape);
        self.chunked.format.stores_edges_differently() && is_edge(&self.grid.shape) != is_edge(next)
    }

    /// Where the chunk lies. A chunk that extends past a dimension that does not shrink has the
    /// fill value there.
    fn within(&self, scaled: &[u64], next: &[u64]) -> Within {
        let mut within = Within::All;
        for (((&s, &next), &now), &c) in scaled.iter().zip(next).zip(&self.grid.shape).zip(&self.grid.chunk_dims) {
            let first = s.saturating_mul(c);
            if first >= next {
                return Within::Nothing;
            }
            if next < now && first.saturating_add(c) > next {
                within = Within::Part;
            }
        }
        within
    }

    /// Overwrites what a dirty chunk has past the extent `next` with the fill value.
    fn refill(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, scaled: &[u64], next: &[u64]) -> Result<()> {
        let whole = |n: u64| usize::try_from(n).map_err(|_| out_of_range());
        if let Some(image) = chunk.in_file() {
            let file = image.file();
            let mut read = |at: u64, buf: &mut [u8]| {
                file.read(at, buf)?;
                let window = at..at.saturating_add(buf.len() as u64);
                self.grid.bytes_past(scaled, next, window, &mut |run| {
                    let part = whole(run.start.saturating_sub(at))?..whole(run.end.saturating_sub(at))?;
                    self.fill.fill(run.start, buf.get_mut(part).ok_or_else(out_of_range)?);
                    Ok(())
                })
            };
            // A new file replaces the old one, which a rollback restores.
            let refilled = DirtyFile::filled(file.len(), self.fill, file.len(), &mut read)?;
            let refilled = FileImage::from_file(&self.env.images, refilled, self.fill, file.len());
            self.add_dirty(key, Box::new(refilled), 0, chunk.before());
            return Ok(());
        }
        let mut runs = Vec::new();
        self.grid.bytes_past(scaled, next, 0..chunk.len(), &mut |run| {
            runs.push(run);
            Ok(())
        })?;
        let Some(first) = runs.first().map(|run| run.start) else { return Ok(()) };
        self.env.dirty.log_bytes(key, chunk, whole(first)?, whole(chunk.len().saturating_sub(first))?)?;
        chunk.change(0, |image| runs.into_iter().for_each(|run| image.fill(run, self.fill)))
    }

    /// Overwrites chunks of an implicit index that were added to the extent `old` with the fill
    /// value.
    ///
    /// They were allocated all along and contain stale bytes from before the dataset shrank.
    pub(super) fn fill_added_chunks(&self, old: &[u64]) -> Result<()> {
        if !self.is_implicit() {
            return Ok(());
        }
        let before: Vec<u64> = old.iter().zip(&self.grid.chunk_dims).map(|(n, c)| n.div_ceil((*c).max(1))).collect();
        let now = self.grid.counts();
        for dim in 0..self.grid.rank() {
            // Those of earlier dimensions are in the boxes before.
            let mut first = vec![0; self.grid.rank()];
            let mut end: Vec<u64> =
                before.iter().zip(&now).map(|(b, n)| *b.min(n)).take(dim).chain(now.iter().copied().skip(dim)).collect();
            first.get_mut(dim).zip(before.get(dim)).into_iter().for_each(|(f, b)| *f = *b);
            if first.iter().zip(&end).any(|(f, e)| f >= e) {
                continue;
            }
            end.iter_mut().for_each(|e| *e = e.saturating_sub(1));
            for scaled in (ChunkRange { first, last: end }).iter() {
                let record = self.chunked.index.lookup(self.store, &scaled)?.ok_or_else(not_allocated)?;
                self.write_fill(record.address)?;
            }
        }
        Ok(())
    }

    /// Numbers of the stored chunks that stop being partial edge chunks in the larger extent
    /// `next`, if the format stores these in another form.
    fn new_edges(&self, next: &[u64]) -> Result<BTreeSet<u64>> {
        let mut changing = BTreeSet::new();
        if !self.chunked.format.stores_edges_differently() {
            return Ok(changing);
        }
        for (dim, (&old, &new)) in self.grid.shape.iter().zip(next).enumerate() {
            let c = self.grid.chunk_dims.get(dim).copied().unwrap_or(1).max(1);
            // At most one row of chunks begins within the extent and ends past it.
            let row = old / c;
            if new > old && row.saturating_mul(c) < old {
                self.stored_in_row(dim, row, &mut |scaled| {
                    let number = self.chunked.grid.linear(scaled).filter(|_| self.changes_form(scaled, next));
                    changing.extend(number);
                })?;
            }
        }
        Ok(changing)
    }

    /// Calls `f` with the stored chunks with the offset `row` in dimension `dim`.
    fn stored_in_row(&self, dim: usize, row: u64, f: &mut dyn FnMut(&[u64])) -> Result<()> {
        let counts = self.grid.counts();
        let others = counts.iter().enumerate().filter(|(i, _)| *i != dim).fold(1u64, |n, (_, count)| n.saturating_mul(*count));
        if others > LOOKUP_CHUNKS_MAX {
            let mut visit = |scaled: &[u64], _: ChunkRecord| {
                if scaled.get(dim) == Some(&row) {
                    f(scaled);
                }
                Ok(ControlFlow::Continue(()))
            };
            return self.chunked.index.iterate(self.store, &mut visit as &mut Visit<'_>);
        }
        if others > 0 {
            let at =
                |other: u64| counts.iter().enumerate().map(|(i, n)| if i == dim { row } else { other.min(n.saturating_sub(1)) }).collect();
            for scaled in (ChunkRange { first: at(0), last: at(u64::MAX) }).iter() {
                if self.chunked.index.lookup(self.store, &scaled)?.is_some() {
                    f(&scaled);
                }
            }
        }
        Ok(())
    }

    /// Gives the dirty chunks their numbers in the new extent, and drops what caches have by
    /// number, if the extent `old` had others.
    pub(super) fn renumber(&self, old: &[u64]) -> Result<()> {
        let grid = &self.chunked.grid;
        if old.get(1..) == self.grid.shape.get(1..) {
            return Ok(());
        }
        let before = ByteGrid::new(old, &self.grid.chunk_dims, self.grid.element_size).ok_or_else(out_of_range)?;
        self.env.dirty.renumber(self.chunked.number, &|number| grid.linear(&before.scaled(number)));
        self.env.forget_decoded_of(self.chunked.number);
        Ok(())
    }
}
