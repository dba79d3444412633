//! Counts the writers of each dataset, which may be open for writing through one view at a time.
//!
//! Each view of a dataset (main tree, `.h5dir/npy`, `.h5dir/exact`) is an inode of its own with its own pages. If two views had
//! dirty pages of the same elements, writing one back would undo changes made through the other.

use super::FsResult;
use super::nodes::{Node, NodeKind, View};
use super::types::Errno;
use crate::connector::ObjectId;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;

/// Datasets that are open for writing: the view, and how many open files it has.
#[derive(Default)]
pub(super) struct ViewWriters(Mutex<HashMap<ObjectId, (View, u64)>>);

fn dataset(node: &Node) -> Option<(ObjectId, View)> {
    if let NodeKind::Dataset(view, id) = node.kind { Some((id, view)) } else { None }
}

impl ViewWriters {
    /// Counts a writer of `node`. Errors: `EBUSY` while another view of the dataset has writers.
    pub fn enter(&self, node: &Node) -> FsResult<()> {
        let Some((id, view)) = dataset(node) else { return Ok(()) };
        match self.0.lock().entry(id) {
            Entry::Vacant(none) => drop(none.insert((view, 1))),
            Entry::Occupied(there) if there.get().0 != view => return Err(Errno(libc::EBUSY)),
            Entry::Occupied(mut there) => there.get_mut().1 = there.get().1.saturating_add(1),
        }
        Ok(())
    }

    /// Ends what [`ViewWriters::enter`] counted.
    pub fn leave(&self, node: &Node) {
        let Some((id, _)) = dataset(node) else { return };
        let mut all = self.0.lock();
        let Some((_, count)) = all.get_mut(&id) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            all.remove(&id);
            node.end_tail();
        }
    }

    /// Errors: `EBUSY` while a view of the dataset other than that of `node` has writers.
    pub fn check(&self, node: &Node) -> FsResult<()> {
        let Some((id, view)) = dataset(node) else { return Ok(()) };
        match self.0.lock().get(&id) {
            Some((other, _)) if *other != view => Err(Errno(libc::EBUSY)),
            _ => Ok(()),
        }
    }
}
