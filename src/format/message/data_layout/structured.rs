//! Structured chunk layout of the data layout message: version 5, class 4 (H5Olayout.c of HDF5's
//! sparse data branch; no release has it).
//!
//! ```text
//! property version 0 | chunk type u16 (0 sparse) | flags | n | E | n x dimension E bytes |
//! offset size 8 | sections N | checksummed sections K | K x section number |
//! index type | index information | index address O
//!
//! index information, type 1 single chunk: size S | offset u64 of sections 1 .. N-1 |
//!                      flags bit 1: N x unfiltered size u64, N x filter mask u32
//!                    types 3, 4, 5: as in class 2
//! ```
//!
//! Elements of fixed size have two sections, of which the first is checksummed; elements of
//! variable length have three. S is the width of a size in chunk records.

use super::chunked::{ChunkedLayout, IndexInfo, SINGLE_INDEX_WITH_FILTER};
use super::unencodable;
use crate::base::Result;
use crate::format::chunk_record::{RecordFormat, Sections, StoredForm};
use crate::format::{Context, Reader, Writer};

/// Version of the properties.
const PROPERTY_VERSION: u8 = 0;
/// Structured chunk type: sparse.
const SPARSE: u16 = 0;
/// Bytes of an offset in a chunk.
const OFFSET_BYTES: u8 = 8;

/// Numbers of the checksummed sections of chunks with `sections` sections. `None`: no such chunks.
fn checksummed(sections: u8) -> Option<&'static [u8]> {
    match sections {
        2 => Some(&[0]),
        3 => Some(&[0, 1, 2]),
        _ => None,
    }
}

/// Decodes the fields after the layout class.
pub(super) fn decode(r: &mut Reader<'_>, ctx: &Context) -> Result<ChunkedLayout> {
    let (version, kind) = (r.u8()?, r.u16()?);
    if version != PROPERTY_VERSION || kind != SPARSE {
        return Err(r.unsupported(format!("structured chunks of property version {version} and type {kind}")));
    }
    let (flags, dims, dim_width) = ChunkedLayout::decode_dims(r)?;
    let offset_bytes = r.u8()?;
    if offset_bytes != OFFSET_BYTES {
        return Err(r.unsupported(format!("structured chunks with offsets of {offset_bytes} bytes")));
    }
    let (sections, count) = (r.u8()?, r.u8()?);
    let numbers = r.bytes(usize::from(count))?;
    if checksummed(sections) != Some(numbers) {
        return Err(r.corrupt(format!("structured chunks of {sections} sections, of which {numbers:?} are checksummed")));
    }
    let chunk_bytes = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let chunk_bytes = chunk_bytes.ok_or_else(|| r.corrupt("a chunk exceeds 2^64 bytes"))?;
    let width = RecordFormat::size_width_of_sections(sections, chunk_bytes);
    let mut single = |r: &mut Reader<'_>| {
        let size = r.uint(usize::from(width))?;
        let stored = Sections::decode(r, sections, flags & SINGLE_INDEX_WITH_FILTER != 0)?;
        Ok(Some((size, StoredForm::Sections(stored))))
    };
    let index = IndexInfo::decode(r, ctx, &mut single)?;
    if matches!(index, IndexInfo::BTree1 { .. } | IndexInfo::Implicit { .. }) {
        return Err(r.corrupt("structured chunks in an index without sizes"));
    }
    Ok(ChunkedLayout { sections: Some(sections), ..ChunkedLayout::new(r, flags, dims, dim_width, index)? })
}

