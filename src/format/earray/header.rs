//! Extensible array header (H5.format.4.0, "Extensible Array Header").
//!
//! ```text
//! "EAHD" | 0 | client | element size | max bits | index elements | min elements |
//! min super pointers | page bits | super blocks L | bytes of them L | data blocks L |
//! bytes of them L | max index set L | elements L | index block O | checksum
//! ```
//!
//! The data layout message stores "min super pointers" before "min elements".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "extensible array header";
/// Highest client.
const CLIENT_MAX: u8 = 3;

/// A decoded header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Type of the elements: 0 chunks, 1 filtered chunks, 2 structured chunks, 3 filtered ones.
    pub client: u8,
    /// Size of an element, bytes; not 0.
    pub element_size: u8,
    /// log2 of the largest number of elements.
    pub max_bits: u8,
    /// Number of elements in the index block.
    pub index_elements: u8,
    /// Fewest elements in a data block, a power of 2.
    pub min_elements: u8,
    /// Fewest data block pointers in a super block, a power of 2.
    pub min_super_pointers: u8,
    /// log2 of the number of elements in a data block page.
    pub page_bits: u8,
    /// Counts for reports; readers do not need them.
    pub statistics: Statistics,
    /// One more than the highest index ever set.
    pub max_index_set: u64,
    /// Number of elements with allocated space.
    pub realised: u64,
    /// The index block; undefined until an element is set.
    pub index_block: Address,
}

/// Numbers and sizes of allocated blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Number of super blocks.
    pub super_blocks: u64,
    /// Size of all super blocks, bytes.
    pub super_block_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Size of all data blocks, bytes.
    pub data_block_bytes: u64,
}

impl Header {
    /// Size of an encoded header, bytes.
    pub fn size(ctx: &Context) -> u64 {
        let lengths = u64::from(ctx.sizeof_size).saturating_mul(6);
        16u64.saturating_add(lengths).saturating_add(u64::from(ctx.sizeof_addr))
    }

    /// Decodes the header in `buf`.
    pub fn decode(buf: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"EAHD")?;
        r.version(0..=0)?;
        let [client, element_size, max_bits, index_elements, min_elements, min_super_pointers, page_bits] = r.array()?;
        let statistics = Statistics {
            super_blocks: r.length(ctx)?,
            super_block_bytes: r.length(ctx)?,
            data_blocks: r.length(ctx)?,
            data_block_bytes: r.length(ctx)?,
        };
        let (max_index_set, realised) = (r.length(ctx)?, r.length(ctx)?);
        let index_block = r.addr(ctx)?;
        r.checksum()?;
        if client > CLIENT_MAX {
            return Err(r.unsupported(format!("client {client}")));
        }
        if element_size == 0 {
            return Err(r.corrupt("element size 0"));
        }
        Ok(Header {
            client,
            element_size,
            max_bits,
            index_elements,
            min_elements,
            min_super_pointers,
            page_bits,
            statistics,
            max_index_set,
            realised,
            index_block,
        })
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"EAHD").u8(0).u8(self.client).u8(self.element_size).u8(self.max_bits).u8(self.index_elements);
        w.u8(self.min_elements).u8(self.min_super_pointers).u8(self.page_bits);
        let s = &self.statistics;
        for n in [s.super_blocks, s.super_block_bytes, s.data_blocks, s.data_block_bytes, self.max_index_set, self.realised] {
            w.length(n, ctx);
        }
        w.addr(self.index_block, ctx).checksum();
        w.into_bytes()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Parameters that libhdf5 always uses.
    pub(crate) fn standard() -> Header {
        Header {
            client: 0,
            element_size: 8,
            max_bits: 32,
            index_elements: 4,
            min_elements: 16,
            min_super_pointers: 4,
            page_bits: 10,
            statistics: Statistics::default(),
            max_index_set: 100,
            realised: 100,
            index_block: Address(0x400),
        }
    }

    #[test]
    fn round_trip_and_damage() {
        let ctx = &Context::DEFAULT;
        let b = standard().encode(ctx);
        assert_eq!(b.len() as u64, Header::size(ctx));
        assert_eq!(Header::decode(&b, ctx, Address(1)).unwrap(), standard());
        for i in 0..b.len() {
            let mut bad = b.clone();
            bad[i] ^= 0x40;
            assert!(Header::decode(&bad, ctx, Address(1)).is_err());
            assert!(Header::decode(&b[..i], ctx, Address(1)).is_err());
        }
    }
}
