//! Chunk records of the fixed array, the extensible array and the version 2 B-tree (H5.format.4.0,
//! "Fixed Array Data Block", "Extensible Array Data Block", "Version 2 B-tree, Record Type 10 /
//! 11").
//!
//! ```text
//! array element, client 0: address O                                     (undefined: not
//! allocated)
//! array element, client 1: address O | stored bytes S | filter mask u32
//! B-tree record, type 10:  address O |                                   rank x scaled offset u64
//! B-tree record, type 11:  address O | stored bytes S | filter mask u32 | rank x scaled offset u64
//! ```
//!
//! S is the width of a size: derived from the chunk's size in layout version 4, L in version 5.

use super::{Context, Reader, Writer};
use crate::base::{Address, Result};

/// Location of a chunk in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Address of the first stored byte.
    pub address: Address,
    /// Stored size, bytes.
    pub size: u64,
    /// Bit i set: filter i of the pipeline was not applied.
    pub filter_mask: u32,
}

/// Encoding of the chunk records of one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// Without filters: the address only.
    Plain {
        /// Size of every chunk, bytes.
        chunk_bytes: u64,
    },
    /// With filters.
    Filtered {
        /// Width of a stored size, bytes.
        size_width: u8,
    },
}

impl RecordFormat {
    /// The format implied by a layout message of `version`.
    pub fn new(version: u8, chunk_bytes: u64, filtered: bool, ctx: &Context) -> Self {
        match (filtered, version) {
            (false, _) => RecordFormat::Plain { chunk_bytes },
            (true, ..=4) => RecordFormat::Filtered { size_width: Self::size_width_v4(chunk_bytes) },
            (true, _) => RecordFormat::Filtered { size_width: ctx.sizeof_size },
        }
    }

    /// Width of a size in layout version 4, bytes: one more than the chunk's own size needs, at
    /// most 8.
    pub fn size_width_v4(chunk_bytes: u64) -> u8 {
        let log2 = chunk_bytes.checked_ilog2().unwrap_or(0);
        // log2 is at most 63, the quotient at most 8.
        u8::try_from(log2.saturating_add(8) / 8).map_or(8, |n| n.saturating_add(1).min(8))
    }

    /// Client of an array of such records: 0 or 1. The B-tree's record type is 10 more.
    pub fn client(self) -> u8 {
        match self {
            RecordFormat::Plain { .. } => 0,
            RecordFormat::Filtered { .. } => 1,
        }
    }

    /// Size of an array element, bytes.
    pub fn element_size(self, ctx: &Context) -> usize {
        let address = usize::from(ctx.sizeof_addr);
        match self {
            RecordFormat::Plain { .. } => address,
            RecordFormat::Filtered { size_width } => address.saturating_add(usize::from(size_width)).saturating_add(4),
        }
    }

    /// Size of a B-tree record, bytes.
    pub fn btree2_size(self, rank: usize, ctx: &Context) -> usize {
        self.element_size(ctx).saturating_add(rank.saturating_mul(8))
    }

    /// True if the chunk of a B-tree record or array element is allocated.
    pub fn is_allocated(self, record: &[u8], ctx: &Context, address: Address) -> Result<bool> {
        Ok(Reader::new(record, "chunk record", address).addr(ctx)?.is_defined())
    }

    fn fields(self, r: &mut Reader<'_>, ctx: &Context) -> Result<Option<ChunkRecord>> {
        let address = r.addr(ctx)?;
        let (size, filter_mask) = match self {
            RecordFormat::Plain { chunk_bytes } => (chunk_bytes, 0),
            RecordFormat::Filtered { size_width } => (r.uint(usize::from(size_width))?, r.u32()?),
        };
        Ok(address.is_defined().then_some(ChunkRecord { address, size, filter_mask }))
    }

    /// Decodes an array element; `None` when the chunk is not allocated.
    pub fn decode_element(self, element: &[u8], ctx: &Context, structure: &'static str, address: Address) -> Result<Option<ChunkRecord>> {
        self.fields(&mut Reader::new(element, structure, address), ctx)
    }

