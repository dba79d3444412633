//! Numbers and handles of files in containers: those in the mirror, and those in the container as
//! it is open now.

use super::containers::{Container, InUse, Located, Open};
use super::handles::{OpenHandle, What as OpenWhat};
use super::mirror_fs::MirrorFs;
use super::node::{Inner, Key, Node, What};
use super::table::{By, Wanted};
use crate::fs::types::{Attr, Errno, FileKind, FsResult, Handle, Ino, ROOT};
use crate::fs::{KernelMemory, is_of_object};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// What the container that is open as `open` knows as `ino`.
fn inner_of(open: &Open, ino: Ino) -> Inner {
    Inner { generation: open.generation, ino: ino.0, object: open.operations.object(ino).unwrap_or(0) }
}

/// False if a node that was `before` in an earlier opening is not `now`, as far as numbers say: a
/// name may lead to another object.
fn may_be_same(before: &Inner, now: &Inner) -> bool {
    if before.generation == 0 {
        return true;
    }
    if before.object != 0 && now.object != 0 {
        return before.object == now.object;
    }
    let are_of_objects = is_of_object(Ino(before.ino)) || is_of_object(Ino(now.ino));
    before.ino == now.ino || !are_of_objects
}

/// True if a node that was `before`, found by its place or by its number, is `now`. Numbers of
/// paths may be those of other files in another opening.
fn is_same(before: &Inner, now: &Inner, by: By) -> bool {
    if before.generation == now.generation {
        return before.ino == now.ino;
    }
    match by {
        By::Place => may_be_same(before, now),
        By::Key => before.generation == 0 || before.object != 0 && before.object == now.object && is_of_object(Ino(now.ino)),
    }
}

impl MirrorFs {
    fn locate(&self, node: &Arc<Node>) -> FsResult<Located> {
        let root = root_of(node)?;
        let (directory, entry) = self.stat_in(&root)?;
        Ok(Located { directory, entry, path: self.shown_path(&root) })
    }

    /// The container that `node` is in, open, and the number of `node` in it.
    pub(super) fn enter(&self, node: &Arc<Node>, writing: bool) -> FsResult<(InUse<'_>, Ino)> {
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
    pub(super) fn inner(&self, open: &Open, node: &Arc<Node>) -> FsResult<Ino> {
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
        // The name of a file that was removed leads to another one, if to any.
        if outdated.iter().any(|node| node.is_gone()) {
            return Err(Errno(libc::ESTALE));
        }
        while let Some(node) = outdated.pop() {
            // Without the lock of the number: a listing of the container, which has locks of its
            // own, takes it, too.
            let found = open.operations.lookup(ino, &node.place().name).map_err(|_| Errno(libc::ESTALE))?;
            let (What::Inside(container, kind), next) = (&node.what, inner_of(open, found.attr.ino)) else {
                return Err(Errno(libc::ESTALE));
            };
            let (renewed, now) = {
                let mut inner = node.inner.lock();
                // A request of an earlier opening takes no node back to that.
                let renewed = inner.generation < open.generation && *kind == found.attr.kind && may_be_same(&inner, &next);
                if renewed {
                    *inner = next;
                }
                (renewed, *inner)
            };
            match renewed {
                true => self.nodes.rename_key(&node, Key::Inside(container.number, found.attr.ino)),
                // Another request was first, or the name leads to another object now: the kernel
                // looks it up again.
                false => open.operations.forget(found.attr.ino, 1),
            }
            if now.generation != open.generation {
                return Err(Errno(libc::ESTALE));
            }
            ino = Ino(now.ino);
        }
        Ok(ino)
    }

    /// The node of `attr`, which the container counted as looked up, with one more reference of the
    /// kernel. Returns whether the mirror keeps that count: it has one for each node.
    pub(super) fn enter_inside(&self, open: &Open, parent: &Arc<Node>, name: &[u8], attr: &Attr) -> FsResult<(Arc<Node>, bool)> {
        let container = parent.what.container().ok_or(Errno(libc::EINVAL))?;
        let what = What::Inside(container.clone(), attr.kind);
        let wanted = Wanted { key: Key::Inside(container.number, attr.ino), salt: container.identity, what, parent, name };
        let now = inner_of(open, attr.ino);
        let (node, _) = self.nodes.enter_if(wanted, &|node, by| is_same(&node.inner.lock(), &now, by));
        let mut inner = node.inner.lock();
        let kept = inner.generation != open.generation;
        // References of an earlier opening end with it.
        if inner.generation <= open.generation {
            *inner = now;
        }
        drop(inner);
        Ok((node, kept))
    }

    /// The node of `name` in `parent`, which is `ino` in the container, if the kernel knows it, and
    /// whether its file has no other name.
    pub(super) fn known_inside(&self, open: &Open, parent: &Node, ino: Ino, name: &[u8]) -> Option<(Arc<Node>, bool)> {
        let container = parent.what.container()?;
        let attr = open.operations.lookup(ino, name).ok()?.attr;
        let (now, key) = (inner_of(open, attr.ino), Key::Inside(container.number, attr.ino));
        let is_it = |node: &Arc<Node>, by| {
            matches!(&node.what, What::Inside(_, kind) if *kind == attr.kind) && is_same(&node.inner.lock(), &now, by)
        };
        let at_place = self.nodes.at(parent.ino, name).filter(|node| is_it(node, By::Place));
        let found = at_place.or_else(|| self.nodes.find(key).filter(|node| is_it(node, By::Key)));
        // One of an earlier opening has its number of this one from now on.
        let renewed = found.as_ref().is_some_and(|node| {
            let mut inner = node.inner.lock();
            let is_older = inner.generation < now.generation;
            *inner = if is_older { now } else { *inner };
            is_older
        });
        match &found {
            Some(node) if renewed => self.nodes.rename_key(node, key),
            _ => open.operations.forget(attr.ino, 1),
        }
        Some((found?, attr.kind == FileKind::Directory || attr.nlink <= 1))
    }

    /// The name of `node` in the open container `open` was removed; `is_last`: its last one. While
    /// the kernel knows the file, the container stays open: no name leads to the file any more.
    pub(super) fn removed_inside(&self, open: &Open, node: &Arc<Node>, is_last: bool) {
        self.nodes.remove(node, is_last);
        if is_last && node.inner.lock().generation == open.generation {
            open.handles.fetch_add(1, Ordering::AcqRel);
            node.holds.store(true, Ordering::Release);
            // The kernel may have forgotten it meanwhile.
            if self.nodes.get(node.ino).is_none() && node.holds.swap(false, Ordering::AcqRel) {
                open.handles.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// The last reference of the kernel to `node` was dropped.
    pub(super) fn forgotten(&self, node: &Node) {
        let Some(container) = node.what.container() else { return };
        let inner = *node.inner.lock();
        if let Some(used) = self.containers.if_open(container, Some(inner.generation)).filter(|_| inner.generation > 0) {
            used.open.operations.forget(Ino(inner.ino), 1);
            if node.holds.swap(false, Ordering::AcqRel) {
                used.open.handles.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.containers.forget(container);
    }

    /// The number in the mirror of what the container knows as `inner`.
    pub(super) fn outward(&self, container: &Container, inner: Ino) -> Option<Ino> {
        let key = match inner {
            ROOT => Key::Host { identity: container.identity, original: false, container: true },
            _ => Key::Inside(container.number, inner),
        };
        Some(self.nodes.find(key)?.ino)
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
