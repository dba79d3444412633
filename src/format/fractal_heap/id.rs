//! Heap ID: identifies an object of a fractal heap in a link or attribute index.
//!
//! ```text
//! byte 0:  bits 6-7 version 0, bits 4-5 type (0 managed, 1 huge, 2 tiny)
//! managed: offset in the heap | length
//! huge:    direct:   address O | length L | heap has filters: filter mask u32, unfiltered length L
//!          indirect: key of the object in the huge object B-tree
//! tiny:    normal:   length - 1 in bits 0-3 of byte 0; then the object
//!          extended: length - 1 in bits 0-3 of byte 0 (high) and byte 1; then the object
//! ```
//!
//! The ID length of a heap determines the forms it uses. H5.format.4.0, "Fractal Heap Object ID".

use super::{Geometry, Header};
use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "fractal heap ID";
/// Longest object of a normal tiny ID, bytes; longer IDs use the extended form.
const TINY_NORMAL_BYTES_MAX: usize = 16;

/// Layout of the IDs of one heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdFormat {
    length: usize,
    offset_size: usize,
    length_size: usize,
    filtered: bool,
    huge_direct: bool,
    tiny_extended: bool,
    heap: Address,
    ctx: Context,
}

/// A decoded heap ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeapId {
    /// An object in a direct block.
    Managed {
        /// Offset in the heap's address space.
        offset: u64,
        /// Size, bytes.
        length: u64,
    },
    /// An object outside of the heap's blocks, at an address in the ID.
    HugeDirect {
        /// Address of its stored bytes.
        address: Address,
        /// Stored size, bytes.
        length: u64,
        /// Filters skipped; 0 without filters.
        mask: u32,
        /// Unfiltered size, bytes; equals `length` without filters.
        size: u64,
    },
    /// An object outside of the heap's blocks, at an address in the huge object B-tree.
    HugeIndirect {
        /// Key in the B-tree.
        key: u64,
    },
    /// An object stored in the ID itself.
    Tiny(Vec<u8>),
}

impl IdFormat {
    /// The ID layout of the heap with header `h` at `heap` (for errors).
    pub fn new(h: &Header, g: &Geometry, heap: Address) -> Self {
        let ctx = *g.ctx();
        let room = usize::from(h.id_length).saturating_sub(1);
        let (o, l) = (usize::from(ctx.sizeof_addr), usize::from(ctx.sizeof_size));
        let direct = if g.filtered { o.saturating_add(l).saturating_add(4).saturating_add(l) } else { o.saturating_add(l) };
        IdFormat {
            length: usize::from(h.id_length),
            offset_size: g.offset_size,
            length_size: g.length_size,
            filtered: g.filtered,
            huge_direct: direct <= room,
            tiny_extended: room > TINY_NORMAL_BYTES_MAX.saturating_add(1),
            heap,
            ctx,
        }
    }

    /// Type of the records in the B-tree of huge objects.
    pub fn huge_record_type(&self) -> u8 {
        match (self.huge_direct, self.filtered) {
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    fn key_size(&self) -> usize {
        self.length.saturating_sub(1).min(8)
    }

    /// Decodes `id`; bytes past the heap's ID length are ignored.
    pub fn decode(&self, id: &[u8]) -> Result<HeapId> {
        let mut r = Reader::new(id.get(..self.length).unwrap_or(id), NAME, self.heap);
        let first = r.u8()?;
        if first & 0xc0 != 0 {
            return Err(r.unsupported(format!("version {}", first >> 6)));
        }
        match first >> 4 & 3 {
            0 => Ok(HeapId::Managed { offset: r.uint(self.offset_size)?, length: r.uint(self.length_size)? }),
            1 if self.huge_direct => {
                let address = r.addr(&self.ctx)?;
                let length = r.length(&self.ctx)?;
                let (mask, size) = if self.filtered { (r.u32()?, r.length(&self.ctx)?) } else { (0, length) };
                Ok(HeapId::HugeDirect { address, length, mask, size })
            }
            1 => Ok(HeapId::HugeIndirect { key: r.uint(self.key_size())? }),
            2 => {
                let high = usize::from(first & 0x0f);
                let n = if self.tiny_extended { high << 8 | usize::from(r.u8()?) } else { high };
                Ok(HeapId::Tiny(r.bytes(n.saturating_add(1))?.to_vec()))
            }
            _ => Err(r.corrupt("reserved type 3")),
        }
    }

    /// Encodes `id`, zero-padded to the heap's ID length. Errors: it does not fit.
    pub fn encode(&self, id: &HeapId) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        match id {
            HeapId::Managed { offset, length } => {
                w.u8(0).uint(*offset, self.offset_size).uint(*length, self.length_size);
            }
            HeapId::HugeDirect { address, length, mask, size } => {
                w.u8(0x10).addr(*address, &self.ctx).length(*length, &self.ctx);
                if self.filtered {
                    w.u32(*mask).length(*size, &self.ctx);
                }
            }
            HeapId::HugeIndirect { key } => {
                w.u8(0x10).uint(*key, self.key_size());
            }
            HeapId::Tiny(data) => {
                let n = data.len().saturating_sub(1);
                if self.tiny_extended {
                    w.u8(0x20 | (n >> 8 & 0x0f) as u8).u8((n & 0xff) as u8);
                } else {
                    w.u8(0x20 | (n & 0x0f) as u8);
                }
                w.bytes(data);
            }
        }
        let r = Reader::new(&[], NAME, self.heap);
        let rest = self.length.checked_sub(w.position()).ok_or_else(|| r.corrupt("does not fit its length"))?;
        w.zeros(rest);
        Ok(w.into_bytes())
    }
}
