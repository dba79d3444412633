//! Writes the elements of a selection, in its order.
//!
//! | elements | input |
//! |---|---|
//! | of fixed size | their bytes |
//! | strings of variable length | a line each |
//! | others of variable length | their exact form |

use super::parse::{NpyHeader, SelectionText};
use crate::base::selected::Selected;
use crate::base::value::list_of;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, Datatype, NewValue, ObjectId};
use std::io::Read;
use std::ops::Range;

/// Bytes of elements that are written by one operation, about.
const BATCH_BYTES: u64 = 8 << 20;
/// Elements that lie apart and are written by one operation.
const BATCH_RUNS: usize = 1 << 17;
/// Input of unknown length up to which nothing is written before all of it is there, bytes; also
/// the most input of elements of variable length.
pub(super) const INPUT_BYTES_MAX: u64 = 64 << 20;

/// What the bytes of an input are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputForm {
    /// Elements, see the description of the module.
    Elements,
    /// A numpy file with elements of the type of the dataset.
    Npy,
}

/// An input.
pub struct Input<'a> {
    /// Its bytes.
    pub bytes: &'a mut dyn Read,
    /// Their number, if it is known.
    pub len: Option<u64>,
    /// What they are.
    pub form: InputForm,
}

/// Called with the bytes that were written.
pub type WriteProgress<'a> = dyn FnMut(u64) -> Result<()> + 'a;

pub(super) fn invalid(reason: String) -> Error {
    Error::refused(libc::EINVAL, reason)
}

pub(super) fn unreadable(e: &std::io::Error) -> Error {
    Error::refused(e.raw_os_error().unwrap_or(libc::EIO), format!("cannot read the input: {e}"))
}

/// Writes `input` to the elements of the dataset `id` in `selection` (empty: all).
///
/// Errors: `EINVAL`, the input has not as many elements; nothing is written then if its length is
/// known or it has at most 64 MiB.
pub fn write_selected(
    connector: &dyn Connector,
    edit: &dyn Edit,
    id: ObjectId,
    selection: SelectionText<'_>,
    input: &mut Input<'_>,
    progress: &mut WriteProgress<'_>,
) -> Result<()> {
    let dataset = connector.dataset(id)?;
    let dims = dataset.shape.dims().ok_or_else(|| invalid("a dataset of a null dataspace has no elements".into()))?;
    write_elements(connector, edit, id, &selection.select(dims)?, input, progress)
}

/// [`write_selected`] to `elements`.
pub(super) fn write_elements(
    connector: &dyn Connector,
    edit: &dyn Edit,
    id: ObjectId,
    elements: &Selected,
    input: &mut Input<'_>,
    progress: &mut WriteProgress<'_>,
) -> Result<()> {
    let dataset = connector.dataset(id)?;
    if dataset.datatype.contains_vlen() {
        if input.form == InputForm::Npy {
            return Err(Error::refused(libc::EOPNOTSUPP, "numpy has no notation for the elements of the dataset; give them without --npy"));
        }
        return write_variable(connector, edit, id, elements, input);
    }
    let size = dataset.datatype.element_size().max(1);
    let wanted = elements.len().checked_mul(size).ok_or_else(|| Error::refused(libc::EFBIG, "a selection of 2^64 bytes or more"))?;
    let mut front = Vec::new();
    if input.form == InputForm::Npy {
        front = check_npy(input, &dataset.datatype, elements)?;
    }
    let differs = |what: &str| {
        let hint = if input.form == InputForm::Elements { "; a numpy file needs --npy" } else { "" };
        invalid(format!("the input has {what}, the selection {wanted} ({} elements of {size} bytes){hint}", elements.len()))
    };
    if let Some(len) = input.len
        && len != wanted
    {
        return Err(differs(&format!("{len} bytes")));
    }
    if input.len.is_none() && wanted <= INPUT_BYTES_MAX {
        let most = wanted.saturating_add(1).saturating_sub(front.len() as u64);
        input.bytes.take(most).read_to_end(&mut front).map_err(|e| unreadable(&e))?;
        if (front.len() as u64) < wanted {
            return Err(differs(&format!("{} bytes", front.len())));
        }
        if front.len() as u64 > wanted {
            return Err(differs(&format!("more than {wanted} bytes")));
        }
    }
    let mut bytes = std::io::Cursor::new(front).chain(&mut *input.bytes);
    copy_elements(Scatter::new(edit, id, size, elements), elements, &mut bytes, progress)
}

