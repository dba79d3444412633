//! Updates of the file's shared message table when objects with shared messages change.
//!
//! h5dir never adds messages to the table. A message in the table's heap stays there when its last
//! object is gone: a reference count that is too high only delays its removal by libhdf5 (H5SM.c).
//! A count that is too low would let libhdf5 remove a message in use; therefore a shared attribute
//! that gets a message of its own also gets copies of the datatype and dataspace that it has in the
//! table.
//!
//! A shareable message that only one object has is in that object's header, and the index has a
//! record of its place. [`forget`] removes these records before the object is deleted or its
//! messages change: libhdf5 would look for the message there.

use super::read::SharedMessages;
use crate::base::{Address, Error, Result};
use crate::format::Reader;
use crate::format::object_header::flag;
use crate::format::shared_message::{self, IndexHeader, LIST_NAME, NAME, Record, SharedMessagePlace};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::btree2::{self, BTree2};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Record type of an index that is a version 2 B-tree.
const RECORD_TYPE: u8 = 7;

/// Removes the records of messages in the header at `header` from the indexes, and marks the
/// messages as not shared.
pub fn forget(store: &Store, header: Address) -> Result<()> {
    let Some(table) = SharedMessages::of(store)? else { return Ok(()) };
    let mut edit = HeaderEdit::load(store, header)?;
    let shareable: Vec<_> = edit.messages().map(|m| m.flags).enumerate().filter(|(_, f)| f & flag::SHAREABLE != 0).collect();
    if shareable.is_empty() {
        return Ok(());
    }
    let mut indexes = table.indexes().to_vec();
    for index in indexes.iter_mut().filter(|i| i.index.is_defined()) {
        let removed = match index.index_type {
            0 => remove_from_list(store, index, header)?,
            _ => remove_from_tree(store, index, header)?,
        };
        index.messages = index.messages.saturating_sub(removed);
    }
    if indexes != table.indexes() {
        store.write(table.address(), &shared_message::encode_table(&indexes, store.ctx()))?;
    }
    for (i, flags) in shareable {
        edit.set_flags(i, flags & !flag::SHAREABLE);
    }
    edit.write(store)
}

fn is_in(record: &Record, header: Address) -> bool {
    matches!(&record.place, SharedMessagePlace::Header { header: at, .. } if *at == header)
}

fn remove_from_list(store: &Store, index: &IndexHeader, header: Address) -> Result<u16> {
    let ctx = store.ctx();
    let size = shared_message::list_size(index.list_max, ctx) as u64;
    let bytes = store.read(index.index, size, LIST_NAME)?;
    let mut records = shared_message::decode_list(&bytes, index.index, index, ctx)?;
    records.retain(|r| !is_in(r, header));
    let removed = usize::from(index.messages).saturating_sub(records.len());
    if removed > 0 {
        store.write(index.index, &shared_message::encode_list(&records, index.list_max, ctx))?;
    }
    Ok(u16::try_from(removed).unwrap_or(u16::MAX))
}

fn remove_from_tree(store: &Store, index: &IndexHeader, header: Address) -> Result<u16> {
    let ctx = *store.ctx();
    let tree = BTree2::open(store, index.index)?;
    if tree.record_type() != RECORD_TYPE || usize::from(tree.record_size()) != Record::size(&ctx) {
        return Err(Error::corrupt(NAME, index.index, "the B-tree has records of another type"));
    }
    let decode = |bytes: &[u8]| Record::decode(&mut Reader::new(bytes, NAME, index.index), &ctx);
    let mut wanted = Vec::new();
    tree.iterate(store, &mut |bytes| {
        let record = decode(bytes)?;
        if is_in(&record, header) {
            wanted.push(record);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let removed = u16::try_from(wanted.len()).unwrap_or(u16::MAX);
    for record in wanted {
        // Records of one hash are sorted by message; two records of one hash do not happen by
        // chance.
        let mut compare = |bytes: &[u8]| -> Result<Ordering> {
            let other = decode(bytes)?;
            match other.hash.cmp(&record.hash) {
                Ordering::Equal if other != record => Err(Error::unsupported(NAME, index.index, "two messages with one hash")),
                order => Ok(order),
            }
        };
        btree2::edit::remove(store, index.index, &mut compare)?;
    }
    Ok(removed)
}
