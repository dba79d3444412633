//! Which elements of a dataset were written, as text; their values; making them undefined.

use super::gather::gather;
use super::parse::SelectionText;
use crate::base::selected::Selected;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Budget, Connector, ElementSet, ObjectId};
use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};

/// Elements of a block that is looked at although few of them are selected.
const BLOCK_ELEMENTS: u64 = 1 << 20;
/// A block is looked at as a whole if at least one element in so many is selected.
const BLOCK_PART: u64 = 64;
/// Bytes of elements that are read, or zeroed, at once, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Elements with parts outside of them that are read at once.
const BATCH_PARTS: u64 = 256;

/// What `selection` takes of the dataset `id`. Errors: it has no dimensions.
pub fn selected(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>) -> Result<Selected> {
    let dataset = connector.dataset(id)?;
    let none = || Error::refused(libc::EOPNOTSUPP, "a dataset without dimensions has no selections");
    selection.select(dataset.shape.dims().filter(|dims| !dims.is_empty()).ok_or_else(none)?)
}

/// The elements of `selected` that were written; `None`: the dataset `id` does not know them, so
/// that all count as defined.
fn known(connector: &dyn Connector, id: ObjectId, selected: &Selected) -> Result<Option<ElementSet>> {
    let none = vec![0; selected.dims().len()];
    if connector.defined(id, &none, &none)?.is_none() {
        return Ok(None);
    }
    if let Some(block) = selected.block() {
        let (first, end): (Vec<u64>, Vec<u64>) = block.into_iter().map(|r| (r.start, r.end)).unzip();
        return connector.defined(id, &first, &end);
    }
    let in_block = |first: &[u64], end: &[u64]| Ok::<_, Error>(connector.defined(id, first, end)?.unwrap_or_default());
    let (first, end) = selected.bounds()?;
    let volume = |first: &[u64], end: &[u64]| first.iter().zip(end).fold(1u64, |n, (f, e)| n.saturating_mul(e.saturating_sub(*f)));
    if selected.is_grid() || volume(&first, &end) <= BLOCK_ELEMENTS {
        return selected.intersection(&in_block(&first, &end)?).map(Some);
    }
    // Blocks around neighbours that are dense enough.
    let set = selected.to_set()?;
    let mut found = Vec::new();
    let mut around: Option<(Vec<u64>, Vec<u64>, u64)> = None;
    set.for_each_slab(&mut |first, end, elements| {
        if let Some((low, high, n)) = &around {
            let low: Vec<u64> = low.iter().zip(&first).map(|(a, b)| *a.min(b)).collect();
            let high: Vec<u64> = high.iter().zip(&end).map(|(a, b)| *a.max(b)).collect();
            let n = n.saturating_add(elements);
            let volume = volume(&low, &high);
            if volume <= BLOCK_ELEMENTS || volume / BLOCK_PART <= n {
                around = Some((low, high, n));
                return Ok(());
            }
        }
        if let Some((low, high, _)) = around.replace((first, end, elements)) {
            found.push(in_block(&low, &high)?);
        }
        Ok(())
    })?;
    if let Some((low, high, _)) = around {
        found.push(in_block(&low, &high)?);
    }
    let all = ElementSet::union_of(0..found.len(), &|n| Ok(found.get(n).cloned().unwrap_or_default()))?;
    set.intersection(&all).map(Some)
}

/// The defined elements of the dataset `id` in a selection. Of a dataset that does not know them
/// all count as defined.
pub fn defined(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>) -> Result<Selected> {
    let selected = selected(connector, id, selection)?;
    match known(connector, id, &selected)? {
        Some(set) => Selected::set(selected.dims(), set),
        None if selected.is_ascending() => Ok(selected),
        // A set has each element once.
        None => Selected::set(selected.dims(), selected.to_set()?),
    }
}

