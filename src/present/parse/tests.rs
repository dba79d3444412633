//! Text and back, over the datatypes and values of tests/fixtures and over random bytes.

use super::super::tests::NoHeap;
use super::super::value::{json_value, value_text};
use super::super::{numpy_dtype, type_json};
use super::node::Node;
use super::*;
use crate::base::Result;
use crate::base::datatype::make::Maker;
use crate::base::datatype::{Class, Datatype, ReferenceKind};
use crate::base::parts::Limited;
use crate::base::shape::Shape;
use crate::base::value::Elements;
use crate::dataset::heap::HeapStore;
use crate::dataset::parts::store_elements;
use crate::format::Reader;
use crate::format::message::datatype;
use proptest::prelude::*;
use std::collections::HashSet;

const TYPES: &str = include_str!("../../../tests/fixtures/datatype/types.tsv");
const FLOATS: &str = include_str!("../../../tests/fixtures/datatype/floats.tsv");
const SMALL: &str = include_str!("../../../tests/fixtures/datatype/small.tsv");

fn unhex(s: &str) -> Vec<u8> {
    integer::raw_hex(s.as_bytes(), s.len() / 2).unwrap()
}

/// No place for parts outside elements.
struct NoStore;

impl HeapStore for NoStore {
    fn sequence(&mut self, _: u32, _: &[u8]) -> Result<Vec<u8>> {
        Err(not_supported("variable-length values cannot be made here"))
    }

    fn object(&mut self, _: &[u8]) -> Result<Address> {
        Err(not_supported("references cannot be made here"))
    }
}

/// A store of sequences only.
struct Sequences<'a>(&'a mut dyn FnMut(u32, &[u8]) -> Result<Vec<u8>>);

impl HeapStore for Sequences<'_> {
    fn sequence(&mut self, count: u32, payload: &[u8]) -> Result<Vec<u8>> {
        (self.0)(count, payload)
    }

    fn object(&mut self, path: &[u8]) -> Result<Address> {
        NoStore.object(path)
    }
}

/// Elements from text, as a file stores them.
fn parse_value_into(t: &Datatype, shape: &Shape, text: &[u8], store: &mut dyn HeapStore) -> Result<Vec<u8>> {
    store_elements(&super::parse_value(t, shape, text)?, store)
}

fn parse_value_with(t: &Datatype, shape: &Shape, text: &[u8], keep: &mut dyn FnMut(u32, &[u8]) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    parse_value_into(t, shape, text, &mut Sequences(keep))
}

fn parse_value(t: &Datatype, shape: &Shape, text: &[u8]) -> Result<Vec<u8>> {
    parse_value_into(t, shape, text, &mut NoStore)
}

fn decode(hex: &str) -> Datatype {
    datatype::decode(&mut Reader::new(&unhex(hex), "datatype", Address(0))).unwrap()
}

use crate::base::Address;

/// Names and datatypes of the fixtures.
pub fn types() -> Vec<(&'static str, Datatype)> {
    TYPES.lines().map(|l| l.split('\t').collect::<Vec<_>>()).map(|c| (c[0], decode(c[1]))).collect()
}

pub fn description(t: &Datatype) -> String {
    let mut out = Vec::new();
    type_json(t).write(&mut out);
    String::from_utf8(out).unwrap()
}

