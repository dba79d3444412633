//! Inodes: what each number stands for while the kernel knows it.
//!
//! A dataset's number comes from its object header's address, so hard links share it. A directory's
//! comes from its path (parent's number and name): the kernel allows a directory one parent only, so
//! a group reached twice is two directories. Numbers do not depend on the order of look-ups.

use super::types::{Ino, ROOT};
use crate::connector::ObjectId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which tree a node belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// The mount's main tree.
    Main,
    /// `.h5dir/exact`.
    Exact,
    /// `.h5dir/chunks`.
    Chunks,
    /// `.h5dir/attrs`.
    Attrs,
    /// `.h5dir/npy`.
    Npy,
}

impl View {
    /// The views below `.h5dir`, with their names.
    pub const NAMED: [(&'static str, View); 4] =
        [("attrs", View::Attrs), ("chunks", View::Chunks), ("exact", View::Exact), ("npy", View::Npy)];
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A group, as a directory.
    Group(View, ObjectId),
    /// A dataset, as a file of its bytes (main, exact or npy view).
    Dataset(View, ObjectId),
    /// A named datatype, as its description.
    Datatype(ObjectId),
    /// An object of a kind that has no bytes.
    Unknown(ObjectId),
    /// An object that cannot be read: visible, but opening it is EIO.
    Broken(ObjectId),
    /// A link, as a symbolic link.
    Symlink(Arc<[u8]>),
    /// `.h5dir`.
    Control,
    /// `.h5dir/status`.
    Status,
    /// A dataset in the chunks view: a directory of chunks.
    ChunkDir(ObjectId),
    /// A stored chunk, by scaled coordinates.
    ChunkFile(ObjectId, Arc<[u64]>),
    /// An object that is not a group in the attrs view: a directory of attributes.
    AttrDir(ObjectId),
    /// An attribute's raw bytes.
    AttrFile(ObjectId, Arc<[u8]>),
}

impl NodeKind {
    /// The object this node shows, if it shows one.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            NodeKind::Group(_, id) | NodeKind::Dataset(_, id) | NodeKind::Datatype(id) | NodeKind::Unknown(id) | NodeKind::Broken(id) => {
                Some(*id)
            }
            NodeKind::ChunkDir(id) | NodeKind::AttrDir(id) => Some(*id),
            NodeKind::Symlink(_) | NodeKind::Control | NodeKind::Status | NodeKind::ChunkFile(..) | NodeKind::AttrFile(..) => None,
        }
    }

    /// True for directories.
    pub fn is_directory(&self) -> bool {
        matches!(self, NodeKind::Group(..) | NodeKind::Control | NodeKind::ChunkDir(_) | NodeKind::AttrDir(_))
    }
}

/// A node and its place.
#[derive(Debug)]
pub struct Node {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    /// Directory it was found in; `None` at the root.
    pub parent: Option<Arc<Node>>,
    /// Link name where the file name shown differs from it.
    pub link_name: Option<Box<[u8]>>,
    /// Greatest address of a group from here up: most groups lie behind those they are in, so that a cycle
    /// is ruled out without a look at each.
    greatest: u64,
    refs: AtomicU64,
}

impl Node {
    /// A node that is in no table yet.
    pub fn new(parent: &Arc<Node>, name: &[u8], link_name: Option<Box<[u8]>>, kind: NodeKind) -> Node {
        let greatest = parent.greatest.max(group_address(&kind));
        Node { ino: number(parent.ino, name, &kind), kind, parent: Some(parent.clone()), link_name, greatest, refs: AtomicU64::new(0) }
    }

    /// Directory levels up to the group `id`, if this is it or lies in it.
    pub fn levels_up_to(self: &Arc<Node>, id: ObjectId) -> Option<usize> {
        if id.address.0 > self.greatest {
            return None;
        }
        let mut at = Some(self);
        for up in 0.. {
            let node = at?;
            if matches!(node.kind, NodeKind::Group(_, group) if group == id) {
                return Some(up);
            }
            at = node.parent.as_ref();
        }
        None
    }

    /// Directory levels between this directory and the root of its view.
    pub fn depth(self: &Arc<Node>) -> usize {
        std::iter::successors(Some(self), |n| n.parent.as_ref()).take_while(|n| n.kind != NodeKind::Control).count().saturating_sub(1)
    }
}

fn group_address(kind: &NodeKind) -> u64 {
    if let NodeKind::Group(_, id) = kind { id.address.0 } else { 0 }
}

/// A chain of thousands of directories goes one by one: recursion would run out of stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.parent.take();
        }
    }
}

const DATASET: u64 = 1 << 62;
const HASHED: u64 = 1 << 63;

/// The number of a node.
pub fn number(parent: Ino, name: &[u8], kind: &NodeKind) -> Ino {
    let object = match kind {
        NodeKind::Dataset(view, id) => Some((*view, id)),
        NodeKind::Datatype(id) | NodeKind::Unknown(id) => Some((View::Main, id)),
        _ => None,
    };
    if let Some((view, id)) = object {
        let view = match view {
            View::Exact => 1u64,
            View::Npy => 2,
            View::Main | View::Chunks | View::Attrs => 0,
        };
        if id.address.0 < 1 << 48 && id.file < 1 << 12 {
            return Ino(DATASET | view << 60 | u64::from(id.file) << 48 | id.address.0);
        }
    }
    // FNV-1a over the parent's number and the name.
    let bytes = parent.0.to_le_bytes();
    let h = bytes.iter().chain(name).fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    Ino(h | HASHED)
}

