//! Changes of names: create, link, remove, rename.
//!
//! In directories whose names are links of the container, names are changed here. In other
//! directories the view that shows them does.

use super::kept_type::{self, Replacement};
use crate::base::Error;
use crate::connector::ObjectId;
use crate::connector::edit::{Edit, Taken};
use crate::fs::changes::ChangeLog;
use crate::fs::create_rules::CreateRule;
use crate::fs::done::Invalidate;
use crate::fs::model::StoredLink;
use crate::fs::mounted::Mounted;
use crate::fs::name::NAME_MAX;
use crate::fs::namespace::{Namespace, Node, NodePlace};
use crate::fs::ownership;
use crate::fs::stat::Stat;
use crate::fs::symlink;
use crate::fs::types::{Changes, Creator, Entry, Errno, FileKind, FsResult, Ino, OpenMode};
use crate::fs::views::{self, Child, Class, EditView, Host, Inode, Item, new_link_name};
use crate::present::{Editor, Prepared};
use std::sync::Arc;

/// A name in a group of the mounted file, taken or free.
pub(super) struct DirectorySlot {
    pub(super) dir: Arc<Node>,
    group: ObjectId,
    /// The file that has the name.
    child: Option<Child>,
    /// File name.
    name: Vec<u8>,
    /// Link name; `None`: no link can have it.
    link_name: Option<Vec<u8>>,
}

impl DirectorySlot {
    fn node(&self) -> Option<Node> {
        let child = self.child.as_ref()?;
        Some(Node::new(&self.dir, &self.name, child.link_name.clone(), child.item.clone()))
    }

    fn place(&self) -> NodePlace {
        let link_name = self.link_name.clone().filter(|n| *n != self.name).map(Vec::into_boxed_slice);
        NodePlace { parent: Some(self.dir.clone()), name: self.name.as_slice().into(), link_name }
    }

    fn link(&self) -> FsResult<(ObjectId, &[u8])> {
        Ok((self.group, self.link_name.as_deref().ok_or(Errno(libc::EINVAL))?))
    }
}

/// What a new name leads to; `None`: it is looked up.
type Created = Option<(Class, ObjectId)>;

/// A prepared conversion of a file that is renamed; it ends when it is dropped.
pub struct PreparedRename<'a> {
    file: ObjectId,
    _prepared: Prepared<'a>,
}

/// See the module's description. Callers hold the lock of names alone.
pub struct NameEditor {
    pub(super) mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    changes: Arc<ChangeLog>,
    stat: Arc<Stat>,
}

