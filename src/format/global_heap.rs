//! Global heap collection: variable-length data and region references.
//!
//! ```text
//! "GCOL" | version 1 | 0 0 0 | collection size L | padding to 8
//! objects: { index u16 | reference count u16 | 0 u32 | size L | padding to 8 |
//!            data | padding to 8 }
//! free space: an object with index 0 whose size includes its own header; absent when fewer bytes
//!             than an object header remain
//! ```
//!
//! The collection size includes the header. H5.format.4.0, "Global Heap".

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "global heap collection";
const SIGNATURE: &[u8; 4] = b"GCOL";
/// Most object headers examined in one collection: every index once, plus free space in between.
const OBJECTS_MAX: usize = (1 << 16) + 4096;
/// Size of the smallest collection that libhdf5 allocates, bytes.
pub const SIZE_MIN: u64 = 4096;

/// Size of a collection's and of an object's header (both are equal), bytes, with padding.
pub fn header_size(ctx: &Context) -> usize {
    usize::from(ctx.sizeof_size).saturating_add(8).next_multiple_of(8)
}

/// Decodes a collection's header; returns the collection's size, bytes.
pub fn decode_header(buf: &[u8], address: Address, ctx: &Context) -> Result<u64> {
    let mut r = Reader::new(buf, NAME, address);
    r.signature(SIGNATURE)?;
    r.version(1..=1)?;
    r.skip(3)?;
    let size = r.length(ctx)?;
    if size < header_size(ctx) as u64 {
        return Err(r.corrupt(format!("size is {size}")));
    }
    Ok(size)
}

/// Encodes the header of a collection of `size` bytes, with padding.
pub fn encode_header(size: u64, ctx: &Context) -> Vec<u8> {
    let mut w = Writer::new();
    w.bytes(SIGNATURE).u8(1).zeros(3).length(size, ctx);
    w.zeros(header_size(ctx).saturating_sub(w.position()));
    w.into_bytes()
}

/// Header of one object in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHeader {
    /// 1 to 65,535; 0 for free space.
    pub index: u16,
    /// References to the object; libhdf5 writes 0 for variable-length data.
    pub reference_count: u16,
    /// Size of the data without padding, bytes; for free space, including this header.
    pub size: u64,
}

impl ObjectHeader {
    /// Decodes the object header at the start of `buf`; `address` is the collection's.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let mut r = Reader::new(buf, NAME, address);
        let (index, reference_count) = (r.u16()?, r.u16()?);
        r.skip(4)?;
        Ok(ObjectHeader { index, reference_count, size: r.length(ctx)? })
    }

    /// Encodes the header, with padding.
    pub fn to_bytes(&self, ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w, ctx);
        w.into_bytes()
    }

    fn encode(&self, w: &mut Writer, ctx: &Context) {
        let start = w.position();
        w.u16(self.index).u16(self.reference_count).u32(0).length(self.size, ctx);
        w.zeros(header_size(ctx).saturating_sub(w.position().saturating_sub(start)));
    }
}

/// Location of an object's data in its collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// 1 to 65,535.
    pub index: u16,
    /// References to the object.
    pub reference_count: u16,
    /// Offset of the data from the start of the collection, bytes.
    pub start: u64,
    /// Size of the data, bytes.
    pub size: u64,
}

/// The objects of a collection, by index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// Sorted by index, each index once (the last object with an index counts, as in libhdf5).
    pub positions: Vec<Position>,
    /// Offset in the collection of the first invalid object header, if any: objects before it are
    /// valid, later ones are lost.
    pub damage: Option<u64>,
}

