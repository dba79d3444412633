//! Writing datasets with variable-length parts: as a whole, through the form in which the file
//! shows them.
//!
//! Written bytes go to a copy of the form in memory, which readers of the file see, too.
//! When a descriptor is closed, or the file is synced, the elements are made from it; until then
//! the dataset is as it was. There must be as many elements as the dataset has, or as many as whole
//! rows of a first dimension that may change.

use super::change_parts::FormChange;
use super::errors::invalid;
use super::relayout::Elements;
use super::{Dataset, NativeConnector, Pending};
use crate::base::newlines::Newlines;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::{Form, ObjectId};
use crate::dataset::creation::Creation;
use std::ops::Range;
use std::sync::Arc;

/// Longest form that is written, bytes: of one dataset, and of all together.
const FORM_MAX: u64 = 128 << 20;
const FORMS_MAX: u64 = 512 << 20;

/// The form of a dataset that is being written.
#[derive(Debug, Default)]
pub struct Rewrite {
    /// As it is now.
    pub form: Vec<u8>,
    /// Something was written since it was made.
    pub written: bool,
    /// It is made of lines.
    pub lines: bool,
    /// It is the exact form of what has lines too.
    pub exact: bool,
    /// Newlines in it.
    ends: u64,
    /// Newlines inside strings, which end no line.
    newlines: Newlines,
    /// It is the form of the elements that the dataset has.
    whole: bool,
    /// Newlines are those inside the strings that the dataset has: their lines stay where they are.
    fixed: bool,
    /// It was emptied: all elements are new ones.
    emptied: bool,
}

impl Rewrite {
    /// Whether it is what the dataset's `form` shows.
    pub fn is(&self, form: Form) -> bool {
        match form {
            Form::Main => !self.exact,
            Form::Exact => !self.lines,
        }
    }

    /// Bytes in memory.
    fn len(&self) -> u64 {
        self.form.len() as u64
    }

    fn write(&mut self, range: Range<usize>, bytes: &[u8]) {
        self.form.resize(self.form.len().max(range.end), 0);
        if let Some(part) = self.form.get_mut(range) {
            self.ends = self.ends.saturating_sub(ends(part)).saturating_add(ends(bytes));
            part.copy_from_slice(bytes);
        }
    }

    fn resize(&mut self, size: usize) {
        self.ends = self.ends.saturating_sub(ends(self.form.get(size..).unwrap_or_default()));
        self.form.resize(size, 0);
    }

    /// Strings that the lines are when `bytes` were written from `from` to the end.
    fn strings_with(&self, from: usize, bytes: &[u8]) -> u64 {
        let kept = self.ends.saturating_sub(ends(self.form.get(from..).unwrap_or_default()));
        let open = bytes.last().is_some_and(|b| *b != b'\n');
        kept.saturating_add(ends(bytes)).saturating_add(open.into()).saturating_sub(self.newlines.total())
    }
}

impl NativeConnector {
    /// Makes the elements of the dataset `id` those of the form that was written, if one was;
    /// returns whether it was. `last`: the last writer closes.
    pub(super) fn finish_rewrite(&self, id: ObjectId, last: bool) -> Result<bool> {
        let Some(e) = &self.editing else { return Ok(false) };
        if !last {
            e.check_refused(id)?;
        }
        // A file that was only truncated is written next: shells close a copy of the descriptor
        // first.
        let is_written = |p: &Pending| p.rewrite.as_ref().is_some_and(|r| r.written || last);
        if e.objects.pending(id, is_written) != Some(true) {
            return Ok(false);
        }
        let done = self.operate_flushed(id, |c| c.forms().finish_form(id)).map(|()| true);
        // Another open file may write the rest.
        if last && e.objects.usage(id).holds <= 1 {
            e.objects.change_pending(id, |p| p.rewrite = None);
        }
        done
    }
}

