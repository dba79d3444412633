//! Groups that are changed: created, emptied, links inserted and removed, whichever storage holds them.
//!
//! ```text
//! symbol table   stays what it is, holding only hard and soft links, unless `turn_new_style` is called
//! compact        -> dense    when a link exceeds the group info's maximum, or is too large for a message
//! dense          -> compact  when fewer links are left than the group info's minimum, if all fit
//! ```
//!
//! Counts of references are another matter: see [`super::references`]. H5Gobj.c, H5Gcompact.c, H5Gdense.c.

use super::dense_links_edit as dense;
use super::group::{self, GroupStorage};
use super::symbol_table_edit as symbols;
use crate::base::{Address, Error, Result};
use crate::format::message::btree_k::BTreeK;
use crate::format::message::group_info::GroupInfo;
use crate::format::message::link::Link;
use crate::format::message::link_info::LinkInfo;
use crate::format::message::symbol_table::SymbolTable;
use crate::format::object_header::{flag, kind};
use crate::meta::header_edit::HeaderEdit;
use crate::meta::{ObjectHeader, Store};
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

const NAME: &str = "group";
/// Bytes of a new local heap: libhdf5's estimate of 4 names of 8 bytes.
const NAMES_SIZE: u64 = 88;

/// What a new group shall be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCreation {
    /// Creation order of links: tracked, indexed. Old-style groups have none, so that one that tracks it
    /// is new-style in every file.
    pub link_order: (bool, bool),
    /// Creation order of attributes: tracked, indexed; only in headers of version 2.
    pub attribute_order: (bool, bool),
    /// Most links stored compactly, fewest stored densely, of a new-style group; `None`: 8 and 6.
    pub phase_change: Option<(u16, u16)>,
    /// Seconds since 1970, if the header shall record times.
    pub times: Option<u32>,
}

fn refuse<T>(group: Address, errno: i32) -> Result<T> {
    Err(Error::Io { operation: "change group", address: group, errno })
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Creates an empty group with one reference: old-style in files with a superblock of version 0 or 1.
pub fn create_group(store: &Store, creation: &GroupCreation) -> Result<Address> {
    let (ctx, (tracked, indexed)) = (store.ctx(), creation.link_order);
    if store.superblock().version < 2 && !tracked && creation.attribute_order == (false, false) {
        let k = k_values(store)?;
        let table = symbols::create(store, k.group_leaf, k.group_internal, NAMES_SIZE)?;
        let mut edit = HeaderEdit::new(1, None, (false, false));
        edit.add(kind::SYMBOL_TABLE, 0, SymbolTable { btree: table.btree, heap: table.heap }.encode(ctx)?);
        return edit.create(store);
    }
    let info = LinkInfo {
        max_creation_order: tracked.then_some(0),
        fractal_heap: Address::UNDEF,
        name_index: Address::UNDEF,
        creation_index: (tracked && indexed).then_some(Address::UNDEF),
    };
    let mut edit = HeaderEdit::new(2, creation.times, creation.attribute_order);
    edit.add(kind::LINK_INFO, 0, info.encode(ctx)?);
    edit.add(kind::GROUP_INFO, flag::CONSTANT, GroupInfo { phase_change: creation.phase_change, ..GroupInfo::default() }.encode(ctx)?);
    edit.create(store)
}

/// Sizes of the nodes of old-style groups and chunk indexes in this file.
pub fn k_values(store: &Store) -> Result<BTreeK> {
    let superblock = store.superblock();
    if let Some(old) = &superblock.legacy {
        let (chunk_internal, group_internal, group_leaf) = (old.chunk_internal_k, old.group_internal_k, old.group_leaf_k);
        return Ok(BTreeK { chunk_internal, group_internal, group_leaf });
    }
    if !superblock.extension.is_defined() {
        return Ok(BTreeK::default());
    }
    let extension = ObjectHeader::cached(store, superblock.extension)?;
    match extension.find(kind::BTREE_K) {
        Some(m) => BTreeK::decode(&m.body, store.ctx(), extension.address),
        None => Ok(BTreeK::default()),
    }
}

fn table(store: &Store, message: SymbolTable) -> Result<symbols::SymbolTable> {
    let k = k_values(store)?;
    Ok(symbols::SymbolTable { btree: message.btree, heap: message.heap, leaf_k: k.group_leaf, internal_k: k.group_internal })
}

/// A group's header while its links change.
struct Group<'a> {
    store: &'a Store,
    edit: HeaderEdit,
    kind: Kind,
}

