//! Creation, deletion, insertion and removal of chunks in a version 1 B-tree.
//!
//! ```text
//! key:      stored bytes | filter mask | offsets of the chunk on its right, in elements, and 0
//! last key: 0 | 0 | each offset of the tree's last chunk + the chunk's size, the element's size
//! ```
//!
//! A search takes the child with the largest left key that does not exceed the wanted offsets. A
//! chunk inserted after all others therefore moves the tree's last key; any other insertion only
//! splits the range of an existing chunk. Nodes are allocated and freed here, chunks by the caller.

use crate::base::{Address, Error, Result};
use crate::format::btree1::{Btree1Kind, ChunkKey, NAME, Node};
use crate::meta::Store;
use crate::meta::extent;
use crate::structures::btree1::node_edit::{self, Edit, Step};
use crate::structures::extent::free_all;
use std::cmp::Ordering;

/// Chunk B-tree to change.
#[derive(Debug, Clone, Copy)]
pub struct ChunkTree<'a> {
    /// Root node; its address never changes.
    pub root: Address,
    /// Half of the largest number of children of a node: from the superblock (version 1), from the
    /// superblock extension's B-tree K message, or 32.
    pub k: u16,
    /// Dimensions of a chunk in elements, then the bytes of an element, as in the layout message.
    pub dims: &'a [u64],
}

fn kind(dims: usize) -> Result<Btree1Kind> {
    match u8::try_from(dims) {
        Ok(dims) if dims >= 2 => Ok(Btree1Kind::Chunk { dims }),
        _ => Err(Error::limit(NAME, Address::UNDEF, format!("{dims} dimensions"))),
    }
}

fn compare(node: &Node, i: usize, offsets: &[u64]) -> Ordering {
    ChunkKey::offsets_of(node.key(i).unwrap_or_default()).cmp(offsets.iter().copied())
}

/// The last child whose own key does not exceed `offsets`; else the first.
fn pick(node: &Node, offsets: &[u64]) -> usize {
    let (mut low, mut high) = (0, node.children.len());
    while low < high {
        let middle = low.midpoint(high);
        if compare(node, middle, offsets) == Ordering::Greater { high = middle } else { low = middle.saturating_add(1) }
    }
    low.saturating_sub(1)
}

/// Writes an empty tree for a dataset of rank `rank`; returns its root.
pub fn create_chunk_tree(store: &Store, rank: usize, k: u16) -> Result<Address> {
    node_edit::create(store, kind(rank.saturating_add(1))?, k)
}

/// Visits the nodes of the tree, not the chunks. Errors: a node cannot be read.
pub fn extents(store: &Store, tree: &ChunkTree<'_>, visit: &mut extent::Visit<'_>) -> Result<()> {
    node_edit::extents(store, tree.root, kind(tree.dims.len())?, tree.k, &mut |_| Ok(()), visit)
}

/// Frees the nodes of the tree, not the chunks. Errors, before anything is freed: a node cannot be
/// read or is reached twice.
pub fn delete_tree(store: &Store, tree: &ChunkTree<'_>) -> Result<()> {
    free_all(store, |visit| extents(store, tree, visit))
}

