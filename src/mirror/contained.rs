//! Containers as embedded file systems: where a file is, and answers in the numbers of the mirror.

use super::containers::InUse;
use super::handles::{OpenHandle, What as OpenWhat};
use super::mirror_fs::MirrorFs;
use super::node::{Inner, Key, Node, What};
use crate::base::locks::Mutex;
use crate::fs::embedding::{At, Embedder, Entered, Inside, Use, remove_name};
use crate::fs::types::{Attr, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, ROOT};
use crate::fs::{Done, Invalidate, Operations};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file or directory in a container, or its root.
pub struct Contained<'a> {
    mirror: &'a MirrorFs,
    node: Arc<Node>,
    used: InUse<'a>,
    ino: Ino,
    /// Open, if the request is for an open file.
    file: Option<Arc<OpenHandle>>,
}

impl MirrorFs {
    /// `node` in its container, which is opened if it is not open, or not for `writing`.
    fn contained(&self, node: Arc<Node>, writing: bool, file: Option<Arc<OpenHandle>>) -> FsResult<Contained<'_>> {
        let (used, ino) = self.enter(&node, writing)?;
        Ok(Contained { mirror: self, node, used, ino, file })
    }

    /// The open file `file` in its container, and its handle there.
    fn contained_file(&self, file: Arc<OpenHandle>) -> FsResult<(Contained<'_>, Handle)> {
        let at = self.contained(file.node.clone(), file.mode.write, Some(file.clone()))?;
        let handle = self.handle_in(&at.used.open, at.ino, &file)?;
        Ok((at, handle))
    }

    /// The open file `file` and its handle in the container, if that is open as it was then.
    fn contained_if_open(&self, file: Arc<OpenHandle>) -> Option<(Contained<'_>, Handle)> {
        let node = file.node.clone();
        let OpenWhat::Inside(at) = &file.what else { return None };
        let (generation, handle) = *at.lock();
        let used = self.containers.if_open(node.what.container()?, Some(generation))?;
        // A file that was removed is closed by its handle alone.
        let ino = self.inner(&used.open, &node).unwrap_or(ROOT);
        Some((Contained { mirror: self, node, used, ino, file: Some(file) }, handle))
    }

    /// `node` in its container, if that is open for writing.
    fn contained_if_writable(&self, node: Arc<Node>) -> FsResult<At<Contained<'_>>> {
        let container = node.what.container().ok_or(Errno(libc::EINVAL))?;
        let Some(used) = self.containers.if_open(container, None).filter(|used| used.open.writable) else { return Ok(At::Closed) };
        let ino = self.inner(&used.open, &node)?;
        Ok(At::Inside(Contained { mirror: self, node, used, ino, file: None }))
    }
}

impl Embedder for MirrorFs {
    type Inside<'a> = Contained<'a>;

    fn own(&self) -> &dyn Operations {
        self
    }

    fn at(&self, ino: Ino, by: Use) -> FsResult<At<Contained<'_>>> {
        let node = self.node(ino)?;
        match (&node.what, by) {
            // What stat(2) shows of a container is that of its file.
            (What::Container(_), Use::Stat | Use::SetStat) => Ok(At::Own),
            (What::Container(_) | What::Inside(..), Use::Sync) => self.contained_if_writable(node),
            (What::Container(_) | What::Inside(..), _) => {
                self.contained(node, matches!(by, Use::Change | Use::SetStat), None).map(At::Inside)
            }
            _ => Ok(At::Own),
        }
    }

    fn at_handle(&self, _ino: Ino, handle: Handle) -> FsResult<At<(Contained<'_>, Handle)>> {
        let file = self.handles.get(handle)?;
        if matches!(file.what, OpenWhat::Inside(_)) { self.contained_file(file).map(At::Inside) } else { Ok(At::Own) }
    }

    fn at_close(&self, _ino: Ino, handle: Handle) -> FsResult<At<(Contained<'_>, Handle)>> {
        let file = self.handles.get(handle)?;
        if !matches!(file.what, OpenWhat::Inside(_)) {
            return Ok(At::Own);
        }
        Ok(self.contained_if_open(file).map_or(At::Closed, At::Inside))
    }

    fn closed(&self, handle: Handle, inside: Option<&Contained<'_>>) {
        self.handles.remove(handle);
        if let Some(at) = inside {
            at.used.open.handles.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        if let Some(node) = self.nodes.forget(ino, count) {
            self.forgotten(&node);
        }
    }
}

