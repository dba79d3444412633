//! Selections of elements in a dataspace extent, and their two orders.
//!
//! Every element has a *linear* number: its row-major position in the extent. A selected element
//! also has an *ordinal*: its position in the selection's order (H5S iteration order), which is
//! row-major except for points, whose order is that of their list. [`View`] translates between the
//! two in runs; the cost depends on the number of runs visited, not on the extent.
//!
//! Source: H5Sselect.c, H5Shyper.c, H5Spoint.c, H5Sall.c, H5Snone.c.

use super::hyperslab::{HyperslabDim, Progression};
use super::points::Points;
use super::span_tree::SpanTree;
use super::view::{Lists, View};
use super::{Address, Error, Result, limits};

const STRUCTURE: &str = "dataspace selection";

/// Which elements of an extent are selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Nothing.
    None,
    /// The whole extent, of any rank (also the one element of a scalar).
    All,
    /// Single elements in the order of a list.
    Points(Points),
    /// A regular hyperslab.
    Regular(Regular),
    /// The union of blocks, an irregular hyperslab.
    Blocks(SpanTree),
}

/// A regular hyperslab; at most one dimension is unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regular {
    pub(super) dims: Vec<HyperslabDim>,
    /// If set, selects this many coordinates of the unlimited dimension, whatever the extent.
    slices: Option<u64>,
}

/// Smallest box around a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Nothing is selected.
    Empty,
    /// The extent itself.
    Extent,
    /// Lowest and highest coordinate per dimension; `u64::MAX` where unlimited.
    Box(Vec<u64>, Vec<u64>),
}

impl Regular {
    /// Index of the unlimited dimension.
    pub fn unlimited_dim(&self) -> Option<usize> {
        self.dims.iter().position(HyperslabDim::is_unlimited)
    }

    /// Selected coordinates of dimension `d` in an extent of `size`.
    fn progression(&self, d: usize, size: u64) -> Progression {
        let Some(dim) = self.dims.get(d) else { return Progression::EMPTY };
        match self.slices {
            Some(n) if dim.is_unlimited() => dim.first(n).unwrap_or(Progression::EMPTY),
            _ => dim.over(size),
        }
    }
}

impl Selection {
    /// A regular hyperslab; [`Selection::None`] if a dimension selects nothing. Corrupt if blocks
    /// overlap or more than one dimension is unlimited.
    pub fn regular(dims: Vec<HyperslabDim>) -> Result<Self> {
        let corrupt = |detail| Err(Error::corrupt(STRUCTURE, Address::UNDEF, detail));
        if dims.is_empty() || dims.len() > limits::RANK_MAX {
            return corrupt("its rank");
        }
        dims.iter().try_for_each(HyperslabDim::check)?;
        if dims.iter().any(HyperslabDim::is_empty) {
            return Ok(Selection::None);
        }
        if dims.iter().filter(|d| d.is_unlimited()).count() > 1 {
            return corrupt("more than one dimension is unlimited");
        }
        Ok(Selection::Regular(Regular { dims, slices: None }))
    }

    /// Rank of the extents it applies to; `None` if it applies to any rank.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Selection::None | Selection::All => None,
            Selection::Points(p) => Some(p.rank()),
            Selection::Regular(r) => Some(r.dims.len()),
            Selection::Blocks(t) => Some(t.rank()),
        }
    }

    /// The unlimited dimension, if any: its index and description.
    pub fn unlimited(&self) -> Option<(usize, HyperslabDim)> {
        match self {
            Selection::Regular(r) if r.slices.is_none() => r.unlimited_dim().and_then(|d| Some((d, *r.dims.get(d)?))),
            _ => None,
        }
    }

    /// Limits the selection to the first `n` coordinates of its unlimited dimension, whatever the
    /// extent.
    pub fn first_slices(&self, n: u64) -> Self {
        match self {
            Selection::Regular(r) if r.unlimited_dim().is_some() => Selection::Regular(Regular { dims: r.dims.clone(), slices: Some(n) }),
            other => other.clone(),
        }
    }

    /// Selects only the `k`-th block of the unlimited dimension; `None` past 2^64 or without such a
    /// dimension.
    pub fn unlimited_block(&self, k: u64) -> Option<Self> {
        let Selection::Regular(r) = self else { return None };
        let (d, dim) = self.unlimited()?;
        let mut dims = r.dims.clone();
        *dims.get_mut(d)? = dim.nth_block(k)?;
        Some(Selection::Regular(Regular { dims, slices: None }))
    }

    /// Bounding box of the selection, not clipped to an extent.
    pub fn bounds(&self) -> Bounds {
        match self {
            Selection::None => Bounds::Empty,
            Selection::All => Bounds::Extent,
            Selection::Points(p) => p.bounds().map_or(Bounds::Empty, |(low, high)| Bounds::Box(low, high)),
            Selection::Blocks(t) => Bounds::Box(t.low().to_vec(), t.high().to_vec()),
            Selection::Regular(r) => {
                let low = r.dims.iter().map(|d| d.start).collect();
                let high = |d: usize, dim: &HyperslabDim| match dim.is_unlimited() && r.slices.is_none() {
                    true => u64::MAX,
                    false => r.progression(d, 0).end().saturating_sub(1),
                };
                Bounds::Box(low, r.dims.iter().enumerate().map(|(d, dim)| high(d, dim)).collect())
            }
        }
    }

    /// Applies the selection to an extent of `shape` (empty: a scalar).
    ///
    /// Errors: `Corrupt` if the ranks differ, `Limit` if the extent or the selection has 2^64
    /// elements or more.
    pub fn over<'a>(&'a self, shape: &[u64]) -> Result<View<'a>> {
        if self.rank().is_some_and(|rank| rank != shape.len()) {
            let detail = format!("rank {:?} in an extent of rank {}", self.rank(), shape.len());
            return Err(Error::corrupt(STRUCTURE, Address::UNDEF, detail));
        }
        match self {
            Selection::None => View::empty(shape),
            Selection::Points(p) => View::points(shape, p),
            Selection::Blocks(t) => View::lists(shape, Lists::Tree(t)),
            Selection::All => View::regular(shape, |_, size| HyperslabDim::contiguous(0, size).over(size)),
            Selection::Regular(r) => View::regular(shape, |d, size| r.progression(d, size)),
        }
    }
}
