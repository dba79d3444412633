//! The table of nodes that the kernel knows.

use super::node::{Key, MirrorPlace, Node, What};
use crate::base::locks::Mutex;
use crate::fs::open::Identity;
use crate::fs::types::{Ino, ROOT};
use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Default)]
struct Maps {
    by_ino: HashMap<Ino, Arc<Node>>,
    by_key: HashMap<Key, Arc<Node>>,
    /// By the number of the directory, and the name that was found last.
    by_place: HashMap<(Ino, Box<[u8]>), Arc<Node>>,
}

fn place_key(place: &MirrorPlace) -> (Ino, Box<[u8]>) {
    (place.parent.as_ref().map_or(ROOT, |parent| parent.ino), place.name.clone())
}

impl Maps {
    /// `node` is no more what is found at its place.
    fn leave_place(&mut self, node: &Arc<Node>) {
        let place = place_key(&node.place());
        if self.by_place.get(&place).is_some_and(|there| Arc::ptr_eq(there, node)) {
            self.by_place.remove(&place);
        }
    }

    /// `node` is what is found at its place, if the kernel knows it still.
    fn take_place(&mut self, node: &Arc<Node>) {
        if self.by_ino.get(&node.ino).is_some_and(|there| Arc::ptr_eq(there, node)) {
            self.by_place.insert(place_key(&node.place()), node.clone());
        }
    }

    fn leave_key(&mut self, node: &Arc<Node>, key: Key) {
        if self.by_key.get(&key).is_some_and(|there| Arc::ptr_eq(there, node)) {
            self.by_key.remove(&key);
        }
    }

    fn rename_key(&mut self, node: &Arc<Node>, key: Key) {
        let old = std::mem::replace(&mut *node.key.lock(), key);
        self.leave_key(node, old);
        if self.by_ino.contains_key(&node.ino) && !node.is_gone() {
            self.by_key.insert(key, node.clone());
        }
    }
}

/// See the module's description.
pub struct NodeTable {
    maps: Mutex<Maps>,
}

/// How a node was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By what identifies it.
    Key,
    /// By its directory and name.
    Place,
}

/// A node to look up or to enter.
pub struct Wanted<'a> {
    /// What identifies it.
    pub key: Key,
    /// The file of its container, or its own.
    pub salt: Identity,
    /// What it is.
    pub what: What,
    /// Its directory.
    pub parent: &'a Arc<Node>,
    /// Name of its file.
    pub name: &'a [u8],
}

impl NodeTable {
    /// A table with the root, which is never forgotten.
    pub fn new(root: Arc<Node>) -> NodeTable {
        let maps = Maps { by_ino: HashMap::from_iter([(ROOT, root)]), by_key: HashMap::new(), by_place: HashMap::new() };
        NodeTable { maps: Mutex::new(maps) }
    }

    /// The node of `ino`.
    pub fn get(&self, ino: Ino) -> Option<Arc<Node>> {
        self.maps.lock().by_ino.get(&ino).cloned()
    }

    /// The node that `key` identifies.
    pub fn find(&self, key: Key) -> Option<Arc<Node>> {
        self.maps.lock().by_key.get(&key).cloned()
    }

    /// The node that was found last as `name` in the directory `parent`.
    pub fn at(&self, parent: Ino, name: &[u8]) -> Option<Arc<Node>> {
        self.maps.lock().by_place.get(&(parent, name.into())).cloned()
    }

    /// `node` is `name` in `parent` now.
    pub fn put(&self, node: &Arc<Node>, parent: &Arc<Node>, name: &[u8]) {
        let mut maps = self.maps.lock();
        maps.leave_place(node);
        node.put(parent, name);
        maps.take_place(node);
    }

    /// The name at which `node` was found last is gone. `is_last`: so is the file, which only those
    /// have who have it open.
    pub fn remove(&self, node: &Arc<Node>, is_last: bool) {
        let mut maps = self.maps.lock();
        maps.leave_place(node);
        if is_last {
            node.gone.store(true, Ordering::Release);
            let key = *node.key.lock();
            maps.leave_key(node, key);
        }
    }

    /// Nodes held.
    pub fn len(&self) -> usize {
        self.maps.lock().by_ino.len()
    }

    /// The number that a node with `key` has or would get.
    pub fn number(&self, key: Key, salt: Identity) -> Ino {
        self.find(key).map_or_else(|| key.number(salt), |node| node.ino)
    }

    /// Enters a node with one more reference of the kernel; returns it, and whether it is new.
    pub fn enter(&self, wanted: Wanted<'_>) -> (Arc<Node>, bool) {
        self.enter_if(wanted, &|_, by| by == By::Key)
    }