impl FormChange<'_> {
    /// Writes bytes of the form.
    pub(super) fn write_form(&self, d: &Dataset, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.change_form(d, form, end, |rewrite| {
            let (from, to) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(end).unwrap_or(usize::MAX));
            if rewrite.fixed && from < rewrite.form.len() {
                return Err(invalid("strings of the dataset hold newlines: its lines are appended to or replaced as a whole"));
            }
            // Overwritten bytes may be cut off later; bytes past the end add an element.
            if let Some(most) = most(d).filter(|_| to > rewrite.form.len()) {
                let more = match rewrite.lines {
                    true => rewrite.strings_with(from, bytes) > most,
                    false => rewrite.whole && from >= rewrite.form.len() && most == d.elements(),
                };
                if more {
                    return Err(Error::refused(libc::EFBIG, format!("the dataset has at most {most} elements")));
                }
            }
            rewrite.write(from..to, bytes);
            rewrite.whole = false;
            Ok(())
        })
    }

    /// Makes the form `size` bytes long.
    pub(super) fn resize_form(&self, d: &Dataset, form: Form, size: u64) -> Result<()> {
        let awaited = self.awaited_newlines(d.id);
        self.change_form(d, form, size, |rewrite| {
            if rewrite.fixed && size > 0 && size != rewrite.len() {
                return Err(invalid("strings of the dataset hold newlines: its lines are appended to or replaced as a whole"));
            }
            rewrite.resize(usize::try_from(size).unwrap_or(0));
            if size == 0 {
                (rewrite.newlines, rewrite.whole, rewrite.fixed) = (awaited, false, false);
                rewrite.emptied = true;
            }
            Ok(())
        })?;
        self.change.editing.objects.change_pending(d.id, |p| p.rewrite.as_mut().map(|r| r.written = size > 0));
        Ok(())
    }

    /// Newlines inside strings that `user.h5dir.dataset` listed for lines written next.
    fn awaited_newlines(&self, id: ObjectId) -> Newlines {
        self.change.editing.objects.pending(id, |p| p.newlines.clone()).flatten().unwrap_or_default()
    }

    fn change_form(&self, d: &Dataset, form: Form, end: u64, f: impl FnOnce(&mut Rewrite) -> Result<()>) -> Result<()> {
        if !d.layout().is_in_file() {
            return Err(Error::refused(libc::EPERM, "a dataset whose elements lie elsewhere is not written"));
        }
        let objects = &self.change.editing.objects;
        let is_begun = {
            let pending = objects.all_pending();
            let others = pending.iter().filter(|(id, _)| *id != d.id).filter_map(|(_, p)| p.rewrite.as_ref());
            if end > FORM_MAX || others.map(Rewrite::len).sum::<u64>().saturating_add(end) > FORMS_MAX {
                return Err(large());
            }
            let begun = pending.iter().find(|(id, _)| *id == d.id).and_then(|(_, p)| p.rewrite.as_ref());
            if begun.is_some_and(|r| !r.is(form) && r.written) {
                return Err(Error::refused(libc::EBUSY, "the dataset is being written in its other form"));
            }
            begun.is_some_and(|r| r.is(form))
        };
        if !is_begun {
            let rewrite = self.begin_rewrite(d, form, end)?;
            objects.change_pending(d.id, |p| p.rewrite = Some(rewrite));
        }
        objects.change_pending(d.id, |p| {
            let Some(rewrite) = &mut p.rewrite else { return Ok(()) };
            let done = f(rewrite);
            rewrite.written |= done.is_ok();
            if done.is_err() && !is_begun {
                p.rewrite = None;
            }
            done
        })
    }

    /// The form before its first change.
    fn begin_rewrite(&self, d: &Dataset, form: Form, end: u64) -> Result<Rewrite> {
        self.change.references().check_form(d)?;
        let strings = d.datatype.is_vlen_string();
        let (lines, exact) = (strings && form == Form::Main, strings && form == Form::Exact);
        let awaited = if lines { self.awaited_newlines(d.id) } else { Newlines::default() };
        // What is truncated need not be read.
        if end == 0 {
            return Ok(Rewrite { written: true, lines, exact, newlines: awaited, emptied: true, ..Rewrite::default() });
        }
        let text = self.form(d.id, form)?.ok_or_else(large)?;
        let mut rewrite =
            Rewrite { ends: ends(&text), form: text, written: true, lines, exact, newlines: awaited, whole: true, ..Rewrite::default() };
        if let Some(there) = self.change.access.dataset(d.id)?.lines.as_ref().filter(|_| lines && rewrite.newlines.is_empty()) {
            let unknown = || invalid("strings of the dataset hold newlines: they are written below .h5dir/exact");
            rewrite.newlines = there.newlines().ok_or_else(unknown)?;
            rewrite.fixed = !rewrite.newlines.is_empty();
        }
        Ok(rewrite)
    }

    /// The form of the elements that the dataset has; `None` if it is too long.
    fn form(&self, id: ObjectId, form: Form) -> Result<Option<Vec<u8>>> {
        let content = self.change.access.form_of(id, form)?;
        let size = content.size()?;
        if size > FORM_MAX {
            return Ok(None);
        }
        let mut form = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut at = 0usize;
        while let Some(rest) = form.get_mut(at..).filter(|r| !r.is_empty()) {
            let n = content.read(at as u64, rest)?;
            if n == 0 {
                return Err(Error::corrupt("dataset", id.address, "its form ends early"));
            }
            at = at.saturating_add(n);
        }
        Ok(Some(form))
    }

    /// Makes the elements of the dataset those of the form that was written.
    pub(super) fn finish_form(&self, id: ObjectId) -> Result<()> {
        let objects = &self.change.editing.objects;
        let Some(rewrite) = objects.change_pending(id, |p| p.rewrite.take()) else { return Ok(()) };
        let done = self.change.dataset(id).and_then(|d| self.replace_elements(&d, &rewrite));
        if done.is_err() {
            // It may be written on.
            objects.change_pending(id, |p| p.rewrite = Some(rewrite));
        } else {
            objects.change_pending(id, |p| p.newlines = None);
        }
        done
    }

    fn replace_elements(&self, d: &Arc<Dataset>, rewrite: &Rewrite) -> Result<()> {
        let form = rewrite.form.as_slice();
        let dims = dims_for(d, count(d, rewrite)?)?;
        let creation = Creation {
            datatype: d.datatype.clone(),
            committed: None,
            extent: d.space.extent,
            dims,
            max_dims: d.space.max_dims.clone(),
            layout: d.layout().for_copy(),
            filters: d.layout().for_copy().kind.user_filters(&d.pipeline.filters),
            fill: d.fill.fill.clone(),
            fill_time: Some(d.fill.write_time).filter(|t| *t <= 2),
            allocation_time: Some(d.fill.allocation_time),
            elsewhere: None,
            undefine_fill: false,
            modified: None,
        };
        let lines = rewrite.lines.then(|| rewrite.newlines.clone());
        // What was undefined and still has the fill value was not written.
        let undefined = if rewrite.emptied { Vec::new() } else { self.change.data().undefined(d)? };
        self.change.layout().relayout(d, &creation, false, Elements::Form { form, lines })?;
        self.change.data().undefine(d.id, &undefined)?;
        self.change.objects().touch(d.id)
    }
}

