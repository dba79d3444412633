//! Attributes of files that libhdf5 wrote, from their text.

use super::attributes::AttributesJson;
use super::parse::{AttributeList, parse_datatype, parse_fact, parse_value};
use super::value::value_text;
use super::{attribute_raw, attribute_text, describe, fact};
use crate::base::datatype::Class;
use crate::base::datatype::Datatype;
use crate::base::fill::Fill;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::connector::native::NativeConnector;
use crate::connector::native::tests::try_open;
use crate::connector::{Budget, Elements, FillSpec, Limited, NewAttribute};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::dataset::heap::{Heap as GlobalHeap, HeapStore};
use crate::dataset::parts::store_elements;
use crate::format::Context;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

/// A heap in memory that elements refer to by collection.
#[derive(Default)]
struct Heap {
    objects: Vec<Vec<u8>>,
}

impl HeapStore for Heap {
    fn sequence(&mut self, count: u32, payload: &[u8]) -> Result<Vec<u8>> {
        if count == 0 {
            return Ok(vec![0; 16]);
        }
        self.objects.push(payload.to_vec());
        Ok([&count.to_le_bytes()[..], &(self.objects.len() as u64).to_le_bytes(), &1u32.to_le_bytes()].concat())
    }

    fn object(&mut self, path: &[u8]) -> Result<Address> {
        Ok(Address(1000 + path.len() as u64))
    }
}

impl GlobalHeap for Heap {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, _: u32, _: &mut Budget) -> Result<Vec<u8>> {
        Ok(self.objects[collection.0 as usize - 1].clone())
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        Some(vec![b'/'; (address.0 - 1000) as usize])
    }
}

fn parse_value_into(t: &Datatype, shape: &Shape, text: &[u8], store: &mut dyn HeapStore) -> Result<Vec<u8>> {
    store_elements(&parse_value(t, shape, text)?, store)
}

/// What was seen.
#[derive(Debug, Default)]
struct Tally {
    files: usize,
    facts: usize,
    attributes: usize,
    refused: usize,
    classes: HashMap<u8, u32>,
}

/// Every object of a file has its attributes listed, made again from the list, and listed again.
fn file(path: &Path, tally: &mut Tally) {
    let Ok(c) = try_open(&std::fs::read(path).unwrap()) else { return };
    tally.files += 1;
    let mut ids = vec![c.root()];
    let mut at = 0;
    while at < ids.len() && at < 200 {
        let id = ids[at];
        at += 1;
        let _ = c.list(id, 0, &mut |link, _| {
            if let Ok(Some(child)) = c.resolve(id, &link.name)
                && !ids.contains(&child)
            {
                ids.push(child);
            }
            ControlFlow::Continue(())
        });
        tally.facts += dataset_facts(&c, id, path);
        if let Ok(Some(text)) = fact(&*c, id, "attributes") {
            attributes(&c, id, &text, path, tally);
        }
    }
}

fn attributes(c: &NativeConnector, id: ObjectId, text: &[u8], path: &Path, tally: &mut Tally) {
    let mut heap = Heap::default();
    let specs = match AttributeList::parse(text, 8).and_then(|list| list.values().collect::<Result<Vec<_>>>()) {
        Ok(specs) => specs,
        Err(Error::Refused { errno, reason }) => {
            let text = String::from_utf8_lossy(text);
            // Regions, and attributes that cannot be read.
            assert!(errno == libc::EOPNOTSUPP || text.contains("\"error\":"), "{path:?} {reason} {text}");
            tally.refused += 1;
            return;
        }
        Err(error) => panic!("{path:?} {error}"),
    };
    for spec in &specs {
        *tally.classes.entry(spec.value.datatype.class_number()).or_default() += 1;
    }
    tally.attributes += specs.len();
    // Paths of objects differ in the heap's own way.
    if specs.iter().any(|s| s.value.datatype.contains_reference()) {
        return;
    }
    let mut json = AttributesJson::new(1 << 20);
    for s in &specs {
        let bytes = store_elements(&s.value, &mut heap).unwrap();
        json.add(&s.name, &Elements { datatype: &s.value.datatype, shape: &s.value.shape, bytes: &bytes }, &heap).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&json.finish()), String::from_utf8_lossy(text), "{path:?}");
    texts(c, id, &specs, path);
}

