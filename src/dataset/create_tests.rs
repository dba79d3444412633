//! Compares messages of new datasets with those of libhdf5
//! (`tests/fixtures/create/make_create.py`), for each superblock version.

use super::*;
use crate::dataset::layout::{new_chunked, new_compact, new_contiguous};
use crate::format::Reader;
use crate::format::message::data_layout::{DataLayout, Layout as LayoutClass};
use crate::format::message::datatype;
use crate::format::message::filter_pipeline::FilterPipeline;
use crate::format::message::link::{Link, LinkTarget};
use crate::meta::edit::testing::writable;
use crate::structures::group::edit::insert_link;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const CTX: Context = Context::DEFAULT;
const CASES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/create/create.json"));

fn unhex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

/// Messages that libhdf5 wrote, by case and superblock version.
fn cases() -> BTreeMap<String, BTreeMap<u8, Messages>> {
    let all: BTreeMap<String, BTreeMap<String, Vec<(u16, u8, String)>>> = serde_json::from_str(CASES).unwrap();
    let messages = |v: Vec<(u16, u8, String)>| v.into_iter().map(|(k, f, b)| (k, f, unhex(&b))).collect();
    all.into_iter().map(|(name, c)| (name, c.into_iter().map(|(v, m)| (v.parse().unwrap(), messages(m))).collect())).collect()
}

/// The user's values of a filter.
fn users(f: &FilterDescription) -> Vec<u32> {
    let v = &f.cd_values;
    match f.id {
        2 | 5 | 32000 => Vec::new(),
        4 | 6 => v[..2].to_vec(),
        32001 | 32026 => [&[0; 4], &v[4..7]].concat(),
        32008 => v[3..].to_vec(),
        _ => v.clone(),
    }
}

/// The properties of a dataset with these messages.
fn description(messages: &Messages, full: bool) -> Creation {
    let at = Address(0);
    let find = |kind: u16| messages.iter().find(|m| m.0 == kind).map(|m| m.2.as_slice());
    let space = Dataspace::decode(find(kind::DATASPACE).unwrap(), &CTX, at).unwrap();
    let fill = FillValue::decode(find(kind::FILL_VALUE).unwrap(), at).unwrap();
    let layout = match DataLayout::decode(find(kind::DATA_LAYOUT).unwrap(), &CTX, at).unwrap().class {
        LayoutClass::Compact { .. } => new_compact(),
        LayoutClass::Contiguous { .. } => new_contiguous(),
        LayoutClass::Chunked(c) => new_chunked(c.chunk_dims),
        other => panic!("{other:?}"),
    };
    let filters = find(kind::FILTER_PIPELINE).map_or(Vec::new(), |b| FilterPipeline::decode(b, at).unwrap().filters);
    let spec = |f: &FilterDescription| FilterSpec {
        id: f.id,
        flags: f.flags,
        name: if full { f.name.clone() } else { Vec::new() },
        cd_values: if full { f.cd_values.clone() } else { users(f) },
    };
    Creation {
        datatype: datatype::decode(&mut Reader::new(find(kind::DATATYPE).unwrap(), "t", at)).unwrap(),
        committed: None,
        extent: space.extent,
        dims: space.dims,
        max_dims: space.max_dims,
        layout,
        filters: filters.iter().map(spec).collect(),
        fill: fill.fill,
        fill_time: Some(fill.write_time).filter(|_| full),
        allocation_time: None,
        modified: find(kind::MTIME).map(|b| times::decode(b, at).unwrap()),
        elsewhere: None,
        undefine_fill: false,
    }
}

fn commit_datatype(store: &Store, datatype: &Datatype, times: Option<u32>) -> Result<Address> {
    let superblock_version = store.superblock().version;
    let body = datatype_message(superblock_version, datatype)?;
    let mut edit = HeaderEdit::new(header_version(superblock_version), times, (false, false));
    edit.add(kind::DATATYPE, flag::CONSTANT | flag::DONT_SHARE, body);
    edit.create(store)
}

