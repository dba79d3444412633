//! Header and nodes of a version 2 B-tree, read from the file or from the store's cache.

use crate::base::{Address, Error, Result};
use crate::format::btree2::{Geometry, Header, Internal, Leaf, NodePointer, header, internal, leaf};
use crate::meta::Store;
use std::mem::size_of;
use std::sync::Arc;

/// Bytes of memory charged for one level of a cached tree's geometry.
const LEVEL_CHARGE: usize = 40;

/// An open version 2 B-tree.
#[derive(Debug)]
pub struct BTree2 {
    pub(super) address: Address,
    pub(super) header: Header,
    pub(super) geometry: Geometry,
}

/// Properties of a node that its pointer implies. Cached with the node, because a hostile file may
/// reach one address by pointers that disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TreeKind {
    record_type: u8,
    record_size: u16,
    node_size: u32,
    depth: u16,
    records: u16,
}

/// A decoded node.
#[derive(Debug)]
pub(super) struct Node {
    kind: TreeKind,
    /// One after another.
    pub records: Vec<u8>,
    /// Empty in a leaf.
    pub children: Vec<NodePointer>,
}

impl TreeKind {
    fn new(h: &Header, depth: u16, records: u16) -> Self {
        TreeKind { record_type: h.record_type, record_size: h.record_size, node_size: h.node_size, depth, records }
    }
}

impl Node {
    /// A node of `count` records at `depth` of the tree of `header`.
    pub fn new(header: &Header, depth: u16, count: u16, records: Vec<u8>, children: Vec<NodePointer>) -> Self {
        Node { kind: TreeKind::new(header, depth, count), records, children }
    }

    /// Bytes of memory, about.
    pub fn charge(&self) -> usize {
        let children = self.children.len().saturating_mul(size_of::<NodePointer>());
        size_of::<Node>().saturating_add(self.records.len()).saturating_add(children)
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        usize::from(self.kind.records)
    }

    /// Record `i`.
    pub fn record(&self, i: usize) -> Option<&[u8]> {
        let size = usize::from(self.kind.record_size);
        let start = i.checked_mul(size)?;
        self.records.get(start..start.checked_add(size)?)
    }
}

impl BTree2 {
    /// Opens the tree whose header is at `address`. Errors: corrupt header, or one with more
    /// records than the file has room for.
    pub fn open(store: &Store, address: Address) -> Result<Arc<BTree2>> {
        store.cached(address, |store| {
            let tree = Self::load(store, address)?;
            let most = store.room()? / u64::from(tree.header.record_size).max(1);
            if tree.len() > most {
                return Err(Error::corrupt(header::NAME, address, format!("{} records, the file holds at most {most}", tree.len())));
            }
            let charge = tree.charge();
            Ok((tree, charge))
        })
    }

    /// Reads the header at `address`, past the cache.
    pub(super) fn load(store: &Store, address: Address) -> Result<BTree2> {
        let bytes = store.read(address, Header::size(store.ctx()) as u64, header::NAME)?;
        let header = Header::decode(&bytes, address, store.ctx())?;
        let geometry = header.geometry(store.ctx(), address)?;
        Ok(BTree2 { address, header, geometry })
    }

    fn charge(&self) -> usize {
        size_of::<BTree2>().saturating_add(usize::from(self.header.depth).saturating_mul(LEVEL_CHARGE))
    }

    /// Puts the tree into the store's cache, right after its header was written.
    pub(super) fn keep(self, store: &Store) {
        let (address, charge) = (self.address, self.charge());
        store.keep(address, self, charge, &[(address, Header::size(store.ctx()) as u64)]);
    }

    /// Address of the header.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Type of the records (`Header::record_type`).
    pub fn record_type(&self) -> u8 {
        self.header.record_type
    }

    /// Bytes of a record.
    pub fn record_size(&self) -> u16 {
        self.header.record_size
    }

    /// Records in the whole tree.
    pub fn len(&self) -> u64 {
        self.header.root.total
    }

    /// True if the tree has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node at `pointer`, of `depth`, from the store's cache or read into it. Errors: damage;
    /// another pointer to the node disagrees with this one.
    pub(super) fn node(&self, store: &Store, pointer: &NodePointer, depth: u16) -> Result<Arc<Node>> {
        let kind = TreeKind::new(&self.header, depth, pointer.records);
        let node = store.cached(pointer.address, |store| {
            let node = self.load_node(store, pointer.address, kind)?;
            let charge = node.charge();
            Ok((node, charge))
        })?;
        if node.kind == kind {
            Ok(node)
        } else {
            Err(Error::corrupt(leaf::NAME, pointer.address, "two pointers to the node disagree about it"))
        }
    }

    fn load_node(&self, store: &Store, at: Address, kind: TreeKind) -> Result<Node> {
        let h = &self.header;
        if kind.depth == 0 {
            let bytes = store.read(at, Leaf::used(h, kind.records) as u64, leaf::NAME)?;
            return Ok(Node { kind, records: Leaf::decode(&bytes, at, h, kind.records)?.records, children: Vec::new() });
        }
        let used = Internal::used(h, &self.geometry, kind.depth, kind.records);
        let bytes = store.read(at, used as u64, internal::NAME)?;
        let n = Internal::decode(&bytes, at, h, &self.geometry, kind.depth, kind.records, store.ctx())?;
        Ok(Node { kind, records: n.records, children: n.children })
    }
}
