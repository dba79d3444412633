//! Section list of a free-space manager.
//!
//! ```text
//! "FSSE" | version 0 | header O | groups, ascending by size | gap | checksum
//! group: count | size | per section: { offset | type u8 | data }
//!
//! fractal heap: 0 hole in a direct block; 1 first row, 3 indirect block: block range as data
//! file:         0 simple; 1 less than a page, 2 a page or more; no data
//! block range:  heap offset of the indirect block | row u16 | column u16 | entries u16
//! ```
//!
//! Counts, sizes and offsets are as wide as the number of stored sections, the largest section and
//! the address bits need. Fractal heaps have a type 2, of ghost sections, which are never stored.
//! The gap is unused and not decoded.

use super::header::{Client, Header};
use crate::base::{Address, Result};
use crate::format::btree2::geometry::width;
use crate::format::{Context, Reader, Writer};

/// Name of the section list in errors.
pub const LIST_NAME: &str = "free-space section list";
/// Bytes of a block range after the heap offset.
const BLOCK_RANGE_FIXED: usize = 6;
/// Bytes of the list's checksum.
const CHECKSUM_BYTES: usize = 4;

/// Unallocated blocks of an indirect block of a fractal heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockRange {
    /// Heap offset of the indirect block.
    pub block_offset: u64,
    /// Row of the first block.
    pub row: u16,
    /// Column of the first block.
    pub column: u16,
    /// Number of blocks.
    pub entries: u16,
}

/// Class of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Fractal heap: a hole in a direct block.
    Single,
    /// Fractal heap: the first row of unallocated direct blocks.
    FirstRow(BlockRange),
    /// Fractal heap: unallocated indirect blocks.
    Indirect(BlockRange),
    /// File without pages.
    Simple,
    /// File with pages: less than a page.
    Small,
    /// File with pages: a page or more.
    Large,
}

/// One stored section; sections sort as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Section {
    /// Bytes.
    pub size: u64,
    /// Offset in the heap's address space, or address.
    pub offset: u64,
    /// Class of the client.
    pub class: Class,
}

/// Widths of the fields of a list, bytes.
struct Widths {
    count: usize,
    size: usize,
    offset: usize,
}

impl Class {
    fn code(&self) -> u8 {
        match self {
            Class::Single | Class::Simple => 0,
            Class::FirstRow(_) | Class::Small => 1,
            Class::Large => 2,
            Class::Indirect(_) => 3,
        }
    }

    fn range(&self) -> Option<&BlockRange> {
        match self {
            Class::FirstRow(range) | Class::Indirect(range) => Some(range),
            _ => None,
        }
    }

    fn decode(r: &mut Reader<'_>, client: Client, w: &Widths) -> Result<Class> {
        match (client, r.u8()?) {
            (Client::FractalHeap, 0) => Ok(Class::Single),
            (Client::FractalHeap, 1) => Ok(Class::FirstRow(BlockRange::decode(r, w)?)),
            (Client::FractalHeap, 3) => Ok(Class::Indirect(BlockRange::decode(r, w)?)),
            (Client::File, 0) => Ok(Class::Simple),
            (Client::File, 1) => Ok(Class::Small),
            (Client::File, 2) => Ok(Class::Large),
            (_, code) => Err(r.corrupt(format!("a section of type {code}"))),
        }
    }
}

impl BlockRange {
    fn decode(r: &mut Reader<'_>, w: &Widths) -> Result<BlockRange> {
        Ok(BlockRange { block_offset: r.uint(w.offset)?, row: r.u16()?, column: r.u16()?, entries: r.u16()? })
    }
}

impl Section {
    fn encode(&self, w: &mut Writer, widths: &Widths) {
        w.uint(self.offset, widths.offset).u8(self.class.code());
        if let Some(range) = self.class.range() {
            w.uint(range.block_offset, widths.offset).u16(range.row).u16(range.column).u16(range.entries);
        }
    }

    fn encoded_size(&self, widths: &Widths) -> usize {
        let range = self.class.range().map_or(0, |_| widths.offset.saturating_add(BLOCK_RANGE_FIXED));
        widths.offset.saturating_add(1).saturating_add(range)
    }
}

