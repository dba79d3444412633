//! Shared object header messages: the table of indexes and the records that an index holds.
//!
//! ```text
//! table: "SMTB" | n times { version 0 | index type u8 (0 list, 1 B-tree) | message types u16 |
//!        minimum message size u32 | list cutoff u16 | B-tree cutoff u16 | messages u16 |
//!        index O | heap O } | checksum
//! list:  "SMLI" | messages times record | checksum | room up to the list cutoff
//! record (also version 2 B-tree type 7):
//!        location u8 | hash u32 | location 0: { reference count u32 | heap ID 8 }
//!                                 location 1: { 0 u8 | message type u8 | creation index u16 | object header O }
//! ```
//!
//! A record is as long as the longer of the two forms. The number of indexes is held by the
//! superblock extension's message. H5.format.4.0, "Shared Object Header Message Table".

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

/// One index: which messages it shares, and where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexHeader {
    /// 0 list, 1 version 2 B-tree.
    pub index_type: u8,
    /// Bit n set: messages of type n are shared here.
    pub message_types: u16,
    /// Smaller messages are not shared, bytes.
    pub min_message_size: u32,
    /// Most messages in a list.
    pub list_max: u16,
    /// Fewest messages in a B-tree.
    pub btree_min: u16,
    /// Messages in the index.
    pub messages: u16,
    /// The list or B-tree.
    pub index: Address,
    /// Fractal heap of the messages.
    pub heap: Address,
}

/// Bytes of a table with `indexes` indexes.
pub fn table_size(indexes: u8, ctx: &Context) -> usize {
    let one = 16usize.saturating_add(usize::from(ctx.sizeof_addr).saturating_mul(2));
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

/// The exact bytes `decode_table` read.
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

/// Where one shared message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the index's fractal heap.
    Heap {
        /// Messages that refer to it.
        reference_count: u32,
        /// Heap ID.
        id: [u8; 8],
    },
    /// In an object header, not yet shared by a second one.
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
    /// Where the message is.
    pub place: Place,
}

impl Record {
    /// Bytes of a record.
    pub fn size(ctx: &Context) -> usize {
        5usize.saturating_add(usize::from(ctx.sizeof_addr).saturating_add(4).max(12))
    }

    /// Decodes one record; consumes [`Record::size`] bytes.
    pub fn decode(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        let mut r = r.sub(Self::size(ctx))?;
        let (location, hash) = (r.u8()?, r.u32()?);
        let place = match location {
            0 => Place::Heap { reference_count: r.u32()?, id: r.array()? },
            1 => {
                r.skip(1)?;
                Place::Header { message_type: r.u8()?, creation_index: r.u16()?, header: r.addr(ctx)? }
            }
            n => return Err(r.corrupt(format!("a message at location {n}"))),
        };
        Ok(Record { hash, place })
    }

    /// The bytes `decode` read.
    pub fn encode(&self, w: &mut Writer, ctx: &Context) {
        let start = w.position();
        match &self.place {
            Place::Heap { reference_count, id } => w.u8(0).u32(self.hash).u32(*reference_count).bytes(id),
            Place::Header { message_type, creation_index, header } => {
                w.u8(1).u32(self.hash).u8(0).u8(*message_type).u16(*creation_index).addr(*header, ctx)
            }
        };
        w.zeros(Self::size(ctx).saturating_sub(w.position().saturating_sub(start)));
    }
}

/// Bytes of a list with room for `records` records.
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

/// The whole list, padded with zeros to room for `list_max` records.
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