enum Kind {
    SymbolTable(SymbolTable),
    /// Index of the link info message; the message.
    New(usize, LinkInfo),
}

impl<'a> Group<'a> {
    /// Errors: `ENOTDIR` when the object at `address` is no group; its header is damaged.
    fn load(store: &'a Store, address: Address) -> Result<Self> {
        let edit = HeaderEdit::load(store, address)?;
        let kind = if let Some(i) = edit.find(kind::SYMBOL_TABLE) {
            Kind::SymbolTable(SymbolTable::decode(edit.body(i), store.ctx(), address)?)
        } else if let Some(i) = edit.find(kind::LINK_INFO) {
            Kind::New(i, LinkInfo::decode(edit.body(i), store.ctx(), address)?)
        } else {
            return refuse(address, libc::ENOTDIR);
        };
        Ok(Group { store, edit, kind })
    }

    fn address(&self) -> Address {
        self.edit.address()
    }

    /// The constants of a new-style group.
    fn constants(&self) -> Result<GroupInfo> {
        match self.edit.find(kind::GROUP_INFO) {
            Some(i) => GroupInfo::decode(self.edit.body(i), self.store.ctx(), self.address()),
            None => Ok(GroupInfo::default()),
        }
    }

    /// Indexes of the link messages.
    fn link_messages(&self) -> Vec<usize> {
        self.edit.messages().enumerate().filter(|(_, m)| m.kind == kind::LINK).map(|(i, _)| i).collect()
    }

    /// The link message called `name`: index and link. One that cannot be decoded has no name.
    fn compact(&self, name: &[u8]) -> Option<(usize, Link)> {
        let decode = |i: usize| Some((i, Link::decode(self.edit.body(i), self.store.ctx(), self.address()).ok()?));
        self.link_messages().into_iter().filter_map(decode).find(|(_, l)| l.name == name)
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<Link>> {
        match &self.kind {
            Kind::New(_, info) if !info.is_dense() => Ok(self.compact(name).map(|(_, l)| l)),
            kind => group::lookup(self.store, &kind.storage(), name),
        }
    }

    /// Stores the link info message and whatever else was changed in the header.
    fn finish(mut self) -> Result<()> {
        if let Kind::New(i, info) = &self.kind {
            self.edit.set_body(*i, info.encode(self.store.ctx())?);
            self.edit.touch(now());
        }
        self.edit.write(self.store)
    }
}

impl Kind {
    /// Where the links are; those of a compact group are left out.
    fn storage(&self) -> GroupStorage {
        match self {
            Kind::SymbolTable(SymbolTable { btree, heap }) => GroupStorage::SymbolTable { btree: *btree, heap: *heap },
            Kind::New(_, i) if i.is_dense() => GroupStorage::Dense {
                fractal_heap: i.fractal_heap,
                name_index: i.name_index,
                creation_index: i.creation_index.unwrap_or(Address::UNDEF),
            },
            Kind::New(..) => GroupStorage::Compact(Vec::new()),
        }
    }
}

/// Inserts `link` into the group at `group`. The creation order is the group's to give; a name that is
/// UTF-8 and not ASCII is stored as UTF-8. The count of references of a hard link's object is not changed.
///
/// Errors: `EEXIST` when there is such a name; `EINVAL` for a name that no path can hold; `ENOTDIR`;
/// [`Error::Unsupported`] when an old-style group cannot hold such a link (see [`turn_new_style`]); damage
/// on the way.
pub fn insert_link(store: &Store, group: Address, link: &Link) -> Result<()> {
    if link.name.is_empty() || link.name == b"." || link.name.iter().any(|b| matches!(b, 0 | b'/')) {
        return refuse(group, libc::EINVAL);
    }
    let mut g = Group::load(store, group)?;
    if matches!(g.kind, Kind::New(..)) && g.lookup(&link.name)?.is_some() {
        return refuse(group, libc::EEXIST);
    }
    let utf8 = link.utf8 || !link.name.is_ascii() && std::str::from_utf8(&link.name).is_ok();
    let mut link = Link { utf8, creation_order: None, ..link.clone() };
    match &mut g.kind {
        Kind::SymbolTable(symbol_table) => {
            return symbols::insert(store, &table(store, *symbol_table)?, &link.name, &link.target);
        }
        Kind::New(_, info) => {
            link.creation_order = info.max_creation_order;
            if let Some(order) = &mut info.max_creation_order {
                *order = order.checked_add(1).ok_or_else(|| Error::limit(NAME, group, "creation order"))?;
            }
        }
    }
    g.insert_new(&link)?;
    g.finish()
}

impl Group<'_> {
    /// Inserts a link whose name is free into a new-style group, which may turn dense.
    fn insert_new(&mut self, link: &Link) -> Result<()> {
        let Kind::New(_, info) = &self.kind else { return Ok(()) };
        let body = link.encode(self.store.ctx())?;
        if !info.is_dense() {
            let count = self.link_messages().len();
            // Heaps of groups with a filter pipeline are filtered: those groups stay compact.
            let room = count < usize::from(self.constants()?.max_compact()) || self.edit.find(kind::FILTER_PIPELINE).is_some();
            if room && body.len() <= self.edit.body_max() {
                self.edit.add(kind::LINK, 0, body);
                return Ok(());
            }
            self.turn_dense()?;
        }
        let Kind::New(_, info) = &self.kind else { return Ok(()) };
        dense::insert_absent(self.store, &info.into(), &body, &link.name, link.creation_order)
    }

