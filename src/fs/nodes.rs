//! Inodes: what each number stands for while the kernel knows it.
//!
//! A dataset's number comes from its object header's address, so hard links share it. A directory's
//! comes from its path (parent's number and name): the kernel allows a directory one parent only, so
//! a group reached twice is two directories. Numbers do not depend on the order of look-ups.
//!
//! In a container that is changed, a number stays with what the kernel knows by it: a directory that was
//! moved keeps its own, and an object that lost its last name keeps its own until it is forgotten. What
//! then should have that number gets the next free one; the table knows which.
//!
//! In a container that others change, a number stands for what its path leads to: when the container is in another state, a node
//! is outdated until it is found again by its path, and gone if it is not there (see `renew`).

mod renew;
#[cfg(test)]
mod tests;

use super::page_guard::Writes;
use super::types::{Ino, ROOT};
use crate::connector::ObjectId;
use foldhash::{HashMap, HashMapExt, HashSet};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

    /// True for what can be written to, or have names entered, in a container that is changed.
    pub fn takes_changes(&self) -> bool {
        match self {
            NodeKind::Group(View::Main | View::Attrs | View::Npy, id) | NodeKind::AttrDir(id) | NodeKind::AttrFile(id, _) => id.file == 0,
            NodeKind::Dataset(View::Main | View::Exact | View::Npy, id) => id.file == 0,
            _ => false,
        }
    }

    /// The object whose end is the end of this node.
    pub fn owner(&self) -> Option<ObjectId> {
        match self {
            NodeKind::ChunkFile(id, _) | NodeKind::AttrFile(id, _) => Some(*id),
            other => other.object(),
        }
    }

    /// True for what is shown below `.h5dir`, under names that follow those of the main tree.
    pub fn is_view(&self) -> bool {
        match self {
            NodeKind::Group(view, _) | NodeKind::Dataset(view, _) => *view != View::Main,
            NodeKind::ChunkDir(_) | NodeKind::ChunkFile(..) | NodeKind::AttrDir(_) | NodeKind::AttrFile(..) => true,
            _ => false,
        }
    }

    /// True for directories.
    pub fn is_directory(&self) -> bool {
        matches!(self, NodeKind::Group(..) | NodeKind::Control | NodeKind::ChunkDir(_) | NodeKind::AttrDir(_))
    }
}

/// Where a node is.
#[derive(Debug, Clone)]
pub struct Place {
    /// Directory it was found in; `None` at the root.
    pub parent: Option<Arc<Node>>,
    /// File name.
    pub name: Box<[u8]>,
    /// Link name where the file name shown differs from it.
    pub link_name: Option<Box<[u8]>>,
}

/// A node and its place.
#[derive(Debug)]
pub struct Node {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    place: RwLock<Place>,
    /// Greatest address of a group from here up: most groups lie behind those they are in, so that a cycle
    /// is ruled out without a look at each. In a container that is changed it says nothing.
    greatest: u64,
    refs: AtomicU64,
    /// Its object has no names any more, or its own name is gone.
    gone: AtomicBool,
    /// Files open on it, and one if it was replaced.
    opens: AtomicU64,
    /// One more than where the file ended when a page was filled up behind it, or 0.
    padded: AtomicU64,
    /// Writes to it.
    pub(super) writes: Writes,
    /// State of the container in which it was found.
    pub state: u64,
    /// State of the container in which it was opened last.
    opened_in: AtomicU64,
}

impl Node {
    /// A node that is in no table yet.
    pub fn new(parent: &Arc<Node>, name: &[u8], link_name: Option<Box<[u8]>>, kind: NodeKind) -> Node {
        let greatest = parent.greatest.max(group_address(&kind));
        let place = Place { parent: Some(parent.clone()), name: name.into(), link_name };
        Self::at(number(parent.ino, name, &kind), kind, place, greatest, parent.state)
    }

    fn at(ino: Ino, kind: NodeKind, place: Place, greatest: u64, state: u64) -> Node {
        let (refs, gone, opens, padded, writes) = Default::default();
        Node {
            ino,
            kind,
            place: RwLock::new(place),
            greatest,
            refs,
            gone,
            opens,
            padded,
            writes,
            state,
            opened_in: AtomicU64::new(u64::MAX),
        }
    }

