//! Sets of elements of an extent: unions of blocks, with union, intersection and difference.
//!
//! ```text
//! list (dimension 0):  [low, end | down] [low, end | down] ...   ascending, disjoint
//!                                   |
//! list (dimension 1):  [low, end | -] ...                        no `down` in the last dimension
//! ```
//!
//! A span is a range of coordinates that share one list in the next dimension, as in libhdf5's span
//! trees (H5Shyper.c). Neighbouring spans with equal lists are merged, so that blocks that touch
//! become larger blocks and equal sets have equal trees. Lists are shared between sets. Cost and
//! memory are proportional to the number of spans, not of elements.
//!
//! Elements are ordered row-major; an element's *number* is its position in the extent.

mod ordered;

use super::budget::Budget;
use super::{Address, Error, Result};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

const STRUCTURE: &str = "set of elements";
/// Most spans that one operation creates: bounds memory and time.
const SPANS_MAX: u64 = 1 << 24;

/// A set of elements of an extent of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementSet {
    root: Option<Arc<List>>,
}

/// Spans of one dimension; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    spans: Vec<Span>,
    /// Elements in the spans and the lists below.
    elements: u64,
    /// Blocks: paths from this list to a last span.
    blocks: u64,
}

#[derive(Debug, Clone)]
struct Span {
    low: u64,
    end: u64,
    /// List of the next dimension; `None` in the last one.
    down: Option<Arc<List>>,
}

impl PartialEq for Span {
    fn eq(&self, other: &Self) -> bool {
        self.low == other.low && self.end == other.end && same(&self.down, &other.down)
    }
}

impl Eq for Span {}

/// True for equal lists.
fn same(a: &Option<Arc<List>>, b: &Option<Arc<List>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || (a.elements == b.elements && a.spans == b.spans),
        _ => false,
    }
}

impl Span {
    fn elements(&self) -> u64 {
        self.end.saturating_sub(self.low).saturating_mul(self.down.as_ref().map_or(1, |d| d.elements))
    }

    fn blocks(&self) -> u64 {
        self.down.as_ref().map_or(1, |d| d.blocks)
    }
}

/// An operation on two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Union,
    Intersection,
    Difference,
}

impl List {
    /// A list of `spans`; `None` if there are none.
    fn of(spans: Vec<Span>) -> Option<Arc<List>> {
        if spans.is_empty() {
            return None;
        }
        let elements = spans.iter().fold(0u64, |n, s| n.saturating_add(s.elements()));
        let blocks = spans.iter().fold(0u64, |n, s| n.saturating_add(s.blocks()));
        Some(Arc::new(List { spans, elements, blocks }))
    }
}

/// Appends a span, or extends the last one if it touches and has an equal list.
fn push(out: &mut Vec<Span>, low: u64, end: u64, down: Option<Arc<List>>, budget: &Budget) -> Result<()> {
    if let Some(last) = out.last_mut()
        && last.end == low
        && same(&last.down, &down)
    {
        last.end = end;
        return Ok(());
    }
    budget.spend(1)?;
    out.push(Span { low, end, down });
    Ok(())
}

/// The spans of `a` and `b` combined. The recursion is as deep as the rank.
fn combine(op: Op, a: &[Span], b: &[Span], budget: &Budget) -> Result<Vec<Span>> {
    let mut out = Vec::new();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    // First coordinate that is not handled, and the last two lists that were combined: rows of
    // grids share them.
    let (mut at, mut last) = (0u64, None);
    loop {
        let (x, y) = (a.peek().copied(), b.peek().copied());
        let next = [x, y].into_iter().flatten().map(|s| s.low.max(at)).min();
        let Some(from) = next else { return Ok(out) };
        let (x, y) = (x.filter(|s| s.low <= from), y.filter(|s| s.low <= from));
        // The coordinates up to which the same spans, or none, are there.
        let begins = |s: Option<&&Span>| s.map(|s| s.low).filter(|low| *low > from);
        let edges = [x.map(|s| s.end), y.map(|s| s.end), begins(a.peek()), begins(b.peek())];
        let to = edges.into_iter().flatten().min().unwrap_or(from);
        match (x, y) {
            (Some(x), Some(y)) => {
                if let Some(down) = both(op, x, y, &mut last, budget)? {
                    push(&mut out, from, to, down, budget)?;
                }
            }
            (Some(x), None) if op != Op::Intersection => push(&mut out, from, to, x.down.clone(), budget)?,
            (None, Some(y)) if op == Op::Union => push(&mut out, from, to, y.down.clone(), budget)?,
            _ => {}
        }
        a.next_if(|s| s.end <= to);
        b.next_if(|s| s.end <= to);
        at = to;
        if op != Op::Union && a.peek().is_none() {
            return Ok(out);
        }
    }
}

