//! Which elements of a dataset in a log were written.

use crate::base::element_set::ElementSet;
use crate::base::seek::Seek;
use crate::base::{Error, Result};
use crate::dataset::layout::traits::{DatasetBytes, Layout};
use std::ops::Range;

/// Most runs of written elements that one call looks at.
const RUNS_MAX: usize = 1 << 22;

/// Row-major numbers from the first to the last element of the block `first .. end` of an extent of
/// `dims`.
fn numbers(dims: &[u64], first: &[u64], end: &[u64]) -> Range<u64> {
    let number = |at: &mut dyn Iterator<Item = u64>| at.zip(dims).fold(0u64, |n, (c, d)| n.saturating_mul(*d).saturating_add(c));
    let last = number(&mut end.iter().map(|e| e.saturating_sub(1)));
    number(&mut first.iter().copied())..last.saturating_add(1)
}

/// The written elements of `data` in the block `first .. end` of its extent of `dims`. `layout` is
/// its layout. Errors: `EFBIG`, they are in too many runs.
pub(super) fn defined(layout: &dyn Layout, data: &DatasetBytes, dims: &[u64], first: &[u64], end: &[u64]) -> Result<ElementSet> {
    if dims.is_empty() || first.iter().zip(end).any(|(f, e)| f >= e) {
        return Ok(ElementSet::default());
    }
    let (size, range) = (data.element_size.max(1), numbers(dims, first, end));
    let seek = |element: u64, what| layout.seek_stored(data, element.saturating_mul(size), what);
    let (mut at, mut runs): (u64, Vec<Range<u64>>) = (range.start, Vec::new());
    while at < range.end {
        let Some(start) = seek(at, Seek::Data)?.map(|byte| byte / size).filter(|start| *start < range.end) else { break };
        let stop = seek(start, Seek::Hole)?.map_or(range.end, |byte| byte.div_ceil(size)).clamp(start.saturating_add(1), range.end);
        if runs.len() >= RUNS_MAX {
            return Err(Error::refused(libc::EFBIG, format!("more than {RUNS_MAX} runs of defined elements: ask for a smaller selection")));
        }
        runs.push(start..stop);
        at = stop;
    }
    ElementSet::of_runs(dims, &runs)?.intersection(&ElementSet::block(first, end))
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn a_block_lies_between_its_corners() {
        assert_eq!(numbers(&[3, 4, 5], &[1, 2, 3], &[3, 4, 5]), 33..60);
        assert_eq!(numbers(&[7], &[2], &[3]), 2..3);
    }
}