/// All nodes the kernel holds references to.
pub struct NodeTable {
    nodes: Mutex<HashMap<Ino, Arc<Node>>>,
    root: Arc<Node>,
}

impl NodeTable {
    /// A table with the root, which is never forgotten.
    pub fn new(root: NodeKind) -> Self {
        let greatest = group_address(&root);
        let root = Arc::new(Node { ino: ROOT, kind: root, parent: None, link_name: None, greatest, refs: AtomicU64::new(1) });
        NodeTable { nodes: Mutex::new(HashMap::from([(ROOT, root.clone())])), root }
    }

    /// The root.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The node of `ino`.
    pub fn get(&self, ino: Ino) -> Option<Arc<Node>> {
        if ino == ROOT { Some(self.root.clone()) } else { self.nodes.lock().get(&ino).cloned() }
    }

    /// Nodes held.
    pub fn len(&self) -> usize {
        self.nodes.lock().len()
    }

    /// True when only the root is held.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Enters `node` with one more reference; returns the node that stands for it.
    pub fn reference(&self, mut node: Node) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        loop {
            match nodes.get(&node.ino) {
                Some(there) if there.kind == node.kind => {
                    there.refs.fetch_add(1, Ordering::Relaxed);
                    return there.clone();
                }
                // Two paths with one hash: the later one moves on.
                Some(_) => node.ino = Ino(node.ino.0.wrapping_add(1) | HASHED),
                None => {
                    node.refs = AtomicU64::new(1);
                    let node = Arc::new(node);
                    nodes.insert(node.ino, node.clone());
                    return node;
                }
            }
        }
    }

    /// Drops `count` references; the node goes with the last one.
    pub fn forget(&self, ino: Ino, count: u64) {
        if ino == ROOT {
            return;
        }
        let mut nodes = self.nodes.lock();
        let gone = nodes.get(&ino).is_some_and(|n| {
            let left = n.refs.load(Ordering::Relaxed).saturating_sub(count);
            n.refs.store(left, Ordering::Relaxed);
            left == 0
        });
        if gone {
            nodes.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;

    fn id(a: u64) -> ObjectId {
        ObjectId { file: 0, address: Address(a) }
    }

    #[test]
    fn hard_links_share_a_number_and_directories_do_not() {
        let t = NodeTable::new(NodeKind::Group(View::Main, id(48)));
        let d = |name: &[u8]| Node::new(t.root(), name, None, NodeKind::Dataset(View::Main, id(800))).ino;
        assert_eq!(d(b"a"), d(b"b"));
        let g = |name: &[u8]| Node::new(t.root(), name, None, NodeKind::Group(View::Main, id(900))).ino;
        assert_ne!(g(b"a"), g(b"b"));
    }

    #[test]
    fn a_node_goes_with_its_last_reference() {
        let t = NodeTable::new(NodeKind::Group(View::Main, id(48)));
        let make = || Node::new(t.root(), b"g", None, NodeKind::Group(View::Main, id(900)));
        let ino = t.reference(make()).ino;
        t.reference(make());
        t.forget(ino, 1);
        assert!(t.get(ino).is_some());
        t.forget(ino, 1);
        assert!(t.get(ino).is_none() && t.is_empty());
        t.forget(ROOT, 100);
        assert!(t.get(ROOT).is_some());
    }

    /// Regression: dropping the deepest of 100,000 nested directories overflowed the stack.
    #[test]
    fn a_deep_chain_is_dropped_without_recursion() {
        let root = NodeTable::new(NodeKind::Group(View::Main, id(48)));
        let mut at = root.root().clone();
        for i in 0..100_000 {
            at = Arc::new(Node::new(&at, b"g", None, NodeKind::Group(View::Main, id(100 + i))));
        }
        assert_eq!(at.depth(), 100_000);
        assert_eq!(at.levels_up_to(id(48)), Some(100_000));
        assert_eq!((at.levels_up_to(id(100_099)), at.levels_up_to(id(100_100)), at.levels_up_to(id(50))), (Some(0), None, None));
        drop(at);
        assert_eq!(Arc::strong_count(root.root()), 2);
    }

    #[test]
    fn depth_counts_from_the_view() {
        let t = NodeTable::new(NodeKind::Group(View::Main, id(48)));
        let control = t.reference(Node::new(t.root(), b".h5dir", None, NodeKind::Control));
        let exact = t.reference(Node::new(&control, b"exact", None, NodeKind::Group(View::Exact, id(48))));
        let sub = t.reference(Node::new(&exact, b"g", None, NodeKind::Group(View::Exact, id(900))));
        assert_eq!((t.root().depth(), exact.depth(), sub.depth()), (0, 0, 1));
    }
}