#[test]
fn messages_are_those_libhdf5_writes() {
    let mut compared = 0;
    for (name, generations) in cases() {
        for from in generations.keys() {
            for (&version, want) in &generations {
                for full in [true, false] {
                    // libhdf5 stores names of its own filters only in old files.
                    let mut creation = description(&generations[from], full && *from == 0);
                    creation.modified = description(want, true).modified;
                    let mut got = dataset_messages(&CTX, version, &creation).unwrap();
                    if version == 0 {
                        // Version 1 headers pad to a multiple of 8.
                        got.iter_mut().for_each(|m| m.2.resize(m.2.len().next_multiple_of(8), 0));
                    }
                    assert_eq!(&got, want, "{name}: described by a file of superblock {from}, written for {version}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 800, "{compared}");
}

#[test]
fn contradictions_are_refused() {
    let cases = cases();
    let chunked = description(&cases["filters"][&3], true);
    let flat = description(&cases["contiguous"][&3], true);
    let with = |c: &Creation, change: &dyn Fn(&mut Creation)| {
        let mut c = c.clone();
        change(&mut c);
        dataset_messages(&CTX, 3, &c).is_err()
    };
    assert!(!with(&chunked, &|_| ()) && !with(&flat, &|_| ()));
    assert!(with(&flat, &|c| c.filters = chunked.filters.clone()));
    assert!(with(&flat, &|c| c.max_dims = Some(vec![None, Some(4)])));
    assert!(with(&flat, &|c| c.dims = vec![1 << 60, 1 << 60]));
    assert!(with(&flat, &|c| c.dims = Vec::new()));
    assert!(with(&flat, &|c| c.fill = Fill::Value(vec![1, 2])));
    assert!(with(&flat, &|c| {
        c.layout = new_compact();
        c.dims = vec![1 << 14, 1];
        c.max_dims = None;
    }));
    for chunk in [vec![], vec![10], vec![0, 4], vec![10, 9], vec![1 << 31, 1 << 31]] {
        assert!(with(&chunked, &|c| c.layout = new_chunked(chunk.clone())), "{chunk:?}");
    }
    assert!(with(&chunked, &|c| c.filters.iter_mut().filter(|f| f.id == 1).for_each(|f| f.cd_values = vec![10])));
    assert!(with(&chunked, &|c| c.filters[0].id = 6));
    let narrow = Context { sizeof_addr: 4, sizeof_size: 4 };
    let mut wide = flat.clone();
    (wide.dims, wide.max_dims) = (vec![1 << 40, 1], None);
    assert!(dataset_messages(&narrow, 0, &wide).is_err() && dataset_messages(&CTX, 0, &wide).is_ok());
}

fn oracle(step: &str, folder: &Path) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let local = top.join(".venv/bin/python");
    let python = std::env::var_os("PYTHON").map(Into::into);
    let python = python.unwrap_or_else(|| if local.exists() { local } else { "/opt/venv/bin/python".into() });
    let output = Command::new(python).arg(top.join("tests/oracle/create.py")).arg(step).arg(folder).output().unwrap();
    assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn libhdf5_reads_and_writes_new_datasets() {
    let folder = tempfile::tempdir().unwrap();
    oracle("make", folder.path());
    let cases = cases();
    for version in [0, 2, 3] {
        let path = folder.path().join(format!("{version}.h5"));
        let (store, file) = writable(std::fs::read(&path).unwrap());
        let root = store.superblock().root;
        for (name, generations) in &cases {
            let mut creation = description(&generations[&3], false);
            creation.modified = (name == "times").then_some(1_000_000_000);
            let at = create_dataset(&store, &creation, (false, false)).unwrap();
            let name = name.clone().into_bytes();
            insert_link(&store, root, &Link { name, utf8: false, creation_order: None, target: LinkTarget::Hard(at) }).unwrap();
        }
        let link = |name: &str, at| Link { name: name.into(), utf8: false, creation_order: None, target: LinkTarget::Hard(at) };
        let mut typed = description(&cases["compound"][&3], false);
        let datatype = commit_datatype(&store, &typed.datatype, Some(7).filter(|_| version == 2)).unwrap();
        insert_link(&store, root, &link("type", datatype)).unwrap();
        typed.committed = Some(datatype);
        for name in ["typed 1", "typed 2"] {
            let at = create_dataset(&store, &typed, (version > 0, version > 0)).unwrap();
            insert_link(&store, root, &link(name, at)).unwrap();
        }
        store.close().unwrap();
        std::fs::write(path, file.bytes()).unwrap();
    }
    assert_eq!(oracle("check", folder.path()).trim(), (3 * cases.len()).to_string());
}
