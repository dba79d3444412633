//! Finds the mappings that intersect a box of the virtual dataset: a tree of bounding boxes.
//!
//! Median splits along the longest side give a balanced tree for any tiling (rows, columns, tiles,
//! frames), so that a read visits few mappings that it does not need.

use crate::base::selection::Bounds;

/// Most boxes in a leaf.
const LEAF_BOXES_MAX: usize = 8;

/// The index. Boxes are inclusive; an unlimited side reaches to `u64::MAX`.
#[derive(Debug)]
pub(crate) struct BoxIndex {
    rank: usize,
    /// Numbers of the mappings, in leaf order.
    order: Vec<u32>,
    /// low[rank], high[rank] per mapping, in `order`.
    boxes: Vec<u64>,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    /// Range in `order`.
    first: usize,
    end: usize,
    /// Nodes of the two halves; none in a leaf.
    halves: Option<(usize, usize)>,
    /// low[rank], high[rank] bounds all.
    bounds: Vec<u64>,
}

impl BoxIndex {
    /// Indexes the bounds of mappings 0, 1, ... of a dataset of `rank` dimensions.
    pub(crate) fn new(rank: usize, bounds: impl Iterator<Item = Bounds>) -> Self {
        let mut all: Vec<(u32, Vec<u64>)> = Vec::new();
        for (i, b) in bounds.enumerate() {
            let Ok(i) = u32::try_from(i) else { break };
            match b {
                Bounds::Empty => {}
                Bounds::Extent => all.push((i, [vec![0; rank], vec![u64::MAX; rank]].concat())),
                Bounds::Box(low, high) => all.push((i, [low, high].concat())),
            }
        }
        let mut index = BoxIndex { rank, order: Vec::new(), boxes: Vec::new(), nodes: Vec::new() };
        index.build(&mut all, 0);
        for (i, b) in all {
            index.order.push(i);
            index.boxes.extend_from_slice(&b);
        }
        index
    }

    /// Builds the node of `all`, which begins at `first` in the order. Equal halves bound the depth
    /// of the recursion by the logarithm of the number of boxes.
    fn build(&mut self, all: &mut [(u32, Vec<u64>)], first: usize) -> usize {
        let rank = self.rank;
        let mut bounds = [vec![u64::MAX; rank], vec![0; rank]].concat();
        for (_, b) in all.iter() {
            let (low, high) = bounds.split_at_mut(rank);
            low.iter_mut().zip(b).for_each(|(low, &c)| *low = c.min(*low));
            high.iter_mut().zip(b.iter().skip(rank)).for_each(|(high, &c)| *high = c.max(*high));
        }
        let node = self.nodes.len();
        let end = first.saturating_add(all.len());
        self.nodes.push(Node { first, end, halves: None, bounds });
        if all.len() <= LEAF_BOXES_MAX {
            return node;
        }
        // Splits along the dimension in which the starts of the boxes vary most.
        let spread = |d: usize| {
            let low = |(_, b): &(u32, Vec<u64>)| b.get(d).copied().unwrap_or(0);
            let (min, max) = all.iter().map(low).fold((u64::MAX, 0), |(min, max), c| (c.min(min), c.max(max)));
            max.saturating_sub(min)
        };
        let d = (0..rank).max_by_key(|&d| spread(d)).unwrap_or(0);
        let middle = all.len() / 2;
        all.select_nth_unstable_by_key(middle, |(_, b)| b.get(d).copied().unwrap_or(0));
        let (left, right) = all.split_at_mut(middle);
        let halves = (self.build(left, first), self.build(right, first.saturating_add(middle)));
        if let Some(n) = self.nodes.get_mut(node) {
            n.halves = Some(halves);
        }
        node
    }

    fn intersects(&self, a: &[u64], low: &[u64], high: &[u64]) -> bool {
        let (from, to) = a.split_at(self.rank.min(a.len()));
        from.iter().zip(high).all(|(from, high)| from <= high) && to.iter().zip(low).all(|(to, low)| to >= low)
    }

    /// Numbers of the mappings whose box intersects the box from `low` to `high` (inclusive),
    /// ascending.
    pub(crate) fn find(&self, low: &[u64], high: &[u64]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut stack = vec![0];
        while let Some(n) = stack.pop() {
            let Some(node) = self.nodes.get(n).filter(|n| self.intersects(&n.bounds, low, high)) else { continue };
            if let Some((left, right)) = node.halves {
                stack.extend([left, right]);
                continue;
            }
            let width = self.rank.saturating_mul(2);
            for at in node.first..node.end {
                let from = at.saturating_mul(width);
                let b = self.boxes.get(from..from.saturating_add(width)).unwrap_or_default();
                if let Some(&i) = self.order.get(at).filter(|_| self.intersects(b, low, high)) {
                    found.push(i);
                }
            }
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_scan_finds() {
        let mut seed = 1u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for (rank, n) in [(1, 100), (3, 300), (2, 5), (0, 3), (2, 0)] {
            let mut side = || {
                let low: Vec<u64> = (0..rank).map(|_| random(50)).collect();
                let high: Vec<u64> = low.iter().map(|&l| if random(9) == 0 { u64::MAX } else { l + random(8) }).collect();
                (low, high)
            };
            let boxes: Vec<_> = (0..n).map(|_| side()).collect();
            let bounds = |(i, (l, h)): (usize, &(Vec<u64>, Vec<u64>))| match i % 50 {
                7 => Bounds::Empty,
                9 => Bounds::Extent,
                _ => Bounds::Box(l.clone(), h.clone()),
            };
            let index = BoxIndex::new(rank, boxes.iter().enumerate().map(bounds));
            for _ in 0..40 {
                let (low, high) = side();
                let meets = |(l, h): &(Vec<u64>, Vec<u64>)| (0..rank).all(|d| l[d] <= high[d] && h[d] >= low[d]);
                let want: Vec<u32> = (0..n).filter(|&i| i % 50 != 7 && (i % 50 == 9 || meets(&boxes[i]))).map(|i| i as u32).collect();
                assert_eq!(index.find(&low, &high), want);
            }
        }
    }
}
