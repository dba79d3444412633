//! Creating objects, and giving, moving and taking away names.

use super::super::type_uses;
use super::attributes::Values;
use super::change_parts::{NameChange, ObjectChange};
use super::errors::is_of_object;
use super::errors::refused;
use super::now;
use crate::base::{Address, Error, Result};
use crate::connector::bytes_file::bytes_file;
use crate::connector::edit::Taken;
use crate::connector::plan::{Now, plan};
use crate::connector::{DatasetSpec, LinkFacts, LinkText, ObjectId, ObjectKind};
use crate::dataset::create;
use crate::dataset::creation::Creation;
use crate::dataset::layout::new_in_log;
use crate::format::Reader;
use crate::format::message::attribute_info::AttributeInfo;
use crate::format::message::link::{Link, LinkTarget};
use crate::format::message::link_info::LinkInfo;
use crate::format::object_header::{SharedMessage, flag, kind};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::attributes::dense_edit as dense_attributes_edit;
use crate::structures::group;
use crate::structures::group::dense_edit::DenseStorage;
use crate::structures::group::edit::{self as group_edit, GroupCreation};
use crate::structures::shared_messages::edit as shared_messages_edit;

/// Groups on the way from a group to the root, at most: deeper ones are not moved.
const DEPTH_MAX: usize = 4096;
/// Groups looked at to find out whether one lies beneath another.
const BENEATH_MAX: usize = 1 << 20;
/// Attributes of a group with an object header of version 1 to which texts of links are added.
const ATTRIBUTES_MAX: usize = 1024;

