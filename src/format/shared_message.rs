//! Shared object header messages: the table of indexes, and the records of an index.
//!
//! ```text
//! table: "SMTB" | n times { version 0 | index type u8 (0 list, 1 B-tree) | message types u16 |
//!        minimum message size u32 | list cutoff u16 | B-tree cutoff u16 | messages u16 |
//!        index O | heap O } | checksum
//! list:  "SMLI" | messages times record | checksum | allocated up to the list cutoff
//! record (also version 2 B-tree type 7):
//!        location u8 | hash u32 |
//!        location 0: { reference count u32 | heap ID 8 }
//!        location 1: { 0 u8 | message type u8 | creation index u16 | object header O }
//! ```
//!
//! A record is as long as the longer of the two forms. The superblock extension's message states
//! the number of indexes. H5.format.4.0, "Shared Object Header Message Table".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the table in errors.
pub const NAME: &str = "shared message table";
/// Name of a list in errors.
pub const LIST_NAME: &str = "shared message list";
const SIGNATURE: &[u8; 4] = b"SMTB";
const LIST_SIGNATURE: &[u8; 4] = b"SMLI";
/// Most indexes in a table.
pub const INDEXES_MAX: u8 = 8;

/// Header of one index: the types of messages it shares, and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexHeader {
    /// 0 list, 1 version 2 B-tree.
    pub index_type: u8,
    /// Bit n set: messages of type n are shared here.
    pub message_types: u16,
    /// Size of the smallest message that is shared, bytes.
    pub min_message_size: u32,
    /// Most messages in a list.
    pub list_max: u16,
    /// Fewest messages in a B-tree.
    pub btree_min: u16,
    /// Messages in the index.
    pub messages: u16,
    /// Address of the list or B-tree.
    pub index: Address,
    /// Address of the fractal heap with the messages.
    pub heap: Address,
}

/// Size of a table of `indexes` indexes, bytes.
pub fn table_size(indexes: u8, ctx: &Context) -> usize {
    let one = 14usize.saturating_add(usize::from(ctx.sizeof_addr).saturating_mul(2));
    one.saturating_mul(usize::from(indexes)).saturating_add(8)
}

/// Decodes the table of `indexes` indexes at the start of `buf`.
pub fn decode_table(buf: &[u8], address: Address, indexes: u8, ctx: &Context) -> Result<Vec<IndexHeader>> {
    let mut r = Reader::new(buf, NAME, address);
    if indexes == 0 || indexes > INDEXES_MAX {
        return Err(r.corrupt(format!("{indexes} indexes")));
    }
    r.signature(SIGNATURE)?;
    let mut all = Vec::new();
    for _ in 0..indexes {
        r.version(0..=0)?;
        all.push(IndexHeader {
            index_type: r.u8()?,
            message_types: r.u16()?,
            min_message_size: r.u32()?,
            list_max: r.u16()?,
            btree_min: r.u16()?,
            messages: r.u16()?,
            index: r.addr(ctx)?,
            heap: r.addr(ctx)?,
        });
    }
    r.checksum()?;
    Ok(all)
}

/// Encodes the exact bytes that `decode_table` reads.
pub fn encode_table(indexes: &[IndexHeader], ctx: &Context) -> Vec<u8> {
    let mut w = Writer::new();
    w.bytes(SIGNATURE);
    for i in indexes {
        w.u8(0).u8(i.index_type).u16(i.message_types).u32(i.min_message_size);
        w.u16(i.list_max).u16(i.btree_min).u16(i.messages).addr(i.index, ctx).addr(i.heap, ctx);
    }
    w.checksum();
    w.into_bytes()
}

/// Location of one shared message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedMessagePlace {
    /// In the index's fractal heap.
    Heap {
        /// Number of messages that refer to it.
        reference_count: u32,
        /// Heap ID.
        id: [u8; 8],
    },
    /// In an object header, not yet referenced by a second one.
    Header {
        /// Its message type.
        message_type: u8,
        /// Its creation index in that header.
        creation_index: u16,
        /// The object header.
        header: Address,
    },
}

/// One record of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// lookup3 of the message.
    pub hash: u32,
    /// Location of the message.
    pub place: SharedMessagePlace,
}

impl Record {
    /// Size of a record, bytes.
    pub fn size(ctx: &Context) -> usize {
        5usize.saturating_add(usize::from(ctx.sizeof_addr).saturating_add(4).max(12))
    }

    /// Decodes one record; consumes [`Record::size`] bytes.
    pub fn decode(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        let mut r = r.sub(Self::size(ctx))?;
        let (location, hash) = (r.u8()?, r.u32()?);
        let place = match location {
            0 => SharedMessagePlace::Heap { reference_count: r.u32()?, id: r.array()? },
            1 => {
                r.skip(1)?;
                SharedMessagePlace::Header { message_type: r.u8()?, creation_index: r.u16()?, header: r.addr(ctx)? }
            }
            n => return Err(r.corrupt(format!("a message at location {n}"))),
        };
        Ok(Record { hash, place })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, w: &mut Writer, ctx: &Context) {
        let start = w.position();
        match &self.place {
            SharedMessagePlace::Heap { reference_count, id } => w.u8(0).u32(self.hash).u32(*reference_count).bytes(id),
            SharedMessagePlace::Header { message_type, creation_index, header } => {
                w.u8(1).u32(self.hash).u8(0).u8(*message_type).u16(*creation_index).addr(*header, ctx)
            }
        };
        w.zeros(Self::size(ctx).saturating_sub(w.position().saturating_sub(start)));
    }
}