impl NameEditor {
    /// Changes names of `namespace`.
    pub fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, changes: Arc<ChangeLog>, stat: Arc<Stat>) -> Self {
        NameEditor { mounted, namespace, changes, stat }
    }

    fn refused(&self, id: ObjectId) -> impl Fn(Error) -> Errno + '_ {
        move |e| self.mounted.refused(Some(id), &e)
    }

    /// The directory `ino` as a group whose links can be changed.
    pub(super) fn group(&self, ino: Ino) -> FsResult<(Arc<Node>, ObjectId)> {
        self.mounted.editor()?;
        let dir = self.namespace.directory(ino)?;
        match dir.item.group() {
            Some(id) if !id.is_own() => Err(Errno(libc::EROFS)),
            Some(id) if dir.item.view.edit().is_some_and(|view| view.edits_links()) => Ok((dir, id)),
            _ => Err(Errno(libc::EPERM)),
        }
    }

    /// The name `name` of directory `parent`.
    fn slot(&self, parent: Ino, name: &[u8]) -> FsResult<DirectorySlot> {
        if name.len() > NAME_MAX {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        let (dir, group) = self.group(parent)?;
        let child = self.namespace.child(&dir, name)?;
        let link_name = match &child {
            // The control directory.
            Some(c) if c.item.view.edit().is_none() => return Err(Errno(libc::EPERM)),
            Some(c) => Some(c.link_name.as_deref().unwrap_or(&c.name).to_vec()),
            None => new_link_name(&*dir, name),
        };
        Ok(DirectorySlot { dir, group, child, name: name.to_vec(), link_name })
    }

    /// Creates the name `slot` by `f`. A new object belongs to `creator`.
    fn create_at(
        &self,
        slot: &DirectorySlot,
        creator: Option<Creator>,
        f: impl FnOnce(&dyn Edit, ObjectId, &[u8]) -> Result<Created, Error>,
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        let edit = self.mounted.editor()?;
        if slot.child.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        let (group, link_name) = slot.link()?;
        let created = f(edit, group, link_name).map_err(self.refused(group))?;
        self.changes.names_changed(&[group], invalidate);
        let node = match created {
            None => self.namespace.lookup(&slot.dir, &slot.name)?,
            Some((class, id)) => {
                self.changes.changed(&[id], invalidate);
                let item = Item::object_of(slot.dir.item.view, class, id);
                let owned =
                    creator.map_or(Ok(()), |creator| ownership::created(&self.mounted, edit, (id, item.file_kind()), creator, group));
                if let Err(e) = owned {
                    // A file that others may read must not be left.
                    let removed = edit.unlink(group, link_name, class == Class::Group);
                    self.changes.removed(removed.ok().flatten());
                    return Err(self.mounted.refused(Some(group), &e));
                }
                self.namespace.enter(Node::new(&slot.dir, &slot.name, slot.place().link_name, item))
            }
        };
        Ok(self.stat.entry(&node))
    }

    /// The rule for the new link `name` in `dir`, if there is one.
    fn rule(&self, dir: &Arc<Node>, name: &[u8]) -> Option<&CreateRule> {
        if self.mounted.spec.create.is_empty() {
            return None;
        }
        let path = [self.mounted.prefix.clone(), dir.path()].concat();
        self.mounted.spec.create.iter().find(|rule| rule.applies(&path, name))
    }

    /// Creates an empty file.
    fn create_file(&self, slot: &DirectorySlot, creator: Creator, invalidate: &mut Invalidate) -> FsResult<Entry> {
        let create = |edit: &dyn Edit, group, link: &[u8]| {
            let id = match self.rule(&slot.dir, link) {
                Some(rule) => Editor { connector: &*self.mounted.connector, edit }.create_dataset(group, link, rule.description.as_bytes()),
                None => edit.create_file(group, link),
            };
            Ok(Some((Class::Dataset, id?)))
        };
        self.create_at(slot, Some(creator), create, invalidate)
    }

    /// Creates an empty file.
    pub fn make_file(&self, parent: Ino, name: &[u8], creator: Creator, invalidate: &mut Invalidate) -> FsResult<Entry> {
        self.create_file(&self.slot(parent, name)?, creator, invalidate)
    }

    /// The file `name` to be opened by `mode`, created unless it is there.
    pub fn file(
        &self,
        parent: Ino,
        name: &[u8],
        creator: Creator,
        (mode, exclusive): (OpenMode, bool),
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        self.mounted.editor()?;
        if let Some((dir, view)) = self.view_directory(parent) {
            return self.file_of_view(&dir, view, name, creator, (mode, exclusive), invalidate);
        }
        let slot = self.slot(parent, name)?;
        match slot.child {
            Some(_) if exclusive => Err(Errno(libc::EEXIST)),
            Some(_) => Ok(self.stat.entry(&*self.namespace.lookup(&slot.dir, name)?)),
            None => self.create_file(&slot, creator, invalidate),
        }
    }

    /// Creates an empty directory.
    pub fn make_directory(&self, parent: Ino, name: &[u8], creator: Creator, invalidate: &mut Invalidate) -> FsResult<Entry> {
        self.mounted.editor()?;
        if let Some((dir, view)) = self.view_directory(parent) {
            return self.directory_of_view(&dir, view, name, creator, invalidate);
        }
        let create = |edit: &dyn Edit, group, name: &[u8]| Ok(Some((Class::Group, edit.create_group(group, name)?)));
        self.create_at(&self.slot(parent, name)?, Some(creator), create, invalidate)
    }

    /// Creates a symbolic link to `target`.
    pub fn make_symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator, invalidate: &mut Invalidate) -> FsResult<Entry> {
        let slot = self.slot(parent, name)?;
        if let Some((file, object)) = symlink::external(target) {
            let link = |edit: &dyn Edit, group, name: &[u8]| edit.external_link(group, name, &file, &object);
            return self.create_link(&slot, creator, link, invalidate);
        }
        self.create_soft_link(&slot, target, creator, invalidate)
    }

    /// Creates the link `link`, which is stored as it is.
    pub fn make_stored_link(
        &self,
        parent: Ino,
        name: &[u8],
        link: &StoredLink,
        creator: Creator,
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        let slot = self.slot(parent, name)?;
        if let StoredLink::Soft { text: Some(text), .. } = link {
            return self.create_soft_link(&slot, text, creator, invalidate);
        }
        if let StoredLink::Above(levels) = link {
            let group = std::iter::successors(Some(slot.dir.clone()), |dir| dir.parent()).nth(*levels);
            return self.link_to_group(&slot, group.as_deref(), invalidate);
        }
        let create = |edit: &dyn Edit, group, name: &[u8]| match link {
            StoredLink::Soft { path, .. } => edit.symlink(group, name, path),
            StoredLink::External { file, object } => edit.external_link(group, name, file, object),
            StoredLink::Above(_) | StoredLink::UserDefined(_) => {
                Err(Error::refused(libc::EOPNOTSUPP, "links of this class cannot be created"))
            }
        };
        self.create_link(&slot, creator, create, invalidate)
    }

    /// Creates a hard link to the group that the directory `ino` shows.
    pub fn link_group(&self, parent: Ino, name: &[u8], ino: Ino, invalidate: &mut Invalidate) -> FsResult<Entry> {
        self.link_to_group(&self.slot(parent, name)?, Some(&*self.namespace.directory(ino)?), invalidate)
    }

    fn link_to_group(&self, slot: &DirectorySlot, group: Option<&Node>, invalidate: &mut Invalidate) -> FsResult<Entry> {
        let target = group.and_then(|dir| dir.item.group()).filter(|id| id.is_own()).ok_or(Errno(libc::EPERM))?;
        let create = |edit: &dyn Edit, group, name: &[u8]| edit.link(group, name, target).map(|()| None);
        self.create_at(slot, None, create, invalidate)
    }

    /// Creates a symbolic link by `f`, which belongs to `creator`.
    pub(super) fn create_link(
        &self,
        slot: &DirectorySlot,
        creator: Creator,
        f: impl FnOnce(&dyn Edit, ObjectId, &[u8]) -> Result<(), Error>,
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        let create = |edit: &dyn Edit, group, name: &[u8]| {
            f(edit, group, name)?;
            if let Err(e) = ownership::link_created(&self.mounted, edit, group, name, creator) {
                let _ = edit.unlink(group, name, false);
                return Err(e);
            }
            Ok(None)
        };
        self.create_at(slot, None, create, invalidate)
    }

    /// Creates another name of the file `ino`.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8], invalidate: &mut Invalidate) -> FsResult<Entry> {
        let node = self.namespace.node(ino)?;
        if node.is_gone() {
            return Err(Errno(libc::ENOENT));
        }
        let own = node.item.view.edit().is_some_and(|view| view.edits_links());
        let target = match (node.item.class, node.item.object()) {
            (Class::Dataset | Class::File, Some(id)) if own && id.is_own() => id,
            // Into another view or file.
            (Class::Dataset | Class::File, Some(_)) => return Err(Errno(libc::EXDEV)),
            (Class::Broken, _) => return Err(Errno(libc::EIO)),
            _ => return Err(Errno(libc::EPERM)),
        };
        let link = |edit: &dyn Edit, group, name: &[u8]| edit.link(group, name, target).map(|()| None);
        let mut entry = self.create_at(&self.slot(parent, name)?, None, link, invalidate)?;
        self.changes.renamed(&node);
        entry.attr = self.stat.attr(&*self.namespace.node(entry.attr.ino)?);
        Ok(entry)
    }

    /// Removes a name; `directory`: that of an empty directory.
    pub fn remove(&self, parent: Ino, name: &[u8], directory: bool, invalidate: &mut Invalidate) -> FsResult<()> {
        let edit = self.mounted.editor()?;
        if let Some((dir, view)) = self.view_directory(parent) {
            return self.remove_of_view(&dir, view, name, directory, invalidate);
        }
        let slot = self.slot(parent, name)?;
        let node = slot.node().ok_or(Errno(libc::ENOENT))?;
        match (directory, node.item.is_directory()) {
            (true, false) => return Err(Errno(libc::ENOTDIR)),
            (false, true) => return Err(Errno(libc::EISDIR)),
            _ => {}
        }
        // A link to a group of another file is no group: only the link is removed.
        let own = node.item.object().is_some_and(|id| id.is_own());
        let (group, link_name) = slot.link()?;
        let unlink = || edit.unlink(group, link_name, directory && own).map_err(self.refused(group));
        let removed = self.namespace.keeping(directory.then_some(&node), unlink)?;
        self.namespace.nodes.name_gone(&node);
        self.changes.renamed(&node);
        self.changes.removed(removed);
        self.changes.names_changed(&[group], invalidate);
        Ok(())
    }

    /// Prepares the conversion of a long file of bytes that [`NameEditor::rename`] moves over a
    /// dataset with a type, while other operations continue. Callers hold no lock of names.
    pub fn prepare_rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Option<PreparedRename<'_>> {
        if flags != 0 || !self.mounted.spec.keep_types {
            return None;
        }
        let replacement = {
            let _names = self.namespace.lock_shared();
            let node = self.slot(from.0, from.1).ok()?.node()?;
            let is_long = |id| self.changes.size(id).is_some_and(|size| size > kept_type::UNPREPARED_MAX_BYTES);
            node.item.dataset().filter(|id| is_long(*id))?;
            self.replacement(&node, &self.slot(to.0, to.1).ok()?.node()?)?
        };
        let prepared = replacement.prepare().unwrap_or_else(|e| {
            tracing::warn!("object at {}: the type of the dataset that it replaces is not prepared: {e}", replacement.new_file());
            None
        })?;
        Some(PreparedRename { file: replacement.new_file(), _prepared: prepared })
    }

    /// Moves a name; `flags` are those of renameat2(2). `prepared`: what
    /// [`NameEditor::prepare_rename`] prepared.
    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        prepared: Option<&PreparedRename<'_>>,
        invalidate: &mut Invalidate,
    ) -> FsResult<()> {
        let edit = self.mounted.editor()?;
        let taken = match flags {
            0 => Taken::Replace,
            libc::RENAME_NOREPLACE => Taken::Refuse,
            libc::RENAME_EXCHANGE => Taken::Exchange,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if let Some(part) = self.part(from.0, from.1) {
            return self.rename_part(part, to, taken, invalidate);
        }
        let (from, to) = (self.slot(from.0, from.1)?, self.slot(to.0, to.1)?);
        let node = from.node().ok_or(Errno(libc::ENOENT))?;
        let there = to.node();
        match (taken, &there) {
            (Taken::Refuse, Some(_)) => return Err(Errno(libc::EEXIST)),
            (Taken::Exchange, None) => return Err(Errno(libc::ENOENT)),
            _ => {}
        }
        // A directory moved into itself would be lost.
        let within = |item: &Item, dir: &Node| item.group().is_some_and(|id| dir.levels_up_to(id).is_some());
        let exchanged = there.as_ref().is_some_and(|t| taken == Taken::Exchange && within(&t.item, &from.dir));
        if within(&node.item, &to.dir) || exchanged {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(there) = &there
            && !check_replaced(&node.item, &there.item, taken)?
        {
            return Ok(());
        }
        let replaced = there.as_ref().filter(|_| taken == Taken::Replace);
        let typed = replaced.and_then(|old| self.replacement(&node, old));
        let rename = || edit.rename(from.link()?, to.link()?, taken).map_err(self.refused(from.group));
        let removed = self.namespace.keeping(replaced, rename)?;
        for slot in std::iter::once(&to).chain((taken == Taken::Exchange).then_some(&from)) {
            if let Err(e) = self.follow_text(edit, &slot.dir, slot.link()?) {
                tracing::warn!("a moved symbolic link has the path of its earlier place: {e}");
            }
        }
        if let Some(typed) = typed {
            self.keep_type(&node, &typed, prepared, invalidate);
        }
        self.changes.renamed(&node);
        there.iter().for_each(|there| self.changes.renamed(there));
        let mut moved = vec![(node, to.place())];
        match there {
            Some(there) if taken == Taken::Exchange => moved.push((there, from.place())),
            Some(there) => self.namespace.nodes.name_gone(&there),
            None => {}
        }
        self.changes.removed(removed);
        self.namespace.nodes.moved(&moved);
        self.changes.names_changed(&[from.group, to.group], invalidate);
        Ok(())
    }

    /// The replacement of `old` by `node`, if `node` may take its type.
    fn replacement(&self, node: &Node, old: &Node) -> Option<Replacement<'_>> {
        let (new, old) = (node.item.dataset()?, old.item.dataset()?);
        let edit = self.mounted.editor().ok()?;
        if !self.mounted.spec.keep_types || !new.is_own() || !old.is_own() {
            return None;
        }
        Replacement::new(&*self.mounted.connector, edit, new, old).unwrap_or_else(|e| {
            tracing::warn!("object at {new}: it does not take the type of the dataset that it replaces: {e}");
            None
        })
    }

    /// Gives the new file `node` the type of the dataset that it replaced, if it fits. Its times
    /// stay: programs set them before they rename.
    fn keep_type(&self, node: &Node, typed: &Replacement<'_>, prepared: Option<&PreparedRename<'_>>, invalidate: &mut Invalidate) {
        let (attr, id) = (self.stat.attr(node), typed.new_file());
        let kept = typed.keep_type(prepared.is_some_and(|p| p.file == id));
        if let Err(e) = &kept {
            tracing::warn!("object at {id}: it does not take the type of the dataset that it replaced: {e}");
        }
        if let Ok(edit) = self.mounted.editor()
            && !matches!(kept, Ok(false))
        {
            self.changes.changed(&[id], invalidate);
            let times = Changes { mtime: Some(attr.mtime), atime: Some(attr.atime), ..Changes::default() };
            // It was logged.
            let _ = self.changes.set_times(edit, id, &times);
        }
    }
}

