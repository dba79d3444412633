//! Links: making, removing and moving names.

use super::create::check_name;
use super::ids::object;
use super::ownership;
use super::paths::{creation_order, decode_link, encode_link, encode_ordered, lookup};
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::edit::Taken;
use crate::connector::{LinkFacts, LinkTarget, LinkText, ObjectId, ObjectKind};
use crate::iod::keys;
use crate::structures::order::merged;

fn no(errno: i32, reason: &'static str) -> Error {
    Error::refused(errno, reason)
}

impl State {
    /// Errors: the object is a map, which holds pairs.
    pub(super) fn check_holds_links(&self, group: u64) -> Result<()> {
        match self.kind(group)? {
            Some(ObjectKind::Map) => Err(no(libc::EPERM, "a map holds pairs, and no links")),
            _ => Ok(()),
        }
    }

    /// Adds a link.
    pub(super) fn enter(&mut self, group: u64, name: &[u8], target: &LinkTarget) -> Result<()> {
        check_name(name)?;
        self.check_holds_links(group)?;
        if lookup(self, group, name)?.is_some() {
            return Err(no(libc::EEXIST, "the name is taken"));
        }
        self.put(keys::key(group, keys::LINK, name), &encode_link(name, target)?)?;
        self.touch(group)
    }

    /// Sets the creation order of the links of a group: those in `names` in their order, the others
    /// before or after them, as they come before the first of them or not. Names without a link are
    /// skipped.
    pub(super) fn order_links(&mut self, group: u64, names: &[Vec<u8>]) -> Result<()> {
        self.check_holds_links(group)?;
        let links = self.links_by_order(group)?;
        let order = merged(links.len(), |i| links.get(i).map(|(_, name)| name.as_slice()), names);
        for (order, i) in (0i64..).zip(order) {
            let Some((now, name)) = links.get(i) else { continue };
            let key = keys::key(group, keys::LINK, name);
            let Some(body) = self.bytes(&key)?.filter(|_| *now != order) else { continue };
            self.put(key, &encode_ordered(name, &decode_link(&body, group)?, Some(order))?)?;
        }
        if links.is_empty() { Ok(()) } else { self.track_links(group) }
    }

    /// Creation orders and names of the links of a group, ascending; `i64::MAX` for those without.
    fn links_by_order(&self, group: u64) -> Result<Vec<(i64, Vec<u8>)>> {
        let mut links = Vec::new();
        for key in self.keys(&keys::of_kind(group, keys::LINK))? {
            let (Some((_, _, name)), Some(body)) = (keys::parts(&key), self.bytes(&key)?) else { continue };
            links.push((creation_order(&body, group)?.unwrap_or(i64::MAX), name.to_vec()));
        }
        links.sort_unstable();
        Ok(links)
    }

    /// Names of the links of a group in creation order, those without one last by name; `None`:
    /// none has one.
    pub(super) fn ordered_links(&self, group: u64) -> Result<Option<Vec<Vec<u8>>>> {
        let links = self.links_by_order(group)?;
        let is_ordered = links.first().is_some_and(|(order, _)| *order != i64::MAX);
        Ok(is_ordered.then(|| links.into_iter().map(|(_, name)| name).collect()))
    }

    /// Adds a hard link.
    pub(super) fn link(&mut self, group: u64, name: &[u8], target: u64) -> Result<()> {
        if self.kind(target)?.is_none() {
            return Err(no(libc::ENOENT, "there is no such object"));
        }
        self.enter(group, name, &LinkTarget::Hard(object(target)))?;
        let count = self.link_count(target)?.checked_add(1).ok_or_else(|| no(libc::EMLINK, "the object has 2^32 names"))?;
        self.set_link_count(target, count)
    }

    fn is_group(&self, target: &LinkTarget) -> Result<bool> {
        match target {
            LinkTarget::Hard(id) => Ok(self.kind(id.serial())? == Some(ObjectKind::Group)),
            _ => Ok(false),
        }
    }

    /// True for what is a directory: a group or a map.
    fn is_directory(&self, target: &LinkTarget) -> Result<bool> {
        match target {
            LinkTarget::Hard(id) => Ok(matches!(self.kind(id.serial())?, Some(ObjectKind::Group | ObjectKind::Map))),
            _ => Ok(false),
        }
    }