/// Two lists, and what was made of them.
type Combined<'a> = Option<(&'a Arc<List>, &'a Arc<List>, Option<Arc<List>>)>;

/// The list of coordinates that lie in spans of both sets; `None`: no element is left of them.
fn both<'a>(op: Op, x: &'a Span, y: &'a Span, last: &mut Combined<'a>, budget: &Budget) -> Result<Option<Option<Arc<List>>>> {
    let (Some(a), Some(b)) = (&x.down, &y.down) else { return Ok((op != Op::Difference).then_some(None)) };
    if Arc::ptr_eq(a, b) {
        return Ok((op != Op::Difference).then(|| Some(a.clone())));
    }
    if let Some((c, d, done)) = last
        && Arc::ptr_eq(a, c)
        && Arc::ptr_eq(b, d)
    {
        return Ok(done.clone().map(Some));
    }
    let done = List::of(combine(op, &a.spans, &b.spans, budget)?);
    *last = Some((a, b, done.clone()));
    Ok(done.map(Some))
}

/// Applies a union or difference with few spans to a list; false if nothing is left of it. The
/// recursion is as deep as the rank.
fn change(list: &mut Arc<List>, op: Op, other: &[Span], budget: &Budget) -> Result<bool> {
    let (Some(first), Some(last)) = (other.first(), other.last()) else { return Ok(true) };
    let from = list.spans.partition_point(|s| s.end < first.low);
    let to = list.spans.partition_point(|s| s.low <= last.end).max(from);
    // The coordinates of one span, which touches no other: the list below it changes.
    if let ([one], Some([span])) = (other, list.spans.get(from..to))
        && let (Some(below), true) = (&one.down, (span.low, span.end) == (one.low, one.end))
    {
        let list = Arc::make_mut(list);
        let Some(span) = list.spans.get_mut(from) else { return Ok(true) };
        let before = (span.elements(), span.blocks());
        let keeps = span.down.as_mut().map_or(Ok(true), |down| change(down, op, &below.spans, budget))?;
        let after = if keeps { (span.elements(), span.blocks()) } else { (0, 0) };
        if !keeps {
            list.spans.remove(from);
        }
        list.elements = list.elements.saturating_sub(before.0).saturating_add(after.0);
        list.blocks = list.blocks.saturating_sub(before.1).saturating_add(after.1);
        return Ok(!list.spans.is_empty());
    }
    let old = list.spans.get(from..to).unwrap_or_default();
    let new = combine(op, old, other, budget)?;
    let sum = |spans: &[Span], of: fn(&Span) -> u64| spans.iter().fold(0u64, |n, s| n.saturating_add(of(s)));
    let elements = list.elements.saturating_sub(sum(old, Span::elements)).saturating_add(sum(&new, Span::elements));
    let blocks = list.blocks.saturating_sub(sum(old, Span::blocks)).saturating_add(sum(&new, Span::blocks));
    let list = Arc::make_mut(list);
    (list.elements, list.blocks) = (elements, blocks);
    list.spans.splice(from..to, new);
    Ok(!list.spans.is_empty())
}

impl ElementSet {
    /// The block `first .. end` (exclusive) per dimension; empty if a dimension is.
    pub fn block(first: &[u64], end: &[u64]) -> Self {
        let mut down = None;
        for (&low, &end) in first.iter().zip(end).rev() {
            if low >= end {
                return ElementSet::default();
            }
            down = List::of(vec![Span { low, end, down }]);
        }
        ElementSet { root: down }
    }

    /// The elements with a coordinate of each dimension in one of its `spans`, which are ascending
    /// and do not touch.
    pub fn product(spans: &[Vec<Range<u64>>]) -> Self {
        let mut down = None;
        for ranges in spans.iter().rev() {
            down = List::of(ranges.iter().map(|r| Span { low: r.start, end: r.end, down: down.clone() }).collect());
            if down.is_none() {
                break;
            }
        }
        ElementSet { root: down }
    }

