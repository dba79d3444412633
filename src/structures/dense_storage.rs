//! Dense storage of links or attributes: messages in a fractal heap, version 2 B-trees that index
//! them.
//!
//! ```text
//! name index: hash of name -> heap ID        creation order index: order -> heap ID
//!                         heap ID -> link or attribute message
//! ```
//!
//! Creation, checks and deletion that are the same for both; [`DenseKind`] has the differences.

use crate::base::{Address, Error, Result};
use crate::meta::Store;
use crate::meta::extent::Visit;
use crate::structures::btree2::{self, BTree2};
use crate::structures::fractal_heap::edit::{self as heap_edit, HeapParams};
use crate::structures::fractal_heap::{self, FractalHeap};
use std::sync::Arc;

/// Parameters of the indexes as libhdf5 creates them.
const NODE_SIZE: u32 = 512;
const SPLIT_PERCENT: u8 = 100;
const MERGE_PERCENT: u8 = 40;

/// Structures of a dense group, or of the dense attributes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseStorage {
    /// Fractal heap of the messages.
    pub heap: Address,
    /// B-tree by name.
    pub name_index: Address,
    /// B-tree by creation order, if that is indexed.
    pub creation_index: Option<Address>,
}

impl DenseStorage {
    /// Visits the heap and the indexes.
    pub fn extents(&self, store: &Store, visit: &mut Visit<'_>) -> Result<()> {
        for index in [Some(self.name_index), self.creation_index].into_iter().flatten().filter(|at| at.is_defined()) {
            BTree2::open(store, index)?.extents(store, visit)?;
        }
        fractal_heap::extents(store, self.heap, visit)
    }
}

/// Records of an index.
#[derive(Debug, Clone, Copy)]
pub(in crate::structures) struct Records {
    /// Type in the B-tree's header.
    pub record_type: u8,
    /// Bytes of a record.
    pub size: usize,
}

/// Properties of the dense storage of links, or of attributes.
#[derive(Debug, Clone, Copy)]
pub(in crate::structures) struct DenseKind {
    /// Name in errors.
    pub name: &'static str,
    pub heap: HeapParams,
    /// Records of the name index.
    pub by_name: Records,
    /// Records of the creation order index.
    pub by_creation: Records,
}

impl DenseKind {
    /// Creates empty storage.
    pub fn create(&self, store: &Store, creation_order_indexed: bool) -> Result<DenseStorage> {
        let heap = heap_edit::create(store, &self.heap)?;
        let index = |records: &Records| {
            let size = u16::try_from(records.size).map_err(|_| Error::limit(self.name, heap, "record size"))?;
            btree2::edit::create(store, records.record_type, size, NODE_SIZE, SPLIT_PERCENT, MERGE_PERCENT)
        };
        let name_index = index(&self.by_name)?;
        let creation_index = if creation_order_indexed { Some(index(&self.by_creation)?) } else { None };
        Ok(DenseStorage { heap, name_index, creation_index })
    }

    /// Opens the index of `records` at `address`. Errors: it holds other records.
    pub fn open_index(&self, store: &Store, address: Address, records: &Records) -> Result<Arc<BTree2>> {
        let tree = BTree2::open(store, address)?;
        if tree.record_type() != records.record_type || usize::from(tree.record_size()) != records.size {
            let detail = format!("the index holds records of type {} and {} bytes", tree.record_type(), tree.record_size());
            return Err(Error::corrupt(self.name, address, detail));
        }
        Ok(tree)
    }

    /// Opens the heap for a change, after a check of all structures. Errors: damage, a heap with
    /// filters.
    pub fn open(&self, store: &Store, at: &DenseStorage) -> Result<Arc<FractalHeap>> {
        self.open_index(store, at.name_index, &self.by_name)?;
        if let Some(index) = at.creation_index {
            self.open_index(store, index, &self.by_creation)?;
        }
        let heap = FractalHeap::open(store, at.heap)?;
        if heap.header().filters.is_some() {
            return Err(Error::unsupported(self.name, at.heap, "a heap with I/O filters cannot be changed"));
        }
        if heap.header().id_length != self.heap.id_length {
            return Err(Error::corrupt(self.name, at.heap, format!("heap IDs of {} bytes", heap.header().id_length)));
        }
        Ok(heap)
    }

    /// Inserts a message into the heap; returns its heap ID of `N` bytes.
    pub fn insert_message<const N: usize>(&self, store: &Store, heap: Address, message: &[u8]) -> Result<[u8; N]> {
        let id = heap_edit::insert(store, heap, message)?;
        <[u8; N]>::try_from(id.as_slice()).map_err(|_| Error::corrupt(self.name, heap, format!("heap IDs of {} bytes", id.len())))
    }

    /// Frees the storage with all messages.
    pub fn delete(&self, store: &Store, at: &DenseStorage) -> Result<()> {
        self.open(store, at)?;
        btree2::edit::delete_tree(store, at.name_index)?;
        if let Some(index) = at.creation_index {
            btree2::edit::delete_tree(store, index)?;
        }
        heap_edit::delete_heap(store, at.heap)
    }
}
