//! A group's links, whichever of the three storages holds them.
//!
//! ```text
//! symbol table message        -> version 1 B-tree + local heap      (old style)
//! link messages               -> the object header itself           (compact)
//! link info message, defined  -> fractal heap + version 2 B-trees   (dense)
//! ```

use super::dense_links::DenseLinks;
use super::group_btree::GroupBTree;
use crate::base::{Address, Error, Result};
use crate::format::message::link::Link;
use crate::format::message::link_info::LinkInfo;
use crate::format::message::symbol_table::SymbolTable;
use crate::format::object_header::kind;
use crate::meta::Store;
use crate::meta::object_header::ObjectHeader;
use std::ops::ControlFlow;

pub use super::group_list::Visit;

/// Entries of a damaged old-style group that a lookup scans when the tree cannot guide it.
const SCAN_MAX: u32 = 1 << 16;

/// Where the links of a group are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupStorage {
    /// Old style.
    SymbolTable {
        /// Version 1 B-tree.
        btree: Address,
        /// Local heap of the names.
        heap: Address,
    },
    /// Link messages of the object header.
    Compact(Vec<Link>),
    /// Fractal heap with indexes.
    Dense {
        /// Heap of the link messages.
        fractal_heap: Address,
        /// Version 2 B-tree of names (type 5).
        name_index: Address,
        /// Version 2 B-tree of creation order (type 6), or undefined.
        creation_index: Address,
    },
}

/// Where the links of the object with this header are; `None` when it is no group. A link message
/// that cannot be decoded is logged and left out. Errors: the message that leads to the links is damaged.
pub fn storage(store: &Store, header: &ObjectHeader) -> Result<Option<GroupStorage>> {
    let (ctx, at) = (store.ctx(), header.address);
    if let Some(m) = header.find(kind::SYMBOL_TABLE) {
        let SymbolTable { btree, heap } = SymbolTable::decode(&m.body, ctx, at)?;
        return Ok(Some(GroupStorage::SymbolTable { btree, heap }));
    }
    let info = header.find(kind::LINK_INFO).map(|m| LinkInfo::decode(&m.body, ctx, at)).transpose();
    if let Ok(Some(LinkInfo { fractal_heap, name_index, creation_index, .. })) = info
        && fractal_heap.is_defined()
    {
        let creation_index = creation_index.unwrap_or(Address::UNDEF);
        return Ok(Some(GroupStorage::Dense { fractal_heap, name_index, creation_index }));
    }
    let mut links = Vec::new();
    for m in header.all(kind::LINK) {
        match Link::decode(&m.body, ctx, at) {
            Ok(link) => links.push(link),
            Err(error) => tracing::warn!(%error, "skipped in a group's object header"),
        }
    }
    match info {
        Err(e) if links.is_empty() => Err(e),
        Ok(None) if links.is_empty() => Ok(None),
        _ => Ok(Some(GroupStorage::Compact(links))),
    }
}

/// The link called `name`, without looking at the others. Errors: a structure on the way to it is damaged.
pub fn lookup(store: &Store, storage: &GroupStorage, name: &[u8]) -> Result<Option<Link>> {
    if name.contains(&0) {
        return Ok(None);
    }
    match storage {
        GroupStorage::Compact(links) => Ok(links.iter().find(|l| l.name == name).cloned()),
        GroupStorage::Dense { fractal_heap, name_index, creation_index } => {
            DenseLinks::open(store, *fractal_heap, *name_index, *creation_index)?.lookup(store, name)
        }
        GroupStorage::SymbolTable { btree, heap } => {
            let group = GroupBTree::open(store, *btree, *heap)?;
            match group.lookup(store, name) {
                Err(e @ Error::Io { .. }) => Err(e),
                Err(e) => scan(store, &group, name).ok_or(e).map(Some),
                found => found,
            }
        }
    }
}

/// Finds `name` in a tree that is damaged on the way to it but perhaps not where it is.
fn scan(store: &Store, group: &GroupBTree, name: &[u8]) -> Option<Link> {
    let mut found = None;
    let mut left = SCAN_MAX;
    let result = group.list(store, 0, &mut |link, _| {
        left = left.saturating_sub(1);
        if link.name == name {
            found = Some(link);
        }
        Ok(if found.is_some() || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    if let Err(error) = result {
        tracing::debug!(%error, "scan of a damaged group");
    }
    found
}

/// Number of links, where it is stored: `None` for an old-style group, which must be listed to know.
pub fn len(store: &Store, storage: &GroupStorage) -> Result<Option<u64>> {
    match storage {
        GroupStorage::SymbolTable { .. } => Ok(None),
        GroupStorage::Compact(links) => Ok(Some(links.len() as u64)),
        GroupStorage::Dense { fractal_heap, name_index, creation_index } => {
            DenseLinks::open(store, *fractal_heap, *name_index, *creation_index).map(|d| Some(d.len()))
        }
    }
}

/// Calls `f` with each link and the position after it, from `start` on: 0 for the beginning, or a
/// position that an earlier call gave to `f`. Resuming costs O(depth). Positions are below 2^63.
///
/// A link or node that cannot be read is logged and skipped. Errors: those of `f`; the first damage
/// when nothing at all could be listed.
pub fn list(store: &Store, storage: &GroupStorage, start: u64, f: &mut Visit<'_>) -> Result<()> {
    match storage {
        GroupStorage::SymbolTable { btree, heap } => GroupBTree::open(store, *btree, *heap)?.list(store, start, f),
        GroupStorage::Compact(links) => {
            let rest = usize::try_from(start).ok().and_then(|n| links.get(n..)).unwrap_or_default();
            for (link, before) in rest.iter().zip(start..) {
                if f(link.clone(), before.saturating_add(1))?.is_break() {
                    break;
                }
            }
            Ok(())
        }
        GroupStorage::Dense { fractal_heap, name_index, creation_index } => {
            DenseLinks::open(store, *fractal_heap, *name_index, *creation_index)?.list(store, start, f)
        }
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
