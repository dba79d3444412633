//! The table of nodes that the kernel knows.
//!
//! In a container that is changed, a number stays with its node: a directory that was moved keeps
//! its number, and an object that lost its last name keeps its number until the kernel forgets it.
//! Another node with the same natural number gets the next free one.
//!
//! In a container that another process changes, a number stands for what its path leads to: when
//! the container is in another state, a node is outdated until it is found again by its path, and
//! gone if it is not there (see [`NodeTable::renew`]).

#[cfg(test)]
mod tests;

use super::node::{ANY_ADDRESS, Node, NodePlace, group_address, next_number, number};
use crate::base::locks::{Mutex, RwLock};
use crate::connector::ObjectId;
use crate::fs::types::{Ino, ROOT};
use crate::fs::views::{Inode, Item};
use foldhash::{HashMap, HashMapExt, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most places of one node that are remembered beside its own.
const PLACES_MAX: usize = 1 << 16;

/// A name in a directory.
pub type Name = (Ino, Box<[u8]>);

#[derive(Default)]
struct Maps {
    nodes: HashMap<Ino, Arc<Node>>,
    /// Nodes that do not have their natural number ([`number`]), by their natural number.
    renumbered: HashMap<Ino, Vec<Ino>>,
    /// Numbers of the nodes that are gone when an object is; kept in a container that is changed.
    by_object: Option<HashMap<ObjectId, Vec<Ino>>>,
    /// Other places that a node was found at; kept in a container that another process changes.
    other_places: Option<HashMap<Ino, HashSet<(Ino, Box<[u8]>)>>>,
}

impl Maps {
    /// The node in the table that is `node`, whose natural number is `natural`.
    fn find(&self, node: &Node, natural: Ino) -> Option<&Arc<Node>> {
        let others = self.renumbered.get(&natural).into_iter().flatten();
        std::iter::once(&natural).chain(others).filter_map(|ino| self.nodes.get(ino)).find(|there| there.is(node))
    }

    fn natural(node: &Node) -> Ino {
        let place = node.place.read();
        let parent = place.parent.as_ref().map_or(ROOT, |p| p.ino);
        number(parent, &place.name, &node.item)
    }

    /// A number that no node has: `ino` if possible. Two paths may have one hash, and a node keeps
    /// its number while the kernel knows it.
    fn free(&self, mut ino: Ino) -> Ino {
        while self.nodes.contains_key(&ino) {
            ino = next_number(ino);
        }
        ino
    }

    fn remove_renumbered(&mut self, natural: Ino, ino: Ino) {
        if let Some(all) = self.renumbered.get_mut(&natural) {
            all.retain(|i| *i != ino);
            if all.is_empty() {
                self.renumbered.remove(&natural);
            }
        }
    }

    fn enter(&mut self, natural: Ino, ino: Ino) {
        if natural != ino {
            self.renumbered.entry(natural).or_default().push(ino);
        }
    }

    /// The node `there` was found at the place of `node`.
    fn note_place(&mut self, there: &Node, node: &Node) {
        let Some(other_places) = &mut self.other_places else { return };
        if !there.numbered_by_object() || there.has_place_of(node) {
            return;
        }
        let place = node.place();
        let places = other_places.entry(there.ino).or_default();
        if let Some(parent) = place.parent.filter(|_| places.len() < PLACES_MAX) {
            places.insert((parent.ino, place.name));
        }
    }
}

/// All nodes the kernel holds references to.
pub struct NodeTable {
    maps: Mutex<Maps>,
    root: RwLock<Arc<Node>>,
}

impl NodeTable {
    /// A table with the root, which is never forgotten. `changing`: the container is changed.
    /// `followed`: another process changes it.
    pub fn new(root: Item, changing: bool, followed: bool) -> Self {
        let greatest = if changing { ANY_ADDRESS } else { group_address(&root) };
        let root = Arc::new(Node::at(ROOT, root, NodePlace { parent: None, name: Box::default(), link_name: None }, greatest, 0));
        let (by_object, other_places) = (changing.then(HashMap::new), followed.then(HashMap::new));
        let maps = Maps { nodes: HashMap::from_iter([(ROOT, root.clone())]), by_object, other_places, ..Maps::default() };
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
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The number that `node`, not in the table, is known by or would get.
    pub fn number_of(&self, node: &Node) -> Ino {
        let maps = self.maps.lock();
        maps.find(node, node.ino).map_or_else(|| maps.free(node.ino), |n| n.ino)
    }

    /// Enters `node` with one more reference; returns the node in the table.
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
        if let (Some(by_object), Some(id)) = (&mut maps.by_object, node.item.owner) {
            by_object.entry(id).or_default().push(node.ino);
        }
        node
    }

    /// The node in the table that is `node`.
    pub fn known(&self, node: &Node) -> Option<Arc<Node>> {
        self.maps.lock().find(node, node.ino).cloned()
    }

    /// Drops `count` references; returns true if these were the last ones, and the node was
    /// removed.
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
        if let Some(other_places) = &mut maps.other_places {
            other_places.remove(&ino);
        }
        maps.remove_renumbered(Maps::natural(&node), ino);
        if let (Some(by_object), Some(id)) = (&mut maps.by_object, node.item.owner)
            && let Some(all) = by_object.get_mut(&id)
        {
            all.retain(|i| *i != ino);
            if all.is_empty() {
                by_object.remove(&id);
            }
        }
        true
    }

    /// The files of the dataset `id` that are open, in the main tree and below `.h5dir`.
    pub fn open_on(&self, id: ObjectId) -> Vec<Ino> {
        let maps = self.maps.lock();
        let all = maps.by_object.as_ref().and_then(|o| o.get(&id)).into_iter().flatten();
        let open = |ino: &&Ino| maps.nodes.get(ino).is_some_and(|n| n.opens() > 0 && n.item.elements_of().is_some());
        all.filter(open).copied().collect()
    }

    /// Nodes of the object `id`, in a container that is changed.
    pub fn of_object(&self, id: ObjectId) -> Vec<Arc<Node>> {
        let maps = self.maps.lock();
        let all = maps.by_object.as_ref().and_then(|o| o.get(&id)).into_iter().flatten();
        all.filter_map(|ino| maps.nodes.get(ino)).filter(|n| n.item.object() == Some(id)).cloned().collect()
    }

    /// The object `id` lost its last name: later look-ups do not find its nodes.
    pub fn object_gone(&self, id: ObjectId) {
        let mut maps = self.maps.lock();
        let all = maps.by_object.as_mut().and_then(|o| o.remove(&id)).unwrap_or_default();
        for ino in all {
            if let Some(node) = maps.nodes.get(&ino).cloned() {
                node.gone.store(true, Ordering::Release);
                maps.remove_renumbered(Maps::natural(&node), ino);
            }
        }
    }

    /// The name of `node`, not in the table, was removed. A node numbered by its object may have
    /// other names.
    pub fn name_gone(&self, node: &Node) {
        if node.numbered_by_object() {
            return;
        }
        let mut maps = self.maps.lock();
        if let Some(there) = maps.find(node, node.ino).cloned() {
            there.gone.store(true, Ordering::Release);
            maps.remove_renumbered(node.ino, there.ino);
        }
    }

    /// Gives nodes new places. The nodes of `moved` are not in the table themselves.
    pub fn moved(&self, moved: &[(Node, NodePlace)]) {
        let mut maps = self.maps.lock();
        // All are found before any is changed: two may exchange places.
        let found: Vec<_> = moved.iter().map(|(node, _)| maps.find(node, node.ino).cloned()).collect();
        for ((old, place), node) in moved.iter().zip(found) {
            let Some(node) = node else { continue };
            if node.numbered_by_object() {
                // It has one place of perhaps many.
                let was = old.place();
                let mut now = node.place.write();
                if now.name == was.name && now.parent.as_ref().map(|p| p.ino) == was.parent.as_ref().map(|p| p.ino) {
                    *now = place.clone();
                }
                continue;
            }
            maps.remove_renumbered(Maps::natural(&node), node.ino);
            *node.place.write() = place.clone();
            maps.enter(Maps::natural(&node), node.ino);
        }
    }

    /// The root as it is in `state`.
    pub fn renew_root(&self, item: Item, state: u64) -> Arc<Node> {
        let mut root = self.root.write();
        if root.state == state {
            return root.clone();
        }
        let greatest = group_address(&item);
        *root = Arc::new(Node::at(ROOT, item, root.place(), greatest, state));
        let new = root.clone();
        drop(root);
        self.maps.lock().nodes.insert(ROOT, new.clone());
        new
    }

    /// Replaces `old` by `new`, which is at its place and keeps its number. Returns the node in the
    /// table.
    pub fn renew(&self, old: &Arc<Node>, mut new: Node) -> Arc<Node> {
        let mut maps = self.maps.lock();
        let natural = new.ino;
        new.ino = old.ino;
        match maps.nodes.get(&old.ino) {
            // Another request renewed it first.
            Some(there) if !Arc::ptr_eq(there, old) && there.state == new.state => return there.clone(),
            Some(there) if Arc::ptr_eq(there, old) => new.refs = AtomicU64::new(there.refs.load(Ordering::Relaxed)),
            // The kernel knows only nodes below it.
            _ => return Arc::new(new),
        }
        maps.remove_renumbered(Maps::natural(old), old.ino);
        let new = Arc::new(new);
        maps.nodes.insert(new.ino, new.clone());
        maps.enter(natural, new.ino);
        new
    }

    /// Marks `node` as gone: its place is empty, or has a file of another type.
    pub fn lose(&self, node: &Arc<Node>) {
        let mut maps = self.maps.lock();
        if maps.nodes.get(&node.ino).is_none_or(|there| Arc::ptr_eq(there, node)) {
            node.gone.store(true, Ordering::Release);
            maps.remove_renumbered(Maps::natural(node), node.ino);
        }
    }

    /// An outdated node that may be `node`, not in the table, once it is found again.
    pub fn outdated(&self, node: &Node) -> Option<Arc<Node>> {
        let maps = self.maps.lock();
        let others = maps.renumbered.get(&node.ino).into_iter().flatten();
        let all = std::iter::once(&node.ino).chain(others).filter_map(|ino| maps.nodes.get(ino));
        let mut outdated = all.filter(|n| n.state != node.state && !n.is_gone());
        outdated.find(|n| n.has_place_of(node) || (n.numbered_by_object() && n.item == node.item)).cloned()
    }

    /// Numbers of all nodes.
    pub fn numbers(&self) -> Vec<Ino> {
        self.maps.lock().nodes.keys().copied().collect()
    }

    /// The other names than its own that the node `ino` was found by.
    pub fn other_names(&self, ino: Ino) -> Vec<Name> {
        let maps = self.maps.lock();
        let names = maps.other_places.as_ref().and_then(|places| places.get(&ino));
        names.into_iter().flatten().cloned().collect()
    }
}
