//! Extensible array index block (H5.format.4.0, "Extensible Array Index Block").
//!
//! ```text
//! "EAIB" | 0 | client | header O | elements | data block addresses O | super block addresses O |
//! checksum
//! ```

use super::{Geometry, Header};
use crate::base::{Address, Result};
use crate::format::elements::Elements;
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "extensible array index block";

/// A decoded index block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexBlock {
    /// Client of the array.
    pub client: u8,
    /// Address of the array's header.
    pub header: Address,
    /// The first elements of the array.
    pub elements: Elements,
    /// Addresses of the data blocks of super blocks that do not exist on disk.
    pub data_blocks: Vec<Address>,
    /// Addresses of the other super blocks; undefined if not allocated.
    pub super_blocks: Vec<Address>,
}

impl IndexBlock {
    /// Decodes the block in `buf`; `owner` is the address of `header`.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address, header: &Header, geometry: &Geometry, owner: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"EAIB")?;
        r.version(0..=0)?;
        let client = r.u8()?;
        let back = r.addr(ctx)?;
        let elements = Elements::decode(&mut r, usize::from(header.index_elements), header.element_size)?;
        let data_blocks = (0..geometry.index_data_blocks).map(|_| r.addr(ctx)).collect::<Result<_>>()?;
        let super_blocks = (0..geometry.index_super_blocks()).map(|_| r.addr(ctx)).collect::<Result<_>>()?;
        r.checksum()?;
        if client != header.client || back != owner {
            return Err(r.corrupt(format!("belongs to client {client} and the header at {back}, not to {owner}")));
        }
        Ok(IndexBlock { client, header: back, elements, data_blocks, super_blocks })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"EAIB").u8(0).u8(self.client).addr(self.header, ctx);
        self.elements.encode(&mut w);
        for &a in self.data_blocks.iter().chain(&self.super_blocks) {
            w.addr(a, ctx);
        }
        w.checksum();
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::standard;
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let ctx = &Context::DEFAULT;
        let h = standard();
        let g = Geometry::new(&h, ctx, Address(0)).unwrap();
        let mut w = Writer::new();
        w.bytes(b"EAIB").u8(0).u8(0).u64(77);
        for a in 0..35u64 {
            w.u64(if a % 3 == 0 { u64::MAX } else { a });
        }
        w.checksum();
        let b = w.into_bytes();
        assert_eq!(b.len() as u64, g.index_block_size());
        let block = IndexBlock::decode(&b, ctx, Address(0), &h, &g, Address(77)).unwrap();
        assert_eq!((block.data_blocks[0], block.super_blocks[0]), (Address(4), Address(10)));
        assert_eq!(block.encode(ctx), b);
        for i in 0..b.len() {
            let mut bad = b.clone();
            bad[i] ^= 0x40;
            assert!(IndexBlock::decode(&bad, ctx, Address(0), &h, &g, Address(77)).is_err());
            assert!(IndexBlock::decode(&b[..i], ctx, Address(0), &h, &g, Address(77)).is_err());
        }
    }
}