/// Writes `bytes` to `elements`.
fn copy_elements(mut scatter: Scatter<'_>, elements: &Selected, bytes: &mut dyn Read, progress: &mut WriteProgress<'_>) -> Result<()> {
    let size = scatter.size;
    let wanted = elements.len().saturating_mul(size);
    let mut done = 0u64;
    elements.for_each_run(0..u64::MAX, &mut |run| {
        let mut at = run.start;
        while at < run.end {
            let room = (BATCH_BYTES.saturating_sub(scatter.bytes.len() as u64) / size).max(1);
            let end = run.end.min(at.saturating_add(room));
            let n = end.saturating_sub(at).saturating_mul(size);
            let before = scatter.bytes.len();
            (&mut *bytes).take(n).read_to_end(&mut scatter.bytes).map_err(|e| unreadable(&e))?;
            let read = scatter.bytes.len().saturating_sub(before) as u64;
            if read < n {
                let all = done.saturating_add(scatter.bytes.len() as u64);
                return Err(invalid(format!("the input ended after {all} of {wanted} bytes; elements before byte {done} were written")));
            }
            scatter.runs.push(at..end);
            at = end;
            if scatter.is_full() {
                done = done.saturating_add(scatter.bytes.len() as u64);
                progress(scatter.bytes.len() as u64)?;
                scatter.flush()?;
            }
        }
        Ok(())
    })?;
    scatter.flush()?;
    match bytes.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(invalid(format!("the input has more than {wanted} bytes; the elements of the selection were written"))),
        Err(e) => Err(unreadable(&e)),
    }
}

/// The header of a numpy file, and what was read of the file, the header too.
pub(super) fn npy_header(input: &mut Input<'_>) -> Result<(NpyHeader, Vec<u8>)> {
    let mut front = Vec::new();
    loop {
        if let Some(header) = NpyHeader::parse(&front)? {
            return Ok((header, front));
        }
        let before = front.len();
        input.bytes.take(if before < 12 { 12 } else { 4096 }).read_to_end(&mut front).map_err(|e| unreadable(&e))?;
        if front.len() == before {
            return Err(invalid("the input ends within the header of a numpy file".into()));
        }
    }
}

/// Reads the header of a numpy file; returns the elements that were read with it.
fn check_npy(input: &mut Input<'_>, datatype: &Datatype, elements: &Selected) -> Result<Vec<u8>> {
    let (header, mut front) = npy_header(input)?;
    if !header.datatype().is_like(datatype) {
        return Err(invalid(
            "the numpy file has elements of another type than the dataset; 'h5dir stat' shows it, numpy's astype converts".into(),
        ));
    }
    if header.is_fortran() && header.dims().len() > 1 {
        return Err(invalid("the numpy file is in Fortran order; save numpy.ascontiguousarray of it".into()));
    }
    let count = header.dims().iter().fold(1u64, |n, d| n.saturating_mul(*d));
    if count != elements.len() {
        return Err(invalid(format!("the numpy file has {count} elements, the selection {}", elements.len())));
    }
    input.len = input.len.map(|len| len.saturating_sub(header.header_len() as u64));
    Ok(front.split_off(header.header_len().min(front.len())))
}

/// Whole elements of fixed size that are written next.
struct Scatter<'a> {
    edit: &'a dyn Edit,
    id: ObjectId,
    /// Bytes of an element.
    size: u64,
    /// Runs ascend, and do not overlap.
    ascending: bool,
    runs: Vec<Range<u64>>,
    bytes: Vec<u8>,
}

