//! Messages of libhdf5 (tests/fixtures/datatype/make_datatype.py): decoded, encoded, damaged.

use super::*;
use crate::base::{Address, Error};

const TYPES: &str = include_str!("../../../../tests/fixtures/datatype/types.tsv");

pub fn unhex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

fn messages() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    TYPES.lines().map(|l| {
        let mut columns = l.split('\t');
        (columns.next().unwrap(), unhex(columns.next().unwrap()))
    })
}

fn decode_all(bytes: &[u8]) -> Result<Datatype> {
    let mut r = Reader::new(bytes, "datatype message", Address(0));
    let t = decode(&mut r)?;
    assert_eq!(r.remaining(), 0);
    Ok(t)
}

fn named(name: &str) -> Datatype {
    decode_all(&messages().find(|(n, _)| *n == name).unwrap().1).unwrap()
}

#[test]
fn messages_of_libhdf5_survive_a_round_trip() {
    let mut versions = [0; 6];
    for (name, bytes) in messages() {
        let t = decode_all(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(t.to_bytes(), bytes, "{name}");
        assert_eq!(t.reserved, 0, "{name}");
        versions[usize::from(t.version)] += 1;
    }
    assert!(versions[1..].iter().all(|&n| n > 0), "{versions:?}");
}

#[test]
fn damaged_messages_are_errors_or_other_types() {
    for (name, bytes) in messages() {
        for len in 0..bytes.len() {
            assert!(decode_all(&bytes[..len]).is_err(), "{name} cut to {len} bytes");
        }
        for i in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut b = bytes.clone();
                b[i] ^= flip;
                let mut r = Reader::new(&b, "datatype message", Address(0));
                if let Ok(t) = decode(&mut r) {
                    assert_eq!(t.to_bytes(), b[..r.position()], "{name} byte {i}");
                }
            }
        }
    }
}

#[test]
fn properties_are_as_libhdf5_set_them() {
    let t = named("int20 at 5");
    let Class::FixedPoint(f) = t.class else { panic!() };
    assert_eq!((f.offset, f.precision, f.signed, f.low_padding, f.high_padding), (5, 20, true, true, false));
    let t = named("float20 at 7");
    let Class::FloatingPoint(f) = t.class else { panic!() };
    assert_eq!((f.sign_location, f.exponent_location, f.exponent_size, f.mantissa_location, f.mantissa_size), (26, 20, 6, 7, 13));
    assert_eq!((f.exponent_bias, f.normalization, f.inner_padding), (31, Normalization::Implied, true));
    let Class::FloatingPoint(f) = named("H5T_VAX_F64").class else { panic!() };
    assert_eq!(f.order, ByteOrder::Vax);
    let Class::Opaque(o) = named("opaque 12345678").class else { panic!() };
    assert_eq!(o.tag(), b"12345678");
    assert_eq!(Opaque::new(b"x").tag(), b"x");
    let Class::Reference(r) = named("H5T_STD_REF").class else { panic!() };
    assert_eq!((r.kind, r.encoding, r.is_standard()), (ReferenceKind::Object2, 1, true));
}

#[test]
fn compounds_and_enumerations_name_their_members() {
    let t = named("compound holes");
    let members: Vec<_> = t.members().iter().map(|m| (m.name.bytes.as_slice(), m.offset, m.end())).collect();
    assert_eq!(members, [(&b"a"[..], 2, 6), (b"nested member", 8, 13), ("\u{e9}".as_bytes(), 16, 18)]);
    let Class::Compound(c) = &named("compound order").class else { panic!() };
    assert_eq!(c.by_offset().iter().map(|m| m.offset).collect::<Vec<_>>(), [0, 4]);
    let t = named("enum");
    let Class::Enumeration(e) = &t.class else { panic!() };
    assert_eq!(e.name_of(&[0xff, 0x9c]), Some(&b"GREEN"[..]));
    assert_eq!(e.name_of(&[0, 0]), Some(&b"a rather long name"[..]));
    assert_eq!((e.name_of(&[0, 1]), e.name_of(&[0xff, 0xff])), (None, None));
}

