//! Lookup and listing of a dense group: link messages in a fractal heap, indexed by version 2
//! B-trees.
//!
//! ```text
//! name index (type 5):            hash of name -> heap ID
//! creation order index (type 6):  order -> heap ID
//! fractal heap:                   heap ID -> link message
//! ```
//!
//! Several names may have one hash; the link message has the name. A listing follows the name
//! index, or the creation order index if the name index cannot be opened.

use super::visit::Visit;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::link_index::{CreationOrderRecord, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::link::Link;
use crate::meta::Store;
use crate::structures::btree2::{BTree2, walk_past_damage};
use crate::structures::dense_storage::{DenseKind, Records};
use crate::structures::fractal_heap::FractalHeap;
use crate::structures::fractal_heap::edit::HeapParams;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Dense storage of links.
pub(super) const LINKS: DenseKind = DenseKind {
    name: "dense group",
    heap: HeapParams::LINKS,
    by_name: Records { record_type: TYPE_NAME, size: NameRecord::SIZE },
    by_creation: Records { record_type: TYPE_CREATION_ORDER, size: CreationOrderRecord::SIZE },
};
/// Names of one hash compared with each other; more than two do not happen by chance.
const SAME_HASH_NAMES_MAX: usize = 64;

/// The index that a listing follows.
#[derive(Debug)]
enum Index {
    Name(Arc<BTree2>),
    CreationOrder(Arc<BTree2>),
}

/// An open dense group.
#[derive(Debug)]
pub struct DenseLinks {
    heap: Arc<FractalHeap>,
    /// Address of the heap, for errors.
    address: Address,
    index: Index,
}

impl DenseLinks {
    /// Opens the group whose link info message holds the three addresses (the last may be
    /// undefined).
    pub fn open(store: &Store, fractal_heap: Address, name_index: Address, creation_index: Address) -> Result<Self> {
        let heap = FractalHeap::open(store, fractal_heap)?;
        let index = match (LINKS.open_index(store, name_index, &LINKS.by_name), creation_index.is_defined()) {
            (Ok(tree), _) => Index::Name(tree),
            (Err(error), false) => return Err(error),
            (Err(error), true) => {
                tracing::warn!(%error, "cannot open the name index of a group, using its creation order index");
                let tree = LINKS.open_index(store, creation_index, &LINKS.by_creation);
                Index::CreationOrder(tree.map_err(|_| error)?)
            }
        };
        Ok(DenseLinks { heap, address: fractal_heap, index })
    }

    /// Opens the group with its creation order index.
    pub(super) fn open_by_creation(store: &Store, fractal_heap: Address, creation_index: Address) -> Result<Self> {
        let heap = FractalHeap::open(store, fractal_heap)?;
        let tree = LINKS.open_index(store, creation_index, &LINKS.by_creation)?;
        Ok(DenseLinks { heap, address: fractal_heap, index: Index::CreationOrder(tree) })
    }

    /// Number of links, from the index.
    pub fn len(&self) -> u64 {
        self.tree().len()
    }

    fn tree(&self) -> &BTree2 {
        match &self.index {
            Index::Name(tree) | Index::CreationOrder(tree) => tree,
        }
    }

    fn link(&self, store: &Store, id: &[u8; HEAP_ID_SIZE]) -> Result<Link> {
        Link::decode(&self.heap.object(store, id)?, store.ctx(), self.address)
    }

    /// The link `name`, if the group has it. Errors: damage on the path to it.
    pub fn lookup(&self, store: &Store, name: &[u8]) -> Result<Option<Link>> {
        let Index::Name(tree) = &self.index else { return self.scan(store, name) };
        let (hash, at) = (lookup3(name, 0), tree.address());
        let mut found = None;
        let mut bad = None;
        let mut compare = |record: &[u8]| Ok(NameRecord::decode(record, at)?.hash.cmp(&hash));
        let damage = tree.find_range(store, &mut compare, &mut |record| {
            // An unreadable link of the same hash must not hide the wanted one.
            match NameRecord::decode(record, at).and_then(|r| self.link(store, &r.id)) {
                Ok(link) if link.name == name => {
                    found = Some(link);
                    Ok(ControlFlow::Break(()))
                }
                Ok(_) => Ok(ControlFlow::Continue(())),
                Err(e) => {
                    bad.get_or_insert(e);
                    Ok(ControlFlow::Continue(()))
                }
            }
        });
        if found.is_none() && damage.is_err() {
            // A node with records of this hash cannot be read; the first such record may be
            // elsewhere.
            let record = tree.find(store, &mut compare).ok().flatten();
            let link = record.and_then(|r| NameRecord::decode(&r, at).ok()).and_then(|r| self.link(store, &r.id).ok());
            found = link.filter(|l| l.name == name);
        }
        match (found, bad.or(damage.err())) {
            (None, Some(e)) => Err(e),
            (found, _) => Ok(found),
        }
    }

    /// Looks `name` up in a listing, without a name index.
    fn scan(&self, store: &Store, name: &[u8]) -> Result<Option<Link>> {
        let mut found = None;
        self.list(store, 0, &mut |link, _| {
            if link.name != name {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(link);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Calls `f` with each link from position `start`: 0, or a position (rank in the index) that
    /// `f` got from an earlier call. Returns the first damage that it skipped. Errors: those of
    /// `f`; the first damage, if no link could be listed.
    pub fn list(&self, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<Option<Error>> {
        self.heap.announce(store);
        let mut delivered = false;
        let mut bad: Option<Error> = None;
        let mut run = Run::default();
        let at = self.tree().address();
        let damage = walk_past_damage(self.tree(), store, start, &mut |record, after| {
            let link = match &self.index {
                Index::Name(_) => NameRecord::decode(record, at)
                    .and_then(|r| self.link(store, &r.id).and_then(|l| run.check(r.hash, &l.name, at).map(|()| l))),
                Index::CreationOrder(_) => CreationOrderRecord::decode(record, at).and_then(|r| self.link(store, &r.id)),
            };
            match link {
                Ok(link) => {
                    delivered = true;
                    f(link, after)
                }
                Err(error) => {
                    tracing::warn!(%error, "skipped damage in the listing of a group");
                    bad.get_or_insert(error);
                    Ok(ControlFlow::Continue(()))
                }
            }
        })?;
        match damage.or(bad) {
            Some(e) if !delivered && start == 0 => Err(e),
            skipped => Ok(skipped),
        }
    }
}

/// Names of one hash in a listing.
#[derive(Default)]
struct Run {
    hash: u32,
    names: Vec<Vec<u8>>,
}

impl Run {
    /// Errors: lookup would not find `name` by `hash`, or `name` was listed before.
    fn check(&mut self, hash: u32, name: &[u8], index: Address) -> Result<()> {
        let refuse = |what| Err(Error::corrupt(LINKS.name, index, format!("link {:?} {what}", String::from_utf8_lossy(name))));
        if lookup3(name, 0) != hash {
            return refuse("is indexed by the hash of another name");
        }
        if hash != self.hash {
            *self = Run { hash, names: Vec::new() };
        }
        if self.names.iter().any(|n| n == name) {
            return refuse("is indexed twice");
        }
        if self.names.len() < SAME_HASH_NAMES_MAX {
            self.names.push(name.to_vec());
        }
        Ok(())
    }
}
