//! Creation of groups, insertion and removal of links, whichever storage holds them.
//!
//! ```text
//! symbol table  stays; holds only hard and soft links, unless `turn_new_style` is called
//! compact       -> dense    at more links than the group info's maximum, or a link too large
//! dense         -> compact  at fewer links than the group info's minimum, if all fit
//! ```
//!
//! The caller changes link counts ([`crate::structures::link_count`]). Follows libhdf5's H5Gobj.c,
//! H5Gcompact.c, H5Gdense.c.

use super::read::{self, GroupStorage};
use super::{dense_edit, symbol_table_edit};
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
const NAMES_BYTES: u64 = 88;

/// Parameters of a new group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCreation {
    /// Creation order of links: tracked, indexed. A group that tracks it is new-style in every
    /// file.
    pub link_order: (bool, bool),
    /// Creation order of attributes: tracked, indexed; only in version 2 headers.
    pub attribute_order: (bool, bool),
    /// Most compact links and fewest dense links of a new-style group; `None`: 8 and 6.
    pub phase_change: Option<(u16, u16)>,
    /// Seconds since 1970, if the header records times.
    pub times: Option<u32>,
}

fn refuse<T>(group: Address, errno: i32) -> Result<T> {
    Err(Error::Io { operation: "change group", address: group, errno })
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Creates an empty group with a link count of 1; old-style in files with a superblock of version 0
/// or 1.
pub fn create_group(store: &Store, creation: &GroupCreation) -> Result<Address> {
    let (ctx, (tracked, indexed)) = (store.ctx(), creation.link_order);
    if store.superblock().version < 2 && !tracked && creation.attribute_order == (false, false) {
        let k = k_values(store)?;
        let table = symbol_table_edit::create(store, k.group_leaf, k.group_internal, NAMES_BYTES)?;
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

/// K values of old-style groups and chunk indexes of the file.
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

/// The group whose symbol table message is `message`, with the K values of the file.
pub(super) fn table(store: &Store, message: SymbolTable) -> Result<symbol_table_edit::SymbolTable> {
    let k = k_values(store)?;
    Ok(symbol_table_edit::SymbolTable { btree: message.btree, heap: message.heap, leaf_k: k.group_leaf, internal_k: k.group_internal })
}

/// A group's header during a change of links.
pub(super) struct Group<'a> {
    store: &'a Store,
    edit: HeaderEdit,
    kind: GroupForm,
}

enum GroupForm {
    SymbolTable(SymbolTable),
    /// Position of the link info message; the message.
    New(usize, LinkInfo),
}

impl<'a> Group<'a> {
    /// Loads the header at `address`. Errors: `ENOTDIR` if it is no group; damage.
    pub(super) fn load(store: &'a Store, address: Address) -> Result<Self> {
        let edit = HeaderEdit::load(store, address)?;
        let kind = if let Some(i) = edit.find(kind::SYMBOL_TABLE) {
            GroupForm::SymbolTable(SymbolTable::decode(edit.body(i), store.ctx(), address)?)
        } else if let Some(i) = edit.find(kind::LINK_INFO) {
            GroupForm::New(i, LinkInfo::decode(edit.body(i), store.ctx(), address)?)
        } else {
            return refuse(address, libc::ENOTDIR);
        };
        Ok(Group { store, edit, kind })
    }

    fn address(&self) -> Address {
        self.edit.address()
    }

    /// Group info of a new-style group.
    fn group_info(&self) -> Result<GroupInfo> {
        match self.edit.find(kind::GROUP_INFO) {
            Some(i) => GroupInfo::decode(self.edit.body(i), self.store.ctx(), self.address()),
            None => Ok(GroupInfo::default()),
        }
    }

    /// Positions of the link messages.
    fn link_messages(&self) -> Vec<usize> {
        self.edit.messages().enumerate().filter(|(_, m)| m.kind == kind::LINK).map(|(i, _)| i).collect()
    }

    /// Position and link of the link message `name`; skips messages that cannot be decoded.
    fn compact(&self, name: &[u8]) -> Option<(usize, Link)> {
        let decode = |i: usize| Some((i, Link::decode(self.edit.body(i), self.store.ctx(), self.address()).ok()?));
        self.link_messages().into_iter().filter_map(decode).find(|(_, l)| l.name == name)
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<Link>> {
        match &self.kind {
            GroupForm::New(_, info) if !info.is_dense() => Ok(self.compact(name).map(|(_, l)| l)),
            kind => read::lookup(self.store, &kind.storage(), name),
        }
    }

    /// Writes the header with the changed link info message.
    fn finish(mut self) -> Result<()> {
        if let GroupForm::New(i, info) = &self.kind {
            self.edit.set_body(*i, info.encode(self.store.ctx())?);
            self.edit.touch(now());
        }
        self.edit.write(self.store)
    }
}

impl GroupForm {
    /// Storage of the links, without the links of a compact group.
    fn storage(&self) -> GroupStorage {
        match self {
            GroupForm::SymbolTable(SymbolTable { btree, heap }) => GroupStorage::SymbolTable { btree: *btree, heap: *heap },
            GroupForm::New(_, i) if i.is_dense() => GroupStorage::Dense {
                fractal_heap: i.fractal_heap,
                name_index: i.name_index,
                creation_index: i.creation_index.unwrap_or(Address::UNDEF),
            },
            GroupForm::New(..) => GroupStorage::Compact(Vec::new()),
        }
    }
}

/// Inserts `link` into the group at `group`, which assigns the creation order. A name that is UTF-8
/// and not ASCII is stored as UTF-8. Does not change the link count of a hard link's object.
///
/// Errors: `EEXIST`; `EINVAL` for a name that no path can hold; `ENOTDIR`; [`Error::Unsupported`]
/// if an old-style group cannot hold such a link (see [`turn_new_style`]); damage.
pub fn insert_link(store: &Store, group: Address, link: &Link) -> Result<()> {
    if link.name.is_empty() || link.name == b"." || link.name.iter().any(|b| matches!(b, 0 | b'/')) {
        return refuse(group, libc::EINVAL);
    }
    let mut g = Group::load(store, group)?;
    if matches!(g.kind, GroupForm::New(..)) && g.lookup(&link.name)?.is_some() {
        return refuse(group, libc::EEXIST);
    }
    let utf8 = link.utf8 || !link.name.is_ascii() && std::str::from_utf8(&link.name).is_ok();
    let mut link = Link { utf8, creation_order: None, ..link.clone() };
    match &mut g.kind {
        GroupForm::SymbolTable(symbol_table) => {
            return symbol_table_edit::insert(store, &table(store, *symbol_table)?, &link.name, &link.target);
        }
        GroupForm::New(_, info) => {
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
    /// Inserts a link with a free name into a new-style group, which may become dense.
    pub(super) fn insert_new(&mut self, link: &Link) -> Result<()> {
        let GroupForm::New(_, info) = &self.kind else { return Ok(()) };
        let body = link.encode(self.store.ctx())?;
        if !info.is_dense() {
            let count = self.link_messages().len();
            // The heap of a group with a filter pipeline would be filtered: such a group stays
            // compact.
            let fits = count < usize::from(self.group_info()?.max_compact()) || self.edit.find(kind::FILTER_PIPELINE).is_some();
            if fits && body.len() <= self.edit.body_max() {
                self.edit.add(kind::LINK, 0, body);
                return Ok(());
            }
            self.turn_dense()?;
        }
        let GroupForm::New(_, info) = &self.kind else { return Ok(()) };
        dense_edit::insert_absent(self.store, &info.into(), &body, &link.name, link.creation_order)
    }

    /// Moves all links of a compact group into dense storage.
    fn turn_dense(&mut self) -> Result<()> {
        let (ctx, at) = (self.store.ctx(), self.address());
        let messages = self.link_messages();
        let GroupForm::New(i, info) = &mut self.kind else { return Ok(()) };
        let links: Vec<Link> = messages.iter().map(|&m| Link::decode(self.edit.body(m), ctx, at)).collect::<Result<_>>()?;
        let storage = dense_edit::create(self.store, info.creation_index.is_some())?;
        for link in &links {
            dense_edit::insert(self.store, &storage, &link.encode(ctx)?, &link.name, link.creation_order)?;
        }
        (info.fractal_heap, info.name_index, info.creation_index) = (storage.heap, storage.name_index, storage.creation_index);
        let before = messages.iter().filter(|m| *m < i).count();
        *i = i.saturating_sub(before);
        messages.iter().rev().for_each(|&m| self.edit.remove(m));
        Ok(())
    }

    /// Moves the links of a dense group into its header if they are few enough and all fit.
    fn turn_compact(&mut self) -> Result<()> {
        let min_dense = u64::from(self.group_info()?.min_dense());
        let storage = self.kind.storage();
        let count = read::len(self.store, &storage)?.unwrap_or(0);
        if count > 0 && count >= min_dense {
            return Ok(());
        }
        let mut links = Vec::new();
        read::list(self.store, &storage, 0, &mut |link, _| {
            links.push(link);
            Ok(ControlFlow::Continue(()))
        })?;
        let bodies = links.iter().map(|l| l.encode(self.store.ctx())).collect::<Result<Vec<_>>>()?;
        let longest = self.edit.body_max();
        // Unreadable links stay in dense storage.
        if links.len() as u64 != count || bodies.iter().any(|b| b.len() > longest) {
            return Ok(());
        }
        let GroupForm::New(_, info) = &mut self.kind else { return Ok(()) };
        dense_edit::delete(self.store, &(&*info).into())?;
        (info.fractal_heap, info.name_index) = (Address::UNDEF, Address::UNDEF);
        info.creation_index = info.creation_index.map(|_| Address::UNDEF);
        for body in bodies {
            self.edit.add(kind::LINK, 0, body);
        }
        Ok(())
    }

    /// True if the group tracks and indexes creation order.
    pub(super) fn tracks_order(&self) -> bool {
        matches!(&self.kind, GroupForm::New(_, info) if info.max_creation_order.is_some() && info.creation_index.is_some())
    }

    /// All links of a new-style group. Errors: one cannot be read.
    pub(super) fn links(&self) -> Result<Vec<Link>> {
        let GroupForm::New(_, info) = &self.kind else { return refuse(self.address(), libc::EINVAL) };
        if !info.is_dense() {
            let decode = |i: usize| Link::decode(self.edit.body(i), self.store.ctx(), self.address());
            return self.link_messages().into_iter().map(decode).collect();
        }
        let mut links = Vec::new();
        let skipped = read::list(self.store, &self.kind.storage(), 0, &mut |link, _| {
            links.push(link);
            Ok(ControlFlow::Continue(()))
        })?;
        skipped.map_or(Ok(links), Err)
    }

    /// Removes all links of a new-style group; the group tracks and indexes creation order next.
    pub(super) fn restart(&mut self) -> Result<()> {
        let messages = self.link_messages();
        let GroupForm::New(i, info) = &mut self.kind else { return Ok(()) };
        if info.is_dense() {
            dense_edit::delete(self.store, &(&*info).into())?;
        }
        (info.fractal_heap, info.name_index) = (Address::UNDEF, Address::UNDEF);
        (info.max_creation_order, info.creation_index) = (Some(0), Some(Address::UNDEF));
        let before = messages.iter().filter(|m| *m < i).count();
        *i = i.saturating_sub(before);
        messages.iter().rev().for_each(|&m| self.edit.remove(m));
        Ok(())
    }

    /// Writes the header; `next` is the creation order of the next link.
    pub(super) fn finish_at(mut self, next: i64) -> Result<()> {
        if let GroupForm::New(_, info) = &mut self.kind {
            info.max_creation_order = Some(next);
        }
        self.finish()
    }

    /// True if the group has no link.
    fn is_empty(&self) -> Result<bool> {
        match &self.kind {
            GroupForm::New(_, info) if !info.is_dense() => Ok(self.link_messages().is_empty()),
            kind => is_storage_empty(self.store, &kind.storage()),
        }
    }
}

/// Removes and returns the link `name`, if the group has it. Does not change the link count of a
/// hard link's object. Errors: `ENOTDIR`; damage.
pub fn remove_link(store: &Store, group: Address, name: &[u8]) -> Result<Option<Link>> {
    let mut g = Group::load(store, group)?;
    let removed = match &g.kind {
        GroupForm::SymbolTable(symbol_table) => {
            let target = symbol_table_edit::remove(store, &table(store, *symbol_table)?, name)?;
            return Ok(target.map(|target| Link { name: name.to_vec(), utf8: false, creation_order: None, target }));
        }
        GroupForm::New(_, info) if info.is_dense() => {
            let Some(message) = dense_edit::remove(store, &info.into(), name)? else { return Ok(None) };
            g.turn_compact()?;
            Some(Link::decode(&message, store.ctx(), group)?)
        }
        GroupForm::New(i, info) => match g.compact(name) {
            Some((m, link)) => {
                let i = if m < *i { i.saturating_sub(1) } else { *i };
                let info = info.clone();
                g.edit.remove(m);
                g.kind = GroupForm::New(i, info);
                Some(link)
            }
            None => None,
        },
    };
    if removed.is_none() {
        return Ok(None);
    }
    let empty = g.is_empty()?;
    if let GroupForm::New(_, info) = &mut g.kind
        && empty
    {
        info.max_creation_order = info.max_creation_order.map(|_| 0);
    }
    g.finish()?;
    Ok(removed)
}

fn is_storage_empty(store: &Store, storage: &GroupStorage) -> Result<bool> {
    if let Some(n) = read::len(store, storage)? {
        return Ok(n == 0);
    }
    let mut empty = true;
    read::list(store, storage, 0, &mut |_, _| {
        empty = false;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(empty)
}

/// Converts an old-style group into a new-style one, which holds every kind of link, as libhdf5
/// does when such a link is inserted; libhdf5 before 1.8 cannot read it. Does nothing to a
/// new-style group. Leaks the old storage, as libhdf5 does: symbol table entries elsewhere may have
/// it cached.
pub fn turn_new_style(store: &Store, group: Address) -> Result<()> {
    let mut g = Group::load(store, group)?;
    let GroupForm::SymbolTable(_) = &g.kind else { return Ok(()) };
    let mut links = Vec::new();
    read::list(store, &g.kind.storage(), 0, &mut |link, _| {
        links.push(link);
        Ok(ControlFlow::Continue(()))
    })?;
    let info = LinkInfo { max_creation_order: None, fractal_heap: Address::UNDEF, name_index: Address::UNDEF, creation_index: None };
    if let Some(i) = g.edit.find(kind::SYMBOL_TABLE) {
        g.edit.remove(i);
    }
    let i = g.edit.add(kind::LINK_INFO, 0, info.encode(store.ctx())?);
    g.edit.add(kind::GROUP_INFO, flag::CONSTANT, GroupInfo::default().encode(store.ctx())?);
    g.kind = GroupForm::New(i, info);
    for link in links {
        let utf8 = !link.name.is_ascii() && std::str::from_utf8(&link.name).is_ok();
        g.insert_new(&Link { utf8, ..link })?;
    }
    g.finish()
}

/// True if the group has no link. Errors: `ENOTDIR`; damage, if no remaining link can be read.
pub fn is_empty(store: &Store, group: Address) -> Result<bool> {
    Group::load(store, group)?.is_empty()
}

/// Frees the storage of the group's links outside of its header; the caller deletes the header
/// next. Ignores the objects of the links.
pub fn delete_group_storage(store: &Store, group: Address) -> Result<()> {
    match &Group::load(store, group)?.kind {
        GroupForm::SymbolTable(symbol_table) => symbol_table_edit::delete(store, &table(store, *symbol_table)?),
        GroupForm::New(_, info) if info.is_dense() => dense_edit::delete(store, &info.into()),
        GroupForm::New(..) => Ok(()),
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
