//! The file system of a container and the trees of its transactions.

use super::numbers::{NUMBER_MAX, root_of, tree_of};
use super::tree::Tree;
use crate::base::locks::Mutex;
use crate::connector::transactions::TreeUse;
use crate::fs::container::ContainerFs;
use crate::fs::operations::KernelMemory;
use crate::fs::types::{Attr, Entry, Errno, FsResult, Ino};
use crate::fs::views::TREE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Trees that are kept although they are only read.
const READ_MAX: usize = 64;

#[derive(Default)]
struct Trees {
    numbered: BTreeMap<u64, Arc<Tree>>,
    /// The number that was given last.
    last: u64,
}

impl Trees {
    /// A number for a new tree: that of another one is used again as late as possible.
    fn free_number(&mut self) -> Option<u64> {
        let next = (self.last.saturating_add(1)..=NUMBER_MAX).chain(1..=self.last);
        let free = next.into_iter().find(|number| !self.numbered.contains_key(number))?;
        self.last = free;
        Some(free)
    }
}

/// See the module's description.
pub struct TreesFs {
    /// The container.
    pub(super) main: ContainerFs,
    trees: Mutex<Trees>,
}

impl TreesFs {
    /// Shows `main`, whose container has transactions.
    pub fn new(main: ContainerFs) -> TreesFs {
        TreesFs { main, trees: Mutex::default() }
    }

    /// All trees.
    pub(super) fn all(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().numbered.values().cloned().collect()
    }

    /// The tree with this number. Errors: `ESTALE`.
    pub(super) fn numbered(&self, number: u64) -> FsResult<Arc<Tree>> {
        self.trees.lock().numbered.get(&number).cloned().ok_or(Errno(libc::ESTALE))
    }

    /// The tree that `ino` is in; `None`: it is the container's.
    pub(super) fn tree_of(&self, ino: Ino) -> FsResult<Option<Arc<Tree>>> {
        match tree_of(ino) {
            0 => Ok(None),
            number => self.numbered(number).map(Some),
        }
    }

    /// The file system of `tree`, opened if it is not.
    pub(super) fn enter(&self, tree: &Tree) -> FsResult<Arc<ContainerFs>> {
        tree.enter(|| self.main.open_tree(&tree.name))
    }

    /// The tree that is shown in the place of the directory `attr` of the container in `parent`, if
    /// one is, with one reference more of the kernel to its root. Errors: `ENFILE` if there are too
    /// many.
    pub(super) fn enter_tree(&self, parent: Ino, attr: &Attr) -> FsResult<Option<Arc<Tree>>> {
        let Some(name) = self.main.tree_name(attr.ino) else { return Ok(None) };
        let mut trees = self.trees.lock();
        let there = trees.numbered.values().find(|tree| tree.name == name).cloned();
        let tree = match there {
            Some(tree) => tree,
            None => {
                let number = trees.free_number().ok_or(Errno(libc::ENFILE))?;
                let tree = Arc::new(Tree::new(number, name));
                trees.numbered.insert(number, tree.clone());
                tree
            }
        };
        // With the lock: no tree of which the kernel gets a number is dropped.
        tree.enter_root(parent, *attr);
        Ok(Some(tree))
    }

    /// The answer to a look-up in the container: the root of a tree where one is shown. Opens it:
    /// the kernel checks its permissions.
    pub(super) fn found(&self, parent: Ino, entry: Entry) -> FsResult<Entry> {
        let Some(tree) = self.enter_tree(parent, &entry.attr)? else { return Ok(entry) };
        match self.enter(&tree) {
            // The transaction has ended.
            Err(Errno(libc::EALREADY | libc::ECANCELED)) => {
                tree.forget(root_of(tree.number), 1);
                Err(Errno(libc::ENOENT))
            }
            _ => Ok(Entry { attr: tree.root_attr()?, volatile: true, ..entry }),
        }
    }

    /// Has the kernel forget trees whose transactions have ended, and those that are only read if
    /// there are many. Drops those that it forgot.
    pub(super) fn drop_unused(&self, kernel: &dyn KernelMemory) {
        let all = self.all();
        for tree in &all {
            let is_over = match self.main.tree_use(&tree.name, false) {
                TreeUse::Ended => true,
                TreeUse::Read if all.len() > READ_MAX => true,
                _ => tree.is_due() && self.main.tree_use(&tree.name, true) == TreeUse::Ended,
            };
            if is_over {
                kernel.forget_name(tree.parent(), TREE.as_bytes());
                let mut trees = self.trees.lock();
                if tree.is_unused() {
                    trees.numbered.remove(&tree.number);
                }
            }
        }
    }
}
