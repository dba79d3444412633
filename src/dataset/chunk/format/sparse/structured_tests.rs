//! Structured chunks: the proposal's known answer, filters per section, and damage.

use super::*;
use crate::base::Address;
use crate::base::checksum::lookup3;
use crate::meta::Store;
use std::io::Write as _;

/// Section 0 of a chunk of 4 x 10: bytes by H5Sencode of libhdf5 2.2.0 with elements 2 to 4 of row
/// 0 and 7 of row 3, then lookup3.
const SELECTION_BYTES: &str = "01000828000000 01020100000000000400000000000000 0a00000000000000 0400000000000000 0a00000000000000\
    02000000 01000000 00000000 28000000 02000000 02000000 00000000 02000000 00000000 04000000 03000000 07000000 03000000 07000000\
    e996b57d";
const VALUE_BYTES: &str = "0a000000 0b000000 0c000000 63000000";
const DIMS: [u64; 2] = [4, 10];

fn unhex(s: &str) -> Vec<u8> {
    let s: String = s.split_whitespace().collect();
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

fn filter(id: u16, value: Option<u32>) -> FilterDescription {
    FilterDescription { id, flags: 1, name: Vec::new(), cd_values: value.into_iter().collect(), config: None }
}

fn format(sections: Vec<(u8, Vec<FilterDescription>)>, raw_edges: bool) -> Arc<dyn ChunkFormat> {
    let (fill, pipeline, filters) = (FillPattern::zero(), Pipeline::default(), SectionFilters { sections });
    let sections = Some(SectionParts { count: 2, filters: &filters });
    let parts = Parts { chunk_bytes: 160, chunk_dims: &DIMS, element_size: 4, fill: &fill, pipeline: &pipeline, sections, raw_edges };
    open(&parts).unwrap()
}

/// Decodes a chunk at address 64 of a file that ends with it.
fn decode(format: &dyn ChunkFormat, chunk: &[u8], sections: Sections, is_edge: bool) -> Result<Vec<u8>> {
    let store = Store::over_bytes([vec![0; 64], chunk.to_vec()].concat());
    let record = ChunkRecord { address: Address(64), size: chunk.len() as u64, form: StoredForm::Sections(sections) };
    let image = format.decode(&store, record, is_edge)?;
    let defined = format.defined(&store, record, is_edge)?.unwrap();
    assert_eq!(image.defined(), Some(&defined));
    let mut bytes = vec![0; 160];
    image.read(0, &mut bytes).unwrap();
    Ok(bytes)
}

fn golden_elements() -> Vec<u8> {
    let mut elements = [0u32; 40];
    (elements[2], elements[3], elements[4], elements[37]) = (10, 11, 12, 99);
    elements.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn golden_image(format: &dyn ChunkFormat) -> Image {
    let mut image = format.blank(None).unwrap();
    let elements = golden_elements();
    image.write(8, &elements[8..20]).unwrap();
    image.write(148, &elements[148..152]).unwrap();
    image
}

fn plain() -> Sections {
    Sections { offsets: [0, 107, 0], ..Sections::default() }
}

#[test]
fn the_chunk_is_that_of_the_proposal() {
    let format = format(Vec::new(), false);
    let chunk = [unhex(SELECTION_BYTES), unhex(VALUE_BYTES)].concat();
    assert_eq!((chunk.len(), format.record_shape()), (123, RecordShape::Sections { count: 2, filtered: false }));
    assert_eq!(format.encode(golden_image(&*format), false).unwrap(), (chunk.clone(), StoredForm::Sections(plain())));
    assert_eq!(decode(&*format, &chunk, plain(), false).unwrap(), golden_elements());
    // Nothing, everything.
    let (blank, form) = format.encode(format.blank(None).unwrap(), false).unwrap();
    let StoredForm::Sections(sections) = form else { panic!("{form:?}") };
    assert_eq!(sections.offsets[1], blank.len() as u64);
    assert_eq!(decode(&*format, &blank, sections, false).unwrap(), vec![0; 160]);
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// Any of the sections, filters left out by the mask, checksums within the filtered bytes.
#[test]
fn each_section_has_its_filters() {
    let (selection, values) = (unhex(SELECTION_BYTES), unhex(VALUE_BYTES));
    let shuffled: Vec<u8> = (0..4).flat_map(|b| (0..4).map(move |e| (e, b))).map(|(e, b)| values[e * 4 + b]).collect();
    let deflate = || filter(1, Some(6));
    let shuffle = || filter(2, Some(4));
    let sum = |bytes: &[u8]| [bytes, &crate::filter::fletcher32::checksum(bytes).to_le_bytes()].concat();
    let cases = [
        (vec![(0, vec![deflate()])], deflated(&selection), values.clone(), [0, 0]),
        (vec![(1, vec![shuffle(), deflate()])], selection.clone(), deflated(&shuffled), [0, 0]),
        (vec![(1, vec![shuffle(), deflate()])], selection.clone(), shuffled.clone(), [0, 2]),
        (
            vec![(0, vec![deflate()]), (1, vec![shuffle(), deflate(), filter(3, None)])],
            deflated(&selection),
            sum(&deflated(&values)),
            [0, 1],
        ),
        (vec![(0, vec![deflate()]), (1, vec![deflate()])], selection.clone(), values.clone(), [1, 1]),
    ];
    for (filters, first, second, masks) in cases {
        let format = format(filters, false);
        assert!(format.record_shape().is_filtered());
        let chunk = [&first[..], &second].concat();
        let sections = Sections { offsets: [0, first.len() as u64, 0], unfiltered: [107, 16, 0], masks: [masks[0], masks[1], 0] };
        assert_eq!(decode(&*format, &chunk, sections, false).unwrap(), golden_elements());
        for wrong in [15, 17, 0, u64::MAX] {
            let bad = Sections { unfiltered: [if first.len() == 107 { 107 } else { wrong }, wrong, 0], ..sections };
            assert!(decode(&*format, &chunk, bad, false).is_err());
        }
        let (encoded, form) = format.encode(golden_image(&*format), false).unwrap();
        let StoredForm::Sections(written) = form else { panic!("{form:?}") };
        assert_eq!((written.unfiltered, written.masks), ([107, 16, 0], [0; 3]));
        assert_eq!(decode(&*format, &encoded, written, false).unwrap(), golden_elements());
    }
}

#[test]
fn partial_edge_chunks_may_be_unfiltered() {
    let format = format(vec![(0, vec![filter(1, Some(6))]), (1, vec![filter(1, Some(6))])], true);
    assert!(format.stores_edges_differently());
    let chunk = [unhex(SELECTION_BYTES), unhex(VALUE_BYTES)].concat();
    let sections = Sections { unfiltered: [107, 16, 0], ..plain() };
    assert_eq!(format.encode(golden_image(&*format), true).unwrap(), (chunk.clone(), StoredForm::Sections(sections)));
    assert_eq!(decode(&*format, &chunk, sections, true).unwrap(), golden_elements());
    assert!(decode(&*format, &chunk, sections, false).is_err());
}

/// The dataspace of the golden chunk, a selection, and the checksum.
fn selection_of(tail: &str) -> Vec<u8> {
    let mut bytes = unhex(SELECTION_BYTES)[..47].to_vec();
    bytes.extend(unhex(tail));
    let sum = lookup3(&bytes, 0);
    bytes.extend(sum.to_le_bytes());
    bytes
}

#[test]
fn damaged_chunks_are_errors() {
    let format = format(Vec::new(), false);
    let values = unhex(VALUE_BYTES);
    let head = "02000000 01000000 00000000";
    let bad = |selection: Vec<u8>, values: &[u8]| {
        let sections = Sections { offsets: [0, selection.len() as u64, 0], ..Sections::default() };
        let e = decode(&*format, &[&selection[..], values].concat(), sections, false).unwrap_err();
        assert!(e.to_string().contains("sparse chunk") && e.to_string().contains("0x40"), "{e}");
        e.to_string()
    };
    let block = |b: &str| selection_of(&format!("{head} 28000000 02000000 02000000 {b}"));
    let good = "00000000 02000000 00000000 04000000 03000000 07000000 03000000 07000000";
    assert_eq!(block(good), unhex(SELECTION_BYTES));
    // Values that are too few or too many.
    bad(block(good), &values[..12]);
    bad(block(good), &[0; 20]);
    // Overlapping blocks, blocks past the chunk, corners in the wrong order.
    assert!(bad(block("00000000 02000000 00000000 04000000 00000000 04000000 00000000 07000000"), &[0; 24]).contains("overlap"));
    bad(block("00000000 02000000 00000000 04000000 03000000 07000000 03000000 0a000000"), &[0; 28]);
    bad(block("00000000 02000000 00000000 04000000 03000000 07000000 03000000 06000000"), &[0; 12]);
    // 2^32 - 1 points, another rank, an unknown selection, bytes after the checksum.
    bad(selection_of("01000000 01000000 00000000 10000000 02000000 ffffffff 00000000 00000000"), &[0; 4]);
    bad(selection_of(&format!("{head} 18000000 01000000 01000000 00000000 02000000")), &[0; 12]);
    bad(selection_of("07000000 01000000 00000000 00000000"), &[]);
    bad([unhex(SELECTION_BYTES), vec![0]].concat(), &values);
    // Each byte of the selection is checksummed.
    for n in 0..107 {
        let mut selection = unhex(SELECTION_BYTES);
        selection[n] ^= 1 << (n % 8);
        bad(selection, &values);
    }
}

#[test]
fn sections_outside_the_chunk_are_errors() {
    let format = format(Vec::new(), false);
    let chunk = [unhex(SELECTION_BYTES), unhex(VALUE_BYTES)].concat();
    for offset in [0, 106, 108, 123, 124, u64::MAX] {
        assert!(decode(&*format, &chunk, Sections { offsets: [0, offset, 0], ..plain() }, false).is_err(), "{offset}");
    }
    let store = Store::over_bytes(chunk.clone());
    for (address, size) in [(1, 123), (0, 124), (0, u64::MAX), (u64::MAX - 5, 123), (1 << 40, 123)] {
        let record = ChunkRecord { address: Address(address), size, form: StoredForm::Sections(plain()) };
        assert!(format.decode(&store, record, false).is_err(), "{size} bytes at {address}");
    }
    let record = ChunkRecord { address: Address(0), size: 123, form: StoredForm::WHOLE };
    assert!(format.decode(&store, record, false).is_err());
}

#[test]
fn new_datasets_have_filters_on_both_sections() {
    let filters = vec![filter(2, Some(4)), filter(1, Some(6)), filter(3, None)];
    let message = Structured.section_filters(&filters).unwrap();
    assert_eq!(message.sections, [(0, vec![filter(1, Some(6))]), (1, filters)]);
    let shuffle = vec![filter(2, Some(4))];
    assert_eq!(Structured.section_filters(&shuffle).unwrap().sections, [(1, shuffle)]);
}
