//! Fractal heap header.
//!
//! ```text
//! "FRHP" | version 0 | heap ID length u16 | filter length u16 | flags u8 |
//! max managed object size u32 | next huge ID L | huge object B-tree O | free space L |
//! free space manager O | managed space L | allocated managed space L | allocation iterator L |
//! managed objects L | huge space L | huge objects L | tiny space L | tiny objects L |
//! table width u16 | starting block size L | max direct block size L | max heap size (bits) u16 |
//! starting root rows u16 | root block O | root rows u16 |
//! filter length > 0: { filtered root block size L | filter mask u32 | filter pipeline message } |
//! checksum
//!
//! Flags: bit 0 huge IDs have wrapped, bit 1 direct blocks have a checksum.
//! H5.format.4.0, "Fractal Heap", "Fractal Heap Header".

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "fractal heap header";
const SIGNATURE: &[u8; 4] = b"FRHP";
/// Flag: direct blocks have a checksum.
pub const FLAG_CHECKSUM: u8 = 0x02;

/// Parameters and root of the doubling table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoublingTable {
    /// Number of blocks in each row.
    pub width: u16,
    /// Size of a block in the first two rows, bytes.
    pub start_block_size: u64,
    /// Size of the largest direct block, bytes; later rows have indirect blocks.
    pub max_direct_size: u64,
    /// Width of an offset in the heap's address space, bits.
    pub max_heap_bits: u16,
    /// Number of rows of a new root indirect block.
    pub start_root_rows: u16,
    /// Root block; undefined while the heap has no managed object.
    pub root: Address,
    /// Rows of the root indirect block; 0 when the root is a direct block.
    pub root_rows: u16,
}

/// Additional fields of a heap with I/O filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filters {
    /// Stored size of a root direct block, bytes.
    pub root_size: u64,
    /// Filters skipped for a root direct block.
    pub root_mask: u32,
    /// Filter pipeline message, encoded.
    pub pipeline: Vec<u8>,
}

/// Sizes and numbers of the objects in a heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Size of the heap's address space covered by blocks, bytes.
    pub managed_size: u64,
    /// Size of the part of it with allocated blocks, bytes.
    pub allocated_size: u64,
    /// Offset of the next block to allocate.
    pub iterator: u64,
    /// Number of managed objects.
    pub managed_objects: u64,
    /// Size of all huge objects, bytes.
    pub huge_size: u64,
    /// Number of huge objects.
    pub huge_objects: u64,
    /// Size of all tiny objects, bytes.
    pub tiny_size: u64,
    /// Number of tiny objects.
    pub tiny_objects: u64,
}

/// A decoded fractal heap header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Size of a heap ID, bytes.
    pub id_length: u16,
    /// Status flags ([`FLAG_CHECKSUM`]).
    pub flags: u8,
    /// Largest managed object, bytes; larger ones are huge.
    pub max_managed_size: u32,
    /// Next huge object ID.
    pub next_huge_id: u64,
    /// Version 2 B-tree of the huge objects.
    pub huge_btree: Address,
    /// Free bytes in the direct blocks.
    pub free_space: u64,
    /// Free space manager.
    pub free_space_manager: Address,
    /// Sizes and numbers of objects.
    pub statistics: Statistics,
    /// Doubling table.
    pub table: DoublingTable,
    /// I/O filters, if the heap has any.
    pub filters: Option<Filters>,
}

impl Header {
    /// Size of a header without filters, bytes; [`Header::encoded_size`] includes them.
    pub fn size(ctx: &Context) -> usize {
        let (o, l) = (usize::from(ctx.sizeof_addr), usize::from(ctx.sizeof_size));
        26usize.saturating_add(o.saturating_mul(3)).saturating_add(l.saturating_mul(12))
    }