    /// The union of `blocks`, each with its first coordinates and its last ones (inclusive).
    ///
    /// Errors: `Corrupt` if a block ends before it begins or is not of this rank, `Limit` for more
    /// spans than are worked on.
    pub fn of_blocks(rank: usize, blocks: &[u64]) -> Result<Self> {
        let corrupt = || Error::corrupt(STRUCTURE, Address::UNDEF, "a block ends before it begins, or half a block");
        let width = rank.checked_mul(2).filter(|w| *w > 0 && blocks.len().is_multiple_of(*w)).ok_or_else(corrupt)?;
        let block = |n: usize| {
            let at = n.saturating_mul(width);
            let (first, last) = blocks.get(at..at.saturating_add(width)).unwrap_or_default().split_at_checked(rank).ok_or_else(corrupt)?;
            let end: Option<Vec<u64>> = last.iter().zip(first).map(|(l, f)| l.checked_add(1).filter(|_| f <= l)).collect();
            Ok(ElementSet::block(first, &end.ok_or_else(corrupt)?))
        };
        Self::union_of(0..blocks.len().checked_div(width).unwrap_or(0), &block)
    }

    /// The union of the sets that `set` makes of `numbers`, by halves: each span is copied a
    /// logarithmic number of times, and few sets are in memory at once. The recursion is as deep as
    /// the logarithm.
    pub fn union_of(numbers: Range<usize>, set: &dyn Fn(usize) -> Result<ElementSet>) -> Result<Self> {
        let count = numbers.end.saturating_sub(numbers.start);
        let middle = numbers.start.saturating_add(count / 2);
        match count {
            0 => Ok(ElementSet::default()),
            1 => set(numbers.start),
            _ => Self::union_of(numbers.start..middle, set)?.union(&Self::union_of(middle..numbers.end, set)?),
        }
    }

    /// The elements of an extent of `dims` with numbers in `range`: at most two blocks a dimension.
    pub fn of_run(dims: &[u64], range: &Range<u64>) -> Self {
        ElementSet { root: List::of(run_spans(dims, range.start, range.end)) }
    }

    /// The elements of an extent of `dims` with numbers in `runs`, ascending and disjoint.
    pub fn of_runs(dims: &[u64], runs: &[Range<u64>]) -> Result<Self> {
        Ok(ElementSet { root: List::of(sorted_spans(dims, runs, &Budget::new(SPANS_MAX, STRUCTURE))?) })
    }

