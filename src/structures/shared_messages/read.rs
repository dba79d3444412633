//! Lookup of messages in the file's shared message table.

use crate::base::{Address, Error, Result};
use crate::format::message::shared_message_table::SharedMessageTable;
use crate::format::object_header::kind;
use crate::format::shared_message::{IndexHeader, LIST_NAME, NAME, decode_table, list_size, table_size};
use crate::meta::extent::{Extent, Visit};
use crate::meta::{ObjectHeader, Store};
use crate::structures::btree2::BTree2;
use crate::structures::fractal_heap::{self, FractalHeap};
use std::mem::size_of;
use std::sync::Arc;

/// Type of the old fill value message, which uses the index of the new one.
const FILL_OLD: u16 = 4;
const FILL: u16 = 5;

/// The open shared message table of a file.
#[derive(Debug)]
pub struct SharedMessages {
    table: Address,
    indexes: Vec<IndexHeader>,
}

impl SharedMessages {
    /// Opens the table of `nindexes` indexes at `table_address`, both from the superblock
    /// extension's message 0x0F.
    pub fn open(store: &Store, table_address: Address, nindexes: u8) -> Result<Arc<SharedMessages>> {
        store.cached(table_address, |store| {
            let size = table_size(nindexes, store.ctx());
            let bytes = store.read(table_address, size as u64, NAME)?;
            let indexes = decode_table(&bytes, table_address, nindexes, store.ctx())?;
            let charge = indexes.len().saturating_mul(size_of::<IndexHeader>()).saturating_add(size_of::<SharedMessages>());
            Ok((SharedMessages { table: table_address, indexes }, charge))
        })
    }

    /// Opens the table of the file, if it has one.
    pub fn of(store: &Store) -> Result<Option<Arc<SharedMessages>>> {
        let extension = store.superblock().extension;
        if !extension.is_defined() {
            return Ok(None);
        }
        let header = ObjectHeader::cached(store, extension)?;
        let Some(m) = header.find(kind::SHARED_MESSAGE_TABLE) else { return Ok(None) };
        let m = SharedMessageTable::decode(&m.body, extension, store.ctx())?;
        SharedMessages::open(store, m.table, m.indexes).map(Some)
    }

    /// Reads the attribute message that `heap_id` names in the file's table.
    pub fn attribute(store: &Store, heap_id: &[u8; 8]) -> Result<Vec<u8>> {
        let table = Self::of(store)?;
        let table = table.ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "the file has no such table"))?;
        table.message(store, kind::ATTRIBUTE, heap_id)
    }

    /// Visits the table, and the indexes with their heaps.
    pub fn extents(&self, store: &Store, visit: &mut Visit<'_>) -> Result<()> {
        let ctx = store.ctx();
        let indexes = u8::try_from(self.indexes.len()).unwrap_or(u8::MAX);
        visit(Extent::metadata(self.table, table_size(indexes, ctx) as u64, NAME))?;
        for i in &self.indexes {
            match i.index_type {
                _ if !i.index.is_defined() => {}
                0 => visit(Extent::metadata(i.index, list_size(i.list_max, ctx) as u64, LIST_NAME))?,
                _ => BTree2::open(store, i.index)?.extents(store, visit)?,
            }
            if i.heap.is_defined() {
                fractal_heap::extents(store, i.heap, visit)?;
            }
        }
        Ok(())
    }

    /// Address of the table.
    pub fn address(&self) -> Address {
        self.table
    }

    /// The indexes.
    pub fn indexes(&self) -> &[IndexHeader] {
        &self.indexes
    }

    /// Reads the encoded message of `message_type` that `heap_id` names. Errors: no index has this
    /// type, or the heap has no such object.
    pub fn message(&self, store: &Store, message_type: u16, heap_id: &[u8; 8]) -> Result<Vec<u8>> {
        let kind = if message_type == FILL_OLD { FILL } else { message_type };
        let bit = 1u16.checked_shl(u32::from(kind)).unwrap_or(0);
        let index = self.indexes.iter().find(|i| i.message_types & bit != 0);
        let index = index.ok_or_else(|| Error::corrupt(NAME, self.table, format!("no index for messages of type {message_type}")))?;
        if !index.heap.is_defined() {
            return Err(Error::corrupt(NAME, self.table, format!("the index for messages of type {message_type} has no heap")));
        }
        FractalHeap::open(store, index.heap)?.object(store, heap_id)
    }
}