    fn is_only_name(&self, target: &LinkTarget) -> Result<bool> {
        match target {
            LinkTarget::Hard(id) => Ok(self.link_count(id.serial())? < 2),
            _ => Ok(false),
        }
    }

    fn is_full(&self, target: &LinkTarget) -> Result<bool> {
        match target {
            LinkTarget::Hard(id) => {
                let has = |kind| self.has_any(&keys::of_kind(id.serial(), kind));
                Ok(has(keys::LINK)? || has(keys::MAP)?)
            }
            _ => Ok(false),
        }
    }

    /// What a link led to that is gone loses a name; returned if it was the last one.
    fn drop_name(&mut self, target: &LinkTarget) -> Result<Option<ObjectId>> {
        let LinkTarget::Hard(id) = target else { return Ok(None) };
        let number = id.serial();
        let left = self.link_count(number)?.saturating_sub(1);
        if number == 0 || left > 0 {
            self.set_link_count(number, left)?;
            return Ok(None);
        }
        match self.is_held(number) {
            true => self.set_link_count(number, 0)?,
            false => self.delete_object(number)?,
        }
        Ok(Some(*id))
    }

    /// Deletes an object without names, and those that lose their last name by that.
    pub(super) fn delete_object(&mut self, id: u64) -> Result<()> {
        let mut gone = vec![id];
        while let Some(id) = gone.pop() {
            self.note_shape_only(id, false);
            for key in self.keys(&keys::of_kind(id, keys::LINK))? {
                let Some((_, _, name)) = keys::parts(&key) else { continue };
                let Some(LinkTarget::Hard(child)) = lookup(self, id, name)? else { continue };
                let child = child.serial();
                let left = self.link_count(child)?.saturating_sub(1);
                if left == 0 && child != 0 && !self.is_held(child) {
                    gone.push(child);
                } else {
                    self.set_link_count(child, left)?;
                }
            }
            for named in self.types_used(id)? {
                let left = self.link_count(named)?.saturating_sub(1);
                match self.kind(named)? {
                    Some(ObjectKind::Datatype) if left > 0 || self.is_held(named) => self.set_link_count(named, left)?,
                    Some(ObjectKind::Datatype) => gone.push(named),
                    _ => {}
                }
            }
            self.remove_all(&keys::of_object(id))?;
            self.changed(id);
            self.forms.remove_mut(&id);
            self.newlines.remove(&id);
            self.waiting.references.retain(|(dataset, ..)| *dataset != id);
            self.waiting.attributes.retain(|(object, _), _| *object != id);
            self.waiting.fills.remove(&id);
            self.waiting.types.retain(|(object, ..)| *object != id);
        }
        Ok(())
    }

    /// Removes a name.
    pub(super) fn unlink(&mut self, group: u64, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let target = lookup(self, group, name)?.ok_or_else(|| no(libc::ENOENT, "no such name"))?;
        match (directory, self.is_directory(&target)?) {
            (true, false) => return Err(no(libc::ENOTDIR, "it is neither a group nor a map")),
            (false, true) if self.is_only_name(&target)? => return Err(no(libc::EISDIR, "it is a group or a map")),
            (true, true) if self.is_full(&target)? => return Err(no(libc::ENOTEMPTY, "the directory is not empty")),
            _ => {}
        }
        self.remove(keys::key(group, keys::LINK, name))?;
        self.remove(keys::key(group, keys::LINK_OWNER, name))?;
        self.touch(group)?;
        self.drop_name(&target)
    }

    /// Owner, group and text of the soft or external link `name`.
    pub(super) fn link_facts(&self, group: u64, name: &[u8]) -> Result<LinkFacts> {
        let stored = self.bytes(&keys::key(group, keys::LINK_OWNER, name))?;
        stored.map_or(Ok(LinkFacts::default()), |body| ownership::decode_facts(&body, group))
    }