/// Inserts the chunk `key` at `child`; returns the chunk that it replaces at the same offsets.
/// Errors, before anything is changed: the key's offsets are not those of a chunk; a damaged tree.
pub fn insert_chunk(store: &Store, tree: &ChunkTree<'_>, key: &ChunkKey, child: Address) -> Result<Option<(ChunkKey, Address)>> {
    let end = end_key(tree, &key.offsets)?;
    let encoded = key.encode();
    node_edit::edit(store, kind(tree.dims.len())?, tree.k, |edit| {
        let path = edit.descend(tree.root, &mut |node| Ok(pick(node, &key.offsets)))?;
        let Some(&Step { address, index }) = path.last() else { return Ok(None) };
        let last_depth = path.len().saturating_sub(1);
        let node = edit.node(address)?;
        let last = node.children.len();
        if last == 0 {
            let node = edit.change(address)?;
            node.insert_key(0, &encoded)?;
            node.insert_key(1, &end)?;
            node.children.push(child);
            return Ok(None);
        }
        match compare(node, index, &key.offsets) {
            Ordering::Equal => return replace(edit, &path, &encoded, child).map(Some),
            Ordering::Greater => {
                // Before all others: takes the place of the first chunk, which is inserted after
                // it.
                let first = node.key(0).unwrap_or_default().to_vec();
                let old = edit.change(address)?.children.first_mut().map(|c| std::mem::replace(c, child));
                edit.set_first_key(&path, last_depth, &encoded)?;
                edit.insert_after(&path, first, old.unwrap_or(Address::UNDEF))?;
                return Ok(None);
            }
            Ordering::Less => {}
        }
        if index.saturating_add(1) == last && compare(node, last, &key.offsets) != Ordering::Greater {
            for step in &path {
                if step.index.saturating_add(1) != edit.node(step.address)?.children.len() {
                    return Err(Error::corrupt(NAME, step.address, "its keys are not those of the node below"));
                }
            }
            edit.set_key_after(&path, last_depth, &end)?;
        }
        edit.insert_after(&path, encoded, child)?;
        Ok(None)
    })
}

/// The last key of a tree whose last chunk is at `offsets`.
fn end_key(tree: &ChunkTree<'_>, offsets: &[u64]) -> Result<Vec<u8>> {
    let wrong = |detail: String| Error::corrupt(NAME, tree.root, detail);
    if offsets.len() != tree.dims.len() || offsets.last() != Some(&0) {
        return Err(wrong(format!("offsets {offsets:?} with {} dimensions", tree.dims.len())));
    }
    let next = |(&offset, &size): (&u64, &u64)| {
        let whole = offset.checked_rem(size) == Some(0);
        offset.checked_add(size).filter(|_| whole).ok_or_else(|| wrong(format!("offset {offset} with a chunk dimension of {size}")))
    };
    let offsets = offsets.iter().zip(tree.dims).map(next).collect::<Result<_>>()?;
    Ok(ChunkKey { size: 0, filter_mask: 0, offsets }.encode())
}

fn replace(edit: &mut Edit<'_>, path: &[Step], key: &[u8], child: Address) -> Result<(ChunkKey, Address)> {
    let Some(&Step { address, index }) = path.last() else { return Err(Error::corrupt(NAME, Address::UNDEF, "no leaf")) };
    let node = edit.change(address)?;
    let old = ChunkKey::decode(node.key(index).unwrap_or_default(), address)?;
    let place = node.children.get_mut(index).ok_or_else(|| Error::corrupt(NAME, address, "no such child"))?;
    let was = std::mem::replace(place, child);
    if node.key(index) != Some(key) {
        if index == 0 {
            edit.set_first_key(path, path.len().saturating_sub(1), key)?;
        } else {
            node.set_key(index, key)?;
        }
    }
    Ok((old, was))
}

/// Removes and returns the chunk at `offsets` (in elements, then 0), if the tree has it.
pub fn remove_chunk(store: &Store, tree: &ChunkTree<'_>, offsets: &[u64]) -> Result<Option<(ChunkKey, Address)>> {
    node_edit::edit(store, kind(tree.dims.len())?, tree.k, |edit| {
        let path = edit.descend(tree.root, &mut |node| Ok(pick(node, offsets)))?;
        let Some(&Step { address, index }) = path.last() else { return Ok(None) };
        let node = edit.node(address)?;
        let Some(&child) = node.children.get(index) else { return Ok(None) };
        if compare(node, index, offsets) != Ordering::Equal {
            return Ok(None);
        }
        let key = ChunkKey::decode(node.key(index).unwrap_or_default(), address)?;
        edit.remove_child(&path)?;
        Ok(Some((key, child)))
    })
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