pub fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    match result {
        Err(Error::Refused { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptions_come_back() {
    let mut same = 0;
    for (name, t) in types() {
        let back = parse_datatype(&description(&t)).unwrap_or_else(|e| panic!("{name}: {e}"));
        // A committed compound has gaps behind its variable-length members, which have their size
        // in memory.
        if name != "compound vlen" {
            assert_eq!(description(&back), description(&t), "{name}");
        }
        same += usize::from(back.to_bytes() == t.to_bytes());
        // Committed variable-length types have the size of their elements in memory.
        if t.version > 2 || t.contains_vlen() {
            continue;
        }
        // What libhdf5 wrote in its older versions is made again byte for byte.
        assert_eq!(back.to_bytes(), t.to_bytes(), "{name} {back:?} {t:?}");
    }
    assert!(same > 80, "{same}");
}

/// A copy in types is that of the description, and keeps what a description does not have: the kind
/// of references.
#[test]
fn types_are_remade_as_their_descriptions_make_them() {
    for (name, t) in types() {
        let made = Maker { sizeof_addr: 8 }.remake(&t).unwrap_or_else(|e| panic!("{name}: {e}"));
        let described = parse_datatype(&description(&t)).unwrap();
        if made.any(&|t| matches!(&t.class, Class::Reference(r) if r.kind != ReferenceKind::Object2 && r.is_standard())) {
            assert_eq!(made.size, described.size, "{name}");
        } else if name != "compound vlen" {
            assert_eq!(made.to_bytes(), described.to_bytes(), "{name}");
        }
        // What follows a member of another size is moved; gaps stay.
        let narrow = Maker { sizeof_addr: 4 }.remake(&t).unwrap();
        assert_eq!(Maker { sizeof_addr: 8 }.remake(&narrow).unwrap().to_bytes(), made.to_bytes(), "{name}");
        assert_eq!(narrow.size < made.size, made.contains_vlen() || made.contains_reference(), "{name}");
    }
}

#[test]
fn numpy_notation_comes_back() {
    let mut seen = 0;
    for (name, t) in types() {
        let Some(text) = numpy_dtype(&t).map(|d| d.to_string()) else { continue };
        let back = parse_datatype(&text).unwrap_or_else(|e| panic!("{name} {text}: {e}"));
        assert_eq!(numpy_dtype(&back).map(|d| d.to_string()), Some(text), "{name}");
        assert_eq!(back.size, t.size);
        seen += 1;
        // The same with nameless gaps, as in .npy headers.
        if let Some(npy) = super::super::npy_descr(&t).filter(|d| d.descr.starts_with('[')) {
            let back = parse_datatype(&npy.descr).unwrap_or_else(|e| panic!("{name} {}: {e}", npy.descr));
            assert_eq!(super::super::npy_descr(&back).map(|d| d.descr), Some(npy.descr));
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn names_that_people_type() {
    let pairs = [
        ("float64", "<f8"),
        ("int32", "<i4"),
        ("uint8", "|u1"),
        ("f8", "<f8"),
        (" =i4 ", "<i4"),
        ("S10", "|S10"),
        ("bool", "|b1"),
        ("complex128", "<c16"),
        ("H5T_IEEE_F64BE", ">f8"),
        ("H5T_STD_U16BE", ">u2"),
        ("H5T_STD_B8LE", "|u1"),
        ("H5T_COMPLEX_IEEE_F32BE", ">c8"),
        ("longdouble", "<f16"),
        ("M8[ns]", "<M8[ns]"),
        ("[('a', 'f4'), ('b', 'i2', 3)]", "[('a', '<f4'), ('b', '<i2', (3,))]"),
        (r#"[["a", "f4"], ["b", "i2", [3]]]"#, "[('a', '<f4'), ('b', '<i2', (3,))]"),
        ("('f8', (2, 3))", "('<f8', (2, 3))"),
        ("{'names': ['x'], 'formats': ['u1'], 'itemsize': 4}", "{'names': ['x'], 'formats': ['|u1'], 'offsets': [0], 'itemsize': 4}"),
    ];
    for (text, want) in pairs {
        let t = parse_datatype(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(numpy_dtype(&t).map(|d| d.to_string()).as_deref(), Some(want), "{text}");
    }
    // As h5py writes them.
    let golden = |name: &str| types().into_iter().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!(parse_datatype("bool"), Ok(golden("bool")));
    assert_eq!(parse_datatype("c16"), Ok(golden("complex compound")));
    let committed = Datatype { size: 16, ..golden("vlen string pad0 cset1") };
    assert_eq!(parse_datatype("str"), Ok(committed));
    assert_eq!(parse_datatype("<f16"), Ok(golden("long double")));
    let small = parse_datatype_in("str", 4).unwrap();
    assert_eq!(small.size, 12);
    let t = parse_datatype(r#"{"class":"H5T_ENUM","base":"i2","members":{"A":1,"B":-1}}"#).unwrap();
    assert_eq!(description(&t), description(&parse_datatype(&description(&t)).unwrap()));
}

#[test]
fn bad_datatypes_are_refused() {
    let bad = [
        "",
        "x",
        "f3",
        "i16",
        "<",
        "f",
        "S0",
        "b2",
        "c4",
        "float7",
        "[]",
        "{}",
        "('f8', (0,))",
        "[('a', 'f8'), ('a', 'f8')]",
        "[('a',)]",
        "{'names': ['a', 'b'], 'formats': ['f8', 'f8'], 'offsets': [0, 4]}",
        "{'names': ['a'], 'formats': ['f8'], 'itemsize': 4}",
        r#"{"class":"H5T_NOTHING"}"#,
        r#"{"class":"H5T_INTEGER","base":"H5T_IEEE_F64LE"}"#,
        r#"{"class":"H5T_INTEGER"}"#,
        r#"{"class":"H5T_INTEGER","base":"H5T_STD_I8LE","colour":1}"#,
        r#"{"class":"H5T_STRING","length":0}"#,
        r#"{"class":"H5T_ENUM","base":"i1","members":{"A":128}}"#,
        r#"{"class":"H5T_ENUM","base":"f4","members":{}}"#,
        r#"{"class":"H5T_FLOAT","size":4,"order":"H5T_ORDER_LE","precision":32,"signLocation":31,"exponentLocation":23,"exponentSize":8,"exponentBias":127,"mantissaLocation":0,"mantissaSize":24,"normalization":"H5T_NORM_IMPLIED"}"#,
        "H5T_IEEE_F64",
        "H5T_STD_I24LE",
        "H5T_VAX_F32LE",
        "H5T_STD_\u{e4}",
        "\u{e4}",
    ];
    for text in bad {
        assert!(matches!(errno(parse_datatype(text)), libc::EINVAL | libc::ERANGE), "{text}");
    }
    assert_eq!(errno(parse_datatype("U5")), libc::EOPNOTSUPP);
    assert_eq!(errno(parse_datatype("O")), libc::EOPNOTSUPP);
    let deep = format!("{}\"i1\"{}", r#"{"class":"H5T_VLEN","base":"#.repeat(40), "}".repeat(40));
    assert_eq!(errno(parse_datatype(&deep)), libc::EINVAL);
}

fn shown_as(t: &Datatype, shape: &Shape, bytes: &[u8], json: bool) -> Vec<u8> {
    let limited = Limited { parts: &NoHeap, limit: 1 << 20 };
    let elements = Elements { datatype: t, shape, bytes };
    if json { json_value(&elements, &limited).unwrap() } else { value_text(&elements, &limited).unwrap() }
}

/// True when every pattern of bits is a different value that is shown whole.
fn is_exact(t: &Datatype) -> bool {
    match &t.class {
        Class::FixedPoint(f) => u32::from(f.precision) == t.size * 8,
        Class::Bitfield(b) => u32::from(b.precision) == t.size * 8,
        Class::Time(u) => u32::from(u.precision) == t.size * 8,
        Class::Opaque(_) => true,
        Class::Enumeration(e) => is_exact(&e.base),
        Class::Array(a) => is_exact(&a.base),
        Class::Compound(c) => c.members.iter().all(|m| is_exact(&m.datatype)) && super::super::names::is_packed(t),
        _ => false,
    }
}

/// Elements to text to elements: the same text again, and the same bytes when these came from text.
fn round(name: &str, t: &Datatype, shape: &Shape, bytes: &[u8]) {
    for json in [false, true] {
        let text = shown_as(t, shape, bytes, json);
        let parse = |text: &[u8]| match json {
            true => store_elements(&elements::from_json(t, shape, &Node::parse(text)?)?, &mut NoStore),
            false => parse_value(t, shape, text),
        };
        let back = parse(&text).unwrap_or_else(|e| panic!("{name} {}: {e}", String::from_utf8_lossy(&text)));
        assert_eq!(shown_as(t, shape, &back, json), text, "{name} {bytes:02x?} {back:02x?}");
        assert_eq!(parse(&text).unwrap(), back, "{name}");
        if is_exact(t) {
            assert_eq!(back, bytes, "{name}");
        }
    }
}

#[test]
fn random_elements_come_back() {
    let mut state = 88172645463325252u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let fixed: Vec<_> = types().into_iter().filter(|(_, t)| !t.contains_vlen() && !t.contains_reference() && t.size < 1000).collect();
    let mut seen = HashSet::new();
    for (name, t) in &fixed {
        seen.insert(t.class_number());
        for round_number in 0..12u64 {
            let dims: Vec<u64> = (0..random() % 3).map(|_| 1 + random() % 3).collect();
            let shape = if dims.is_empty() { Shape::Scalar } else { Shape::Simple { dims, max: None } };
            let len = shape.count().unwrap() * t.element_size();
            // Few and many bits, letters.
            let bytes: Vec<u8> = (0..len)
                .map(|_| match round_number % 4 {
                    0 => random() as u8,
                    1 => (random() & random() & random()) as u8,
                    2 => b"ab \0\xff"[random() as usize % 5],
                    _ => [0, 0xff, 1, 0x80][random() as usize % 4],
                })
                .collect();
            round(name, t, &shape, &bytes);
        }
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
}

/// Rows of a table of numbers: type, bits, text.
fn numbers(table: &'static str) -> Vec<(Datatype, Vec<u8>, &'static str)> {
    let mut datatype = None;
    let row = |l: &'static str| {
        let c: Vec<&str> = l.split('\t').collect();
        if !c[0].is_empty() {
            datatype = Some(decode(c[0]));
        }
        (datatype.clone().unwrap(), unhex(c[1]), c[2])
    };
    table.lines().map(row).collect()
}

#[test]
fn floats_come_back_bit_for_bit() {
    for (t, bytes, text) in numbers(FLOATS).into_iter().chain(numbers(SMALL)) {
        let back = parse_value(&t, &Shape::Scalar, text.as_bytes()).unwrap();
        if text != "NaN" {
            assert_eq!(back, bytes, "{t:?} {text}");
        }
        assert_eq!(shown_as(&t, &Shape::Scalar, &back, false), shown_as(&t, &Shape::Scalar, &bytes, false));
    }
}

#[test]
fn bounds_of_integers() {
    let cases: [(&str, &str, std::result::Result<&[u8], i32>); 16] = [
        ("i1", "127", Ok(&[127])),
        ("i1", "-128", Ok(&[128])),
        ("i1", "128", Err(libc::ERANGE)),
        ("i1", "-129", Err(libc::ERANGE)),
        ("u1", "255", Ok(&[255])),
        ("u1", "256", Err(libc::ERANGE)),
        ("u1", "-1", Err(libc::ERANGE)),
        ("u1", "-0", Ok(&[0])),
        ("u1", "0x1f\n", Ok(&[31])),
        (">i2", "+258", Ok(&[1, 2])),
        ("u8", "18446744073709551616", Err(libc::ERANGE)),
        ("u8", "99999999999999999999999999999999999999999999", Err(libc::ERANGE)),
        ("i4", "1.5", Err(libc::EINVAL)),
        ("i4", "", Err(libc::EINVAL)),
        ("i4", "[1]", Err(libc::EINVAL)),
        ("i4", "zw\u{f6}lf", Err(libc::EINVAL)),
    ];
    for (dtype, text, want) in cases {
        let got = parse_value(&parse_datatype(dtype).unwrap(), &Shape::Scalar, text.as_bytes());
        match want {
            Ok(bytes) => assert_eq!(got.as_deref(), Ok(bytes), "{dtype} {text}"),
            Err(code) => assert_eq!(errno(got), code, "{dtype} {text}"),
        }
    }
    let wide = parse_datatype(r#"{"class":"H5T_INTEGER","size":20,"order":"H5T_ORDER_BE","sign":"H5T_SGN_2","precision":160}"#).unwrap();
    let minus = parse_value(&wide, &Shape::Scalar, b"-2").unwrap();
    assert_eq!(minus, [vec![0xff; 19], vec![0xfe]].concat());
    assert_eq!(parse_value(&wide, &Shape::Scalar, &shown_as(&wide, &Shape::Scalar, &minus, false)), Ok(minus));
}

#[test]
fn strings_and_their_padding() {
    let of = |padding: &str, text: &[u8]| {
        let t = parse_datatype(&format!(r#"{{"class":"H5T_STRING","strPad":"H5T_STR_{padding}","length":4}}"#)).unwrap();
        parse_value(&t, &Shape::Scalar, text)
    };
    assert_eq!(of("NULLTERM", b"ab").unwrap(), b"ab\0\0");
    assert_eq!(of("NULLTERM", b"abcd").unwrap(), b"abcd");
    assert_eq!(of("NULLPAD", b"a\0b\0\0\0\0").unwrap(), b"a\0b\0");
    assert_eq!(of("SPACEPAD", b"").unwrap(), b"    ");
    assert_eq!(errno(of("NULLPAD", b"abcde")), libc::ERANGE);
    assert_eq!(errno(of("NULLTERM", b"a\0b")), libc::EINVAL);
    let t = parse_datatype("S2").unwrap();
    let shape = Shape::Simple { dims: vec![2, 2], max: None };
    for text in [&br#"["a","b","c","dd"]"#[..], br#"[["a","b"],["c","dd"]]"#] {
        assert_eq!(parse_value(&t, &shape, text).unwrap(), b"a\0b\0c\0dd");
    }
    for text in [&b""[..], b"a", br#"["a","b","c"]"#, br#"["a","b",["c","d"]]"#, br#"["a","b",1,"d"]"#, br#"[["a","b"]]"#] {
        assert_eq!(errno(parse_value(&t, &shape, text)), libc::EINVAL);
    }
}

#[test]
fn members_by_name() {
    let t = parse_datatype("[('a', 'i1'), ('b', '>i2', 2), ('c', 'S2')]").unwrap();
    let one = |text: &str| parse_value(&t, &Shape::Scalar, text.as_bytes());
    assert_eq!(one(r#"{"c":"x","a":1,"b":[2,3]}"#).unwrap(), [1, 0, 2, 0, 3, b'x', 0]);
    assert_eq!(one(r#"[1,[2,3],"x"]"#).unwrap(), [1, 0, 2, 0, 3, b'x', 0]);
    for bad in
        ["", "{}", r#"{"a":1,"b":[2,3]}"#, r#"{"c":"x","a":1,"b":[2,3],"d":1}"#, r#"{"c":"x","a":1,"b":[2,3],"a":1}"#, "[1,[2,3]]", "5"]
    {
        assert_eq!(errno(one(bad)), libc::EINVAL, "{bad}");
    }
    assert_eq!(errno(one(r#"{"c":"xyz","a":1,"b":[2,3]}"#)), libc::ERANGE);
    let bool_ = parse_datatype("bool").unwrap();
    for (text, want) in [("TRUE", 1), ("FALSE", 0), ("1", 1), ("7", 7)] {
        assert_eq!(parse_value(&bool_, &Shape::Scalar, text.as_bytes()).unwrap(), [want]);
    }
    assert_eq!(errno(parse_value(&bool_, &Shape::Scalar, b"perhaps")), libc::EINVAL);
    let pair = Shape::Simple { dims: vec![3], max: None };
    assert_eq!(parse_value(&bool_, &pair, br#"["TRUE",false,2]"#).unwrap(), [1, 0, 2]);
}

#[test]
fn parts_outside_the_element_are_stored() {
    let t = parse_datatype(
        r#"{"class":"H5T_COMPOUND","fields":[{"name":"s","type":"str"},{"name":"n","type":{"class":"H5T_VLEN","base":"i2"}}]}"#,
    )
    .unwrap();
    let text = r#"{"s":"h\u00e9\u00e9","n":[1,-1]}"#;
    assert_eq!(errno(parse_value(&t, &Shape::Scalar, text.as_bytes())), libc::EOPNOTSUPP);
    let mut kept = Vec::new();
    let mut store = |count: u32, payload: &[u8]| {
        kept.push((count, payload.to_vec()));
        Ok(vec![kept.len() as u8; 16])
    };
    let bytes = parse_value_with(&t, &Shape::Scalar, text.as_bytes(), &mut store).unwrap();
    assert_eq!(bytes, [vec![1; 16], vec![2; 16]].concat());
    assert!(parse_value_with(&t, &Shape::Scalar, br#"{"s":"a","n":[1,"x"]}"#, &mut store).is_err());
    // Nothing was stored for the text that is wrong behind its first part.
    assert_eq!(kept, [(5, "h\u{e9}\u{e9}".as_bytes().to_vec()), (2, vec![1, 0, 0xff, 0xff])]);
    let mut short = |_: u32, _: &[u8]| Ok(vec![0; 12]);
    assert!(parse_value_with(&t, &Shape::Scalar, text.as_bytes(), &mut short).is_err());
}

struct Objects;

impl HeapStore for Objects {
    fn sequence(&mut self, _: u32, _: &[u8]) -> Result<Vec<u8>> {
        Err(invalid("not asked for"))
    }

    fn object(&mut self, path: &[u8]) -> Result<Address> {
        if path == b"/g" { Ok(Address(0x1234)) } else { Err(Error::refused(libc::ENOENT, "no such object")) }
    }
}

#[test]
fn references_by_path() {
    let of = |base: &str| parse_datatype(&format!(r#"{{"class":"H5T_REFERENCE","base":"{base}"}}"#)).unwrap();
    let (old, standard, region) = (of("H5T_STD_REF_OBJ"), of("H5T_STD_REF"), of("H5T_STD_REF_DSETREG"));
    let two = Shape::Simple { dims: vec![2], max: None };
    assert_eq!(parse_value(&old, &Shape::Scalar, b"").unwrap(), [0; 8]);
    assert_eq!(parse_value(&region, &two, b"[null,null]").unwrap(), [0; 24]);
    assert_eq!(errno(parse_value(&old, &Shape::Scalar, b"/g")), libc::EOPNOTSUPP);
    let into = |t: &Datatype, shape: &Shape, text: &[u8]| parse_value_into(t, shape, text, &mut Objects);
    assert_eq!(into(&old, &two, br#"["/g",null]"#).unwrap(), [[0x34, 0x12, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
    let element = into(&standard, &Shape::Scalar, b"/g").unwrap();
    assert_eq!(element, [2, 0, 8, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(errno(into(&old, &Shape::Scalar, b"/h")), libc::ENOENT);
    assert_eq!(errno(into(&region, &Shape::Scalar, br#"{"dataset":"/g","selection":"00"}"#)), libc::EOPNOTSUPP);
}

proptest! {
    #[test]
    fn any_text_ends(text in ".{0,40}", which in 0usize..200) {
        let types = types();
        let (_, t) = &types[which % types.len()];
        let shape = if which % 2 == 0 { Shape::Scalar } else { Shape::Simple { dims: vec![2], max: None } };
        if t.size < 1 << 16 {
            let _ = parse_value_with(t, &shape, text.as_bytes(), &mut |_, _| Ok(vec![0; 16]));
        }
        let _ = parse_datatype(&text);
    }

    /// Damaged descriptions are read as something else or refused.
    #[test]
    fn damaged_descriptions(which in 0usize..200, at: prop::sample::Index, with in proptest::sample::select(&b"{}[]\",:019aHx'("[..])) {
        let types = types();
        let (_, t) = &types[which % types.len()];
        for text in [description(t), numpy_dtype(t).map(|d| d.to_string()).unwrap_or_default()] {
            let mut bytes = text.into_bytes();
            if bytes.is_empty() {
                continue;
            }
            let i = at.index(bytes.len());
            bytes[i] = with;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let _ = parse_datatype(text);
                let _ = parse_datatype(&text[..i]);
            }
        }
    }
}