    /// Moves all links of a compact group into dense storage.
    fn turn_dense(&mut self) -> Result<()> {
        let (ctx, at) = (self.store.ctx(), self.address());
        let messages = self.link_messages();
        let Kind::New(i, info) = &mut self.kind else { return Ok(()) };
        let links: Vec<Link> = messages.iter().map(|&m| Link::decode(self.edit.body(m), ctx, at)).collect::<Result<_>>()?;
        let storage = dense::create(self.store, info.creation_index.is_some())?;
        for link in &links {
            dense::insert(self.store, &storage, &link.encode(ctx)?, &link.name, link.creation_order)?;
        }
        (info.fractal_heap, info.name_index, info.creation_index) = (storage.heap, storage.name_index, storage.creation_index);
        let before = messages.iter().filter(|m| *m < i).count();
        *i = i.saturating_sub(before);
        messages.iter().rev().for_each(|&m| self.edit.remove(m));
        Ok(())
    }

    /// Moves the links of a dense group into its header if they are few enough and all fit.
    fn turn_compact(&mut self) -> Result<()> {
        let min_dense = u64::from(self.constants()?.min_dense());
        let storage = self.kind.storage();
        let count = group::len(self.store, &storage)?.unwrap_or(0);
        if count > 0 && count >= min_dense {
            return Ok(());
        }
        let mut links = Vec::new();
        group::list(self.store, &storage, 0, &mut |link, _| {
            links.push(link);
            Ok(ControlFlow::Continue(()))
        })?;
        let bodies = links.iter().map(|l| l.encode(self.store.ctx())).collect::<Result<Vec<_>>>()?;
        let longest = self.edit.body_max();
        // What cannot be read stays where it is.
        if links.len() as u64 != count || bodies.iter().any(|b| b.len() > longest) {
            return Ok(());
        }
        let Kind::New(_, info) = &mut self.kind else { return Ok(()) };
        dense::delete(self.store, &(&*info).into())?;
        (info.fractal_heap, info.name_index) = (Address::UNDEF, Address::UNDEF);
        info.creation_index = info.creation_index.map(|_| Address::UNDEF);
        for body in bodies {
            self.edit.add(kind::LINK, 0, body);
        }
        Ok(())
    }

    /// True when nothing is left.
    fn is_empty(&self) -> Result<bool> {
        match &self.kind {
            Kind::New(_, info) if !info.is_dense() => Ok(self.link_messages().is_empty()),
            kind => is_storage_empty(self.store, &kind.storage()),
        }
    }
}

