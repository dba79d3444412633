//! Lookup of one record in a version 2 B-tree.

use super::load::{BTree2, Node};
use crate::base::Result;
use crate::meta::Store;
use std::cmp::Ordering;

/// Ordering of a stored record relative to the wanted key.
pub type Compare<'a> = dyn FnMut(&[u8]) -> Result<Ordering> + 'a;

impl Node {
    /// Position of the first record in `from..` for which `before` returns false.
    pub fn partition(&self, from: usize, before: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<usize> {
        let (mut low, mut high) = (from, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.record(middle) {
                Some(record) if before(record)? => low = middle.saturating_add(1),
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

impl BTree2 {
    /// Number of records for which `compare` returns `Less`, from the counts in the nodes on one
    /// path.
    pub fn rank(&self, store: &Store, compare: &mut Compare<'_>) -> Result<u64> {
        let (mut pointer, mut depth) = (self.header.root, self.header.depth);
        let mut rank = 0u64;
        if self.is_empty() {
            return Ok(0);
        }
        loop {
            let node = self.node(store, &pointer, depth)?;
            let at = node.partition(0, &mut |record| Ok(compare(record)? == Ordering::Less))?;
            let below = node.children.get(..at).unwrap_or_default().iter().fold(at as u64, |n, child| n.saturating_add(child.total));
            rank = rank.saturating_add(below);
            let (Some(&child), Some(below)) = (node.children.get(at), depth.checked_sub(1)) else { return Ok(rank) };
            (pointer, depth) = (child, below);
        }
    }

    /// A record for which `compare` returns `Equal`, if any.
    pub fn find(&self, store: &Store, compare: &mut Compare<'_>) -> Result<Option<Vec<u8>>> {
        let mut pointer = self.header.root;
        let mut depth = self.header.depth;
        if self.is_empty() {
            return Ok(None);
        }
        loop {
            let node = self.node(store, &pointer, depth)?;
            let mut found = None;
            let at = node.partition(0, &mut |record| {
                let order = compare(record)?;
                if order == Ordering::Equal {
                    found = Some(record.to_vec());
                }
                Ok(order == Ordering::Less)
            })?;
            if found.is_some() {
                return Ok(found);
            }
            let (Some(&child), Some(below)) = (node.children.get(at), depth.checked_sub(1)) else { return Ok(None) };
            (pointer, depth) = (child, below);
        }
    }
}