/// The elements of `selected`, of the dataset `id`, that are defined, in the same order.
pub fn defined_in_order(connector: &dyn Connector, id: ObjectId, selected: Selected) -> Result<Selected> {
    let Some(set) = known(connector, id, &selected)? else { return Ok(selected) };
    if selected.is_ascending() {
        return Selected::set(selected.dims(), set);
    }
    let mut numbers = Vec::new();
    selected.for_each_run(0..u64::MAX, &mut |run| {
        numbers.extend(run.filter(|n| set.next_element(selected.dims(), *n) == Some(*n)));
        Ok(())
    })?;
    Selected::points(selected.dims(), numbers)
}

/// The defined elements in a selection as JSON, in at most `limit` bytes:
/// `{"shape": [..], "count": N, "blocks": [{"start": [..], "stop": [..]}, ...]}`.
pub fn defined_json(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>, limit: u64) -> Result<Vec<u8>> {
    let shape = connector.dataset(id)?.shape;
    if selection.is_empty() && shape.dims().is_none_or(<[u64]>::is_empty) {
        // The element of a scalar dataset is a block without coordinates.
        let count = shape.count().unwrap_or(0);
        let blocks = if count > 0 { "{\"start\":[],\"stop\":[]}" } else { "" };
        return Ok(format!("{{\"shape\":[],\"count\":{count},\"blocks\":[{blocks}]}}\n").into_bytes());
    }
    let elements = defined(connector, id, selection)?;
    let set = elements.to_set()?;
    let mut out = format!("{{\"shape\":{},\"count\":{},\"blocks\":[", list(elements.dims()), set.elements());
    let mut separator = "\n";
    let flow = set.for_each_block(&mut |first, end| {
        let _ = write!(out, "{separator}{{\"start\":{},\"stop\":{}}}", list(first), list(end));
        separator = ",\n";
        if out.len() as u64 > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if flow.is_break() {
        let detail = format!("{} blocks are more than {limit} bytes of text: ask for a selection", set.blocks());
        return Err(Error::refused(libc::EFBIG, detail));
    }
    out.push_str("]}\n");
    Ok(out.into_bytes())
}

/// Length of [`defined_values`], bytes. Errors: `EFBIG` for more than `limit` bytes of elements of
/// variable length.
pub fn defined_len(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>, limit: u64) -> Result<u64> {
    let datatype = connector.dataset(id)?.datatype;
    if datatype.contains_vlen() {
        return Ok(defined_values(connector, id, selection, limit)?.len() as u64);
    }
    let elements = selected(connector, id, selection)?;
    Ok(defined_in_order(connector, id, elements)?.len().saturating_mul(datatype.element_size()))
}

/// The bytes of the defined elements in a selection, in its order, at most `limit` bytes: those of
/// variable length in exact form.
pub fn defined_values(connector: &dyn Connector, id: ObjectId, selection: SelectionText<'_>, limit: u64) -> Result<Vec<u8>> {
    let elements = defined_in_order(connector, id, selected(connector, id, selection)?)?;
    let datatype = connector.dataset(id)?.datatype;
    let too_many = || Error::refused(libc::EFBIG, format!("more than {limit} bytes of values: ask for a selection"));
    if elements.len().checked_mul(datatype.element_size()).is_none_or(|n| n > limit) {
        return Err(too_many());
    }
    if !datatype.contains_vlen() {
        let mut out = Vec::new();
        values(connector, id, &elements, &mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        return Ok(out);
    }
    exact_values(connector, id, &elements, limit)
}

/// The elements `elements`, of variable length, in exact form, at most `limit` bytes.
pub fn exact_values(connector: &dyn Connector, id: ObjectId, elements: &Selected, limit: u64) -> Result<Vec<u8>> {
    let datatype = connector.dataset(id)?.datatype;
    let too_many = || Error::refused(libc::EFBIG, format!("more than {limit} bytes of values: ask for a selection"));
    let (form, mut budget, mut out) = (VariableForm::of(&datatype), Budget::new(limit), Vec::new());
    let size = usize::try_from(datatype.element_size()).unwrap_or(usize::MAX).max(1);
    batches(elements, BATCH_PARTS, &mut |runs| {
        let Some(value) = gather(connector, id, runs)? else { return Ok(()) };
        for element in value.bytes.chunks_exact(size) {
            form.exact_within(element, &*value.parts, &mut budget, &mut out).map_err(|e| match e {
                Error::Limit { .. } => too_many(),
                other => other,
            })?;
        }
        Ok(())
    })?;
    Ok(out)
}

/// Calls `f` with the runs of `elements`, up to `most` elements at a time.
fn batches(elements: &Selected, most: u64, f: &mut dyn FnMut(&[Range<u64>]) -> Result<()>) -> Result<()> {
    let (mut runs, mut n): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    elements.for_each_run(0..u64::MAX, &mut |run| {
        let mut at = run.start;
        while at < run.end {
            let end = run.end.min(at.saturating_add(most.saturating_sub(n).max(1)));
            runs.push(at..end);
            n = n.saturating_add(end.saturating_sub(at));
            at = end;
            if n >= most {
                f(&runs)?;
                (runs, n) = (Vec::new(), 0);
            }
        }
        Ok(())
    })?;
    f(&runs)
}

/// Calls `f` with the bytes of `elements` of the dataset `id`, which have no parts of variable
/// length, in their order.
pub fn values(connector: &dyn Connector, id: ObjectId, elements: &Selected, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let size = connector.dataset(id)?.datatype.element_size().max(1);
    batches(elements, (BATCH_BYTES / size).max(1), &mut |runs| gather(connector, id, runs)?.map_or(Ok(()), |value| f(&value.bytes)))
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// Fills the front of `buf` with the bytes from `offset` of `elements` of the dataset `id`, which
/// have no parts of variable length, in their order; fewer bytes only at the end.
pub fn read_at(connector: &dyn Connector, id: ObjectId, elements: &Selected, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let size = connector.dataset(id)?.datatype.element_size().max(1);
    let end = offset.saturating_add(buf.len() as u64).min(elements.len().saturating_mul(size));
    let mut runs = Vec::new();
    elements.for_each_run(offset / size..end.div_ceil(size), &mut |run| {
        runs.push(run);
        Ok(())
    })?;
    let Some(value) = gather(connector, id, &runs)?.filter(|_| offset < end) else { return Ok(0) };
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let part = value.bytes.get(at(offset % size)..).unwrap_or_default();
    let n = part.len().min(at(end.saturating_sub(offset))).min(buf.len());
    if let (Some(to), Some(from)) = (buf.get_mut(..n), part.get(..n)) {
        to.copy_from_slice(from);
    }
    Ok(n)
}

/// Makes the elements of a selection undefined; zeroes them where the dataset does not know which
/// are defined.
pub fn erase(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, selection: SelectionText<'_>) -> Result<()> {
    let elements = selected(connector, id, selection)?;
    let none = || Error::refused(libc::EOPNOTSUPP, "the container has no undefined elements");
    let erase = edit.erase().ok_or_else(none)?;
    if let Some(block) = elements.block() {
        let (first, end): (Vec<u64>, Vec<u64>) = block.into_iter().map(|r| (r.start, r.end)).unzip();
        return erase.erase(id, &first, &end);
    }
    // The cost follows what is defined.
    if let Some(set) = known(connector, id, &elements)? {
        return erase.erase_set(id, &set);
    }
    let size = connector.dataset(id)?.datatype.element_size().max(1);
    let bytes = |n: u64| n.checked_mul(size).ok_or_else(|| Error::refused(libc::EFBIG, "elements past 2^64 bytes"));
    elements.for_each_run(0..u64::MAX, &mut |run| erase.punch(id, bytes(run.start)?, bytes(run.end.saturating_sub(run.start))?))
}
