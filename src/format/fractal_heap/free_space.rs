//! Free-space manager of a fractal heap: the holes in its direct blocks.
//!
//! ```text
//! header:   "FSHD" | version 0 | client u8 (0: fractal heap) | space L | sections L | stored sections L |
//!           ghost sections L | classes u16 | shrink % u16 | expand % u16 | address bits u16 |
//!           largest section L | section list O | bytes of the list L | bytes allocated for it L | checksum
//! sections: "FSSE" | version 0 | header O | per size, ascending:
//!           { number of sections | size | per section: { offset in the heap | type u8 | type 1, 3: block offset,
//!           row u16, column u16, entries u16 } } | checksum
//! ```
//!
//! Type 0 is a hole in a direct block; 1 and 3 stand for blocks that were skipped, and say of more ("ghost")
//! sections than are stored. Their bytes are kept as they are. H5.format.4.0, "Free-space Manager".

use super::Geometry;
use crate::base::{Address, Result, limits};
use crate::format::btree2::geometry::width;
use crate::format::{Reader, Writer};

/// Name of the header in errors.
pub const NAME: &str = "fractal heap free-space manager";
/// Name of the section list in errors.
pub const LIST: &str = "fractal heap free-space sections";
/// Type of a hole in a direct block.
pub const SINGLE: u8 = 0;
const FIRST_ROW: u8 = 1;
const INDIRECT: u8 = 3;

/// A decoded free-space manager header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeSpaceHeader {
    /// Bytes of all sections.
    pub space: u64,
    /// Sections, ghosts included.
    pub sections: u64,
    /// Sections in the list.
    pub stored: u64,
    /// Sections that follow from others.
    pub ghosts: u64,
    /// Section classes of the client.
    pub classes: u16,
    /// Fill at which the list shrinks, percent.
    pub shrink: u16,
    /// Fill to which the list grows, percent.
    pub expand: u16,
    /// Bits of an offset.
    pub address_bits: u16,
    /// Largest section, bytes.
    pub largest: u64,
    /// Where the list is; undefined when there is none.
    pub list: Address,
    /// Bytes of the list.
    pub list_size: u64,
    /// Bytes allocated for the list.
    pub list_allocated: u64,
}

/// One stored section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Section {
    /// Bytes.
    pub size: u64,
    /// Offset in the heap's address space.
    pub offset: u64,
    /// Kind ([`SINGLE`] or a row of blocks).
    pub kind: u8,
    /// What the kind adds; empty for [`SINGLE`].
    pub extra: Vec<u8>,
}

impl FreeSpaceHeader {
    /// The header libhdf5 gives a heap whose largest direct block has `largest` bytes; no sections.
    pub fn new(largest: u64, address_bits: u16) -> Self {
        FreeSpaceHeader {
            space: 0,
            sections: 0,
            stored: 0,
            ghosts: 0,
            classes: 4,
            shrink: 80,
            expand: 120,
            address_bits,
            largest,
            list: Address::UNDEF,
            list_size: 0,
            list_allocated: 0,
        }
    }

    /// Bytes of an encoded header.
    pub fn size(g: &Geometry) -> usize {
        let (o, l) = (usize::from(g.ctx().sizeof_addr), usize::from(g.ctx().sizeof_size));
        l.saturating_mul(7).saturating_add(o).saturating_add(18)
    }

    /// Decodes the header at the start of `buf`.
    pub fn decode(buf: &[u8], address: Address, g: &Geometry) -> Result<Self> {
        let ctx = g.ctx();
        let mut r = Reader::new(buf, NAME, address);
        r.signature(b"FSHD")?;
        r.version(0..=0)?;
        let client = r.u8()?;
        let header = FreeSpaceHeader {
            space: r.length(ctx)?,
            sections: r.length(ctx)?,
            stored: r.length(ctx)?,
            ghosts: r.length(ctx)?,
            classes: r.u16()?,
            shrink: r.u16()?,
            expand: r.u16()?,
            address_bits: r.u16()?,
            largest: r.length(ctx)?,
            list: r.addr(ctx)?,
            list_size: r.length(ctx)?,
            list_allocated: r.length(ctx)?,
        };
        r.checksum()?;
        if client != 0 {
            return Err(r.corrupt(format!("it is of client {client}")));
        }
        if header.list.is_defined() && header.list_size > limits::METADATA_BLOCK_MAX {
            return Err(r.corrupt(format!("a list of {} bytes", header.list_size)));
        }
        Ok(header)
    }

