//! Sets which elements of a sparse dataset are defined, without changing any value.
//!
//! A copy has the values of its source, but programs do not copy holes exactly: they write the fill
//! value to undefined elements, and punch zeros that are defined.

use super::super::super::NativeConnector;
use super::super::super::dataset::Dataset;
use super::super::super::file_heap::{ELEMENT_BYTES_MAX, FileHeap};
use super::super::{Change, Pending};
use crate::base::element_set::ElementSet;
use crate::base::parts::Limited;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use std::ops::Range;

/// Elements, and bytes of elements, that one operation changes.
const STEP: u64 = 1 << 20;
/// Elements of variable length that one operation changes.
const VARIABLE_STEP: u64 = 1 << 14;

/// Runs of the announced elements of all datasets.
const ANNOUNCED_RUNS_MAX: usize = 1 << 22;

/// Which elements are to be defined of a dataset of which nothing was written when that was set:
/// `tar` sets extended attributes before it writes the bytes.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Announced(Vec<(Range<u64>, Vec<Range<u64>>)>);

/// The change of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Defined,
    Undefined,
}

impl NativeConnector {
    /// Of the elements with numbers in `range`, those in `defined` (ascending, disjoint) become
    /// defined, and the others undefined if they have the fill value.
    pub(super) fn change_defined(&self, id: ObjectId, range: &Range<u64>, defined: &[Range<u64>]) -> Result<()> {
        let (known, dims, step) = {
            let _shared = self.shared();
            let d = &self.dataset(id)?.dataset;
            let size = d.element_size.max(1);
            let step = if d.datatype.contains_vlen() { VARIABLE_STEP } else { (STEP / size).max(1) };
            (self.known(d, range)?, d.space.dims.clone(), step)
        };
        let wanted = ElementSet::of_runs(&dims, defined)?.intersection(&ElementSet::of_run(&dims, range))?;
        self.change_each(id, &dims, &wanted.difference(&known)?, step, Becomes::Defined)?;
        self.change_each(id, &dims, &known.difference(&wanted)?, step, Becomes::Undefined)
    }

    /// Keeps what was set by [`NativeConnector::change_defined`] for bytes that are written next,
    /// if the dataset was `blank`.
    pub(in super::super) fn announce(&self, id: ObjectId, blank: bool, range: Range<u64>, defined: &[Range<u64>]) {
        let Some(editing) = &self.editing else { return };
        let runs = |p: &Pending| p.announced.as_ref().map_or(0, |a| a.0.iter().map(|(_, runs)| runs.len()).sum::<usize>());
        let mut pending = editing.objects.all_pending();
        let kept: usize = pending.iter().map(|(_, p)| runs(p)).sum();
        let others = pending.iter().any(|(other, p)| other == id && p.announced.is_some());
        if !blank && !others {
            return;
        }
        if kept.saturating_add(defined.len()) > ANNOUNCED_RUNS_MAX {
            tracing::warn!("object at {id}: elements that are written next are defined: there is no memory for those that are not");
            return;
        }
        pending.change(id, |p| p.announced.get_or_insert_default().0.push((range, defined.to_vec())));
    }

    /// Makes those elements of the dataset `id` defined that were announced, and others with the
    /// fill value undefined. `last`: the last writer closes.
    pub(in super::super) fn apply_announced(&self, id: ObjectId, last: bool) -> Result<()> {
        let Some(editing) = &self.editing else { return Ok(()) };
        let Some(announced) = editing.objects.pending(id, |p| p.announced.clone()).flatten() else { return Ok(()) };
        if last && editing.objects.usage(id).holds <= 1 {
            editing.objects.change_pending(id, |p| p.announced = None);
        }
        let elements = {
            let _shared = self.shared();
            let d = &self.dataset(id)?.dataset;
            d.layout().definition().map(|_| d.elements())
        };
        // It may have become another dataset.
        let Some(elements) = elements else { return Ok(()) };
        let mut within = announced.0.iter().filter(|(range, _)| range.end <= elements);
        within.try_for_each(|(range, defined)| self.change_defined(id, range, defined))
    }

