//! B-tree K values message, type 0x0013, of the superblock extension. It replaces the K fields of
//! version 0 and 1 superblocks (H5.format.4.0, "The B-tree 'K' Values Message").
//!
//! ```text
//! version 0 | chunk internal K u16 | group internal K u16 | group leaf K u16
//! ```

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "B-tree K values message";
const VERSION: u8 = 0;

/// Half of the largest number of entries in version 1 B-tree nodes and symbol table nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BTreeK {
    /// Nodes that index chunks.
    pub chunk_internal: u16,
    /// Nodes of groups.
    pub group_internal: u16,
    /// Symbol table nodes.
    pub group_leaf: u16,
}

impl Default for BTreeK {
    /// The values of a file without the message.
    fn default() -> Self {
        BTreeK { chunk_internal: 32, group_internal: 16, group_leaf: 4 }
    }
}

impl BTreeK {
    /// Decodes the message at the start of `body`; ignores padding after it. Errors: a value is 0.
    pub fn decode(body: &[u8], _ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let k = BTreeK { chunk_internal: r.u16()?, group_internal: r.u16()?, group_leaf: r.u16()? };
        if [k.chunk_internal, k.group_internal, k.group_leaf].contains(&0) { Err(r.corrupt("a K value is 0")) } else { Ok(k) }
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, _ctx: &Context) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        w.u8(VERSION).u16(self.chunk_internal).u16(self.group_internal).u16(self.group_leaf);
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;
    /// Written by libhdf5 2.0.0 for `H5Pset_sym_k(8, 2)` and `H5Pset_istore_k(5)` with libver v108.
    const GOLDEN: &[u8] = b"\0\x05\0\x08\0\x02\0";

    #[test]
    fn known_answer_round_trip_and_damage() {
        let k = BTreeK::decode(GOLDEN, &CTX, Address(0)).unwrap();
        assert_eq!(k, BTreeK { chunk_internal: 5, group_internal: 8, group_leaf: 2 });
        assert_eq!(k.encode(&CTX).unwrap(), GOLDEN);
        assert!((0..GOLDEN.len()).all(|n| BTreeK::decode(&GOLDEN[..n], &CTX, Address(0)).is_err()));
        assert!(BTreeK::decode(b"\x01\x05\0\x08\0\x02\0", &CTX, Address(0)).is_err());
        assert!(BTreeK::decode(b"\0\x05\0\0\0\x02\0", &CTX, Address(0)).is_err());
    }
}
