//! Sets of elements as serialized selections.

use super::selection::{Form, SerializedSelection};
use crate::base::element_set::ElementSet;
use crate::base::hyperslab::{HyperslabDim, UNLIMITED};
use crate::base::{Address, Error, Result};
use std::ops::{ControlFlow, Range};

const STRUCTURE: &str = "selection of defined elements";
/// Most spans of one dimension of a regular hyperslab.
const REGULAR_SPANS_MAX: u64 = 1 << 24;

/// Which versions of selections are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// Version 1, numbers of 4 bytes: what every libhdf5 reads.
    Oldest,
    /// The shortest numbers that fit.
    Compact,
}

impl SerializedSelection {
    /// The selection of `set` in an extent of `dims`, in the shorter of the forms for blocks and
    /// points.
    pub fn of_set(set: &ElementSet, dims: &[u64], versions: Versions) -> Self {
        let rank = dims.len();
        let v1 = |length: u64| Form::V1 { reserved: 0, length: u32::try_from(length).unwrap_or(u32::MAX) };
        if set.is_empty() {
            return SerializedSelection::None(v1(0));
        }
        if set.elements() == dims.iter().fold(1u64, |n, d| n.saturating_mul(*d)) {
            return SerializedSelection::All(v1(0));
        }
        let points = set.elements() < set.blocks().saturating_mul(2);
        let (each, count) = if points { (rank, set.elements()) } else { (rank.saturating_mul(2), set.blocks()) };
        let form = match versions {
            // Rank and count precede the numbers.
            Versions::Oldest => v1(count.saturating_mul(each as u64).saturating_mul(4).saturating_add(8)),
            Versions::Compact => {
                let most = dims.iter().copied().max().unwrap_or(0).max(count);
                Form::Compact {
                    width: if most <= 0xffff {
                        2
                    } else if most <= 0xffff_ffff {
                        4
                    } else {
                        8
                    },
                }
            }
        };
        let mut numbers = Vec::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(each));
        let _ = set.for_each_block(&mut |first, end| {
            if points {
                for_each_point(first, end, &mut |point| numbers.extend_from_slice(point));
            } else {
                numbers.extend(first.iter().copied().chain(end.iter().map(|e| e.saturating_sub(1))));
            }
            ControlFlow::Continue(())
        });
        match points {
            true => SerializedSelection::Points { form, rank, coordinates: numbers },
            false => SerializedSelection::Blocks { form, rank, corners: numbers },
        }
    }

    /// The elements selected in an extent of `dims`. Errors: another rank, elements past the
    /// extent, more spans than are worked on.
    pub fn to_set(&self, dims: &[u64]) -> Result<ElementSet> {
        let corrupt = |detail: &'static str| Error::corrupt(STRUCTURE, Address::UNDEF, detail);
        let same_rank = |rank: usize| if rank == dims.len() { Ok(()) } else { Err(corrupt("its rank is not the chunk's")) };
        let set = match self {
            SerializedSelection::None(_) => ElementSet::default(),
            SerializedSelection::All(_) => ElementSet::block(&vec![0; dims.len()], dims),
            SerializedSelection::Points { rank, coordinates, .. } => {
                same_rank(*rank)?;
                let corners: Vec<u64> = coordinates.chunks(*rank).flat_map(|p| p.iter().chain(p)).copied().collect();
                ElementSet::of_blocks(*rank, &corners)?
            }
            SerializedSelection::Blocks { rank, corners, .. } => {
                same_rank(*rank)?;
                ElementSet::of_blocks(*rank, corners)?
            }
            SerializedSelection::Regular { dims: slabs, .. } => {
                same_rank(slabs.len())?;
                let spans = slabs.iter().zip(dims).map(|(slab, size)| regular_spans(slab, *size)).collect::<Result<Vec<_>>>()?;
                ElementSet::product(&spans)
            }
        };
        if set.is_within(dims) { Ok(set) } else { Err(corrupt("elements past the chunk")) }
    }

    /// Visits the numbers of the selected elements in the order of the selection; `set` is the
    /// selection as a set.
    pub fn for_each_run(&self, set: &ElementSet, dims: &[u64], f: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        let SerializedSelection::Points { rank, coordinates, .. } = self else { return set.for_each_run(dims, f) };
        for point in coordinates.chunks((*rank).max(1)) {
            let number = point.iter().zip(dims).fold(0u64, |n, (c, d)| n.saturating_mul(*d).saturating_add(*c));
            f(number..number.saturating_add(1))?;
        }
        Ok(())
    }

    /// Selected elements, counting points that are there twice; `set` is the selection as a set.
    pub fn values(&self, set: &ElementSet) -> u64 {
        match self {
            SerializedSelection::Points { rank, coordinates, .. } => coordinates.len().checked_div(*rank).unwrap_or(0) as u64,
            _ => set.elements(),
        }
    }
}

/// The coordinates that a regular hyperslab selects of a dimension of `size`, as ranges.
fn regular_spans(slab: &HyperslabDim, size: u64) -> Result<Vec<Range<u64>>> {
    slab.check()?;
    let mut spans: Vec<Range<u64>> = Vec::new();
    let (mut at, mut left) = (slab.start, slab.count);
    while left > 0 && at < size {
        let end = if slab.block == UNLIMITED { size } else { at.saturating_add(slab.block) };
        if spans.len() as u64 >= REGULAR_SPANS_MAX {
            return Err(Error::limit(STRUCTURE, Address::UNDEF, "blocks of a hyperslab"));
        }
        match spans.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ if end > at => spans.push(at..end),
            _ => {}
        }
        if slab.stride == 0 {
            break;
        }
        at = at.saturating_add(slab.stride);
        left = left.saturating_sub(1);
    }
    Ok(spans)
}

/// Visits the points of a block, row-major.
fn for_each_point(first: &[u64], end: &[u64], f: &mut dyn FnMut(&[u64])) {
    let mut at = first.to_vec();
    loop {
        f(&at);
        let mut carried = true;
        for ((x, first), end) in at.iter_mut().zip(first).zip(end).rev() {
            *x = x.saturating_add(1);
            carried = *x >= *end;
            if !carried {
                break;
            }
            *x = *first;
        }
        if carried {
            return;
        }
    }
}
