//! Extensible array data block (H5.format.4.0, "Extensible Array Data Block").
//!
//! ```text
//! "EADB" | 0 | client | header O | block offset | not paged: elements | checksum | paged: pages
//! ```

use super::{Geometry, Header, SuperBlockInfo};
use crate::base::{Address, Result};
use crate::format::elements::Elements;
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "extensible array data block";
/// Standard name of a page.
pub const PAGE_NAME: &str = "extensible array data block page";

/// A decoded data block, without its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataBlock {
    /// Client of the array.
    pub client: u8,
    /// Address of the array's header.
    pub header: Address,
    /// Index of the first element as libhdf5 writes it; no reader uses it.
    ///
    /// In data blocks that the index block points to it is wrong: it counts the data blocks of
    /// earlier super blocks twice.
    pub block_offset: u64,
    /// The elements; empty when they are in pages.
    pub elements: Elements,
    /// Width of `block_offset`, bytes.
    pub offset_size: u8,
}

impl DataBlock {
    /// Decodes the data block of super block `info` in `buf`; `owner` is the address of `header`.
    pub fn decode(
        buf: &[u8],
        ctx: &Context,
        address: Address,
        header: &Header,
        geometry: &Geometry,
        info: &SuperBlockInfo,
        owner: Address,
    ) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"EADB")?;
        r.version(0..=0)?;
        let client = r.u8()?;
        let back = r.addr(ctx)?;
        let offset_size = geometry.offset_size;
        let block_offset = r.uint(usize::from(offset_size))?;
        let count = if info.pages > 0 { 0 } else { info.data_block_elements };
        let count = usize::try_from(count).map_err(|_| r.corrupt(format!("{count} elements")))?;
        let elements = Elements::decode(&mut r, count, header.element_size)?;
        r.checksum()?;
        if client != header.client || back != owner {
            return Err(r.corrupt(format!("belongs to client {client} and the header at {back}, not to {owner}")));
        }
        Ok(DataBlock { client, header: back, block_offset, elements, offset_size })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"EADB").u8(0).u8(self.client).addr(self.header, ctx).uint(self.block_offset, usize::from(self.offset_size));
        self.elements.encode(&mut w);
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
        for row in [0usize, 13] {
            let info = g.super_blocks[row];
            let mut w = Writer::new();
            w.bytes(b"EADB").u8(0).u8(0).u64(77).u32(12);
            if row == 0 {
                w.zeros(16 * 8);
            }
            w.checksum();
            let b = w.into_bytes();
            assert_eq!(b.len() as u64, g.data_block_size(&info));
            let block = DataBlock::decode(&b, ctx, Address(0), &h, &g, &info, Address(77)).unwrap();
            assert_eq!((block.block_offset, block.elements.len()), (12, if row == 0 { 16 } else { 0 }));
            assert_eq!(block.encode(ctx), b);
            for i in 0..b.len() {
                let mut bad = b.clone();
                bad[i] ^= 0x40;
                assert!(DataBlock::decode(&bad, ctx, Address(0), &h, &g, &info, Address(77)).is_err());
                assert!(DataBlock::decode(&b[..i], ctx, Address(0), &h, &g, &info, Address(77)).is_err());
            }
        }
    }
}
