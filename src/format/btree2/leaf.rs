//! Version 2 B-tree leaf node.
//!
//! ```text
//! "BTLF" | version 0 | type u8 | record 0 | ... | record n-1 | checksum | zeros to the node size
//! ```
//!
//! The pointer to the node has the number of records, not the node itself. The checksum follows the
//! last record. H5.format.4.0, "Version 2 B-tree Leaf Node".

use super::{Header, NODE_OVERHEAD};
use crate::base::{Address, Error, Result};
use crate::format::{Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "version 2 B-tree leaf node";
const SIGNATURE: &[u8; 4] = b"BTLF";

/// A decoded leaf node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Type of the tree it belongs to.
    pub record_type: u8,
    /// All records, `Header::record_size` bytes each.
    pub records: Vec<u8>,
}

impl Leaf {
    /// Size of the used part of a leaf with `records` records, bytes.
    pub fn used(header: &Header, records: u16) -> usize {
        usize::from(header.record_size).saturating_mul(usize::from(records)).saturating_add(NODE_OVERHEAD)
    }

    /// Decodes the leaf with `records` records at the start of `buf`; the unused part of the node
    /// may be missing.
    pub fn decode(buf: &[u8], address: Address, header: &Header, records: u16) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        let body = Self::used(header, records);
        if body as u64 > u64::from(header.node_size) {
            return Err(r.corrupt(format!("{records} records do not fit")));
        }
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let record_type = r.u8()?;
        let bytes = r.bytes(body.saturating_sub(NODE_OVERHEAD))?.to_vec();
        r.checksum()?;
        if record_type != header.record_type {
            return Err(r.corrupt(format!("type {record_type} in a tree of type {}", header.record_type)));
        }
        Ok(Leaf { record_type, records: bytes })
    }

    /// Encodes the node, zero-padded to the node size. Errors: more records than fit.
    pub fn encode(&self, header: &Header) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).u8(self.record_type).bytes(&self.records).checksum();
        let size = usize::try_from(header.node_size).unwrap_or(usize::MAX);
        match size.checked_sub(w.position()) {
            Some(rest) => w.zeros(rest),
            None => return Err(Error::corrupt(NAME, Address::UNDEF, "more records than fit in the node")),
        };
        Ok(w.into_bytes())
    }
}
