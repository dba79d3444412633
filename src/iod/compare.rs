//! Keys whose values differ in two trees. Nodes that both trees share are not read.

use super::cell::{Cell, Extent};
use super::keys::Key;
use super::node::Node;
use super::objects::Objects;
use super::subtree::Subtree;
use crate::base::Result;
use foldhash::HashSet;
use std::cmp::Ordering;
use std::sync::Arc;

/// The keys whose values differ in the trees with these roots, ascending.
pub(super) fn differing(objects: &Objects, first: Option<&Extent>, second: Option<&Extent>) -> Result<Vec<Key>> {
    let (mut first, mut second) = (Layer::of(objects, first)?, Layer::of(objects, second)?);
    loop {
        let level = first.level.max(second.level);
        if first.level == second.level {
            drop_shared(&mut first, &mut second);
        }
        if level == 0 {
            break;
        }
        for layer in [&mut first, &mut second].into_iter().filter(|layer| layer.level == level) {
            layer.descend(objects)?;
        }
    }
    differing_entries(Leaves::new(objects, &first), Leaves::new(objects, &second))
}

/// Nodes of one level of a tree, ascending.
#[derive(Default)]
struct Layer {
    level: u8,
    nodes: Vec<Subtree>,
}

impl Layer {
    /// The root.
    fn of(objects: &Objects, root: Option<&Extent>) -> Result<Layer> {
        let Some(root) = root.map(Subtree::of_root) else { return Ok(Layer::default()) };
        Ok(Layer { level: root.open(objects)?.level(), nodes: vec![root] })
    }

    /// Replaces the nodes by their children.
    fn descend(&mut self, objects: &Objects) -> Result<()> {
        let mut below = Vec::new();
        for at in &self.nodes {
            below.extend(at.children(&*at.open(objects)?, 0));
        }
        *self = Layer { level: self.level.saturating_sub(1), nodes: below };
        Ok(())
    }
}

/// Removes the nodes that both layers have: the values below them are equal.
fn drop_shared(first: &mut Layer, second: &mut Layer) {
    let of_first: HashSet<Extent> = first.nodes.iter().map(|node| node.extent).collect();
    let shared: HashSet<Extent> = second.nodes.iter().map(|node| node.extent).filter(|extent| of_first.contains(extent)).collect();
    for layer in [first, second] {
        layer.nodes.retain(|node| !shared.contains(&node.extent));
    }
}

/// The entries of leaves, one after the other.
struct Leaves<'a> {
    objects: &'a Objects,
    rest: std::slice::Iter<'a, Subtree>,
    leaf: Option<Arc<Node>>,
    /// Entries of the leaf that were returned.
    done: usize,
}

impl<'a> Leaves<'a> {
    fn new(objects: &'a Objects, layer: &'a Layer) -> Leaves<'a> {
        Leaves { objects, rest: layer.nodes.iter(), leaf: None, done: 0 }
    }

    fn next(&mut self) -> Result<Option<(Key, Cell)>> {
        loop {
            if let Some(Node::Leaf(entries)) = self.leaf.as_deref()
                && let Some(entry) = entries.get(self.done)
            {
                self.done = self.done.saturating_add(1);
                return Ok(Some(entry.clone()));
            }
            let Some(next) = self.rest.next() else { return Ok(None) };
            (self.leaf, self.done) = (Some(next.open(self.objects)?), 0);
        }
    }
}

