//! Chunk records of the fixed array, the extensible array and the version 2 B-tree (H5.format.4.0,
//! "Fixed Array Data Block", "Extensible Array Data Block", "Version 2 B-tree, Record Type 10 /
//! 11"; structured chunks: H5Dfarray.c and H5Dbtree2.c of HDF5's sparse data branch).
//!
//! ```text
//! array element, client 0: address O                                     (undefined: not
//! allocated)
//! array element, client 1: address O | stored bytes S | filter mask u32
//! array element, client 2: address O | stored bytes S | offsets
//! array element, client 3: address O | stored bytes S | offsets | filtering
//! B-tree record, type 10:  address O |                                   rank x scaled offset u64
//! B-tree record, type 11:  address O | stored bytes S | filter mask u32 | rank x scaled offset u64
//! B-tree record, type 12:  address O | stored bytes S | rank x scaled offset u64 | offsets
//! B-tree record, type 13:  ... as type 12 ... | filtering
//! offsets:                 u64 for each section but the first: its offset in the chunk
//! filtering:               u64 for each section: its size before filters
//!                          u32 for each section: its filter mask
//! ```
//!
//! S is the width of a size: derived from the chunk's size in layout version 4 and for structured
//! chunks of two sections, else L; 8 for three sections.

use super::{Context, Reader, Writer};
use crate::base::{Address, Result};

/// Most sections of a structured chunk.
pub const SECTIONS_MAX: usize = 3;

/// Location of a chunk in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Address of the first stored byte.
    pub address: Address,
    /// Stored size, bytes.
    pub size: u64,
    /// How the stored bytes are decoded.
    pub form: StoredForm,
}

/// Properties of a chunk's stored bytes that its decoder needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredForm {
    /// The output of the filter pipeline.
    Whole {
        /// Bit i set: filter i of the pipeline was not applied.
        filter_mask: u32,
    },
    /// Sections, each with filters of its own.
    Sections(Sections),
}

/// Sections of a stored structured chunk. Values of sections that the dataset does not have are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sections {
    /// Offset of each section in the chunk, bytes; the first is 0.
    pub offsets: [u64; SECTIONS_MAX],
    /// Size of each section before filters, bytes; 0 in records without filters.
    pub unfiltered: [u64; SECTIONS_MAX],
    /// Bit i set: filter i of the section was not applied.
    pub masks: [u32; SECTIONS_MAX],
}

/// Fields of the chunk records of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordShape {
    /// The address.
    Plain,
    /// Address, size and filter mask.
    Filtered,
    /// Address, size and sections of a structured chunk.
    Sections {
        /// Number of sections, at most [`SECTIONS_MAX`].
        count: u8,
        /// Sections have filters: each has an unfiltered size and a filter mask.
        filtered: bool,
    },
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
    /// Structured chunks.
    Sections {
        /// Width of a stored size, bytes.
        size_width: u8,
        /// Number of sections.
        count: u8,
        /// Sections have filters.
        filtered: bool,
    },
}

impl StoredForm {
    /// All filters of the pipeline were applied, or there are none.
    pub const WHOLE: StoredForm = StoredForm::Whole { filter_mask: 0 };
}

impl ChunkRecord {
    /// Filters of the pipeline that were not applied; 0 for a chunk of sections.
    pub fn filter_mask(&self) -> u32 {
        match self.form {
            StoredForm::Whole { filter_mask } => filter_mask,
            StoredForm::Sections(_) => 0,
        }
    }
}

impl Sections {
    /// Bytes of the encoded sections.
    pub fn size(count: u8, filtered: bool) -> usize {
        let count = usize::from(count);
        let filtering = if filtered { count.saturating_mul(12) } else { 0 };
        count.saturating_sub(1).saturating_mul(8).saturating_add(filtering)
    }

    /// Decodes the offsets of `count` sections, and their sizes and masks if they have filters.
    pub fn decode(r: &mut Reader<'_>, count: u8, filtered: bool) -> Result<Self> {
        let count = usize::from(count);
        let mut sections = Sections::default();
        for offset in sections.offsets.iter_mut().take(count).skip(1) {
            *offset = r.u64()?;
        }
        if filtered {
            for size in sections.unfiltered.iter_mut().take(count) {
                *size = r.u64()?;
            }
            for mask in sections.masks.iter_mut().take(count) {
                *mask = r.u32()?;
            }
        }
        Ok(sections)
    }

