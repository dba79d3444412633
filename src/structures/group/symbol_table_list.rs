//! Listing of an old-style group in B-tree order, resumable at any link.
//!
//! ```text
//! position: level 0 node, from the left, 31 bits | its child, 16 bits | the child's entry, 16 bits
//! ```
//!
//! The walk finds a level 0 node by the cached number of such nodes below each subtree.

use super::symbol_table::SymbolTable;
use super::visit::Visit;
use crate::base::{Address, Error, Result};
use crate::format::btree1::{self, Node};
use crate::meta::Store;
use crate::structures::btree1::NODE_BYTES_EXPECTED;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

/// Largest number of level 0 nodes in a position.
const LEAVES_MAX: u64 = 1 << 31;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    leaf: u64,
    child: u16,
    entry: u16,
}

impl Position {
    fn unpack(position: u64) -> Self {
        Position { leaf: position >> 32, child: (position >> 16 & 0xffff) as u16, entry: (position & 0xffff) as u16 }
    }

    fn pack(self) -> u64 {
        self.leaf << 32 | u64::from(self.child) << 16 | u64::from(self.entry)
    }
}

/// Names greater than `low` and at most `high`.
#[derive(Debug, Clone, Default)]
struct Range {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl Range {
    fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
    }

    fn holds(&self, name: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| name > low) && self.high.as_deref().is_none_or(|high| name <= high)
    }
}

/// The greatest of keys 1 to `next` - 1 of a node.
#[derive(Default)]
struct Lows {
    next: usize,
    greatest: Option<Vec<u8>>,
}

struct Walk<'a, 'f> {
    store: &'a Store,
    group: &'a SymbolTable,
    start: Position,
    /// Number of level 0 nodes passed so far.
    leaf: u64,
    /// Nodes that may still be visited: at most as many as fit in the file.
    budget: u64,
    /// Largest number of level 0 nodes that fit in the file.
    leaves_max: u64,
    hasher: RandomState,
    delivered: bool,
    first_error: Option<Error>,
    last_error: Option<Error>,
    f: &'a mut Visit<'f>,
}

impl SymbolTable {
    /// Calls `f` with each link from position `start`: 0, or a position that `f` got from an
    /// earlier call. Returns the first damage that it skipped. Errors: those of `f`; the first
    /// damage, if no link could be listed.
    pub fn list(&self, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<Option<Error>> {
        let node_min = Node::prefix_size(store.ctx()).max(1);
        let budget = (store.room()? / node_min).saturating_add(1);
        let mut walk = Walk {
            store,
            group: self,
            start: Position::unpack(start),
            leaf: 0,
            budget,
            leaves_max: budget.min(LEAVES_MAX),
            hasher: RandomState::new(),
            delivered: false,
            first_error: None,
            last_error: None,
            f,
        };
        let _ = walk.node(self.btree, None, &Range::default())?;
        match walk.first_error {
            Some(e) if !walk.delivered && start == 0 => Err(e),
            skipped => Ok(skipped),
        }
    }
}

impl Walk<'_, '_> {
    /// Logs damage that the walk skips.
    fn skip(&mut self, error: Error) {
        if self.last_error.as_ref() != Some(&error) {
            tracing::warn!(%error, "skipped damage in the listing of a group");
            self.first_error.get_or_insert_with(|| error.clone());
            self.last_error = Some(error);
        }
    }

