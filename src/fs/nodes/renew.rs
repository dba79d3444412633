//! Nodes of a container that others change: found again by their paths when its state is another.

use super::{Ino, Maps, Node, NodeKind, NodeTable, ROOT};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places of one node that are remembered beside its own.
const PLACES_MAX: usize = 1 << 16;

/// A name in a directory.
pub type Name = (Ino, Box<[u8]>);

impl Maps {
    /// The node `there` was found at the place of `node`.
    pub(super) fn note_place(&mut self, there: &Node, node: &Node) {
        let Some(also) = &mut self.also else { return };
        if !there.numbered_by_object() || there.has_place_of(node) {
            return;
        }
        let place = node.place();
        let places = also.entry(there.ino).or_default();
        if let Some(parent) = place.parent.filter(|_| places.len() < PLACES_MAX) {
            places.insert((parent.ino, place.name));
        }
    }
}

impl NodeTable {
    /// The root as it is in `state`.
    pub fn renew_root(&self, kind: NodeKind, state: u64) -> Arc<Node> {
        let mut root = self.root.write();
        if root.state == state {
            return root.clone();
        }
        let greatest = super::group_address(&kind);
        *root = Arc::new(Node::at(ROOT, kind, root.place(), greatest, state));
        let new = root.clone();
        drop(root);
        self.maps.lock().nodes.insert(ROOT, new.clone());
        new
    }

    /// What `old` was is `new` now, which has its place: the number stays. Returns the node that stands for it.
    pub fn renew(&self, old: &Arc<Node>, mut new: Node) -> Arc<Node> {
        let mut maps = self.maps.lock();
        let natural = new.ino;
        new.ino = old.ino;
        match maps.nodes.get(&old.ino) {
            // Somebody else was faster.
            Some(there) if !Arc::ptr_eq(there, old) && there.state == new.state => return there.clone(),
            Some(there) if Arc::ptr_eq(there, old) => new.refs = AtomicU64::new(there.refs.load(Ordering::Relaxed)),
            // The kernel does not know it any more; only what lies in it is still known.
            _ => return Arc::new(new),
        }
        maps.strike(Maps::natural(old), old.ino);
        let new = Arc::new(new);
        maps.nodes.insert(new.ino, new.clone());
        maps.enter(natural, new.ino);
        new
    }

    /// Nothing is at the place of `node` any more, or something that cannot have its number.
    pub fn lose(&self, node: &Arc<Node>) {
        let mut maps = self.maps.lock();
        if maps.nodes.get(&node.ino).is_none_or(|there| Arc::ptr_eq(there, node)) {
            node.gone.store(true, Ordering::Release);
            maps.strike(Maps::natural(node), node.ino);
        }
    }

    /// An outdated node that may stand for `node`, not in the table, once it is found again.
    pub fn outdated(&self, node: &Node) -> Option<Arc<Node>> {
        let maps = self.maps.lock();
        let others = maps.elsewhere.get(&node.ino).into_iter().flatten();
        let all = std::iter::once(&node.ino).chain(others).filter_map(|ino| maps.nodes.get(ino));
        let mut outdated = all.filter(|n| n.state != node.state && !n.is_gone());
        outdated.find(|n| n.has_place_of(node) || (n.numbered_by_object() && n.kind == node.kind)).cloned()
    }

    /// Numbers of all nodes.
    pub fn numbers(&self) -> Vec<Ino> {
        self.maps.lock().nodes.keys().copied().collect()
    }

    /// The other names than its own that the node `ino` was found by.
    pub fn other_names(&self, ino: Ino) -> Vec<Name> {
        let maps = self.maps.lock();
        let names = maps.also.as_ref().and_then(|also| also.get(&ino));
        names.into_iter().flatten().cloned().collect()
    }
}