    /// Encodes the bytes that `decode` reads.
    pub fn encode(&self, w: &mut Writer, count: u8, filtered: bool) {
        let count = usize::from(count);
        for offset in self.offsets.iter().take(count).skip(1) {
            w.u64(*offset);
        }
        if filtered {
            for size in self.unfiltered.iter().take(count) {
                w.u64(*size);
            }
            for mask in self.masks.iter().take(count) {
                w.u32(*mask);
            }
        }
    }
}

impl RecordShape {
    /// The records of chunks that are not structured.
    pub fn of_pipeline(filtered: bool) -> Self {
        if filtered { RecordShape::Filtered } else { RecordShape::Plain }
    }

    /// True if records have the stored size of their chunk.
    pub fn has_sizes(self) -> bool {
        self != RecordShape::Plain
    }

    /// True if chunks or their sections have filters.
    pub fn is_filtered(self) -> bool {
        matches!(self, RecordShape::Filtered | RecordShape::Sections { filtered: true, .. })
    }

    /// Number of sections of structured chunks; `None`: the chunks are not structured.
    pub fn sections(self) -> Option<u8> {
        match self {
            RecordShape::Sections { count, .. } => Some(count),
            RecordShape::Plain | RecordShape::Filtered => None,
        }
    }

    /// Properties of a chunk that is not stored.
    pub fn absent(self) -> StoredForm {
        match self {
            RecordShape::Sections { .. } => StoredForm::Sections(Sections::default()),
            RecordShape::Plain | RecordShape::Filtered => StoredForm::WHOLE,
        }
    }
}

impl RecordFormat {
    /// The format implied by a layout message of `version`.
    pub fn new(version: u8, chunk_bytes: u64, shape: RecordShape, ctx: &Context) -> Self {
        match (shape, version) {
            (RecordShape::Plain, _) => RecordFormat::Plain { chunk_bytes },
            (RecordShape::Filtered, ..=4) => RecordFormat::Filtered { size_width: Self::size_width_v4(chunk_bytes) },
            (RecordShape::Filtered, _) => RecordFormat::Filtered { size_width: ctx.sizeof_size },
            (RecordShape::Sections { count, filtered }, _) => {
                RecordFormat::Sections { size_width: Self::size_width_of_sections(count, chunk_bytes), count, filtered }
            }
        }
    }

    /// Width of the size of a structured chunk, bytes. Three sections have elements of variable
    /// length, whose size the chunk's dimensions do not bound.
    pub fn size_width_of_sections(count: u8, chunk_bytes: u64) -> u8 {
        if usize::from(count) >= SECTIONS_MAX { 8 } else { Self::size_width_v4(chunk_bytes) }
    }

    /// Width of a size in layout version 4, bytes: one more than the chunk's own size needs, at
    /// most 8.
    pub fn size_width_v4(chunk_bytes: u64) -> u8 {
        let log2 = chunk_bytes.checked_ilog2().unwrap_or(0);
        // log2 is at most 63, the quotient at most 8.
        u8::try_from(log2.saturating_add(8) / 8).map_or(8, |n| n.saturating_add(1).min(8))
    }

    /// Client of an array of such records: 0 to 3. The B-tree's record type is 10 more.
    pub fn client(self) -> u8 {
        match self {
            RecordFormat::Plain { .. } => 0,
            RecordFormat::Filtered { .. } => 1,
            RecordFormat::Sections { filtered: false, .. } => 2,
            RecordFormat::Sections { filtered: true, .. } => 3,
        }
    }

    /// Size of the fields before the scaled offsets of a B-tree record, bytes.
    fn head_size(self, ctx: &Context) -> usize {
        let address = usize::from(ctx.sizeof_addr);
        match self {
            RecordFormat::Plain { .. } => address,
            RecordFormat::Filtered { size_width } => address.saturating_add(usize::from(size_width)).saturating_add(4),
            RecordFormat::Sections { size_width, .. } => address.saturating_add(usize::from(size_width)),
        }
    }

    /// Size of the fields after the scaled offsets of a B-tree record, bytes.
    fn tail_size(self) -> usize {
        match self {
            RecordFormat::Plain { .. } | RecordFormat::Filtered { .. } => 0,
            RecordFormat::Sections { count, filtered, .. } => Sections::size(count, filtered),
        }
    }

