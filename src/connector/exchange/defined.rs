//! Which elements of a dataset are defined, in slabs of whole rows.

use super::Object;
use crate::connector::{DatasetInfo, ElementSet, Result};
use std::ops::Range;

/// Elements whose set is in memory at once, about.
const STEP_ELEMENTS: u64 = 1 << 24;

/// True if the dataset `object` knows which of its elements are defined.
pub fn knows_defined(object: Object<'_>, d: &DatasetInfo) -> bool {
    let Some(dims) = d.shape.dims().filter(|dims| !dims.is_empty()) else { return false };
    let none = vec![0; dims.len()];
    matches!(object.connector.defined(object.id, &none, &none), Ok(Some(_)))
}

/// Ranges of rows that together are all rows of `d`, chunks undivided.
pub fn slabs(d: &DatasetInfo) -> impl Iterator<Item = Range<u64>> + use<> {
    let rows = d.shape.dims().and_then(|dims| dims.first().copied()).unwrap_or(0);
    let chunk_rows = d.chunks.as_ref().and_then(|chunk| chunk.first().copied()).unwrap_or(1).max(1);
    let step = chunk_rows.saturating_mul((STEP_ELEMENTS / row_elements(d).saturating_mul(chunk_rows).max(1)).max(1));
    let mut from = 0;
    std::iter::from_fn(move || {
        let slab = from..rows.min(u64::saturating_add(from, step));
        from = slab.end;
        (slab.start < slab.end).then_some(slab)
    })
}

/// Elements of one row.
fn row_elements(d: &DatasetInfo) -> u64 {
    d.shape.dims().unwrap_or_default().iter().skip(1).fold(1, |n, d| n.saturating_mul(*d))
}

/// The defined elements in rows of a dataset: the range of all elements in those rows, in row-major
/// numbers, and the ascending runs of the defined ones.
pub fn defined_runs(object: Object<'_>, d: &DatasetInfo, rows: &Range<u64>) -> Result<(Range<u64>, Vec<Range<u64>>)> {
    let dims = d.shape.dims().unwrap_or_default();
    let (mut first, mut end) = (vec![0; dims.len()], dims.to_vec());
    if let (Some(first), Some(end)) = (first.first_mut(), end.first_mut()) {
        (*first, *end) = (rows.start, rows.end);
    }
    let set: ElementSet = object.connector.defined(object.id, &first, &end)?.unwrap_or_default();
    let mut runs: Vec<Range<u64>> = Vec::new();
    set.for_each_run(dims, &mut |run| {
        match runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => runs.push(run),
        }
        Ok(())
    })?;
    let number = |row: u64| row.saturating_mul(row_elements(d));
    Ok((number(rows.start)..number(rows.end), runs))
}

/// True if all elements of `range` are in `runs`.
pub fn is_whole(range: &Range<u64>, runs: &[Range<u64>]) -> bool {
    range.is_empty() || matches!(runs, [run] if run == range)
}
