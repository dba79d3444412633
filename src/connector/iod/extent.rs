//! Changes of the extent of a dataset.

use super::dataset::{Dataset, Storage};
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::extent::check_extent;
use crate::dataset::chunk::ChunkGrid;
use crate::format::Context;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind;
use crate::iod::{Ranges, keys};
use std::ops::Bound;

impl ObjectAccess {
    /// Sets the extent of the dataset `id`; see [`crate::connector::edit::Edit::set_extent`].
    pub(super) fn change_extent(&self, state: &mut State, id: u64, next: &[u64]) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !check_extent(&d.space.shape(), d.element_size, d.resizes(), next)? {
            return Ok(());
        }
        if state.forms.contains_key(&id) {
            return Err(Error::refused(libc::EBUSY, "the elements are being written"));
        }
        if d.size == 0 {
            state.note_shape_only(id, true);
        }
        self.set_dims(state, &d, next.to_vec())
    }

    /// Sets the dimensions. Elements past them are removed.
    pub(super) fn set_dims(&self, state: &mut State, d: &Dataset, next: Vec<u64>) -> Result<()> {
        if d.space.dims.iter().zip(&next).any(|(now, next)| next < now) {
            self.cut(state, d, &next)?;
        }
        let space = Dataspace { dims: next, ..d.space.clone() };
        state.put_header(d.id, kind::DATASPACE, &space.encode(&Context::DEFAULT))?;
        state.changed(d.id);
        state.touch(d.id)
    }

    /// Removes the elements past the extent `next`.
    fn cut(&self, state: &mut State, d: &Dataset, next: &[u64]) -> Result<()> {
        let Storage::Chunked(chunk) = &d.storage else { return Ok(()) };
        let grid = ChunkGrid::new(d.space.dims.clone(), d.space.max(), chunk.clone(), d.element_size)?;
        let (start, end) = keys::of_kind(d.id, keys::CHUNK);
        let is_first = d.space.dims.get(1..) == next.get(1..);
        // Where the first dimension alone shrinks, only the chunks past it and at its end change.
        let from = next.first().zip(chunk.first()).filter(|_| is_first).map(|(n, c)| n.checked_div(*c).unwrap_or(0));
        let start = from.map_or(start, |row| Bound::Included(keys::chunk(d.id, &[row])));
        for key in state.keys(&(start, end))? {
            let Some(scaled) = keys::scaled(&key) else { continue };
            if scaled.iter().zip(chunk).zip(next).any(|((s, c), n)| s.saturating_mul(*c) >= *n) {
                self.drop_chunk(state, d, key)?;
                continue;
            }
            let mut runs = Vec::new();
            if grid.is_edge_of(&scaled, next) {
                grid.bytes_past(&scaled, next, 0..d.grid.chunk_bytes(), &mut |run| {
                    runs.push(run);
                    Ok(())
                })?;
            }
            if runs.is_empty() || !shrinks_in(&scaled, chunk, &d.space.dims, next) {
                continue;
            }
            let variable = d.datatype.contains_vlen();
            self.edit_chunk(state, d, key, false, |image, ranges| {
                for run in runs {
                    image.fill(run.clone(), &d.pattern);
                    if !variable {
                        ranges.add(run);
                    }
                }
                if variable {
                    *ranges = Ranges::whole();
                }
                Some(())
            })?;
            self.values.bound(state)?;
        }
        Ok(())
    }
}

/// True if the chunk at `scaled` has elements of the extent `now` past `next`.
fn shrinks_in(scaled: &[u64], chunk: &[u64], now: &[u64], next: &[u64]) -> bool {
    let ends = scaled.iter().zip(chunk).map(|(s, c)| s.saturating_add(1).saturating_mul(*c));
    ends.zip(now).zip(next).any(|((end, now), next)| next < now && end > *next)
}