/// Size of a list with capacity for `records` records, bytes.
pub fn list_size(records: u16, ctx: &Context) -> usize {
    Record::size(ctx).saturating_mul(usize::from(records)).saturating_add(8)
}

/// Decodes the list of `index` (`index.messages` records) at the start of `buf`.
pub fn decode_list(buf: &[u8], address: Address, index: &IndexHeader, ctx: &Context) -> Result<Vec<Record>> {
    let mut r = Reader::new(buf, LIST_NAME, address);
    if index.messages > index.list_max {
        return Err(r.corrupt(format!("{} messages, room for {}", index.messages, index.list_max)));
    }
    r.signature(LIST_SIGNATURE)?;
    let records = (0..index.messages).map(|_| Record::decode(&mut r, ctx)).collect::<Result<Vec<_>>>()?;
    r.checksum()?;
    Ok(records)
}

/// Encodes the whole list, zero-padded to capacity for `list_max` records.
pub fn encode_list(records: &[Record], list_max: u16, ctx: &Context) -> Vec<u8> {
    let mut w = Writer::new();
    w.bytes(LIST_SIGNATURE);
    for record in records {
        record.encode(&mut w, ctx);
    }
    w.checksum();
    w.zeros(list_size(list_max, ctx).saturating_sub(w.position()));
    w.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::shared_message_table::SharedMessageTable;

    const FILE: &[u8] = include_bytes!("../../tests/fixtures/heaps/sohm.h5");
    const CTX: &Context = &Context::DEFAULT;

    fn find(signature: &[u8]) -> usize {
        FILE.windows(signature.len()).position(|w| w == signature).unwrap()
    }

    /// Two indexes (attributes; dataspaces and datatypes) of at most 50 list entries.
    #[test]
    fn as_libhdf5_writes_it() {
        let at = find(b"SMTB");
        let a = Address(at as u64);
        let table = decode_table(&FILE[at..], a, 2, CTX).unwrap();
        let bytes = &FILE[at..at + table_size(2, CTX)];
        assert_eq!(encode_table(&table, CTX), bytes);
        assert_eq!((table[0].message_types, table[1].message_types), (1 << 12, 1 << 1 | 1 << 3));
        assert_eq!((table[0].list_max, table[0].btree_min, table[0].min_message_size), (50, 40, 20));
        for i in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[i] ^= 0x40;
            assert!(decode_table(&bad, a, 2, CTX).is_err() || cfg!(fuzzing), "byte {i}");
            assert!(decode_table(&bytes[..i], a, 2, CTX).is_err());
        }
        for n in [0, 1, 3, 9, 255] {
            assert!(decode_table(&FILE[at..], a, n, CTX).is_err() || cfg!(fuzzing), "{n} indexes");
        }
        for index in &table {
            let start = index.index.0 as usize;
            let list = decode_list(&FILE[start..], index.index, index, CTX).unwrap();
            let used = list_size(index.messages, CTX);
            assert_eq!(encode_list(&list, index.list_max, CTX)[..used], FILE[start..start + used]);
            assert!(list.iter().any(|r| matches!(r.place, SharedMessagePlace::Heap { .. })));
            let more = IndexHeader { messages: 51, ..index.clone() };
            assert!(decode_list(&FILE[start..], index.index, &more, CTX).is_err());
        }
    }

    #[test]
    fn record_forms() {
        assert_eq!(Record::size(CTX), 17);
        let place = SharedMessagePlace::Header { message_type: 3, creation_index: 4, header: Address(5) };
        let r = Record { hash: 6, place };
        let mut w = Writer::new();
        r.encode(&mut w, CTX);
        let mut bytes = w.into_bytes();
        assert_eq!(bytes.len(), 17);
        assert_eq!(Record::decode(&mut Reader::new(&bytes, "record", Address(0)), CTX).unwrap(), r);
        bytes[0] = 2;
        assert!(Record::decode(&mut Reader::new(&bytes, "record", Address(0)), CTX).is_err());
    }

    /// The message in the superblock extension, found by searching for the table's address.
    #[test]
    fn table_message() {
        let mut body = vec![0];
        body.extend((find(b"SMTB") as u64).to_le_bytes());
        body.push(2);
        find(&body);
        let m = SharedMessageTable::decode(&body, Address(0), CTX).unwrap();
        assert_eq!((m.table.0, m.indexes), (find(b"SMTB") as u64, 2));
        assert_eq!(m.encode(CTX), body);
        assert!(SharedMessageTable::decode(&body[..9], Address(0), CTX).is_err());
        body[0] = 1;
        assert!(SharedMessageTable::decode(&body, Address(0), CTX).is_err());
    }
}
