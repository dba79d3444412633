//! Sets which elements of a sparse dataset are defined, without changing any value.
//!
//! A copy has the values of its source, but programs do not copy holes exactly: they write the fill
//! value to undefined elements, and punch zeros that are defined.

use super::super::super::dataset::{Dataset, key};
use super::super::super::file_heap::{ELEMENT_BYTES_MAX, FileHeap};
use super::super::change_parts::DataChange;
use super::super::connector_parts::Definitions;
use crate::base::Result;
use crate::base::element_set::ElementSet;
use crate::connector::ObjectId;
use crate::connector::defined::{ANNOUNCED_RANGES_MAX, covering_block, fill_values, unknown};
use std::ops::Range;

/// Elements, and bytes of elements, that one operation changes.
const STEP: u64 = 1 << 20;
/// Elements of variable length that one operation changes.
const VARIABLE_STEP: u64 = 1 << 14;

/// The change of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Defined,
    Undefined,
}

impl Definitions<'_> {
    /// Of the elements with numbers in `range`, those in `defined` (ascending, disjoint) become
    /// defined, and the others undefined if they have the fill value.
    pub(super) fn change_defined(&self, id: ObjectId, range: &Range<u64>, defined: &[Range<u64>]) -> Result<()> {
        let (known, dims, step) = {
            let access = self.connector.access();
            let d = &access.dataset(id)?.dataset;
            let size = d.element_size.max(1);
            let step = if d.datatype.contains_vlen() { VARIABLE_STEP } else { (STEP / size).max(1) };
            (self.known(d, range)?, d.space.dims.clone(), step)
        };
        let wanted = ElementSet::of_runs(&dims, defined)?.intersection(&ElementSet::of_run(&dims, range))?;
        self.change_each(id, &dims, &wanted.difference(&known)?, step, Becomes::Defined)?;
        self.change_each(id, &dims, &known.difference(&wanted)?, step, Becomes::Undefined)
    }

    /// Keeps the runs `defined` of `range` for bytes that are written next. Does nothing if the
    /// dataset was not `blank` and none of its ranges are kept.
    pub(in super::super) fn announce(&self, id: ObjectId, blank: bool, range: Range<u64>, defined: &[Range<u64>]) {
        let Some(editing) = &self.connector.editing else { return };
        let mut pending = editing.objects.all_pending();
        let is_announced = pending.iter().any(|(other, p)| other == id && p.announced.is_some());
        if !blank && !is_announced {
            return;
        }
        let kept =
            pending.iter().filter_map(|(_, p)| p.announced.as_ref()).map(|announced| announced.ranges()).fold(0, usize::saturating_add);
        if kept.saturating_add(defined.len()) >= ANNOUNCED_RANGES_MAX {
            tracing::warn!("object at {id}: no memory for user.h5dir.defined: all elements that are written next will be defined");
            return;
        }
        pending.change(id, |p| p.announced.get_or_insert_default().set(range, defined));
    }

    /// Sets the defined elements of the dataset `id` that were announced; false if none were.
    pub(in super::super) fn apply_announced(&self, id: ObjectId) -> Result<bool> {
        let Some(editing) = &self.connector.editing else { return Ok(false) };
        let Some(announced) = editing.objects.pending(id, |p| p.announced.clone()).flatten() else { return Ok(false) };
        let elements = {
            let access = self.connector.access();
            let d = &access.dataset(id)?.dataset;
            d.layout().definition().map(|_| d.elements())
        };
        // It may have become another dataset.
        let Some(elements) = elements else { return Ok(false) };
        let mut within = announced.within(elements);
        within.try_for_each(|(range, defined)| self.change_defined(id, range, defined))?;
        Ok(true)
    }

    /// Forgets the announced elements of the dataset `id` if some of its bytes were written.
    pub(super) fn forget_announced(&self, id: ObjectId) {
        let Some(editing) = &self.connector.editing else { return };
        if editing.objects.pending(id, |p| p.announced.is_some()) == Some(true) && !self.is_unwritten(id).unwrap_or(false) {
            editing.objects.change_pending(id, |p| p.announced = None);
        }
    }

    /// True if no bytes of the dataset `id` were written.
    pub(super) fn is_unwritten(&self, id: ObjectId) -> Result<bool> {
        let access = self.connector.access();
        Ok(access.dataset(id)?.dataset.bytes.is_blank()? && !self.connector.options.environment.dirty.has(key(id)))
    }

    /// The defined elements of `d` with numbers in `range`.
    fn known(&self, d: &Dataset, range: &Range<u64>) -> Result<ElementSet> {
        let definition = d.layout().definition().ok_or_else(unknown)?;
        let run = ElementSet::of_run(&d.space.dims, range);
        let (first, end) = covering_block(&d.space.dims, range);
        definition.defined(&d.bytes, &self.connector.options.environment, &first, &end)?.intersection(&run)
    }

    /// Changes the elements of `set`, about `step` of them in each operation.
    fn change_each(&self, id: ObjectId, dims: &[u64], set: &ElementSet, step: u64, becomes: Becomes) -> Result<()> {
        let (mut batch, mut elements) = (Vec::new(), 0u64);
        let change = |batch: &mut Vec<Range<u64>>| {
            let runs = std::mem::take(batch);
            self.connector.operate(&[id], |c| runs.iter().try_for_each(|run| c.data().become_at(id, run.clone(), becomes)))
        };
        set.for_each_run(dims, &mut |run| {
            let mut at = run.start;
            while at < run.end {
                let end = run.end.min(at.saturating_add(step.saturating_sub(elements)));
                elements = elements.saturating_add(end.saturating_sub(at));
                batch.push(at..end);
                at = end;
                if elements >= step {
                    elements = 0;
                    change(&mut batch)?;
                }
            }
            Ok(())
        })?;
        if batch.is_empty() { Ok(()) } else { change(&mut batch) }
    }
}

