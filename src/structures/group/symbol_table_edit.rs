//! Insertion and removal of links in an old-style group.
//!
//! ```text
//! B-tree -> symbol table nodes of up to 2 x leaf K entries -> names, soft link values (local heap)
//! key after a symbol table node:  name of its last entry
//! key before the first node:      "" at heap offset 0
//! ```
//!
//! As in libhdf5 (H5Gnode.c): a full node is split in the middle, an empty one is freed. Entries
//! are written without cached data, so that no copy of an object's symbol table message can go
//! stale.

use crate::base::{Address, Error, Result, limits};
use crate::format::btree1::{Btree1Kind, NAME as BTREE, Node, group_key};
use crate::format::message::link::LinkTarget;
use crate::format::symbol_table::{Entry, EntryCache, NAME, SymbolTableNode};
use crate::format::{Context, Writer};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::{self, Extent};
use crate::structures::btree1::node_edit::{self, Edit, Step};
use crate::structures::extent::free_all;
use crate::structures::local_heap::{self, HeapNames};
use std::cmp::Ordering;

/// Old-style group to change: the addresses of its symbol table message and the superblock's K
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolTable {
    /// Root of the B-tree.
    pub btree: Address,
    /// Local heap.
    pub heap: Address,
    /// Half of the largest number of entries of a symbol table node (libhdf5: 4).
    pub leaf_k: u16,
    /// Half of the largest number of children of a B-tree node (libhdf5: 16).
    pub internal_k: u16,
}

/// Writes the structures of a group without links, with room for `heap_size` bytes of names.
pub fn create(store: &Store, leaf_k: u16, internal_k: u16, heap_size: u64) -> Result<SymbolTable> {
    capacity(leaf_k)?;
    let heap = local_heap::edit::create(store, heap_size)?;
    // Name of the first key, at offset 0: less than all others.
    local_heap::edit::insert(store, heap, b"")?;
    let btree = node_edit::create(store, Btree1Kind::Group, internal_k)?;
    Ok(SymbolTable { btree, heap, leaf_k, internal_k })
}

/// Visits the B-tree, the symbol table nodes and the heap. Errors: a node cannot be read.
pub fn extents(store: &Store, table: &SymbolTable, visit: &mut extent::Visit<'_>) -> Result<()> {
    let size = node_size(store, table)?;
    let mut nodes = Vec::new();
    let entry = &mut |address| {
        nodes.push(address);
        read(store, table, address).map(drop)
    };
    node_edit::extents(store, table.btree, Btree1Kind::Group, table.internal_k, entry, visit)?;
    nodes.into_iter().try_for_each(|address| visit(Extent::metadata(address, size, NAME)))?;
    local_heap::extents(store, table.heap, visit)
}

/// Frees the B-tree, the symbol table nodes and the heap, not the objects of the links. Errors,
/// before anything is freed: a node cannot be read or is reached twice.
pub fn delete(store: &Store, table: &SymbolTable) -> Result<()> {
    free_all(store, |visit| extents(store, table, visit))
}

/// Inserts the hard or soft link `name` to `target`. Errors, with the links unchanged: `EEXIST`; a
/// name or value that cannot be stored; damage.
pub fn insert(store: &Store, table: &SymbolTable, name: &[u8], target: &LinkTarget) -> Result<()> {
    let ctx = *store.ctx();
    check_name(table, name)?;
    if !matches!(target, LinkTarget::Hard(_) | LinkTarget::Soft(_)) {
        return Err(Error::unsupported(NAME, table.btree, "an old-style group holds hard and soft links only"));
    }
    let names = HeapNames::open(store, table.heap)?;
    node_edit::edit(store, Btree1Kind::Group, table.internal_k, |edit| {
        let path = edit.descend(table.btree, &mut |node| pick(store, &names, node, name, table.btree))?;
        let place = place(store, table, edit, &path, &names, name)?;
        if place.found {
            return Err(Error::Io { operation: "link", address: place.address, errno: libc::EEXIST });
        }
        let entry = new_entry(store, table, name, target)?;
        let done = put(store, table, edit, &path, place, entry);
        if done.is_err() {
            // Of the failed insertion only the strings were written.
            let _ = free_strings(store, table, &entry);
        }
        let (writes, fresh) = done?;
        for (address, node) in writes {
            let mut bytes = node.encode(&ctx, capacity(table.leaf_k)?)?;
            if Some(address) != fresh {
                bytes.truncate(SymbolTableNode::size(&ctx, node.entries.len()));
            }
            store.write(address, &bytes)?;
        }
        Ok(())
    })
}