    /// Visits the node at `address`. Recursion depth: decoding bounds the highest level, each level
    /// is one below its parent's.
    fn node(&mut self, address: Address, level: Option<u8>, range: &Range) -> Result<ControlFlow<()>> {
        let exhausted = || Error::corrupt(btree1::NAME, address, "more nodes than the file has room for");
        let node = self.budget.checked_sub(1).ok_or_else(exhausted).and_then(|left| {
            self.budget = left;
            self.group.node(self.store, address, level)
        });
        let node = match node {
            Ok(node) => node,
            Err(e) => {
                self.skip(e);
                self.leaf = self.leaf.saturating_add(u64::from(level == Some(0)));
                // An exhausted budget ends the walk; else every remaining node would be logged.
                return Ok(if self.budget == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
            }
        };
        let Some(below) = node.level.checked_sub(1) else { return self.leaf(address, &node, range) };
        self.store.announce(node.children.iter().copied(), NODE_BYTES_EXPECTED);
        let mut lows = Lows::default();
        for (i, &child) in node.children.iter().enumerate() {
            if self.leaf < self.start.leaf {
                let end = self.leaf.saturating_add(self.group.leaves(self.store, child, below));
                if end <= self.start.leaf {
                    self.leaf = end;
                    continue;
                }
            }
            let inner = self.range_of(&node, i, &mut lows, range);
            if inner.is_empty() {
                self.leaf = self.leaf.saturating_add(self.group.leaves(self.store, child, below));
            } else if self.node(child, Some(below), &inner)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The names that lookup searches in child `i`: greater than every key before it, at most the
    /// key after it. An unreadable key bounds nothing.
    fn range_of(&mut self, node: &Node, i: usize, lows: &mut Lows, outer: &Range) -> Range {
        while lows.next <= i {
            let key = if lows.next == 0 { None } else { self.key(node, lows.next) };
            lows.greatest = lows.greatest.take().max(key);
            lows.next = lows.next.saturating_add(1);
        }
        let last = i.saturating_add(1) >= node.children.len();
        let high = if last { None } else { self.key(node, i.saturating_add(1)) };
        let high = match (high, outer.high.clone()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Range { low: lows.greatest.clone().max(outer.low.clone()), high }
    }

    fn key(&mut self, node: &Node, i: usize) -> Option<Vec<u8>> {
        match self.group.names.name(self.store, self.group.key_offset(self.store, node, i)?) {
            Ok(name) => Some(name),
            Err(e) => {
                self.skip(e);
                None
            }
        }
    }

    /// Visits the symbol table nodes of a level 0 node.
    fn leaf(&mut self, address: Address, node: &Node, range: &Range) -> Result<ControlFlow<()>> {
        let leaf = self.leaf;
        self.leaf = leaf.saturating_add(1);
        if leaf >= self.leaves_max {
            self.skip(Error::corrupt(btree1::NAME, address, format!("more than {} nodes of level 0", self.leaves_max)));
            return Ok(ControlFlow::Break(()));
        }
        self.store.announce(node.children.iter().copied(), NODE_BYTES_EXPECTED);
        let mut lows = Lows::default();
        for (i, &child) in node.children.iter().enumerate() {
            let Ok(i16) = u16::try_from(i) else { break };
            let at = Position { leaf, child: i16, entry: 0 };
            let first = if (at.leaf, at.child) == (self.start.leaf, self.start.child) { self.start.entry } else { 0 };
            if (at.leaf, at.child) < (self.start.leaf, self.start.child) {
                continue;
            }
            let inner = self.range_of(node, i, &mut lows, range);
            if !inner.is_empty() && self.symbols(child, Position { entry: first, ..at }, &inner)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the entries of the symbol table node at `address` from `from` on.
    fn symbols(&mut self, address: Address, from: Position, range: &Range) -> Result<ControlFlow<()>> {
        let node = match self.group.symbols(self.store, address) {
            Ok(node) => node,
            Err(e) => {
                self.skip(e);
                return Ok(ControlFlow::Continue(()));
            }
        };
        // Hashes of the names seen: of equal names, lookup finds only the first.
        let mut seen = HashSet::new();
        for (i, entry) in (0u16..u16::MAX).zip(&node.entries) {
            let link = match self.group.link(self.store, entry, address) {
                Ok(link) => link,
                Err(e) => {
                    if i >= from.entry {
                        self.skip(e);
                    }
                    continue;
                }
            };
            let first = seen.insert(self.hasher.hash_one(&link.name));
            if i < from.entry {
                continue;
            }
            if !first || !range.holds(&link.name) {
                let name = String::from_utf8_lossy(&link.name);
                self.skip(Error::corrupt(crate::format::symbol_table::NAME, address, format!("{name:?} is out of order")));
                continue;
            }
            self.delivered = true;
            let after = Position { entry: i.saturating_add(1), ..from };
            if (self.f)(link, after.pack())?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
