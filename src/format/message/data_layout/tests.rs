//! Tests of the data layout message. libhdf5 2.0.0 (h5py 3.16) wrote the messages of version 3 and
//! later; those of versions 1 and 2 follow the specification, since no current library writes them.

use super::*;
use crate::format::chunk_record::StoredForm;

const CTX: &Context = &Context::DEFAULT;

/// One message of each layout.
const GOLDEN: [&str; 15] = [
    "03 00 0300 070809",
    "03 01 0008000000000000 1000000000000000",
    "03 02 04 1010000000000000 05000000 04000000 02000000 02000000",
    "03 02 03 ffffffffffffffff 04000000 02000000 01000000",
    "04 02 00 03 01 070308 01 c30a000000000000",
    "04 02 02 03 01 070308 01 0c00000000000000 00000000 6b0b000000000000",
    "05 02 02 03 01 070308 01 0c00000000000000 00000000 6b0b000000000000",
    "04 02 00 03 01 020302 02 0008000000000000",
    "04 02 00 03 01 020302 03 0a d807000000000000",
    "04 02 00 04 01 02030202 04 200404100a 4303000000000000",
    "05 02 00 03 01 141e04 05 00080000 64 28 2103000000000000",
    "05 02 00 02 04 00000040 08000000 01 ffffffffffffffff",
    "04 03 1008000000000000 01000000",
    "01 02 01 0000000000 a00a000000000000 03000000 06000000",
    "02 02 00 0000000000 03000000 01000000 03000000 070809",
];

fn hex(s: &str) -> Vec<u8> {
    let s: Vec<u8> = s.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    s.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
}

fn decode(s: &str) -> Result<DataLayout> {
    DataLayout::decode(&hex(s), CTX, Address(96))
}

