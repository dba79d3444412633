//! Writing datasets with variable-length elements: as a whole, through the form that is shown.
//!
//! Written bytes go to a copy of the form in memory. When the last descriptor is closed, or the
//! file is synced, the elements are made from it.

use super::cells::NewCells;
use super::dataset::Dataset;
use super::forms::{self, Parts, newlines};
use super::object_access::ObjectAccess;
use super::state::{Form, State};
use crate::base::element_set::ElementSet;
use crate::base::locks::RwLock;
use crate::base::newlines::Newlines;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::Form as Shown;
use crate::dataset::heap::HeapStore;
use crate::format::Context;
use crate::format::object_header::kind;
use crate::iod::keys;
use std::sync::Arc;

/// Longest form that is written, bytes.
const FORM_MAX: u64 = 128 << 20;

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

fn large() -> Error {
    Error::refused(libc::EFBIG, format!("variable-length elements are written as a whole, at most {FORM_MAX} bytes"))
}

impl ObjectAccess {
    /// Changes the form of a dataset; `end`: its least length after that, 0 if it is emptied.
    fn change_form(&self, state: &mut State, d: &Dataset, shown: Shown, end: u64, f: impl FnOnce(&mut Form) -> Result<()>) -> Result<()> {
        if end > FORM_MAX {
            return Err(large());
        }
        let begun = match state.forms.get(&d.id) {
            Some(form) if form.is(shown, d.datatype.is_vlen_string()) => true,
            Some(form) if form.written => return Err(Error::refused(libc::EBUSY, "the dataset is being written in its other form")),
            _ => false,
        };
        if !begun {
            let lines = shown == Shown::Main && d.datatype.is_vlen_string();
            let bytes = if end == 0 { Vec::new() } else { self.whole_form(state, d, lines)? };
            let fixed = if lines && !bytes.is_empty() && self.keep_newlines(state, d)? { bytes.len() } else { 0 };
            let bytes = Arc::new(RwLock::new(bytes));
            state.forms.insert_mut(d.id, Form { bytes, written: false, emptied: false, lines, fixed });
        }
        if let Some(form) = state.forms.get_mut(&d.id) {
            let fixed = form.fixed;
            f(form)?;
            if form.fixed < fixed {
                state.newlines.remove(&d.id);
            }
        }
        state.changed(d.id);
        Ok(())
    }

    /// Keeps the newlines inside the strings that `d` has until its lines are parsed; false: there
    /// are none.
    fn keep_newlines(&self, state: &mut State, d: &Dataset) -> Result<bool> {
        let newlines = newlines(self, state, d)?.ok_or_else(|| invalid("many strings hold newlines: write the exact form"))?;
        let some = !newlines.is_empty();
        if some {
            state.await_newlines(d.id, newlines)?;
        }
        Ok(some)
    }

    /// The form of all elements that a dataset has.
    pub(super) fn whole_form(&self, state: &State, d: &Dataset, lines: bool) -> Result<Vec<u8>> {
        forms::whole(Parts::new(self, state, d, lines)?, FORM_MAX)?.ok_or_else(large)
    }

