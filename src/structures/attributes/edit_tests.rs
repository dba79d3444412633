//! Random changes against a model; libhdf5 checks the files and changes them in turn.

use super::*;
use crate::format::message::attribute::encode_attribute;
use crate::meta::ObjectHeader;
use crate::meta::edit::testing::{empty, writable};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::Command;

/// One-byte unsigned integer.
const U8: [u8; 12] = [0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];

/// Name, number of bytes and fill byte, in creation order.
type Model = Vec<(String, usize, u8)>;

fn message(version: u8, name: &str, len: usize, fill: u8) -> Vec<u8> {
    let space = match version {
        1 => [&[1u8, 1, 0, 0, 0, 0, 0, 0][..], &(len as u64).to_le_bytes()].concat(),
        _ => [&[2u8, 1, 0, 1][..], &(len as u64).to_le_bytes()].concat(),
    };
    encode_attribute(version, name.as_bytes(), &U8, false, &space, &vec![fill; len]).unwrap()
}

/// All attributes as the readers return them, in creation order if it is tracked.
fn read(store: &Store, object: Address) -> (Model, bool) {
    let header = ObjectHeader::load(store, object).unwrap();
    let mut all: Vec<(u32, Vec<u8>)> =
        header.all(kind::ATTRIBUTE).map(|m| (u32::from(m.creation_index.unwrap_or(0)), m.body.clone())).collect();
    let info = header.find(kind::ATTRIBUTE_INFO).map(|m| AttributeInfo::decode(&m.body, store.ctx(), object).unwrap());
    let tracked = header.prefix.flags & 4 != 0;
    if let Some(info) = info {
        assert_eq!(info.max_creation_order.is_some(), tracked);
        if info.is_dense() {
            assert!(all.is_empty());
            let mut add = |d: DenseAttribute| {
                all.push((d.creation_order, d.body));
                Ok(ControlFlow::Continue(()))
            };
            let skipped = match info.creation_index {
                Some(index) => dense::list_by(store, info.fractal_heap, index, &dense::ATTRIBUTES.by_creation, &mut add),
                None => dense::list(store, info.fractal_heap, info.name_index, &mut add),
            };
            assert_eq!(skipped, Ok(None));
        }
        assert!(!all.is_empty(), "attribute info without attributes");
        let max = info.max_creation_order.map_or(u32::MAX, u32::from);
        assert!(all.iter().all(|(order, _)| !tracked || *order < max));
    }
    if tracked {
        all.sort();
    }
    let decode = |body: &Vec<u8>| {
        let a = Attribute::decode(body, object).unwrap();
        let len = u64::from_le_bytes(a.dataspace[a.dataspace.len() - 8..].try_into().unwrap()) as usize;
        assert!(a.data[..len].iter().all(|b| *b == a.data[0]));
        (String::from_utf8(a.name).unwrap(), len, if len == 0 { 0 } else { a.data[0] })
    };
    (all.iter().map(|(_, b)| decode(b)).collect(), tracked)
}

fn check(store: &Store, object: Address, model: &Model) {
    let (mut got, tracked) = read(store, object);
    let mut want: Model = model.iter().map(|(n, l, f)| (n.clone(), *l, if *l == 0 { 0 } else { *f })).collect();
    if !tracked {
        got.sort();
        want.sort();
    }
    assert_eq!(got, want);
}

#[derive(Debug, Clone)]
enum Op {
    Set(u8, usize, u8),
    Remove(u8),
    Rename(u8, u8),
}

fn name(n: u8) -> String {
    if n % 5 == 4 { format!("\u{e4}{n}") } else { format!("a{n}") }
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0usize..40, 4 => 0usize..400, 2 => 0usize..3000];
    prop_oneof![
        5 => (0u8..16, size, 1u8..).prop_map(|(n, s, f)| Op::Set(n, s, f)),
        4 => (0u8..16).prop_map(Op::Remove),
        1 => (0u8..16, 0u8..16).prop_map(|(a, b)| Op::Rename(a, b)),
    ]
}

