//! Which elements of a dataset were written, as text; and selections as text.

use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Budget, Connector, ElementSet, Form, ObjectId};
use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// A block of an extent of `dims` from `i:j,k:l`: a range or a single coordinate per dimension, as
/// in numpy's basic indexing. Dimensions left out at the end, and an empty text, are taken whole.
pub fn parse_selection(text: &str, dims: &[u64]) -> Result<Vec<Range<u64>>> {
    let text = text.trim();
    let parts: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() };
    if parts.len() > dims.len() {
        return Err(invalid(format!("a selection of {} dimensions in a dataset of {}", parts.len(), dims.len())));
    }
    let part = |(i, size): (usize, &u64)| parts.get(i).map_or(Ok(0..*size), |part| parse_range(part, *size));
    dims.iter().enumerate().map(part).collect()
}

fn parse_range(text: &str, size: u64) -> Result<Range<u64>> {
    let wrong = || invalid(format!("{text:?} is no range of coordinates such as 2:7, 2: or 5"));
    // Negative coordinates count from the end.
    let coordinate = |text: &str| -> Result<u64> {
        match text.trim().strip_prefix('-') {
            Some(n) => n.parse::<u64>().map(|n| size.saturating_sub(n)).map_err(|_| wrong()),
            None => text.trim().parse().map_err(|_| wrong()),
        }
    };
    match text.split_once(':') {
        Some((from, to)) => {
            let from = if from.trim().is_empty() { 0 } else { coordinate(from)? };
            let to = if to.trim().is_empty() { size } else { coordinate(to)? };
            Ok(from.min(size)..to.min(size).max(from.min(size)))
        }
        None => {
            let at = coordinate(text)?;
            let outside = || invalid(format!("coordinate {text} of a dimension of {size}"));
            if at < size { Ok(at..at.saturating_add(1)) } else { Err(outside()) }
        }
    }
}

/// Dimensions of the dataset `id`. Errors: it has none.
fn dims(connector: &dyn Connector, id: ObjectId) -> Result<Vec<u64>> {
    let dataset = connector.dataset(id)?;
    let none = || Error::refused(libc::EOPNOTSUPP, "a dataset without dimensions has no selections");
    dataset.shape.dims().filter(|d| !d.is_empty()).map(<[u64]>::to_vec).ok_or_else(none)
}

/// The defined elements of the dataset `id` in a selection: a set in its coordinates, and its
/// dimensions. Of a dataset that does not know them all count as defined.
pub fn defined(connector: &dyn Connector, id: ObjectId, selection: &str) -> Result<(ElementSet, Vec<u64>)> {
    let dims = dims(connector, id)?;
    let block = parse_selection(selection, &dims)?;
    let (first, end): (Vec<u64>, Vec<u64>) = block.into_iter().map(|r| (r.start, r.end)).unzip();
    let set = connector.defined(id, &first, &end)?;
    Ok((set.unwrap_or_else(|| ElementSet::block(&first, &end)), dims))
}

