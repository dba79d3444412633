//! Records of the version 2 B-trees that index the links of a dense group
//! (H5.format.4.0, "Version 2 B-trees", record types 5 and 6).
//!
//! ```text
//! type 5, by name:           lookup3 of the name u32 | heap id 7     (order: hash, then name)
//! type 6, by creation order: creation order i64 | heap id 7
//! ```

use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

/// B-tree type of the name index.
pub const TYPE_NAME: u8 = 5;
/// B-tree type of the creation order index.
pub const TYPE_CREATION_ORDER: u8 = 6;
/// Size of a link's heap ID, bytes.
pub const HEAP_ID_SIZE: usize = 7;
const STRUCTURE: &str = "link index record";

/// A record of the name index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRecord {
    /// lookup3 of the name.
    pub hash: u32,
    /// Fractal heap ID of the link message.
    pub id: [u8; HEAP_ID_SIZE],
}

/// A record of the creation order index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationOrderRecord {
    /// Creation order within the group.
    pub creation_order: i64,
    /// Fractal heap ID of the link message.
    pub id: [u8; HEAP_ID_SIZE],
}

impl NameRecord {
    /// Bytes of a record.
    pub const SIZE: usize = 4 + HEAP_ID_SIZE;

    /// Decodes a record of the tree at `address`.
    pub fn decode(record: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(record, STRUCTURE, address);
        Ok(NameRecord { hash: r.u32()?, id: r.array()? })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(self.hash).bytes(&self.id);
        w.into_bytes()
    }
}

impl CreationOrderRecord {
    /// Bytes of a record.
    pub const SIZE: usize = 8 + HEAP_ID_SIZE;

    /// Decodes a record of the tree at `address`.
    pub fn decode(record: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(record, STRUCTURE, address);
        Ok(CreationOrderRecord { creation_order: i64::from_le_bytes(r.array()?), id: r.array()? })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(&self.creation_order.to_le_bytes()).bytes(&self.id);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_truncation() {
        let name = b"\x78\x56\x34\x12\0\x15\0\0\0\x0e\0";
        let n = NameRecord::decode(name, Address(0)).unwrap();
        assert_eq!((n.hash, n.id), (0x1234_5678, *b"\0\x15\0\0\0\x0e\0"));
        assert_eq!(n.encode(), name);
        let order = b"\x03\0\0\0\0\0\0\0\0\x15\0\0\0\x0e\0";
        let c = CreationOrderRecord::decode(order, Address(0)).unwrap();
        assert_eq!((c.creation_order, c.encode().as_slice()), (3, &order[..]));
        assert_eq!((name.len(), order.len()), (NameRecord::SIZE, CreationOrderRecord::SIZE));
        assert!((0..name.len()).all(|n| NameRecord::decode(&name[..n], Address(0)).is_err()));
        assert!((0..order.len()).all(|n| CreationOrderRecord::decode(&order[..n], Address(0)).is_err()));
    }
}