/// Removes the link `name` and returns its target, if the group has it. Changes no link count.
pub fn remove(store: &Store, table: &SymbolTable, name: &[u8]) -> Result<Option<LinkTarget>> {
    let ctx = *store.ctx();
    let names = HeapNames::open(store, table.heap)?;
    let removed = node_edit::edit(store, Btree1Kind::Group, table.internal_k, |edit| {
        let path = edit.descend(table.btree, &mut |node| pick(store, &names, node, name, table.btree))?;
        let EntryPlace { address, mut node, index, found } = place(store, table, edit, &path, &names, name)?;
        let Some(&entry) = node.entries.get(index).filter(|_| found) else { return Ok(None) };
        let target = match entry.cache(&ctx, address)? {
            EntryCache::SoftLink { value_offset } => LinkTarget::Soft(names.name(store, u64::from(value_offset))?),
            _ => LinkTarget::Hard(entry.header),
        };
        node.entries.remove(index);
        if let Some(last) = node.entries.last() {
            if index == node.entries.len() {
                edit.set_key_after(&path, path.len().saturating_sub(1), &key(last.name_offset, &ctx))?;
            }
            store.write(address, &node.encode(&ctx, node.entries.len())?)?;
        } else {
            edit.remove_child(&path)?;
            store.free(address, node_size(store, table)?)?;
        }
        Ok(Some((entry, target)))
    })?;
    let Some((entry, target)) = removed else { return Ok(None) };
    free_strings(store, table, &entry)?;
    Ok(Some(target))
}

/// Largest number of entries of a symbol table node.
fn capacity(leaf_k: u16) -> Result<usize> {
    let capacity = usize::from(leaf_k).saturating_mul(2);
    if capacity == 0 || capacity > usize::from(u16::MAX) {
        return Err(Error::unsupported(NAME, Address::UNDEF, format!("leaf K is {leaf_k}")));
    }
    Ok(capacity)
}

fn node_size(store: &Store, table: &SymbolTable) -> Result<u64> {
    Ok(SymbolTableNode::size(store.ctx(), capacity(table.leaf_k)?) as u64)
}

fn key(offset: u64, ctx: &Context) -> Vec<u8> {
    let mut w = Writer::new();
    w.length(offset, ctx);
    w.into_bytes()
}

fn check_name(table: &SymbolTable, name: &[u8]) -> Result<()> {
    let valid = !name.is_empty() && !name.contains(&0) && name.len() <= limits::HEAP_NAME_MAX;
    if valid { Ok(()) } else { Err(Error::limit(NAME, table.btree, format!("a name of {} bytes, or with a NUL", name.len()))) }
}

fn read(store: &Store, table: &SymbolTable, address: Address) -> Result<SymbolTableNode> {
    let node = SymbolTableNode::decode(&store.read(address, node_size(store, table)?, NAME)?, store.ctx(), address)?;
    if node.entries.len() > capacity(table.leaf_k)? {
        return Err(Error::corrupt(NAME, address, format!("{} entries with leaf K {}", node.entries.len(), table.leaf_k)));
    }
    Ok(node)
}

/// The first child whose right key is not less than `name`; else the last.
fn pick(store: &Store, names: &HeapNames, node: &Node, name: &[u8], root: Address) -> Result<usize> {
    let (mut low, mut high) = (0, node.children.len().saturating_sub(1));
    while low < high {
        let middle = low.midpoint(high);
        let offset = group_key(node.key(middle.saturating_add(1)).unwrap_or_default(), store.ctx(), root)?;
        if names.compare(store, offset, name)? == Ordering::Less { low = middle.saturating_add(1) } else { high = middle }
    }
    Ok(low)
}

/// Place of a name in its symbol table node, present or not.
struct EntryPlace {
    /// The node; undefined if the group has no node.
    address: Address,
    node: SymbolTableNode,
    index: usize,
    found: bool,
}

