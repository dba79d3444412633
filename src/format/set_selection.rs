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
        if points {
            // In the order of their numbers, as the values are; blocks may overlap in rows.
            let _ = set.for_each_run(dims, &mut |run| {
                run.for_each(|number| numbers.extend(coordinates(number, dims)));
                Ok(())
            });
        } else {
            let _ = set.for_each_block(&mut |first, end| {
                numbers.extend(first.iter().copied().chain(end.iter().map(|e| e.saturating_sub(1))));
                ControlFlow::Continue(())
            });
        }
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

/// Coordinates of the element `number` of an extent of `dims`.
fn coordinates(number: u64, dims: &[u64]) -> Vec<u64> {
    let mut rest = number;
    let mut at: Vec<u64> = dims
        .iter()
        .rev()
        .map(|d| {
            let c = rest.checked_rem(*d).unwrap_or(0);
            rest = rest.checked_div(*d).unwrap_or(0);
            c
        })
        .collect();
    at.reverse();
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Reader, Writer};
    use proptest::prelude::*;

    proptest! {
        /// The order of the selection is that of the numbers, whatever the form.
        #[test]
        fn selections_have_the_elements_of_the_set_in_order(
            dims in prop::collection::vec(1u64..9, 1..4), bits in prop::collection::vec(any::<bool>(), 0..600), oldest in any::<bool>(),
        ) {
            let total = dims.iter().product::<u64>();
            let wanted: Vec<u64> = (0..total).filter(|n| bits.get(*n as usize).is_some_and(|b| *b)).collect();
            let set = ElementSet::of_runs(&dims, &wanted.iter().map(|n| *n..n + 1).collect::<Vec<_>>()).unwrap();
            let selection = SerializedSelection::of_set(&set, &dims, if oldest { Versions::Oldest } else { Versions::Compact });
            let mut w = Writer::new();
            selection.encode(&mut w);
            let bytes = w.into_bytes();
            let read = SerializedSelection::decode(&mut Reader::new(&bytes, "test", Address(0))).unwrap();
            prop_assert_eq!(&read, &selection);
            let again = read.to_set(&dims).unwrap();
            let mut order = Vec::new();
            read.for_each_run(&again, &dims, &mut |run| {
                order.extend(run);
                Ok(())
            })
            .unwrap();
            prop_assert_eq!(read.values(&again), wanted.len() as u64);
            prop_assert_eq!(order, wanted);
            prop_assert_eq!(again, set);
        }
    }
}