    /// True for the empty set.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.root.as_ref().map_or(0, |r| r.elements)
    }

    /// Number of blocks that [`ElementSet::for_each_block`] visits.
    pub fn blocks(&self) -> u64 {
        self.root.as_ref().map_or(0, |r| r.blocks)
    }

    fn apply(&self, op: Op, other: &Self, budget: &Budget) -> Result<Self> {
        Ok(match (&self.root, &other.root) {
            (None, _) if op != Op::Union => ElementSet::default(),
            (_, None) if op == Op::Intersection => ElementSet::default(),
            (_, None) => self.clone(),
            (None, Some(_)) => other.clone(),
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {
                if op == Op::Difference {
                    ElementSet::default()
                } else {
                    self.clone()
                }
            }
            (Some(a), Some(b)) => ElementSet { root: List::of(combine(op, &a.spans, &b.spans, budget)?) },
        })
    }

    /// Elements of either set. Errors: `Limit` for more spans than are worked on.
    pub fn union(&self, other: &Self) -> Result<Self> {
        self.apply(Op::Union, other, &Budget::new(SPANS_MAX, STRUCTURE))
    }

    /// Elements of both sets. Errors: `Limit` for more spans than are worked on.
    pub fn intersection(&self, other: &Self) -> Result<Self> {
        self.apply(Op::Intersection, other, &Budget::new(SPANS_MAX, STRUCTURE))
    }

    /// Elements of this set that are not in the other. Errors: `Limit` for more spans than are
    /// worked on.
    pub fn difference(&self, other: &Self) -> Result<Self> {
        self.apply(Op::Difference, other, &Budget::new(SPANS_MAX, STRUCTURE))
    }

    /// Adds the elements of an extent of `dims` with numbers in `range`; copies only the spans that
    /// change.
    pub fn insert_run(&mut self, dims: &[u64], range: &Range<u64>) -> Result<()> {
        self.change(Op::Union, &run_spans(dims, range.start, range.end), &Budget::new(SPANS_MAX, STRUCTURE))
    }

    /// Removes the elements of an extent of `dims` with numbers in `range`.
    pub fn remove_run(&mut self, dims: &[u64], range: &Range<u64>) -> Result<()> {
        self.change(Op::Difference, &run_spans(dims, range.start, range.end), &Budget::new(SPANS_MAX, STRUCTURE))
    }

    /// Applies a union or difference with few spans: only those that they touch are replaced.
    fn change(&mut self, op: Op, other: &[Span], budget: &Budget) -> Result<()> {
        match &mut self.root {
            None if op == Op::Union => self.root = List::of(other.to_vec()),
            None => {}
            Some(root) => {
                let keeps = change(root, op, other, budget)?;
                self.root.take_if(|_| !keeps);
            }
        }
        Ok(())
    }

    /// The set moved by `origin`, a coordinate per dimension. `None`: past 2^64.
    pub fn moved(&self, origin: &[u64]) -> Option<Self> {
        fn moved(list: &Arc<List>, origin: &[u64]) -> Option<Arc<List>> {
            let (by, rest) = origin.split_first()?;
            let mut spans: Vec<Span> = Vec::with_capacity(list.spans.len());
            for s in &list.spans {
                let down = s.down.as_ref().map(|d| moved(d, rest)).map_or(Some(None), |d| d.map(Some))?;
                spans.push(Span { low: s.low.checked_add(*by)?, end: s.end.checked_add(*by)?, down });
            }
            Some(Arc::new(List { spans, ..**list }))
        }
        match &self.root {
            None => Some(ElementSet::default()),
            Some(root) => Some(ElementSet { root: Some(moved(root, origin)?) }),
        }
    }

    /// True if every coordinate is below `dims`, and the set has their rank.
    pub fn is_within(&self, dims: &[u64]) -> bool {
        fn within(list: &List, dims: &[u64]) -> bool {
            let Some((size, rest)) = dims.split_first() else { return false };
            let inside = |s: &Span| s.down.as_ref().map_or(rest.is_empty(), |d| within(d, rest));
            list.spans.last().is_none_or(|s| s.end <= *size) && list.spans.iter().all(inside)
        }
        self.root.as_ref().is_none_or(|root| within(root, dims))
    }

    /// Visits the blocks in the order of their first elements: first coordinates, and end ones
    /// (exclusive).
    pub fn for_each_block(&self, f: &mut dyn FnMut(&[u64], &[u64]) -> ControlFlow<()>) -> ControlFlow<()> {
        fn visit(
            list: &List,
            first: &mut Vec<u64>,
            end: &mut Vec<u64>,
            f: &mut dyn FnMut(&[u64], &[u64]) -> ControlFlow<()>,
        ) -> ControlFlow<()> {
            for s in &list.spans {
                first.push(s.low);
                end.push(s.end);
                let flow = match &s.down {
                    Some(down) => visit(down, first, end, f),
                    None => f(first, end),
                };
                first.pop();
                end.pop();
                flow?;
            }
            ControlFlow::Continue(())
        }
        match &self.root {
            Some(root) => visit(root, &mut Vec::new(), &mut Vec::new(), f),
            None => ControlFlow::Continue(()),
        }
    }

    /// Visits the numbers of the elements in an extent of `dims`, in ascending runs; runs of
    /// neighbouring rows are not joined.
    pub fn for_each_run(&self, dims: &[u64], f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        fn visit(list: &List, dims: &[u64], base: u64, f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
            let rest = dims.get(1..).unwrap_or_default();
            let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d));
            for s in &list.spans {
                match &s.down {
                    // A list that takes the whole of its dimensions makes one run.
                    Some(down) if down.elements < unit => {
                        for c in s.low..s.end {
                            visit(down, rest, base.saturating_add(c.saturating_mul(unit)), f)?;
                        }
                    }
                    _ => f(base.saturating_add(s.low.saturating_mul(unit))..base.saturating_add(s.end.saturating_mul(unit)))?,
                }
            }
            Ok(())
        }
        self.root.as_ref().map_or(Ok(()), |root| visit(root, dims, 0, f))
    }

    /// Number of the first element at or after number `from` of an extent of `dims`.
    pub fn next_element(&self, dims: &[u64], from: u64) -> Option<u64> {
        fn find(list: &List, dims: &[u64], from: u64) -> Option<u64> {
            let rest = dims.get(1..).unwrap_or_default();
            let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
            let (c, within) = (from / unit, from % unit);
            let mut at = list.spans.partition_point(|s| s.end <= c);
            let span = list.spans.get(at)?;
            let Some(down) = &span.down else { return Some(from.max(span.low)) };
            if span.low <= c {
                if let Some(found) = find(down, rest, within) {
                    return Some(c.saturating_mul(unit).saturating_add(found));
                }
                if c.saturating_add(1) < span.end {
                    return Some(c.saturating_add(1).saturating_mul(unit).saturating_add(find(down, rest, 0)?));
                }
                at = at.saturating_add(1);
            }
            let span = list.spans.get(at)?;
            Some(span.low.saturating_mul(unit).saturating_add(find(span.down.as_ref()?, rest, 0)?))
        }
        find(self.root.as_ref()?, dims, from)
    }

    /// Number of the first place at or after number `from` of an extent of `dims` that is not in
    /// the set; the size of the extent if there is none.
    pub fn next_gap(&self, dims: &[u64], from: u64) -> u64 {
        /// The gap, and whether the elements end with the list's extent instead.
        fn find(list: &List, dims: &[u64], from: u64) -> (u64, bool) {
            let size = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
            let rest = dims.get(1..).unwrap_or_default();
            let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
            let mut gap = from;
            for s in list.spans.get(list.spans.partition_point(|s| s.end <= from / unit)..).unwrap_or_default() {
                let c = gap / unit;
                if s.low > c {
                    break;
                }
                let Some(down) = s.down.as_ref().filter(|d| d.elements < unit) else {
                    gap = s.end.saturating_mul(unit);
                    continue;
                };
                // Rows that are not full: the gap is in this one or in the next.
                for row in [c, c.saturating_add(1)].into_iter().filter(|row| *row < s.end) {
                    let base = row.saturating_mul(unit);
                    let (found, ends) = find(down, rest, gap.saturating_sub(base));
                    gap = base.saturating_add(found);
                    if !ends {
                        return (gap, false);
                    }
                }
            }
            (gap, gap >= size)
        }
        self.root.as_ref().map_or(from, |root| find(root, dims, from).0)
    }
}