impl Contained<'_> {
    fn open_as(&self, node: Arc<Node>, mode: OpenMode, directory: bool, handle: Handle) -> Handle {
        let open = &self.used.open;
        open.handles.fetch_add(1, Ordering::AcqRel);
        let what = OpenWhat::Inside(Mutex::new((open.generation, handle)));
        self.mirror.handles.enter(OpenHandle { node, mode, directory, listed: AtomicBool::new(false), what })
    }
}

impl Inside for Contained<'_> {
    fn operations(&self) -> &dyn Operations {
        &*self.used.open.operations
    }

    fn ino(&self) -> Ino {
        self.ino
    }

    fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.used.open, &other.used.open)
    }

    fn entered(&self, name: &[u8], entry: Entry) -> FsResult<Entered> {
        let (node, kept) = self.mirror.enter_inside(&self.used.open, &self.node, name, &entry.attr)?;
        let entry = Entry { attr: Attr { ino: node.ino, ..entry.attr }, ..entry };
        Ok(Entered { entry, surplus: !kept })
    }

    fn refused(&self, entered: &Entered) {
        let ino = entered.entry.attr.ino;
        if !entered.surplus
            && let Some(node) = self.mirror.nodes.get(ino)
        {
            *node.inner.lock() = Inner::default();
        }
        self.mirror.nodes.forget(ino, 1);
    }

    fn listed(&self, name: &[u8], inner: Ino) -> Ino {
        if name == b"." || name == b".." {
            return self.mirror.dot(&self.node, name);
        }
        // The kernel may know the name by another number than that of its path.
        if let Some(node) = self.mirror.nodes.at(self.node.ino, name) {
            return node.ino;
        }
        let container = self.used.container();
        self.mirror.nodes.number(Key::Inside(container.number, inner), container.identity)
    }

    fn lists(&self) {
        self.file.iter().for_each(|file| file.listed.store(true, Ordering::Release));
    }

    fn opened(&self, outside: Ino, opened: Opened, mode: OpenMode) -> FsResult<Opened> {
        let node = self.mirror.node(outside)?;
        let generation = self.used.open.generation;
        // The pages of an earlier opening may be those of another object.
        let same = node.opened.swap(generation, Ordering::AcqRel) == generation;
        let handle = self.open_as(node, mode, false, opened.handle);
        Ok(Opened { handle, keep_cache: opened.keep_cache && same, ..opened })
    }

    fn opened_directory(&self, handle: Handle) -> Handle {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        self.open_as(self.node.clone(), mode, true, handle)
    }

    fn outward(&self, invalidate: Invalidate) -> Invalidate {
        invalidate.outward(&|ino| self.mirror.outward(self.used.container(), ino))
    }

    fn remove(&self, name: &[u8], is_directory: bool) -> Done<()> {
        let open = &self.used.open;
        let known = self.mirror.known_inside(open, &self.node, self.ino, name);
        let done = remove_name(self.operations(), self.ino, name, is_directory);
        if let (Ok(()), Some((node, is_last))) = (&done.result, known) {
            self.mirror.removed_inside(open, &node, is_last);
        }
        done
    }

    /// Nodes of what is moved are in their new places afterwards.
    fn rename(&self, name: &[u8], to: (&Self, &[u8]), flags: u32) -> Done<()> {
        let ((target, new_name), open) = (to, &self.used.open);
        let known = |at: &Contained<'_>, name| self.mirror.known_inside(open, &at.node, at.ino, name);
        let (moved, other) = (known(self, name), known(target, new_name));
        let done = open.operations.rename((self.ino, name), (target.ino, new_name), flags);
        let is_one = moved.as_ref().zip(other.as_ref()).is_some_and(|((moved, _), (other, _))| Arc::ptr_eq(moved, other));
        if done.result.is_err() || is_one {
            return done;
        }
        match other {
            Some((other, _)) if flags & libc::RENAME_EXCHANGE != 0 => self.mirror.nodes.put(&other, &self.node, name),
            Some((other, is_last)) => self.mirror.removed_inside(open, &other, is_last),
            None => {}
        }
        if let Some((moved, _)) = moved {
            self.mirror.nodes.put(&moved, &target.node, new_name);
        }
        done
    }
}