fn place(store: &Store, table: &SymbolTable, edit: &Edit<'_>, path: &[Step], names: &HeapNames, name: &[u8]) -> Result<EntryPlace> {
    let child = path.last().map(|s| edit.node(s.address).map(|n| n.children.get(s.index).copied())).transpose()?.flatten();
    let Some(address) = child else {
        return Ok(EntryPlace { address: Address::UNDEF, node: SymbolTableNode { entries: Vec::new() }, index: 0, found: false });
    };
    let node = read(store, table, address)?;
    let (mut low, mut high) = (0, node.entries.len());
    while low < high {
        let middle = low.midpoint(high);
        let offset = node.entries.get(middle).map_or(0, |e| e.name_offset);
        match names.compare(store, offset, name)? {
            Ordering::Equal => return Ok(EntryPlace { address, node, index: middle, found: true }),
            Ordering::Less => low = middle.saturating_add(1),
            Ordering::Greater => high = middle,
        }
    }
    Ok(EntryPlace { address, node, index: low, found: false })
}

/// Inserts the strings of a link into the heap; returns its entry.
fn new_entry(store: &Store, table: &SymbolTable, name: &[u8], target: &LinkTarget) -> Result<Entry> {
    let name_offset = local_heap::edit::insert(store, table.heap, name)?;
    let mut entry = Entry { name_offset, header: Address::UNDEF, cache_type: 0, reserved: 0, scratch: [0; 16] };
    match target {
        LinkTarget::Hard(header) => entry.header = *header,
        LinkTarget::Soft(value) => {
            let offset = local_heap::edit::insert(store, table.heap, value);
            let small = offset.and_then(|o| {
                u32::try_from(o).map_err(|_| {
                    let _ = local_heap::edit::remove(store, table.heap, o);
                    Error::limit(NAME, table.heap, "a soft link's value past 4 GiB of the heap")
                })
            });
            if small.is_err() {
                local_heap::edit::remove(store, table.heap, name_offset)?;
            }
            entry.cache_type = 2;
            let (head, _) = entry.scratch.split_at_mut(4);
            head.copy_from_slice(&small?.to_le_bytes());
        }
        _ => {}
    }
    Ok(entry)
}

/// Frees the strings of an entry.
fn free_strings(store: &Store, table: &SymbolTable, entry: &Entry) -> Result<()> {
    if let Ok(EntryCache::SoftLink { value_offset }) = entry.cache(store.ctx(), table.heap) {
        local_heap::edit::remove(store, table.heap, u64::from(value_offset))?;
    }
    local_heap::edit::remove(store, table.heap, entry.name_offset)
}

/// Symbol table nodes to write, and the one that was allocated for them.
type Writes = (Vec<(Address, SymbolTableNode)>, Option<Address>);

/// Inserts `entry` at `place`. Changes the B-tree; returns the symbol table nodes to write.
fn put(store: &Store, table: &SymbolTable, edit: &mut Edit<'_>, path: &[Step], place: EntryPlace, entry: Entry) -> Result<Writes> {
    let ctx = *store.ctx();
    let leaf = path.last().ok_or_else(|| Error::corrupt(BTREE, table.btree, "no leaf"))?;
    let EntryPlace { address, mut node, index, .. } = place;
    let (full, half) = (capacity(table.leaf_k)?, usize::from(table.leaf_k));
    if !address.is_defined() {
        let address = store.allocate(node_size(store, table)?, SpaceKind::Metadata)?;
        let parent = edit.change(leaf.address)?;
        parent.children.push(address);
        parent.insert_key(0, &key(0, &ctx))?;
        parent.insert_key(1, &key(entry.name_offset, &ctx))?;
        node.entries.push(entry);
        return Ok((vec![(address, node)], Some(address)));
    }
    let last_depth = path.len().saturating_sub(1);
    if index == node.entries.len() {
        edit.set_key_after(path, last_depth, &key(entry.name_offset, &ctx))?;
    }
    if node.entries.len() < full {
        node.entries.insert(index, entry);
        return Ok((vec![(address, node)], None));
    }
    let mut right = SymbolTableNode { entries: node.entries.split_off(half) };
    match index.checked_sub(half) {
        Some(index) if index > 0 => right.entries.insert(index, entry),
        _ => node.entries.insert(index, entry),
    }
    let middle = node.entries.last().map_or(0, |e| e.name_offset);
    let fresh = store.allocate(node_size(store, table)?, SpaceKind::Metadata)?;
    if let Err(e) = edit.insert_after(path, key(middle, &ctx), fresh) {
        store.free(fresh, node_size(store, table)?)?;
        return Err(e);
    }
    Ok((vec![(address, node), (fresh, right)], Some(fresh)))
}

#[cfg(test)]
#[path = "symbol_table_edit_tests.rs"]
mod tests;
