//! Descriptions and values against h5py, numpy and libhdf5 (tests/fixtures/datatype).

use super::attributes::AttributesJson;
use super::value::{json_value, value_text};
use super::*;
use crate::base::datatype::{Class, Datatype};
use crate::base::parts::{Budget, Limited, Parts};
use crate::base::shape::Shape;
use crate::base::value::Elements;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::dataset::heap::Heap;
use crate::format::message::datatype;
use crate::format::{Context, Reader};
use std::collections::HashMap;

const TYPES: &str = include_str!("../../tests/fixtures/datatype/types.tsv");
const FLOATS: &str = include_str!("../../tests/fixtures/datatype/floats.tsv");
const SMALL: &str = include_str!("../../tests/fixtures/datatype/small.tsv");
const VALUES: &str = include_str!("../../tests/fixtures/datatype/values.tsv");
const FILE: &[u8] = include_bytes!("../../tests/fixtures/datatype/values.h5");

fn unhex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

fn decode(hex: &str) -> Datatype {
    datatype::decode(&mut Reader::new(&unhex(hex), "datatype", Address(0))).unwrap()
}

fn limited(parts: &dyn Parts) -> Limited<'_> {
    Limited { parts, limit: 1 << 20 }
}

/// A place without a heap.
pub struct NoHeap;

impl Heap for NoHeap {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, _: u32, _: &mut Budget) -> Result<Vec<u8>> {
        Err(Error::unsupported("global heap", collection, "no file to look in"))
    }
}

/// Global heap of a file in memory, paths by address.
struct File {
    bytes: Vec<u8>,
    paths: HashMap<u64, Vec<u8>>,
}

impl File {
    fn open() -> File {
        let objects = VALUES.lines().filter_map(|l| l.strip_prefix("object\t")?.split_once('\t'));
        let paths = objects.map(|(path, at)| (at.parse().unwrap(), path.as_bytes().to_vec())).collect();
        File { bytes: FILE.to_vec(), paths }
    }
}

impl Heap for File {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        let start = usize::try_from(collection.0).unwrap();
        let mut r = Reader::new(self.bytes.get(start..).unwrap_or_default(), "GCOL", collection);
        r.signature(b"GCOL")?;
        r.skip(12)?;
        loop {
            let (id, _, len) = (r.u16()?, r.skip(6)?, r.u64()?);
            let data = r.bytes(len as usize)?;
            if u32::from(id) == index && id != 0 {
                budget.read(data.len() as u64)?;
                return Ok(data.to_vec());
            }
            r.skip((8 - len as usize % 8) % 8)?;
            if id == 0 {
                return Err(r.corrupt("no such object"));
            }
        }
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        self.paths.get(&address.0).cloned()
    }
}

struct Row {
    name: &'static str,
    datatype: Datatype,
    shape: Shape,
    bytes: Vec<u8>,
    text: Vec<u8>,
    json: Vec<u8>,
    exact: Option<Vec<u8>>,
}

fn rows() -> Vec<Row> {
    let row = |l: &'static str| {
        let c: Vec<&str> = l.split('\t').collect();
        let datatype = decode(c[1]);
        let shape = match c[2] {
            "scalar" => Shape::Scalar,
            dims => Shape::Simple { dims: dims.split(',').map(|d| d.parse().unwrap()).collect(), max: None },
        };
        let at: usize = c[3].parse().unwrap();
        let len = (shape.count().unwrap() * datatype.element_size()) as usize;
        let exact = (!c[6].is_empty()).then(|| unhex(c[6]));
        Row { name: c[0], datatype, shape, bytes: FILE[at..at + len].to_vec(), text: unhex(c[4]), json: unhex(c[5]), exact }
    };
    VALUES.lines().filter_map(|l| l.strip_prefix("value\t")).map(row).collect()
}

impl Row {
    fn elements(&self) -> Elements<'_> {
        Elements { datatype: &self.datatype, shape: &self.shape, bytes: &self.bytes }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.datatype.size as usize)
    }
}

