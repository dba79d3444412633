//! Records of the version 2 B-trees that index densely stored attributes
//! (H5.format.4.0, "Version 2 B-trees", record types 8 and 9).
//!
//! ```text
//! type 8, by name:           heap id 8 | message flags u8 | creation order u32 | name lookup3 u32
//! type 9, by creation order: heap id 8 | message flags u8 | creation order u32
//! ```
//!
//! Message flag 0x02 (shared): the heap id refers to the file's shared message heap, not to the
//! object's heap.

use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

/// B-tree type of the name index.
pub const TYPE_NAME: u8 = 8;
/// B-tree type of the creation order index.
pub const TYPE_CREATION_ORDER: u8 = 9;
/// Size of an attribute's heap ID, bytes.
pub const HEAP_ID_SIZE: usize = 8;
/// Message flag: the attribute is in the shared message heap.
pub const FLAG_SHARED: u8 = 0x02;
const STRUCTURE: &str = "attribute index record";

/// A record of the creation order index; also the first part of a name index record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationOrderRecord {
    /// Fractal heap ID of the attribute message.
    pub id: [u8; HEAP_ID_SIZE],
    /// Header message flags of the attribute.
    pub flags: u8,
    /// Creation order on the object.
    pub creation_order: u32,
}

/// A record of the name index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRecord {
    /// All fields except the hash.
    pub attribute: CreationOrderRecord,
    /// lookup3 of the name.
    pub hash: u32,
}

impl CreationOrderRecord {
    /// Bytes of a record.
    pub const SIZE: usize = HEAP_ID_SIZE + 5;

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(CreationOrderRecord { id: r.array()?, flags: r.u8()?, creation_order: r.u32()? })
    }

    /// Decodes a record of the tree at `address`.
    pub fn decode(record: &[u8], address: Address) -> Result<Self> {
        Self::read(&mut Reader::new(record, STRUCTURE, address))
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(&self.id).u8(self.flags).u32(self.creation_order);
        w.into_bytes()
    }
}

impl NameRecord {
    /// Bytes of a record.
    pub const SIZE: usize = CreationOrderRecord::SIZE + 4;

    /// Decodes a record of the tree at `address`.
    pub fn decode(record: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(record, STRUCTURE, address);
        Ok(NameRecord { attribute: CreationOrderRecord::read(&mut r)?, hash: r.u32()? })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(&self.attribute.encode()).u32(self.hash);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_truncation() {
        let name = b"\0\x15\0\0\0\x0e\0\0\x02\x05\0\0\0\x78\x56\x34\x12";
        let n = NameRecord::decode(name, Address(0)).unwrap();
        assert_eq!((n.hash, n.attribute.flags, n.attribute.creation_order), (0x1234_5678, FLAG_SHARED, 5));
        assert_eq!(n.encode(), name);
        let order = &name[..CreationOrderRecord::SIZE];
        assert_eq!(CreationOrderRecord::decode(order, Address(0)).unwrap(), n.attribute);
        assert_eq!(n.attribute.encode(), order);
        assert!((0..name.len()).all(|n| NameRecord::decode(&name[..n], Address(0)).is_err()));
        assert!((0..order.len()).all(|n| CreationOrderRecord::decode(&order[..n], Address(0)).is_err()));
    }
}
