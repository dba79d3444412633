//! Objects and links of groups, as connectors show them.

use super::access::Access;
use super::members::Members;
use super::object::Object;
use super::{NativeConnector, log, ownership};
use crate::base::Result;
use crate::connector::{Link, LinkFacts, LinkTarget, ObjectId, ObjectInfo};
use crate::format::message::link;
use crate::structures::group::{self, order};
use std::ops::ControlFlow;

/// Items of a list of a writable file that are read at a time, at first and at most.
const LISTED_AT_ONCE: (usize, usize) = (64, 4096);

/// A link of file number `file` as the connector shows it.
fn shown(file: u32, l: link::Link) -> Link {
    let target = match l.target {
        link::LinkTarget::Hard(address) => LinkTarget::Hard(ObjectId { file, address }),
        link::LinkTarget::Soft(path) => LinkTarget::Soft(path),
        link::LinkTarget::External { file, object } => LinkTarget::External { file, object },
        link::LinkTarget::UserDefined { class, .. } => LinkTarget::UserDefined(class),
    };
    Link { name: l.name, target }
}

impl Access<'_> {
    /// The object `id`.
    pub fn object(&self, id: ObjectId) -> Result<Object> {
        match self.connector.other_files().object_elsewhere(id) {
            Some(object) => object,
            None => Object::open(&self.connector.file(id.file)?, id.address),
        }
    }

    /// What the object `id` is.
    pub(super) fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        let object = self.object(id)?;
        Ok(ObjectInfo { ownership: ownership::of(&object), ..object.info() })
    }

    /// The link `name` of `group`.
    pub(super) fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        let object = self.object(group)?;
        let Some(stored) = self.stored_name(&object.file, log::links_of(&object.file, group.address), name) else { return Ok(None) };
        let link = group::lookup(&object.file.store, &object.group_storage()?, &stored)?;
        Ok(link.map(|l| shown(group.file, link::Link { name: name.to_vec(), ..l })))
    }

    /// Facts about the link `name` of `group`.
    pub(super) fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        let object = self.object(group)?;
        let stored = self.stored_name(&object.file, log::links_of(&object.file, group.address), name);
        Ok(stored.map_or_else(LinkFacts::default, |name| ownership::of_link(&object, &name)))
    }

    /// Calls `f` with the links of `group` after position `start`. `f` reads nothing of the
    /// container.
    pub(super) fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        let object = self.object(group)?;
        let storage = object.group_storage()?;
        let (log, what) = (self.log_of(&object.file), log::links_of(&object.file, group.address));
        let mut members = Members::new(&object.file);
        let mut show = |l: link::Link, next| {
            members.add(&l);
            let name = log.as_ref().map_or(Some(&*l.name), |log| log.shown(what, &l.name)).map(|name| name.len());
            let Some(len) = name else { return Ok(ControlFlow::Continue(())) };
            // A log takes a byte off the front of some names.
            let name =
                if len == l.name.len() { l.name } else { l.name.get(l.name.len().saturating_sub(len)..).unwrap_or_default().to_vec() };
            Ok(f(shown(group.file, link::Link { name, ..l }), next))
        };
        let listed = group::list(&object.file.store, &storage, start, &mut show);
        members.announce();
        self.connector.damaged_lists.note(group, listed?);
        Ok(())
    }

    /// At most about `limit` names of links of `group`, in the order of their creation; `None`: it
    /// is not tracked.
    pub(super) fn created_links(&self, group: ObjectId, limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        let object = self.object(group)?;
        if !object.tracks_links()? {
            return Ok(None);
        }
        let (log, what) = (self.log_of(&object.file), log::links_of(&object.file, group.address));
        let mut names = Vec::new();
        order::list_by_creation(&object.file.store, &object.group_storage()?, &mut |l| {
            let shown = log.as_ref().map_or(Some(&*l.name), |log| log.shown(what, &l.name));
            names.extend(shown.map(<[u8]>::to_vec));
            if names.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Some(names))
    }
}

impl NativeConnector {
    /// Calls `f`, which may use the container, with the items of a list that `read` reads from a
    /// position on. `read` passes each item with the position after it.
    pub(super) fn each_unlocked<T>(
        &self,
        start: u64,
        read: &mut dyn FnMut(&Access<'_>, u64, &mut dyn FnMut(T, u64) -> ControlFlow<()>) -> Result<()>,
        f: &mut dyn FnMut(T, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.editing.is_none() {
            return read(&self.access(), start, f);
        }
        let (mut position, mut most) = (start, LISTED_AT_ONCE.0);
        loop {
            let mut items = Vec::new();
            read(&self.access(), position, &mut |item, next| {
                items.push((item, next));
                if items.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let is_last = items.len() < most;
            for (item, next) in items {
                position = next;
                if f(item, next).is_break() {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
            most = most.saturating_mul(2).min(LISTED_AT_ONCE.1);
        }
    }
}
