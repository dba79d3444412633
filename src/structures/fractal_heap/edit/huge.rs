//! Huge objects of a fractal heap: each by itself in the file, found through a version 2 B-tree.

use super::state::Edit;
use crate::base::{Address, Error, Result};
use crate::format::fractal_heap::{HeapId, HugeRecord, huge};
use crate::structures::btree2::{self, BTree2};
use crate::structures::extent::OBJECT_BYTES_MAX;
use crate::structures::fractal_heap::load::{HUGE_KIND, huge_tree};
use std::cmp::Ordering;
use std::sync::Arc;

/// Parameters of the B-tree as libhdf5 creates it.
const NODE_SIZE: u32 = 512;
const SPLIT_PERCENT: u8 = 100;
const MERGE_PERCENT: u8 = 40;
/// Flag of the heap: all keys of huge objects were used once.
const FLAG_WRAPPED: u8 = 0x01;

impl Edit<'_> {
    fn record_type(&self) -> u8 {
        self.heap.ids.huge_record_type()
    }

    /// Order of a stored record relative to `wanted`.
    fn compare(&self, wanted: HugeRecord) -> impl FnMut(&[u8]) -> Result<Ordering> {
        let (kind, tree, ctx) = (self.record_type(), self.heap.header.huge_btree, *self.store.ctx());
        move |record| {
            let r = HugeRecord::decode(record, kind, tree, &ctx)?;
            Ok(if kind == 1 { r.key.cmp(&wanted.key) } else { (r.address, r.length).cmp(&(wanted.address, wanted.length)) })
        }
    }

    fn next_key(&mut self) -> Result<u64> {
        let bits = u32::from(self.heap.header.id_length.saturating_sub(1).min(8)).saturating_mul(8);
        let most = u64::MAX.checked_shr(64u32.saturating_sub(bits)).unwrap_or(0);
        if self.heap.header.flags & FLAG_WRAPPED != 0 || self.heap.header.next_huge_id >= most {
            return Err(Error::limit(huge::NAME, self.heap.address, "no key is left for another huge object"));
        }
        let key = self.heap.header.next_huge_id.saturating_add(1);
        self.heap.header.next_huge_id = key;
        if key == most {
            self.heap.header.flags |= FLAG_WRAPPED;
        }
        Ok(key)
    }

    pub(super) fn insert_huge(&mut self, object: &[u8]) -> Result<Vec<u8>> {
        let length = object.len() as u64;
        if length > OBJECT_BYTES_MAX {
            return Err(Error::limit(huge::NAME, self.heap.address, format!("{length} bytes in one object")));
        }
        let kind = self.record_type();
        let key = if kind == 1 { self.next_key()? } else { 0 };
        let address = self.store.allocate(length, HUGE_KIND)?;
        self.huge_allocated.push((address, length));
        let record = HugeRecord { address, length, mask: 0, size: length, key };
        let bytes = record.encode(kind, self.store.ctx());
        if !self.heap.header.huge_btree.is_defined() {
            let size = u16::try_from(bytes.len()).map_err(|_| self.heap.corrupt("record size"))?;
            self.heap.header.huge_btree = btree2::edit::create(self.store, kind, size, NODE_SIZE, SPLIT_PERCENT, MERGE_PERCENT)?;
        }
        self.tree()?;
        btree2::edit::insert(self.store, self.heap.header.huge_btree, &bytes, &mut self.compare(record))?;
        self.writes.push((address, object.to_vec()));
        let s = &mut self.heap.header.statistics;
        s.huge_objects = s.huge_objects.saturating_add(1);
        s.huge_size = s.huge_size.saturating_add(length);
        self.heap.ids.encode(&match kind {
            1 => HeapId::HugeIndirect { key },
            _ => HeapId::HugeDirect { address, length, mask: 0, size: length },
        })
    }

    fn tree(&self) -> Result<Arc<BTree2>> {
        huge_tree(self.store, self.heap.header.huge_btree, self.record_type())
    }

    fn wanted(&self, id: &HeapId) -> Result<HugeRecord> {
        let none = HugeRecord { address: Address::UNDEF, length: 0, mask: 0, size: 0, key: 0 };
        match *id {
            HeapId::HugeDirect { address, length, mask, size } => Ok(HugeRecord { address, length, mask, size, key: 0 }),
            HeapId::HugeIndirect { key } => Ok(HugeRecord { key, ..none }),
            _ => Err(self.heap.corrupt_id("not a huge object")),
        }
    }

    /// The record of the huge object that `id` names.
    pub(super) fn huge_record(&self, id: &HeapId) -> Result<HugeRecord> {
        let missing = || self.heap.corrupt_id("no such huge object");
        let tree = self.heap.header.huge_btree;
        if !tree.is_defined() {
            return Err(missing());
        }
        let found = self.tree()?.find(self.store, &mut self.compare(self.wanted(id)?))?;
        HugeRecord::decode(&found.ok_or_else(missing)?, self.record_type(), tree, self.store.ctx())
    }

    pub(super) fn remove_huge(&mut self, id: &HeapId) -> Result<()> {
        let record = self.huge_record(id)?;
        let tree = self.heap.header.huge_btree;
        btree2::edit::remove(self.store, tree, &mut self.compare(record))?;
        self.huge_freed.push((record.address, record.length));
        let s = &mut self.heap.header.statistics;
        s.huge_objects = s.huge_objects.saturating_sub(1);
        s.huge_size = s.huge_size.saturating_sub(record.size);
        if s.huge_objects == 0 && BTree2::open(self.store, tree)?.is_empty() {
            btree2::edit::delete_tree(self.store, tree)?;
            self.heap.header.huge_btree = Address::UNDEF;
            self.heap.header.next_huge_id = 0;
            self.heap.header.flags &= !FLAG_WRAPPED;
        }
        Ok(())
    }
}
