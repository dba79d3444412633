//! A selection applied to an extent: searches by linear number and by ordinal.
//!
//! Hyperslabs of both kinds are lists of spans, one list per dimension and row: a regular one
//! computes them, an irregular one stores them. Both searches descend these lists from the first
//! matching span to the last. A span whose rows are all selected whole is one run.

use super::budget::Budget;
use super::hyperslab::Progression;
use super::points::Points;
use super::span_tree::{Span, SpanTree};
use super::{Address, Error, Result};
use std::ops::Range;

const STRUCTURE: &str = "dataspace selection";

/// Elements contiguous both in the extent and in the selection's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Ordinal of the first element.
    pub ordinal: u64,
    /// Linear number of the first element.
    pub linear: u64,
    /// Number of elements.
    pub len: u64,
}

/// Spans of a hyperslab. A list is identified by its level (regular) or its number (tree).
pub(super) enum Lists<'a> {
    /// Per dimension: its coordinates, and the elements each of them selects in the dimensions
    /// below.
    Regular(Vec<(Progression, u64)>),
    /// An irregular hyperslab.
    Tree(&'a SpanTree),
}

impl Lists<'_> {
    fn root(&self) -> u32 {
        if let Lists::Tree(t) = self { t.root() } else { 0 }
    }

    fn span(&self, list: u32, k: u64) -> Option<Span> {
        match self {
            Lists::Tree(t) => t.span(list, k),
            Lists::Regular(levels) => {
                let (p, unit) = levels.get(list as usize)?;
                let (low, len, before) = p.span(k)?;
                let down = list.checked_add(1).filter(|&d| (d as usize) < levels.len());
                Some(Span { low, len, before: before.saturating_mul(*unit), down })
            }
        }
    }

    /// Elements selected by each coordinate of `span`.
    fn unit(&self, span: &Span) -> u64 {
        match (self, span.down) {
            (_, None) => 1,
            (Lists::Tree(t), Some(down)) => t.elements(down),
            (Lists::Regular(levels), Some(down)) => levels.get(down as usize).map_or(0, |(p, unit)| p.len().saturating_mul(*unit)),
        }
    }

    fn find_coordinate(&self, list: u32, c: u64) -> u64 {
        match self {
            Lists::Tree(t) => t.find_coordinate(list, c),
            Lists::Regular(levels) => levels.get(list as usize).map_or(0, |(p, _)| p.find_coordinate(c)),
        }
    }

    fn find_ordinal(&self, list: u32, n: u64) -> u64 {
        match self {
            Lists::Tree(t) => t.find_ordinal(list, n),
            Lists::Regular(levels) => levels.get(list as usize).map_or(0, |(p, unit)| p.find_ordinal(n.checked_div(*unit).unwrap_or(0))),
        }
    }
}

enum ViewKind<'a> {
    Empty,
    /// The single element of a scalar.
    Scalar,
    Points(&'a Points),
    Lists(Lists<'a>),
}

/// A selection applied to an extent.
pub struct View<'a> {
    shape: Vec<u64>,
    /// Elements per coordinate step, by dimension.
    sizes: Vec<u64>,
    elements: u64,
    count: u64,
    kind: ViewKind<'a>,
}

impl<'a> View<'a> {
    fn new(shape: &[u64], count: u64, kind: ViewKind<'a>) -> Result<Self> {
        let mut sizes = vec![0; shape.len()];
        // An extent without elements has no linear numbers, so the products do not matter.
        let mut elements = Some(u64::from(!shape.contains(&0)));
        for (size, &n) in sizes.iter_mut().zip(shape).rev() {
            *size = elements.unwrap_or(0);
            elements = elements.and_then(|e| e.checked_mul(n));
        }
        match elements {
            Some(elements) => Ok(View { shape: shape.to_vec(), sizes, elements, count, kind }),
            None => Err(Error::limit("dataspace", Address::UNDEF, "its extent has 2^64 elements or more")),
        }
    }

    pub(super) fn empty(shape: &[u64]) -> Result<Self> {
        Self::new(shape, 0, ViewKind::Empty)
    }

    pub(super) fn points(shape: &[u64], points: &'a Points) -> Result<Self> {
        Self::new(shape, points.len(), ViewKind::Points(points))
    }

    pub(super) fn lists(shape: &[u64], lists: Lists<'a>) -> Result<Self> {
        let count = match &lists {
            Lists::Tree(t) => t.elements(t.root()),
            Lists::Regular(levels) => levels.first().map_or(0, |(p, unit)| p.len().saturating_mul(*unit)),
        };
        Self::new(shape, count, ViewKind::Lists(lists))
    }