    /// [`NodeTable::enter`]; `is_same`: whether a node, found in one of two ways, is the wanted
    /// one.
    pub fn enter_if(&self, wanted: Wanted<'_>, is_same: &dyn Fn(&Node, By) -> bool) -> (Arc<Node>, bool) {
        let Wanted { key, salt, what, parent, name } = wanted;
        let mut maps = self.maps.lock();
        let at_place = maps.by_place.get(&(parent.ino, name.into())).filter(|there| is_same(there, By::Place));
        let there = at_place.or_else(|| maps.by_key.get(&key).filter(|there| is_same(there, By::Key)));
        if let Some(there) = there.filter(|there| same_kind(&there.what, &what) && !there.is_gone()).cloned() {
            there.refs.fetch_add(1, Ordering::Relaxed);
            // Of several names the last one found is remembered.
            let MirrorPlace { parent: before, name: old } = there.place();
            let same = *old == *name && before.is_some_and(|p| p.ino == parent.ino);
            // A directory that was moved into itself meanwhile keeps its place, which is stale.
            if !same && !there.is_above(parent) {
                maps.leave_place(&there);
                there.put(parent, name);
                maps.take_place(&there);
            }
            if *there.key.lock() != key {
                maps.rename_key(&there, key);
            }
            return (there, false);
        }
        let mut ino = key.number(salt);
        while maps.by_ino.contains_key(&ino) || ino == ROOT {
            ino = Ino(ino.0.wrapping_add(1));
        }
        let original = parent.original || matches!(key, Key::Host { original: true, .. });
        let node = Arc::new(Node::new(ino, key, what, original, MirrorPlace { parent: Some(parent.clone()), name: name.into() }));
        node.refs.store(1, Ordering::Relaxed);
        maps.by_ino.insert(ino, node.clone());
        maps.by_key.insert(key, node.clone());
        maps.take_place(&node);
        (node, true)
    }

    /// The node has another key now.
    pub fn rename_key(&self, node: &Arc<Node>, key: Key) {
        self.maps.lock().rename_key(node, key);
    }

    /// Drops `count` references of the kernel; returns the node if these were the last ones.
    pub fn forget(&self, ino: Ino, count: u64) -> Option<Arc<Node>> {
        if ino == ROOT {
            return None;
        }
        let mut maps = self.maps.lock();
        let node = maps.by_ino.get(&ino)?;
        let left = node.refs.load(Ordering::Relaxed).saturating_sub(count);
        node.refs.store(left, Ordering::Relaxed);
        if left > 0 {
            return None;
        }
        let node = maps.by_ino.remove(&ino)?;
        let key = *node.key.lock();
        maps.leave_key(&node, key);
        maps.leave_place(&node);
        Some(node)
    }
}

fn same_kind(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::Inside(_, a), What::Inside(_, b)) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64) -> Identity {
        Identity { device: 1, inode }
    }

    fn host(inode: u64) -> Key {
        Key::Host { identity: identity(inode), original: false, container: false }
    }

    fn table() -> (NodeTable, Arc<Node>) {
        let place = MirrorPlace { parent: None, name: Box::default() };
        let root = Arc::new(Node::new(ROOT, host(0), What::Directory, false, place));
        (NodeTable::new(root.clone()), root)
    }

    fn enter(table: &NodeTable, root: &Arc<Node>, inode: u64, what: What, name: &[u8]) -> (Arc<Node>, bool) {
        table.enter(Wanted { key: host(inode), salt: identity(inode), what, parent: root, name })
    }

    #[test]
    fn a_node_is_there_until_its_last_reference_is_dropped() {
        let (table, root) = table();
        let (a, new) = enter(&table, &root, 7, What::File, b"a");
        let (again, new_again) = enter(&table, &root, 7, What::File, b"b");
        assert!(new && !new_again && Arc::ptr_eq(&a, &again) && *a.place().name == *b"b");
        assert_eq!(table.number(host(7), identity(7)), a.ino);
        assert!(table.forget(a.ino, 1).is_none() && table.get(a.ino).is_some());
        assert!(table.forget(a.ino, 1).is_some() && table.get(a.ino).is_none() && table.find(host(7)).is_none());
        assert!(table.forget(ROOT, 5).is_none() && table.len() == 1);
    }

    #[test]
    fn a_number_is_used_once() {
        let (table, root) = table();
        let (file, _) = enter(&table, &root, 7, What::File, b"a");
        // The inode is that of a directory now; the kernel still knows the file.
        let (directory, new) = enter(&table, &root, 7, What::Directory, b"a");
        assert!(new && file.ino != directory.ino);
        table.forget(file.ino, 1);
        assert!(Arc::ptr_eq(&table.find(host(7)).unwrap(), &directory));
        table.rename_key(&directory, host(8));
        assert!(table.find(host(7)).is_none() && table.find(host(8)).is_some());
    }

    #[test]
    fn a_node_is_found_at_the_place_where_it_is() {
        let (table, root) = table();
        let (a, _) = enter(&table, &root, 7, What::File, b"a");
        let found = |name: &[u8]| table.at(ROOT, name).map(|node| node.ino);
        table.put(&a, &root, b"b");
        assert_eq!((found(b"a"), found(b"b")), (None, Some(a.ino)));
        let (other, _) = enter(&table, &root, 8, What::File, b"b");
        assert_eq!(found(b"b"), Some(other.ino));
        table.remove(&other, true);
        assert_eq!((found(b"b"), table.find(host(8)).is_none(), table.get(other.ino).is_some()), (None, true, true));
        let (again, new) = enter(&table, &root, 8, What::File, b"b");
        assert!(new && again.ino != other.ino);
        // One that the kernel forgot meanwhile.
        table.forget(a.ino, 1);
        table.put(&a, &root, b"c");
        assert_eq!(found(b"c"), None);
    }

    #[test]
    fn a_name_in_a_chain_of_directories_makes_a_path() {
        let (table, root) = table();
        let (a, _) = enter(&table, &root, 1, What::Directory, b"a");
        let (b, _) = table.enter(Wanted { key: host(2), salt: identity(2), what: What::File, parent: &a, name: b"b" });
        assert_eq!(b.path(), std::path::Path::new("a/b"));
        a.put(&root, b"c");
        assert_eq!((b.path(), root.path()), ("c/b".into(), "".into()));
    }
}