    /// Sets owner, group and text of the soft or external link `name`.
    pub(super) fn set_link_facts(&mut self, group: u64, name: &[u8], facts: &LinkFacts) -> Result<()> {
        let key = keys::key(group, keys::LINK_OWNER, name);
        match ownership::encode_facts(facts) {
            Some(body) => self.put(key, &body),
            None => self.remove(key),
        }
    }

    /// Gives a soft link the path `path` and the text `text`.
    pub(super) fn retarget(&mut self, group: u64, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        let target = lookup(self, group, name)?.filter(|target| matches!(target, LinkTarget::Soft(_)));
        let target = target.ok_or_else(|| no(libc::ENOENT, "no such soft link"))?;
        let new = LinkTarget::Soft(path.to_vec());
        if target != new {
            self.put(keys::key(group, keys::LINK, name), &encode_link(name, &new)?)?;
            self.touch(group)?;
        }
        let facts = self.link_facts(group, name)?;
        self.set_link_facts(group, name, &LinkFacts { text: text.map(|text| LinkText::new(text, path)), ..facts })
    }

    /// Moves the owner of a link.
    fn move_owner(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<()> {
        let (from, to) = (keys::key(from.0, keys::LINK_OWNER, from.1), keys::key(to.0, keys::LINK_OWNER, to.1));
        let (moved, replaced) = (self.bytes(&from)?, self.bytes(&to)?);
        if moved.is_some() {
            self.remove(from)?;
        }
        match moved {
            Some(owner) => self.put(to, &owner),
            None if replaced.is_some() => self.remove(to),
            None => Ok(()),
        }
    }

    /// Moves a name.
    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        check_name(to.1)?;
        self.check_holds_links(to.0)?;
        let there = lookup(self, to.0, to.1)?;
        if taken == Taken::Refuse && there.is_some() {
            return Err(no(libc::EEXIST, "the name is taken"));
        }
        let moved = lookup(self, from.0, from.1)?.ok_or_else(|| no(libc::ENOENT, "no such name"))?;
        if from.0 != to.0 && (self.is_group(&moved)? || there.as_ref().map_or(Ok(false), |t| self.is_group(t))?) {
            self.moves_group = true;
        }
        match (taken, there) {
            (Taken::Exchange, None) => Err(no(libc::ENOENT, "no such name")),
            (Taken::Exchange, Some(there)) => {
                let [here, away] = [from, to].map(|(group, name)| keys::key(group, keys::LINK_OWNER, name));
                let (own, other) = (self.bytes(&here)?, self.bytes(&away)?);
                for (key, owner) in [(here, other), (away, own)] {
                    match owner {
                        Some(owner) => self.put(key, &owner)?,
                        None => self.remove(key)?,
                    }
                }
                self.put(keys::key(from.0, keys::LINK, from.1), &encode_link(from.1, &there)?)?;
                self.put(keys::key(to.0, keys::LINK, to.1), &encode_link(to.1, &moved)?)?;
                self.touch(from.0)?;
                self.touch(to.0)?;
                Ok(None)
            }
            (Taken::Refuse | Taken::Replace, there) => self.replace(from, to, &moved, there),
        }
    }

    fn replace(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), moved: &LinkTarget, there: Option<LinkTarget>) -> Result<Option<ObjectId>> {
        if let Some(there) = &there {
            // Two names of one object: POSIX leaves both.
            if there == moved && matches!(there, LinkTarget::Hard(_)) {
                return Ok(None);
            }
            match (self.is_directory(moved)?, self.is_directory(there)?) {
                (true, false) => return Err(no(libc::ENOTDIR, "a directory cannot replace what is none")),
                (false, true) if self.is_only_name(there)? => return Err(no(libc::EISDIR, "only a directory can replace a directory")),
                (true, true) if self.is_full(there)? => return Err(no(libc::ENOTEMPTY, "the directory is not empty")),
                _ => {}
            }
        }
        self.remove(keys::key(from.0, keys::LINK, from.1))?;
        self.put(keys::key(to.0, keys::LINK, to.1), &encode_link(to.1, moved)?)?;
        self.move_owner(from, to)?;
        self.touch(from.0)?;
        self.touch(to.0)?;
        there.map_or(Ok(None), |there| self.drop_name(&there))
    }
}
