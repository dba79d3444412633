//! Changing what a dataset is: what is stated makes it what it shall be (`plan`). What is not
//! stated stays, as far as it fits.

use super::Dataset;
use super::attributes::Values;
use super::bytes_file::is_bytes_file;
use super::change_parts::LayoutChange;
use super::errors::{invalid, refused};
use super::relayout::Elements;
use crate::base::Result;
use crate::base::datatype::Datatype;
use crate::base::newlines::Newlines;
use crate::connector::plan::{is_unchunked, plan};
use crate::connector::{ChunksSpec, DatasetSpec, FillSpec, NewValue, ObjectId};
use crate::dataset::create::dataset_messages;
use std::cell::Cell;

/// Files whose newlines inside strings are kept at a time.
const NEWLINES_AWAITED_MAX: usize = 4096;
/// Fill values with references to objects that do not exist that are kept at a time.
const FILLS_AWAITED_MAX: usize = 1 << 16;

impl LayoutChange<'_> {
    /// Makes a dataset what `spec` states, with the elements it has.
    pub(super) fn change_dataset(&self, id: ObjectId, spec: DatasetSpec) -> Result<()> {
        let (store, d) = (self.change.store()?, self.change.dataset(id)?);
        let mut spec = self.completed(id, spec);
        if self.is_wish(&d, &spec) {
            tracing::info!("chunks of a new file is kept until its shape is set");
            self.change.editing.objects.change_pending(id, |p| p.spec = Some(spec));
            return Ok(());
        }
        let strings = spec.dtype.as_ref().is_some_and(|t| t.is_vlen_string());
        if strings && spec.shape.is_none() && !spec.null_space && is_bytes_file(&d) && d.bytes.size > 0 {
            spec.shape = Some(vec![self.lines(&d)?]);
        }
        // A fill value may refer to an object that is created later: null until then.
        let nowhere = Cell::new(false);
        let creation = plan(&self.now(&d)?, &spec, &mut Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) })?;
        let awaited_fill = awaited_fill(&spec, nowhere.get());
        // What contradicts itself is found before anything is changed.
        dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        if let Some(max) = spec.maxshape.clone()
            && self.is_maximum(&d, &spec, &creation)?
        {
            return self.set_maximum(&d, max);
        }
        if let Some(elsewhere) = &creation.elsewhere {
            self.change.connector.check_elsewhere(&d.object.file, elsewhere)?;
        }
        let newlines = spec.newlines.take().unwrap_or_default();
        // Lines that are not there yet are written next.
        let awaited = strings && d.bytes.size == 0 && !newlines.is_empty();
        self.relayout(&d, &creation, spec.dtype.is_some(), Elements::Kept { newlines: newlines.clone() })?;
        if awaited {
            self.await_newlines(id, newlines)?;
        }
        self.settle_pending(id, awaited_fill)?;
        self.change.connector.holes().forget_holes(id);
        // The same bytes are no change of them: who copies a file sets its times first.
        if strings || creation.bytes() == Some(d.bytes.size) {
            self.change.objects().note_change(id)
        } else {
            self.change.objects().touch(id)
        }
    }

    /// Makes a dataset what `spec` states. Its elements are gone: others are written next.
    pub(super) fn replace_dataset(&self, id: ObjectId, spec: &DatasetSpec) -> Result<()> {
        let (store, d) = (self.change.store()?, self.change.dataset(id)?);
        let nowhere = Cell::new(false);
        let creation = plan(&d.now()?.emptied(), spec, &mut Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) })?;
        // What contradicts itself is found before anything is changed.
        dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        self.relayout(&d, &creation, spec.dtype.is_some(), Elements::Dropped)?;
        self.settle_pending(id, awaited_fill(spec, nowhere.get()))?;
        self.change.objects().touch(id)
    }

    /// Drops the facts that were used. `fill`: the fill value to set once its references name
    /// objects; `None` leaves the awaited one, `Some(None)` drops it.
    fn settle_pending(&self, id: ObjectId, fill: Option<Option<NewValue>>) -> Result<()> {
        let mut all = self.change.editing.objects.all_pending();
        let waiting = || all.iter().filter(|(other, p)| *other != id && p.fill.is_some()).count();
        if matches!(fill, Some(Some(_))) && waiting() >= FILLS_AWAITED_MAX {
            return Err(invalid("too many fill values refer to objects that are not there"));
        }
        all.change(id, |p| {
            p.spec = None;
            p.fill = fill.unwrap_or(p.fill.take());
        });
        Ok(())
    }

    /// Keeps the newlines inside strings until the lines are written.
    fn await_newlines(&self, id: ObjectId, newlines: Newlines) -> Result<()> {
        let mut all = self.change.editing.objects.all_pending();
        if all.iter().filter(|(other, p)| *other != id && p.newlines.is_some()).count() >= NEWLINES_AWAITED_MAX {
            return Err(invalid("too many files wait for strings with newlines"));
        }
        all.change(id, |p| p.newlines = Some(newlines));
        Ok(())
    }

    /// Makes a new file a named datatype. Its bytes, if there are any, must be `shown`.
    pub(super) fn commit_datatype(&self, id: ObjectId, datatype: &Datatype, shown: &[u8]) -> Result<()> {
        let d = &self.change.dataset(id)?;
        let is_text = d.bytes.size == 0
            || d.bytes.size == shown.len() as u64 && {
                let mut text = shown.to_vec();
                d.bytes.read(&self.change.connector.options.environment, 0, &mut text)?;
                text == shown
            };
        if !is_bytes_file(d) || !is_text {
            return Err(invalid("only a new file that is empty, or holds the datatype's text, becomes a named datatype"));
        }
        self.become_datatype(d, datatype)?;
        self.change.objects().note_change(d.id)
    }

    /// `spec` with the facts that were set earlier.
    pub(super) fn completed(&self, id: ObjectId, spec: DatasetSpec) -> DatasetSpec {
        match self.change.editing.objects.pending(id, |p| p.spec.clone()).flatten() {
            Some(wish) => with_wish(spec, wish),
            None => spec,
        }
    }

    /// Lines of a file, the last one with or without its end.
    fn lines(&self, d: &Dataset) -> Result<u64> {
        let (mut at, mut lines, mut open) = (0u64, 0u64, false);
        let mut piece = vec![0u8; 1 << 16];
        while at < d.bytes.size {
            let n = d.bytes.read(&self.change.connector.options.environment, at, &mut piece)?;
            let bytes = piece.get(..n).filter(|b| !b.is_empty()).ok_or_else(|| d.object.lacks("whole data layout"))?;
            lines = lines.saturating_add(memchr::memchr_iter(b'\n', bytes).count() as u64);
            open = bytes.last() != Some(&b'\n');
            at = at.saturating_add(n as u64);
        }
        Ok(lines.saturating_add(u64::from(open)))
    }

    /// Chunks of a new file that have no sense before it has another shape: programs that copy
    /// extended attributes may set them first.
    pub(super) fn is_wish(&self, d: &Dataset, spec: &DatasetSpec) -> bool {
        let Some(ChunksSpec::Dims(chunks)) = &spec.chunks else { return false };
        let only_chunks = *spec == DatasetSpec { chunks: spec.chunks.clone(), ..DatasetSpec::default() };
        only_chunks && chunks.len() != 1 && is_bytes_file(d)
    }
}

/// The fill value of `spec` to be set once its references name objects; `None`: `spec` has no fill
/// value and no type, `Some(None)`: nothing waits. `nowhere`: a reference names no object yet.
fn awaited_fill(spec: &DatasetSpec, nowhere: bool) -> Option<Option<NewValue>> {
    match &spec.fillvalue {
        Some(FillSpec::Value(value)) if nowhere => Some(Some(value.clone())),
        None if spec.dtype.is_none() => None,
        _ => Some(None),
    }
}

/// Completes `spec` by the facts set earlier.
fn with_wish(mut spec: DatasetSpec, wish: DatasetSpec) -> DatasetSpec {
    let unchunked = is_unchunked(&spec).unwrap_or_default() || spec.null_space;
    let rank = spec.shape.as_ref().map(Vec::len);
    let fits = |chunks: &ChunksSpec| !matches!((chunks, rank), (ChunksSpec::Dims(c), Some(rank)) if c.len() != rank);
    if !unchunked && spec.chunks.is_none() {
        spec.chunks = wish.chunks.filter(fits);
    }
    spec
}
