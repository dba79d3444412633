//! Where a request is sent, and its answer in the numbers of the kernel.

use super::numbers::root_of;
use super::tree::Tree;
use crate::fs::container::ContainerFs;
use crate::fs::types::{Attr, Entry, Handle, Ino, Opened, ROOT};
use crate::fs::{Done, Invalidate};
use std::sync::Arc;

/// The file system that has a file, and the file's number there.
pub enum Route<'a> {
    /// The container.
    Main(&'a ContainerFs, Ino),
    /// A tree.
    Tree(Arc<Tree>, Arc<ContainerFs>, Ino),
}

impl Route<'_> {
    /// The file system.
    pub fn fs(&self) -> &ContainerFs {
        match self {
            Route::Main(fs, _) => fs,
            Route::Tree(_, fs, _) => fs,
        }
    }

    /// The number of the file there.
    pub fn ino(&self) -> Ino {
        match self {
            Route::Main(_, ino) | Route::Tree(_, _, ino) => *ino,
        }
    }

    /// The tree, if it is one.
    pub fn tree(&self) -> Option<&Arc<Tree>> {
        match self {
            Route::Main(..) => None,
            Route::Tree(tree, ..) => Some(tree),
        }
    }

    /// True if both files are in the same file system.
    pub fn is_beside(&self, other: &Route<'_>) -> bool {
        self.tree().map(|tree| tree.number) == other.tree().map(|tree| tree.number)
    }

    /// Attributes of a file.
    pub fn attr(&self, attr: Attr) -> Attr {
        self.tree().map_or(attr, |tree| Attr { ino: tree.outer(attr.ino), ..attr })
    }

    /// A file that was looked up.
    pub fn entered(&self, entry: Entry) -> Entry {
        self.tree().map_or(entry, |tree| tree.entered(entry))
    }

    /// A handle that was opened.
    pub fn opened_handle(&self, handle: Handle) -> Handle {
        self.tree().map_or(handle, |tree| tree.opened(handle))
    }

    /// A file that was opened.
    pub fn opened(&self, opened: Opened) -> Opened {
        Opened { handle: self.opened_handle(opened.handle), ..opened }
    }

    /// What the kernel must drop.
    pub fn invalidate(&self, invalidate: Invalidate) -> Invalidate {
        match self.tree() {
            Some(tree) => tree.invalidate(invalidate),
            None => invalidate,
        }
    }

    /// The result of a change; `answer` is made of it.
    pub fn done<T, U>(&self, done: Done<T>, answer: impl FnOnce(T) -> U) -> Done<U> {
        Done { result: done.result.map(answer), invalidate: self.invalidate(done.invalidate) }
    }

    /// The number of the entry `name` of the directory, listed as `ino`.
    pub fn listed(&self, name: &[u8], ino: Ino) -> Ino {
        match self.tree() {
            None => ino,
            Some(tree) if name == b".." && self.ino() == ROOT => tree.parent(),
            Some(tree) if ino == ROOT => root_of(tree.number),
            Some(tree) => tree.outer(ino),
        }
    }
}
