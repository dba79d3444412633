//! Changes of the extent of a dataset.

use super::super::dataset::Dataset;
use super::change_parts::LayoutChange;
use super::data::replace_message;
use super::holes::Touched;
use super::relayout::Elements;
use crate::base::{Error, Result};
use crate::connector::extent::check_extent;
use crate::connector::{DatasetSpec, ObjectId};
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::creation::Creation;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind;
use crate::structures::shared_messages::edit as shared_messages_edit;

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

impl LayoutChange<'_> {
    /// Sets the extent of the dataset `id`; see [`crate::connector::edit::Edit::set_extent`].
    pub(super) fn set_extent(&self, id: ObjectId, next: &[u64]) -> Result<()> {
        let d = self.change.writable_dataset(id)?;
        let now = &d.space.dims;
        if !check_extent(&d.space.shape(), d.element_size, d.layout().resizes(), next)? {
            return Ok(());
        }
        let is_first = now.get(1..) == next.get(1..);
        if !is_first && !d.layout().is_in_file() {
            return Err(Error::refused(libc::EPERM, "only the first dimension of a dataset in external files changes"));
        }
        let bytes = next.iter().try_fold(d.element_size, |n, d| n.checked_mul(*d)).unwrap_or(0);
        if !d.bytes.store.ctx().holds(bytes) {
            return Err(Error::refused(libc::EFBIG, "larger than a file of its addresses can be"));
        }
        self.change.data().check_bounds(&d)?;
        self.change.editing.preparations.cancel(id);
        if d.datatype.contains_vlen() {
            self.change.references().check_form(&d)?;
            if self.change.editing.objects.pending(id, |p| p.rewrite.is_some()) == Some(true) {
                return Err(Error::refused(libc::EBUSY, "the elements are being written"));
            }
            self.free_past(&d, next)?;
        }
        match now.len() {
            1 => self.change.connector.holes().note_extent(id, d.bytes.size, Touched::Resized(bytes))?,
            _ => self.change.connector.holes().forget_holes(id),
        }
        self.change.connector.holes().note_shape(id, d.bytes.size);
        if is_first || d.layout().resizes_all() {
            self.change.data().set_dims(&d, next.to_vec())?;
        } else {
            let creation = Creation { dims: next.to_vec(), ..d.now()?.creation };
            self.relayout(&d, &creation, false, Elements::Placed)?;
        }
        self.change.objects().touch(id)
    }

    /// True if `spec` gives the dataset `d`, which becomes `creation`, nothing but another maximum
    /// extent, for which nothing that is stored changes.
    pub(super) fn is_maximum(&self, d: &Dataset, spec: &DatasetSpec, creation: &Creation) -> Result<bool> {
        let Some(max) = &spec.maxshape else { return Ok(false) };
        let is_alone = *spec == DatasetSpec { maxshape: spec.maxshape.clone(), ..DatasetSpec::default() };
        if !is_alone || creation.layout != d.layout().for_copy() {
            return Ok(false);
        }
        let store = self.change.store()?;
        let message = creation.layout.kind.message(store.ctx(), store.superblock().version, creation)?;
        Ok(d.layout().takes_maximum(&self.change.operation(d, &d.space), max, &message))
    }

    /// Makes `max` the maximum extent of the dataset `d`, which [`Change::is_maximum`] allows.
    pub(super) fn set_maximum(&self, d: &Dataset, max: Vec<Option<u64>>) -> Result<()> {
        let space = Dataspace { max_dims: Some(max), ..d.space.clone() };
        self.change.editing.preparations.cancel(d.id);
        let store = self.change.store()?;
        shared_messages_edit::forget(&store, d.id.address)?;
        let mut header = self.change.header(d.id)?;
        replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        header.write(&store)?;
        self.change.changed(d.id);
        self.change.objects().note_change(d.id)
    }

    /// Writes the elements of `old` that the extent of the dataset `id` has to their coordinates.
    pub(super) fn place_elements(&self, old: &Dataset, id: ObjectId) -> Result<()> {
        let env = &self.change.connector.options.environment;
        let new = self.change.dataset(id)?;
        let (from, to, size) = (&old.space.dims, &new.space.dims, old.element_size.max(1));
        let written = self.change.connector.holes().written(id, old, &new)?;
        let (row, new_row) = (from.last().copied().unwrap_or(1).max(1), to.last().copied().unwrap_or(1));
        let mut piece = vec![0u8; PIECE_BYTES];
        let mut at = 0u64;
        while let Some(next) = written.next(old, at)? {
            let len =
                old.bytes.whole_elements(usize::try_from(next.end.saturating_sub(next.start)).unwrap_or(PIECE_BYTES).clamp(1, PIECE_BYTES));
            let n = old.bytes.read(env, next.start, piece.get_mut(..len).unwrap_or_default())?;
            if n == 0 {
                return Err(old.object.lacks("whole data layout"));
            }
            let (mut element, end) = (next.start / size, next.start.saturating_add(n as u64) / size);
            while element < end {
                // To the end of the row.
                let column = element % row;
                let stop = element.saturating_sub(column).saturating_add(row).min(end);
                let kept = stop.saturating_sub(element).min(new_row.saturating_sub(column));
                if let Some(place) = moved(element, from, to).filter(|_| kept > 0) {
                    let start = usize::try_from(element.saturating_mul(size).saturating_sub(next.start)).unwrap_or(usize::MAX);
                    let bytes = usize::try_from(kept.saturating_mul(size)).unwrap_or(usize::MAX);
                    self.change.data().write_elements(
                        id,
                        place.saturating_mul(size),
                        piece.get(start..start.saturating_add(bytes)).unwrap_or_default(),
                    )?;
                }
                element = stop;
            }
            at = next.start.saturating_add(n as u64);
            self.change.dirty_chunks().flush_if_many(id)?;
        }
        Ok(())
    }

    /// Frees the parts of variable-length elements past the extent `next`.
    fn free_past(&self, d: &Dataset, next: &[u64]) -> Result<()> {
        let now = &d.space.dims;
        if now.contains(&0) {
            return Ok(());
        }
        // The dataset as one chunk.
        let all = ChunkGrid::new(now.clone(), d.space.max(), now.clone(), d.element_size)?;
        let mut runs = Vec::new();
        all.bytes_past(&vec![0; now.len()], next, 0..d.bytes.size, &mut |run| {
            runs.push(run);
            if runs.len() < RUNS_MAX { Ok(()) } else { Err(too_many()) }
        })?;
        runs.into_iter().try_for_each(|run| self.change.data().free_sequences_in(d, run))
    }
}

