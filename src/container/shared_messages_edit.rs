//! Messages that the file's table shares, when objects with them are changed.
//!
//! Nothing is added to the table: messages that are written are not shared. A message in the table's heap stays there when
//! an object no longer refers to it: its count of references, which is then too high, only tells libhdf5 when to take it out
//! (H5SM.c). A count that is too low would let it take out what others refer to; so what a shared attribute itself
//! has in the table (its datatype, its dataspace) becomes a part of it when it gets a message of its own.
//!
//! A message that only one object has lies in its header, and the index has a record of where. These records go when the
//! object goes, or gets other messages: libhdf5 would look there for a message that is no more.

use super::btree2::BTree2;
use super::btree2_edit;
use super::shared_messages::SharedMessages;
use crate::base::{Address, Error, Result};
use crate::format::Reader;
use crate::format::object_header::flag;
use crate::format::shared_message::{self, IndexHeader, LIST_NAME, NAME, Place, Record};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Type of the record of a version 2 B-tree.
const TYPE: u8 = 7;

/// Takes the records of messages in the header at `header` out of the indexes, and marks them as not shared.
pub fn forget(store: &Store, header: Address) -> Result<()> {
    let Some(table) = SharedMessages::of(store)? else { return Ok(()) };
    let mut edit = HeaderEdit::load(store, header)?;
    let shareable: Vec<_> = edit.messages().map(|m| m.flags).enumerate().filter(|(_, f)| f & flag::SHAREABLE != 0).collect();
    if shareable.is_empty() {
        return Ok(());
    }
    let mut indexes = table.indexes().to_vec();
    for index in indexes.iter_mut().filter(|i| i.index.is_defined()) {
        let gone = match index.index_type {
            0 => from_list(store, index, header)?,
            _ => from_tree(store, index, header)?,
        };
        index.messages = index.messages.saturating_sub(gone);
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
    matches!(&record.place, Place::Header { header: at, .. } if *at == header)
}

fn from_list(store: &Store, index: &IndexHeader, header: Address) -> Result<u16> {
    let ctx = store.ctx();
    let size = shared_message::list_size(index.list_max, ctx) as u64;
    let bytes = store.read(index.index, size, LIST_NAME)?;
    let mut records = shared_message::decode_list(&bytes, index.index, index, ctx)?;
    records.retain(|r| !is_in(r, header));
    let gone = usize::from(index.messages).saturating_sub(records.len());
    if gone > 0 {
        store.write(index.index, &shared_message::encode_list(&records, index.list_max, ctx))?;
    }
    Ok(u16::try_from(gone).unwrap_or(u16::MAX))
}

fn from_tree(store: &Store, index: &IndexHeader, header: Address) -> Result<u16> {
    let ctx = *store.ctx();
    let tree = BTree2::open(store, index.index)?;
    if tree.record_type() != TYPE || usize::from(tree.record_size()) != Record::size(&ctx) {
        return Err(Error::corrupt(NAME, index.index, "a B-tree of other records"));
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
    let gone = u16::try_from(wanted.len()).unwrap_or(u16::MAX);
    for record in wanted {
        // Records of one hash are in the order of their messages; two of them do not happen by chance.
        let mut compare = |bytes: &[u8]| -> Result<Ordering> {
            let other = decode(bytes)?;
            match other.hash.cmp(&record.hash) {
                Ordering::Equal if other != record => Err(Error::unsupported(NAME, index.index, "two messages of one hash")),
                order => Ok(order),
            }
        };
        btree2_edit::remove(store, index.index, &mut compare)?;
    }
    Ok(gone)
}