/// Removes the link called `name` and returns it; `None` when there is none. The count of references of a
/// hard link's object is not changed. Errors: `ENOTDIR`; damage on the way.
pub fn remove_link(store: &Store, group: Address, name: &[u8]) -> Result<Option<Link>> {
    let mut g = Group::load(store, group)?;
    let removed = match &g.kind {
        Kind::SymbolTable(symbol_table) => {
            let target = symbols::remove(store, &table(store, *symbol_table)?, name)?;
            return Ok(target.map(|target| Link { name: name.to_vec(), utf8: false, creation_order: None, target }));
        }
        Kind::New(_, info) if info.is_dense() => {
            let Some(message) = dense::remove(store, &info.into(), name)? else { return Ok(None) };
            g.turn_compact()?;
            Some(Link::decode(&message, store.ctx(), group)?)
        }
        Kind::New(i, info) => match g.compact(name) {
            Some((m, link)) => {
                let i = if m < *i { i.saturating_sub(1) } else { *i };
                let info = info.clone();
                g.edit.remove(m);
                g.kind = Kind::New(i, info);
                Some(link)
            }
            None => None,
        },
    };
    if removed.is_none() {
        return Ok(None);
    }
    let empty = g.is_empty()?;
    if let Kind::New(_, info) = &mut g.kind
        && empty
    {
        info.max_creation_order = info.max_creation_order.map(|_| 0);
    }
    g.finish()?;
    Ok(removed)
}

fn is_storage_empty(store: &Store, storage: &GroupStorage) -> Result<bool> {
    if let Some(n) = group::len(store, storage)? {
        return Ok(n == 0);
    }
    let mut empty = true;
    group::list(store, storage, 0, &mut |_, _| {
        empty = false;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(empty)
}

/// Turns an old-style group into a new-style one, which can hold every kind of link, as libhdf5 does when
/// such a link is inserted. Only libhdf5 from 1.8 on reads it then. Nothing happens when it is one already.
/// The old storage is not given back, as libhdf5 does not: entries elsewhere may have it cached.
pub fn turn_new_style(store: &Store, group: Address) -> Result<()> {
    let mut g = Group::load(store, group)?;
    let Kind::SymbolTable(_) = &g.kind else { return Ok(()) };
    let mut links = Vec::new();
    group::list(store, &g.kind.storage(), 0, &mut |link, _| {
        links.push(link);
        Ok(ControlFlow::Continue(()))
    })?;
    let info = LinkInfo { max_creation_order: None, fractal_heap: Address::UNDEF, name_index: Address::UNDEF, creation_index: None };
    if let Some(i) = g.edit.find(kind::SYMBOL_TABLE) {
        g.edit.remove(i);
    }
    let i = g.edit.add(kind::LINK_INFO, 0, info.encode(store.ctx())?);
    g.edit.add(kind::GROUP_INFO, flag::CONSTANT, GroupInfo::default().encode(store.ctx())?);
    g.kind = Kind::New(i, info);
    for link in links {
        let utf8 = !link.name.is_ascii() && std::str::from_utf8(&link.name).is_ok();
        g.insert_new(&Link { utf8, ..link })?;
    }
    g.finish()
}

/// True when the group has no link. Errors: `ENOTDIR`; damage, when all that is left cannot be read.
pub fn is_empty(store: &Store, group: Address) -> Result<bool> {
    Group::load(store, group)?.is_empty()
}

/// Gives back what the links of the group take outside of its header, which is left as it is: the caller
/// deletes it next. What the links lead to is not looked at.
pub fn delete_group_storage(store: &Store, group: Address) -> Result<()> {
    match &Group::load(store, group)?.kind {
        Kind::SymbolTable(symbol_table) => symbols::delete(store, &table(store, *symbol_table)?),
        Kind::New(_, info) if info.is_dense() => dense::delete(store, &info.into()),
        Kind::New(..) => Ok(()),
    }
}

/// Where the links of the group are now.
pub fn storage(store: &Store, group: Address) -> Result<Option<GroupStorage>> {
    group::storage(store, &*ObjectHeader::cached(store, group)?)
}

#[cfg(test)]
#[path = "group_edit_tests.rs"]
mod tests;
