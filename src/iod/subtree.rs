//! Checked descent of the tree of a checkpoint. Each walk of a tree goes through it.
//!
//! A parent states the first key of each child; the first key of the next sibling is its bound.
//! A node is opened only if its keys keep both, so keys ascend from node to node, no node is
//! visited twice, and a walk costs at most the nodes that are stored.

use super::cell::{Cell, Extent};
use super::keys::{Key, pack_name};
use super::node::Node;
use super::objects::Objects;
use super::range::{KeyRange, Visit};
use crate::base::{Address, Error, Result};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A node, as its parent refers to it.
#[derive(Debug, Clone)]
pub(super) struct Subtree {
    /// Where the node is.
    pub extent: Extent,
    /// Its level; `None`: any, it is a root.
    level: Option<u8>,
    /// Its first key; `None`: any, it is a root.
    first: Option<Key>,
    /// All of its keys are less than this one; `None`: there is no bound.
    before: Option<Key>,
}

impl Subtree {
    /// The whole tree with this root.
    pub fn of_root(extent: &Extent) -> Subtree {
        Subtree { extent: *extent, level: None, first: None, before: None }
    }

    /// Reads the node. Errors: its level or its keys are not those that its parent states.
    pub fn open(&self, objects: &Objects) -> Result<Arc<Node>> {
        let node = objects.node(&self.extent)?;
        if self.level.is_some_and(|level| level != node.level()) {
            return Err(self.corrupt("it is not of the level below its parent's"));
        }
        let (first, last) = node.bounds();
        if self.first.is_some() && self.first.as_ref() != first {
            return Err(self.corrupt("its first key is not the one that its parent states"));
        }
        if self.before.is_some() && self.before.as_ref() <= last {
            return Err(self.corrupt("keys do not ascend from node to node"));
        }
        Ok(node)
    }

    fn corrupt(&self, detail: &str) -> Error {
        let Extent { session, pack, offset, .. } = self.extent;
        Error::corrupt("tree node", Address(offset), format!("{detail} ({})", pack_name(session, pack)))
    }

    /// Child `index` of `node`, which is the node of this subtree; `None`: it has no such child.
    pub fn child(&self, node: &Node, index: usize) -> Option<Subtree> {
        let Node::Inner(level, children) = node else { return None };
        let (first, extent) = children.get(index)?;
        let next = children.get(index.saturating_add(1)).map(|(key, _)| key);
        let before = next.or(self.before.as_ref()).cloned();
        Some(Subtree { extent: *extent, level: Some(level.saturating_sub(1)), first: Some(first.clone()), before })
    }

    /// The children of `node`, which is the node of this subtree, from number `index` on.
    pub fn children<'a>(&'a self, node: &'a Node, index: usize) -> impl Iterator<Item = Subtree> + 'a {
        (index..).map_while(move |index| self.child(node, index))
    }

    /// The first key, if the parent states it.
    pub fn first(&self) -> Option<&Key> {
        self.first.as_ref()
    }
}

/// A walk of the values in a range.
pub(super) struct Walk<'a, 'b> {
    /// Where nodes are read from.
    pub objects: &'a Objects,
    /// The range.
    pub range: &'a KeyRange,
    /// Called with each node that was opened.
    pub opened: &'a mut dyn FnMut(&Extent),
    /// Called with the error of a node. If it returns, the walk leaves out what is below the node.
    pub damaged: &'a mut dyn FnMut(Error) -> Result<()>,
    /// Called with keys and values, ascending.
    pub visit: &'a mut Visit<'b>,
}

impl Walk<'_, '_> {
    /// Visits the values below a node. Levels decrease, which bounds the recursion.
    pub fn run(&mut self, at: &Subtree) -> Result<ControlFlow<()>> {
        let node = match at.open(self.objects) {
            Ok(node) => node,
            Err(e) => return (self.damaged)(e).map(ControlFlow::Continue),
        };
        (self.opened)(&at.extent);
        match &*node {
            Node::Leaf(entries) => self.entries(entries),
            Node::Inner(_, children) => {
                let first = match &self.range.0 {
                    Bound::Included(from) | Bound::Excluded(from) => child_of(children, from),
                    Bound::Unbounded => 0,
                };
                for child in at.children(&node, first) {
                    if child.first().is_some_and(|key| !is_before(key, &self.range.1)) {
                        break;
                    }
                    if self.run(&child)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn entries(&mut self, entries: &[(Key, Cell)]) -> Result<ControlFlow<()>> {
        let first = entries.partition_point(|(key, _)| !starts_after(key, &self.range.0));
        for (key, cell) in entries.get(first..).unwrap_or_default() {
            if !is_before(key, &self.range.1) {
                break;
            }
            if (self.visit)(key, cell)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Index of the child that has `key` below it.
pub(super) fn child_of(children: &[(Key, Extent)], key: &[u8]) -> usize {
    children.partition_point(|(least, _)| least.as_slice() <= key).saturating_sub(1)
}

fn starts_after(key: &[u8], from: &Bound<Key>) -> bool {
    match from {
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
        Bound::Unbounded => true,
    }
}

fn is_before(key: &[u8], to: &Bound<Key>) -> bool {
    match to {
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
        Bound::Unbounded => true,
    }
}
