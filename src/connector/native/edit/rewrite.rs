//! Writing datasets with variable-length parts: as a whole, through the form in which the file shows them.
//!
//! What is written goes to a copy of the form in memory, which whoever reads the file sees too. When a descriptor is
//! closed, or the file is synced, the elements are made from it; until then the dataset is as it was. There must be as
//! many elements as the dataset has, or as many as whole rows of a first dimension that may change.

use super::facts::invalid;
use super::relayout::Elements;
use super::{Change, Dataset};
use crate::base::{Error, Result};
use crate::connector::{Form, ObjectId};
use crate::dataset::create::{Creation, Layout};
use crate::dataset::storage::Storage;
use crate::dataset::vl::VariableForm;
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
}

impl Rewrite {
    /// Whether it is what the dataset's `form` shows.
    pub fn is(&self, form: Form) -> bool {
        match form {
            Form::Main => !self.exact,
            Form::Exact => !self.lines,
        }
    }
}

impl Change<'_> {
    /// Writes bytes of the form.
    pub(super) fn write_form(&self, d: &Dataset, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.change_form(d, form, end, |form| {
            let (from, to) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(end).unwrap_or(usize::MAX));
            form.resize(form.len().max(to), 0);
            if let Some(part) = form.get_mut(from..to) {
                part.copy_from_slice(bytes);
            }
        })
    }

    /// Makes the form `size` bytes long.
    pub(super) fn resize_form(&self, d: &Dataset, form: Form, size: u64) -> Result<()> {
        self.change_form(d, form, size, |form| form.resize(usize::try_from(size).unwrap_or(0), 0))?;
        if let Some(r) = self.editing.rewrites.lock().get_mut(&d.id) {
            r.written = size > 0;
        }
        Ok(())
    }

    fn change_form(&self, d: &Dataset, form: Form, end: u64, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if !matches!(d.bytes.storage, Storage::Compact(_) | Storage::Contiguous(_) | Storage::Chunked(_)) {
            return Err(Error::refused(libc::EPERM, "a dataset whose elements lie elsewhere is not written"));
        }
        let large = || Error::refused(libc::EFBIG, format!("variable-length elements are written as a whole, at most {FORM_MAX} bytes"));
        let mut rewrites = self.editing.rewrites.lock();
        let others: u64 = rewrites.iter().filter(|(id, _)| **id != d.id).map(|(_, r)| r.form.len() as u64).sum();
        if end > FORM_MAX || others.saturating_add(end) > FORMS_MAX {
            return Err(large());
        }
        let strings = d.datatype.is_vlen_string();
        let (lines, exact) = (strings && form == Form::Main, strings && form == Form::Exact);
        if rewrites.get(&d.id).is_some_and(|r| !r.is(form) && r.written) {
            return Err(Error::refused(libc::EBUSY, "the dataset is being written in its other form"));
        }
        let text = match rewrites.remove(&d.id).filter(|r| r.is(form)) {
            Some(r) => r.form,
            // What is truncated need not be read.
            None if end == 0 => Vec::new(),
            None => self.form(d.id, form)?.ok_or_else(large)?,
        };
        let mut rewrite = Rewrite { form: text, written: true, lines, exact };
        f(&mut rewrite.form);
        rewrites.insert(d.id, rewrite);
        Ok(())
    }

    /// The form of the elements that the dataset has; `None` if it is too long.
    fn form(&self, id: ObjectId, form: Form) -> Result<Option<Vec<u8>>> {
        let content = self.connector.form_of(id, form)?;
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
        let Some(rewrite) = self.editing.rewrites.lock().remove(&id) else { return Ok(()) };
        let done = self.dataset(id).and_then(|d| self.replace_elements(&d, &rewrite));
        if done.is_err() {
            // It may be written on.
            self.editing.rewrites.lock().insert(id, rewrite);
        }
        done
    }

    fn replace_elements(&self, d: &Arc<Dataset>, rewrite: &Rewrite) -> Result<()> {
        let (form, lines) = (rewrite.form.as_slice(), rewrite.lines);
        let dims = dims_for(d, count(d, form, lines)?)?;
        let layout = match &d.bytes.storage {
            Storage::Compact(_) => Layout::Compact,
            Storage::Chunked(_) => Layout::Chunked(d.chunked_layout().map(|c| c.chunk_dims.clone()).unwrap_or_default()),
            _ => Layout::Contiguous,
        };
        let creation = Creation {
            datatype: d.datatype.clone(),
            committed: None,
            extent: d.space.extent,
            dims,
            max_dims: d.space.max_dims.clone(),
            layout,
            filters: d.pipeline.filters.clone(),
            fill: d.fill.fill.clone(),
            fill_time: Some(d.fill.write_time).filter(|t| *t <= 2),
            modified: None,
        };
        self.relayout(d, &creation, false, Elements::Form { form, lines })?;
        self.touch(d.id)
    }
}

/// Elements of which `form` is the form.
fn count(d: &Dataset, form: &[u8], lines: bool) -> Result<u64> {
    if lines {
        let ends = form.iter().filter(|b| **b == b'\n').count();
        let open = form.last().is_some_and(|b| *b != b'\n');
        return Ok((ends as u64).saturating_add(open.into()));
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
    if d.chunked().is_none() || !n.is_multiple_of(row) || most.is_some_and(|m| n / row > m) {
        return Err(fixed());
    }
    *dims.first_mut().ok_or_else(fixed)? = n / row;
    Ok(dims)
}