    /// The defined elements of `d` with numbers in `range`.
    fn known(&self, d: &Dataset, range: &Range<u64>) -> Result<ElementSet> {
        let none = || Error::refused(libc::EOPNOTSUPP, "the dataset does not know which of its elements are defined");
        let definition = d.layout().definition().ok_or_else(none)?;
        let run = ElementSet::of_run(&d.space.dims, range);
        let row = d.space.dims.iter().skip(1).fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
        let (mut first, mut end) = (vec![0; d.space.dims.len()], d.space.dims.clone());
        if let (Some(first), Some(end)) = (first.first_mut(), end.first_mut()) {
            (*first, *end) = (range.start / row, range.end.div_ceil(row).min(*end));
        }
        definition.defined(&d.bytes, &self.options.environment, &first, &end)?.intersection(&run)
    }

    /// Changes the elements of `set`, about `step` of them in each operation.
    fn change_each(&self, id: ObjectId, dims: &[u64], set: &ElementSet, step: u64, becomes: Becomes) -> Result<()> {
        let (mut batch, mut elements) = (Vec::new(), 0u64);
        let change = |batch: &mut Vec<Range<u64>>| {
            let runs = std::mem::take(batch);
            self.operate(&[id], |c| runs.iter().try_for_each(|run| c.become_at(id, run.clone(), becomes)))
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

impl Change<'_> {
    /// The undefined elements of `d`: runs of their numbers.
    pub(in super::super) fn undefined(&self, d: &Dataset) -> Result<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        if d.layout().definition().is_some() && d.elements() > 0 {
            let all = 0..d.elements();
            let undefined = ElementSet::of_run(&d.space.dims, &all).difference(&self.connector.known(d, &all)?)?;
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
        let d = self.writable_dataset(id)?;
        let size = d.element_size.max(1);
        let len = usize::try_from(run.end.saturating_sub(run.start).saturating_mul(size)).unwrap_or(usize::MAX);
        let at = run.start.saturating_mul(size);
        let mut bytes = vec![0; len.min(usize::try_from(d.bytes.size.saturating_sub(at)).unwrap_or(usize::MAX))];
        let n = d.bytes.read(&self.connector.options.environment, at, &mut bytes)?;
        bytes.truncate(n);
        if becomes == Becomes::Defined {
            return if bytes.is_empty() { Ok(()) } else { self.write_elements(id, at, &bytes) };
        }
        for part in self.fill_values(&d, &bytes)? {
            let byte = |n: usize| at.saturating_add(n as u64);
            self.erase_bytes(id, byte(part.start)..byte(part.end))?;
        }
        Ok(())
    }

    /// The parts of `bytes`, whole elements, that have the fill value.
    fn fill_values(&self, d: &Dataset, bytes: &[u8]) -> Result<Vec<Range<usize>>> {
        let form = VariableForm::of(&d.datatype);
        let store = self.store()?;
        let heap = FileHeap(&store);
        let exact = |element: &[u8], limit: u64| {
            let mut out = Vec::new();
            form.exact(element, &Limited { parts: &heap, limit }, &mut out).map(|()| out)
        };
        let size = usize::try_from(d.element_size).unwrap_or(usize::MAX).max(1);
        let mut fill = vec![0; size.min(bytes.len())];
        d.bytes.fill.fill(0, &mut fill);
        let fill_form = if form.is_verbatim() { None } else { exact(&fill, ELEMENT_BYTES_MAX).ok() };
        let is_fill = |element: &[u8]| {
            // An element that cannot be read, or is longer, is another.
            let same = |form: &Vec<u8>| exact(element, form.len() as u64).is_ok_and(|other| other == *form);
            element == fill.as_slice() || fill_form.as_ref().is_some_and(same)
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for (i, element) in bytes.chunks_exact(size).enumerate().filter(|(_, element)| is_fill(element)) {
            let start = i.saturating_mul(size);
            let end = start.saturating_add(element.len());
            match found.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => found.push(start..end),
            }
        }
        Ok(found)
    }
}