impl NameChange<'_> {
    /// The link `name` of a group.
    fn find(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        let object = self.change.access.object(group)?;
        let storage = object.group_storage().map_err(|_| Error::refused(libc::ENOTDIR, "the object is not a group"))?;
        group::lookup(&object.file.store, &storage, name)
    }

    /// True if the group has a link `name`.
    pub(super) fn has_link(&self, group: ObjectId, name: &[u8]) -> Result<bool> {
        Ok(self.find(group, name)?.is_some())
    }

    /// The object that the hard link `name` of the group leads to.
    pub(super) fn member_of(&self, group: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        Ok(self.find(group, name)?.and_then(|link| self.hard(group, &link)))
    }

    fn free_name(&self, group: ObjectId, name: &[u8]) -> Result<()> {
        match self.find(group, name)? {
            None => Ok(()),
            Some(_) => Err(Error::refused(libc::EEXIST, "the name is taken")),
        }
    }

    fn put_link(&self, group: ObjectId, name: &[u8], target: LinkTarget) -> Result<()> {
        let link = Link { name: name.to_vec(), utf8: !name.is_ascii(), creation_order: None, target };
        let store = self.change.store()?;
        if !matches!(link.target, LinkTarget::Hard(_) | LinkTarget::Soft(_)) {
            // As libhdf5 does: an old-style group cannot hold it.
            group_edit::turn_new_style(&store, group.address)?;
        }
        group_edit::insert_link(&store, group.address, &link)?;
        self.change.changed(group);
        self.change.objects().touch(group)
    }

    fn take_link(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        let link = group_edit::remove_link(&*self.change.store()?, group.address, name)?;
        self.change.changed(group);
        self.change.objects().touch(group)?;
        Ok(link)
    }

    pub(super) fn created(&self, group: ObjectId, name: &[u8], address: Address) -> Result<ObjectId> {
        let id = ObjectId { file: group.file, address };
        self.change.connector.options.environment.forget(super::key(id));
        self.change.changed(id);
        self.change.objects().mark_created(id)?;
        self.put_link(group, name, LinkTarget::Hard(address))?;
        Ok(id)
    }

    /// Another name for an object.
    pub(super) fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        self.free_name(group, name)?;
        self.put_link(group, name, LinkTarget::Hard(target.address))?;
        self.change.objects().count(target, 1)?;
        self.change.editing.objects.use_object(target, |usage| usage.is_nameless = false);
        Ok(())
    }

    /// A soft link.
    pub(super) fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        self.free_name(group, name)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Error::refused(libc::EINVAL, "a link leads to a path without NUL"));
        }
        self.forget_link_facts(group, name)?;
        self.put_link(group, name, LinkTarget::Soft(target.to_vec()))
    }

    /// Removes owner, group and text of a link that another program removed.
    fn forget_link_facts(&self, group: ObjectId, name: &[u8]) -> Result<()> {
        self.set_link_facts(group, name, &LinkFacts::default())
    }

    /// A change of an attribute in an object header of version 1 reads all attributes.
    fn has_room_for_text(&self, group: ObjectId) -> Result<()> {
        let header = self.change.access.object(group)?.header;
        let full = header.prefix.version == 1 && header.all(kind::ATTRIBUTE).count() >= ATTRIBUTES_MAX;
        if full { Err(Error::refused(libc::EMLINK, "the group has too many attributes")) } else { Ok(()) }
    }

    /// Gives a soft link the path `path` and the text `text`.
    pub(super) fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        let link = self.find(group, name)?.filter(|link| matches!(link.target, LinkTarget::Soft(_)));
        let target = link.ok_or_else(|| Error::refused(libc::ENOENT, "there is no such soft link"))?.target;
        let facts = self.link_facts(group, name)?;
        if text.is_some() && facts == LinkFacts::default() {
            self.has_room_for_text(group)?;
        }
        if !matches!(target, LinkTarget::Soft(old) if old == path) {
            self.take_link(group, name)?;
            self.symlink(group, name, path)?;
        }
        self.set_link_facts(group, name, &LinkFacts { text: text.map(|text| LinkText::new(text, path)), ..facts })
    }

    /// An external link.
    pub(super) fn external_link(&self, group: ObjectId, name: &[u8], file: &[u8], object: &[u8]) -> Result<()> {
        self.free_name(group, name)?;
        if [file, object].iter().any(|part| part.is_empty() || part.contains(&0)) {
            return Err(Error::refused(libc::EINVAL, "an external link names a file and a path"));
        }
        self.forget_link_facts(group, name)?;
        self.put_link(group, name, LinkTarget::External { file: file.to_vec(), object: object.to_vec() })
    }

    /// Takes a name away.
    pub(super) fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let link = self.find(group, name)?.ok_or_else(|| Error::refused(libc::ENOENT, "there is no such name"))?;
        let target = self.hard(group, &link);
        let is_group = match target {
            Some(id) => self.change.objects().kind(id)? == ObjectKind::Group,
            None => false,
        };
        match (is_group, directory) {
            (true, false) if !self.has_other_names(target)? => return Err(Error::refused(libc::EISDIR, "it is a group")),
            (false, true) => return Err(Error::refused(libc::ENOTDIR, "it is not a group")),
            (true, true) if !self.is_empty(target)? => return Err(Error::refused(libc::ENOTEMPTY, "the group is not empty")),
            _ => {}
        }
        self.take_link_facts(group, name, &link.target)?;
        self.take_link(group, name)?;
        match target {
            Some(id) => self.change.objects().lost_a_name(id),
            None => Ok(None),
        }
    }

    fn hard(&self, group: ObjectId, link: &Link) -> Option<ObjectId> {
        match link.target {
            LinkTarget::Hard(address) => Some(ObjectId { file: group.file, address }),
            _ => None,
        }
    }

    /// Where a group's name leads to a group around it, it is shown as a symbolic link, and goes
    /// like one.
    fn has_other_names(&self, group: Option<ObjectId>) -> Result<bool> {
        group.map_or(Ok(false), |id| Ok(self.change.access.object(id)?.info().links > 1))
    }

    fn is_empty(&self, group: Option<ObjectId>) -> Result<bool> {
        group.map_or(Ok(true), |id| group_edit::is_empty(&*self.change.store()?, id.address))
    }

    /// Moves a name.
    pub(super) fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        let missing = || Error::refused(libc::ENOENT, "there is no such name");
        let link = self.find(from.0, from.1)?.ok_or_else(missing)?;
        let other = self.find(to.0, to.1)?;
        if from == to {
            return if taken == Taken::Refuse { Err(Error::refused(libc::EEXIST, "the name is taken")) } else { Ok(None) };
        }
        self.not_into_itself(&link, from.0, to.0)?;
        let mut lost = None;
        match (other, taken) {
            (Some(_), Taken::Refuse) => return Err(Error::refused(libc::EEXIST, "the name is taken")),
            (None, Taken::Exchange) => return Err(missing()),
            (Some(other), Taken::Exchange) => {
                self.not_into_itself(&other, to.0, from.0)?;
                let facts = (self.take_link_facts(from.0, from.1, &link.target)?, self.take_link_facts(to.0, to.1, &other.target)?);
                self.take_link(from.0, from.1)?;
                self.take_link(to.0, to.1)?;
                self.put_link(from.0, from.1, other.target)?;
                self.put_link(to.0, to.1, link.target)?;
                self.set_link_facts(to.0, to.1, &facts.0)?;
                self.set_link_facts(from.0, from.1, &facts.1)?;
                return Ok(None);
            }
            (Some(other), Taken::Replace) => {
                let (a, b) = (self.hard(from.0, &link), self.hard(to.0, &other));
                // Two names of one object: nothing happens, says POSIX.
                if a.is_some() && a == b {
                    return Ok(None);
                }
                self.replaceable(a, b)?;
                self.take_link_facts(to.0, to.1, &other.target)?;
                self.take_link(to.0, to.1)?;
                lost = b;
            }
            (None, _) => {}
        }
        let facts = self.take_link_facts(from.0, from.1, &link.target)?;
        self.take_link(from.0, from.1)?;
        self.put_link(to.0, to.1, link.target)?;
        self.set_link_facts(to.0, to.1, &facts)?;
        match lost {
            Some(id) => self.change.objects().lost_a_name(id),
            None => Ok(None),
        }
    }

    fn replaceable(&self, new: Option<ObjectId>, old: Option<ObjectId>) -> Result<()> {
        let is_group =
            |id: Option<ObjectId>| id.map_or(Ok(false), |id| Ok::<bool, Error>(self.change.objects().kind(id)? == ObjectKind::Group));
        match (is_group(new)?, is_group(old)?) {
            (false, true) if !self.has_other_names(old)? => Err(Error::refused(libc::EISDIR, "a group has the name")),
            (true, false) => Err(Error::refused(libc::ENOTDIR, "what has the name is not a group")),
            (true, true) if !self.is_empty(old)? => Err(Error::refused(libc::ENOTEMPTY, "the group that has the name is not empty")),
            _ => Ok(()),
        }
    }

    /// A group must not be moved beneath itself, where nothing would lead to it any more. Another
    /// of its names may.
    fn not_into_itself(&self, link: &Link, from: ObjectId, to: ObjectId) -> Result<()> {
        let Some(moved) = self.hard(from, link) else { return Ok(()) };
        if from == to || self.change.objects().kind(moved)? != ObjectKind::Group || !self.leads_to(moved, to, None)? {
            return Ok(());
        }
        let root = ObjectId { file: 0, address: self.change.connector.file(0)?.root };
        if self.leads_to(root, moved, Some((from, &link.name)))? {
            return Ok(());
        }
        Err(Error::refused(libc::EINVAL, "a group cannot be moved into itself"))
    }

    /// True when hard links lead from one group to another, the link `but` left out.
    fn leads_to(&self, start: ObjectId, wanted: ObjectId, but: Option<(ObjectId, &[u8])>) -> Result<bool> {
        let mut pending = vec![(start, 0usize)];
        let mut seen = std::collections::HashSet::new();
        while let Some((group, depth)) = pending.pop() {
            if group == wanted {
                return Ok(true);
            }
            if !seen.insert(group) {
                continue;
            }
            if depth > DEPTH_MAX || seen.len() > BENEATH_MAX {
                return Err(Error::refused(libc::EXDEV, "too much lies beneath the group to move it"));
            }
            let object = self.change.access.object(group)?;
            group::list(&object.file.store, &object.group_storage()?, 0, &mut |link, _| {
                if let LinkTarget::Hard(address) = link.target
                    && but != Some((group, &link.name))
                {
                    let id = ObjectId { file: group.file, address };
                    if self.change.objects().kind(id).is_ok_and(|k| k == ObjectKind::Group) {
                        pending.push((id, depth.saturating_add(1)));
                    }
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
        }
        Ok(false)
    }
}

impl ObjectChange<'_> {
    pub(super) fn kind(&self, id: ObjectId) -> Result<ObjectKind> {
        Ok(self.change.access.object(id)?.info().kind)
    }

    /// A new empty dataset of bytes that grows.
    pub(super) fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let seconds = now();
        let creation = self.new_file()?;
        let address = self.new_named_dataset(&creation, seconds)?;
        self.change.log().set_anchor(ObjectId { file: group.file, address }, &creation, false)?;
        let id = self.change.names().created(group, name, address)?;
        self.change.editing.objects.note_times(id, seconds);
        self.change.editing.objects.use_object(id, |usage| usage.is_new_file = true);
        Ok(id)
    }

    /// Properties of a new file: in the log, if that is the default of the container.
    fn new_file(&self) -> Result<Creation> {
        let layout = match self.change.access.written_log() {
            Some(log) if log.is_default()? => new_in_log(log.records(false)),
            _ => bytes_file().layout,
        };
        Ok(Creation { layout, ..bytes_file() })
    }

    /// A new dataset: what `spec` makes of a new file.
    pub(super) fn create_described(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId> {
        self.change.names().free_name(group, name)?;
        let store = self.change.store()?;
        let creation = self.change.log().suited(plan(&Now::new_file(self.new_file()?), spec, &mut Values::new(self.change, &store))?)?;
        let address = self.new_named_dataset(&creation, now()).map_err(refused)?;
        self.change.log().set_anchor(ObjectId { file: group.file, address }, &creation, false)?;
        if let Some(warning) = creation.layout.kind.warning() {
            tracing::warn!("object at {address}: {warning}");
        }
        self.change.names().created(group, name, address)
    }

    /// A new dataset that will have a name, made at `seconds` since 1970; it tracks the creation
    /// order of attributes where its header can.
    fn new_named_dataset(&self, creation: &Creation, seconds: u32) -> Result<Address> {
        let store = self.change.store()?;
        let tracked = store.superblock().version >= 2;
        create::create_dataset(&store, &Creation { modified: Some(seconds), ..creation.clone() }, (tracked, tracked))
    }

    /// A new dataset without a name, made at `seconds` since 1970; its header records times.
    pub(super) fn new_dataset(&self, creation: &Creation, seconds: u32) -> Result<Address> {
        create::create_dataset(&*self.change.store()?, &Creation { modified: Some(seconds), ..creation.clone() }, (false, false))
    }

    /// Creation orders that a new group in `group` tracks: netCDF writes to no file with a group
    /// that tracks none of its links. In files of old-style groups, those that `group` tracks.
    fn new_orders(&self, group: ObjectId) -> Result<GroupCreation> {
        let store = self.change.store()?;
        if store.superblock().version >= 2 {
            return Ok(GroupCreation { link_order: (true, true), attribute_order: (true, true), ..GroupCreation::default() });
        }
        let header = HeaderEdit::load(&store, group.address)?;
        let link_order = match header.find(kind::LINK_INFO) {
            Some(i) => {
                let info = LinkInfo::decode(header.body(i), store.ctx(), group.address)?;
                (info.max_creation_order.is_some(), info.creation_index.is_some())
            }
            None => (false, false),
        };
        Ok(GroupCreation { link_order, attribute_order: header.attribute_order(), ..GroupCreation::default() })
    }

    /// A new empty group.
    pub(super) fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.change.names().free_name(group, name)?;
        let creation = GroupCreation { times: Some(now()), ..self.new_orders(group)? };
        let address = group_edit::create_group(&*self.change.store()?, &creation)?;
        self.change.names().created(group, name, address)
    }

    /// Changes the number of an object's names; returns it.
    fn count(&self, id: ObjectId, by: i64) -> Result<u32> {
        let store = self.change.store()?;
        let mut header = HeaderEdit::load(&store, id.address)?;
        let links = i64::from(header.links()).saturating_add(by).max(0);
        let links = u32::try_from(links).map_err(|_| Error::refused(libc::EMLINK, "too many names"))?;
        header.set_links(links);
        header.write(&store)?;
        self.change.changed(id);
        Ok(links)
    }

    /// Removes one name from the count. Deletes an object without names, or records it until it is
    /// not held.
    fn lost_a_name(&self, id: ObjectId) -> Result<Option<ObjectId>> {
        if self.count(id, -1)? > 0 || self.kind(id)? == ObjectKind::Datatype && self.is_kept(id)? {
            return Ok(None);
        }
        if self.change.editing.objects.is_held(id) {
            self.change.editing.objects.use_object(id, |usage| usage.is_nameless = true);
        } else {
            self.delete(id)?;
        }
        Ok(Some(id))
    }

    /// Deletes an object that lost its last name while it was in use.
    pub(super) fn delete_nameless(&self, id: ObjectId) -> Result<()> {
        let usage = self.change.editing.objects.usage(id);
        if usage.holds > 0 || !usage.is_nameless {
            return Ok(());
        }
        self.delete(id)
    }

    /// Frees all storage of an object, and of committed datatypes that are unused then.
    fn delete(&self, id: ObjectId) -> Result<()> {
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            pending.extend(self.delete_one(id)?);
        }
        Ok(())
    }

    /// Frees all storage of an object; returns the committed datatypes that nothing uses any
    /// more.
    fn delete_one(&self, id: ObjectId) -> Result<Vec<ObjectId>> {
        let store = self.change.store()?;
        shared_messages_edit::forget(&store, id.address)?;
        let kind = self.kind(id)?;
        match kind {
            ObjectKind::Dataset => self.delete_data(id)?,
            ObjectKind::Group => group_edit::delete_group_storage(&store, id.address)?,
            ObjectKind::Datatype | ObjectKind::Map | ObjectKind::Unknown => {}
        }
        let mut datatypes = self.change.attributes().free_all_held(id)?;
        if kind == ObjectKind::Dataset {
            datatypes.extend(self.committed_datatype(&store, id)?);
        }
        self.delete_attributes(&store, id)?;
        HeaderEdit::delete(&store, id.address)?;
        self.change.changed(id);
        self.change.editing.objects.remove(id);
        self.change.connector.options.environment.forget(super::key(id));
        let mut unused = Vec::new();
        for address in datatypes.into_iter().filter(|a| *a != id.address) {
            let datatype = ObjectId { address, ..id };
            if self.uses_less(datatype)? {
                unused.push(datatype);
            }
        }
        Ok(unused)
    }

    /// A committed datatype is used once less; true when it must go now.
    fn uses_less(&self, id: ObjectId) -> Result<bool> {
        let store = self.change.store()?;
        // What leads to no datatype, or to one that is not counted right, is left alone.
        let counted = HeaderEdit::load(&store, id.address).is_ok_and(|h| h.links() > 0);
        if !counted || self.kind(id).ok() != Some(ObjectKind::Datatype) || self.count(id, -1)? > 0 {
            return Ok(false);
        }
        self.is_unused(id)
    }

    /// True if a committed datatype without links must go now.
    fn is_unused(&self, id: ObjectId) -> Result<bool> {
        if self.is_kept(id)? {
            return Ok(false);
        }
        let held = self.change.editing.objects.is_held(id);
        if held {
            self.change.editing.objects.use_object(id, |usage| usage.is_nameless = true);
        }
        Ok(!held)
    }

    /// True if a committed datatype without links stays, with a count of 1: the file does not count
    /// what uses its datatypes.
    fn is_kept(&self, id: ObjectId) -> Result<bool> {
        let counts = &self.change.editing.counts_types;
        let file = self.change.connector.file(0)?;
        let are_counted = *counts.get_or_init(|| type_uses::are_counted(&self.change.access, &file).unwrap_or(false));
        if !are_counted {
            self.count(id, 1)?;
        }
        Ok(!are_counted)
    }

    /// Deletes a committed datatype if it lost its last use with an attribute.
    pub(super) fn drop_unlinked_datatype(&self, id: ObjectId) -> Result<()> {
        let is_there = HeaderEdit::load(&*self.change.store()?, id.address).is_ok_and(|header| header.links() == 0);
        if is_there && self.kind(id).ok() == Some(ObjectKind::Datatype) && self.is_unused(id)? { self.delete(id) } else { Ok(()) }
    }

    /// The same as `uses_less`; the datatype is deleted then.
    pub(super) fn drop_datatype(&self, id: ObjectId) -> Result<()> {
        if self.uses_less(id)? { self.delete(id) } else { Ok(()) }
    }

    /// Frees storage of attributes outside of the header.
    fn delete_attributes(&self, store: &Store, id: ObjectId) -> Result<()> {
        let header = HeaderEdit::load(store, id.address)?;
        let Some(i) = header.find(kind::ATTRIBUTE_INFO) else { return Ok(()) };
        let info = AttributeInfo::decode(header.body(i), store.ctx(), id.address)?;
        if !info.is_dense() {
            return Ok(());
        }
        let at = DenseStorage { heap: info.fractal_heap, name_index: info.name_index, creation_index: info.creation_index };
        dense_attributes_edit::delete(store, &at)
    }

    /// The committed datatype of a dataset, if it has one.
    pub(super) fn committed_datatype(&self, store: &Store, id: ObjectId) -> Result<Option<Address>> {
        let header = HeaderEdit::load(store, id.address)?;
        let Some(m) = header.find(kind::DATATYPE).and_then(|i| header.message(i)) else { return Ok(None) };
        if m.flags & flag::SHARED == 0 {
            return Ok(None);
        }
        let mut r = Reader::new(&m.body, "shared message", id.address);
        match SharedMessage::decode(&mut r, store.ctx())? {
            SharedMessage::Object(address) => Ok(Some(address)),
            SharedMessage::Heap(_) => Ok(None),
        }
    }

    /// Frees a dataset's elements. Space that cannot be determined leaks, nothing
    /// else.
    fn delete_data(&self, id: ObjectId) -> Result<()> {
        let Ok(d) = self.change.dataset(id) else { return Ok(()) };
        let done = self
            .change
            .data()
            .check_bounds(&d)
            .and_then(|()| self.change.data().free_sequences(&d))
            .and_then(|()| self.change.delete_storage(&d));
        match done {
            Err(e) if is_of_object(&e) => {
                tracing::warn!("object at {}: it is deleted, and the space of its elements is not freed: {e}", id.address);
                Ok(())
            }
            done => done,
        }
    }
}
