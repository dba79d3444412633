//! The elements of an extent that a selection names, in the order of the selection.
//!
//! | kind | order | cost |
//! |---|---|---|
//! | grid: coordinates at a step in each dimension | row-major | a step per dimension |
//! | set: unions and differences of grids | row-major, each element once | its spans |
//! | points | that of their list, repetitions too | a number per point |
//!
//! An element's *number* is its row-major position in the extent, its *ordinal* the position in the
//! order of the selection. Nothing enumerates the elements of a grid: runs are computed.

use super::element_set::ElementSet;
use super::{Address, Error, Result};
use std::ops::Range;
use std::sync::Arc;

const STRUCTURE: &str = "selection";
/// Most spans of a grid that becomes a set.
const GRID_SPANS_MAX: u64 = 1 << 22;

/// Coordinates of one dimension: `count` of them from `start` on, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// First coordinate.
    pub start: u64,
    /// Distance between two coordinates, at least 1.
    pub step: u64,
    /// Number of coordinates.
    pub count: u64,
}

impl Steps {
    /// The coordinates `range`.
    pub const fn range(range: &Range<u64>) -> Self {
        Steps { start: range.start, step: 1, count: range.end.saturating_sub(range.start) }
    }

    /// Coordinate number `n`.
    fn at(&self, n: u64) -> u64 {
        self.start.saturating_add(n.saturating_mul(self.step))
    }

    /// One more than the last coordinate; `start` if there is none.
    pub fn end(&self) -> u64 {
        self.count.checked_sub(1).map_or(self.start, |last| self.at(last).saturating_add(1))
    }

    /// True if no coordinate is left out between the first and the last one.
    fn is_range(&self) -> bool {
        self.step == 1 || self.count <= 1
    }

    /// Its coordinates as ranges that do not touch. The caller bounds their number.
    fn ranges(&self) -> Vec<Range<u64>> {
        if self.is_range() {
            return if self.count > 0 { std::iter::once(self.start..self.end()).collect() } else { Vec::new() };
        }
        (0..self.count).map(|n| self.at(n)..self.at(n).saturating_add(1)).collect()
    }
}

fn too_many() -> Error {
    Error::refused(libc::EFBIG, format!("a selection of more than {GRID_SPANS_MAX} separate blocks: take a larger step or a part"))
}

#[derive(Debug, Clone)]
enum SelectionKind {
    Grid(Vec<Steps>),
    Set(ElementSet),
    Points(Arc<[u64]>),
}

/// The elements of an extent that a selection names.
#[derive(Debug, Clone)]
pub struct Selected {
    dims: Vec<u64>,
    kind: SelectionKind,
    len: u64,
}

/// Number of elements of an extent of `dims`. Errors: `Limit`, 2^64 or more.
fn count(dims: impl Iterator<Item = u64>) -> Result<u64> {
    let (mut all, mut is_empty) = (Some(1u64), false);
    for n in dims {
        is_empty |= n == 0;
        all = all.and_then(|all| all.checked_mul(n));
    }
    if is_empty { Ok(0) } else { all.ok_or_else(|| Error::limit(STRUCTURE, Address::UNDEF, "2^64 elements or more")) }
}

impl Selected {
    /// The elements at the coordinates `steps`, one per dimension, which lie in the extent.
    pub fn grid(dims: &[u64], steps: Vec<Steps>) -> Result<Self> {
        count(dims.iter().copied())?;
        let len = count(steps.iter().map(|s| s.count))?;
        Ok(Selected { dims: dims.to_vec(), kind: SelectionKind::Grid(steps), len })
    }

    /// All elements.
    pub fn all(dims: &[u64]) -> Result<Self> {
        Self::grid(dims, dims.iter().map(|n| Steps::range(&(0..*n))).collect())
    }

    /// The elements of `set`, which lies in the extent.
    pub fn set(dims: &[u64], set: ElementSet) -> Result<Self> {
        count(dims.iter().copied())?;
        Ok(Selected { dims: dims.to_vec(), len: set.elements(), kind: SelectionKind::Set(set) })
    }

