//! Setting which elements of a dataset are defined, in containers of every kind.

use crate::base::datatype::Datatype;
use crate::base::parts::{Limited, Parts};
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result};
use crate::dataset::fill::FillPattern;
use std::ops::Range;

/// Ranges and runs that are kept of all datasets for elements that are written next.
pub(crate) const ANNOUNCED_RANGES_MAX: usize = 1 << 22;

/// Defined elements of a dataset that were set before its bytes were written: `tar` sets extended
/// attributes first. They are applied again when a writer closes.
///
/// Each range of elements with the runs of defined elements in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announced(Vec<(Range<u64>, Vec<Range<u64>>)>);

impl Announced {
    /// Number of its ranges and runs.
    pub fn ranges(&self) -> usize {
        self.0.iter().map(|(_, runs)| runs.len().saturating_add(1)).fold(0, usize::saturating_add)
    }

    /// Sets the runs of `range`.
    pub fn set(&mut self, range: Range<u64>, runs: &[Range<u64>]) {
        self.0.retain(|(other, _)| *other != range);
        self.0.push((range, runs.to_vec()));
    }

    /// Ranges of the first `elements` elements, and the runs of each.
    pub fn within(&self, elements: u64) -> impl Iterator<Item = (&Range<u64>, &[Range<u64>])> {
        self.0.iter().filter(move |(range, _)| range.end <= elements).map(|(range, runs)| (range, runs.as_slice()))
    }
}

/// The smallest block of a dataset of dimensions `dims` that has the elements with row-major
/// numbers in `range`: its first coordinates, and those behind the last ones.
pub(crate) fn covering_block(dims: &[u64], range: &Range<u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut first, mut end) = (vec![0; dims.len()], dims.to_vec());
    let Some(last) = range.end.checked_sub(1).filter(|last| range.start <= *last) else { return (first.clone(), first) };
    let mut inner = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
    for ((n, first), end) in dims.iter().zip(&mut first).zip(&mut end) {
        inner = inner.checked_div(*n).unwrap_or(1).max(1);
        let coordinate = |number: u64| (number / inner) % (*n).max(1);
        (*first, *end) = (coordinate(range.start), coordinate(last).saturating_add(1));
        // Numbers of several rows have all elements behind them.
        if range.start / inner != last / inner {
            break;
        }
    }
    (first, end)
}

/// The error of a dataset that does not know which of its elements are defined.
pub(crate) fn unknown() -> Error {
    Error::refused(libc::EOPNOTSUPP, "the dataset does not know which of its elements are defined")
}

/// The parts of `bytes`, whole elements of type `datatype`, that have the fill value. `longest`:
/// bytes of the form of the longest fill value that is compared.
pub(crate) fn fill_values(
    datatype: &Datatype,
    fill: &FillPattern,
    bytes: &[u8],
    parts: &dyn Parts,
    longest: u64,
) -> Result<Vec<Range<usize>>> {
    let form = VariableForm::of(datatype);
    let exact = |element: &[u8], limit: u64| {
        let mut out = Vec::new();
        form.exact(element, &Limited { parts, limit }, &mut out).map(|()| out)
    };
    let size = usize::try_from(datatype.element_size()).unwrap_or(usize::MAX).max(1);
    let mut value = vec![0; size.min(bytes.len())];
    fill.fill(0, &mut value);
    let fill_form = if form.is_verbatim() { None } else { exact(&value, longest).ok() };
    let is_fill = |element: &[u8]| {
        // An element that cannot be read, or is longer, is another.
        let same = |form: &Vec<u8>| exact(element, form.len() as u64).is_ok_and(|other| other == *form);
        element == value.as_slice() || fill_form.as_ref().is_some_and(same)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_covers_a_range_and_little_more() {
        let block = |dims: &[u64], range| covering_block(dims, &range);
        assert_eq!(block(&[1, 100], 10..20), (vec![0, 10], vec![1, 20]));
        assert_eq!(block(&[3, 100], 110..120), (vec![1, 10], vec![2, 20]));
        assert_eq!(block(&[3, 100], 90..120), (vec![0, 0], vec![2, 100]));
        assert_eq!(block(&[3, 4, 5], 20..25), (vec![1, 0, 0], vec![2, 1, 5]));
        assert_eq!(block(&[3, 4, 5], 20..26), (vec![1, 0, 0], vec![2, 2, 5]));
        assert_eq!(block(&[3, 4, 5], 0..60), (vec![0, 0, 0], vec![3, 4, 5]));
        assert_eq!(block(&[7], 2..3), (vec![2], vec![3]));
        assert_eq!(block(&[3, 4], 5..5), (vec![0, 0], vec![0, 0]));
    }
}
