//! Copy-on-write B+tree in packs. An update writes the nodes that change, and their ancestors.

use super::cell::{Cell, Extent};
use super::keys::Key;
use super::node::{LEVELS_MAX, NODE_BYTES, Node};
use super::objects::Objects;
use super::range::{KeyRange, Values, Visit};
use super::session::PackWriter;
use super::subtree::{Subtree, Walk, child_of};
use crate::base::{Address, Error, Result};
use std::ops::ControlFlow;

/// The value of a key.
pub(super) fn get(objects: &Objects, root: &Extent, key: &[u8]) -> Result<Option<Cell>> {
    let mut at = Subtree::of_root(root);
    loop {
        let node = at.open(objects)?;
        let next = match &*node {
            Node::Leaf(entries) => {
                let found = entries.binary_search_by(|(k, _)| k.as_slice().cmp(key));
                return Ok(found.ok().and_then(|i| entries.get(i)).map(|(_, cell)| cell.clone()));
            }
            Node::Inner(_, children) => at.child(&node, child_of(children, key)),
        };
        let Some(next) = next else { return Ok(None) };
        at = next;
    }
}

/// Visits the values in a range.
pub(super) fn scan(objects: &Objects, root: &Extent, range: &KeyRange, f: &mut Visit<'_>) -> Result<ControlFlow<()>> {
    Walk { objects, range, opened: &mut |_| (), damaged: &mut Err, visit: f }.run(&Subtree::of_root(root))
}

/// Writes the tree `root` with `changes`; returns its root. Its extents are readable when `packs`
/// is finished.
pub(super) fn update(
    objects: &Objects,
    root: Option<&Extent>,
    changes: &Values<Option<Cell>>,
    packs: &mut PackWriter<'_>,
) -> Result<Option<Extent>> {
    let changes: Vec<_> = changes.iter().collect();
    if changes.is_empty() {
        return Ok(root.copied());
    }
    let mut update = Update { objects, packs };
    let (mut level, mut nodes) = match root {
        Some(root) => {
            let root = Subtree::of_root(root);
            let node = root.open(objects)?;
            (node.level(), update.apply(&root, &node, &changes)?)
        }
        None => (0, update.leaves(&Vec::new(), &changes)?),
    };
    while nodes.len() > 1 {
        level = level.saturating_add(1);
        if level >= LEVELS_MAX {
            return Err(Error::limit("tree node", Address::UNDEF, "the tree has too many levels"));
        }
        nodes = update.inner(level, nodes)?;
    }
    Ok(nodes.pop().map(|(_, extent)| extent))
}

struct Update<'a, 'b> {
    objects: &'a Objects,
    packs: &'a mut PackWriter<'b>,
}

type Changed<'a> = (&'a Key, &'a Option<Cell>);

impl Update<'_, '_> {
    /// The nodes that replace `node`, which is at `at`.
    fn apply(&mut self, at: &Subtree, node: &Node, changes: &[Changed<'_>]) -> Result<Vec<(Key, Extent)>> {
        match node {
            Node::Leaf(entries) => self.leaves(entries, changes),
            Node::Inner(level, children) => {
                let (mut all, mut rest) = (Vec::new(), changes);
                for (i, (least, child)) in children.iter().enumerate() {
                    let next = children.get(i.saturating_add(1)).map(|(key, _)| key);
                    let count = rest.partition_point(|(key, _)| next.is_none_or(|next| *key < next));
                    let (own, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                    rest = others;
                    if own.is_empty() {
                        all.push((least.clone(), *child));
                        continue;
                    }
                    let Some(below) = at.child(node, i) else { continue };
                    let child = below.open(self.objects)?;
                    all.extend(self.apply(&below, &child, own)?);
                }
                self.inner(*level, all)
            }
        }
    }

    /// Leaves of `entries` with `changes`.
    fn leaves(&mut self, entries: &[(Key, Cell)], changes: &[Changed<'_>]) -> Result<Vec<(Key, Extent)>> {
        let mut all: Vec<(Key, Cell)> = Vec::with_capacity(entries.len().saturating_add(changes.len()));
        let mut old = entries.iter().peekable();
        for (key, cell) in changes {
            while let Some(entry) = old.next_if(|(k, _)| k < *key) {
                all.push(entry.clone());
            }
            let _ = old.next_if(|(k, _)| k == *key);
            if let Some(cell) = cell {
                all.push(((*key).clone(), cell.clone()));
            }
        }
        all.extend(old.cloned());
        let parts = divided(all, |(key, cell)| key.len().saturating_add(cell.size()));
        parts.into_iter().map(|part| self.store(part.first().map(|(k, _)| k.clone()), &Node::Leaf(part))).collect()
    }

    /// Nodes of `level` with these children.
    fn inner(&mut self, level: u8, children: Vec<(Key, Extent)>) -> Result<Vec<(Key, Extent)>> {
        let parts = divided(children, |(key, _)| key.len().saturating_add(Extent::SIZE));
        parts.into_iter().map(|part| self.store(part.first().map(|(k, _)| k.clone()), &Node::Inner(level, part))).collect()
    }

    fn store(&mut self, least: Option<Key>, node: &Node) -> Result<(Key, Extent)> {
        Ok((least.unwrap_or_default(), self.packs.add(&node.encode())?))
    }
}

/// Divides entries into nodes of about the same size, each at most about [`NODE_BYTES`].
fn divided<T>(entries: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let total = entries.iter().fold(0usize, |n, e| n.saturating_add(size(e)));
    let target = total.checked_div(total.div_ceil(NODE_BYTES)).unwrap_or(0).max(1);
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0usize);
    for entry in entries {
        bytes = bytes.saturating_add(size(&entry));
        part.push(entry);
        if bytes >= target {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}