    /// The elements with these numbers, which lie in the extent.
    pub fn points(dims: &[u64], numbers: Vec<u64>) -> Result<Self> {
        count(dims.iter().copied())?;
        Ok(Selected { dims: dims.to_vec(), len: numbers.len() as u64, kind: SelectionKind::Points(numbers.into()) })
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Dimensions of the extent.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Dimensions of an array of the elements: of a grid one per dimension, of others their number.
    pub fn shape(&self) -> Vec<u64> {
        match &self.kind {
            SelectionKind::Grid(steps) => steps.iter().map(|s| s.count).collect(),
            SelectionKind::Set(_) | SelectionKind::Points(_) => vec![self.len],
        }
    }

    /// The one block that it is, if it is one: a range per dimension.
    pub fn block(&self) -> Option<Vec<Range<u64>>> {
        let SelectionKind::Grid(steps) = &self.kind else { return None };
        steps.iter().all(Steps::is_range).then(|| steps.iter().map(|s| s.start..s.end()).collect())
    }

    /// Bytes of memory that it takes, at most; of a set with shared parts far more than it does.
    pub fn memory(&self) -> u64 {
        match &self.kind {
            SelectionKind::Grid(steps) => (steps.len() as u64).saturating_mul(24),
            SelectionKind::Set(set) => set.blocks().saturating_mul(64).saturating_mul(self.dims.len() as u64),
            SelectionKind::Points(numbers) => (numbers.len() as u64).saturating_mul(8),
        }
    }

    /// True if it is a grid: a block, perhaps with steps.
    pub fn is_grid(&self) -> bool {
        matches!(self.kind, SelectionKind::Grid(_))
    }

    /// True if its elements are in the order of their numbers, each of them once.
    pub fn is_ascending(&self) -> bool {
        !matches!(self.kind, SelectionKind::Points(_))
    }

    /// Its elements as a set. Errors: `EFBIG` for a grid of too many separate blocks, `Limit` for
    /// points that are too many.
    pub fn to_set(&self) -> Result<ElementSet> {
        match &self.kind {
            SelectionKind::Set(set) => Ok(set.clone()),
            SelectionKind::Grid(steps) => {
                let spans = |s: &Steps| if s.is_range() { 1 } else { s.count };
                if steps.iter().map(spans).fold(0, u64::saturating_add) > GRID_SPANS_MAX {
                    return Err(too_many());
                }
                let ranges: Vec<Vec<Range<u64>>> = steps.iter().map(Steps::ranges).collect();
                Ok(ElementSet::product(&ranges))
            }
            SelectionKind::Points(numbers) => {
                let mut sorted = numbers.to_vec();
                sorted.sort_unstable();
                let mut runs: Vec<Range<u64>> = Vec::new();
                for n in sorted {
                    match runs.last_mut() {
                        Some(last) if n < last.end => {}
                        Some(last) if n == last.end => last.end = n.saturating_add(1),
                        _ => runs.push(n..n.saturating_add(1)),
                    }
                }
                ElementSet::of_runs(&self.dims, &runs)
            }
        }
    }

    /// The elements of `set`, which lies in the extent, that are selected. Errors: `Limit` for more
    /// spans than are worked on.
    pub fn intersection(&self, set: &ElementSet) -> Result<ElementSet> {
        match &self.kind {
            SelectionKind::Grid(steps) if steps.iter().all(Steps::is_range) => set.intersection(&self.to_set()?),
            SelectionKind::Grid(steps) => set.on_grid(steps),
            SelectionKind::Set(_) | SelectionKind::Points(_) => set.intersection(&self.to_set()?),
        }
    }

    /// The smallest block that has all elements: first coordinates, and end ones (exclusive).
    pub fn bounds(&self) -> Result<(Vec<u64>, Vec<u64>)> {
        let none = || (vec![0; self.dims.len()], vec![0; self.dims.len()]);
        if self.is_empty() {
            return Ok(none());
        }
        match &self.kind {
            SelectionKind::Grid(steps) => Ok(steps.iter().map(|s| (s.start, s.end())).unzip()),
            SelectionKind::Set(set) => Ok(set.bounds().unwrap_or_else(none)),
            SelectionKind::Points(_) => Ok(self.to_set()?.bounds().unwrap_or_else(none)),
        }
    }

    /// Visits the numbers of the elements with `ordinals`, in order, in runs of numbers that follow
    /// one another. Runs that touch may be separate.
    pub fn for_each_run(&self, ordinals: Range<u64>, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        let ordinals = ordinals.start..ordinals.end.min(self.len);
        if ordinals.is_empty() {
            return Ok(());
        }
        match &self.kind {
            SelectionKind::Grid(steps) => grid_runs(&self.dims, steps, ordinals, f),
            SelectionKind::Set(set) => set.for_each_run_of(&self.dims, ordinals, f),
            SelectionKind::Points(numbers) => {
                let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                for run in
                    numbers.get(at(ordinals.start)..at(ordinals.end)).unwrap_or_default().chunk_by(|a, b| a.checked_add(1) == Some(*b))
                {
                    if let (Some(first), Some(last)) = (run.first(), run.last()) {
                        f(*first..last.saturating_add(1))?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The runs of a grid, `ordinals` of it.
fn grid_runs(dims: &[u64], steps: &[Steps], ordinals: Range<u64>, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    // Inner dimensions that are taken whole are one run with the one before.
    let is_whole = |(s, n): (&Steps, &u64)| s.is_range() && s.start == 0 && s.count == *n;
    let whole = steps.iter().zip(dims).rev().take_while(|pair| is_whole(*pair)).count().min(steps.len());
    let inner = dims.iter().rev().take(whole).fold(1u64, |all, n| all.saturating_mul(*n));
    let outer = steps.get(..steps.len().saturating_sub(whole)).unwrap_or_default();
    let mut strides = Vec::with_capacity(outer.len());
    let mut stride = inner;
    for n in dims.iter().take(outer.len()).rev() {
        strides.push(stride);
        stride = stride.saturating_mul(*n);
    }
    strides.reverse();
    // Elements of a run: a range of the last outer dimension is part of it.
    let run = match outer.last() {
        Some(last) if last.is_range() => last.count.saturating_mul(inner),
        _ => inner,
    };
    let joined = outer.last().is_some_and(Steps::is_range);
    let turning = outer.get(..outer.len().saturating_sub(usize::from(joined))).unwrap_or_default();
    let base = if joined { outer.last().zip(strides.last()).map_or(0, |(s, stride)| s.start.saturating_mul(*stride)) } else { 0 };
    let mut at = ordinals.start;
    while at < ordinals.end {
        let (mut rest, within) = (at.checked_div(run).unwrap_or(0), at.checked_rem(run).unwrap_or(0));
        let mut number = base.saturating_add(within);
        for (s, stride) in turning.iter().zip(&strides).rev() {
            number = number.saturating_add(s.at(rest.checked_rem(s.count).unwrap_or(0)).saturating_mul(*stride));
            rest = rest.checked_div(s.count).unwrap_or(0);
        }
        let n = run.saturating_sub(within).min(ordinals.end.saturating_sub(at)).max(1);
        f(number..number.saturating_add(n))?;
        at = at.saturating_add(n);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(s: &Selected, ordinals: Range<u64>) -> Vec<u64> {
        let mut all = Vec::new();
        s.for_each_run(ordinals, &mut |run| {
            all.extend(run);
            Ok(())
        })
        .unwrap();
        all
    }

    proptest! {
        /// A grid, its set, and a filter over all coordinates agree.
        #[test]
        fn grids_agree_with_a_filter(
            dims in prop::collection::vec(1u64..7, 1..4),
            parts in prop::collection::vec((0u64..7, 1u64..4, 0u64..7), 4),
            cut in (0u64..40, 0u64..40),
        ) {
            let steps: Vec<Steps> = dims.iter().zip(&parts).map(|(n, (start, step, count))| {
                let start = start % n;
                Steps { start, step: *step, count: (*count).min((n - start).div_ceil(*step)) }
            }).collect();
            let s = Selected::grid(&dims, steps.clone()).unwrap();
            let total: u64 = dims.iter().product();
            let inside = |number: &u64| {
                let mut rest = *number;
                dims.iter().zip(&steps).rev().all(|(n, s)| {
                    let c = rest % n;
                    rest /= n;
                    c >= s.start && (c - s.start).is_multiple_of(s.step) && (c - s.start) / s.step < s.count
                })
            };
            let expected: Vec<u64> = (0..total).filter(inside).collect();
            prop_assert_eq!(s.len(), expected.len() as u64);
            prop_assert_eq!(numbers(&s, 0..u64::MAX), expected.clone());
            let set = Selected::set(&dims, s.to_set().unwrap()).unwrap();
            let (from, to) = (cut.0.min(s.len()), (cut.0 + cut.1).min(s.len()));
            for s in [&s, &set] {
                prop_assert_eq!(numbers(s, from..to), &expected[from as usize..to as usize]);
            }
            let half = ElementSet::of_run(&dims, &(0..total / 2));
            let common = Selected::set(&dims, s.intersection(&half).unwrap()).unwrap();
            prop_assert_eq!(numbers(&common, 0..u64::MAX), expected.iter().copied().filter(|n| *n < total / 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn points_keep_their_order() {
        let s = Selected::points(&[3, 4], vec![7, 8, 2, 2, 3]).unwrap();
        let mut runs = Vec::new();
        s.for_each_run(1..5, &mut |run| {
            runs.push(run);
            Ok(())
        })
        .unwrap();
        assert_eq!(runs, [8..9, 2..3, 2..4]);
        assert_eq!((s.len(), s.to_set().unwrap().elements(), s.shape()), (5, 4, vec![5]));
        assert_eq!(s.bounds().unwrap(), (vec![0, 0], vec![3, 4]));
    }

    #[test]
    fn large_grids_are_not_enumerated() {
        let dims = [1u64 << 40, 1 << 20];
        let s = Selected::grid(&dims, vec![Steps { start: 0, step: 2, count: 1 << 39 }, Steps { start: 1, step: 3, count: 1000 }]).unwrap();
        assert_eq!(s.len(), 1000 << 39);
        assert_eq!(numbers(&s, (1000 << 38) + 1..(1000 << 38) + 3), [(1 << 59) + 4, (1 << 59) + 7]);
        assert!(matches!(s.to_set(), Err(Error::Refused { errno: libc::EFBIG, .. })));
        assert!(Selected::all(&[1 << 40, 1 << 40]).is_err());
    }
}
