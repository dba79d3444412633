//! Fixed array data block (H5.format.4.0, "Fixed Array Data Block").
//!
//! ```text
//! "FADB" | version | client | header O | paged: page bitmap, else: elements | checksum |
//! paged: pages
//! ```

use super::Header;
use super::header::VERSION_MAX;
use crate::base::{Address, Result};
use crate::format::elements::{Elements, bitmap_size};
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "fixed array data block";
/// Standard name of a page.
pub const PAGE_NAME: &str = "fixed array data block page";

/// A decoded data block, without its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataBlock {
    /// 0, or 1 of structured chunks.
    pub version: u8,
    /// Client of the array.
    pub client: u8,
    /// Address of the array's header.
    pub header: Address,
    /// What the block holds.
    pub body: Body,
}

/// Content of a data block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// All elements.
    Elements(Elements),
    /// Bitmap with one bit for each following page: set if the page was ever written.
    PageBitmap(Vec<u8>),
}

impl DataBlock {
    /// Decodes the block in `buf`; `owner` is the address of `header`.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address, header: &Header, owner: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"FADB")?;
        let version = r.version(0..=VERSION_MAX)?;
        let client = r.u8()?;
        let back = r.addr(ctx)?;
        let too_large = || r.corrupt(format!("{} elements", header.elements));
        let pages = header.pages();
        let body = if pages > 0 {
            let n = usize::try_from(bitmap_size(pages)).map_err(|_| too_large())?;
            Body::PageBitmap(r.bytes(n)?.to_vec())
        } else {
            let n = usize::try_from(header.elements).map_err(|_| too_large())?;
            Body::Elements(Elements::decode(&mut r, n, header.element_size)?)
        };
        r.checksum()?;
        if client != header.client || back != owner {
            return Err(r.corrupt(format!("belongs to client {client} and the header at {back}, not to {owner}")));
        }
        Ok(DataBlock { version, client, header: back, body })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"FADB").u8(self.version).u8(self.client).addr(self.header, ctx);
        match &self.body {
            Body::Elements(e) => e.encode(&mut w),
            Body::PageBitmap(b) => {
                w.bytes(b);
            }
        }
        w.checksum();
        w.into_bytes()
    }

    /// Size of the content in memory, bytes.
    pub fn byte_len(&self) -> usize {
        match &self.body {
            Body::Elements(e) => e.byte_len(),
            Body::PageBitmap(b) => b.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let ctx = &Context::DEFAULT;
        for elements in [3u64, 5] {
            // Page bits 2: 4 elements fit the block, 5 need two pages.
            let header = Header { version: 0, client: 0, element_size: 8, page_bits: 2, elements, data_block: Address(64) };
            let mut w = Writer::new();
            w.bytes(b"FADB").u8(0).u8(0).u64(40);
            if elements == 3 {
                w.u64(1).u64(2).u64(u64::MAX);
            } else {
                w.u8(0xc0);
            }
            w.checksum();
            let b = w.into_bytes();
            assert_eq!(b.len() as u64, header.data_block_size(ctx));
            let block = DataBlock::decode(&b, ctx, Address(64), &header, Address(40)).unwrap();
            assert_eq!(block.encode(ctx), b);
            assert!(DataBlock::decode(&b, ctx, Address(64), &header, Address(41)).is_err());
            for i in 0..b.len() {
                let mut bad = b.clone();
                bad[i] ^= 0x40;
                assert!(DataBlock::decode(&bad, ctx, Address(64), &header, Address(40)).is_err());
                assert!(DataBlock::decode(&b[..i], ctx, Address(64), &header, Address(40)).is_err());
            }
        }
    }
}
