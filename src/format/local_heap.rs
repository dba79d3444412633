//! Local heap: the names in an old-style group, or of external raw data files.
//!
//! ```text
//! "HEAP" | version 0 | 0 0 0 | data segment size L | offset of the free list L | data segment O
//! data segment: NUL-terminated names and free blocks { offset of the next one L | size L }
//! ```
//!
//! The free list ends with offset 1. H5.format.4.0, "Local Heaps".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "local heap";
/// Name of the data segment.
pub const SEGMENT_NAME: &str = "local heap data segment";
const SIGNATURE: &[u8; 4] = b"HEAP";
/// Offset that ends the free list.
pub const FREE_NULL: u64 = 1;

/// A decoded local heap header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Size of the data segment, bytes.
    pub segment_size: u64,
    /// Offset of the first free block in the data segment, or [`FREE_NULL`].
    pub free_list: u64,
    /// Address of the data segment.
    pub segment: Address,
}

impl Header {
    /// Size of an encoded header, bytes.
    pub fn size(ctx: &Context) -> usize {
        8usize.saturating_add(usize::from(ctx.sizeof_size).saturating_mul(2)).saturating_add(usize::from(ctx.sizeof_addr))
    }

    /// Decodes the header at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        r.skip(3)?;
        Ok(Header { segment_size: r.length(ctx)?, free_list: r.length(ctx)?, segment: r.addr(ctx)? })
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(SIGNATURE).zeros(4).length(self.segment_size, ctx).length(self.free_list, ctx).addr(self.segment, ctx);
        w.into_bytes()
    }
}

/// A free block of the data segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeBlock {
    /// Offset of the next free block, or [`FREE_NULL`].
    pub next: u64,
    /// Size of this block, bytes, including these fields.
    pub size: u64,
}

impl FreeBlock {
    /// Decodes the free block at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        Ok(FreeBlock { next: r.length(ctx)?, size: r.length(ctx)? })
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        w.length(self.next, ctx).length(self.size, ctx);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../../tests/fixtures/heaps/old.h5");
    const CTX: &Context = &Context::DEFAULT;

    #[test]
    fn as_libhdf5_writes_it() {
        let at = FILE.windows(4).position(|w| w == b"HEAP").unwrap();
        let h = Header::decode(&FILE[at..], Address(0), CTX).unwrap();
        assert_eq!(h.encode(CTX), FILE[at..at + Header::size(CTX)]);
        let mut next = h.free_list;
        let mut blocks = 0;
        while next != FREE_NULL {
            let start = h.segment.0 + next;
            let block = FreeBlock::decode(&FILE[start as usize..], Address(0), CTX).unwrap();
            assert_eq!(block.encode(CTX), FILE[start as usize..start as usize + 16]);
            assert!(next + block.size <= h.segment_size);
            next = block.next;
            blocks += 1;
        }
        assert!(blocks > 0);
        for n in 0..Header::size(CTX) {
            assert!(Header::decode(&FILE[at..at + n], Address(0), CTX).is_err());
        }
        for i in 0..5 {
            let mut bad = FILE[at..at + 32].to_vec();
            bad[i] ^= 1;
            assert!(Header::decode(&bad, Address(0), CTX).is_err());
        }
    }
}