    /// Size of an array element, bytes.
    pub fn element_size(self, ctx: &Context) -> usize {
        self.head_size(ctx).saturating_add(self.tail_size())
    }

    /// Size of a B-tree record, bytes.
    pub fn btree2_size(self, rank: usize, ctx: &Context) -> usize {
        self.element_size(ctx).saturating_add(rank.saturating_mul(8))
    }

    /// True if the chunk of a B-tree record or array element is allocated.
    pub fn is_allocated(self, record: &[u8], ctx: &Context, address: Address) -> Result<bool> {
        Ok(Reader::new(record, "chunk record", address).addr(ctx)?.is_defined())
    }

    fn read_head(self, r: &mut Reader<'_>, ctx: &Context) -> Result<ChunkRecord> {
        let address = r.addr(ctx)?;
        let (size, filter_mask) = match self {
            RecordFormat::Plain { chunk_bytes } => (chunk_bytes, 0),
            RecordFormat::Filtered { size_width } => (r.uint(usize::from(size_width))?, r.u32()?),
            RecordFormat::Sections { size_width, .. } => (r.uint(usize::from(size_width))?, 0),
        };
        Ok(ChunkRecord { address, size, form: StoredForm::Whole { filter_mask } })
    }

    /// The whole record; `None`: the chunk is not allocated.
    fn read_tail(self, r: &mut Reader<'_>, head: ChunkRecord) -> Result<Option<ChunkRecord>> {
        let form = match self {
            RecordFormat::Plain { .. } | RecordFormat::Filtered { .. } => head.form,
            RecordFormat::Sections { count, filtered, .. } => StoredForm::Sections(Sections::decode(r, count, filtered)?),
        };
        Ok(head.address.is_defined().then_some(ChunkRecord { form, ..head }))
    }

    fn write_head(self, w: &mut Writer, record: &ChunkRecord, ctx: &Context) {
        w.addr(record.address, ctx);
        match self {
            RecordFormat::Plain { .. } => {}
            RecordFormat::Filtered { size_width } => {
                w.uint(record.size, usize::from(size_width)).u32(record.filter_mask());
            }
            RecordFormat::Sections { size_width, .. } => {
                w.uint(record.size, usize::from(size_width));
            }
        }
    }

    fn write_tail(self, w: &mut Writer, record: &ChunkRecord) {
        if let RecordFormat::Sections { count, filtered, .. } = self {
            let sections = match record.form {
                StoredForm::Sections(sections) => sections,
                StoredForm::Whole { .. } => Sections::default(),
            };
            sections.encode(w, count, filtered);
        }
    }

    /// Decodes an array element; `None` when the chunk is not allocated.
    pub fn decode_element(self, element: &[u8], ctx: &Context, structure: &'static str, address: Address) -> Result<Option<ChunkRecord>> {
        let mut r = Reader::new(element, structure, address);
        let head = self.read_head(&mut r, ctx)?;
        self.read_tail(&mut r, head)
    }

    /// Encodes an array element; `None` is an unallocated chunk.
    pub fn encode_element(self, record: Option<ChunkRecord>, ctx: &Context) -> Vec<u8> {
        let record = record.unwrap_or(ChunkRecord { address: Address::UNDEF, size: 0, form: StoredForm::WHOLE });
        let mut w = Writer::new();
        self.write_head(&mut w, &record, ctx);
        self.write_tail(&mut w, &record);
        w.into_bytes()
    }

    /// Decodes a B-tree record: the chunk (`None`: undefined address) and its scaled offsets.
    pub fn decode_btree2(self, record: &[u8], rank: usize, ctx: &Context, address: Address) -> Result<(Option<ChunkRecord>, Vec<u64>)> {
        let mut r = Reader::new(record, "chunk record", address);
        let head = self.read_head(&mut r, ctx)?;
        let scaled = (0..rank).map(|_| r.u64()).collect::<Result<_>>()?;
        Ok((self.read_tail(&mut r, head)?, scaled))
    }