    /// A regular hyperslab; `dim(d, size)` returns the selected coordinates of dimension `d`.
    pub(super) fn regular(shape: &[u64], dim: impl Fn(usize, u64) -> Progression) -> Result<Self> {
        if shape.is_empty() {
            return Self::new(shape, 1, ViewKind::Scalar);
        }
        let mut levels: Vec<(Progression, u64)> = shape.iter().enumerate().map(|(d, &size)| (dim(d, size), 0)).collect();
        let empty = levels.iter().any(|(p, _)| p.is_empty());
        let mut unit = Some(1u64);
        for (p, below) in levels.iter_mut().rev() {
            *below = unit.unwrap_or(0);
            unit = unit.and_then(|n| n.checked_mul(p.len()));
        }
        match unit {
            _ if empty => Self::empty(shape),
            None => Err(Error::limit(STRUCTURE, Address::UNDEF, "it selects 2^64 elements or more")),
            // A dimension that starts outside the extent leaves nothing to visit, but the elements
            // count.
            Some(count) if levels.iter().zip(shape).any(|((p, _), &size)| p.low() >= size) => Self::new(shape, count, ViewKind::Empty),
            Some(_) => Self::lists(shape, Lists::Regular(levels)),
        }
    }

    /// Elements of the extent.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Elements selected, including those outside the extent.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Shape of the extent.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Visits the selected elements with linear numbers in `linear`, by ascending linear number.
    ///
    /// Charges `budget` one step per span and row visited.
    pub fn runs_within(&self, linear: Range<u64>, budget: &Budget, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        let (low, high) = (linear.start, linear.end.min(self.elements));
        if low >= high {
            return Ok(());
        }
        let mut out = Output { visit, pending: None, budget };
        match &self.kind {
            ViewKind::Empty => {}
            ViewKind::Scalar => out.emit(0, 0, 1)?,
            ViewKind::Points(points) => {
                let (first, last) = (self.coordinates(low), self.coordinates(high.saturating_sub(1)));
                for i in points.between(&first, &last) {
                    out.budget.spend(1)?;
                    if let Some(linear) = points.point(i).and_then(|p| self.linear(p)) {
                        out.emit(i, linear, 1)?;
                    }
                }
            }
            ViewKind::Lists(lists) => self.walk_linear(lists, lists.root(), 0, (0, 0), (low, high), &mut out)?,
        }
        out.flush()
    }

    /// Visits the selected elements with ordinals in `ordinals`, in that order, without those
    /// outside the extent.
    ///
    /// Charges `budget` one step per span and row visited.
    pub fn by_ordinal_within(&self, ordinals: Range<u64>, budget: &Budget, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        let (low, high) = (ordinals.start, ordinals.end.min(self.count));
        if low >= high || self.elements == 0 {
            return Ok(());
        }
        let mut out = Output { visit, pending: None, budget };
        match &self.kind {
            ViewKind::Empty => {}
            ViewKind::Scalar => out.emit(0, 0, 1)?,
            ViewKind::Points(points) => {
                for i in low..high {
                    out.budget.spend(1)?;
                    if let Some(linear) = points.point(i).and_then(|p| self.linear(p)) {
                        out.emit(i, linear, 1)?;
                    }
                }
            }
            ViewKind::Lists(lists) => self.walk_ordinal(lists, lists.root(), 0, (0, 0), (low, high), &mut out)?,
        }
        out.flush()
    }

    /// Coordinates of the element with number `linear`.
    pub fn coordinates(&self, linear: u64) -> Vec<u64> {
        let mut rest = linear;
        let step = |&size: &u64| {
            let c = rest.checked_div(size).unwrap_or(0);
            rest = rest.saturating_sub(c.saturating_mul(size));
            c
        };
        self.sizes.iter().map(step).collect()
    }

    /// Linear number of the element at `point`; `None` outside the extent.
    fn linear(&self, point: &[u64]) -> Option<u64> {
        let mut linear = 0u64;
        for ((&c, &size), &n) in point.iter().zip(&self.sizes).zip(&self.shape) {
            linear = (c < n).then(|| c.checked_mul(size).and_then(|o| o.checked_add(linear)))??;
        }
        Some(linear)
    }

    fn dim(&self, level: usize) -> (u64, u64) {
        (self.shape.get(level).copied().unwrap_or(0), self.sizes.get(level).copied().unwrap_or(1))
    }

