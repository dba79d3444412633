//! Which elements of a dataset are defined, in slabs.

use super::Object;
use crate::base::Error;
use crate::connector::{DatasetInfo, ElementSet, Result};
use std::ops::Range;

/// Elements of a slab with defined elements, whose set is in memory: half as many runs at most.
const SLAB_ELEMENTS: u64 = 1 << 21;

/// True if the dataset `object` knows which of its elements are defined.
pub fn knows_defined(object: Object<'_>, d: &DatasetInfo) -> bool {
    let Some(dims) = d.shape.dims().filter(|dims| !dims.is_empty()) else { return false };
    let none = vec![0; dims.len()];
    matches!(object.connector.defined(object.id, &none, &none), Ok(Some(_)))
}

/// A block of a dataset whose elements follow one another in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// First coordinates.
    first: Vec<u64>,
    /// Coordinates behind the last ones.
    end: Vec<u64>,
    /// Row-major numbers of its elements.
    pub elements: Range<u64>,
}

/// The slabs of all elements of a dataset, in order. Where nothing is defined they become larger:
/// the cost follows what is stored.
pub struct Slabs {
    dims: Vec<u64>,
    chunks: Vec<u64>,
    /// Number of the next element.
    at: u64,
    total: u64,
    /// Elements of the next slab, at most.
    len: u64,
}

impl Slabs {
    /// Those of the dataset `d`.
    pub fn of(d: &DatasetInfo) -> Self {
        Self::new(d.shape.dims().unwrap_or_default(), d.chunks.as_deref().unwrap_or_default())
    }

    fn new(dims: &[u64], chunks: &[u64]) -> Self {
        let total = if dims.is_empty() { 0 } else { product(dims) };
        Slabs { dims: dims.to_vec(), chunks: chunks.to_vec(), at: 0, total, len: SLAB_ELEMENTS }
    }

    /// The next slab with the runs of its defined elements, which `read` finds; `None`: there are
    /// no more elements.
    pub fn next(&mut self, read: &dyn Fn(&Slab) -> Result<Vec<Range<u64>>>) -> Result<Option<(Slab, Vec<Range<u64>>)>> {
        while self.at < self.total {
            let slab = self.slab();
            let runs = match read(&slab) {
                // A large one that is not empty.
                Err(Error::Refused { errno: libc::EFBIG, .. }) if self.len > SLAB_ELEMENTS => {
                    self.len = SLAB_ELEMENTS;
                    continue;
                }
                runs => runs?,
            };
            self.len = if runs.is_empty() { self.len.saturating_mul(2) } else { SLAB_ELEMENTS };
            self.at = slab.elements.end;
            return Ok(Some((slab, runs)));
        }
        Ok(None)
    }

    /// The largest slab from the next element on; chunks are not divided if they fit.
    fn slab(&self) -> Slab {
        let inner = |axis: usize| product(self.dims.get(axis.saturating_add(1)..).unwrap_or_default()).max(1);
        let last = self.dims.len().saturating_sub(1);
        let axis = (0..last).find(|axis| inner(*axis) <= self.len && self.at.is_multiple_of(inner(*axis))).unwrap_or(last);
        let (mut first, mut end, mut rest) = (vec![0; self.dims.len()], self.dims.clone(), self.at / inner(axis));
        let mut elements = self.at..self.at;
        for at in (0..=axis).rev() {
            let (Some(n), Some(first), Some(end)) = (self.dims.get(at), first.get_mut(at), end.get_mut(at)) else { continue };
            *first = rest % (*n).max(1);
            rest /= (*n).max(1);
            *end = first.saturating_add(1);
            if at == axis {
                let to = first.saturating_add((self.len / inner(axis)).max(1)).min(*n);
                let whole = to.saturating_sub(to % self.chunks.get(at).copied().unwrap_or(1).max(1));
                *end = if to < *n && whole > *first { whole } else { to };
                elements.end = self.at.saturating_add(end.saturating_sub(*first).saturating_mul(inner(axis)));
            }
        }
        Slab { first, end, elements }
    }
}

fn product(dims: &[u64]) -> u64 {
    dims.iter().fold(1u64, |n, d| n.saturating_mul(*d))
}

/// The ascending runs of the defined elements in a slab of a dataset, in row-major numbers.
pub fn defined_runs(object: Object<'_>, d: &DatasetInfo, slab: &Slab) -> Result<Vec<Range<u64>>> {
    let set: ElementSet = object.connector.defined(object.id, &slab.first, &slab.end)?.unwrap_or_default();
    let mut runs: Vec<Range<u64>> = Vec::new();
    set.for_each_run(d.shape.dims().unwrap_or_default(), &mut |run| {
        match runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => runs.push(run),
        }
        Ok(())
    })?;
    Ok(runs)
}

/// True if all elements of `range` are in `runs`.
pub fn is_whole(range: &Range<u64>, runs: &[Range<u64>]) -> bool {
    range.is_empty() || matches!(runs, [run] if run == range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_have_all_elements_once_and_in_order() {
        let all: [(&[u64], &[u64]); 9] = [
            (&[5], &[]),
            (&[1, 1 << 23], &[1, 60_000]),
            (&[3, 1 << 22, 2], &[1, 1 << 20, 1]),
            (&[1000, 5000], &[300, 5000]),
            (&[1 << 12, 1 << 12], &[]),
            (&[0, 7], &[]),
            (&[2, 3, 1 << 22], &[2, 2, 1 << 10]),
            (&[1 << 20, 1 << 20, 1 << 20], &[1 << 10, 1 << 10, 1]),
            (&[7, 1 << 40], &[]),
        ];
        for (dims, chunks) in all {
            // One element in 3 million is defined, or none is.
            for defined in [true, false] {
                let is_large = product(dims) > 1 << 40;
                let runs = |slab: &Slab| match slab.elements.start / 3_000_000 != (slab.elements.end - 1) / 3_000_000 {
                    _ if !defined || is_large => Ok(Vec::new()),
                    true if slab.elements.end - slab.elements.start > SLAB_ELEMENTS => Err(Error::refused(libc::EFBIG, "")),
                    is_defined => Ok(if is_defined { vec![slab.elements.clone()] } else { Vec::new() }),
                };
                let (mut at, mut slabs, mut count) = (0, Slabs::new(dims, chunks), 0);
                while let Some((slab, _)) = slabs.next(&runs).unwrap() {
                    assert_eq!(slab.elements.start, at, "{dims:?}");
                    let number = |c: &[u64]| c.iter().zip(dims).fold(0, |n, (c, d)| n * d + c);
                    let last: Vec<u64> = slab.end.iter().map(|n| n - 1).collect();
                    assert_eq!((number(&slab.first), number(&last) + 1), (at, slab.elements.end), "{dims:?}");
                    let elements: u64 = slab.first.iter().zip(&slab.end).map(|(a, b)| b - a).product();
                    assert_eq!(elements, slab.elements.end - at, "{dims:?}");
                    (at, count) = (slab.elements.end, count + 1);
                }
                assert_eq!(at, product(dims), "{dims:?}");
                assert!(count < 200, "{dims:?}: {count} slabs");
            }
        }
    }
}
