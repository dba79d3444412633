//! Fixed array header (H5.format.4.0, "Fixed Array Header").
//!
//! ```text
//! "FAHD" | version | client | element size | page bits | elements L | data block O | checksum
//! ```
//!
//! Version 1, of the same form, has structured chunks (H5FAcache.c of HDF5's sparse data branch).

use crate::base::{Address, Result};
use crate::format::elements::{CHECKSUM, bitmap_size};
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "fixed array header";
/// Highest version of a header or data block.
pub(super) const VERSION_MAX: u8 = 1;
/// Highest client.
pub const CLIENT_MAX: u8 = 3;

/// A decoded header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 0, or 1 of structured chunks.
    pub version: u8,
    /// Type of the elements: 0 chunks, 1 filtered chunks, 2 structured chunks, 3 filtered ones.
    pub client: u8,
    /// Size of an element, bytes; not 0.
    pub element_size: u8,
    /// log2 of the number of elements in a data block page.
    pub page_bits: u8,
    /// Number of elements in the array.
    pub elements: u64,
    /// The data block; undefined until an element is set.
    pub data_block: Address,
}

impl Header {
    /// Size of an encoded header, bytes.
    pub fn size(ctx: &Context) -> u64 {
        12u64.saturating_add(u64::from(ctx.sizeof_size)).saturating_add(u64::from(ctx.sizeof_addr))
    }

    /// Decodes the header in `buf`.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"FAHD")?;
        let version = r.version(0..=VERSION_MAX)?;
        let [client, element_size, page_bits] = r.array()?;
        let header = Header { version, client, element_size, page_bits, elements: r.length(ctx)?, data_block: r.addr(ctx)? };
        r.checksum()?;
        if client > CLIENT_MAX {
            return Err(r.unsupported(format!("client {client}")));
        }
        if element_size == 0 || page_bits == 0 || page_bits > 63 {
            return Err(r.corrupt(format!("element size {element_size}, page bits {page_bits}")));
        }
        Ok(header)
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"FAHD").u8(self.version).u8(self.client).u8(self.element_size).u8(self.page_bits);
        w.length(self.elements, ctx).addr(self.data_block, ctx).checksum();
        w.into_bytes()
    }

    /// Number of elements in a full page.
    pub fn page_elements(&self) -> u64 {
        1u64.checked_shl(u32::from(self.page_bits)).unwrap_or(u64::MAX)
    }

    /// Number of pages of the data block; 0 when its elements are in the block itself.
    pub fn pages(&self) -> u64 {
        if self.elements > self.page_elements() { self.elements.div_ceil(self.page_elements()) } else { 0 }
    }

    /// Number of elements in page `page`: fewer in the last one.
    pub fn elements_of_page(&self, page: u64) -> u64 {
        self.elements.saturating_sub(page.saturating_mul(self.page_elements())).min(self.page_elements())
    }

    /// Size of the data block without its pages, bytes.
    pub fn data_block_size(&self, ctx: &Context) -> u64 {
        let fixed = 10u64.saturating_add(u64::from(ctx.sizeof_addr));
        let pages = self.pages();
        let body = if pages > 0 { bitmap_size(pages) } else { self.elements.saturating_mul(u64::from(self.element_size)) };
        fixed.saturating_add(body)
    }

    /// Allocated size of the data block with all its pages, bytes; `None` for 2^64 or more.
    pub fn allocated_size(&self, ctx: &Context) -> Option<u64> {
        match self.pages() {
            0 => Some(self.data_block_size(ctx)),
            pages => {
                let elements = self.elements.checked_mul(u64::from(self.element_size))?;
                let checksums = pages.checked_mul(CHECKSUM as u64)?;
                self.data_block_size(ctx).checked_add(elements)?.checked_add(checksums)
            }
        }
    }

    /// Size of a page of `elements` elements, bytes.
    pub fn page_size(&self, elements: u64) -> u64 {
        elements.saturating_mul(u64::from(self.element_size)).saturating_add(CHECKSUM as u64)
    }

    /// Address of page `page`.
    pub fn page_address(&self, page: u64, ctx: &Context) -> Option<Address> {
        let skip = page.checked_mul(self.page_size(self.page_elements()))?;
        self.data_block.checked_add(self.data_block_size(ctx))?.checked_add(skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { version: 0, client: 1, element_size: 14, page_bits: 10, elements: 2500, data_block: Address(0x1000) }
    }

    #[test]
    fn round_trip_and_damage() {
        let ctx = &Context::DEFAULT;
        let b = header().encode(ctx);
        assert_eq!(b.len() as u64, Header::size(ctx));
        assert_eq!(Header::decode(&b, ctx, Address(1)).unwrap(), header());
        for i in 0..b.len() {
            let mut bad = b.clone();
            bad[i] ^= 0x40;
            assert!(Header::decode(&bad, ctx, Address(1)).is_err());
            assert!(Header::decode(&b[..i], ctx, Address(1)).is_err());
        }
        for (version, client, valid) in [(1, 3, true), (1, 2, true), (0, 2, true), (2, 2, false), (1, 4, false)] {
            let h = Header { version, client, ..header() };
            assert_eq!(Header::decode(&h.encode(ctx), ctx, Address(1)).ok(), valid.then_some(h));
        }
    }

    #[test]
    fn geometry_of_pages() {
        let ctx = &Context::DEFAULT;
        let h = header();
        assert_eq!((h.pages(), h.elements_of_page(1), h.elements_of_page(2), h.elements_of_page(3)), (3, 1024, 452, 0));
        assert_eq!(h.page_address(1, ctx), Some(Address(0x1000 + 19 + 14340)));
        assert_eq!(h.allocated_size(ctx), Some(19 + 2500 * 14 + 3 * 4));
        let h = Header { elements: 1024, ..h };
        assert_eq!(h.allocated_size(ctx), Some(18 + 1024 * 14));
        assert_eq!((h.pages(), h.data_block_size(ctx)), (0, 18 + 1024 * 14));
        let h = Header { elements: u64::MAX, page_bits: 63, ..h };
        assert_eq!((h.pages(), h.page_address(1, ctx)), (2, None));
        assert_eq!(h.allocated_size(ctx), None);
    }
}
