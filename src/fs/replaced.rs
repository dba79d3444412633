//! Files that a rename replaced, and removed directories.
//!
//! Who opens a name, or asks what it is, while another file is put in its place may have found the one before: the kernel looks a name
//! up first, and opens what it found then. So a file that is replaced is held as if it was open until the kernel forgets it, which it
//! does at once when nobody is about to use it. Who finds no file in place of one that was removed gets the error that is due.
//! A directory that was removed may be open, or a process's working directory, and has attributes until then.

use super::FsResult;
use super::container::ContainerFs;
use super::nodes::{Node, NodeKind, View};
use super::types::Ino;
use crate::connector::ObjectId;
use std::sync::Arc;

impl ContainerFs {
    /// Does `change`, which tells what has no name any more, and keeps what `there`, not in the table, stands for if that
    /// is it. Names are not steady.
    pub(super) fn keeping(&self, there: Option<&Node>, change: impl FnOnce() -> FsResult<Option<ObjectId>>) -> FsResult<Option<ObjectId>> {
        let held = there.and_then(|there| self.hold(there));
        let gone = change();
        let Some(node) = held else { return gone };
        if matches!(gone, Ok(Some(id)) if node.kind.object() == Some(id)) {
            self.replaced.lock().insert(node.ino, node);
        } else {
            self.let_go(&node);
        }
        gone
    }

    fn hold(&self, there: &Node) -> Option<Arc<Node>> {
        let id = Self::may_be_held(&there.kind)?;
        let edit = self.connector.edit()?;
        let node = self.nodes.known(there)?;
        edit.hold(id);
        node.count_open(true);
        Some(node)
    }

    /// The kernel has forgotten `ino`.
    pub(super) fn forget_replaced(&self, ino: Ino) {
        let Some(node) = self.replaced.lock().remove(&ino) else { return };
        let _steady = self.steady();
        self.let_go(&node);
    }

    /// Lets all go; names are not steady.
    pub(super) fn end_replaced(&self) {
        let all = std::mem::take(&mut *self.replaced.lock());
        all.values().for_each(|node| self.let_go(node));
    }

    fn let_go(&self, node: &Node) {
        node.count_open(false);
        if let (Some(edit), Some(id)) = (self.connector.edit(), Self::may_be_held(&node.kind)) {
            edit.release(id);
        }
    }

    fn may_be_held(kind: &NodeKind) -> Option<ObjectId> {
        match kind {
            NodeKind::Dataset(View::Main, id) | NodeKind::Group(View::Main, id) if id.file == 0 => Some(*id),
            _ => None,
        }
    }
}