    /// The exact bytes `decode` read.
    pub fn encode(&self, g: &Geometry) -> Vec<u8> {
        let ctx = g.ctx();
        let mut w = Writer::new();
        w.bytes(b"FSHD").u8(0).u8(0).length(self.space, ctx).length(self.sections, ctx);
        w.length(self.stored, ctx).length(self.ghosts, ctx);
        w.u16(self.classes).u16(self.shrink).u16(self.expand).u16(self.address_bits);
        w.length(self.largest, ctx).addr(self.list, ctx).length(self.list_size, ctx).length(self.list_allocated, ctx);
        w.checksum();
        w.into_bytes()
    }

    fn offset_width(&self) -> usize {
        usize::from(self.address_bits).div_ceil(8)
    }

    /// Decodes the sections of the list `buf`, found at `self.list`; `address` is that of this header.
    pub fn decode_list(&self, buf: &[u8], address: Address, g: &Geometry) -> Result<Vec<Section>> {
        let mut r = Reader::new(buf, LIST, self.list);
        // The checksum is at the end, whatever gap there is before it.
        let body = buf.len().checked_sub(4).ok_or_else(|| r.corrupt("too short"))?;
        let mut whole = Reader::new(buf, LIST, self.list);
        whole.skip(body)?;
        whole.checksum()?;
        r.signature(b"FSSE")?;
        r.version(0..=0)?;
        if r.addr(g.ctx())? != address {
            return Err(r.corrupt("it belongs to another free-space manager"));
        }
        let (count_width, size_width, offset_width) = (width(self.stored), width(self.largest), self.offset_width());
        let mut sections = Vec::new();
        while (sections.len() as u64) < self.stored {
            let (count, size) = (r.uint(count_width)?, r.uint(size_width)?);
            let left = self.stored.saturating_sub(sections.len() as u64);
            if count == 0 || count > left {
                return Err(r.corrupt(format!("{count} sections of {size} bytes, {left} are left")));
            }
            for _ in 0..count {
                let offset = r.uint(offset_width)?;
                let kind = r.u8()?;
                let extra = match kind {
                    SINGLE => Vec::new(),
                    FIRST_ROW | INDIRECT => r.bytes(g.offset_size.saturating_add(6))?.to_vec(),
                    _ => return Err(r.corrupt(format!("a section of type {kind}"))),
                };
                sections.push(Section { size, offset, kind, extra });
            }
        }
        if r.position() > body {
            return Err(r.corrupt("the sections end in the checksum"));
        }
        Ok(sections)
    }

    /// The list of `sections`, which come in ascending order of size and offset; `address` is that of this header.
    pub fn encode_list(&self, sections: &[Section], address: Address, g: &Geometry) -> Vec<u8> {
        self.encode_rest(Vec::new(), 0, sections, address, g)
    }

    /// Whether lists of `a` and of `b` sections have counts of the same width.
    pub fn are_alike(a: usize, b: usize) -> bool {
        width(a as u64) == width(b as u64)
    }