/// Checks that `item` can replace `there`. False: both are one file, and nothing is done.
fn check_replaced(item: &Item, there: &Item, taken: Taken) -> FsResult<bool> {
    let same = item == there && item.object().is_some();
    match (item.is_directory(), there.is_directory()) {
        (false, _) if same => Ok(false),
        // Two names of one group: neither can replace the other.
        (true, true) if same => Err(Errno(libc::EBUSY)),
        (true, false) if taken == Taken::Replace => Err(Errno(libc::ENOTDIR)),
        (false, true) if taken == Taken::Replace => Err(Errno(libc::EISDIR)),
        _ => Ok(true),
    }
}

/// Directories whose names a view changes.
impl NameEditor {
    fn view_directory(&self, ino: Ino) -> Option<(Arc<Node>, &'static dyn EditView)> {
        let dir = self.namespace.directory(ino).ok()?;
        let view = dir.item.writable().filter(|view| !view.edits_links())?;
        Some((dir, view))
    }

    fn file_of_view(
        &self,
        dir: &Arc<Node>,
        view: &dyn EditView,
        name: &[u8],
        creator: Creator,
        (mode, exclusive): (OpenMode, bool),
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        let there = self.namespace.child(dir, name)?;
        if name.len() > NAME_MAX {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        match there {
            Some(_) if exclusive => return Err(Errno(libc::EEXIST)),
            Some(_) => {}
            None => {
                let effects = view.create(&self.mounted.context(), &**dir, name, mode)?;
                self.changes.record(effects, invalidate);
                if let (Some(id), Some(group)) = (self.namespace.child(dir, name)?.and_then(|c| c.item.object()), dir.item.group()) {
                    let owned = ownership::created(&self.mounted, self.mounted.editor()?, (id, FileKind::Regular), creator, group);
                    owned.map_err(|e| self.mounted.refused(Some(id), &e))?;
                }
            }
        }
        Ok(self.stat.entry(&*self.namespace.lookup(dir, name)?))
    }

    fn directory_of_view(
        &self,
        dir: &Arc<Node>,
        view: &dyn EditView,
        name: &[u8],
        creator: Creator,
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        if name.len() > NAME_MAX {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        if self.namespace.child(dir, name)?.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        let effects = view.make_directory(&self.mounted.context(), &**dir, name, creator)?;
        self.changes.record(effects, invalidate);
        Ok(self.stat.entry(&*self.namespace.lookup(dir, name)?))
    }

    fn remove_of_view(
        &self,
        dir: &Arc<Node>,
        view: &dyn EditView,
        name: &[u8],
        directory: bool,
        invalidate: &mut Invalidate,
    ) -> FsResult<()> {
        let child = self.namespace.child(dir, name)?.ok_or(Errno(libc::ENOENT))?;
        // Directories and links are those of the main tree.
        match (directory, child.item.is_directory()) {
            (false, true) => return Err(Errno(libc::EISDIR)),
            (true, true) => return Err(Errno(libc::EPERM)),
            (true, false) => return Err(Errno(libc::ENOTDIR)),
            (false, false) if child.item.editable().is_none() => return Err(Errno(libc::EPERM)),
            (false, false) => {}
        }
        let effects = view.remove(&self.mounted.context(), &**dir, &child)?;
        self.namespace.nodes.name_gone(&Node::of_child(dir, child).1);
        self.changes.record(effects, invalidate);
        Ok(())
    }

    /// The part of an object that `name` in directory `parent` stands for, which its view renames.
    fn part(&self, parent: Ino, name: &[u8]) -> Option<(Arc<Node>, Node, &'static dyn EditView)> {
        let dir = self.namespace.directory(parent).ok()?;
        let child = views::lookup(&self.mounted.context(), &*dir, name).ok().flatten()?;
        let view = child.item.editable().filter(|_| child.item.is_part())?;
        let node = Node::of_child(&dir, child).1;
        Some((dir, node, view))
    }

    fn rename_part(
        &self,
        (dir, node, view): (Arc<Node>, Node, &'static dyn EditView),
        to: (Ino, &[u8]),
        taken: Taken,
        invalidate: &mut Invalidate,
    ) -> FsResult<()> {
        if self.namespace.directory(to.0)?.ino != dir.ino {
            return Err(Errno(libc::EXDEV));
        }
        if node.item.writable().is_none() {
            return Err(Errno(libc::EROFS));
        }
        if taken == Taken::Exchange {
            return Err(Errno(libc::EINVAL));
        }
        let there = self.namespace.child(&dir, to.1)?;
        match &there {
            Some(c) if c.item.is_directory() => return Err(Errno(libc::EISDIR)),
            Some(c) if !c.item.is_part() || taken == Taken::Refuse => return Err(Errno(libc::EEXIST)),
            _ => {}
        }
        let renamed = view.rename(&self.mounted.context(), &*dir, &node, to.1, there.as_ref().map(|c| &c.item))?;
        let Some((link_name, effects)) = renamed else { return Ok(()) };
        if let Some(there) = there {
            self.namespace.nodes.name_gone(&Node::of_child(&dir, there).1);
        }
        let link_name = (link_name != to.1).then(|| link_name.into_boxed_slice());
        let place = NodePlace { parent: Some(dir.clone()), name: to.1.into(), link_name };
        self.namespace.nodes.moved(&[(node, place)]);
        self.changes.record(effects, invalidate);
        Ok(())
    }
}
