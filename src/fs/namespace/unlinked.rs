//! Files that a rename replaced, and removed directories.
//!
//! A process may open or stat a name while another file is renamed over it, and find the earlier
//! one: the kernel looks the name up first, and opens what it found then. So a file that is
//! replaced is held as if it were open until the kernel forgets it. The kernel does so at once
//! unless it is in use. After a removal, look-ups return ENOENT. A directory that was removed may
//! be open, or be the working directory of a process, and keeps its attributes until then.

use super::node::Node;
use crate::base::locks::Mutex;
use crate::connector::ObjectId;
use crate::connector::edit::Edit;
use crate::fs::types::Ino;
use foldhash::HashMap;
use std::sync::Arc;

/// Nodes that were replaced or removed and that the kernel still knows.
#[derive(Default)]
pub struct Unlinked(Mutex<HashMap<Ino, Arc<Node>>>);

impl Unlinked {
    /// Keeps `node`, which is held.
    pub fn keep(&self, node: Arc<Node>) {
        self.0.lock().insert(node.ino, node);
    }

    /// Takes the node `ino` out.
    pub fn take(&self, ino: Ino) -> Option<Arc<Node>> {
        self.0.lock().remove(&ino)
    }

    /// Takes all nodes out.
    pub fn take_all(&self) -> Vec<Arc<Node>> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }
}

/// The object that is held for `node`: one of the main tree.
fn held_object(node: &Node) -> Option<ObjectId> {
    node.item.writable().filter(|edit| edit.is_object(&node.item)).and_then(|_| node.item.object())
}

/// Holds `node` as if it were open. False: its object cannot be held.
pub fn hold(edit: &dyn Edit, node: &Node) -> bool {
    let Some(id) = held_object(node) else { return false };
    edit.hold(id);
    node.count_open(true);
    true
}

/// Ends [`hold`].
pub fn release(edit: &dyn Edit, node: &Node) {
    node.count_open(false);
    if let Some(id) = held_object(node) {
        edit.release(id);
    }
}
