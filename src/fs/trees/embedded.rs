//! Trees as embedded file systems: where a file is, and answers in the numbers of the kernel.

use super::numbers::{is_root, root_of};
use super::tree::{Tree, tree_of_handle};
use super::trees_fs::TreesFs;
use crate::fs::container::ContainerFs;
use crate::fs::embedding::{At, Embedder, Entered, Inside, Use};
use crate::fs::operations::KernelMemory;
use crate::fs::types::{Attr, CloseError, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, ROOT};
use crate::fs::views::TREE;
use crate::fs::{FileKind, Invalidate, Operations};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Time between looks for trees that are over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A file of a tree.
pub struct InTree {
    tree: Arc<Tree>,
    fs: Arc<ContainerFs>,
    ino: Ino,
}

impl Inside for InTree {
    fn operations(&self) -> &dyn Operations {
        &*self.fs
    }

    fn ino(&self) -> Ino {
        self.ino
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.tree.number == other.tree.number
    }

    fn attr(&self, outside: Ino, attr: Attr) -> Attr {
        let shown = if self.ino == ROOT { self.tree.shown_root(attr) } else { attr };
        Attr { ino: outside, ..shown }
    }

    fn entered(&self, _name: &[u8], entry: Entry) -> FsResult<Entered> {
        Ok(Entered { entry: self.tree.entered(entry), surplus: false })
    }

    fn refused(&self, entered: &Entered) {
        self.tree.forget(entered.entry.attr.ino, 1);
    }

    fn listed(&self, name: &[u8], inner: Ino) -> Ino {
        match inner {
            _ if name == b".." && self.ino == ROOT => self.tree.parent(),
            ROOT => root_of(self.tree.number),
            inner => self.tree.outer(inner),
        }
    }

    fn opened(&self, _outside: Ino, opened: Opened, _mode: OpenMode) -> FsResult<Opened> {
        Ok(Opened { handle: self.tree.opened(opened.handle), ..opened })
    }

    fn opened_directory(&self, handle: Handle) -> Handle {
        self.tree.opened(handle)
    }

    fn outward(&self, invalidate: Invalidate) -> Invalidate {
        self.tree.invalidate(invalidate)
    }
}

impl Embedder for TreesFs {
    type Inside<'a> = InTree;

    fn own(&self) -> &dyn Operations {
        &self.main
    }

    fn at(&self, ino: Ino, by: Use) -> FsResult<At<InTree>> {
        let Some(tree) = self.tree_of(ino)? else { return Ok(At::Own) };
        if by == Use::Stat && is_root(ino) {
            return Ok(At::Own);
        }
        let ino = tree.inner(ino)?;
        let fs = self.enter(&tree)?;
        Ok(At::Inside(InTree { tree, fs, ino }))
    }

    fn at_handle(&self, ino: Ino, handle: Handle) -> FsResult<At<(InTree, Handle)>> {
        let number = tree_of_handle(handle);
        if number == 0 {
            return Ok(At::Own);
        }
        let tree = self.numbered(number)?;
        let fs = tree.if_open().ok_or(Errno(libc::EBADF))?;
        let (ino, handle) = (tree.inner(ino).unwrap_or(ino), tree.handle(handle));
        Ok(At::Inside((InTree { tree, fs, ino }, handle)))
    }

    /// A tree is open as long as a file of it is.
    fn at_close(&self, ino: Ino, handle: Handle) -> FsResult<At<(InTree, Handle)>> {
        self.at_handle(ino, handle)
    }

    fn closed(&self, _handle: Handle, inside: Option<&InTree>) {
        inside.iter().for_each(|at| at.tree.closed());
    }

    fn forget(&self, ino: Ino, count: u64) {
        match self.tree_of(ino) {
            Ok(None) => self.main.forget(ino, count),
            Ok(Some(tree)) => {
                if let (Some(inner), Some(fs)) = (tree.forget(ino, count), tree.if_open()) {
                    fs.forget(inner, count);
                }
            }
            Err(_) => {}
        }
    }

    /// That of the root of a tree; of one that cannot be opened without what it holds.
    fn own_attr(&self, ino: Ino) -> FsResult<Attr> {
        let Some(tree) = self.tree_of(ino)? else { return self.main.getattr(ino) };
        let _ = self.enter(&tree);
        tree.root_attr()
    }

    fn own_lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let entry = self.main.lookup(parent, name)?;
        if name != TREE.as_bytes() || entry.attr.kind != FileKind::Directory {
            return Ok(entry);
        }
        let found = self.found(parent, entry);
        // A tree that is shown there, or an error: the kernel does not know the directory.
        if found.is_ok_and(|found| found.attr.ino == entry.attr.ino) {
            return found;
        }
        self.main.forget(entry.attr.ino, 1);
        found
    }

    /// Trees have numbers of their own.
    fn own_list_plus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        // The container counts a look-up of the directories that trees are shown in the place of.
        let mut replaced = Vec::new();
        let listed = self.main.readdirplus(ino, handle, offset, &mut |e| {
            let tree = if e.name == TREE.as_bytes() { self.enter_tree(ino, &e.entry.attr) } else { Ok(None) };
            let tree = match tree {
                Ok(None) => return f(e),
                Ok(Some(tree)) => tree,
                // It is left out: there are too many.
                Err(_) => {
                    replaced.push(e.entry.attr.ino);
                    return ControlFlow::Continue(());
                }
            };
            let shown = tree.root_attr().map(|attr| Entry { attr, volatile: true, ..e.entry });
            let flow = shown.map_or(ControlFlow::Break(()), |entry| f(DirEntryPlus { entry, ..e }));
            if flow.is_break() {
                tree.forget(root_of(tree.number), 1);
            } else {
                replaced.push(e.entry.attr.ino);
            }
            flow
        });
        replaced.into_iter().for_each(|ino| self.main.forget(ino, 1));
        listed
    }

    /// Trees are not followed: the peers of a transaction see one version.
    fn look(&self, kernel: &dyn KernelMemory) {
        self.main.look(kernel);
        self.drop_unused(kernel);
    }

    fn look_interval(&self) -> Option<Duration> {
        Some(LOOK_INTERVAL)
    }

    /// All of them end, whatever fails. A tree commits nothing before it is finished.
    fn shutdown(&self) -> Result<(), CloseError> {
        let mut failed: Vec<CloseError> = self.main.shutdown().err().into_iter().collect();
        failed.extend(self.all().into_iter().filter_map(|tree| tree.if_open()?.shutdown().err()));
        let messages: Vec<&str> = failed.iter().map(|e| e.message.as_str()).collect();
        let message = messages.join("; ");
        failed.first().map_or(Ok(()), |e| Err(CloseError { message, ..e.clone() }))
    }
}