    /// It is opened in `state`; returns whether it was opened in that state before.
    pub fn note_opened(&self, state: u64) -> bool {
        self.opened_in.swap(state, Ordering::AcqRel) == state
    }

    /// Directory it is in; `None` at the root.
    pub fn parent(&self) -> Option<Arc<Node>> {
        self.place.read().parent.clone()
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place.read().clone()
    }

    /// Link name where the file name shown differs from it.
    pub fn link_name(&self) -> Option<Box<[u8]>> {
        self.place.read().link_name.clone()
    }

    /// True when no name leads to it any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Where the file ended when the kernel was given a page that is filled up behind that.
    pub fn padded(&self) -> Option<u64> {
        self.padded.load(Ordering::Acquire).checked_sub(1)
    }

    /// Notes that, or that there is no such page.
    pub fn set_padded(&self, end: Option<u64>) {
        self.padded.store(end.map_or(0, |end| end.saturating_add(1)), Ordering::Release);
    }

    /// Files open on it.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::Acquire)
    }

    /// One more, or one less, file is open on it.
    pub fn count_open(&self, more: bool) {
        if more {
            self.opens.fetch_add(1, Ordering::AcqRel)
        } else {
            self.opens.fetch_sub(1, Ordering::AcqRel)
        };
    }

    /// Link names that lead here from the root of the mount.
    pub fn path(self: &Arc<Node>) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = self.clone();
        while let Some(parent) = at.parent() {
            let place = at.place();
            names.push(place.link_name.unwrap_or(place.name).into_vec());
            at = parent;
        }
        names.reverse();
        names
    }

    /// Directory levels up to the group `id`, if this is it or lies in it.
    pub fn levels_up_to(self: &Arc<Node>, id: ObjectId) -> Option<usize> {
        if id.address.0 > self.greatest {
            return None;
        }
        let mut at = Some(self.clone());
        for up in 0.. {
            let node = at?;
            if matches!(node.kind, NodeKind::Group(_, group) if group == id) {
                return Some(up);
            }
            at = node.parent();
        }
        None
    }

    /// Directory levels between this directory and the root of its view.
    pub fn depth(self: &Arc<Node>) -> usize {
        let all = std::iter::successors(Some(self.clone()), |n| n.parent());
        all.take_while(|n| n.kind != NodeKind::Control).count().saturating_sub(1)
    }

    /// True when a node of this kind is told by its object alone, however it was reached.
    fn numbered_by_object(&self) -> bool {
        self.kind.numbered()
    }

    /// True when `other`, not in a table yet, is this one.
    fn is(&self, other: &Node) -> bool {
        let same_kind = match (&self.kind, &other.kind) {
            // What a link says depends on where it is: it is asked when it is read.
            (NodeKind::Symlink(_), NodeKind::Symlink(_)) if self.greatest == ANYTHING => true,
            // An attribute may have been moved: what it is called is where it is.
            (NodeKind::AttrFile(a, _), NodeKind::AttrFile(b, _)) if self.greatest == ANYTHING => a == b,
            (a, b) => a == b,
        };
        let same = same_kind && self.state == other.state && !self.is_gone();
        same && (self.numbered_by_object() || self.has_place_of(other))
    }

    fn has_place_of(&self, other: &Node) -> bool {
        let (a, b) = (self.place.read(), other.place.read());
        let ino = |p: &Place| p.parent.as_ref().map(|n| n.ino);
        a.name == b.name && ino(&a) == ino(&b)
    }
}

/// [`Node::greatest`] where groups may come to lie anywhere.
const ANYTHING: u64 = u64::MAX;

fn group_address(kind: &NodeKind) -> u64 {
    if let NodeKind::Group(_, id) = kind { id.address.0 } else { 0 }
}

/// A chain of thousands of directories goes one by one: recursion would run out of stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.place.get_mut().parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.place.get_mut().parent.take();
        }
    }
}

const DATASET: u64 = 1 << 62;
const HASHED: u64 = 1 << 63;

impl NodeKind {
    /// Number of a node of this kind that does not depend on where it is.
    fn own_number(&self) -> Option<Ino> {
        let (view, id) = match self {
            NodeKind::Dataset(view, id) => (*view, id),
            NodeKind::Datatype(id) | NodeKind::Unknown(id) => (View::Main, id),
            _ => return None,
        };
        let view = match view {
            View::Exact => 1u64,
            View::Npy => 2,
            View::Main | View::Chunks | View::Attrs => 0,
        };
        let fits = id.address.0 < 1 << 48 && id.file < 1 << 12;
        fits.then_some(Ino(DATASET | view << 60 | u64::from(id.file) << 48 | id.address.0))
    }

