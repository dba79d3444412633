//! Indirect block of a fractal heap: a table of the addresses of direct and indirect blocks.
//!
//! ```text
//! "FHIB" | version 0 | heap header O | offset of the block in the heap |
//! direct rows:   width entries: { address O | heap has filters: stored size L, filter mask u32 }
//! indirect rows: width entries: { address O } | checksum
//! ```
//!
//! H5.format.4.0, "Fractal Heap Indirect Block".

use super::Geometry;
use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "fractal heap indirect block";
const SIGNATURE: &[u8; 4] = b"FHIB";

/// Pointer to a child block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Address of the block; undefined when it is not allocated.
    pub address: Address,
    /// Stored size of a filtered direct block, bytes, else 0.
    pub size: u64,
    /// Filters skipped for a filtered direct block, else 0.
    pub mask: u32,
}

/// A decoded indirect block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndirectBlock {
    /// Heap header that owns the block.
    pub heap: Address,
    /// Offset of the block's first byte in the heap's address space.
    pub offset: u64,
    /// Number of rows; known from the parent, not stored in the block.
    pub rows: u32,
    /// Row by row, `Geometry::width` entries each.
    pub entries: Vec<Entry>,
}

impl IndirectBlock {
    /// Decodes the block of `rows` rows at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, rows: u32, g: &Geometry) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        if (buf.len() as u64) < g.indirect_size(rows) {
            return Err(r.corrupt(format!("{} bytes for {rows} rows", buf.len())));
        }
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let heap = r.addr(g.ctx())?;
        let offset = r.uint(g.offset_size)?;
        let (direct, indirect) = g.entries(rows);
        let mut entries = Vec::with_capacity(usize::try_from(direct.saturating_add(indirect)).unwrap_or(0));
        for i in 0..direct.saturating_add(indirect) {
            let address = r.addr(g.ctx())?;
            let (size, mask) = if g.filtered && i < direct { (r.length(g.ctx())?, r.u32()?) } else { (0, 0) };
            entries.push(Entry { address, size, mask });
        }
        r.checksum()?;
        Ok(IndirectBlock { heap, offset, rows, entries })
    }

    /// The entry in `row` and `column`.
    pub fn entry(&self, row: u32, column: u64, g: &Geometry) -> Option<&Entry> {
        let i = u64::from(row).checked_mul(g.width)?.checked_add(column)?;
        self.entries.get(usize::try_from(i).ok()?).filter(|_| column < g.width)
    }

    /// Encodes the exact bytes that `decode` reads.
    pub fn encode(&self, g: &Geometry) -> Vec<u8> {
        let (direct, _) = g.entries(self.rows);
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).addr(self.heap, g.ctx()).uint(self.offset, g.offset_size);
        for (i, e) in (0u64..).zip(&self.entries) {
            w.addr(e.address, g.ctx());
            if g.filtered && i < direct {
                w.length(e.size, g.ctx()).u32(e.mask);
            }
        }
        w.checksum();
        w.into_bytes()
    }
}
