//! The doubling table of a fractal heap: the block of each offset, and the size of each block.
//!
//! ```text
//! row 0: width blocks of S bytes      (S = starting block size)
//! row 1: width blocks of S bytes
//! row r: width blocks of S << (r-1) bytes; row r starts at offset (S * width) << (r-1)
//! rows whose blocks would exceed the maximum direct block size have indirect blocks,
//! each with a table of the first rows
//! ```
//!
//! H5.format.4.0, "Fractal Heap", "The doubling table".

use super::header::{Header, NAME};
use crate::base::{Address, Error, Result, limits};
use crate::format::{Context, btree2::geometry::width};

/// Derived parameters of one heap. All sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks in a row, a power of two.
    pub width: u64,
    /// Size of a block of rows 0 and 1, a power of two.
    pub start_block_size: u64,
    /// log2 of the size of row 0.
    pub first_row_bits: u32,
    /// Most rows of the root indirect block.
    pub max_rows: u32,
    /// First row of indirect blocks.
    pub max_direct_rows: u32,
    /// Width of a heap offset in blocks and IDs.
    pub offset_size: usize,
    /// Width of an object's length in an ID.
    pub length_size: usize,
    /// True when entries of direct blocks have a stored size and filter mask.
    pub filtered: bool,
    /// True when direct blocks have a checksum.
    pub checksummed: bool,
    ctx: Context,
}

impl Geometry {
    /// Derives the geometry of the heap with header `h` at `address` (for errors).
    pub fn new(h: &Header, address: Address, ctx: &Context) -> Result<Self> {
        let t = &h.table;
        let corrupt = |detail: String| Error::corrupt(NAME, address, detail);
        let log2 = |n: u64, what: &str| {
            if n.is_power_of_two() { Ok(n.trailing_zeros()) } else { Err(corrupt(format!("{what} {n} is not a power of two"))) }
        };
        let width_bits = log2(u64::from(t.width), "table width")?;
        let start_bits = log2(t.start_block_size, "starting block size")?;
        let direct_bits = log2(t.max_direct_size, "maximum direct block size")?;
        let heap_bits = u32::from(t.max_heap_bits);
        let first_row_bits = start_bits.saturating_add(width_bits);
        if direct_bits < start_bits || first_row_bits > heap_bits || first_row_bits > 63 || heap_bits > 64 {
            return Err(corrupt(format!("blocks of 2^{start_bits} to 2^{direct_bits} bytes in a heap of 2^{heap_bits}")));
        }
        if t.max_direct_size > limits::METADATA_BLOCK_MAX {
            return Err(Error::limit(NAME, address, format!("direct blocks of {} bytes", t.max_direct_size)));
        }
        let max_rows = heap_bits.saturating_sub(first_row_bits).saturating_add(1);
        if u32::from(t.root_rows) > max_rows {
            return Err(corrupt(format!("{} rows in the root block, at most {max_rows} fit", t.root_rows)));
        }
        let length_size = (direct_bits.div_ceil(8) as usize).min(width(u64::from(h.max_managed_size)));
        Ok(Geometry {
            width: u64::from(t.width),
            start_block_size: t.start_block_size,
            first_row_bits,
            max_rows,
            max_direct_rows: direct_bits.saturating_sub(start_bits).saturating_add(2),
            offset_size: heap_bits.div_ceil(8) as usize,
            length_size,
            filtered: h.filters.is_some(),
            checksummed: h.checksummed(),
            ctx: *ctx,
        })
    }

    /// Size of a block of `row`; `None` past 2^64.
    pub fn block_size(&self, row: u32) -> Option<u64> {
        let factor = 1u64.checked_shl(row.saturating_sub(1))?;
        self.start_block_size.checked_mul(factor)
    }

    /// Row and column of the block that holds `offset`, relative to the start of the table.
    pub fn locate(&self, offset: u64) -> Option<(u32, u64)> {
        let high = offset.checked_ilog2().unwrap_or(0);
        if high < self.first_row_bits {
            return Some((0, offset.checked_div(self.start_block_size)?));
        }
        let row = high.saturating_sub(self.first_row_bits).saturating_add(1);
        let within = offset.checked_sub(1u64.checked_shl(high)?)?;
        Some((row, within.checked_div(self.block_size(row)?)?))
    }

    /// Offset of the block in `row` and `column`, relative to the start of the table.
    pub fn block_offset(&self, row: u32, column: u64) -> Option<u64> {
        let start = if row == 0 { 0 } else { 1u64.checked_shl(self.first_row_bits.checked_add(row)?.checked_sub(1)?)? };
        start.checked_add(column.checked_mul(self.block_size(row)?)?)
    }

    /// Number of rows of an indirect block in `row`.
    pub fn child_rows(&self, row: u32) -> Option<u32> {
        self.block_size(row)?.checked_ilog2()?.checked_sub(self.first_row_bits)?.checked_add(1)
    }

    /// Size of a direct block's prefix, before its first object.
    pub fn direct_overhead(&self) -> usize {
        let checksum = if self.checksummed { 4 } else { 0 };
        5usize.saturating_add(usize::from(self.ctx.sizeof_addr)).saturating_add(self.offset_size).saturating_add(checksum)
    }

    /// Number of entries for direct and for indirect blocks in an indirect block of `rows` rows.
    pub fn entries(&self, rows: u32) -> (u64, u64) {
        let direct = rows.min(self.max_direct_rows);
        let indirect = rows.saturating_sub(direct);
        (self.width.saturating_mul(u64::from(direct)), self.width.saturating_mul(u64::from(indirect)))
    }

    /// Size of an indirect block of `rows` rows.
    pub fn indirect_size(&self, rows: u32) -> u64 {
        let (direct, indirect) = self.entries(rows);
        let address = u64::from(self.ctx.sizeof_addr);
        let entry = if self.filtered { address.saturating_add(u64::from(self.ctx.sizeof_size)).saturating_add(4) } else { address };
        let fixed = address.saturating_add(self.offset_size as u64).saturating_add(9);
        direct.saturating_mul(entry).saturating_add(indirect.saturating_mul(address)).saturating_add(fixed)
    }

    /// Sizes of addresses and lengths.
    pub fn ctx(&self) -> &Context {
        &self.ctx
    }
}