    fn numbered(&self) -> bool {
        self.own_number().is_some()
    }
}

/// The number that a node has unless something else has it.
pub fn number(parent: Ino, name: &[u8], kind: &NodeKind) -> Ino {
    kind.own_number().unwrap_or_else(|| {
        // FNV-1a over the parent's number and the name.
        let bytes = parent.0.to_le_bytes();
        let h = bytes.iter().chain(name).fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        Ino(h | HASHED)
    })
}

#[derive(Default)]
struct Maps {
    nodes: HashMap<Ino, Arc<Node>>,
    /// Nodes that have another number than [`number`] says, under the one it says.
    elsewhere: HashMap<Ino, Vec<Ino>>,
    /// Numbers of the nodes that end with an object; kept in a container that is changed.
    of_object: Option<HashMap<ObjectId, Vec<Ino>>>,
    /// Other places than its own that a node was found at; kept in a container that others change.
    also: Option<HashMap<Ino, HashSet<(Ino, Box<[u8]>)>>>,
}

impl Maps {
    /// The node that stands for `node`, which says by itself that it is `natural`.
    fn find(&self, node: &Node, natural: Ino) -> Option<&Arc<Node>> {
        let others = self.elsewhere.get(&natural).into_iter().flatten();
        std::iter::once(&natural).chain(others).filter_map(|ino| self.nodes.get(ino)).find(|there| there.is(node))
    }

    fn natural(node: &Node) -> Ino {
        let place = node.place.read();
        let parent = place.parent.as_ref().map_or(ROOT, |p| p.ino);
        number(parent, &place.name, &node.kind)
    }

    /// A number that no node has: `ino` if possible. Two paths may have one hash, and a node keeps its number while it
    /// is known, whatever became of its object: the later one moves on.
    fn free(&self, mut ino: Ino) -> Ino {
        while self.nodes.contains_key(&ino) {
            ino = Ino(ino.0.wrapping_add(1) | HASHED);
        }
        ino
    }

    fn strike(&mut self, natural: Ino, ino: Ino) {
        if let Some(all) = self.elsewhere.get_mut(&natural) {
            all.retain(|i| *i != ino);
            if all.is_empty() {
                self.elsewhere.remove(&natural);
            }
        }
    }

    fn enter(&mut self, natural: Ino, ino: Ino) {
        if natural != ino {
            self.elsewhere.entry(natural).or_default().push(ino);
        }
    }
}

/// All nodes the kernel holds references to.
pub struct NodeTable {
    maps: Mutex<Maps>,
    root: RwLock<Arc<Node>>,
}

impl NodeTable {
    /// A table with the root, which is never forgotten. `changing`: names and objects come and go. `followed`: all may be another
    /// than it was.
    pub fn new(root: NodeKind, changing: bool, followed: bool) -> Self {
        let greatest = if changing { ANYTHING } else { group_address(&root) };
        let root = Arc::new(Node::at(ROOT, root, Place { parent: None, name: Box::default(), link_name: None }, greatest, 0));
        let (of_object, also) = (changing.then(HashMap::new), followed.then(HashMap::new));
        let maps = Maps { nodes: HashMap::from_iter([(ROOT, root.clone())]), of_object, also, ..Maps::default() };
        NodeTable { maps: Mutex::new(maps), root: RwLock::new(root) }
    }

    /// The root.
    pub fn root(&self) -> Arc<Node> {
        self.root.read().clone()
    }

    /// The node of `ino`.
    pub fn get(&self, ino: Ino) -> Option<Arc<Node>> {
        if ino == ROOT { Some(self.root()) } else { self.maps.lock().nodes.get(&ino).cloned() }
    }

    /// Nodes held.
    pub fn len(&self) -> usize {
        self.maps.lock().nodes.len()
    }

    /// True when only the root is held.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The number that `node`, not in the table, is known by or would get.
    pub fn number_of(&self, node: &Node) -> Ino {
        let maps = self.maps.lock();
        maps.find(node, node.ino).map_or_else(|| maps.free(node.ino), |n| n.ino)
    }