fn chunked(s: &str) -> ChunkedLayout {
    match decode(s).unwrap().class {
        Layout::Chunked(c) => c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn known_answers() {
    let class = |i: usize| decode(GOLDEN[i]).unwrap().class;
    assert_eq!(class(0), Layout::Compact { data: vec![7, 8, 9], dims: vec![] });
    assert_eq!(class(1), Layout::Contiguous { address: Address(2048), size: Some(16), dims: vec![] });
    assert_eq!(class(12), Layout::Virtual { heap: Address(0x810), index: 1 });
    assert_eq!(class(13), Layout::Contiguous { address: Address(0xaa0), size: None, dims: vec![3, 6] });
    assert_eq!(class(14), Layout::Compact { data: vec![7, 8, 9], dims: vec![3, 1] });
    let c = chunked(GOLDEN[2]);
    assert_eq!((&c.chunk_dims[..], c.element_size, c.index), (&[5, 4, 2][..], 2, IndexInfo::BTree1 { address: Address(0x1010) }));
    assert_eq!(c.chunk_bytes(), 80);
    assert_eq!(chunked(GOLDEN[4]).index, IndexInfo::Single { address: Address(0xac3), stored: None });
    assert_eq!(chunked(GOLDEN[5]).index, IndexInfo::Single { address: Address(0xb6b), stored: Some((12, StoredForm::WHOLE)) });
    assert_eq!(chunked(GOLDEN[7]).index, IndexInfo::Implicit { address: Address(2048) });
    assert_eq!(chunked(GOLDEN[8]).index, IndexInfo::FixedArray { address: Address(0x7d8), page_bits: 10 });
    let array = IndexInfo::ExtensibleArray {
        address: Address(0x343),
        max_bits: 32,
        index_elements: 4,
        min_super_pointers: 4,
        min_elements: 16,
        page_bits: 10,
    };
    assert_eq!(chunked(GOLDEN[9]).index, array);
    assert_eq!(chunked(GOLDEN[10]).index, IndexInfo::BTree2 { address: Address(0x321), node_size: 2048, split: 100, merge: 40 });
    let c = chunked(GOLDEN[11]);
    assert_eq!((c.chunk_bytes(), c.dim_width, c.index.address()), (8 << 30, 4, Address::UNDEF));
}

#[test]
fn round_trips() {
    for s in GOLDEN {
        assert_eq!(decode(s).unwrap().encode(CTX).unwrap(), hex(s), "{s}");
        // Padding to a multiple of eight is not part of the message.
        assert_eq!(decode(&format!("{s} 00000000")).unwrap(), decode(s).unwrap());
    }
    let narrow = &Context { sizeof_addr: 4, sizeof_size: 4 };
    for s in ["04020004010201030103 0a b7010000", "03020304040000020000001e00000001000000", "03 01 ffffffff ffffffff"] {
        let b = hex(s);
        assert_eq!(DataLayout::decode(&b, narrow, Address(0)).unwrap().encode(narrow).unwrap(), b);
    }
}

#[test]
fn short_and_flipped_bytes() {
    for s in GOLDEN {
        let good = hex(s);
        for i in 0..good.len() {
            assert!(DataLayout::decode(&good[..i], CTX, Address(0)).is_err(), "{s}: {i} bytes");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[i] ^= 1 << bit;
                if let Ok(l) = DataLayout::decode(&bad, CTX, Address(0)) {
                    // Only the reserved bytes of old versions are dropped.
                    let again = l.encode(CTX).unwrap();
                    assert!(bad.starts_with(&again) || bad[0] < 3, "{s}: byte {i} bit {bit}");
                }
            }
        }
    }
}

#[test]
fn what_is_refused() {
    let err = |s: &str| decode(s).unwrap_err();
    assert!(matches!(err("05 04 01 000000"), crate::base::Error::Unsupported { .. }), "another draft of structured chunks");
    assert!(matches!(err("05 04 00 010000"), crate::base::Error::Unsupported { .. }), "structured chunks that are not sparse");
    assert!(matches!(err("06 01"), crate::base::Error::Unsupported { .. }));
    for s in [
        "03 03 1008000000000000 01000000",                                      // virtual before version 4
        "03 05",                                                                // class
        "01 02 03 0000000000 a00a000000000000 03000000 06000000",               // class of version 1
        "01 00 01 0000000000 a00a000000000000",                                 // no dimension
        "01 01 02 0000000000 a00a000000000000 04000000",                        // chunked, rank 0
        "03 02 03 ffffffffffffffff 04000000 00000000 01000000",                 // chunk dimension 0
        "03 02 01 ffffffffffffffff 04000000",                                   // rank 0
        "04 02 00 03 00 01 c30a000000000000",                                   // width 0
        "04 02 00 03 09 01 c30a000000000000",                                   // width 9
        "04 02 00 03 01 020300 02 0008000000000000",                            // element size 0
        "04 02 00 03 01 020302 00 0008000000000000",                            // version 1 B-tree in version 4
        "04 02 00 03 01 020302 06 0008000000000000",                            // index type 6
        "04 02 00 03 01 020302 03 00 d807000000000000",                         // page bits 0
        "04 02 00 03 01 020302 05 00080000 65 28 2103000000000000",             // split 101 %
        "04 02 04 03 01 020302 02 0008000000000000",                            // unknown flag
        "04 02 00 02 08 0000000000000080 0200000000000000 02 0008000000000000", // 2^64 bytes
    ] {
        assert!(decode(s).is_err(), "{s}");
    }
    let deep = format!("04 02 00 22 01 {} 02 0008000000000000", "01".repeat(34));
    assert!(decode(&deep).is_err());
    assert_eq!(chunked(&deep.replacen("22", "21", 1).replace(&"01".repeat(34), &"01".repeat(33))).chunk_dims.len(), 32);
}

#[test]
fn what_cannot_be_encoded() {
    let layout = |version, class| DataLayout { version, class };
    assert!(layout(2, Layout::Virtual { heap: Address(0), index: 0 }).encode(CTX).is_err());
    assert!(layout(3, Layout::Compact { data: vec![0; 65_536], dims: vec![] }).encode(CTX).is_err());
    assert!(layout(3, Layout::Contiguous { address: Address(0), size: None, dims: vec![] }).encode(CTX).is_err());
    let c = chunked(GOLDEN[8]);
    assert!(layout(3, Layout::Chunked(c.clone())).encode(CTX).is_err());
    assert!(layout(4, Layout::Chunked(ChunkedLayout { chunk_dims: vec![256, 1], ..c })).encode(CTX).is_err());
}