/// The keys that only one side has, or whose values differ.
fn differing_entries(mut first: Leaves<'_>, mut second: Leaves<'_>) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let (mut a, mut b) = (first.next()?, second.next()?);
    loop {
        let order = match (&a, &b) {
            (None, None) => return Ok(keys),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let cells = [&a, &b].map(|entry| entry.as_ref().map(|(_, cell)| cell));
        let key = match order {
            Ordering::Equal if cells[0] == cells[1] => None,
            Ordering::Greater => b.as_ref().map(|(key, _)| key),
            Ordering::Equal | Ordering::Less => a.as_ref().map(|(key, _)| key),
        };
        keys.extend(key.cloned());
        if order != Ordering::Greater {
            a = first.next()?;
        }
        if order != Ordering::Less {
            b = second.next()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::store::ObjectStore;
    use crate::file::store::memory::MemoryStore;
    use crate::iod::container::{Container, Outcome};
    use crate::iod::delta::Entry;
    use crate::iod::ranges::Ranges;
    use crate::iod::record::Delta;
    use crate::iod::session::Session;
    use crate::iod::snapshot::Snapshot;
    use std::collections::{BTreeMap, BTreeSet};

    type Model = BTreeMap<Key, Vec<u8>>;

    /// Commits changes of `keys`, those of `None` removed, and notes them in `model`.
    fn commit(container: &Container, session: &Session, snapshot: &mut Snapshot, model: &mut Model, changes: &[(u32, Option<u8>)]) {
        let changes: BTreeMap<Key, Option<u8>> = changes.iter().map(|(n, value)| (n.to_be_bytes().to_vec(), *value)).collect();
        let mut entries = Vec::new();
        for (key, value) in changes {
            match value {
                Some(value) => drop(model.insert(key.clone(), vec![value; 60])),
                None => drop(model.remove(&key)),
            }
            entries.push(Entry { key, cell: value.map(|value| Cell::inline(&[value; 60])), ranges: Ranges::whole() });
        }
        let record = container.record(snapshot, session.number(), false, Delta::Inline(entries.clone())).unwrap();
        let Outcome::Committed(hash) = container.append(snapshot, &record).unwrap() else { panic!("another writer") };
        snapshot.advance(&record, hash, &entries).unwrap();
    }

    fn expected(a: &Model, b: &Model) -> BTreeSet<Key> {
        a.keys().chain(b.keys()).filter(|key| a.get(*key) != b.get(*key)).cloned().collect()
    }

    /// Trees of one to three levels, each with all earlier ones; of deltas, keys may be equal.
    #[test]
    fn snapshots_differ_in_the_keys_of_their_models() {
        let store = MemoryStore::default();
        Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
        let container = Container::open(Arc::new(store.clone())).unwrap();
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        let (mut model, mut versions) = (Model::new(), vec![(snapshot.clone(), Model::new())]);
        // Few keys, many, some of them changed, most removed, others.
        let (all, some): (Vec<u32>, Vec<u32>) = ((0..40_000).collect(), (0..40_000).step_by(997).collect());
        let sets: [(&[u32], Option<u8>); 6] =
            [(&all[..9], Some(1)), (&all, Some(2)), (&some, Some(3)), (&all[100..], None), (&all[7..300], Some(4)), (&some, Some(4))];
        for (keys, value) in sets {
            for is_tree in [false, true] {
                let changes: Vec<_> = keys.iter().skip(usize::from(is_tree)).step_by(2).map(|key| (*key, value)).collect();
                commit(&container, &session, &mut snapshot, &mut model, &changes);
                if is_tree {
                    container.checkpoint(&mut snapshot, &session).unwrap();
                }
                versions.push((snapshot.clone(), model.clone()));
            }
        }
        for (a, of_a) in &versions {
            for (b, of_b) in &versions {
                let found = a.differing(&container, b).unwrap();
                let want = expected(of_a, of_b);
                let has_delta = !a.delta().is_empty() || !b.delta().is_empty();
                assert!(found == want || has_delta && found.is_superset(&want), "versions {} and {}", a.version(), b.version());
            }
        }
    }

    /// What is below nodes of both trees is not read.
    #[test]
    fn a_comparison_costs_the_difference() {
        let store = MemoryStore::default();
        Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
        let container = Container::open(Arc::new(store.clone())).unwrap();
        let mut snapshot = container.snapshot(None).unwrap();
        let session = container.begin_session(&mut snapshot).unwrap();
        let (mut model, all) = (Model::new(), (0..60_000).map(|n| (n, Some(1))).collect::<Vec<_>>());
        commit(&container, &session, &mut snapshot, &mut model, &all);
        container.checkpoint(&mut snapshot, &session).unwrap();
        let first = snapshot.clone();
        commit(&container, &session, &mut snapshot, &mut model, &[(30_000, Some(2))]);
        container.checkpoint(&mut snapshot, &session).unwrap();
        let cold = Container::open(Arc::new(store.clone())).unwrap();
        let before = store.counters()[0];
        assert_eq!(first.differing(&cold, &snapshot).unwrap(), BTreeSet::from([30_000u32.to_be_bytes().to_vec()]));
        // Two roots, two leaves.
        assert_eq!(store.counters()[0] - before, 4);
    }
}
