//! The extent of a virtual dataset: unlimited dimensions follow the sources.
//!
//! Source: H5Dvirtual.c (`H5D__virtual_set_extent_unlim`), view "last available", printf gap 0.

use super::dataset::{SourceOpener, VirtualDataset};
use super::mapping::{Kind, Mapping, STRUCTURE, corrupt};
use crate::base::hyperslab::HyperslabDim;
use crate::base::selection::Bounds;
use crate::base::{Address, Error, Result, limits};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl VirtualDataset {
    /// The current extent. A dimension in which a mapping is unlimited extends to the end of its
    /// farthest source, at least to the end of the limited mappings; other dimensions are as
    /// stored.
    pub(crate) fn extent(&self, opener: &dyn SourceOpener) -> Result<Vec<u64>> {
        let mut dims: Vec<Option<u64>> = vec![None; self.stored_dims.len()];
        let mut probes = limits::VIRTUAL_BLOCKS_MAX;
        let mut shapes = Shapes::new();
        for (mapping, blocks) in self.mappings.iter().zip(&self.blocks) {
            let (d, end) = match &mapping.kind {
                Kind::Fixed => continue,
                Kind::Growing { virtual_dim, virtual_slab, source_dim, source_slab } => {
                    (*virtual_dim, growing_end(virtual_slab, *source_dim, source_slab, source_shape(mapping, &mut shapes, opener)?)?)
                }
                Kind::Printf { dim, slab } => (*dim, printf_end(mapping, slab, blocks, &mut probes, opener)?),
            };
            if let Some(n) = dims.get_mut(d) {
                *n = Some(n.unwrap_or(0).max(end));
            }
        }
        if dims.iter().all(Option::is_none) {
            return Ok(self.stored_dims.clone());
        }
        let least = self.least_dims();
        let dim = |(d, n): (usize, Option<u64>)| {
            let max = self.max_dims.get(d).copied().unwrap_or(u64::MAX);
            let stored = self.stored_dims.get(d).copied().unwrap_or(0);
            n.map_or(stored, |n| n.max(least.get(d).copied().unwrap_or(0)).min(max))
        };
        Ok(dims.into_iter().enumerate().map(dim).collect())
    }

    /// The smallest extent that contains the limited dimensions of all mappings.
    fn least_dims(&self) -> Vec<u64> {
        let mut least = vec![0u64; self.stored_dims.len()];
        for mapping in &self.mappings {
            let Bounds::Box(_, high) = mapping.virtual_.bounds() else { continue };
            let unlimited = mapping.virtual_.unlimited().map(|(d, _)| d);
            for (d, (least, high)) in least.iter_mut().zip(high).enumerate() {
                if unlimited != Some(d) {
                    *least = high.saturating_add(1).max(*least);
                }
            }
        }
        least
    }
}

/// Shapes of sources by file and dataset; `None` if missing.
type Shapes = HashMap<(Arc<[u8]>, Arc<[u8]>), Option<Vec<u64>>>;

/// The shape of a mapping's source. Opens a source shared by several mappings once.
fn source_shape<'s>(mapping: &Mapping, shapes: &'s mut Shapes, opener: &dyn SourceOpener) -> Result<Option<&'s [u64]>> {
    let shape = match shapes.entry((mapping.file.name(0), mapping.dataset.name(0))) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let shape = opener.open(&new.key().0, &new.key().1)?.map(|s| s.shape());
            new.insert(shape)
        }
    };
    match shape {
        Some(shape) if mapping.source.rank() != Some(shape.len()) => {
            Err(corrupt("the source selection has another rank than the source dataset"))
        }
        shape => Ok(shape.as_deref()),
    }
}

/// End of a virtual selection with as many slices as a source of shape `shape`.
fn growing_end(slab: &HyperslabDim, source_dim: usize, source: &HyperslabDim, shape: Option<&[u64]>) -> Result<u64> {
    let size = shape.and_then(|s| s.get(source_dim)).copied().unwrap_or(0);
    let end = slab.first(source.over(size).len()).map(|p| p.end());
    end.ok_or_else(|| corrupt("the virtual selection exceeds 64 bits"))
}

/// End of the last block before the first missing source. Stores the number of blocks in `blocks`.
fn printf_end(mapping: &Mapping, slab: &HyperslabDim, blocks: &AtomicU64, probes: &mut u64, opener: &dyn SourceOpener) -> Result<u64> {
    let mut n = 0u64;
    while opener.open(&mapping.file.name(n), &mapping.dataset.name(n))?.is_some() {
        n = n.saturating_add(1);
        let left = probes.checked_sub(1);
        *probes = left.ok_or_else(|| Error::limit(STRUCTURE, Address::UNDEF, "number of source datasets"))?;
    }
    blocks.store(n, Ordering::Relaxed);
    let Some(last) = n.checked_sub(1) else { return Ok(0) };
    let last = slab.nth_block(last).ok_or_else(|| corrupt("the virtual selection exceeds 64 bits"))?;
    Ok(last.start.saturating_add(last.block))
}
