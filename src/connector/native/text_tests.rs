//! Attributes of files that libhdf5 wrote, from their text.

use super::NativeConnector;
use super::tests::try_open;
use crate::base::{Address, Error, Result};
use crate::connector::{Connector, ObjectId};
use crate::dataset::types::parse::{AttributeSpec, Store, parse_attributes_json_with, parse_value_into};
use crate::dataset::types::{AttributesJson, Elements, Environment, Resolver, value_text};
use crate::format::Context;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// A heap in memory that elements refer to by collection.
#[derive(Default)]
struct Heap {
    objects: Vec<Vec<u8>>,
}

impl Store for Heap {
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

impl Resolver for Heap {
    fn vlen(&self, collection: Address, _: u32) -> Result<Vec<u8>> {
        Ok(self.objects[collection.0 as usize - 1].clone())
    }

    fn object_path(&self, address: Address) -> Option<Vec<u8>> {
        Some(vec![b'/'; (address.0 - 1000) as usize])
    }
}

/// Every object of the files has its attributes listed, made again from the list, and listed again.
#[test]
fn attributes_of_the_fixture_files_come_back() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let (mut seen, mut other, mut classes) = (0, 0, HashMap::<u8, u32>::new());
    for folder in ["groups", "heaps", "mount", "mount/virtual", "sample", "datatype", "mutants"] {
        let mut paths: Vec<_> = std::fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "h5")) {
            let Ok(c) = try_open(&std::fs::read(path).unwrap()) else { continue };
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
                let Ok(Some(text)) = c.fact(id, "attributes") else { continue };
                let mut heap = Heap::default();
                let specs = match parse_attributes_json_with(&text, 8, &mut heap) {
                    Ok(specs) => specs,
                    Err(Error::Refused { errno, reason }) => {
                        let text = String::from_utf8_lossy(&text);
                        // Regions, and attributes that cannot be read.
                        assert!(errno == libc::EOPNOTSUPP || text.contains("\"error\":"), "{path:?} {reason} {text}");
                        other += 1;
                        continue;
                    }
                    Err(error) => panic!("{path:?} {error}"),
                };
                for spec in &specs {
                    *classes.entry(spec.datatype.class_number()).or_default() += 1;
                }
                seen += specs.len();
                // Paths of objects differ in the heap's own way.
                if specs.iter().any(|s| s.datatype.contains_reference()) {
                    continue;
                }
                let environment = Environment { ctx: Context::DEFAULT, resolver: &heap, limit: 1 << 20 };
                let mut json = AttributesJson::new(&environment);
                for s in &specs {
                    json.add(&s.name, &Elements { datatype: &s.datatype, shape: &s.shape, bytes: &s.bytes }).unwrap();
                }
                assert_eq!(String::from_utf8_lossy(&json.finish()), String::from_utf8_lossy(&text), "{path:?}");
                texts(&c, id, &specs, path);
            }
        }
    }
    assert!(seen > 300 && classes.len() >= 8, "{seen} {other} {classes:?}");
}

/// The same attributes by their text, one by one.
fn texts(c: &NativeConnector, id: ObjectId, specs: &[AttributeSpec], path: &std::path::Path) {
    for s in specs {
        let Ok(Some(text)) = c.attribute_text(id, &s.name) else { continue };
        let mut heap = Heap::default();
        let bytes = parse_value_into(&s.datatype, &s.shape, &text, &mut heap);
        let bytes = bytes.unwrap_or_else(|e| panic!("{path:?} {:?} {}: {e}", s.name, String::from_utf8_lossy(&text)));
        if !s.datatype.contains_vlen() {
            assert_eq!(bytes, s.bytes, "{path:?} {:?}", String::from_utf8_lossy(&s.name));
        }
        let environment = Environment { ctx: Context::DEFAULT, resolver: &heap, limit: 1 << 20 };
        let elements = Elements { datatype: &s.datatype, shape: &s.shape, bytes: &bytes };
        assert_eq!(value_text(&elements, &environment).unwrap(), text, "{path:?} {:?}", s.name);
    }
}
