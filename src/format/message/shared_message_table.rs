//! Shared Message Table message (type 0x0F), in the superblock extension.
//!
//! ```text
//! version 0 | table O | number of indexes u8
//! ```
//!
//! H5.format.4.0, "The Shared Message Table Message".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "shared message table message";

/// Location of the file's table of shared message indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMessageTable {
    /// Address of the table ("SMTB").
    pub table: Address,
    /// Number of indexes in the table, 1 to 8.
    pub indexes: u8,
}

impl SharedMessageTable {
    /// Decodes the message body `buf`; `address` is the object header's, for errors.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.version(0..=0)?;
        Ok(SharedMessageTable { table: r.addr(ctx)?, indexes: r.u8()? })
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(0).addr(self.table, ctx).u8(self.indexes);
        w.into_bytes()
    }
}