    /// True when `list`, of dimension `level`, selects every element of its row.
    fn whole(&self, lists: &Lists, list: u32, level: usize) -> bool {
        let (mut list, mut level) = (list, level);
        loop {
            let Some(s) = lists.span(list, 0) else { return false };
            if s.low != 0 || s.len != self.dim(level).0 || lists.span(list, 1).is_some() {
                return false;
            }
            let Some(down) = s.down else { return true };
            (list, level) = (down, level.saturating_add(1));
        }
    }

    /// Emits the elements of `range` (relative to the row) in a row of `list`; `base` is the row's
    /// (linear, ordinal).
    fn walk_linear(&self, lists: &Lists, list: u32, level: usize, base: (u64, u64), range: (u64, u64), out: &mut Output) -> Result<()> {
        let (n, size) = self.dim(level);
        let (low, high) = range;
        let (first, last) = (low.checked_div(size).unwrap_or(0), high.saturating_sub(1).checked_div(size).unwrap_or(0));
        for k in lists.find_coordinate(list, first).. {
            let Some(s) = lists.span(list, k).filter(|s| s.low <= last) else { break };
            out.budget.spend(1)?;
            let end = s.low.saturating_add(s.len).min(n);
            let start = base.1.saturating_add(s.before);
            let unit = lists.unit(&s);
            match s.down.filter(|&d| !self.whole(lists, d, level.saturating_add(1))) {
                None => {
                    let at = s.low.saturating_mul(size);
                    let (from, to) = (low.max(at), high.min(end.saturating_mul(size)));
                    let ordinal = start.saturating_add(from.saturating_sub(at));
                    out.emit(ordinal, base.0.saturating_add(from), to.saturating_sub(from))?;
                }
                Some(down) => {
                    for c in s.low.max(first)..end.min(last.saturating_add(1)) {
                        out.budget.spend(1)?;
                        let at = c.saturating_mul(size);
                        let below = (low.saturating_sub(at), high.saturating_sub(at).min(size));
                        let ordinal = start.saturating_add(c.saturating_sub(s.low).saturating_mul(unit));
                        self.walk_linear(lists, down, level.saturating_add(1), (base.0.saturating_add(at), ordinal), below, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Emits the elements with ordinals in `range` (relative to the row) in a row of `list`.
    fn walk_ordinal(&self, lists: &Lists, list: u32, level: usize, base: (u64, u64), range: (u64, u64), out: &mut Output) -> Result<()> {
        let (n, size) = self.dim(level);
        let (low, high) = range;
        for k in lists.find_ordinal(list, low).. {
            let Some(s) = lists.span(list, k).filter(|s| s.before < high && s.low < n) else { break };
            out.budget.spend(1)?;
            let unit = lists.unit(&s);
            let (from, to) = (low.saturating_sub(s.before), high.saturating_sub(s.before).min(s.len.saturating_mul(unit)));
            let room = n.saturating_sub(s.low);
            let start = base.1.saturating_add(s.before);
            match s.down.filter(|&d| !self.whole(lists, d, level.saturating_add(1))) {
                None => {
                    let to = to.min(room.saturating_mul(size));
                    let linear = base.0.saturating_add(s.low.saturating_mul(size)).saturating_add(from);
                    out.emit(start.saturating_add(from), linear, to.saturating_sub(from))?;
                }
                Some(down) => {
                    let (a, b) = (from.checked_div(unit).unwrap_or(0), to.saturating_sub(1).checked_div(unit).unwrap_or(0));
                    for c in a..b.saturating_add(1).min(room) {
                        out.budget.spend(1)?;
                        let row = c.saturating_mul(unit);
                        let below = (from.saturating_sub(row), to.saturating_sub(row).min(unit));
                        let linear = base.0.saturating_add(s.low.saturating_add(c).saturating_mul(size));
                        self.walk_ordinal(lists, down, level.saturating_add(1), (linear, start.saturating_add(row)), below, out)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Merges contiguous runs before they are passed to the visitor.
struct Output<'v> {
    visit: &'v mut dyn FnMut(Run) -> Result<()>,
    pending: Option<Run>,
    budget: &'v Budget,
}

impl Output<'_> {
    fn emit(&mut self, ordinal: u64, linear: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if let Some(p) = &mut self.pending
            && p.ordinal.checked_add(p.len) == Some(ordinal)
            && p.linear.checked_add(p.len) == Some(linear)
        {
            p.len = p.len.saturating_add(len);
            return Ok(());
        }
        match self.pending.replace(Run { ordinal, linear, len }) {
            Some(run) => (self.visit)(run),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.pending.take().map_or(Ok(()), |run| (self.visit)(run))
    }
}