fn large() -> Error {
    Error::refused(libc::EFBIG, format!("variable-length elements are written as a whole, at most {FORM_MAX} bytes"))
}

/// Newlines in `bytes`.
fn ends(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The most elements that the dataset may have; `None`: any number.
fn most(d: &Dataset) -> Option<u64> {
    if !d.layout().resizes() {
        return Some(d.elements());
    }
    let max = d.space.max();
    let first = match max.first() {
        Some(first) => (*first)?,
        None => return Some(d.elements()),
    };
    d.space.dims.iter().skip(1).try_fold(first, |n, dim| n.checked_mul(*dim))
}

/// Elements that were written.
fn count(d: &Dataset, rewrite: &Rewrite) -> Result<u64> {
    let form = rewrite.form.as_slice();
    if rewrite.lines {
        let open = form.last().is_some_and(|b| *b != b'\n');
        let lines = ends(form).saturating_add(open.into());
        return lines.checked_sub(rewrite.newlines.total()).ok_or_else(|| invalid("fewer lines than the strings have newlines"));
    }
    let (plan, size) = (VariableForm::of(&d.datatype), usize::try_from(d.element_size).unwrap_or(0));
    let (mut at, mut n) = (0usize, 0u64);
    while let Some(rest) = form.get(at..).filter(|r| !r.is_empty()) {
        let len = plan.form_len(size, rest).filter(|n| *n > 0);
        at = at.saturating_add(len.ok_or_else(|| invalid("the last element is not there as a whole"))?);
        n = n.saturating_add(1);
    }
    Ok(n)
}

/// The dimensions with `n` elements.
fn dims_for(d: &Dataset, n: u64) -> Result<Vec<u64>> {
    let mut dims = d.space.dims.clone();
    if n == d.elements() {
        return Ok(dims);
    }
    let total = d.elements();
    let fixed = || invalid(format!("{n} elements were written, and the dataset has {total} and cannot change that"));
    let row = dims.iter().skip(1).try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n > 0).ok_or_else(fixed)?;
    let most = d.space.max().first().copied().ok_or_else(fixed)?;
    if !d.layout().resizes() || !n.is_multiple_of(row) || most.is_some_and(|m| n / row > m) {
        return Err(fixed());
    }
    *dims.first_mut().ok_or_else(fixed)? = n / row;
    Ok(dims)
}