/// Encodes the bytes that `decode` reads.
pub(super) fn encode(layout: &ChunkedLayout, sections: u8, w: &mut Writer, ctx: &Context) -> Result<()> {
    let numbers = checksummed(sections).ok_or_else(|| unencodable("structured chunks of neither 2 nor 3 sections"))?;
    match layout.index {
        IndexInfo::BTree1 { .. } | IndexInfo::Implicit { .. } | IndexInfo::Single { stored: None, .. } => {
            return Err(unencodable("structured chunks in an index without sizes"));
        }
        IndexInfo::Single { stored: Some(_), .. }
        | IndexInfo::FixedArray { .. }
        | IndexInfo::ExtensibleArray { .. }
        | IndexInfo::BTree2 { .. } => {}
    }
    w.u8(PROPERTY_VERSION).u16(SPARSE);
    layout.encode_dims(w)?;
    w.u8(OFFSET_BYTES).u8(sections).u8(u8::try_from(numbers.len()).unwrap_or(u8::MAX)).bytes(numbers);
    let chunk_bytes = layout.chunk_dims.iter().fold(layout.element_size, |n, &d| n.saturating_mul(d));
    let width = usize::from(RecordFormat::size_width_of_sections(sections, chunk_bytes));
    let filtered = layout.flags & SINGLE_INDEX_WITH_FILTER != 0;
    layout.index.encode(w, ctx, &|w, size, form| {
        let stored = if let StoredForm::Sections(stored) = form { stored } else { Sections::default() };
        w.uint(size, width);
        stored.encode(w, sections, filtered);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::base::Address;
    use crate::format::Context;
    use crate::format::chunk_record::{Sections, StoredForm};
    use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout};

    fn unhex(s: &str) -> Vec<u8> {
        let s: String = s.split_whitespace().collect();
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    }

    /// Messages made by hand from the table of the proposal: chunks of 4 x 10 elements of 4 bytes.
    fn golden() -> [(Vec<u8>, ChunkedLayout); 6] {
        let head = |flags: u8| format!("05 04 00 0000 {flags:02x} 03 01 04 0a 04 08 02 01 00");
        let at = "0010000000000000";
        let address = Address(4096);
        let layout =
            |flags, index| ChunkedLayout { flags, chunk_dims: vec![4, 10], element_size: 4, dim_width: 1, index, sections: Some(2) };
        let offsets = [0, 107, 0];
        let plain = Sections { offsets, ..Sections::default() };
        let filtered = Sections { offsets, unfiltered: [107, 16, 0], masks: [0, 1, 0] };
        let single = |s| IndexInfo::Single { address, stored: Some((123, StoredForm::Sections(s))) };
        let masks = "6b00000000000000 1000000000000000 00000000 01000000";
        let array =
            IndexInfo::ExtensibleArray { address, max_bits: 32, index_elements: 4, min_super_pointers: 4, min_elements: 16, page_bits: 10 };
        let three = ChunkedLayout { sections: Some(3), ..layout(0, IndexInfo::FixedArray { address, page_bits: 10 }) };
        [
            (unhex(&format!("{} 01 7b00 6b00000000000000 {at}", head(0))), layout(0, single(plain))),
            (unhex(&format!("{} 01 7b00 6b00000000000000 {masks} {at}", head(2))), layout(2, single(filtered))),
            (unhex(&format!("{} 03 0a {at}", head(1))), layout(1, IndexInfo::FixedArray { address, page_bits: 10 })),
            (unhex(&format!("{} 04 20 04 04 10 0a {at}", head(0))), layout(0, array)),
            (
                unhex(&format!("{} 05 00080000 64 28 {at}", head(0))),
                layout(0, IndexInfo::BTree2 { address, node_size: 2048, split: 100, merge: 40 }),
            ),
            (unhex(&format!("05 04 00 0000 00 03 01 04 0a 04 08 03 03 00 01 02 03 0a {at}")), three),
        ]
    }

    #[test]
    fn messages_are_those_of_the_proposal() {
        let ctx = &Context::DEFAULT;
        for (bytes, layout) in golden() {
            let message = DataLayout { version: 5, class: Layout::Chunked(layout) };
            assert_eq!(message.encode(ctx).unwrap(), bytes);
            assert_eq!(DataLayout::decode(&bytes, ctx, Address(0)).unwrap(), message);
        }
    }

    #[test]
    fn damage_is_an_error_or_another_message() {
        let ctx = &Context::DEFAULT;
        for (bytes, layout) in golden() {
            for n in 0..bytes.len() {
                assert!(DataLayout::decode(&bytes[..n], ctx, Address(0)).is_err());
                for bit in 0..8 {
                    let mut bad = bytes.clone();
                    bad[n] ^= 1 << bit;
                    if let Ok(message) = DataLayout::decode(&bad, ctx, Address(0)) {
                        let again = message.encode(ctx).unwrap();
                        assert_eq!(DataLayout::decode(&again, ctx, Address(0)).unwrap(), message);
                    }
                }
            }
            let without = |index| DataLayout { version: 5, class: Layout::Chunked(ChunkedLayout { index, ..layout.clone() }) };
            assert!(without(IndexInfo::Implicit { address: Address(0) }).encode(ctx).is_err());
            let message = DataLayout { version: 4, class: Layout::Chunked(layout) };
            assert!(message.encode(ctx).is_err(), "class 4 needs version 5");
        }
        // Property version, chunk type, offset size, sections, checksummed sections, index type.
        for (at, to) in [(2, 1), (3, 1), (11, 4), (12, 1), (12, 4), (13, 2), (14, 1), (15, 0), (15, 2)] {
            let mut bad = golden()[2].0.clone();
            bad[at] = to;
            assert!(DataLayout::decode(&bad, ctx, Address(0)).is_err(), "byte {at}");
        }
    }
}
