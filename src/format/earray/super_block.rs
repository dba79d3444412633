//! Extensible array super block (H5.format.4.0, "Extensible Array Secondary Block").
//!
//! ```text
//! "EASB" | 0 | client | header O | block offset | page bitmaps | data block addresses O | checksum
//! ```

use super::{Geometry, Header, SuperBlockInfo};
use crate::base::{Address, Result};
use crate::format::elements::{count_page_bits, next_page_bit, page_bit, set_page_bit};
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "extensible array super block";

/// A decoded super block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperBlock {
    /// Client of the array.
    pub client: u8,
    /// Address of the array's header.
    pub header: Address,
    /// Index of the block's first element, not counting elements in the index block.
    pub block_offset: u64,
    /// Bitmaps of the pages ever written, for all data blocks; empty when they are not paged.
    pub page_bitmaps: Vec<u8>,
    /// Addresses of the data blocks.
    pub data_blocks: Vec<Address>,
    /// Width of `block_offset`, bytes.
    pub offset_size: u8,
}

impl SuperBlock {
    /// Decodes super block `info` in `buf`; `owner` is the address of `header`.
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
        r.signature(b"EASB")?;
        r.version(0..=0)?;
        let client = r.u8()?;
        let back = r.addr(ctx)?;
        let offset_size = geometry.offset_size;
        let block_offset = r.uint(usize::from(offset_size))?;
        let bitmap = info.data_blocks.checked_mul(info.bitmap_size()).and_then(|n| usize::try_from(n).ok());
        let page_bitmaps = r.bytes(bitmap.ok_or_else(|| r.corrupt("page bitmaps"))?)?.to_vec();
        // No capacity is reserved by the stated count: the loop ends with the block's bytes.
        let data_blocks = (0..info.data_blocks).map(|_| r.addr(ctx)).collect::<Result<_>>()?;
        r.checksum()?;
        if client != header.client || back != owner {
            return Err(r.corrupt(format!("belongs to client {client} and the header at {back}, not to {owner}")));
        }
        Ok(SuperBlock { client, header: back, block_offset, page_bitmaps, data_blocks, offset_size })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"EASB").u8(0).u8(self.client).addr(self.header, ctx).uint(self.block_offset, usize::from(self.offset_size));
        w.bytes(&self.page_bitmaps);
        for &a in &self.data_blocks {
            w.addr(a, ctx);
        }
        w.checksum();
        w.into_bytes()
    }

    /// True if page `page` of data block `data_block` was ever written.
    ///
    /// The bits of all data blocks are contiguous, although whole bytes are allocated per data
    /// block.
    pub fn page_written(&self, info: &SuperBlockInfo, data_block: u64, page: u64) -> bool {
        Self::bit(info, data_block, page).is_some_and(|bit| page_bit(&self.page_bitmaps, bit))
    }

    /// The first page of data block `data_block` at or after page `from` that was ever written.
    pub fn next_page_written(&self, info: &SuperBlockInfo, data_block: u64, from: u64) -> Option<u64> {
        let (first, end) = (Self::bit(info, data_block, 0)?, Self::bit(info, data_block, info.pages)?);
        next_page_bit(&self.page_bitmaps, first.checked_add(from)?, end).and_then(|bit| bit.checked_sub(first))
    }

    /// Number of pages of data block `data_block` that were ever written.
    pub fn pages_written(&self, info: &SuperBlockInfo, data_block: u64) -> u64 {
        let bits = Self::bit(info, data_block, 0).zip(Self::bit(info, data_block, info.pages));
        bits.map_or(0, |(first, end)| count_page_bits(&self.page_bitmaps, first, end))
    }

    /// Marks the page as written; false when there is no such page.
    pub fn set_page_written(&mut self, info: &SuperBlockInfo, data_block: u64, page: u64) -> bool {
        Self::bit(info, data_block, page).is_some_and(|bit| set_page_bit(&mut self.page_bitmaps, bit))
    }

    fn bit(info: &SuperBlockInfo, data_block: u64, page: u64) -> Option<u64> {
        data_block.checked_mul(info.pages)?.checked_add(page)
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
        let info = g.super_blocks[13];
        let mut w = Writer::new();
        w.bytes(b"EASB").u8(0).u8(0).u64(77).u32(131_056).u8(0x10).zeros(63);
        for a in 0..64u64 {
            w.u64(if a == 1 { 4096 } else { u64::MAX });
        }
        w.checksum();
        let b = w.into_bytes();
        assert_eq!(b.len() as u64, g.super_block_size(&info));
        let block = SuperBlock::decode(&b, ctx, Address(0), &h, &g, &info, Address(77)).unwrap();
        assert_eq!((block.block_offset, block.data_blocks[1]), (131_056, Address(4096)));
        assert!(block.page_written(&info, 1, 1) && !block.page_written(&info, 1, 0) && !block.page_written(&info, u64::MAX, 1));
        assert_eq!(block.encode(ctx), b);
        for i in 0..b.len() {
            let mut bad = b.clone();
            bad[i] ^= 0x40;
            assert!(SuperBlock::decode(&bad, ctx, Address(0), &h, &g, &info, Address(77)).is_err());
            assert!(SuperBlock::decode(&b[..i], ctx, Address(0), &h, &g, &info, Address(77)).is_err());
        }
    }
}
