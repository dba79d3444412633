//! Files in containers: their numbers in the mirror and in the container, and the answers of the
//! container's own file system, translated.

use super::containers::{Container, InUse, Located, Open};
use super::handles::{OpenHandle, What as OpenWhat};
use super::mirror_fs::MirrorFs;
use super::node::{Inner, Key, Node, What};
use super::table::Wanted;
use crate::base::locks::Mutex;
use crate::fs::done::Invalidate;
use crate::fs::types::{Attr, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, ROOT};
use crate::fs::{Done, KernelMemory, Operations, is_of_object};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());
const BREAK: ControlFlow<()> = ControlFlow::Break(());

/// The root of the container that `node` is in.
fn root_of(node: &Arc<Node>) -> FsResult<Arc<Node>> {
    let mut at = node.clone();
    while !matches!(at.what, What::Container(_)) {
        at = at.parent().ok_or(Errno(libc::ESTALE))?;
    }
    Ok(at)
}

impl MirrorFs {
    fn locate(&self, node: &Arc<Node>) -> FsResult<Located> {
        let root = root_of(node)?;
        let (directory, entry) = self.stat_in(&root)?;
        Ok(Located { directory, entry, path: self.shown_path(&root) })
    }

    /// The container that `node` is in, open, and the number of `node` in it.
    pub(super) fn enter<'a>(&'a self, node: &'a Arc<Node>, writing: bool) -> FsResult<(InUse<'a>, Ino)> {
        let container = node.what.container().ok_or(Errno(libc::EINVAL))?;
        let entered =
            self.containers.enter(container, writing && self.changing, || self.locate(node), |open| self.take_over(container, open));
        let used = entered.inspect_err(|e| self.note_damaged(node, *e))?;
        let ino = self.inner(&used.open, node)?;
        Ok((used, ino))
    }

    /// Opens what is open in `container` again, in the opening `open`, where nothing was changed
    /// yet: names still lead to the same objects, and listings have the same positions.
    pub(super) fn take_over(&self, container: &Arc<Container>, open: &Open) {
        for file in self.handles.inside(container.number) {
            let taken = self.inner(open, &file.node).and_then(|ino| {
                let handle = self.handle_in(open, ino, &file)?;
                if file.directory && file.listed.load(Ordering::Acquire) {
                    // A directory whose listing has begun keeps its names when they change.
                    let first = |e: crate::fs::DirEntry<'_>| if e.name == b"." || e.name == b".." { CONTINUE } else { BREAK };
                    open.operations.readdir(ino, handle, 0, &mut { first })?;
                }
                Ok(())
            });
            if let Err(e) = taken {
                tracing::debug!("an open file is not found again: errno {}", e.0);
            }
        }
    }

    /// A container that cannot be opened is shown as a file from now on.
    fn note_damaged(&self, node: &Arc<Node>, error: Errno) {
        let Some(root) = root_of(node).ok().filter(|_| error == Errno(libc::EIO)) else { return };
        if let Some(parent) = root.parent() {
            self.stale_names.lock().push((parent.ino, self.shown_name(&root)));
        }
    }

    /// The number of `node` in the container as it is open now: found again by name if it was
    /// opened again.
    fn inner(&self, open: &Open, node: &Arc<Node>) -> FsResult<Ino> {
        let mut outdated = Vec::new();
        let mut at = node.clone();
        let mut ino = loop {
            if matches!(at.what, What::Container(_)) {
                break ROOT;
            }
            let inner = *at.inner.lock();
            if inner.generation == open.generation {
                break Ino(inner.ino);
            }
            outdated.push(at.clone());
            at = at.parent().ok_or(Errno(libc::ESTALE))?;
        };
        while let Some(node) = outdated.pop() {
            let mut inner = node.inner.lock();
            if inner.generation != open.generation {
                let found = open.operations.lookup(ino, &node.place().name).map_err(|_| Errno(libc::ESTALE))?;
                let (What::Inside(container, kind), now) = (&node.what, found.attr.ino) else { return Err(Errno(libc::ESTALE)) };
                // The name may lead to another object now. The kernel looks it up again.
                let (before, there) = (Ino(inner.ino), is_of_object(now));
                let other = inner.generation > 0 && before != now && (there || is_of_object(before));
                // A request of an earlier opening takes no node back to that.
                let outdated = inner.generation > open.generation;
                if *kind != found.attr.kind || other || outdated {
                    open.operations.forget(now, 1);
                    return Err(Errno(libc::ESTALE));
                }
                *inner = Inner { generation: open.generation, ino: now.0 };
                self.nodes.rename_key(&node, Key::Inside(container.number, now));
            }
            ino = Ino(inner.ino);
        }
        Ok(ino)
    }

    /// The node of `attr`, which the container counted as looked up, with one more reference of the
    /// kernel. Returns whether the mirror keeps that count: it has one for each node.
    fn enter_inside(&self, open: &Open, parent: &Arc<Node>, name: &[u8], attr: &Attr) -> FsResult<(Arc<Node>, bool)> {
        let container = parent.what.container().ok_or(Errno(libc::EINVAL))?;
        let what = What::Inside(container.clone(), attr.kind);
        let wanted = Wanted { key: Key::Inside(container.number, attr.ino), salt: container.identity, what, parent, name };
        let (node, _) = self.nodes.enter(wanted);
        let mut inner = node.inner.lock();
        let kept = inner.generation != open.generation;
        // References of an earlier opening end with it.
        if inner.generation <= open.generation {
            *inner = Inner { generation: open.generation, ino: attr.ino.0 };
        }
        drop(inner);
        Ok((node, kept))
    }

    /// The answer `entry` of the container to a look-up of `name` in `parent`.
    pub(super) fn entry_outward(&self, open: &Open, parent: &Arc<Node>, name: &[u8], entry: Entry) -> FsResult<Entry> {
        let (node, kept) = self.enter_inside(open, parent, name, &entry.attr)?;
        if !kept {
            open.operations.forget(entry.attr.ino, 1);
        }
        Ok(Entry { attr: Attr { ino: node.ino, ..entry.attr }, ..entry })
    }

    /// The node of `name` in `parent`, which is `ino` in the container, if the kernel knows it.
    pub(super) fn known_inside(&self, open: &Open, parent: &Node, ino: Ino, name: &[u8]) -> Option<Arc<Node>> {
        let found = open.operations.lookup(ino, name).ok()?.attr.ino;
        open.operations.forget(found, 1);
        self.nodes.find(Key::Inside(parent.what.container()?.number, found))
    }

    /// The last reference of the kernel to `node` was dropped.
    pub(super) fn forgotten(&self, node: &Node) {
        let Some(container) = node.what.container() else { return };
        let inner = *node.inner.lock();
        if let Some(used) = self.containers.if_open(container, Some(inner.generation)).filter(|_| inner.generation > 0) {
            used.open.operations.forget(Ino(inner.ino), 1);
        }
        self.containers.forget(container);
    }

    /// The number in the mirror of what the container knows as `inner`.
    fn outward(&self, container: &Container, inner: Ino) -> Option<Ino> {
        let key = match inner {
            ROOT => Key::Host { identity: container.identity, original: false, container: true },
            _ => Key::Inside(container.number, inner),
        };
        Some(self.nodes.find(key)?.ino)
    }

    /// What the kernel must drop, in the numbers of the mirror.
    pub(super) fn invalidate_outward(&self, container: &Container, inner: Invalidate) -> Invalidate {
        inner.outward(&|ino| self.outward(container, ino))
    }

    /// Changes something in the container of `node`, which is `Ino` there.
    pub(super) fn change_inside<T>(&self, node: &Arc<Node>, f: impl FnOnce(&Open, Ino) -> Done<T>) -> Done<T> {
        let (used, ino) = match self.enter(node, true) {
            Ok(entered) => entered,
            Err(e) => return Err(e).into(),
        };
        let done = f(&used.open, ino);
        let Some(container) = node.what.container() else { return done };
        Done { result: done.result, invalidate: self.invalidate_outward(container, done.invalidate) }
    }

    /// As `change_inside`, for an open file.
    pub(super) fn change_open<T>(&self, file: &OpenHandle, f: impl FnOnce(&Open, Ino, Handle) -> Done<T>) -> Done<T> {
        let found = self.enter(&file.node, file.mode.write).and_then(|(used, ino)| Ok((self.handle_in(&used.open, ino, file)?, used, ino)));
        let (handle, used, ino) = match found {
            Ok(found) => found,
            Err(e) => return Err(e).into(),
        };
        let done = f(&used.open, ino, handle);
        let Some(container) = file.node.what.container() else { return done };
        Done { result: done.result, invalidate: self.invalidate_outward(container, done.invalidate) }
    }

    /// The handle of `file` in the container as it is open now: opened again if that was.
    pub(super) fn handle_in(&self, open: &Open, ino: Ino, file: &OpenHandle) -> FsResult<Handle> {
        let OpenWhat::Inside(at) = &file.what else { return Err(Errno(libc::EBADF)) };
        let mut at = at.lock();
        if at.0 > open.generation {
            return Err(Errno(libc::ESTALE));
        }
        if at.0 != open.generation {
            let handle = if file.directory { open.operations.opendir(ino)? } else { open.operations.open(ino, file.mode)?.handle };
            open.handles.fetch_add(1, Ordering::AcqRel);
            *at = (open.generation, handle);
        }
        Ok(at.1)
    }

    /// Closes the handle of `file` in its container.
    pub(super) fn release_inside(&self, file: &OpenHandle) -> Invalidate {
        let (OpenWhat::Inside(at), Some(container)) = (&file.what, file.node.what.container()) else { return Invalidate::default() };
        let (generation, handle) = *at.lock();
        let Some(used) = self.containers.if_open(container, Some(generation)) else { return Invalidate::default() };
        let invalidate = if file.directory {
            used.open.operations.releasedir(ROOT, handle);
            Invalidate::default()
        } else {
            used.open.operations.release(ROOT, handle)
        };
        used.open.handles.fetch_sub(1, Ordering::AcqRel);
        self.invalidate_outward(container, invalidate)
    }

    /// Lists the directory `file` of a container with attributes.
    pub(super) fn list_plus_inside(
        &self,
        file: &OpenHandle,
        offset: u64,
        f: &mut dyn FnMut(crate::fs::DirEntryPlus<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let (used, ino) = self.enter(&file.node, false)?;
        let (open, handle) = (&used.open, self.handle_in(&used.open, ino, file)?);
        file.listed.store(true, Ordering::Release);
        let mut extra = Vec::new();
        let listed = open.operations.readdirplus(ino, handle, offset, &mut |e| {
            let mut entry = e.entry;
            let dots = e.name == b"." || e.name == b"..";
            if dots {
                entry.attr.ino = self.dot(&file.node, e.name);
                return f(crate::fs::DirEntryPlus { entry, ..e });
            }
            let Ok((node, kept)) = self.enter_inside(open, &file.node, e.name, &entry.attr) else { return ControlFlow::Break(()) };
            entry.attr.ino = node.ino;
            let flow = f(crate::fs::DirEntryPlus { entry, ..e });
            if flow.is_break() {
                // The container does not count it.
                if kept {
                    *node.inner.lock() = Inner::default();
                }
                self.nodes.forget(node.ino, 1);
            } else if !kept {
                extra.push(e.entry.attr.ino);
            }
            flow
        });
        extra.into_iter().for_each(|ino| open.operations.forget(ino, 1));
        listed
    }

    /// Lists the directory `file` of a container.
    pub(super) fn list_inside(
        &self,
        file: &OpenHandle,
        offset: u64,
        f: &mut dyn FnMut(crate::fs::DirEntry<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let (used, ino) = self.enter(&file.node, false)?;
        let handle = self.handle_in(&used.open, ino, file)?;
        file.listed.store(true, Ordering::Release);
        let container = file.node.what.container().ok_or(Errno(libc::EINVAL))?;
        used.open.operations.readdir(ino, handle, offset, &mut |e| {
            let number = || self.nodes.number(Key::Inside(container.number, e.ino), container.identity);
            let ino = if e.name == b"." || e.name == b".." { self.dot(&file.node, e.name) } else { number() };
            f(crate::fs::DirEntry { ino, ..e })
        })
    }

    /// The number of `.` or `..` in the directory `node`.
    pub(super) fn dot(&self, node: &Arc<Node>, name: &[u8]) -> Ino {
        if name == b"." { node.ino } else { node.parent().map_or(ROOT, |parent| parent.ino) }
    }

    /// Checks the open containers for changes by others, and closes those that are idle.
    pub(super) fn look_inside(&self, kernel: &dyn KernelMemory) {
        for container in self.containers.all_open() {
            if let Some(used) = self.containers.if_open(&container, None).filter(|used| !used.open.writable) {
                used.open.operations.look(&Outward { mirror: self, container: &container, kernel });
            }
        }
        self.containers.close_idle();
    }
}

/// Opening and making files.
impl MirrorFs {
    /// Opens the file `node` of a container.
    pub(super) fn open_inside(&self, node: &Arc<Node>, mode: OpenMode) -> FsResult<Opened> {
        let (used, ino) = self.enter(node, mode.write)?;
        let opened = used.open.operations.open(ino, mode)?;
        // The pages of an earlier opening may be those of another object.
        let same = node.opened.swap(used.open.generation, Ordering::AcqRel) == used.open.generation;
        Ok(Opened { keep_cache: opened.keep_cache && same, ..self.opened_inside(node, &used.open, opened, mode) })
    }

    pub(super) fn opened_inside(&self, node: &Arc<Node>, open: &Open, opened: Opened, mode: OpenMode) -> Opened {
        open.handles.fetch_add(1, Ordering::AcqRel);
        let what = OpenWhat::Inside(Mutex::new((open.generation, opened.handle)));
        let handle = self.handles.enter(OpenHandle { node: node.clone(), mode, directory: false, listed: AtomicBool::new(false), what });
        Opened { handle, ..opened }
    }

    /// Makes a file in a container by `make`, which counts it as looked up there.
    pub(super) fn make_inside(
        &self,
        parent: &Arc<Node>,
        name: &[u8],
        make: impl FnOnce(&dyn Operations, Ino) -> Done<Entry>,
    ) -> Done<Entry> {
        self.change_inside(parent, |open, ino| {
            let Done { result, invalidate } = make(&*open.operations, ino);
            Done { result: result.and_then(|entry| self.entry_outward(open, parent, name, entry)), invalidate }
        })
    }

    pub(super) fn rename_inside(&self, from: (&Arc<Node>, &[u8]), to: (&Arc<Node>, &[u8]), flags: u32) -> Done<()> {
        let (Some(a), Some(b)) = (from.0.what.container(), to.0.what.container()) else { return Err(Errno(libc::EXDEV)).into() };
        if !Arc::ptr_eq(a, b) {
            return Err(Errno(libc::EXDEV)).into();
        }
        self.change_inside(from.0, |open, parent| {
            // Opened for writing now: the numbers of both are of this opening.
            let target = match self.enter(to.0, true) {
                Ok((_, target)) => target,
                Err(e) => return Err(e).into(),
            };
            let (moved, other) = (self.known_inside(open, from.0, parent, from.1), self.known_inside(open, to.0, target, to.1));
            let done = open.operations.rename((parent, from.1), (target, to.1), flags);
            if done.result.is_ok() {
                moved.iter().for_each(|node| node.put(to.0, to.1));
                other.iter().filter(|_| flags & libc::RENAME_EXCHANGE != 0).for_each(|node| node.put(from.0, from.1));
            }
            done
        })
    }
}

/// The caches of the kernel, by numbers of a container.
struct Outward<'a> {
    mirror: &'a MirrorFs,
    container: &'a Container,
    kernel: &'a dyn KernelMemory,
}

impl KernelMemory for Outward<'_> {
    fn forget_inode(&self, ino: Ino) {
        if let Some(ino) = self.mirror.outward(self.container, ino) {
            self.kernel.forget_inode(ino);
        }
    }

    fn forget_name(&self, parent: Ino, name: &[u8]) {
        if let Some(parent) = self.mirror.outward(self.container, parent) {
            self.kernel.forget_name(parent, name);
        }
    }
}