impl<'a> Scatter<'a> {
    /// Of the dataset `id`, with elements of `size` bytes.
    fn new(edit: &'a dyn Edit, id: ObjectId, size: u64, elements: &Selected) -> Self {
        Scatter { edit, id, size, ascending: elements.is_ascending(), runs: Vec::new(), bytes: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() as u64 >= BATCH_BYTES || self.runs.len() >= BATCH_RUNS
    }

    fn flush(&mut self) -> Result<()> {
        let (mut runs, mut bytes) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.bytes));
        if !self.ascending {
            let size = usize::try_from(self.size).unwrap_or(usize::MAX);
            let order = last_of_each(&runs);
            runs = order.iter().map(|(number, _)| *number..number.saturating_add(1)).collect();
            let element = |n: usize| bytes.get(n.saturating_mul(size)..n.saturating_add(1).saturating_mul(size)).unwrap_or_default();
            bytes = order.iter().flat_map(|(_, n)| element(*n)).copied().collect();
        }
        let ranges = self.byte_ranges(&runs)?;
        if ranges.is_empty() { Ok(()) } else { self.edit.write_ranges(self.id, &ranges, &bytes) }
    }

    /// The bytes of ascending runs, joined where they touch.
    fn byte_ranges(&self, runs: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let at = |n: u64| n.checked_mul(self.size).ok_or_else(|| Error::refused(libc::EFBIG, "elements past 2^64 bytes"));
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for run in runs {
            let (start, end) = (at(run.start)?, at(run.end)?);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Ok(ranges)
    }
}

/// The elements of `runs` by ascending number, each with the last of its positions in them.
fn last_of_each(runs: &[Range<u64>]) -> Vec<(u64, usize)> {
    let mut order: Vec<(u64, usize)> = runs.iter().flat_map(Range::clone).enumerate().map(|(n, number)| (number, n)).collect();
    order.sort_unstable();
    let mut kept: Vec<(u64, usize)> = Vec::with_capacity(order.len());
    for (number, n) in order {
        match kept.last_mut() {
            Some(last) if last.0 == number => last.1 = n,
            _ => kept.push((number, n)),
        }
    }
    kept
}

/// Writes `bytes` at byte `offset` of the elements `elements` of the dataset `id`, which are of
/// fixed size and follow one another in the order of the selection. Errors: `EFBIG`, they end past
/// the last one; nothing is written then.
pub fn write_at(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, elements: &Selected, offset: u64, bytes: &[u8]) -> Result<()> {
    let datatype = connector.dataset(id)?.datatype;
    let size = datatype.element_size().max(1);
    let end = offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| elements.len().checked_mul(size).is_none_or(|all| end > all)) {
        return Err(Error::refused(libc::EFBIG, "bytes past the last element of the selection"));
    }
    // Parts of elements at both ends.
    let within = offset % size;
    let front = if within == 0 { 0 } else { size.saturating_sub(within).min(bytes.len() as u64) };
    let (front, rest) = bytes.split_at_checked(usize::try_from(front).unwrap_or(0)).unwrap_or_default();
    let back = rest.len().checked_rem(usize::try_from(size).unwrap_or(usize::MAX)).unwrap_or(0);
    let (whole, back) = rest.split_at_checked(rest.len().saturating_sub(back)).unwrap_or_default();
    let part = |ordinal: u64, within: u64, bytes: &[u8]| {
        if bytes.is_empty() {
            return Ok(());
        }
        elements.for_each_run(ordinal..ordinal.saturating_add(1), &mut |run| {
            edit.write(id, run.start.saturating_mul(size).saturating_add(within), bytes)
        })
    };
    part(offset / size, within, front)?;
    let first = offset.saturating_add(front.len() as u64) / size;
    let last = first.saturating_add(whole.len() as u64 / size);
    let mut scatter = Scatter { bytes: whole.to_vec(), ..Scatter::new(edit, id, size, elements) };
    elements.for_each_run(first..last, &mut |run| {
        scatter.runs.push(run);
        Ok(())
    })?;
    scatter.flush()?;
    part(last, 0, back)
}

