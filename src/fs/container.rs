//! The file system of a container: [`Operations`] over a [`Connector`], composed of its parts.

use super::changes::ChangeLog;
use super::done::{Done, Invalidate};
use super::edit::{ByteEditor, NameEditor, XattrEditor};
use super::errno::errno;
use super::model::{Models, ObjectModel};
use super::mounted::Mounted;
use super::name::NAME_MAX;
use super::namespace::{Namespace, Node};
use super::open_files::{OpenFile, OpenFiles};
use super::operations::{KernelMemory, Operations};
use super::ownership;
use super::reload::Reload;
use super::retry::{ATTEMPTS, consistent, readable};
use super::sight;
use super::spec::MountSpec;
use super::stat::Stat;
use super::subtree::subtree;
use super::times::Times;
use super::types::{
    Attr, Caller, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Opened,
    Sight, Statfs, Whence,
};
use super::views::{self, Class, Host};
use super::xattr;
use crate::base::waiting;
pub use crate::connector::open::Backing;
use crate::connector::open::OpenContainer;
use crate::connector::transactions::TreeUse;
use crate::connector::{Connector, ObjectId, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's description.
pub struct ContainerFs {
    mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    stat: Arc<Stat>,
    changes: Arc<ChangeLog>,
    files: Arc<OpenFiles>,
    bytes: ByteEditor,
    names: Arc<NameEditor>,
    models: Arc<Models>,
    xattrs: XattrEditor,
    reload: Reload,
}

impl ContainerFs {
    /// The file system that shows the group `root` of `connector`, which is at `prefix` in its
    /// file.
    pub fn new(connector: Arc<dyn Connector>, root: ObjectId, prefix: Vec<Vec<u8>>, backing: Backing, spec: MountSpec) -> Self {
        Self::of_container(OpenContainer { connector, backing, free_space: None }, root, prefix, spec)
    }

    /// The file system that shows the group `root` of `container`.
    pub fn of_container(container: OpenContainer, root: ObjectId, prefix: Vec<Vec<u8>>, spec: MountSpec) -> Self {
        let mounted = Arc::new(Mounted::new(container, prefix, spec));
        let namespace = Arc::new(Namespace::new(mounted.clone(), root));
        let names = Arc::downgrade(&namespace);
        mounted.name_objects(Box::new(move |id| names.upgrade()?.path_of(id)));
        let times = Arc::new(Times::default());
        let stat = Arc::new(Stat::new(mounted.clone(), namespace.clone(), times.clone()));
        let changes = Arc::new(ChangeLog::new(mounted.clone(), namespace.clone(), times));
        let files = Arc::new(OpenFiles::new(mounted.clone(), namespace.clone(), changes.clone()));
        let names = Arc::new(NameEditor::new(mounted.clone(), namespace.clone(), changes.clone(), stat.clone()));
        let models = Models::new(mounted.clone(), namespace.clone(), changes.clone(), names.clone());
        ContainerFs {
            bytes: ByteEditor::new(mounted.clone(), changes.clone(), files.clone()),
            names,
            models: Arc::new(models),
            xattrs: XattrEditor::new(mounted.clone(), changes.clone(), files.clone()),
            reload: Reload::new(mounted.clone(), namespace.clone(), files.clone()),
            mounted,
            namespace,
            stat,
            changes,
            files,
        }
    }

    /// Name of the transaction whose tree is shown in the place of the directory `ino`.
    pub(super) fn tree_name(&self, ino: Ino) -> Option<String> {
        let node = self.namespace.nodes.get(ino)?;
        node.item.view.tree(&node.item)
    }

    /// How the tree of the transaction `name` is used; `looking`: after a request for it.
    pub(super) fn tree_use(&self, name: &str, looking: bool) -> TreeUse {
        let Some(all) = self.mounted.connector.transactions() else { return TreeUse::Ended };
        let known = all.tree_use(name);
        // What cannot be read now may be read later.
        if looking && known != TreeUse::Ended { all.look_at_tree(name).unwrap_or(known) } else { known }
    }

    /// The file system of the tree of the transaction `name`.
    pub(super) fn open_tree(&self, name: &str) -> FsResult<ContainerFs> {
        waiting::may_wait();
        let all = self.mounted.connector.transactions().ok_or(Errno(libc::EOPNOTSUPP))?;
        let connector = all.tree(name).map_err(|e| {
            tracing::warn!("the tree of transaction {name}: {e}");
            errno(&e)
        })?;
        let spec = MountSpec { trees: false, ..self.mounted.spec.clone() };
        let (group, prefix) = subtree(&*connector, &spec).map_err(|_| Errno(libc::ENOENT))?;
        Ok(Self::new(connector, group, prefix, self.mounted.backing(), spec))
    }

    fn failed(&self, node: &Node) -> impl Fn(&crate::base::Error) -> Errno + '_ {
        let id = node.item.object();
        move |e| self.mounted.failed(id, e)
    }

    /// Entries with attributes, `.` and `..` first.
    fn list_entries(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let dir = self.namespace.directory(ino)?;
        for (name, node, next) in Namespace::dots(&dir, offset) {
            if f(DirEntryPlus { name, entry: self.stat.entry(&node), next }).is_break() {
                return Ok(());
            }
        }
        self.namespace.list_open(handle, &dir, offset, &mut |child, next| {
            let (name, node) = Node::of_child(&dir, child);
            let node = self.namespace.enter(node);
            let flow = f(DirEntryPlus { name: &name, entry: self.stat.entry(&node), next });
            if flow.is_break() {
                self.namespace.nodes.forget(node.ino, 1);
            }
            flow
        })
    }

    fn set_attributes(&self, node: &Node, changes: &Changes, invalidate: &mut Invalidate) -> FsResult<Attr> {
        let edit = self.mounted.editor()?;
        if changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            ownership::set(&self.mounted, &self.changes, node, &self.stat.attr(node), changes, invalidate)?;
        }
        if let Some(size) = changes.size {
            self.bytes.resize(node, size, changes.by_path, invalidate)?;
        }
        if (changes.mtime.is_some() || changes.atime.is_some())
            && let Some(id) = node.item.object().filter(|_| node.item.writable().is_some())
        {
            self.changes.set_times(edit, id, changes)?;
        }
        Ok(self.stat.attr(node))
    }

    /// Clears the set-ID bits of `node` before a process without `CAP_FSETID` changes its bytes. No
    /// lock of names is held.
    fn clear_set_id(&self, node: &Node, invalidate: &mut Invalidate) -> FsResult<()> {
        if ownership::set_id(&self.mounted, node).is_none() {
            return Ok(());
        }
        // Alone: a mode that is set at the same time must stay.
        let _names = self.namespace.lock_alone(&[]);
        ownership::clear_set_id(&self.mounted, &self.changes, node, invalidate)
    }

    /// Clears the set-ID bits of `file` before a process without `CAP_FSETID` writes to it. The
    /// stored mode is read only if set-ID bits were set on some file since the last write.
    fn clear_set_id_of_open(&self, file: &OpenFile, invalidate: &mut Invalidate) -> FsResult<()> {
        let changes = self.mounted.set_id_changes.load(Ordering::Acquire);
        let Some(holder) = file.holder.as_ref().filter(|_| !file.is_without_set_id(changes)) else { return Ok(()) };
        self.clear_set_id(&holder.node, invalidate)?;
        file.note_without_set_id(changes);
        Ok(())
    }

    fn open_created(&self, entry: Entry, mode: OpenMode, invalidate: &mut Invalidate) -> FsResult<(Entry, Opened)> {
        let node = self.namespace.node(entry.attr.ino)?;
        // The kernel took the name to be absent: it does not truncate a file that is there.
        let truncate = Changes { size: Some(0), ..Changes::default() };
        let truncated = mode.truncate && entry.attr.size > 0;
        if truncated && mode.clears_set_id {
            ownership::clear_set_id(&self.mounted, &self.changes, &node, invalidate)?;
        }
        let attr = if truncated { self.set_attributes(&node, &truncate, invalidate)? } else { entry.attr };
        let opened = self.files.open(&node, mode)?;
        Ok((Entry { attr, ..entry }, opened))
    }

    fn sync(&self, node: Option<&Node>, invalidate: &mut Invalidate) -> FsResult<()> {
        node.map_or(Ok(()), |n| self.files.finish(n, invalidate))?;
        self.files.finish_elements(node.and_then(|n| n.item.object()), false, invalidate)?;
        self.mounted.commit(true)?;
        node.map_or(Ok(()), |n| self.bytes.write_error(n))
    }
}