    /// Size of the header that starts with `prefix` (at least 9 bytes), bytes.
    pub fn encoded_size(prefix: &[u8], address: Address, ctx: &Context) -> Result<usize> {
        let mut r = Reader::new(prefix, NAME, address);
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        r.skip(2)?;
        let filters = usize::from(r.u16()?);
        let extra = if filters > 0 { filters.saturating_add(4).saturating_add(usize::from(ctx.sizeof_size)) } else { 0 };
        Ok(Self::size(ctx).saturating_add(extra))
    }

    /// Size of this header, bytes.
    pub fn encoded_len(&self, ctx: &Context) -> u64 {
        let filters = self.filters.as_ref().map_or(0, |f| f.pipeline.len().saturating_add(4).saturating_add(usize::from(ctx.sizeof_size)));
        Self::size(ctx).saturating_add(filters) as u64
    }

    /// True when direct blocks have a checksum.
    pub fn checksummed(&self) -> bool {
        self.flags & FLAG_CHECKSUM != 0
    }

    /// Decodes the header at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let id_length = r.u16()?;
        let filter_length = usize::from(r.u16()?);
        let flags = r.u8()?;
        let max_managed_size = r.u32()?;
        let next_huge_id = r.length(ctx)?;
        let huge_btree = r.addr(ctx)?;
        let free_space = r.length(ctx)?;
        let free_space_manager = r.addr(ctx)?;
        let statistics = Statistics {
            managed_size: r.length(ctx)?,
            allocated_size: r.length(ctx)?,
            iterator: r.length(ctx)?,
            managed_objects: r.length(ctx)?,
            huge_size: r.length(ctx)?,
            huge_objects: r.length(ctx)?,
            tiny_size: r.length(ctx)?,
            tiny_objects: r.length(ctx)?,
        };
        let table = DoublingTable {
            width: r.u16()?,
            start_block_size: r.length(ctx)?,
            max_direct_size: r.length(ctx)?,
            max_heap_bits: r.u16()?,
            start_root_rows: r.u16()?,
            root: r.addr(ctx)?,
            root_rows: r.u16()?,
        };
        let filters = if filter_length > 0 {
            Some(Filters { root_size: r.length(ctx)?, root_mask: r.u32()?, pipeline: r.bytes(filter_length)?.to_vec() })
        } else {
            None
        };
        r.checksum()?;
        if id_length == 0 {
            return Err(r.corrupt("heap IDs of 0 bytes"));
        }
        Ok(Header {
            id_length,
            flags,
            max_managed_size,
            next_huge_id,
            huge_btree,
            free_space,
            free_space_manager,
            statistics,
            table,
            filters,
        })
    }

    /// Encodes the exact bytes that `decode` reads. Errors: the pipeline message exceeds its length
    /// field.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let filter_length = self.filters.as_ref().map_or(0, |f| f.pipeline.len());
        let filter_length = u16::try_from(filter_length).map_err(|_| Error::corrupt(NAME, Address::UNDEF, "filter pipeline too long"))?;
        let (s, t) = (&self.statistics, &self.table);
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).u16(self.id_length).u16(filter_length).u8(self.flags).u32(self.max_managed_size);
        w.length(self.next_huge_id, ctx).addr(self.huge_btree, ctx);
        w.length(self.free_space, ctx).addr(self.free_space_manager, ctx);
        w.length(s.managed_size, ctx).length(s.allocated_size, ctx).length(s.iterator, ctx).length(s.managed_objects, ctx);
        w.length(s.huge_size, ctx).length(s.huge_objects, ctx).length(s.tiny_size, ctx).length(s.tiny_objects, ctx);
        w.u16(t.width).length(t.start_block_size, ctx).length(t.max_direct_size, ctx).u16(t.max_heap_bits);
        w.u16(t.start_root_rows).addr(t.root, ctx).u16(t.root_rows);
        if let Some(f) = &self.filters {
            w.length(f.root_size, ctx).u32(f.root_mask).bytes(&f.pipeline);
        }
        w.checksum();
        Ok(w.into_bytes())
    }
}