impl Directory {
    /// Walks the object headers of a collection of `size` bytes.
    ///
    /// `header_at` returns the object header at an offset, or `None` past the end of the file.
    pub fn walk(size: u64, ctx: &Context, header_at: &mut dyn FnMut(u64) -> Result<Option<ObjectHeader>>) -> Result<Self> {
        let header = header_size(ctx) as u64;
        let mut positions: Vec<Position> = Vec::new();
        let (mut offset, mut damage) = (header, None);
        for turn in 0.. {
            let Some(start) = offset.checked_add(header).filter(|&s| s <= size) else { break };
            let object = if turn < OBJECTS_MAX { header_at(offset)? } else { None };
            let room = size.saturating_sub(if object.is_some_and(|o| o.index == 0) { offset } else { start });
            let Some(object) = object.filter(|o| o.size <= room) else {
                damage = Some(offset);
                break;
            };
            if object.index == 0 {
                // Free space normally extends to the end; size 0 would loop forever.
                if object.size == 0 {
                    break;
                }
                offset = offset.saturating_add(object.size);
                continue;
            }
            positions.push(Position { index: object.index, reference_count: object.reference_count, start, size: object.size });
            offset = start.saturating_add(object.size.checked_next_multiple_of(8).unwrap_or(u64::MAX));
        }
        if !positions.is_sorted_by(|a, b| a.index < b.index) {
            positions.reverse();
            positions.sort_by_key(|p| p.index);
            positions.dedup_by_key(|p| p.index);
        }
        Ok(Directory { positions, damage })
    }

    /// Builds the directory of a collection in memory (or of the part of it that the file has).
    pub fn of(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let size = decode_header(buf, address, ctx)?;
        Self::walk(size, ctx, &mut |offset| {
            let at = usize::try_from(offset).ok().and_then(|o| buf.get(o..)).unwrap_or_default();
            Ok(ObjectHeader::decode(at, address, ctx).ok())
        })
    }

    /// Returns the position of the object with `index`.
    pub fn get(&self, index: u16) -> Option<&Position> {
        let i = self.positions.binary_search_by_key(&index, |p| p.index).ok()?;
        self.positions.get(i)
    }
}

/// One object of a [`Collection`].
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// 1 to 65,535.
    pub index: u16,
    /// References to the object.
    pub reference_count: u16,
    /// The data, without padding.
    pub data: Vec<u8>,
}

/// A whole collection, in the order stored.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Size of the whole collection, bytes.
    pub size: u64,
    /// Objects in stored order.
    pub objects: Vec<Object>,
}

#[cfg(test)]
impl Collection {
    /// Decodes a whole collection. Errors: damaged object headers, data past the end.
    pub fn decode(buf: &[u8], address: Address, ctx: &Context) -> Result<Self> {
        let r = Reader::new(buf, NAME, address);
        let size = decode_header(buf, address, ctx)?;
        let mut directory = Directory::of(buf, address, ctx)?;
        if let Some(at) = directory.damage {
            return Err(r.corrupt(format!("damaged object header at byte {at}")));
        }
        directory.positions.sort_by_key(|p| p.start);
        let object = |p: &Position| {
            let start = usize::try_from(p.start).ok()?;
            let data = buf.get(start..start.checked_add(usize::try_from(p.size).ok()?)?)?;
            Some(Object { index: p.index, reference_count: p.reference_count, data: data.to_vec() })
        };
        let objects: Option<Vec<_>> = directory.positions.iter().map(object).collect();
        Ok(Collection { size, objects: objects.ok_or_else(|| r.corrupt("an object lies past the end"))? })
    }

    /// Encodes the whole collection; free space is zeros. Errors: the objects do not fit.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let header = header_size(ctx);
        let mut w = Writer::new();
        w.bytes(&encode_header(self.size, ctx));
        for o in &self.objects {
            ObjectHeader { index: o.index, reference_count: o.reference_count, size: o.data.len() as u64 }.encode(&mut w, ctx);
            w.bytes(&o.data).zeros(o.data.len().next_multiple_of(8).saturating_sub(o.data.len()));
        }
        let r = Reader::new(&[], NAME, Address::UNDEF);
        let free = usize::try_from(self.size).ok().and_then(|s| s.checked_sub(w.position()));
        let free = free.ok_or_else(|| r.corrupt("the objects do not fit"))?;
        if free >= header {
            ObjectHeader { index: 0, reference_count: 0, size: free as u64 }.encode(&mut w, ctx);
            w.zeros(free.saturating_sub(header));
        } else {
            w.zeros(free);
        }
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../../tests/fixtures/heaps/vlen.h5");
    const CTX: &Context = &Context::DEFAULT;