/// Applies `ops` to the attributes of `object` and to `model`.
fn run(store: &Store, object: Address, model: &mut Model, ops: &[Op]) {
    let version = HeaderEdit::load(store, object).unwrap().version();
    for op in ops {
        let at = |model: &Model, n: u8| model.iter().position(|(m, _, _)| *m == name(n));
        match *op {
            Op::Set(n, len, fill) => {
                set(store, object, name(n).as_bytes(), &message(version, &name(n), len, fill), 5).unwrap();
                match at(model, n) {
                    Some(i) => model[i] = (name(n), len, fill),
                    None => model.push((name(n), len, fill)),
                }
            }
            Op::Remove(n) => {
                assert_eq!(remove(store, object, name(n).as_bytes(), 5).unwrap(), at(model, n).is_some());
                model.retain(|(m, _, _)| *m != name(n));
            }
            Op::Rename(a, b) => {
                assert_eq!(rename(store, object, name(a).as_bytes(), name(b).as_bytes(), 5).unwrap(), at(model, a).is_some());
                if at(model, a).is_some() && a != b {
                    model.retain(|(m, _, _)| *m != name(b));
                    let i = at(model, a).unwrap();
                    model[i].0 = name(b);
                }
            }
        }
    }
    check(store, object, model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn random_changes(version in 1u8..=2, order: (bool, bool), ops in proptest::collection::vec(op(), 1..80)) {
        let (store, file) = empty();
        let at = HeaderEdit::new(version, Some(7), order).create(&store).unwrap();
        let mut model = Model::new();
        for part in ops.chunks(5) {
            run(&store, at, &mut model, part);
        }
        for (n, _, _) in std::mem::take(&mut model) {
            assert!(remove(&store, at, n.as_bytes(), 9).unwrap());
        }
        check(&store, at, &model);
        HeaderEdit::delete(&store, at).unwrap();
        store.close().unwrap();
        prop_assert_eq!(file.bytes().len(), 48, "all space is freed");
    }
}

/// A Python that has h5py.
fn python() -> String {
    let local = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
    let known = [local, "/opt/venv/bin/python"].into_iter().find(|p| Path::new(p).exists()).unwrap_or("python3");
    std::env::var("PYTHON").unwrap_or_else(|_| known.to_owned())
}

fn oracle(args: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/attributes.py");
    let output = Command::new(python()).arg(script).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Pseudorandom small numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn ops(&mut self) -> Vec<Op> {
        let n = self.roll(30) + 1;
        let one = |d: &mut Self| match d.roll(10) {
            0..=4 => {
                let len = [0, 1, 7, 40, 300, 800, 3000][d.roll(7) as usize];
                Op::Set(d.roll(16) as u8, len, d.roll(255) as u8 + 1)
            }
            5..=8 => Op::Remove(d.roll(16) as u8),
            _ => Op::Rename(d.roll(16) as u8, d.roll(16) as u8),
        };
        (0..n).map(|_| one(self)).collect()
    }
}

fn model_of(v: &Value) -> Model {
    let one = |a: &Value| (a[0].as_str().unwrap().to_owned(), a[1].as_u64().unwrap() as usize, a[2].as_u64().unwrap() as u8);
    v.as_array().unwrap().iter().map(one).collect()
}

fn json_of(path: &Path) -> Map<String, Value> {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Changes attributes in files of libhdf5, which then reads and changes them, in several rounds.
#[test]
fn libhdf5_reads_and_changes_changed_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    oracle(&["make", place]);
    let base = json_of(&dir.path().join("base.json"));
    let mut addresses = Map::new();
    let mut expected = Map::new();
    for case in 0..4 {
        for (file, objects) in base.iter().filter(|(f, _)| f.starts_with("base")) {
            let name = format!("case{case}_{file}");
            std::fs::copy(dir.path().join(file), dir.path().join(&name)).unwrap();
            addresses.insert(name.clone(), objects.clone());
            expected.insert(name, Value::Null);
        }
    }
    let mut dice = Dice(1);
    for round in 1..=4 {
        for (name, objects) in &addresses {
            let path = dir.path().join(name);
            let (store, file) = writable(std::fs::read(&path).unwrap());
            let mut now = Map::new();
            for (object, at) in objects.as_object().unwrap() {
                let at = Address(at.as_u64().unwrap());
                let before = match &expected[name] {
                    Value::Null => read(&store, at).0,
                    known => model_of(&known[object]),
                };
                check(&store, at, &before);
                let mut model = before;
                run(&store, at, &mut model, &dice.ops());
                now.insert(object.clone(), json!(model));
            }
            store.close().unwrap();
            std::fs::write(&path, file.bytes()).unwrap();
            expected[name] = Value::Object(now);
        }
        std::fs::write(dir.path().join("expected.json"), Value::Object(expected.clone()).to_string()).unwrap();
        oracle(&["check", place, &(round % 4).to_string()]);
        expected = json_of(&dir.path().join("expected.json"));
    }
}

/// Damages every byte of headers of both versions, with valid checksums: changes end without a
/// panic.
#[test]
fn damaged_headers_do_not_panic() {
    for version in [1, 2] {
        let (store, file) = empty();
        let at = HeaderEdit::new(version, Some(7), (true, true)).create(&store).unwrap();
        for (n, len) in [(0, 10), (1, 300), (2, 0), (3, 40)] {
            set(&store, at, name(n).as_bytes(), &message(version, &name(n), len, 1), 1).unwrap();
        }
        store.close().unwrap();
        let good = file.bytes();
        let overhead = if version == 1 { 0 } else { 4 };
        let len = crate::format::object_header::Prefix::decode(&good[at.0 as usize..], at).unwrap().chunk0_len() as usize;
        for i in 0..len - overhead {
            for mask in [0x01u8, 0x10, 0xff] {
                let mut bad = good.clone();
                let head = &mut bad[at.0 as usize..at.0 as usize + len];
                head[i] ^= mask;
                if version == 2 {
                    let sum = crate::base::checksum::lookup3(&head[..len - 4], 0);
                    head[len - 4..].copy_from_slice(&sum.to_le_bytes());
                }
                let (store, _) = writable(bad);
                let _ = set(&store, at, b"a1", &message(version, "a1", 700, 1), 1);
                let _ = set(&store, at, b"new", &message(version, "new", 100, 1), 1);
                let _ = rename(&store, at, b"a0", b"a3", 1);
                let _ = remove(&store, at, b"a2", 1);
                let _ = HeaderEdit::delete(&store, at);
            }
        }
    }
}

/// A change of an attribute in the shared message table leaves the attribute of other objects as it
/// is.
#[test]
fn changes_of_shared_attributes_leave_other_objects_unchanged() {
    let bytes = include_bytes!("../../../tests/fixtures/heaps/sohm.h5");
    let mut seen = 0;
    let shared = |store: &Store, at: Address| -> Vec<Vec<u8>> {
        let Ok(editor) = Editor::load(store, at) else { return Vec::new() };
        let all = editor.header.messages().filter(|m| m.kind == kind::ATTRIBUTE && m.flags & flag::SHARED != 0);
        all.map(|m| name_of(&editor.shared(m).unwrap(), at).unwrap().to_vec()).collect()
    };
    let with_shared = |store: &Store| -> Vec<(u64, Vec<Vec<u8>>)> {
        let headers = (0..bytes.len()).filter(|&i| bytes[i..].starts_with(b"OHDR") || bytes[i] == 1).map(|i| i as u64);
        headers.map(|at| (at, shared(store, Address(at)))).filter(|(_, names)| !names.is_empty()).collect()
    };
    let (store, _) = writable(&bytes[..]);
    for (at, names) in with_shared(&store) {
        let (store, backing) = writable(&bytes[..]);
        let (at, name) = (Address(at), &names[0]);
        let version = HeaderEdit::load(&store, at).unwrap().version();
        let text = std::str::from_utf8(name).unwrap();
        let old = Editor::load(&store, at).unwrap();
        let old_body = old.body(&old.find(name).unwrap().unwrap()).unwrap();
        assert!(rename(&store, at, name, b"b", 1).unwrap());
        let editor = Editor::load(&store, at).unwrap();
        let place = editor.find(b"b").unwrap().unwrap();
        let body = editor.body(&place).unwrap();
        assert!(!editor.is_shared(&place) && editor.find(name).unwrap().is_none());
        let (was, is) = (Attribute::decode(&old_body, at).unwrap(), Attribute::decode(&body, at).unwrap());
        assert!(was.data == is.data && !is.dataspace_shared && (!is.datatype_shared || was.datatype_shared));
        set(&store, at, name, &message(version, text, 4, 1), 1).unwrap();
        assert!(remove(&store, at, b"b", 1).unwrap());
        // Other objects still have it.
        store.close().unwrap();
        let store = writable(backing.bytes()).0;
        let left: Vec<_> = with_shared(&store).into_iter().filter(|(other, _)| *other != at.0).collect();
        let before: Vec<_> = with_shared(&writable(&bytes[..]).0).into_iter().filter(|(other, _)| *other != at.0).collect();
        assert_eq!(left, before);
        assert!(!shared(&store, at).contains(name));
        seen += 1;
    }
    assert!(seen > 0);
}

/// Attributes too large for a message: in dense storage, or refused in version 1 headers.
#[test]
fn attributes_of_64_kib_and_more() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    oracle(&["make", place]);
    let base = json_of(&dir.path().join("base.json"));
    let mut expected = Map::new();
    for libver in ["earliest", "v108", "latest"] {
        let name = format!("base_{libver}.h5");
        let path = dir.path().join(&name);
        let (store, file) = writable(std::fs::read(&path).unwrap());
        let mut now = Map::new();
        for object in ["g", "gt", "d", "t"] {
            let at = Address(base[&name][object].as_u64().unwrap());
            let version = HeaderEdit::load(&store, at).unwrap().version();
            let mut model = read(&store, at).0;
            let small = message(version, "small", 9, 3);
            set(&store, at, b"small", &small, 1).unwrap();
            model.push(("small".into(), 9, 3));
            let result = set(&store, at, b"big", &message(version, "big", 100_000, 4), 1);
            if version == 1 {
                assert!(matches!(result, Err(Error::Refused { errno: libc::E2BIG, .. })), "{result:?}");
            } else {
                result.unwrap();
                model.push(("big".into(), 100_000, 4));
                set(&store, at, b"big", &message(version, "big", 70_000, 5), 1).unwrap();
                model.last_mut().unwrap().1 = 70_000;
                model.last_mut().unwrap().2 = 5;
                assert!(rename(&store, at, b"big", b"large", 1).unwrap());
                model.last_mut().unwrap().0 = "large".into();
                assert!(ObjectHeader::load(&store, at).unwrap().find(kind::ATTRIBUTE).is_none());
            }
            // Small, large, then small again: the attributes return to the header.
            let turn = |len: usize, fill| set(&store, at, b"small", &message(version, "small", len, fill), 1);
            assert_eq!(turn(66_000, 6).is_ok(), version == 2);
            turn(10, 7).unwrap();
            let i = model.iter().position(|m| m.0 == "small").unwrap();
            (model[i].1, model[i].2) = (10, 7);
            check(&store, at, &model);
            now.insert(object.into(), json!(model));
        }
        store.close().unwrap();
        std::fs::write(&path, file.bytes()).unwrap();
        expected.insert(name, Value::Object(now));
    }
    std::fs::write(dir.path().join("expected.json"), Value::Object(expected).to_string()).unwrap();
    oracle(&["check", place, "7"]);
    let expected = json_of(&dir.path().join("expected.json"));
    for (name, objects) in &expected {
        let (store, _) = writable(std::fs::read(dir.path().join(name)).unwrap());
        for (object, model) in objects.as_object().unwrap() {
            let at = Address(base[name][object].as_u64().unwrap());
            check(&store, at, &model_of(model));
            for (name, _, _) in model_of(model) {
                assert!(remove(&store, at, name.as_bytes(), 1).unwrap());
            }
            let header = ObjectHeader::load(&store, at).unwrap();
            assert!(header.find(kind::ATTRIBUTE_INFO).is_none() && header.find(kind::ATTRIBUTE).is_none());
        }
    }
}