    /// Enters `node` with one more reference; returns the node that stands for it.
    pub fn reference(&self, mut node: Node) -> Arc<Node> {
        let mut maps = self.maps.lock();
        let natural = node.ino;
        if let Some(there) = maps.find(&node, natural).cloned() {
            there.refs.fetch_add(1, Ordering::Relaxed);
            maps.note_place(&there, &node);
            return there;
        }
        node.ino = maps.free(natural);
        node.refs = AtomicU64::new(1);
        let node = Arc::new(node);
        maps.nodes.insert(node.ino, node.clone());
        maps.enter(natural, node.ino);
        if let (Some(of_object), Some(id)) = (&mut maps.of_object, node.kind.owner()) {
            of_object.entry(id).or_default().push(node.ino);
        }
        node
    }

    /// The node that stands for `node`, which is not in the table.
    pub fn known(&self, node: &Node) -> Option<Arc<Node>> {
        self.maps.lock().find(node, node.ino).cloned()
    }

    /// Drops `count` references; the node goes with the last one, which is told.
    pub fn forget(&self, ino: Ino, count: u64) -> bool {
        if ino == ROOT {
            return false;
        }
        let mut maps = self.maps.lock();
        let gone = maps.nodes.get(&ino).is_some_and(|n| {
            let left = n.refs.load(Ordering::Relaxed).saturating_sub(count);
            n.refs.store(left, Ordering::Relaxed);
            left == 0
        });
        let Some(node) = gone.then(|| maps.nodes.remove(&ino)).flatten() else { return false };
        if let Some(also) = &mut maps.also {
            also.remove(&ino);
        }
        maps.strike(Maps::natural(&node), ino);
        if let (Some(of_object), Some(id)) = (&mut maps.of_object, node.kind.owner())
            && let Some(all) = of_object.get_mut(&id)
        {
            all.retain(|i| *i != ino);
            if all.is_empty() {
                of_object.remove(&id);
            }
        }
        true
    }

    /// The files of the dataset `id` that are open, in the main tree and below `.h5dir`.
    pub fn open_on(&self, id: ObjectId) -> Vec<Ino> {
        let maps = self.maps.lock();
        let all = maps.of_object.as_ref().and_then(|o| o.get(&id)).into_iter().flatten();
        let open = |ino: &&Ino| maps.nodes.get(ino).is_some_and(|n| n.opens() > 0 && matches!(n.kind, NodeKind::Dataset(..)));
        all.filter(open).copied().collect()
    }

    /// Nothing leads to the object `id` any more: its nodes stand for nothing that is looked up later.
    pub fn object_gone(&self, id: ObjectId) {
        let mut maps = self.maps.lock();
        let all = maps.of_object.as_mut().and_then(|o| o.remove(&id)).unwrap_or_default();
        for ino in all {
            if let Some(node) = maps.nodes.get(&ino).cloned() {
                node.gone.store(true, Ordering::Release);
                maps.strike(Maps::natural(&node), ino);
            }
        }
    }

    /// The name of `node`, not in the table, is gone. What is told by its object may have others.
    pub fn name_gone(&self, node: &Node) {
        if node.numbered_by_object() {
            return;
        }
        let mut maps = self.maps.lock();
        if let Some(there) = maps.find(node, node.ino).cloned() {
            there.gone.store(true, Ordering::Release);
            maps.strike(node.ino, there.ino);
        }
    }

    /// The nodes that stand for `moved`, none in the table themselves, are where it says now.
    pub fn moved(&self, moved: &[(Node, Place)]) {
        let mut maps = self.maps.lock();
        // All found before any is changed: two may have changed places.
        let found: Vec<_> = moved.iter().map(|(node, _)| maps.find(node, node.ino).cloned()).collect();
        for ((old, place), node) in moved.iter().zip(found) {
            let Some(node) = node else { continue };
            if node.numbered_by_object() {
                // It has one place of perhaps many names.
                let was = old.place();
                let mut now = node.place.write();
                if now.name == was.name && now.parent.as_ref().map(|p| p.ino) == was.parent.as_ref().map(|p| p.ino) {
                    *now = place.clone();
                }
                continue;
            }
            maps.strike(Maps::natural(&node), node.ino);
            *node.place.write() = place.clone();
            maps.enter(Maps::natural(&node), node.ino);
        }
    }
}