/// The defined elements in a selection as JSON, in at most `limit` bytes:
/// `{"shape": [..], "count": N, "blocks": [{"start": [..], "stop": [..]}, ...]}`.
pub fn defined_json(connector: &dyn Connector, id: ObjectId, selection: &str, limit: u64) -> Result<Vec<u8>> {
    let shape = connector.dataset(id)?.shape;
    if selection.trim().is_empty() && shape.dims().is_none_or(<[u64]>::is_empty) {
        // The element of a scalar dataset is a block without coordinates.
        let count = shape.count().unwrap_or(0);
        let blocks = if count > 0 { "{\"start\":[],\"stop\":[]}" } else { "" };
        return Ok(format!("{{\"shape\":[],\"count\":{count},\"blocks\":[{blocks}]}}\n").into_bytes());
    }
    let (set, dims) = defined(connector, id, selection)?;
    let mut out = format!("{{\"shape\":{},\"count\":{},\"blocks\":[", list(&dims), set.elements());
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
pub fn defined_len(connector: &dyn Connector, id: ObjectId, selection: &str, limit: u64) -> Result<u64> {
    let datatype = connector.dataset(id)?.datatype;
    if datatype.contains_vlen() {
        return Ok(defined_values(connector, id, selection, limit)?.len() as u64);
    }
    let (set, _) = defined(connector, id, selection)?;
    Ok(set.elements().saturating_mul(datatype.element_size()))
}

/// The bytes of the defined elements in a selection, row-major, at most `limit` bytes: those of
/// variable length in exact form.
pub fn defined_values(connector: &dyn Connector, id: ObjectId, selection: &str, limit: u64) -> Result<Vec<u8>> {
    let (set, dims) = defined(connector, id, selection)?;
    let datatype = connector.dataset(id)?.datatype;
    if datatype.contains_vlen() {
        return exact_values(connector, id, &set, limit);
    }
    let size = datatype.element_size();
    let bytes = set.elements().checked_mul(size).filter(|n| *n <= limit);
    let too_many = || Error::refused(libc::EFBIG, format!("more than {limit} bytes of values: ask for a selection"));
    let mut out = Vec::with_capacity(usize::try_from(bytes.ok_or_else(too_many)?).unwrap_or(0));
    let content = connector.content(id, Form::Main)?;
    set.for_each_run(&dims, &mut |run| {
        let (mut at, end) = (run.start.saturating_mul(size), run.end.saturating_mul(size));
        while at < end {
            let from = out.len();
            out.resize(from.saturating_add(usize::try_from(end.saturating_sub(at)).unwrap_or(0)), 0);
            let n = content.read(at, out.get_mut(from..).unwrap_or_default())?;
            out.truncate(from.saturating_add(n));
            if n == 0 {
                return Err(Error::refused(libc::ESTALE, "the dataset became shorter"));
            }
            at = at.saturating_add(n as u64);
        }
        Ok(())
    })?;
    Ok(out)
}

/// The elements of `set` in exact form, at most `limit` bytes.
fn exact_values(connector: &dyn Connector, id: ObjectId, set: &ElementSet, limit: u64) -> Result<Vec<u8>> {
    let too_many = || Error::refused(libc::EFBIG, format!("more than {limit} bytes of values: ask for a selection"));
    let dataset = connector.dataset(id)?;
    let (size, count) = (dataset.datatype.element_size(), dataset.shape.count().unwrap_or(u64::MAX));
    if count.checked_mul(size).is_none_or(|n| n > limit) {
        return Err(Error::refused(libc::EFBIG, format!("the dataset's own part of its elements is more than {limit} bytes")));
    }
    let all = connector.elements(id)?;
    let (form, mut out) = (VariableForm::of(&all.datatype), Vec::new());
    let mut budget = Budget::new(limit);
    let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    set.for_each_run(dataset.shape.dims().unwrap_or_default(), &mut |run| {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).saturating_mul(size);
        for element in all.bytes.get(at(run.start)..at(run.end)).unwrap_or_default().chunks_exact(size) {
            form.exact_within(element, &*all.parts, &mut budget, &mut out).map_err(|e| match e {
                Error::Limit { .. } => too_many(),
                other => other,
            })?;
        }
        Ok(())
    })?;
    Ok(out)
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// Makes the elements of a selection undefined.
pub fn erase(connector: &dyn Connector, edit: &dyn Edit, id: ObjectId, selection: &str) -> Result<()> {
    let block = parse_selection(selection, &dims(connector, id)?)?;
    let (first, end): (Vec<u64>, Vec<u64>) = block.into_iter().map(|r| (r.start, r.end)).unzip();
    let none = || Error::refused(libc::EOPNOTSUPP, "the container has no undefined elements");
    edit.erase().ok_or_else(none)?.erase(id, &first, &end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_those_of_numpy() {
        let parse = |text: &str| parse_selection(text, &[10, 20]);
        assert_eq!(parse("").unwrap(), [0..10, 0..20]);
        assert_eq!(parse(":, 3:").unwrap(), [0..10, 3..20]);
        assert_eq!(parse("4").unwrap(), [4..5, 0..20]);
        assert_eq!(parse("-2:,:-5").unwrap(), [8..10, 0..15]);
        assert_eq!(parse("5:3,2:99").unwrap(), [5..5, 2..20]);
        for wrong in ["10", "1,2,3", "a", "1:b", "--1", "1;2", "99999999999999999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