    fn collection() -> &'static [u8] {
        let at = FILE.windows(4).position(|w| w == b"GCOL").unwrap();
        &FILE[at..at + 4096]
    }

    #[test]
    fn as_libhdf5_writes_it() {
        let c = Collection::decode(collection(), Address(0), CTX).unwrap();
        assert_eq!((c.size, c.objects.len()), (4096, 5));
        assert!(c.objects.iter().any(|o| o.data == b"string 4 xxxx"));
        assert_eq!(c.encode(CTX).unwrap(), collection());
        let small = Collection { size: 40, ..c };
        assert!(small.encode(CTX).is_err());
    }

    #[test]
    fn the_end_of_a_collection() {
        for (data, free) in [(0usize, 8), (8, 0), (1, 0)] {
            let objects = vec![Object { index: 3, reference_count: 1, data: vec![7; data] }];
            let size = 16 + 16 + data.next_multiple_of(8) + free;
            let c = Collection { size: size as u64, objects };
            let bytes = c.encode(CTX).unwrap();
            assert_eq!(bytes.len(), size);
            assert_eq!(Collection::decode(&bytes, Address(0), CTX).unwrap(), c);
        }
    }

    #[test]
    fn widths_of_four() {
        let ctx = Context { sizeof_addr: 4, sizeof_size: 4 };
        assert_eq!(header_size(&ctx), 16);
        let c = Collection { size: 4096, objects: vec![Object { index: 1, reference_count: 0, data: vec![1; 9] }] };
        assert_eq!(Collection::decode(&c.encode(&ctx).unwrap(), Address(0), &ctx).unwrap(), c);
    }

    #[test]
    fn objects_before_the_damage_stay() {
        let mut bytes = collection().to_vec();
        let at = Directory::of(&bytes, Address(0), CTX).unwrap().positions[1];
        bytes[at.start as usize - 1] = 0xff;
        let d = Directory::of(&bytes, Address(0), CTX).unwrap();
        assert_eq!((d.positions.len(), d.damage), (1, Some(at.start - 16)));
        assert!(Collection::decode(&bytes, Address(0), CTX).is_err());
    }

    #[test]
    fn the_last_object_of_an_index_counts() {
        let object = |index, byte| Object { index, reference_count: 0, data: vec![byte; 3] };
        let c = Collection { size: 4096, objects: vec![object(2, 1), object(1, 2), object(2, 3)] };
        let d = Directory::of(&c.encode(CTX).unwrap(), Address(0), CTX).unwrap();
        assert_eq!(d.positions.iter().map(|p| p.index).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(d.get(2).unwrap().start, 16 + 2 * 24 + 16);
        assert_eq!(d.get(3), None);
    }

    #[test]
    fn damage_ends() {
        for i in 0..200 {
            for change in [1, 0x80, 0xff] {
                let mut bytes = collection().to_vec();
                bytes[i] ^= change;
                let _ = Collection::decode(&bytes, Address(0), CTX);
                let _ = Collection::decode(&bytes[..i], Address(0), CTX);
            }
        }
        let mut endless = collection().to_vec();
        endless[16..].fill(0);
        assert_eq!(Directory::of(&endless, Address(0), CTX).unwrap(), Directory::default());
        // Free space of one byte repeatedly.
        let d = Directory::walk(u64::MAX, CTX, &mut |_| Ok(Some(ObjectHeader { index: 0, reference_count: 0, size: 1 }))).unwrap();
        assert!(d.damage.is_some());
    }
}