/// `@` in place of each selection, as the tables have it.
fn without_selections(text: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"\"selection\":{";
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.windows(KEY.len()).position(|w| w == KEY) {
        let (front, selection) = rest.split_at(at + KEY.len() - 1);
        out.extend_from_slice(front);
        out.extend_from_slice(b"\"@\"");
        rest = &selection[selection.iter().position(|b| *b == b'}').unwrap() + 1..];
    }
    out.extend_from_slice(rest);
    out
}

fn show(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

#[test]
fn numpy_notation_agrees_with_h5py() {
    for line in TYPES.lines() {
        let c: Vec<&str> = line.split('\t').collect();
        let t = decode(c[1]);
        assert_eq!(numpy_dtype(&t).map(|d| d.to_string()).unwrap_or_default(), c[2], "{}", c[0]);
        let npy = npy_descr(&t).map(|d| d.descr).unwrap_or_default();
        // numpy does not write fields that are not in the order of their offsets; a header may hold
        // them in order.
        let want = if c[0] == "compound order" { "[('first', '>u4'), ('second', '<i4')]" } else { c[3] };
        assert_eq!(npy, want, "{}", c[0]);
    }
    let named = |name: &str| decode(TYPES.lines().find(|l| l.starts_with(name)).unwrap().split('\t').nth(1).unwrap());
    assert_eq!(npy_descr(&named("array array\t")).unwrap().dims, [2, 3, 4]);
}

#[test]
fn descriptions_differ_wherever_types_do() {
    let mut seen: HashMap<String, Datatype> = HashMap::new();
    for line in TYPES.lines() {
        let t = decode(line.split('\t').nth(1).unwrap());
        let description = json_type(&t).to_string();
        assert!(text(&t).ends_with('\n') && !text(&t).contains("\n\n"));
        let mut bytes = Vec::new();
        type_json(&t).write(&mut bytes);
        assert_eq!(show(&bytes), description);
        if let Some(other) = seen.get(&description) {
            // Versions differ, and standard references do not say which kind.
            assert_eq!(text(other), text(&t), "{line}");
        }
        seen.insert(description, t);
    }
    assert!(seen.len() > 60, "{}", seen.len());
}

#[test]
fn types_in_json_and_words() {
    let named = |name: &str| decode(TYPES.lines().find(|l| l.starts_with(name)).unwrap().split('\t').nth(1).unwrap());
    let json = |name: &str| json_type(&named(name)).to_string();
    assert_eq!(json("int >i4\t"), r#"{"class":"H5T_INTEGER","base":"H5T_STD_I32BE"}"#);
    assert_eq!(json("H5T_FLOAT_BFLOAT16LE"), r#"{"class":"H5T_FLOAT","base":"H5T_FLOAT_BFLOAT16LE"}"#);
    assert_eq!(
        json("vlen string pad0 cset1"),
        r#"{"class":"H5T_STRING","charSet":"H5T_CSET_UTF8","strPad":"H5T_STR_NULLTERM","length":"H5T_VARIABLE"}"#
    );
    assert_eq!(
        json("bool"),
        r#"{"class":"H5T_ENUM","base":{"class":"H5T_INTEGER","base":"H5T_STD_I8LE"},"members":[{"name":"FALSE","value":0},{"name":"TRUE","value":1}]}"#
    );
    assert_eq!(
        json("uint12 be"),
        r#"{"class":"H5T_INTEGER","size":2,"order":"H5T_ORDER_BE","sign":"H5T_SGN_NONE","precision":12,"bitOffset":0,"lsbPad":"H5T_PAD_ZERO","msbPad":"H5T_PAD_ONE"}"#
    );
    assert_eq!(
        json("compound order"),
        r#"{"class":"H5T_COMPOUND","fields":[{"name":"second","type":{"class":"H5T_INTEGER","base":"H5T_STD_I32LE"},"offset":4},{"name":"first","type":{"class":"H5T_INTEGER","base":"H5T_STD_U32BE"},"offset":0}]}"#
            .replace(r#""fields""#, r#""size":8,"fields""#)
    );
    assert_eq!(text(&named("compound\t")), "H5T_COMPOUND {\n   H5T_STD_I32LE \"a\";\n   H5T_IEEE_F64LE \"b\";\n}\n");
    assert_eq!(text(&named("array string")).lines().next(), Some("H5T_ARRAY { [5] H5T_STRING {"));
    assert_eq!(text(&named("bool")), "H5T_ENUM {\n   H5T_STD_I8LE;\n   \"FALSE\"            0;\n   \"TRUE\"             1;\n}\n");
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
fn floats_read_back() {
    for (datatype, bytes, want) in numbers(FLOATS) {
        let elements = Elements { datatype: &datatype, shape: &Shape::Scalar, bytes: &bytes };
        assert_eq!(show(&value_text(&elements, &limited(&NoHeap)).unwrap()), want, "{datatype:?} {bytes:02x?}");
    }
}

#[test]
fn shortest_digits_of_small_types() {
    for (datatype, bytes, want) in numbers(SMALL) {
        let Class::FloatingPoint(f) = &datatype.class else { panic!() };
        let Some(number::Float::Finite(negative, v)) = number::float(f, &bytes) else { panic!() };
        let (digits, k) = decimal::shortest(v);
        assert_eq!(decimal::format(negative, &digits, k), want, "{datatype:?} {bytes:02x?}");
    }
}

#[test]
fn values_of_a_file() {
    let file = File::open();
    for row in rows() {
        let text = value_text(&row.elements(), &limited(&file)).unwrap();
        assert_eq!(show(&without_selections(&text)), show(&row.text), "{}", row.name);
        assert_eq!(without_selections(&text), row.text, "{}", row.name);
        let json = json_value(&row.elements(), &limited(&file)).unwrap();
        assert_eq!(show(&without_selections(&json)), show(&row.json), "{}", row.name);
        if let Some(want) = &row.exact {
            let form = VariableForm::of(&row.datatype);
            let mut got = Vec::new();
            for part in row.parts() {
                let before = got.len();
                form.exact(part, &limited(&file), &mut got).unwrap();
                assert_eq!(form.exact_len(part, &limited(&file)).unwrap(), (got.len() - before) as u64, "{}", row.name);
            }
            assert_eq!(&got, want, "{}", row.name);
        }
    }
}

#[test]
fn lines_of_strings() {
    let file = File::open();
    let row = rows().into_iter().find(|r| r.name == "strings").unwrap();
    let mut out = Vec::new();
    for part in row.parts() {
        VariableForm::of(&row.datatype).line(part, &limited(&file), &mut out).unwrap();
    }
    assert_eq!(out, b"first\n\nzw\xc3\xb6lf\nbad \xff byte\nq\"\\\n\n");
}

#[test]
fn attributes_are_listed_even_if_one_cannot_be_read() {
    let (file, rows) = (File::open(), rows());
    let list = |rows: &[Row], limited: &Limited<'_>| {
        let mut json = AttributesJson::new(limited.limit);
        rows.iter().try_for_each(|r| json.add(r.name.as_bytes(), &r.elements(), limited.parts))?;
        Ok(json.finish())
    };
    let json = list(&rows, &limited(&file)).unwrap();
    let parsed: Vec<serde_json::Value> = serde_json::from_str(&show(&json).replace("\\udcff", "?")).unwrap();
    assert_eq!(parsed.len(), rows.len());
    assert!(parsed.iter().all(|a| a.get("value").is_some() && a["shape"].get("class").is_some()));
    let json = list(&rows, &limited(&NoHeap)).unwrap();
    assert!(show(&json).contains(r#""name":"strings","type""#) && show(&json).contains(r#""error":"unsupported global heap"#));
    let small = Limited { limit: 300, ..limited(&file) };
    assert!(matches!(list(&rows, &small), Err(Error::Limit { .. })));
    assert_eq!(list(&[], &small).unwrap(), b"[\n]\n");
    let simple = Shape::Simple { dims: vec![2], max: Some(vec![u64::MAX]) };
    assert_eq!(attributes::shape_json(&simple).to_value().to_string(), r#"{"class":"H5S_SIMPLE","dims":[2],"maxdims":["H5S_UNLIMITED"]}"#);
}

#[test]
fn empty_and_impossible_extents() {
    let datatype = decode("100800000400000000002000");
    let shown = |shape: Shape, bytes: &[u8]| {
        let elements = Elements { datatype: &datatype, shape: &shape, bytes };
        let e = limited(&NoHeap);
        (value_text(&elements, &e).map(|b| show(&b)), json_value(&elements, &e).map(|b| show(&b)))
    };
    let simple = |dims: &[u64]| Shape::Simple { dims: dims.to_vec(), max: None };
    assert_eq!(shown(Shape::Null, &[]), (Ok(String::new()), Ok("null".into())));
    assert_eq!(shown(simple(&[1 << 60, 0]), &[]), (Ok(String::new()), Ok("[]".into())));
    assert_eq!(shown(Shape::Scalar, &[1, 0, 0, 0]), (Ok("1".into()), Ok("1".into())));
    for dims in [&[2][..], &[1 << 40, 1 << 40], &[u64::MAX]] {
        assert!(matches!(shown(simple(dims), &[0; 7]), (Err(Error::Corrupt { .. }), Err(Error::Corrupt { .. }))));
    }
}

/// Sequences of sequences that all name one heap object grow by its length at every level.
struct Bomb;

impl Heap for Bomb {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, _: Address, _: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        budget.read(16 * 4096)?;
        Ok(unhex("00100000080000000000000001000000").repeat(4096))
    }
}

#[test]
fn hostile_nesting_ends_at_the_limit() {
    let datatype = decode(&format!("{}{}", "1900000010000000".repeat(20), "100800000400000000002000"));
    let element = unhex("00100000080000000000000001000000");
    let elements = Elements { datatype: &datatype, shape: &Shape::Scalar, bytes: &element };
    let e = Limited { limit: 64 << 10, ..limited(&Bomb) };
    assert!(matches!(value_text(&elements, &e), Err(Error::Limit { .. })));
    assert!(matches!(json_value(&elements, &e), Err(Error::Limit { .. })));
    let form = VariableForm::of(&datatype);
    assert!(matches!(form.exact_len(&element, &e), Err(Error::Limit { .. })));
    assert!(matches!(form.exact(&element, &e, &mut Vec::new()), Err(Error::Limit { .. })));
    // One element of the object each time: little output, much reading.
    let thin = unhex("01000000080000000000000001000000");
    let many = thin.repeat(10_000);
    let shape = Shape::Simple { dims: vec![10_000], max: None };
    let datatype = decode("1900000010000000100800000400000000002000");
    let elements = Elements { datatype: &datatype, shape: &shape, bytes: &many };
    assert!(matches!(value_text(&elements, &Limited { limit: 1 << 18, ..e }), Err(Error::Limit { .. })));
}

#[test]
fn damaged_values_are_errors_or_other_values() {
    for row in rows() {
        let mut file = File::open();
        for i in 0..row.bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = row.bytes.clone();
                bytes[i] ^= flip;
                let elements = Elements { bytes: &bytes, ..row.elements() };
                let _ = value_text(&elements, &limited(&QuietFile(&file)));
                let _ = VariableForm::of(&row.datatype).exact(&bytes[..row.datatype.size as usize], &limited(&file), &mut Vec::new());
            }
        }
        // Damage in the heap itself.
        for at in (2048..6200).step_by(13) {
            file.bytes[at] ^= 0x41;
            let _ = value_text(&row.elements(), &limited(&QuietFile(&file)));
            file.bytes[at] ^= 0x41;
        }
        assert!(value_text(&Elements { bytes: &row.bytes[..row.bytes.len() - 1], ..row.elements() }, &limited(&file)).is_err());
    }
}

/// A file that does not check what it is asked.
struct QuietFile<'a>(&'a File);

impl Heap for QuietFile<'_> {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        if collection.0 > 1 << 40 { Err(Error::corrupt("GCOL", collection, "far")) } else { self.0.object(collection, index, budget) }
    }
}

#[test]
fn short_heap_objects_are_corrupt() {
    let row = rows().into_iter().find(|r| r.name == "sequences").unwrap();
    let mut element = row.parts().next().unwrap().to_vec();
    element[0] = 4;
    let file = File::open();
    let form = VariableForm::of(&row.datatype);
    assert_eq!(form.exact_len(&element, &limited(&file)), Ok(20));
    assert!(matches!(form.exact(&element, &limited(&file), &mut Vec::new()), Err(Error::Corrupt { .. })));
    // Nil: no address.
    element[4..12].fill(0xff);
    assert_eq!(form.exact_len(&element, &limited(&file)), Ok(4));
}
