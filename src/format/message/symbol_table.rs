//! Symbol table message, type 0x0011: marks an old-style group (H5.format.4.0, "The Symbol Table
//! Message").
//!
//! ```text
//! version 1 B-tree O | local heap O
//! ```

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "symbol table message";

/// A decoded symbol table message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolTable {
    /// Version 1 B-tree whose leaves are symbol table nodes.
    pub btree: Address,
    /// Local heap of the names.
    pub heap: Address,
}

impl SymbolTable {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        Ok(SymbolTable { btree: r.addr(ctx)?, heap: r.addr(ctx)? })
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        w.addr(self.btree, ctx).addr(self.heap, ctx);
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer_round_trip_and_truncation() {
        // Group /g of `old_one.h5` (tests/fixtures/groups/make_groups.py), written by libhdf5
        // 2.0.0.
        let b = b"H\x03\0\0\0\0\0\0h\x05\0\0\0\0\0\0";
        let m = SymbolTable::decode(b, &Context::DEFAULT, Address(0)).unwrap();
        assert_eq!(m, SymbolTable { btree: Address(0x348), heap: Address(0x568) });
        assert_eq!(m.encode(&Context::DEFAULT).unwrap(), b);
        for n in 0..b.len() {
            assert!(SymbolTable::decode(&b[..n], &Context::DEFAULT, Address(0)).is_err());
        }
    }
}