    /// The same where `list` is one that as many sections need, of which the first `same` are these: it is changed from there on.
    pub fn encode_rest(&self, mut list: Vec<u8>, same: usize, sections: &[Section], address: Address, g: &Geometry) -> Vec<u8> {
        let (count_width, size_width, offset_width) = (width(sections.len() as u64), width(self.largest), self.offset_width());
        let front = 5 + usize::from(g.ctx().sizeof_addr);
        // Those as large as the last one that stays have a count in front of them.
        let size = same.checked_sub(1).and_then(|last| sections.get(last)).map_or(0, |s| s.size);
        let (stay, sections) = sections.split_at(sections.partition_point(|s| s.size < size));
        let alike = stay.chunk_by(|a, b| a.size == b.size).count().saturating_mul(count_width.saturating_add(size_width));
        let each = |s: &Section| offset_width.saturating_add(1).saturating_add(s.extra.len());
        list.truncate(stay.iter().map(each).fold(front.saturating_add(alike), usize::saturating_add));
        let mut w = Writer::after(list);
        if w.position() < front {
            w = Writer::new();
            w.bytes(b"FSSE").u8(0).addr(address, g.ctx());
        }
        for alike in sections.chunk_by(|a, b| a.size == b.size) {
            w.uint(alike.len() as u64, count_width).uint(alike.first().map_or(0, |s| s.size), size_width);
            for s in alike {
                w.uint(s.offset, offset_width).u8(s.kind).bytes(&s.extra);
            }
        }
        w.checksum();
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::*;
    use crate::format::Context;

    /// The managers in `file` as libhdf5 wrote them.
    fn golden(file: &[u8]) {
        let at = |s: &[u8]| file.windows(4).position(|w| w == s).unwrap();
        let h = Header::decode(&file[at(b"FRHP")..], Address(at(b"FRHP") as u64), &Context::DEFAULT).unwrap();
        let g = Geometry::new(&h, Address(0), &Context::DEFAULT).unwrap();
        let (start, n) = (h.free_space_manager.0 as usize, FreeSpaceHeader::size(&g));
        let (address, bytes) = (h.free_space_manager, &file[start..start + n]);
        let f = FreeSpaceHeader::decode(bytes, address, &g).unwrap();
        assert_eq!(f.encode(&g), bytes);
        let fresh = FreeSpaceHeader::new(h.table.max_direct_size, h.table.max_heap_bits);
        assert_eq!((f.classes, f.shrink, f.expand), (fresh.classes, fresh.shrink, fresh.expand));
        assert_eq!((f.address_bits, f.largest), (fresh.address_bits, fresh.largest));
        let list = &file[f.list.0 as usize..(f.list.0 + f.list_size) as usize];
        let sections = f.decode_list(list, address, &g).unwrap();
        assert!(!sections.is_empty());
        assert_eq!(f.encode_list(&sections, address, &g), list);
        assert!(sections.is_sorted());
        rest(&f, &g);
        for i in 0..n {
            let mut bad = bytes.to_vec();
            bad[i] ^= 4;
            assert!(FreeSpaceHeader::decode(&bad, address, &g).is_err() || cfg!(fuzzing));
            assert!(FreeSpaceHeader::decode(&bytes[..i], address, &g).is_err());
        }
        for i in 0..list.len() {
            let mut bad = list.to_vec();
            bad[i] ^= 4;
            assert!(f.decode_list(&bad, address, &g).is_err() || cfg!(fuzzing));
            assert!(f.decode_list(&list[..i], address, &g).is_err());
            for stored in [0, 1, 255, 1 << 40] {
                let _ = FreeSpaceHeader { stored, ..f.clone() }.decode_list(list, address, &g);
            }
        }
    }

    /// A list changed from some section on is the one that is encoded anew.
    fn rest(f: &FreeSpaceHeader, g: &Geometry) {
        let section = |size, offset| Section { size, offset, kind: SINGLE, extra: Vec::new() };
        let all: Vec<_> = [3, 3, 3, 5, 5, 8, 20, 20].into_iter().zip(1..).map(|(size, at)| section(size, at * 100)).collect();
        let list = f.encode_list(&all, Address(96), g);
        for same in 0..=all.len() {
            for sizes in [&[][..], &[3], &[3, 5], &[20, 21], &[50]] {
                let mut new: Vec<_> = all[..same].to_vec();
                new.extend(sizes.iter().zip(50..).map(|(size, at)| section(*size, at * 100)));
                if new.is_sorted() {
                    assert_eq!(
                        f.encode_rest(list.clone(), same, &new, Address(96), g),
                        f.encode_list(&new, Address(96), g),
                        "{same} {sizes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn managers_as_libhdf5_writes_them() {
        golden(include_bytes!("../../../tests/fixtures/heaps/links10.h5"));
        golden(include_bytes!("../../../tests/fixtures/heaps/links60.h5"));
        golden(include_bytes!("../../../tests/fixtures/heaps/attrs10.h5"));
    }
}