impl Operations for ContainerFs {
    fn warning(&self) -> Option<String> {
        self.mounted.connector.warning()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let _names = self.namespace.lock_shared();
        let lookup = || {
            let directory = self.namespace.directory(parent)?;
            if name.len() > NAME_MAX && name.len() > directory.item.view.name_max() {
                return Err(Errno(libc::ENAMETOOLONG));
            }
            Ok(self.stat.entry(&*self.namespace.lookup(&directory, name)?))
        };
        consistent(&self.mounted, lookup, |e| self.forget(e.attr.ino, 1))
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.namespace.forget(ino, count);
    }

    fn object(&self, ino: Ino) -> Option<u64> {
        // Files that links lead to have other numbers in another opening.
        self.namespace.node(ino).ok()?.item.object().filter(|id| id.is_own()).map(ObjectId::serial)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let _names = self.namespace.lock_shared();
        let attr = || {
            // A file removed by another process has no attributes. One removed through this mount
            // may be open.
            let node = if self.mounted.changing { self.namespace.node(ino) } else { self.namespace.living(ino) }?;
            Ok(self.stat.attr(&node))
        };
        consistent(&self.mounted, attr, |_| ())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _names = self.namespace.lock_shared();
        let read = || {
            let node = self.namespace.living(ino)?;
            match node.item.class {
                Class::Symlink => self.namespace.target(&node).map_err(|e| self.mounted.failed(None, &e)),
                _ => Err(Errno(libc::EINVAL)),
            }
        };
        consistent(&self.mounted, read, |_| ())
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let open = || {
            let _names = self.namespace.lock_shared();
            let open = || self.files.open(&self.namespace.living(ino)?, mode);
            consistent(&self.mounted, open, |opened| drop(self.release(ino, opened.handle)))
        };
        self.files.view_writers.retry_busy(open)
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        readable(&self.mounted, || {
            let file = self.files.current(ino, handle)?;
            let object = || self.namespace.nodes.get(ino).and_then(|n| n.item.object());
            file.bytes.read(offset, buf).map_err(|e| self.mounted.failed(object(), &e))
        })
    }