/// The elements of an extent of `dims` numbered `start .. end`, as spans of dimension 0. The
/// recursion is as deep as the rank.
fn run_spans(dims: &[u64], start: u64, end: u64) -> Vec<Span> {
    let Some((_, rest)) = dims.split_first() else { return Vec::new() };
    if start >= end {
        return Vec::new();
    }
    if rest.is_empty() {
        return vec![Span { low: start, end, down: None }];
    }
    let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
    let (first, last) = (start / unit, end / unit);
    let part = |row: u64, from: u64, to: u64| Span { low: row, end: row.saturating_add(1), down: List::of(run_spans(rest, from, to)) };
    if first == last {
        return vec![part(first, start % unit, end % unit)];
    }
    let mut spans = Vec::new();
    let mut whole = first;
    if !start.is_multiple_of(unit) {
        spans.push(part(first, start % unit, unit));
        whole = first.saturating_add(1);
    }
    if whole < last {
        spans.push(Span { low: whole, end: last, down: List::of(run_spans(rest, 0, unit)) });
    }
    if !end.is_multiple_of(unit) {
        spans.push(part(last, 0, end % unit));
    }
    spans
}

/// The elements of an extent of `dims` with numbers in `runs`, ascending and disjoint, as spans of
/// dimension 0. The recursion is as deep as the rank.
fn sorted_spans(dims: &[u64], runs: &[Range<u64>], budget: &Budget) -> Result<Vec<Span>> {
    let mut out = Vec::new();
    let rest = dims.get(1..).unwrap_or_default();
    if rest.is_empty() {
        for run in runs.iter().filter(|run| run.start < run.end) {
            push(&mut out, run.start, run.end, None, budget)?;
        }
        return Ok(out);
    }
    let unit = rest.iter().fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
    let full = List::of(run_spans(rest, 0, unit));
    // The row that is collected, and its parts.
    let (mut row, mut parts): (u64, Vec<Range<u64>>) = (0, Vec::new());
    let finish = |row: u64, parts: &mut Vec<Range<u64>>, out: &mut Vec<Span>| -> Result<()> {
        if let Some(down) = List::of(sorted_spans(rest, parts, budget)?) {
            push(out, row, row.saturating_add(1), Some(down), budget)?;
        }
        parts.clear();
        Ok(())
    };
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            let here = at / unit;
            let begin = here.saturating_mul(unit);
            if here != row {
                finish(row, &mut parts, &mut out)?;
                row = here;
            }
            if at == begin && run.end.saturating_sub(begin) >= unit {
                let end = run.end / unit;
                push(&mut out, here, end, full.clone(), budget)?;
                at = end.saturating_mul(unit);
            } else {
                let stop = run.end.min(begin.saturating_add(unit));
                parts.push(at.saturating_sub(begin)..stop.saturating_sub(begin));
                at = stop;
            }
        }
    }
    finish(row, &mut parts, &mut out)?;
    Ok(out)
}
