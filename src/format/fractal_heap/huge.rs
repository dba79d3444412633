//! Records of the version 2 B-tree that tracks a fractal heap's huge objects.
//!
//! ```text
//! type 1, indirect:           address O | length L | key L
//! type 2, indirect, filtered: address O | stored length L | filter mask u32 |
//!                             unfiltered length L | key L
//! type 3, direct:             address O | length L
//! type 4, direct, filtered:   address O | stored length L | filter mask u32 | unfiltered length L
//! ```
//!
//! H5.format.4.0, "Version 2 B-tree", record types 1 to 4.

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "huge object record";
/// Name of the object that a record locates.
pub const OBJECT_NAME: &str = "huge object";

/// Location of one huge object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeRecord {
    /// Address of its stored bytes.
    pub address: Address,
    /// Stored size, bytes.
    pub length: u64,
    /// Filters skipped; 0 in types 1 and 3.
    pub mask: u32,
    /// Unfiltered size, bytes; equals `length` in types 1 and 3.
    pub size: u64,
    /// Key of the object in heap IDs; 0 in types 3 and 4.
    pub key: u64,
}

impl HugeRecord {
    /// Decodes a record of the tree of `record_type` at `tree` (for errors).
    pub fn decode(record: &[u8], record_type: u8, tree: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(record, NAME, tree);
        if !matches!(record_type, 1..=4) {
            return Err(r.corrupt(format!("B-tree of type {record_type}")));
        }
        let address = r.addr(ctx)?;
        let length = r.length(ctx)?;
        let (mask, size) = if matches!(record_type, 2 | 4) { (r.u32()?, r.length(ctx)?) } else { (0, length) };
        let key = if matches!(record_type, 1 | 2) { r.length(ctx)? } else { 0 };
        Ok(HugeRecord { address, length, mask, size, key })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, record_type: u8, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.addr(self.address, ctx).length(self.length, ctx);
        if matches!(record_type, 2 | 4) {
            w.u32(self.mask).length(self.size, ctx);
        }
        if matches!(record_type, 1 | 2) {
            w.length(self.key, ctx);
        }
        w.into_bytes()
    }
}