#[test]
fn attributes_and_facts_of_files_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut tally = Tally::default();
    for folder in ["groups", "heaps", "mount", "mount/virtual", "sample", "datatype", "mutants"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "h5") {
                file(&path, &mut tally);
            }
        }
    }
    assert!(tally.attributes > 300 && tally.facts > 1000 && tally.classes.len() >= 8, "{tally:?}");
}

/// The same over the files of the corpus, where there is one.
#[test]
fn attributes_and_facts_of_the_corpus_come_back() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let corpus = std::env::var_os("CORPUS").map_or(beside, Into::into).join("files");
    if !corpus.is_dir() {
        println!("no corpus at {}: nothing to read", corpus.display());
        return;
    }
    let (mut tally, mut folders) = (Tally::default(), vec![corpus]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                file(&path, &mut tally);
            }
        }
    }
    assert!(tally.files > 400 && tally.attributes > 5000, "{tally:?}");
}

/// The facts of a dataset that can be set are read as what the dataset has. Returns their number.
fn dataset_facts(c: &NativeConnector, id: ObjectId, path: &Path) -> usize {
    if !c.info(id).is_ok_and(|i| i.kind == ObjectKind::Dataset) {
        return 0;
    }
    let (Ok(d), mut n) = (Connector::dataset(c, id), 0) else { return 0 };
    for name in ["dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout"] {
        let Ok(Some(text)) = fact(c, id, name) else { continue };
        let shown = String::from_utf8_lossy(&text).into_owned();
        let spec = match parse_fact(name, &text, 8) {
            Err(Error::Refused { errno: libc::EOPNOTSUPP, .. }) if name == "layout" => continue,
            other => other.and_then(|p| p.spec(|| Ok(d.datatype.clone()))).unwrap_or_else(|e| panic!("{path:?} {name} {shown}: {e}")),
        };
        n += 1;
        match name {
            "dtype" => assert_eq!(describe::dtype(&spec.dtype.unwrap()), text),
            "shape" => assert_eq!(spec.shape.unwrap_or_default(), d.shape.dims().unwrap_or_default(), "{path:?} {shown}"),
            "maxshape" => assert_eq!(spec.maxshape.unwrap_or_default(), d.shape.max(), "{path:?} {shown}"),
            "filters" => {
                let shape = |f: &[FilterSpec]| f.iter().map(|f| (f.id, f.flags, f.cd_values.clone())).collect::<Vec<_>>();
                assert_eq!(shape(&spec.filters.unwrap()), shape(&d.filters), "{path:?} {shown}");
            }
            "fillvalue" => {
                let stored = match spec.fillvalue.unwrap() {
                    FillSpec::Value(value) => Some(store_elements(&value, &mut Heap::default()).unwrap()),
                    FillSpec::Default | FillSpec::Undefined => None,
                };
                match &d.fill {
                    // Heap addresses and objects' are others here.
                    Fill::Value(v) if !d.datatype.any(&|t| matches!(t.class, Class::VariableLength(_) | Class::Reference(_))) => {
                        assert_eq!(stored.as_ref(), Some(v), "{path:?} {shown}");
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    n
}

/// The bytes of elements without those between the members of compounds.
fn without_padding(t: &Datatype, bytes: &[u8]) -> Vec<u8> {
    let items = |t: &Datatype, bytes: &[u8]| bytes.chunks(t.size.max(1) as usize).flat_map(|item| without_padding(t, item)).collect();
    match &t.class {
        _ if bytes.len() > t.size as usize => items(t, bytes),
        Class::Compound(compound) => {
            let part = |at: u32, size: u32| bytes.get(at as usize..(at + size) as usize).unwrap_or_default();
            compound.members.iter().flat_map(|m| without_padding(&m.datatype, part(m.offset, m.datatype.size))).collect()
        }
        Class::Array(array) => items(&array.base, bytes),
        _ => bytes.to_vec(),
    }
}

/// The same attributes by their text, one by one.
fn texts(c: &NativeConnector, id: ObjectId, specs: &[NewAttribute], path: &Path) {
    for s in specs {
        let Ok(Some(text)) = attribute_text(c, id, &s.name) else { continue };
        let mut heap = Heap::default();
        let bytes = parse_value_into(&s.value.datatype, &s.value.shape, &text, &mut heap);
        let bytes = bytes.unwrap_or_else(|e| panic!("{path:?} {:?} {}: {e}", s.name, String::from_utf8_lossy(&text)));
        if !s.value.datatype.contains_vlen() {
            // What is shown is all there is, but for the bits of a NaN and bytes between members.
            let whole = !text.windows(3).any(|w| w == b"NaN");
            let shown = without_padding(&s.value.datatype, &bytes);
            let stored = store_elements(&s.value, &mut Heap::default()).unwrap();
            for other in [stored, attribute_raw(c, id, &s.name).unwrap().unwrap()] {
                let same = shown == without_padding(&s.value.datatype, &other);
                assert!(!whole || same, "{path:?} {:?}", String::from_utf8_lossy(&s.name));
            }
        }
        let limited = Limited { parts: &heap, limit: 1 << 20 };
        let elements = Elements { datatype: &s.value.datatype, shape: &s.value.shape, bytes: &bytes };
        assert_eq!(value_text(&elements, &limited).unwrap(), text, "{path:?} {:?}", s.name);
    }
}

fn errno(result: &Result<Vec<u8>>) -> i32 {
    match result {
        Err(Error::Refused { errno, .. }) => *errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn references_to_parts_by_their_json() {
    let of = |base: &str| parse_datatype(&format!(r#"{{"class":"H5T_REFERENCE","base":"{base}"}}"#)).unwrap();
    let (old, standard, region) = (of("H5T_STD_REF_OBJ"), of("H5T_STD_REF"), of("H5T_STD_REF_DSETREG"));
    for selection in [
        r#"{"select_type":"H5S_SEL_POINTS","selection":[[0,1],[2,3]]}"#,
        r#"{"select_type":"H5S_SEL_POINTS","selection":[[4294967296]]}"#,
        r#"{"select_type":"H5S_SEL_HYPERSLABS","selection":[[[0,2],[0,4]],[[5,0],[9,0]]]}"#,
        r#"{"select_type":"H5S_SEL_HYPERSLABS","start":[1],"stride":[3],"count":[18446744073709551615],"block":[2]}"#,
        r#"{"select_type":"H5S_SEL_ALL"}"#,
        r#"{"select_type":"H5S_SEL_NONE"}"#,
        r#"{"attribute":"units"}"#,
    ] {
        let attribute = selection.contains("attribute");
        let text = format!(r#"{{"dataset":"//","selection":{selection}}}"#);
        let text = if attribute { r#"{"object":"//","attribute":"units"}"#.into() } else { text };
        let whole = selection.contains("ALL") || selection.contains("NONE");
        for t in [&region, &standard] {
            let mut heap = Heap::default();
            let made = parse_value_into(t, &Shape::Scalar, text.as_bytes(), &mut heap);
            if attribute && t == &region || whole && t == &standard {
                assert_eq!((errno(&made), heap.objects.len()), (libc::EOPNOTSUPP, 0), "{text}");
                continue;
            }
            let bytes = made.unwrap();
            let limited = Limited { parts: &heap, limit: 1 << 20 };
            let elements = Elements { datatype: t, shape: &Shape::Scalar, bytes: &bytes };
            let shown: serde_json::Value = serde_json::from_slice(&value_text(&elements, &limited).unwrap()).unwrap();
            assert_eq!((shown, heap.objects.len()), (serde_json::from_str(&text).unwrap(), 1));
        }
        assert_eq!(errno(&parse_value_into(&old, &Shape::Scalar, text.as_bytes(), &mut Heap::default())), libc::EOPNOTSUPP);
    }
    for bad in [
        r#"{"select_type":"H5S_SEL_POINTS","selection":[[0,1],[2]]}"#,
        r#"{"select_type":"H5S_SEL_POINTS","selection":[[-1]]}"#,
        r#"{"select_type":"H5S_SEL_HYPERSLABS","selection":[[[0,2]]]}"#,
        r#"{"select_type":"H5S_SEL_HYPERSLABS","start":[1],"stride":[3],"count":[1,2],"block":[2]}"#,
        r#"{"select_type":"H5S_SEL_ODD"}"#,
    ] {
        let text = format!(r#"{{"dataset":"//","selection":{bad}}}"#);
        assert_eq!(errno(&parse_value_into(&region, &Shape::Scalar, text.as_bytes(), &mut Heap::default())), libc::EINVAL, "{bad}");
    }
}
