//! The file system of a container and the trees of its transactions.

use super::numbers::{NUMBER_MAX, tree_of};
use super::routes::Route;
use super::tree::{Tree, tree_of_handle};
use crate::fs::container::ContainerFs;
use crate::fs::operations::KernelMemory;
use crate::fs::types::{Attr, Entry, Errno, FsResult, Handle, Ino};
use crate::fs::views::TREE;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Trees that are kept although they were not opened.
const UNOPENED_MAX: usize = 64;

/// See the module's description.
pub struct TreesFs {
    /// The container.
    pub(super) main: ContainerFs,
    trees: Mutex<BTreeMap<u64, Arc<Tree>>>,
}

impl TreesFs {
    /// Shows `main`, whose container has transactions.
    pub fn new(main: ContainerFs) -> TreesFs {
        TreesFs { main, trees: Mutex::new(BTreeMap::new()) }
    }

    /// All trees.
    pub(super) fn all(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }

    fn numbered(&self, number: u64) -> FsResult<Arc<Tree>> {
        self.trees.lock().get(&number).cloned().ok_or(Errno(libc::ESTALE))
    }

    /// The tree that `ino` is in; `None`: it is the container's.
    pub(super) fn tree_of(&self, ino: Ino) -> FsResult<Option<Arc<Tree>>> {
        match tree_of(ino) {
            0 => Ok(None),
            number => self.numbered(number).map(Some),
        }
    }

    /// Where requests for `ino` are sent. Opens the tree.
    pub(super) fn at(&self, ino: Ino) -> FsResult<Route<'_>> {
        let Some(tree) = self.tree_of(ino)? else { return Ok(Route::Main(&self.main, ino)) };
        let inner = tree.inner(ino)?;
        let fs = tree.enter(|| self.main.open_tree(&tree.name))?;
        Ok(Route::Tree(tree, fs, inner))
    }

    /// Where requests for the open file `handle`, which is `ino`, are sent.
    pub(super) fn at_handle(&self, ino: Ino, handle: Handle) -> FsResult<(Route<'_>, Handle)> {
        match tree_of_handle(handle) {
            0 => Ok((Route::Main(&self.main, ino), handle)),
            number => {
                let tree = self.numbered(number)?;
                let fs = tree.if_open().ok_or(Errno(libc::EBADF))?;
                // The kernel names an open file by its handle alone in some requests.
                let inner = tree.inner(ino).unwrap_or(ino);
                let handle = tree.handle(handle);
                Ok((Route::Tree(tree, fs, inner), handle))
            }
        }
    }

    /// The tree that is shown in the place of the directory `attr` of the container in `parent`, if
    /// one is. Errors: `ENFILE` if there are too many.
    pub(super) fn tree_at(&self, parent: Ino, attr: &Attr) -> FsResult<Option<Arc<Tree>>> {
        let Some(name) = self.main.tree_name(attr.ino) else { return Ok(None) };
        let mut trees = self.trees.lock();
        if let Some(tree) = trees.values().find(|tree| tree.name == name) {
            return Ok(Some(tree.clone()));
        }
        let number = (1..=NUMBER_MAX).find(|number| !trees.contains_key(number)).ok_or(Errno(libc::ENFILE))?;
        let tree = Arc::new(Tree::new(number, name, parent, *attr));
        trees.insert(number, tree.clone());
        Ok(Some(tree))
    }

    /// Has the kernel forget trees whose transactions have ended, and those that were not opened if
    /// there are many. Drops those that it forgot.
    pub(super) fn drop_unused(&self, kernel: &dyn KernelMemory) {
        let all = self.all();
        for tree in &all {
            let is_over = match tree.if_open() {
                None => all.len() > UNOPENED_MAX,
                Some(_) => tree.has_ended(|| !self.main.has_tree(&tree.name)),
            };
            if is_over && tree.is_unused() {
                self.trees.lock().remove(&tree.number);
            } else if is_over {
                kernel.forget_name(tree.parent(), TREE.as_bytes());
            }
        }
    }

    /// The answer to a look-up in the container: the root of a tree where one is shown.
    pub(super) fn found(&self, parent: Ino, entry: Entry) -> FsResult<Entry> {
        match self.tree_at(parent, &entry.attr)? {
            Some(tree) => Ok(tree.enter_root(parent, entry)),
            None => Ok(entry),
        }
    }
}