/// An attribute with a committed datatype counts as a link to it.
#[test]
fn links_to_committed_datatypes_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    oracle(&["make", place]);
    let base = json_of(&dir.path().join("base.json"));
    let files: Vec<&String> = base.keys().filter(|k| k.starts_with("committed")).collect();
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for restore in [false, true] {
        for name in &files {
            let path = dir.path().join(name);
            let (store, file) = writable(std::fs::read(&path).unwrap());
            for object in ["c", "d"] {
                let at = Address(base[*name][object].as_u64().unwrap());
                if restore {
                    set(&store, at, b"typed", &bodies.remove(0), 1).unwrap();
                    continue;
                }
                let header = ObjectHeader::load(&store, at).unwrap();
                bodies.push(header.find(kind::ATTRIBUTE).unwrap().body.clone());
                assert!(remove(&store, at, b"typed", 1).unwrap());
            }
            store.close().unwrap();
            std::fs::write(&path, file.bytes()).unwrap();
        }
        oracle(&["committed", place, if restore { "3" } else { "1" }]);
    }
    for name in &files {
        let (store, _) = writable(std::fs::read(dir.path().join(name)).unwrap());
        let [c, d] = ["c", "d"].map(|o| Address(base[*name][o].as_u64().unwrap()));
        assert_eq!(HeaderEdit::load(&store, c).unwrap().links(), 3);
        let version = HeaderEdit::load(&store, d).unwrap().version();
        set(&store, d, b"typed", &message(version, "typed", 3, 1), 1).unwrap();
        assert_eq!(HeaderEdit::load(&store, c).unwrap().links(), 2);
    }
}