    /// Encodes a B-tree record.
    pub fn encode_btree2(self, record: ChunkRecord, scaled: &[u64], ctx: &Context) -> Vec<u8> {
        let mut w = Writer::new();
        self.write_head(&mut w, &record, ctx);
        for &s in scaled {
            w.u64(s);
        }
        self.write_tail(&mut w, &record);
        w.into_bytes()
    }

    /// Scaled offsets of an encoded B-tree record, decoded lazily.
    pub fn btree2_scaled<'a>(self, record: &'a [u8], ctx: &Context) -> impl Iterator<Item = u64> + 'a {
        let end = record.len().saturating_sub(self.tail_size());
        let scaled = record.get(self.head_size(ctx)..end).unwrap_or_default();
        scaled.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))
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
        assert_eq!(RecordFormat::new(4, 400, RecordShape::Filtered, ctx), RecordFormat::Filtered { size_width: 3 });
        assert_eq!(RecordFormat::new(5, 400, RecordShape::Filtered, ctx), RecordFormat::Filtered { size_width: 8 });
        assert_eq!(RecordFormat::new(5, 400, RecordShape::Plain, ctx), RecordFormat::Plain { chunk_bytes: 400 });
    }

    #[test]
    fn round_trips() {
        let ctx = &Context::DEFAULT;
        let whole = ChunkRecord { address: Address(4096), size: 70_000, form: StoredForm::Whole { filter_mask: 2 } };
        let sections = Sections { offsets: [0, 100, 300], unfiltered: [400, 500, 600], masks: [1, 2, 3] };
        let of_sections = |s: Sections| ChunkRecord { form: StoredForm::Sections(s), ..whole };
        let two = Sections { offsets: [0, 100, 0], ..Sections::default() };
        for (f, want) in [
            (RecordFormat::Filtered { size_width: 4 }, whole),
            (RecordFormat::Filtered { size_width: 8 }, whole),
            (RecordFormat::Plain { chunk_bytes: 7 }, ChunkRecord { size: 7, form: StoredForm::WHOLE, ..whole }),
            (RecordFormat::Sections { size_width: 3, count: 2, filtered: false }, of_sections(two)),
            (RecordFormat::Sections { size_width: 8, count: 3, filtered: true }, of_sections(sections)),
        ] {
            let chunk = if f.client() < 2 { whole } else { of_sections(sections) };
            let e = f.encode_element(Some(chunk), ctx);
            assert_eq!(e.len(), f.element_size(ctx));
            assert_eq!(f.decode_element(&e, ctx, "x", Address(0)).unwrap(), Some(want));
            let absent = f.encode_element(None, ctx);
            assert!(absent.len() == e.len() && absent.iter().skip(8).all(|b| *b == 0));
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

    /// Bytes made by hand from the tables of the proposal: chunks of 4 x 10 elements of 4 bytes.
    #[test]
    fn records_of_structured_chunks_are_those_of_the_proposal() {
        let ctx = &Context::DEFAULT;
        let unhex = |s: &str| -> Vec<u8> {
            let s: String = s.split_whitespace().collect();
            (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
        };
        let (address, size) = ("0010000000000000", "7b00");
        let (offset, scaled) = ("6b00000000000000", "0200000000000000 0500000000000000");
        let filtering = "6b00000000000000 1000000000000000 00000000 01000000";
        let format = |filtered| RecordFormat::new(5, 160, RecordShape::Sections { count: 2, filtered }, ctx);
        let sections = |unfiltered, masks| StoredForm::Sections(Sections { offsets: [0, 107, 0], unfiltered, masks });
        let plain = ChunkRecord { address: Address(4096), size: 123, form: sections([0; 3], [0; 3]) };
        let filtered = ChunkRecord { form: sections([107, 16, 0], [0, 1, 0]), ..plain };
        assert_eq!((format(false).client(), format(true).client()), (2, 3));
        for (format, record, tail) in [(format(false), plain, String::new()), (format(true), filtered, filtering.into())] {
            assert_eq!(format.encode_element(Some(record), ctx), unhex(&format!("{address}{size}{offset}{tail}")));
            assert_eq!(format.encode_btree2(record, &[2, 5], ctx), unhex(&format!("{address}{size}{scaled}{offset}{tail}")));
        }
        let three = RecordFormat::new(5, 160, RecordShape::Sections { count: 3, filtered: false }, ctx);
        assert_eq!(three.element_size(ctx), 8 + 8 + 16);
    }
}