/// The number in the extent `to` of the element with the number `element` in the extent `from`.
/// `None`: it is not there.
fn moved(element: u64, from: &[u64], to: &[u64]) -> Option<u64> {
    let (mut rest, mut number, mut stride) = (element, 0u64, 1u64);
    for (from, to) in from.iter().zip(to).rev() {
        let at = Some(rest.checked_rem(*from)?).filter(|at| at < to)?;
        number = number.checked_add(at.checked_mul(stride)?)?;
        (rest, stride) = (rest.checked_div(*from)?, stride.checked_mul(*to)?);
    }
    Some(number)
}

/// Most runs of elements that are removed at once from a dataset of variable-length ones.
const RUNS_MAX: usize = 1 << 22;

fn too_many() -> Error {
    Error::refused(libc::E2BIG, format!("{RUNS_MAX} runs of variable-length elements would be removed"))
}

#[cfg(test)]
mod tests {
    use super::super::fault_tests::{bytes, dataset, writable};
    use crate::connector::Connector;
    use crate::connector::edit::Edit;
    use crate::file::fault::{Fault, Plan};

    /// All chunks that became partial were in memory at once.
    #[test]
    fn few_of_the_chunks_that_become_partial_are_in_memory() {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        c.set_cache_bytes(1 << 20);
        let id = dataset(&c, r#"{"dtype": "u1", "shape": [40000, 128], "maxshape": [null, 128], "chunks": [1, 128]}"#);
        let rows: Vec<u8> = (0..40_000u32 * 128).map(|n| (n % 251) as u8).collect();
        rows.chunks(1 << 18).zip(0..).for_each(|(part, n)| c.write(id, n << 18, part).unwrap());
        c.commit().unwrap();
        let dirty = &c.environment().dirty;
        c.set_extent(id, &[40_000, 50]).unwrap();
        // All of them have 5 MB.
        assert!(dirty.peak_bytes() < 2 << 20, "{}", dirty.peak_bytes());
        let want: Vec<u8> = rows.chunks(128).flat_map(|row| &row[..50]).copied().collect();
        assert!(bytes(&c, id) == want);
        c.close().unwrap();
    }
}