    fn pad(&self, handle: Handle, offset: u64, buf: &mut [u8]) -> bool {
        self.files.get(handle).is_ok_and(|file| file.pad(offset, buf))
    }

    fn release(&self, ino: Ino, handle: Handle) -> Invalidate {
        let mut invalidate = Invalidate::default();
        // Nothing lists the name: the next use looks it up again.
        if let Some(node) = self.namespace.node(ino).ok().filter(|node| node.item.is_unlisted())
            && let Some(parent) = node.parent()
        {
            invalidate.names.push((parent.ino, node.place().name.into_vec()));
        }
        self.files.release(handle, &mut invalidate);
        invalidate
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        let _names = self.namespace.lock_shared();
        self.namespace.open_directory(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let _names = self.namespace.lock_shared();
        let dir = self.namespace.directory(ino)?;
        for (name, node, next) in Namespace::dots(&dir, offset) {
            if f(DirEntry { ino: node.ino, kind: FileKind::Directory, name, next }).is_break() {
                return Ok(());
            }
        }
        self.namespace.list_open(handle, &dir, offset, &mut |child, next| {
            let (name, ino, kind) = self.namespace.number(&dir, child);
            f(DirEntry { ino, kind, name: &name, next })
        })
    }

    /// The entries of one answer are of one state of the container.
    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let _names = self.namespace.lock_shared();
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            let (state, mut count, mut changed) = (self.mounted.state(), 0u64, false);
            result = self.list_entries(ino, handle, offset, &mut |entry| {
                changed = self.mounted.state() != state;
                let flow = if changed { ControlFlow::Break(()) } else { f(entry) };
                count = count.saturating_add(1);
                flow
            });
            match result {
                // Nothing was accepted yet: an empty answer would end the listing.
                Ok(()) if changed && count == 1 => {}
                Err(Errno(libc::EIO)) if count == 0 && self.mounted.check_again() => {}
                _ => return result,
            }
        }
        result
    }

    fn releasedir(&self, _ino: Ino, handle: Handle) {
        self.namespace.close_directory(handle);
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let _names = self.namespace.lock_shared();
        let get = || {
            let node = self.namespace.living(ino)?;
            xattr::get(&self.mounted, &node, name, &self.failed(&node))
        };
        consistent(&self.mounted, get, |_| ())
    }

    fn check_sight(&self, ino: Ino, sight: Sight<'_>, caller: Caller) -> FsResult<()> {
        let _names = self.namespace.lock_shared();
        let check = || {
            let node = self.namespace.living(ino)?;
            sight::check(&self.mounted, &node, sight, caller, &self.failed(&node))
        };
        consistent(&self.mounted, check, |()| ())
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _names = self.namespace.lock_shared();
        let list = || {
            let node = self.namespace.living(ino)?;
            xattr::list(&self.mounted, &node, &self.failed(&node))
        };
        consistent(&self.mounted, list, |_| ())
    }

    fn fact(&self, ino: Ino, name: &str, limit: u64) -> FsResult<Vec<u8>> {
        let _names = self.namespace.lock_shared();
        let get = || {
            let node = self.namespace.living(ino)?;
            xattr::fact(&self.mounted, &node, name, limit, &self.failed(&node))
        };
        consistent(&self.mounted, get, |_| ())
    }

    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let what = match whence {
            Whence::Data => Seek::Data,
            Whence::Hole => Seek::Hole,
        };
        let seek = || self.files.current(ino, handle)?.bytes.seek(offset, what).map_err(|e| self.mounted.failed(None, &e));
        readable(&self.mounted, seek)?.ok_or(Errno(libc::ENXIO))
    }

    fn statfs(&self) -> FsResult<Statfs> {
        Ok(self.mounted.statfs())
    }

    fn look(&self, kernel: &dyn KernelMemory) {
        self.reload.look(kernel);
    }

    fn is_writable(&self) -> bool {
        self.mounted.changing
    }

    fn is_volatile(&self, ino: Ino) -> bool {
        let view = self.namespace.nodes.get(ino).map(|node| node.item.view);
        view.is_some_and(|view| view.is_volatile() || self.mounted.changing && view.names_parts_of_bytes())
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: OpenMode) -> Done<usize> {
        Done::of(|invalidate| {
            let file = self.files.get(handle)?;
            if mode.clears_set_id {
                self.clear_set_id_of_open(&file, invalidate)?;
            }
            self.bytes.write(&file, offset, data, mode, invalidate)?;
            // The kernel does not sync a file whose pages are bypassed.
            if mode.sync && file.holder.as_ref().is_some_and(|holder| holder.bypasses) {
                self.sync(self.namespace.nodes.get(ino).as_deref(), invalidate)?;
            }
            Ok(data.len())
        })
    }

    fn setattr(&self, ino: Ino, changes: &Changes) -> Done<Attr> {
        let set = |invalidate: &mut Invalidate| {
            if changes.clears_set_id {
                self.clear_set_id(&*self.namespace.living(ino)?, invalidate)?;
            }
            let _names = self.namespace.lock_shared();
            self.set_attributes(&*self.namespace.living(ino)?, changes, invalidate)
        };
        Done::of(|invalidate| self.files.view_writers.retry_busy(|| set(invalidate)))
    }

    fn create(&self, parent: Ino, name: &[u8], creator: Creator, mode: OpenMode, exclusive: bool) -> Done<(Entry, Opened)> {
        let create = |invalidate: &mut Invalidate| {
            let _names = self.namespace.lock_alone(&[parent]);
            let entry = self.names.file(parent, name, creator, (mode, exclusive), invalidate)?;
            let opened = self.open_created(entry, mode, invalidate);
            opened.inspect_err(|_| self.forget(entry.attr.ino, 1))
        };
        Done::of(|invalidate| self.files.view_writers.retry_busy(|| create(invalidate)))
    }

    fn mknod(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.make_file(parent, name, creator, invalidate))
    }

    fn mkdir(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.make_directory(parent, name, creator, invalidate))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Done<()> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.remove(parent, name, false, invalidate))
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Done<()> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.remove(parent, name, true, invalidate))
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Done<()> {
        let prepared = self.names.prepare_rename(from, to, flags);
        let names = self.namespace.lock_alone(&[from.0, to.0]);
        let done = Done::of(|invalidate| self.names.rename(from, to, flags, prepared.as_ref(), invalidate));
        drop(names);
        drop(prepared);
        done
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Done<Entry> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.link(ino, parent, name, invalidate))
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Done<Entry> {
        let _names = self.namespace.lock_alone(&[parent]);
        Done::of(|invalidate| self.names.make_symlink(parent, name, target, creator, invalidate))
    }

    fn has_stored_pages(&self, ino: Ino) -> bool {
        self.namespace.nodes.get(ino).is_some_and(|node| node.has_page_writers())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Done<()> {
        let set = |invalidate: &mut Invalidate| {
            xattr::check_namespace(name)?;
            let node = self.namespace.living(ino)?;
            let prepared = self.xattrs.prepare(&node, name, value)?;
            let names = self.namespace.lock_alone(&[ino]);
            let set = self.xattrs.set(&*self.namespace.living(ino)?, name, value, flags, invalidate);
            drop(names);
            drop(prepared);
            set
        };
        Done::of(|invalidate| self.files.view_writers.retry_busy(|| set(invalidate)))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Done<()> {
        Done::of(|invalidate| {
            xattr::check_namespace(name)?;
            let _names = self.namespace.lock_alone(&[ino]);
            self.xattrs.remove(&*self.namespace.living(ino)?, name, invalidate)
        })
    }

    fn fallocate(&self, _ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> Done<()> {
        Done::of(|invalidate| self.bytes.allocate(handle, offset, len, mode, invalidate))
    }

    fn copy_range(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> Done<u64> {
        Done::of(|invalidate| self.bytes.copy(from, to, len, invalidate))
    }

    fn model(&self, ino: Ino) -> FsResult<ObjectModel> {
        ObjectModel::of(&self.models, ino)
    }

    fn commit(&self) -> FsResult<()> {
        self.mounted.commit_timed()
    }

    fn status(&self) -> String {
        views::status_text(&self.mounted.spec.file, &self.mounted.counters())
    }

    fn measurements(&self, mountpoint: &Path) -> String {
        views::measurements(&self.mounted.counters(), &views::label("mountpoint", &mountpoint.to_string_lossy()))
    }

    fn set_cache_bytes(&self, bytes: u64) -> bool {
        self.mounted.connector.set_cache_bytes(bytes);
        true
    }

    fn flush(&self, ino: Ino, handle: Handle) -> Done<()> {
        Done::of(|invalidate| {
            let file = self.files.get(handle)?;
            if let Some(holder) = &file.holder {
                if holder.writer.is_some() {
                    self.files.finish(&holder.node, invalidate)?;
                }
                self.files.finish_elements(holder.id, false, invalidate)?;
            }
            if file.take_written() {
                if self.mounted.spec.commit_on_close {
                    self.mounted.commit(true)?;
                }
                self.namespace.nodes.get(ino).map_or(Ok(()), |node| self.bytes.write_error(&node))?;
            }
            file.holder.as_ref().map_or(Ok(()), |holder| holder.end.check(&self.mounted, &holder.node))
        })
    }

    fn fsync(&self, ino: Ino) -> Done<()> {
        Done::of(|invalidate| self.sync(self.namespace.nodes.get(ino).as_deref(), invalidate))
    }

    fn shutdown(&self) -> Result<(), CloseError> {
        if !self.mounted.changing {
            // A thread may have the container as long as the process.
            self.mounted.connector.end_mount();
            return Ok(());
        }
        let _names = self.namespace.lock_alone(&[]);
        if !self.mounted.end() {
            return Ok(());
        }
        // The kernel is not asked to drop pages of a file system that ends.
        self.files.close_all(&mut Invalidate::default());
        self.namespace.release_all_unlinked();
        self.mounted.close()
    }
}
