//! Sets with other selections: parts of them by ordinal, their bounds, and what a grid has of them.

use super::{ElementSet, List, Op, SPANS_MAX, STRUCTURE, Span, push};
use crate::base::Result;
use crate::base::budget::Budget;
use crate::base::selected::Steps;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Elements that are passed over, and those that are left.
struct Window {
    skip: u64,
    left: u64,
}

impl ElementSet {
    /// Visits the numbers of the elements with `ordinals`, their positions in the set, in an extent
    /// of `dims`: ascending runs, those of neighbouring rows not joined.
    pub fn for_each_run_of(&self, dims: &[u64], ordinals: Range<u64>, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        let mut window = Window { skip: ordinals.start, left: ordinals.end.saturating_sub(ordinals.start) };
        self.root.as_ref().map_or(Ok(()), |root| runs_of(root, dims, 0, &mut window, f))
    }

    /// Visits the blocks in the order of their first elements, until `f` fails: first coordinates,
    /// and end ones (exclusive).
    pub fn try_each_block(&self, f: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>) -> Result<()> {
        let mut done = Ok(());
        let _ = self.for_each_block(&mut |first, end| {
            done = f(first, end);
            if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        done
    }

    /// Adds the elements of `other`, or removes them: copies only the spans that change. Errors:
    /// `Limit`, more than `spans` would be made.
    pub fn change_by(&mut self, other: &ElementSet, adds: bool, spans: u64) -> Result<()> {
        let op = if adds { Op::Union } else { Op::Difference };
        other.root.as_ref().map_or(Ok(()), |other| self.change(op, &other.spans, &Budget::new(spans, STRUCTURE)))
    }

    /// The union of `sets`, by halves: each span is copied a logarithmic number of times. Errors:
    /// `Limit`, one step would make more than `spans`.
    pub fn join(mut sets: Vec<ElementSet>, spans: u64) -> Result<Self> {
        while sets.len() > 1 {
            let pairs = std::mem::take(&mut sets);
            for pair in pairs.chunks(2) {
                let mut one = pair.first().cloned().unwrap_or_default();
                pair.get(1).map_or(Ok(()), |other| one.change_by(other, true, spans))?;
                sets.push(one);
            }
        }
        Ok(sets.pop().unwrap_or_default())
    }

    /// Spans of the first dimension.
    pub fn rows(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.spans.len() as u64)
    }

    /// The elements whose first coordinates are in this set, and the others in `inner`.
    pub fn times(&self, inner: &ElementSet) -> Self {
        let Some(below) = &inner.root else { return ElementSet::default() };
        match &self.root {
            // Dimensions without any are one element.
            None => ElementSet::default(),
            Some(root) => ElementSet { root: times(root, below) },
        }
    }

    /// Visits the parts of the set that share coordinates of the first dimension: first coordinates
    /// and end ones of the smallest block around each, and its elements.
    pub fn for_each_slab(&self, f: &mut dyn FnMut(Vec<u64>, Vec<u64>, u64) -> Result<()>) -> Result<()> {
        for s in self.root.iter().flat_map(|root| &root.spans) {
            let mut bounds = std::iter::once(s.low..s.end).collect();
            if let Some(down) = &s.down {
                bounds_of(down, 1, &mut bounds);
            }
            let (first, end) = bounds.into_iter().map(|r: Range<u64>| (r.start, r.end)).unzip();
            f(first, end, s.elements())?;
        }
        Ok(())
    }

    /// The smallest block that has all elements: first coordinates, and end ones (exclusive).
    pub fn bounds(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        let mut bounds = Vec::new();
        bounds_of(self.root.as_ref()?, 0, &mut bounds);
        Some(bounds.into_iter().map(|r| (r.start, r.end)).unzip())
    }

    /// The elements at coordinates of `steps`, one per dimension. Errors: `Limit` for more spans
    /// than are worked on.
    pub fn on_grid(&self, steps: &[Steps]) -> Result<Self> {
        let Some(root) = &self.root else { return Ok(ElementSet::default()) };
        Ok(ElementSet { root: on_grid(root, steps, &Budget::new(SPANS_MAX, STRUCTURE))? })
    }
}

/// The recursion is as deep as the rank.
fn runs_of(list: &List, dims: &[u64], base: u64, window: &mut Window, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    let rest = dims.get(1..).unwrap_or_default();
    let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d));
    for s in &list.spans {
        if window.left == 0 {
            return Ok(());
        }
        let elements = s.elements();
        if window.skip >= elements {
            window.skip = window.skip.saturating_sub(elements);
            continue;
        }
        let at = |c: u64| base.saturating_add(c.saturating_mul(unit));
        match &s.down {
            Some(down) if down.elements < unit => {
                let passed = window.skip.checked_div(down.elements).unwrap_or(0);
                window.skip = window.skip.saturating_sub(passed.saturating_mul(down.elements));
                for c in s.low.saturating_add(passed)..s.end {
                    if window.left == 0 {
                        return Ok(());
                    }
                    runs_of(down, rest, at(c), window, f)?;
                }
            }
            _ => {
                let first = at(s.low).saturating_add(window.skip);
                let n = at(s.end).saturating_sub(first).min(window.left);
                (window.skip, window.left) = (0, window.left.saturating_sub(n));
                f(first..first.saturating_add(n))?;
            }
        }
    }
    Ok(())
}