/// Replaces elements of variable length: all or none.
fn write_variable(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, elements: &Selected, input: &mut Input<'_>) -> Result<()> {
    let datatype = connector.dataset(id)?.datatype;
    let large = || {
        let reason = format!("more than {INPUT_BYTES_MAX} bytes of elements of variable length; select in parts");
        Error::refused(libc::EFBIG, reason)
    };
    let mut bytes = Vec::new();
    input.bytes.take(INPUT_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        return Err(large());
    }
    let forms = if datatype.is_vlen_string() { lines(&bytes)? } else { exact_forms(&datatype, &bytes)? };
    set_forms(edit, id, elements, &datatype, &forms)
}

/// Replaces the elements `elements` of variable length of the dataset `id` by their exact form
/// `bytes`: all or none. Errors: `EINVAL`, the form is of another number of elements.
pub fn write_exact(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, elements: &Selected, bytes: &[u8]) -> Result<()> {
    let datatype = connector.dataset(id)?.datatype;
    let forms = exact_forms(&datatype, bytes)?;
    set_forms(edit, id, elements, &datatype, &forms)
}

/// The exact form of the string of each line.
pub(super) fn lines(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let line = |(n, line): (usize, &[u8])| {
        if line.contains(&0) {
            return Err(invalid(format!("line {} has a NUL, which ends a string", n.saturating_add(1))));
        }
        let len = u32::try_from(line.len()).map_err(|_| invalid("a line of 4 GiB".into()))?;
        Ok([&len.to_le_bytes()[..], line].concat())
    };
    text.split(|b| *b == b'\n').enumerate().map(line).collect()
}

/// The forms of elements that follow one another in `bytes`.
pub(super) fn exact_forms(datatype: &Datatype, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    if datatype.contains_reference() {
        return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are set by user.h5dir.references"));
    }
    let (form, size) = (VariableForm::of(datatype), usize::try_from(datatype.element_size()).unwrap_or(usize::MAX));
    let (mut forms, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let parts = form.form_len(size, rest).filter(|n| *n > 0).and_then(|n| rest.split_at_checked(n));
        let (one, more) = parts.ok_or_else(|| invalid("the last element is not there as a whole: elements are in exact form".into()))?;
        forms.push(one.to_vec());
        rest = more;
    }
    Ok(forms)
}

fn set_forms(edit: &dyn Edit, id: ObjectId, elements: &Selected, datatype: &Datatype, forms: &[Vec<u8>]) -> Result<()> {
    if forms.len() as u64 != elements.len() {
        return Err(invalid(format!("the input has {} elements, the selection {}", forms.len(), elements.len())));
    }
    let mut numbers = Vec::with_capacity(forms.len());
    elements.for_each_run(0..u64::MAX, &mut |run| {
        numbers.push(run);
        Ok(())
    })?;
    let order = last_of_each(&numbers);
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut form = Vec::new();
    for (number, n) in &order {
        match runs.last_mut() {
            Some(last) if last.end == *number => last.end = number.saturating_add(1),
            _ => runs.push(*number..number.saturating_add(1)),
        }
        form.extend_from_slice(forms.get(*n).map(Vec::as_slice).unwrap_or_default());
    }
    if runs.is_empty() {
        return Ok(());
    }
    let shape = list_of(&(0..order.len() as u64));
    edit.set_elements_of(id, &runs, &NewValue { datatype: datatype.clone(), shape, form, targets: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_writes_of_an_element_counts() {
        assert_eq!(last_of_each(&[5..7, 2..3, 6..8]), [(2, 2), (5, 0), (6, 3), (7, 4)]);
    }

    #[test]
    fn lines_are_strings() {
        let form = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        assert_eq!(lines(b"a\n\nbc\n").unwrap(), [form("a"), form(""), form("bc")]);
        assert_eq!(lines(b"\n").unwrap(), [form("")]);
        assert_eq!(lines(b"x").unwrap(), [form("x")]);
        assert!(lines(b"").unwrap().is_empty() && lines(b"a\0\n").is_err());
    }
}