    /// Encodes an array element; `None` is an unallocated chunk.
    pub fn encode_element(self, record: Option<ChunkRecord>, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        self.write(&mut w, record, ctx);
        w.into_bytes()
    }

    fn write(self, w: &mut Writer, record: Option<ChunkRecord>, ctx: &Context) {
        let record = record.unwrap_or(ChunkRecord { address: Address::UNDEF, size: 0, filter_mask: 0 });
        w.addr(record.address, ctx);
        if let RecordFormat::Filtered { size_width } = self {
            w.uint(record.size, usize::from(size_width)).u32(record.filter_mask);
        }
    }

    /// Decodes a B-tree record: the chunk (`None`: undefined address) and its scaled offsets.
    pub fn decode_btree2(self, record: &[u8], rank: usize, ctx: &Context, address: Address) -> Result<(Option<ChunkRecord>, Vec<u64>)> {
        let mut r = Reader::new(record, "chunk record", address);
        let chunk = self.fields(&mut r, ctx)?;
        let scaled = (0..rank).map(|_| r.u64()).collect::<Result<_>>()?;
        Ok((chunk, scaled))
    }

    /// Encodes a B-tree record.
    pub fn encode_btree2(self, record: ChunkRecord, scaled: &[u64], ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        self.write(&mut w, Some(record), ctx);
        for &s in scaled {
            w.u64(s);
        }
        w.into_bytes()
    }

    /// Scaled offsets of an encoded B-tree record, decoded lazily.
    pub fn btree2_scaled<'a>(self, record: &'a [u8], ctx: &Context) -> impl Iterator<Item = u64> + 'a {
        let tail = record.get(self.element_size(ctx)..).unwrap_or_default();
        tail.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_of_sizes() {
        // libhdf5: 1 + (floor(log2(size)) + 8) / 8, at most 8.
        for (bytes, width) in [(1, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 4), (1 << 48, 8), (u64::MAX, 8), (0, 2)] {
            assert_eq!(RecordFormat::size_width_v4(bytes), width, "{bytes}");
        }
        let ctx = &Context::DEFAULT;
        assert_eq!(RecordFormat::new(4, 400, true, ctx), RecordFormat::Filtered { size_width: 3 });
        assert_eq!(RecordFormat::new(5, 400, true, ctx), RecordFormat::Filtered { size_width: 8 });
        assert_eq!(RecordFormat::new(5, 400, false, ctx), RecordFormat::Plain { chunk_bytes: 400 });
    }

    #[test]
    fn round_trips() {
        let ctx = &Context::DEFAULT;
        let chunk = ChunkRecord { address: Address(4096), size: 70_000, filter_mask: 2 };
        for f in
            [RecordFormat::Filtered { size_width: 4 }, RecordFormat::Filtered { size_width: 8 }, RecordFormat::Plain { chunk_bytes: 7 }]
        {
            let want = if f.client() == 0 { ChunkRecord { size: 7, filter_mask: 0, ..chunk } } else { chunk };
            let e = f.encode_element(Some(chunk), ctx);
            assert_eq!(e.len(), f.element_size(ctx));
            assert_eq!(f.decode_element(&e, ctx, "x", Address(0)).unwrap(), Some(want));
            let absent = f.encode_element(None, ctx);
            assert_eq!(f.decode_element(&absent, ctx, "x", Address(0)).unwrap(), None);
            let b = f.encode_btree2(chunk, &[3, 1, 4], ctx);
            assert_eq!(b.len(), f.btree2_size(3, ctx));
            assert_eq!(f.decode_btree2(&b, 3, ctx, Address(0)).unwrap(), (Some(want), vec![3, 1, 4]));
            assert_eq!(f.btree2_scaled(&b, ctx).collect::<Vec<_>>(), [3, 1, 4]);
            for i in 0..b.len() {
                assert!(f.decode_btree2(&b[..i], 3, ctx, Address(0)).is_err());
            }
        }
    }
}