impl Header {
    fn widths(&self, stored: u64) -> Widths {
        Widths { count: width(stored), size: width(self.largest), offset: usize::from(self.address_bits).div_ceil(8) }
    }

    /// Decodes the sections of the list `buf`, found at `self.list`; `address` is that of this
    /// header.
    pub fn decode_list(&self, buf: &[u8], address: Address, ctx: &Context) -> Result<Vec<Section>> {
        let mut r = Reader::new(buf, LIST_NAME, self.list);
        let body = buf.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| r.corrupt("too short"))?;
        // Of all bytes: the gap before the checksum included.
        let mut whole = Reader::new(buf, LIST_NAME, self.list);
        whole.skip(body)?;
        whole.checksum()?;
        r.signature(b"FSSE")?;
        r.version(0..=0)?;
        if r.addr(ctx)? != address {
            return Err(r.corrupt("it belongs to another free-space manager"));
        }
        let widths = self.widths(self.stored);
        // Earlier releases of libhdf5 wrote the size of a largest section of 256^n in n bytes.
        let narrow = Widths { size: widths.size.saturating_sub(1), ..widths };
        let is_power = self.largest.is_power_of_two() && self.largest.ilog2().is_multiple_of(8) && narrow.size > 0;
        let start = r.clone();
        self.decode_sections(r, body, &widths)
            .or_else(|e| if is_power { self.decode_sections(start, body, &narrow).map_err(|_| e) } else { Err(e) })
    }

    fn decode_sections(&self, mut r: Reader<'_>, body: usize, widths: &Widths) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        while (sections.len() as u64) < self.stored {
            let (count, size) = (r.uint(widths.count)?, r.uint(widths.size)?);
            let left = self.stored.saturating_sub(sections.len() as u64);
            if count == 0 || count > left {
                return Err(r.corrupt(format!("{count} sections of {size} bytes, {left} are left")));
            }
            for _ in 0..count {
                let offset = r.uint(widths.offset)?;
                sections.push(Section { size, offset, class: Class::decode(&mut r, self.client, widths)? });
            }
        }
        if r.position() > body {
            return Err(r.corrupt("the sections end in the checksum"));
        }
        Ok(sections)
    }

    /// Encodes the list of `sections`, sorted; `address` is that of this header.
    pub fn encode_list(&self, sections: &[Section], address: Address, ctx: &Context) -> Vec<u8> {
        self.encode_list_from(Vec::new(), 0, sections, address, ctx)
    }

    /// True if lists of `a` and of `b` sections have counts of the same width.
    pub fn same_widths(a: usize, b: usize) -> bool {
        width(a as u64) == width(b as u64)
    }

    /// Encodes the list of `sections`, sorted, and keeps the encoded front of `list`: an earlier
    /// list with counts of the same width whose first `same` sections were the same.
    pub fn encode_list_from(&self, mut list: Vec<u8>, same: usize, sections: &[Section], address: Address, ctx: &Context) -> Vec<u8> {
        let widths = self.widths(sections.len() as u64);
        let front = 5usize.saturating_add(usize::from(ctx.sizeof_addr));
        // The group of the last unchanged section is encoded anew: its count may have changed.
        let size = same.checked_sub(1).and_then(|last| sections.get(last)).map_or(0, |s| s.size);
        let (kept, rest) = sections.split_at(sections.partition_point(|s| s.size < size));
        let groups = kept.chunk_by(|a, b| a.size == b.size).count();
        let heads = groups.saturating_mul(widths.count.saturating_add(widths.size));
        let encoded = kept.iter().map(|s| s.encoded_size(&widths));
        list.truncate(encoded.fold(front.saturating_add(heads), usize::saturating_add));
        let mut w = Writer::after(list);
        if w.position() < front {
            w = Writer::new();
            w.bytes(b"FSSE").u8(0).addr(address, ctx);
        }
        for group in rest.chunk_by(|a, b| a.size == b.size) {
            w.uint(group.len() as u64, widths.count).uint(group.first().map_or(0, |s| s.size), widths.size);
            group.iter().for_each(|s| s.encode(&mut w, &widths));
        }
        w.checksum();
        w.into_bytes()
    }
}
