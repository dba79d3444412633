//! Node geometry of a version 2 B-tree: records per node at each depth, and widths of the stored
//! counts. None of it is stored; all is derived from the header.
//!
//! ```text
//! leaf:      max(0) = (node size - 10) / record size                           cum(0) = max(0)
//! pointer(d) = size of offsets + width(max(0)) + (d > 1 ? width(cum(d-1)) : 0)
//! internal:  max(d) = (node size - 10 - pointer(d)) / (record size + pointer(d))
//!            cum(d) = (max(d) + 1) * cum(d-1) + max(d)
//! width(n) = bytes needed to store n
//! ```

use super::NODE_OVERHEAD;
use crate::base::{Address, Error, Result, limits};
use crate::format::Context;

const NAME: &str = "version 2 B-tree header";

/// Capacity of the nodes of one depth (0: leaves).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Most records in one node.
    pub max_records: u64,
    /// Most records in one node and all nodes below it.
    pub cumulative: u64,
    /// Size of a child pointer in a node of this depth, bytes (0 for leaves).
    pub pointer_size: usize,
    /// Width of the "total records" field in such a pointer, bytes: 0 where the children are
    /// leaves.
    pub total_width: usize,
}

/// Geometry of every depth of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Width of the "number of records" field in a pointer, bytes.
    pub count_width: usize,
    levels: Vec<Level>,
}

/// Bytes needed to store numbers up to `n`.
pub fn width(n: u64) -> usize {
    (n.checked_ilog2().unwrap_or(0) / 8 + 1) as usize
}

impl Geometry {
    /// Derives the geometry of a tree with `depth` levels of internal nodes; `address` is the
    /// header's, for errors.
    pub fn new(node_size: u32, record_size: u16, depth: u16, ctx: &Context, address: Address) -> Result<Self> {
        if usize::from(depth) >= limits::TREE_DEPTH_MAX {
            return Err(Error::limit(NAME, address, format!("depth {depth}")));
        }
        let corrupt = |what: &'static str| Error::corrupt(NAME, address, what);
        let usable = u64::from(node_size).saturating_sub(NODE_OVERHEAD as u64);
        let record = u64::from(record_size);
        let leaf = usable.checked_div(record).filter(|&n| n > 0).ok_or_else(|| corrupt("no record fits in a leaf node"))?;
        let count_width = width(leaf);
        let mut level = Level { max_records: leaf, cumulative: leaf, pointer_size: 0, total_width: 0 };
        let mut levels = vec![level];
        for d in 1..=depth {
            let total_width = if d > 1 { width(level.cumulative) } else { 0 };
            let pointer_size = usize::from(ctx.sizeof_addr).saturating_add(count_width).saturating_add(total_width);
            let pointer = pointer_size as u64;
            let max = usable.saturating_sub(pointer) / record.saturating_add(pointer).max(1);
            if max == 0 {
                return Err(corrupt("no record fits in an internal node"));
            }
            let below = max.checked_add(1).and_then(|n| n.checked_mul(level.cumulative)).and_then(|n| n.checked_add(max));
            let cumulative = below.ok_or_else(|| corrupt("the tree could hold more than 2^64 records"))?;
            level = Level { max_records: max, cumulative, pointer_size, total_width };
            levels.push(level);
        }
        Ok(Geometry { count_width, levels })
    }

    /// Capacity of the nodes `depth` levels above the leaves.
    pub fn level(&self, depth: u16) -> Option<&Level> {
        self.levels.get(usize::from(depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        for (n, w) in [(0, 1), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (u64::MAX, 8)] {
            assert_eq!(width(n), w, "{n}");
        }
    }

    /// Link name index as libhdf5 creates it: 512-byte nodes, 11-byte records.
    #[test]
    fn link_name_index() {
        let g = Geometry::new(512, 11, 3, &Context::DEFAULT, Address(0)).unwrap();
        assert_eq!(g.count_width, 1);
        let max: Vec<_> = (0..=3).map(|d| g.level(d).unwrap().max_records).collect();
        assert_eq!(max, [45, 24, 22, 22]);
        assert_eq!(g.level(1).unwrap().cumulative, 25 * 45 + 24);
        assert_eq!(g.level(2).unwrap().total_width, 2);
    }

    #[test]
    fn hostile_parameters() {
        let c = &Context::DEFAULT;
        assert!(Geometry::new(512, 0, 0, c, Address(0)).is_err());
        assert!(Geometry::new(9, 1, 0, c, Address(0)).is_err());
        assert!(Geometry::new(64, 40, 1, c, Address(0)).is_err());
        assert!(Geometry::new(u32::MAX, 1, 63, c, Address(0)).is_err());
        assert!(Geometry::new(512, 11, 64, c, Address(0)).is_err());
    }
}
