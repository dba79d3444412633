//! Dense group: link messages in a fractal heap, version 2 B-trees that index them.
//!
//! ```text
//! name index (type 5): hash of name -> heap id        creation order index (type 6): order -> heap id
//!                                    heap id -> link message
//! ```
//!
//! Several names may share a hash: the one looked for is told by the link message itself. Listing
//! follows the name index, and the creation order index when the other cannot be opened.

use super::btree2::BTree2;
use super::fractal_heap::FractalHeap;
use super::group_list::Visit;
use super::index_walk;
use crate::base::checksum::lookup3;
use crate::base::{Address, Error, Result};
use crate::format::link_index::{CreationOrderRecord, HEAP_ID_SIZE, NameRecord, TYPE_CREATION_ORDER, TYPE_NAME};
use crate::format::message::link::Link;
use crate::meta::Store;
use std::ops::ControlFlow;
use std::sync::Arc;

const NAME: &str = "dense group";
/// Names of one hash kept to tell repeated ones; more than two do not happen by chance.
const RUN_MAX: usize = 64;

/// An index of the group: which records, and the tree.
#[derive(Debug)]
enum Index {
    Name(Arc<BTree2>),
    CreationOrder(Arc<BTree2>),
}

/// A dense group, open for lookup and listing.
#[derive(Debug)]
pub struct DenseLinks {
    heap: Arc<FractalHeap>,
    /// Address of the heap, for errors.
    address: Address,
    index: Index,
}

impl DenseLinks {
    /// Opens the group whose link info message holds the three addresses (the last may be undefined).
    pub fn open(store: &Store, fractal_heap: Address, name_index: Address, creation_index: Address) -> Result<Self> {
        let heap = FractalHeap::open(store, fractal_heap)?;
        Self::with_heap(store, heap, fractal_heap, name_index, creation_index)
    }

    /// As `open`, with a heap opened by the caller (which may know how to undo its filters).
    pub fn with_heap(
        store: &Store,
        heap: Arc<FractalHeap>,
        fractal_heap: Address,
        name_index: Address,
        creation_index: Address,
    ) -> Result<Self> {
        let index = match (open_index(store, name_index, TYPE_NAME, NameRecord::SIZE), creation_index.is_defined()) {
            (Ok(tree), _) => Index::Name(tree),
            (Err(error), false) => return Err(error),
            (Err(error), true) => {
                tracing::warn!(%error, "the name index of a group cannot be opened, its creation order index is used");
                let tree = open_index(store, creation_index, TYPE_CREATION_ORDER, CreationOrderRecord::SIZE);
                Index::CreationOrder(tree.map_err(|_| error)?)
            }
        };
        Ok(DenseLinks { heap, address: fractal_heap, index })
    }

    /// Number of links, as the index states it.
    pub fn len(&self) -> u64 {
        self.tree().len()
    }

    /// True when the group has no link.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tree(&self) -> &BTree2 {
        match &self.index {
            Index::Name(tree) | Index::CreationOrder(tree) => tree,
        }
    }

    fn link(&self, store: &Store, id: &[u8; HEAP_ID_SIZE]) -> Result<Link> {
        Link::decode(&self.heap.object(store, id)?, store.ctx(), self.address)
    }

    /// The link called `name`. Errors: the index or the heap cannot be read on the way to it.
    pub fn lookup(&self, store: &Store, name: &[u8]) -> Result<Option<Link>> {
        let Index::Name(tree) = &self.index else { return self.scan(store, name) };
        let (hash, at) = (lookup3(name, 0), tree.address());
        let mut found = None;
        let mut bad = None;
        let mut compare = |record: &[u8]| Ok(NameRecord::decode(record, at)?.hash.cmp(&hash));
        let damage = tree.find_range(store, &mut compare, &mut |record| {
            // A collision that cannot be read must not hide the link behind it.
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
            // A node that may hold more of the hash cannot be read; the first record of it perhaps can.
            let record = tree.find(store, &mut compare).ok().flatten();
            let link = record.and_then(|r| NameRecord::decode(&r, at).ok()).and_then(|r| self.link(store, &r.id).ok());
            found = link.filter(|l| l.name == name);
        }
        match (found, bad.or(damage.err())) {
            (None, Some(e)) => Err(e),
            (found, _) => Ok(found),
        }
    }

    /// Lookup without a name index.
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

    /// Calls `f` with each link from `start` on: 0, or a position (rank in the index) that an earlier
    /// call gave to `f`. Errors: those of `f`; the first damage, if nothing at all could be listed.
    pub fn list(&self, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<()> {
        let mut delivered = false;
        let mut bad: Option<Error> = None;
        let mut run = Run::default();
        let at = self.tree().address();
        let damage = index_walk::walk(self.tree(), store, start, &mut |record, after| {
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
                    tracing::warn!(%error, "skipped in the listing of a group");
                    bad.get_or_insert(error);
                    Ok(ControlFlow::Continue(()))
                }
            }
        })?;
        match damage.or(bad) {
            Some(e) if !delivered && start == 0 => Err(e),
            _ => Ok(()),
        }
    }
}

/// The names listed of one hash.
#[derive(Default)]
struct Run {
    hash: u32,
    names: Vec<Vec<u8>>,
}

impl Run {
    /// Refuses a name that lookup would not find under its hash, or not find twice.
    fn check(&mut self, hash: u32, name: &[u8], index: Address) -> Result<()> {
        let refuse = |what| Err(Error::corrupt(NAME, index, format!("link {:?} {what}", String::from_utf8_lossy(name))));
        if lookup3(name, 0) != hash {
            return refuse("is indexed by the hash of another name");
        }
        if hash != self.hash {
            *self = Run { hash, names: Vec::new() };
        }
        if self.names.iter().any(|n| n == name) {
            return refuse("is indexed twice");
        }
        if self.names.len() < RUN_MAX {
            self.names.push(name.to_vec());
        }
        Ok(())
    }
}

/// Opens the index at `address`, which must hold records of this type and size.
pub(super) fn open_index(store: &Store, address: Address, record_type: u8, record_size: usize) -> Result<Arc<BTree2>> {
    let tree = BTree2::open(store, address)?;
    if tree.record_type() != record_type || usize::from(tree.record_size()) != record_size {
        let detail = format!("the index holds records of type {} and {} bytes", tree.record_type(), tree.record_size());
        return Err(Error::corrupt(NAME, address, detail));
    }
    Ok(tree)
}
