//! A container that others change while it is mounted: what is known of one state is brought to the next.
//!
//! ```text
//! look (watching thread)   the connector shows another state -> nodes and open files are outdated
//!   request                finds what it needs of them again, by path; one that met the change midway is made again
//!   watching thread        finds all of them again, and tells the kernel what to forget
//! ```
//!
//! That the kernel forgets everything outdated: a request that enters a node looks at the state's number after that. Either it
//! is still the old one, and the thread, which goes through the nodes later, meets this node; or it is not, and the request is made
//! again.

use super::container::{Backing, ContainerFs};
use super::nodes::{Node, NodeKind, View};
use super::types::{DirEntryPlus, Errno, Handle, Ino, ROOT};
use super::{FsResult, KernelMemory};
use crate::connector::{Follow, ObjectId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Times that a request is made which meets changes or what cannot be read just then.
const TRIES: u32 = 3;
/// Replies that are ready when the state changes are with the kernel after this: what they say is forgotten as well.
const UNDER_WAY: Duration = Duration::from_millis(20);

impl ContainerFs {
    /// Number of the container's state.
    pub(super) fn state(&self) -> u64 {
        self.connector.follow().map_or(0, Follow::state)
    }

    /// The group that is mounted.
    pub(super) fn root_group(&self) -> Option<ObjectId> {
        self.connector.follow().map(|f| f.mounted().0).or_else(|| self.nodes.root().kind.object())
    }

    /// What is known of the backing file.
    pub(super) fn backing(&self) -> Backing {
        let Some(follow) = self.connector.follow() else { return self.backing };
        let (_, s) = follow.mounted();
        Backing { atime: s.atime, mtime: s.mtime, ctime: s.ctime, len: s.len }
    }

    fn look_at(&self, follow: &dyn Follow, failed: bool) -> bool {
        let changed = follow.look(failed);
        if changed {
            self.cut_names.clear();
        }
        changed
    }

    /// Something cannot be read: true when that may be another now.
    pub(super) fn look_again(&self) -> bool {
        self.connector.follow().is_some_and(|f| self.look_at(f, true))
    }

    /// The answer of `f` in one state of the container. `undo` takes back what an answer that is not given did.
    pub(super) fn whole<T>(&self, f: impl Fn() -> FsResult<T>, undo: impl Fn(&T)) -> FsResult<T> {
        let Some(follow) = self.connector.follow() else { return f() };
        for _ in 1..TRIES {
            let state = follow.state();
            let result = f();
            match &result {
                Ok(answer) if follow.state() == state && !follow.is_intact() => {
                    undo(answer);
                    self.look_at(follow, true);
                }
                _ if follow.state() == state && !matches!(result, Err(Errno(libc::EIO))) => return result,
                Ok(answer) => undo(answer),
                Err(Errno(libc::EIO)) if follow.state() == state && !self.look_at(follow, true) => return result,
                Err(_) => {}
            }
        }
        f()
    }

    /// What `f` reads. It need not be of one state: the kernel forgets it anyway. `EIO` where the file changes so fast that
    /// what was read may be bytes of another object.
    pub(super) fn readable<T>(&self, mut f: impl FnMut() -> FsResult<T>) -> FsResult<T> {
        let Some(follow) = self.connector.follow() else { return f() };
        for _ in 0..TRIES {
            match f() {
                Ok(_) if !follow.is_intact() => drop(self.look_at(follow, true)),
                Err(Errno(libc::EIO)) if self.look_again() => {}
                result => return result,
            }
        }
        Err(Errno(libc::EIO))
    }

    /// Enters `node` with one more reference; returns the node that stands for it.
    pub(super) fn enter(&self, node: Node) -> Arc<Node> {
        self.find_outdated(&node);
        self.nodes.reference(node)
    }

    /// Outdated nodes that may be `node` are found again.
    pub(super) fn find_outdated(&self, node: &Node) {
        let Some(follow) = self.connector.follow() else { return };
        if self.found.load(Ordering::Acquire) == follow.state() {
            return;
        }
        for _ in 0..TRIES {
            let Some(outdated) = self.nodes.outdated(node) else { return };
            if self.renewed(outdated, follow).is_err() {
                return;
            }
        }
    }

    /// The outdated node `node` as it is now. One that is not there any more is gone.
    pub(super) fn renewed(&self, node: Arc<Node>, follow: &dyn Follow) -> FsResult<Arc<Node>> {
        let state = follow.state();
        let (mut outdated, mut at) = (Vec::new(), node.clone());
        let mut parent = loop {
            if at.ino == ROOT {
                break self.nodes.renew_root(NodeKind::Group(View::Main, follow.mounted().0), state);
            }
            if at.is_gone() {
                outdated.iter().for_each(|n| self.nodes.lose(n));
                return Ok(node);
            }
            if at.state == state {
                break at;
            }
            let above = at.parent().map(|p| self.nodes.get(p.ino).unwrap_or(p));
            outdated.push(at);
            at = above.ok_or(Errno(libc::ESTALE))?;
        };
        while let Some(old) = outdated.pop() {
            let child = self.tree().lookup(&parent, &old.place().name).map_err(|e| self.failed(parent.kind.object(), &e))?;
            // A number is that of one type of file for ever.
            let Some(child) = child.filter(|c| type_of(&c.kind) == type_of(&old.kind)) else {
                self.nodes.lose(&old);
                outdated.iter().for_each(|n| self.nodes.lose(n));
                return Ok(node);
            };
            parent = self.nodes.renew(&old, child.node(&parent).1);
        }
        Ok(parent)
    }

    /// Entries with attributes. Those of one answer are of one state.
    pub(super) fn list_whole(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            let (state, mut count, mut changed) = (self.state(), 0u64, false);
            result = self.list_entries(ino, handle, offset, &mut |entry| {
                changed = self.state() != state;
                let flow = if changed { ControlFlow::Break(()) } else { f(entry) };
                count = count.saturating_add(1);
                flow
            });
            match result {
                // Nothing was taken yet: an empty answer would be the end.
                Ok(()) if changed && count == 1 => {}
                Err(Errno(libc::EIO)) if count == 0 && self.look_again() => {}
                _ => return result,
            }
        }
        result
    }

    fn list_entries(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let dir = self.directory(ino)?;
        let above = dir.parent().unwrap_or_else(|| dir.clone());
        for (name, at, node) in [(&b"."[..], 0, &dir), (b"..", 1, &above)] {
            if offset <= at && f(DirEntryPlus { name, entry: self.entry(node), next: at.saturating_add(1) }).is_break() {
                return Ok(());
            }
        }
        self.list_open(handle, &dir, offset, &mut |child, next| {
            let (name, node) = child.node(&dir);
            let node = self.enter(node);
            let flow = f(DirEntryPlus { name: &name, entry: self.entry(&node), next });
            if flow.is_break() {
                self.nodes.forget(node.ino, 1);
            }
            flow
        })
    }

    /// Looks whether the container was changed, and tells the kernel. No lock is held while the kernel is told.
    pub(super) fn tell_changes(&self, kernel: &dyn KernelMemory) {
        let Some(follow) = self.connector.follow() else { return };
        self.look_at(follow, false);
        let state = follow.state();
        if self.told.swap(state, Ordering::Relaxed) == state {
            return;
        }
        std::thread::sleep(UNDER_WAY);
        self.close_outdated();
        let mut found = true;
        for ino in self.nodes.numbers() {
            let node = self.node(ino);
            found &= !matches!(node, Err(Errno(libc::EIO)));
            kernel.forget_inode(ino);
            if !node.as_ref().is_ok_and(|n| self.has_its_name(n)) {
                self.forget_name(kernel, self.nodes.get(ino));
            }
            for (parent, name) in self.nodes.other_names(ino) {
                if !self.leads_to(parent, &name, ino) {
                    kernel.forget_name(parent, &name);
                }
            }
        }
        if found {
            self.found.store(state, Ordering::Release);
        }
    }

    fn forget_name(&self, kernel: &dyn KernelMemory, node: Option<Arc<Node>>) {
        let place = node.map(|n| n.place());
        if let Some((parent, name)) = place.and_then(|p| Some((p.parent?.ino, p.name))) {
            kernel.forget_name(parent, &name);
        }
    }

    /// True when a look-up of the name of `node` finds it.
    fn has_its_name(&self, node: &Arc<Node>) -> bool {
        let place = node.place();
        let Some(parent) = place.parent else { return true };
        let found = Node::new(&parent, &place.name, None, node.kind.clone());
        !node.is_gone() && self.nodes.number_of(&found) == node.ino
    }

    fn leads_to(&self, parent: Ino, name: &[u8], ino: Ino) -> bool {
        let Ok(parent) = self.directory(parent) else { return false };
        let Ok(Some(child)) = self.tree().lookup(&parent, name) else { return false };
        let node = child.node(&parent).1;
        self.find_outdated(&node);
        self.nodes.number_of(&node) == ino
    }
}

/// What a number stands for as long as it is known.
fn type_of(kind: &NodeKind) -> u8 {
    match kind {
        k if k.is_directory() => 0,
        NodeKind::Symlink(_) => 1,
        _ => 2,
    }
}