    /// Writes bytes of the form.
    pub(super) fn write_form(&self, state: &mut State, d: &Dataset, shown: Shown, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(large)?;
        self.change_form(state, d, shown, end, |form| {
            let (from, to) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(end).unwrap_or(usize::MAX));
            if from < form.fixed {
                return Err(invalid("strings with newlines are replaced as a whole, or in the exact form"));
            }
            let mut all = form.bytes.write();
            if all.len() < to {
                all.resize(to, 0);
            }
            if let Some(part) = all.get_mut(from..to) {
                part.copy_from_slice(bytes);
            }
            drop(all);
            form.written = true;
            Ok(())
        })
    }

    /// Makes the form `size` bytes long.
    pub(super) fn resize_form(&self, state: &mut State, d: &Dataset, shown: Shown, size: u64) -> Result<()> {
        self.change_form(state, d, shown, size, |form| {
            let size = usize::try_from(size).unwrap_or(0);
            if size > 0 && size < form.fixed {
                return Err(invalid("strings with newlines are cut in the exact form only"));
            }
            form.fixed = form.fixed.min(size);
            form.bytes.write().resize(size, 0);
            form.written = size > 0;
            form.emptied |= size == 0;
            Ok(())
        })
    }

    /// Makes the elements of a dataset those of its form. `last`: also if it was only emptied.
    /// False: there is nothing to do.
    pub(super) fn finish_form(&self, state: &mut State, id: u64, last: bool) -> Result<bool> {
        let Some(form) = state.forms.get(&id).filter(|form| form.written || last).cloned() else { return Ok(false) };
        let (bytes, emptied) = (form.bytes.read(), form.emptied);
        let lines = form.lines.then(|| state.newlines.get(&id).cloned().unwrap_or_default());
        let d = self.dataset_of(state, id)?;
        let undefined = if emptied { ElementSet::default() } else { self.undefined(state, &d)? };
        self.parse_form(state, &d, &bytes, lines, &undefined)?;
        state.forms.remove_mut(&id);
        state.newlines.remove(&id);
        state.touch(id)?;
        state.changed(id);
        Ok(true)
    }

    /// Replaces the elements of a dataset by those of a form. `lines`: it has lines of strings,
    /// with these newlines inside them. Those of `undefined` that have the fill value stay so.
    pub(super) fn parse_form(
        &self,
        state: &mut State,
        d: &Dataset,
        form: &[u8],
        lines: Option<Newlines>,
        undefined: &ElementSet,
    ) -> Result<()> {
        let elements = count(d, form, lines.as_ref())?;
        let rows = rows_for(d, elements)?;
        let (raw, blocks) = self.parsed(state, d, form, lines)?;
        state.remove_all(&keys::of_kind(d.id, keys::CHUNK))?;
        self.drop_cells(state, d)?;
        let mut space = d.space.clone();
        if let (Some(rows), Some(first)) = (rows, space.dims.first_mut()) {
            *first = rows;
            state.put_header(d.id, kind::DATASPACE, &space.encode(&Context::DEFAULT))?;
        }
        for (block, bytes) in blocks {
            state.put(keys::key(d.id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        state.changed(d.id);
        let d = self.dataset_of(state, d.id)?;
        self.write_elements(state, &d, 0, &raw)?;
        if !d.knows_defined() {
            return Ok(());
        }
        let there = ElementSet::of_run(&d.space.dims, &(0..d.elements()));
        self.undefine_fill_values(state, &d, &undefined.intersection(&there)?)
    }

    /// The elements of a form, and the blocks of their cells.
    #[allow(clippy::type_complexity)]
    fn parsed(&self, state: &State, d: &Dataset, form: &[u8], lines: Option<Newlines>) -> Result<(Vec<u8>, Vec<(u64, Vec<u8>)>)> {
        let mut cells = NewCells::new(state, true, true);
        let mut raw = Vec::new();
        if let Some(newlines) = lines {
            for line in newlines.strings_of(form) {
                let text = line.strip_suffix(b"\n").unwrap_or(line);
                let count = u32::try_from(text.len()).map_err(|_| large())?;
                raw.extend(cells.sequence(count, text)?);
            }
        } else {
            let plan = VariableForm::without_references(&d.datatype);
            let size = usize::try_from(d.element_size).unwrap_or(usize::MAX);
            let mut rest = form;
            while !rest.is_empty() {
                let parsed = plan.parse(size, rest, &mut |count, payload| cells.sequence(count, payload))?;
                let (element, used) = parsed.filter(|(_, used)| *used > 0).ok_or_else(incomplete)?;
                raw.extend(element);
                rest = rest.get(used..).unwrap_or_default();
            }
        }
        Ok((raw, cells.into_blocks()?))
    }
}

fn incomplete() -> Error {
    invalid("the last element is not there as a whole")
}

/// Elements of a form.
fn count(d: &Dataset, form: &[u8], lines: Option<&Newlines>) -> Result<u64> {
    if let Some(newlines) = lines {
        let lines = form.split_inclusive(|b| *b == b'\n').count() as u64;
        let strings = newlines.clone().strings_of(form).count() as u64;
        let all_there = strings.checked_add(newlines.total()) == Some(lines);
        return if all_there { Ok(strings) } else { Err(invalid("the strings hold other numbers of newlines")) };
    }
    let (plan, size) = (VariableForm::of(&d.datatype), usize::try_from(d.element_size).unwrap_or(0));
    let (mut rest, mut n) = (form, 0u64);
    while !rest.is_empty() {
        let len = plan.form_len(size, rest).filter(|n| *n > 0).ok_or_else(incomplete)?;
        rest = rest.get(len..).unwrap_or_default();
        n = n.saturating_add(1);
    }
    Ok(n)
}

/// The first dimension with `n` elements; `None`: it stays as it is.
fn rows_for(d: &Dataset, n: u64) -> Result<Option<u64>> {
    let total = d.elements();
    if n == total {
        return Ok(None);
    }
    let fixed = || invalid(format!("{n} elements were written, and the dataset has {total} and cannot change that"));
    let row = d.row_bytes().and_then(|bytes| bytes.checked_div(d.element_size)).filter(|n| *n > 0).ok_or_else(fixed)?;
    let most = d.space.max().first().copied().ok_or_else(fixed)?;
    if !d.resizes() || d.space.max_dims.is_none() || !n.is_multiple_of(row) || most.is_some_and(|m| n / row > m) {
        return Err(fixed());
    }
    Ok(Some(n / row))
}
