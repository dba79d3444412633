//! Lookup and listing of links, whichever of the three storages holds them.
//!
//! ```text
//! symbol table message        -> version 1 B-tree + local heap      (old style)
//! link messages               -> the object header itself           (compact)
//! link info message, defined  -> fractal heap + version 2 B-trees   (dense)
//! ```

use super::dense::DenseLinks;
use super::symbol_table::SymbolTable;
use super::visit::Visit;
use crate::base::{Address, Error, Result};
use crate::format::message::link::Link;
use crate::meta::Store;
use std::ops::ControlFlow;

/// Links of a damaged old-style group that a lookup scans where the tree cannot guide it.
const SCANNED_LINKS_MAX: u32 = 1 << 16;

/// Storage of a group's links.
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

/// Looks the link `name` up, without reading the others. Errors: damage on the path to it.
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
            let group = SymbolTable::open(store, *btree, *heap)?;
            match group.lookup(store, name) {
                Err(e @ Error::Io { .. }) => Err(e),
                Err(e) => scan(store, &group, name).ok_or(e).map(Some),
                found => found,
            }
        }
    }
}

/// Searches `name` in all readable nodes, for a tree that is damaged on the path to it.
fn scan(store: &Store, group: &SymbolTable, name: &[u8]) -> Option<Link> {
    let mut found = None;
    let mut left = SCANNED_LINKS_MAX;
    let result = group.list(store, 0, &mut |link, _| {
        left = left.saturating_sub(1);
        if link.name == name {
            found = Some(link);
        }
        Ok(if found.is_some() || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    if let Err(error) = result {
        tracing::debug!(%error, "scan of a damaged group failed");
    }
    found
}

/// Number of links if it is stored; `None` for an old-style group, whose links must be listed.
pub fn len(store: &Store, storage: &GroupStorage) -> Result<Option<u64>> {
    match storage {
        GroupStorage::SymbolTable { .. } => Ok(None),
        GroupStorage::Compact(links) => Ok(Some(links.len() as u64)),
        GroupStorage::Dense { fractal_heap, name_index, creation_index } => {
            DenseLinks::open(store, *fractal_heap, *name_index, *creation_index).map(|d| Some(d.len()))
        }
    }
}

/// Calls `f` with each link and the position after it, from position `start`: 0, or a position that
/// `f` got from an earlier call. Resuming costs O(depth). Positions are below 2^63.
///
/// Logs and skips links and nodes that cannot be read, and returns the first damage. Errors: those
/// of `f`; the first damage, if no link could be listed.
pub fn list(store: &Store, storage: &GroupStorage, start: u64, f: &mut Visit<'_>) -> Result<Option<Error>> {
    match storage {
        GroupStorage::SymbolTable { btree, heap } => SymbolTable::open(store, *btree, *heap)?.list(store, start, f),
        GroupStorage::Compact(links) => {
            let rest = usize::try_from(start).ok().and_then(|n| links.get(n..)).unwrap_or_default();
            for (link, before) in rest.iter().zip(start..) {
                if f(link.clone(), before.saturating_add(1))?.is_break() {
                    break;
                }
            }
            Ok(None)
        }
        GroupStorage::Dense { fractal_heap, name_index, creation_index } => {
            DenseLinks::open(store, *fractal_heap, *name_index, *creation_index)?.list(store, start, f)
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
pub mod tests;