impl DataChange<'_> {
    /// The undefined elements of `d`: runs of their numbers.
    pub(in super::super) fn undefined(&self, d: &Dataset) -> Result<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        if d.layout().definition().is_some() && d.elements() > 0 {
            let all = 0..d.elements();
            let undefined = ElementSet::of_run(&d.space.dims, &all).difference(&self.change.connector.definitions().known(d, &all)?)?;
            undefined.for_each_run(&d.space.dims, &mut |run| {
                runs.push(run);
                Ok(())
            })?;
        }
        Ok(runs)
    }

    /// Makes those elements of `runs` undefined that have the fill value.
    pub(in super::super) fn undefine(&self, id: ObjectId, runs: &[Range<u64>]) -> Result<()> {
        runs.iter().try_for_each(|run| {
            let pieces = (run.start..run.end).step_by(usize::try_from(VARIABLE_STEP).unwrap_or(1));
            pieces.map(|at| at..run.end.min(at.saturating_add(VARIABLE_STEP))).try_for_each(|p| self.become_at(id, p, Becomes::Undefined))
        })
    }

    /// Makes the elements of `run` defined, or undefined where they have the fill value.
    fn become_at(&self, id: ObjectId, run: Range<u64>, becomes: Becomes) -> Result<()> {
        let d = self.change.writable_dataset(id)?;
        let size = d.element_size.max(1);
        let len = usize::try_from(run.end.saturating_sub(run.start).saturating_mul(size)).unwrap_or(usize::MAX);
        let at = run.start.saturating_mul(size);
        let mut bytes = vec![0; len.min(usize::try_from(d.bytes.size.saturating_sub(at)).unwrap_or(usize::MAX))];
        let n = d.bytes.read(&self.change.connector.options.environment, at, &mut bytes)?;
        bytes.truncate(n);
        if becomes == Becomes::Defined {
            return if bytes.is_empty() { Ok(()) } else { self.write_elements(id, at, &bytes) };
        }
        let store = self.change.store()?;
        for part in fill_values(&d.datatype, &d.bytes.fill, &bytes, &FileHeap(&store), ELEMENT_BYTES_MAX)? {
            let byte = |n: usize| at.saturating_add(n as u64);
            self.erase_bytes(id, byte(part.start)..byte(part.end))?;
        }
        Ok(())
    }
}
