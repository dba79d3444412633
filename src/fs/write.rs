//! Changing a container through the file system: what each operation asks of [`Edit`], and what follows from
//! it for the nodes the kernel knows.
//!
//! Callers hold `names`: alone where names or attributes change, shared where bytes or times do.

use super::container::{ContainerFs, form};
use super::cut_names::Names;
use super::errno::errno;
use super::file::OpenFile;
use super::name::NAME_MAX;
use super::nodes::{Node, NodeKind, Place, View};
use super::page_guard::Call;
use super::symlink;
use super::types::{Attr, Changes, Entry, Errno, Handle, Ino, OpenMode, Opened};
use super::view::{CONTROL, Child};
use super::xattr::Target;
use super::{CloseError, FsResult};
use crate::base::Error;
use crate::base::escape::escaped;
use crate::connector::edit::{Edit, Taken};
use crate::connector::{Form, ObjectId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;
const WRITE: u16 = 0o222;
const OWNER: u16 = 0o700;

/// A place in a group of the main view where a name can be entered or taken out.
pub(super) struct Spot {
    dir: Arc<Node>,
    group: ObjectId,
    /// What is there.
    child: Option<Child>,
    /// File name.
    name: Vec<u8>,
    /// Link name; `None` when none can be stored.
    link_name: Option<Vec<u8>>,
}

impl Spot {
    fn node(&self) -> Option<Node> {
        let child = self.child.as_ref()?;
        Some(Node::new(&self.dir, &self.name, child.link_name.clone(), child.kind.clone()))
    }

    fn place(&self) -> Place {
        let link_name = self.link_name.clone().filter(|n| *n != self.name).map(Vec::into_boxed_slice);
        Place { parent: Some(self.dir.clone()), name: self.name.as_slice().into(), link_name }
    }

    fn is_directory(&self) -> bool {
        self.child.as_ref().is_some_and(|c| c.kind.is_directory())
    }

    pub(super) fn link(&self) -> FsResult<(ObjectId, &[u8])> {
        Ok((self.group, self.link_name.as_deref().ok_or(Errno(libc::EINVAL))?))
    }
}

/// The form of its dataset that `node` shows.
fn form_of(node: &Node) -> Form {
    if let NodeKind::Dataset(view, _) = node.kind { form(view) } else { Form::Main }
}

impl ContainerFs {
    pub(super) fn editor(&self) -> FsResult<&dyn Edit> {
        let edit = self.connector.edit().ok_or(Errno(libc::EROFS))?;
        if self.ended.load(Ordering::Acquire) { Err(Errno(libc::EROFS)) } else { Ok(edit) }
    }

    /// The errno for a change that failed. A change that is not possible for what the object is says why.
    pub(super) fn refused(&self, id: Option<ObjectId>, e: &Error) -> Errno {
        match e {
            Error::Refused { errno, .. } if !matches!(*errno, libc::EPERM | libc::EFBIG | libc::EINVAL | libc::EOPNOTSUPP) => {}
            _ => self.complain(id, e),
        }
        errno(e)
    }

    /// Nothing leads to `id` any more; its address may be used for another object.
    pub(super) fn object_gone(&self, id: Option<ObjectId>) {
        let Some(id) = id else { return };
        self.nodes.object_gone(id);
        self.changed.lock().pop(&id);
        self.logged.lock().remove(&id);
        self.cut_names.forget(Names::Links(id));
        self.cut_names.forget(Names::Attributes(id));
    }

    /// The error of opening `node` for writing, if there is one.
    pub(super) fn writable_file(&self, node: &Node) -> FsResult<()> {
        self.editor()?;
        match &node.kind {
            NodeKind::Dataset(_, id) if id.file != 0 => Err(Errno(libc::EROFS)),
            NodeKind::AttrFile(id, _) if id.file != 0 => Err(Errno(libc::EROFS)),
            NodeKind::Dataset(View::Main | View::Exact | View::Npy, _) | NodeKind::AttrFile(..) => Ok(()),
            NodeKind::Broken(_) => Err(Errno(libc::EIO)),
            _ => Err(Errno(libc::EACCES)),
        }
    }

    /// The dataset that is written to through `node`.
    fn dataset(&self, node: &Node) -> FsResult<ObjectId> {
        self.writable_file(node)?;
        node.kind.object().ok_or(Errno(libc::EACCES))
    }

    fn size(&self, id: ObjectId, form: Form) -> FsResult<u64> {
        let size = self.connector.content(id, form).and_then(|c| c.size());
        size.map_err(|e| self.failed(Some(id), &e))
    }

    pub(super) fn end_of(&self, id: ObjectId) -> Option<u64> {
        self.connector.content(id, Form::Main).and_then(|c| c.size()).ok()
    }

    pub(super) fn write_file(&self, file: &OpenFile, offset: u64, data: &[u8], now: OpenMode) -> FsResult<usize> {
        let edit = self.editor()?;
        let owner = file.owner.as_ref().ok_or(Errno(libc::EBADF))?;
        if let Some(done) = self.side_write(file, offset, data, now.append) {
            return done;
        }
        let id = self.dataset(&owner.node)?;
        let form = form_of(&owner.node);
        let write = |at, data: &[u8]| match edit.write_as(id, form, at, data) {
            Err(_) if form == Form::Main && self.became_datatype(id) => self.datatype_takes(id, at, data),
            done => done.map_err(|e| self.refused(Some(id), &e)),
        };
        let (node, call) = (&owner.node, Call { offset, len: data.len() as u64, bypasses: owner.bypasses });
        match now {
            OpenMode { written_back: true, .. } => node.write_back(offset, data, write)?,
            OpenMode { append: true, .. } => node.append(call, || self.size(id, form), |at| write(at, data))?,
            _ => node.overwrite(call, |at| write(at, data))?,
        }
        self.touched(&[id]);
        Ok(data.len())
    }

    pub(super) fn change_attributes(&self, node: &Node, changes: &Changes) -> FsResult<Attr> {
        let edit = self.editor()?;
        let now = self.attr(node);
        // What cannot be stored is taken when it changes nothing, so that copying programs end well.
        // A read-only mount shows the same without permission to write.
        // rsync keeps a file to its owner before it writes it.
        let empty = !node.kind.is_directory() && now.size == 0;
        let kept = [now.perm, now.perm & !WRITE, if empty { now.perm & OWNER } else { now.perm }];
        let same = |m: u32| kept.iter().any(|k| u32::from(*k) == m & PERMISSIONS);
        let mode = changes.mode.is_none_or(same);
        if !mode || changes.uid.is_some_and(|u| u != now.uid) || changes.gid.is_some_and(|g| g != now.gid) {
            return Err(Errno(libc::EPERM));
        }
        if let Some(size) = changes.size {
            self.view_writers.check(node)?;
            if node.kind.is_directory() {
                return Err(Errno(libc::EISDIR));
            }
            match self.side_resize(node, size) {
                Some(done) => done?,
                None => {
                    let id = self.dataset(node)?;
                    edit.set_size_as(id, form_of(node), size).map_err(|e| self.refused(Some(id), &e))?;
                    self.touched(&[id]);
                }
            }
        }
        if (changes.mtime.is_some() || changes.atime.is_some())
            && let Some(id) = node.kind.object().filter(|_| node.kind.takes_changes())
        {
            self.set_times(edit, id, changes)?;
        }
        Ok(self.attr(node))
    }

    /// The directory `ino` as a group whose names can be changed.
    fn group(&self, ino: Ino) -> FsResult<(Arc<Node>, ObjectId)> {
        self.editor()?;
        let dir = self.directory(ino)?;
        match dir.kind {
            NodeKind::Group(_, id) if id.file != 0 => Err(Errno(libc::EROFS)),
            NodeKind::Group(View::Main, id) => Ok((dir, id)),
            _ => Err(Errno(libc::EPERM)),
        }
    }

    /// The name `name` of directory `parent`, whether it is there or not.
    pub(super) fn spot(&self, parent: Ino, name: &[u8]) -> FsResult<Spot> {
        if name.len() > NAME_MAX {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        let (dir, group) = self.group(parent)?;
        if dir.parent().is_none() && name == CONTROL {
            return Err(Errno(libc::EPERM));
        }
        let tree = self.tree();
        let child = tree.lookup(&dir, name).map_err(|e| self.failed(Some(group), &e))?;
        let link_name = match &child {
            Some(c) => Some(c.link_name.as_deref().unwrap_or(&c.name).to_vec()),
            None => tree.new_name(&dir, name),
        };
        Ok(Spot { dir, group, child, name: name.to_vec(), link_name })
    }

    /// The names of the groups are others now.
    pub(super) fn names_changed(&self, groups: &[ObjectId]) {
        groups.iter().for_each(|g| self.cut_names.forget(Names::Links(*g)));
        self.touched(groups);
    }

    /// Enters a new name by `f`.
    pub(super) fn make(
        &self,
        parent: Ino,
        name: &[u8],
        f: impl FnOnce(&dyn Edit, ObjectId, &[u8]) -> Result<Option<NodeKind>, Error>,
    ) -> FsResult<Entry> {
        self.make_at(&self.spot(parent, name)?, f)
    }

    /// The same at a place that was looked up. `f` tells what the name leads to, if it knows.
    pub(super) fn make_at(
        &self,
        spot: &Spot,
        f: impl FnOnce(&dyn Edit, ObjectId, &[u8]) -> Result<Option<NodeKind>, Error>,
    ) -> FsResult<Entry> {
        let edit = self.editor()?;
        if spot.child.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        let (group, link_name) = spot.link()?;
        let made = f(edit, group, link_name).map_err(|e| self.refused(Some(group), &e))?;
        self.names_changed(&[group]);
        let Some(kind) = made else { return self.entry_in(&spot.dir, &spot.name) };
        if let Some(id) = kind.object() {
            self.touched(&[id]);
        }
        let node = self.enter(Node::new(&spot.dir, &spot.name, spot.place().link_name, kind));
        Ok(self.entry(&node))
    }

    pub(super) fn create_open(&self, parent: Ino, name: &[u8], mode: OpenMode, exclusive: bool) -> FsResult<(Entry, Opened)> {
        self.editor()?;
        let (entry, plain) = match self.side_create(parent, name, mode, exclusive) {
            Some(entry) => (entry?, false),
            None => {
                let spot = self.spot(parent, name)?;
                match spot.child {
                    Some(_) if exclusive => return Err(Errno(libc::EEXIST)),
                    Some(_) => (self.entry_in(&spot.dir, name)?, false),
                    None => self.make_file(parent, &spot)?,
                }
            }
        };
        // A name that the kernel took to be absent may be there: it does not empty the file then.
        let emptied = Changes { size: Some(0), ..Changes::default() };
        let opened = self.node(entry.attr.ino).and_then(|node| {
            let attr = if mode.truncate && entry.attr.size > 0 { self.change_attributes(&node, &emptied)? } else { entry.attr };
            Ok((attr, self.open_node(&node, mode)?))
        });
        match opened {
            // Bytes are taken as they come, and made durable later: that closing them should fail cannot be.
            Ok((attr, opened)) => {
                Ok((Entry { attr, ..entry }, Opened { no_flush: plain && !mode.read && !self.spec.commit_on_close, ..opened }))
            }
            Err(e) => {
                self.nodes.forget(entry.attr.ino, 1);
                Err(e)
            }
        }
    }

    pub(super) fn make_symlink(&self, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        let (dir, _) = self.group(parent)?;
        if let Some((file, object)) = symlink::external(target) {
            return self.make(parent, name, |edit, group, name| edit.external_link(group, name, &file, &object).map(|()| None));
        }
        let Some(path) = symlink::stored(target, &dir.path(), &self.prefix) else {
            // A name that is taken is said first, as everywhere.
            let there = self.spot(parent, name)?.child.is_some();
            return Err(Errno(if there { libc::EEXIST } else { libc::EPERM }));
        };
        self.make(parent, name, |edit, group, name| edit.symlink(group, name, &path).map(|()| None))
    }

    pub(super) fn add_name(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let node = self.node(ino)?;
        if node.is_gone() {
            return Err(Errno(libc::ENOENT));
        }
        let target = match node.kind {
            NodeKind::Dataset(View::Main, id) | NodeKind::Datatype(id) | NodeKind::Unknown(id) if id.file == 0 => id,
            // Into another view or file.
            NodeKind::Dataset(..) | NodeKind::Datatype(_) | NodeKind::Unknown(_) => return Err(Errno(libc::EXDEV)),
            NodeKind::Broken(_) => return Err(Errno(libc::EIO)),
            _ => return Err(Errno(libc::EPERM)),
        };
        let mut entry = self.make(parent, name, |edit, group, name| edit.link(group, name, target).map(|()| None))?;
        self.renamed(&node.kind);
        entry.attr = self.attr(&*self.node(entry.attr.ino)?);
        Ok(entry)
    }

    pub(super) fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> FsResult<()> {
        let edit = self.editor()?;
        if let Some(done) = self.side_remove(parent, name, directory) {
            return done;
        }
        let spot = self.spot(parent, name)?;
        let node = spot.node().ok_or(Errno(libc::ENOENT))?;
        match (directory, spot.is_directory()) {
            (true, false) => return Err(Errno(libc::ENOTDIR)),
            (false, true) => return Err(Errno(libc::EISDIR)),
            _ => {}
        }
        // A link to a group of another file is no group: only the link goes.
        let own = node.kind.object().is_some_and(|id| id.file == 0);
        let (group, link_name) = spot.link()?;
        let unlink = || edit.unlink(group, link_name, directory && own).map_err(|e| self.refused(Some(group), &e));
        let gone = self.keeping(directory.then_some(&node), unlink)?;
        self.nodes.name_gone(&node);
        self.renamed(&node.kind);
        self.object_gone(gone);
        self.names_changed(&[group]);
        Ok(())
    }

    pub(super) fn move_name(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        let edit = self.editor()?;
        let taken = match flags {
            0 => Taken::Replace,
            libc::RENAME_NOREPLACE => Taken::Refuse,
            libc::RENAME_EXCHANGE => Taken::Exchange,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if let Some(done) = self.attribute_rename(from, to, flags) {
            return done;
        }
        let (from, to) = (self.spot(from.0, from.1)?, self.spot(to.0, to.1)?);
        let node = from.node().ok_or(Errno(libc::ENOENT))?;
        let there = to.node();
        match (taken, &there) {
            (Taken::Refuse, Some(_)) => return Err(Errno(libc::EEXIST)),
            (Taken::Exchange, None) => return Err(Errno(libc::ENOENT)),
            _ => {}
        }
        // A directory that came to lie in itself would be lost.
        let within = |kind: &NodeKind, dir: &Arc<Node>| matches!(kind, NodeKind::Group(_, id) if dir.levels_up_to(*id).is_some());
        let swapped = there.as_ref().is_some_and(|t| taken == Taken::Exchange && within(&t.kind, &from.dir));
        if within(&node.kind, &to.dir) || swapped {
            return Err(Errno(libc::EINVAL));
        }
        if let Some(there) = &there {
            let same = node.kind == there.kind && node.kind.object().is_some();
            match (node.kind.is_directory(), there.kind.is_directory()) {
                _ if same && !node.kind.is_directory() => return Ok(()),
                // One group under two names: neither can be put over the other.
                (true, true) if same => return Err(Errno(libc::EBUSY)),
                (true, false) if taken == Taken::Replace => return Err(Errno(libc::ENOTDIR)),
                (false, true) if taken == Taken::Replace => return Err(Errno(libc::EISDIR)),
                _ => {}
            }
        }
        let replaced = there.as_ref().filter(|_| taken == Taken::Replace);
        let gone =
            self.keeping(replaced, || edit.rename(from.link()?, to.link()?, taken).map_err(|e| self.refused(Some(from.group), &e)))?;
        self.renamed(&node.kind);
        there.iter().for_each(|there| self.renamed(&there.kind));
        let mut moved = vec![(node, to.place())];
        match there {
            Some(there) if taken == Taken::Exchange => moved.push((there, from.place())),
            Some(there) => self.nodes.name_gone(&there),
            None => {}
        }
        self.object_gone(gone);
        self.nodes.moved(&moved);
        self.names_changed(&[from.group, to.group]);
        Ok(())
    }

    pub(super) fn change_xattr(&self, node: &Node, name: &[u8], f: impl FnOnce(&Target<'_>) -> Result<(), Error>) -> FsResult<()> {
        let edit = self.editor()?;
        let id = node.kind.object();
        if id.is_some_and(|id| id.file != 0) {
            return Err(Errno(libc::EROFS));
        }
        // The views show what the main tree has; there it is changed.
        if !matches!(
            node.kind,
            NodeKind::Group(View::Main, _) | NodeKind::Dataset(View::Main, _) | NodeKind::Datatype(_) | NodeKind::Unknown(_)
        ) {
            return Err(Errno(libc::EPERM));
        }
        let end = self.end_before(node, name);
        if end.is_some() {
            self.view_writers.check(node)?;
        }
        let target = Target { connector: &*self.connector, edit, cut: &self.cut_names, node };
        f(&target).map_err(|e| match &e {
            // What was asked for is another thing each time, and so is the reason.
            Error::Refused { errno: libc::EINVAL | libc::ERANGE | libc::EOPNOTSUPP | libc::E2BIG, .. } => {
                let path = String::from_utf8_lossy(&node.place().name).into_owned();
                tracing::warn!("{}: {path}: {e}", escaped(&self.spec.file));
                errno(&e)
            }
            _ => self.refused(id, &e),
        })?;
        if let Some(id) = id {
            self.cut_names.forget(Names::Attributes(id));
            self.attribute_changed(id, end);
        }
        Ok(())
    }

    /// The open file `handle`.
    fn open_file(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))
    }

    pub(super) fn allocate(&self, handle: Handle, offset: u64, len: u64, mode: i32) -> FsResult<()> {
        let (edit, file) = (self.editor()?, self.open_file(handle)?);
        let node = &file.owner.as_ref().ok_or(Errno(libc::EBADF))?.node;
        if !matches!(node.kind, NodeKind::Dataset(View::Main, _)) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let id = self.dataset(node)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno(if len == 0 { libc::EINVAL } else { libc::EFBIG }))?;
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zeroes = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            libc::FALLOC_FL_PUNCH_HOLE if keep => true,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let (size, padded) = (self.size(id, Form::Main)?, self.padded_end(&file));
        let failed = |e: Error| self.refused(Some(id), &e);
        let within = |size: u64| end.min(size).saturating_sub(offset);
        if zeroes {
            // What cannot be zeroed does not grow either.
            edit.zero(id, offset, 0).map_err(failed)?;
        }
        let mut grown = size;
        if end > size && !keep {
            // First: where that is refused nothing is done.
            edit.set_size(id, end).map_err(failed)?;
            grown = self.size(id, Form::Main)?;
            self.note_skipped(&file, padded, grown);
        }
        if zeroes && within(grown) > 0 {
            // What came to it holds the fill value.
            edit.zero(id, offset, within(grown)).map_err(failed)?;
        }
        if !zeroes {
            // Behind the end there is no place in the container that could be kept.
            if offset >= grown {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            edit.allocate(id, offset, within(grown)).map_err(failed)?;
        }
        self.touched(&[id]);
        Ok(())
    }

    /// Copies bytes between datasets of the main view, which others see only through it.
    pub(super) fn copy_between(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> FsResult<u64> {
        let (edit, source, file) = (self.editor()?, self.open_file(from.0)?, self.open_file(to.0)?);
        let node = |f: &OpenFile| f.owner.as_ref().map(|o| o.node.clone()).ok_or(Errno(libc::EOPNOTSUPP));
        let source = match node(&source)?.kind {
            NodeKind::Dataset(View::Main, id) if id.file == 0 => id,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let target = node(&file)?;
        if !matches!(target.kind, NodeKind::Dataset(View::Main, _)) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let id = self.dataset(&target)?;
        let end = self.padded_end(&file);
        let n = edit.copy_range((source, from.1), (id, to.1), len).map_err(|e| match &e {
            Error::Refused { errno: libc::EOPNOTSUPP, .. } => Errno(libc::EOPNOTSUPP),
            _ => self.refused(Some(id), &e),
        })?;
        self.note_skipped(&file, end, to.1);
        file.note_written();
        self.touched(&[id]);
        Ok(n)
    }

    /// What was written of a dataset that is only written as a whole becomes its elements; see [`Edit::finish`].
    pub(super) fn finish(&self, id: Option<ObjectId>, last: bool) -> FsResult<()> {
        let (Ok(edit), Some(id)) = (self.editor(), id.filter(|id| id.file == 0)) else { return Ok(()) };
        let rewritten = edit.finish(id, last).map_err(|e| {
            tracing::warn!("{}: object at {}: {e}", escaped(&self.spec.file), id.address);
            errno(&e)
        })?;
        if rewritten {
            // What is read of strings and sequences now may not be what was written.
            self.elsewhere.lock().extend(self.nodes.open_on(id));
        }
        Ok(())
    }

    /// The same when a descriptor of `handle` is closed.
    pub(super) fn finish_of(&self, handle: Handle) -> FsResult<()> {
        let file = self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))?;
        file.owner.as_ref().map_or(Ok(()), |owner| {
            if owner.writes {
                self.side_finish(&owner.node)?;
            }
            self.finish(owner.id, false)
        })
    }

    /// The same when the file is closed, and nobody is left to be told of an error.
    pub(super) fn finish_last(&self, id: Option<ObjectId>) {
        if self.finish(id, true).is_err() {
            tracing::warn!("{}: what was written makes no elements: they stay as they were", escaped(&self.spec.file));
        }
    }

    /// Bytes written to a file that was made a named datatype: `tar` makes it one first, and then writes the text.
    fn datatype_takes(&self, id: ObjectId, offset: u64, data: &[u8]) -> FsResult<()> {
        let text = self.connector.datatype_text(id).map_err(|e| self.failed(Some(id), &e))?;
        let there = usize::try_from(offset).ok().and_then(|at| text.get(at..at.checked_add(data.len())?));
        match there == Some(data) {
            true => Ok(()),
            false => Err(self.refused(Some(id), &Error::refused(libc::EPERM, "a named datatype is not changed"))),
        }
    }

    /// Makes changes durable; unless `always`, only if there are any.
    pub(super) fn commit_changes(&self, always: bool) -> FsResult<()> {
        let Ok(edit) = self.editor() else { return Ok(()) };
        if !self.dirty.swap(false, Ordering::AcqRel) && !always {
            return Ok(());
        }
        edit.commit().map_err(|e| {
            // After EROFS there is nothing to try again.
            let errno = errno(&e);
            self.dirty.store(errno != Errno(libc::EROFS), Ordering::Release);
            tracing::error!("{}: the last changes could not be made durable: {e}", escaped(&self.spec.file));
            errno
        })
    }

    /// What was written to an object and could not be stored.
    pub(super) fn tell_lost(&self, node: Option<Arc<Node>>) -> FsResult<()> {
        let (Ok(edit), Some(id)) = (self.editor(), node.and_then(|n| n.kind.object())) else { return Ok(()) };
        edit.lost(id).map_err(|e| errno(&e))
    }

    /// Lets all open files go, commits and closes.
    pub(super) fn end(&self) -> Result<(), CloseError> {
        let Some(edit) = self.connector.edit() else { return Ok(()) };
        let _alone = self.alone(&[]);
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let open: Vec<_> = self.handles.write().drain().map(|(_, file)| file).collect();
        open.iter().for_each(|file| self.close_file(file));
        self.end_replaced();
        edit.close().map_err(|e| CloseError {
            errno: if let Error::Io { errno, .. } = &e { Errno(*errno) } else { errno(&e) },
            message: format!("the last changes of {} could not be written: {e}", escaped(&self.spec.file)),
        })
    }
}