/// `list` with `below` for the dimensions after its last one. The recursion is as deep as the rank.
fn times(list: &Arc<List>, below: &Arc<List>) -> Option<Arc<List>> {
    let mut last: Option<(&Arc<List>, Option<Arc<List>>)> = None;
    let mut spans = Vec::with_capacity(list.spans.len());
    for s in &list.spans {
        let down = match &s.down {
            None => Some(below.clone()),
            Some(down) => match last.take().filter(|(of, _)| Arc::ptr_eq(of, down)) {
                Some((_, made)) => made,
                None => times(down, below),
            },
        };
        last = s.down.as_ref().map(|of| (of, down.clone()));
        spans.push(Span { low: s.low, end: s.end, down });
    }
    List::of(spans)
}

/// Extends the `bounds` of the dimensions from `level` on. The recursion is as deep as the rank.
fn bounds_of(list: &Arc<List>, level: usize, bounds: &mut Vec<Range<u64>>) {
    let mut last: Option<&Arc<List>> = None;
    for s in &list.spans {
        match bounds.get_mut(level) {
            Some(range) => *range = range.start.min(s.low)..range.end.max(s.end),
            None => bounds.push(s.low..s.end),
        }
        // Lists are shared by the rows of grids.
        if let Some(down) = s.down.as_ref().filter(|down| !last.is_some_and(|last| Arc::ptr_eq(last, down))) {
            bounds_of(down, level.saturating_add(1), bounds);
            last = Some(down);
        }
    }
}

/// The recursion is as deep as the rank.
fn on_grid(list: &Arc<List>, steps: &[Steps], budget: &Budget) -> Result<Option<Arc<List>>> {
    let Some((step, rest)) = steps.split_first() else { return Ok(Some(list.clone())) };
    let mut out: Vec<Span> = Vec::new();
    let mut last: Option<(&Arc<List>, Option<Arc<List>>)> = None;
    for s in &list.spans {
        // The first coordinate of the grid in the span.
        let before = s.low.saturating_sub(step.start).div_ceil(step.step.max(1));
        let first = step.start.saturating_add(before.saturating_mul(step.step));
        let end = s.end.min(step.end());
        if first >= end {
            continue;
        }
        let down = match &s.down {
            None => None,
            Some(down) => {
                let known = last.take().filter(|(of, _)| Arc::ptr_eq(of, down));
                let kept = match known {
                    Some((_, kept)) => kept,
                    None => on_grid(down, rest, budget)?,
                };
                last = Some((down, kept.clone()));
                match kept {
                    None => continue,
                    kept => kept,
                }
            }
        };
        if step.step == 1 {
            push(&mut out, first, end, down, budget)?;
            continue;
        }
        let mut at = first;
        while at < end {
            push(&mut out, at, at.saturating_add(1), down.clone(), budget)?;
            at = at.saturating_add(step.step);
        }
    }
    Ok(List::of(out))
}