#[test]
fn questions_about_contents() {
    assert!(named("compound vlen").contains_vlen() && named("compound vlen").contains_reference());
    assert!(!named("compound deep").contains_vlen() && !named("compound deep").contains_reference());
    assert!(named("vlen string pad0 cset0").is_vlen_string() && !named("vlen int").is_vlen_string());
    let Class::VariableLength(v) = named("vlen string pad2 cset1").class else { panic!() };
    assert_eq!((v.padding, v.charset), (StringPadding::SpacePadded, CharacterSet::Utf8));
}

/// A version 1 message: member "a" is a 2 x 3 array of integers, with a nonzero pad byte, as
/// libhdf5 before 1.4 could write it.
fn version_1_array_member() -> Vec<u8> {
    let mut w = Writer::new();
    w.bytes(&[0x16, 1, 0, 0]).u32(24).bytes(b"a\0\0\0\0\0\0x").u32(0);
    w.bytes(&[2, 0, 0, 0]).u32(1).bytes(&[0; 4]).u32(2).u32(3).u32(0).u32(7);
    w.bytes(&unhex("100800000400000000002000"));
    w.into_bytes()
}

#[test]
fn version_1_members_with_dimensions_are_arrays() {
    let bytes = version_1_array_member();
    let t = decode_all(&bytes).unwrap();
    assert_eq!(t.to_bytes(), bytes);
    let Class::Array(a) = &t.members()[0].datatype.class else { panic!() };
    assert_eq!((a.dims.as_slice(), a.count(), t.members()[0].end()), (&[2, 3][..], 6, 24));
    // The array must fit: libhdf5 reads past the element here.
    let mut large = bytes;
    large[20 + 12] = 3;
    assert!(matches!(decode_all(&large), Err(Error::Corrupt { .. })));
}

#[test]
fn forbidden_messages() {
    let int = "100800000400000000002000";
    let nested = |depth: usize| format!("{}{int}", "1900000010000000".repeat(depth));
    assert!(decode_all(&unhex(&nested(31))).is_ok());
    assert!(matches!(decode_all(&unhex(&nested(32))), Err(Error::Limit { .. })));
    let corrupt = [
        "1008000000000000000020000000",                                 // size 0
        "100800000400000001002000",                                     // 32 bits from bit 1 of 32
        "100800000400000000000000",                                     // no bits
        "11203f000800000000004000330b0034ff030000",                     // exponent over mantissa
        "11303f000800000000004000340b0034ff030000",                     // reserved normalization
        "31603f000800000000004000340b0034ff030000",                     // VAX bit without big-endian
        "1900000010000000",                                             // no base
        &format!("1902000010000000{int}"),                              // variable-length kind 2
        &format!("3a00000010000000010a000000{int}"),                    // array of 10 in 16 bytes
        &format!("3a00000010000000020000000100000001{int}"),            // overflow
        "38000000080000001000000004000000000020000000",                 // enumeration of another size
        &format!("1600000008000000{int}"),                              // no members
        &format!("36020000080000006100{}{int}6100{}{int}", "00", "04"), // two members "a"
        &format!("36020000080000006100{}{int}6200{}{int}", "00", "03"), // overlap
        &format!("36010000080000006100{}{int}", "05"),                  // outside
        "1705000008000000",                                             // reference kind 5
        &format!("5b01000008000000{int}"),                              // complex of integers
    ];
    for hex in corrupt {
        assert!(matches!(decode_all(&unhex(hex)), Err(Error::Corrupt { .. })), "{hex}: {:?}", decode_all(&unhex(hex)));
    }
    for hex in ["600800000400000000002000", "000800000400000000002000", "1c0800000400000000002000", "4722000012000000"] {
        assert!(matches!(decode_all(&unhex(hex)), Err(Error::Unsupported { .. })), "{hex}");
    }
}