/// An object of `count` attributes whose order is tracked.
fn tracked(store: &Store, count: u8) -> (Address, Vec<Vec<u8>>) {
    let at = HeaderEdit::new(2, Some(7), (true, true)).create(store).unwrap();
    let names: Vec<Vec<u8>> = (0..count).map(|n| name(n).into_bytes()).collect();
    for n in 0..count {
        set(store, at, name(n).as_bytes(), &message(2, &name(n), 8, n + 1), 1).unwrap();
    }
    (at, names)
}

fn names(store: &Store, at: Address) -> Vec<String> {
    read(store, at).0.into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn attributes_get_the_order_of_a_list() {
    let (store, _) = empty();
    for count in [3, 8, 9, 40] {
        let (at, mut wanted) = tracked(&store, count);
        assert!(!set_order(&store, at, &wanted, 1).unwrap(), "they are in this order");
        wanted.reverse();
        let reversed: Vec<String> = (0..count).rev().map(name).collect();
        assert!(set_order(&store, at, &wanted, 1).unwrap());
        assert_eq!(names(&store, at), reversed);
        // A new one comes last, and one that is not in the list stays where it is.
        set(&store, at, b"new", &message(2, "new", 8, 1), 1).unwrap();
        assert!(set_order(&store, at, &[name(0).into_bytes(), name(2).into_bytes(), b"absent".to_vec()], 1).unwrap());
        let left: Vec<String> = names(&store, at);
        assert_eq!((left.last().unwrap().as_str(), left.len()), ("new", usize::from(count) + 1));
        let place = |name: String| left.iter().position(|n| *n == name).unwrap();
        assert_eq!(place(name(0)) + 1, place(name(2)));
    }
    let at = HeaderEdit::new(2, Some(7), (false, false)).create(&store).unwrap();
    set(&store, at, b"a", &message(2, "a", 8, 1), 1).unwrap();
    assert!(!set_order(&store, at, &[b"b".to_vec(), b"a".to_vec()], 1).unwrap(), "the order is not tracked");
}

/// An object that lost 65,535 attributes takes more of them.
#[test]
fn creation_orders_are_assigned_anew_when_none_is_left() {
    let (store, _) = empty();
    for count in [2, 20] {
        let (at, _) = tracked(&store, count);
        let mut header = HeaderEdit::load(&store, at).unwrap();
        let i = header.find(kind::ATTRIBUTE_INFO).unwrap();
        let mut info = AttributeInfo::decode(header.body(i), store.ctx(), at).unwrap();
        info.max_creation_order = Some(NO_ORDER);
        header.set_body(i, info.encode(store.ctx()).unwrap());
        header.write(&store).unwrap();
        set(&store, at, b"new", &message(2, "new", 8, 1), 1).unwrap();
        let wanted: Vec<String> = (0..count).map(name).chain(["new".to_owned()]).collect();
        assert_eq!(names(&store, at), wanted);
    }
}
