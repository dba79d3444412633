//! Checks of containers: sound ones, damaged objects of the store, contradicting values.

use super::access::IodConnector;
use super::tests::{empty, environment, open, open_in, spec};
use crate::base::{Address, Result};
use crate::connector::check::{Checked, Problem};
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId};
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::format::object_header::kind;
use crate::iod::keys;
use crate::present::Editor;
use std::sync::Arc;

/// A container with each kind of object, long values, a checkpoint and records after it.
fn filled() -> MemoryStore {
    let store = empty();
    let c = open(&store);
    let group = c.create_group(c.root(), b"g").unwrap();
    let editor = Editor { connector: &*c, edit: &*c };
    let create = |group, name: &[u8], text: &str| editor.create_dataset(group, name, text.as_bytes()).unwrap();
    let d = create(group, b"chunked", r#"{"dtype":"<i4","shape":[20000],"chunks":[1000],"filters":"shuffle, deflate 6"}"#);
    let bytes: Vec<u8> = (0..20_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    Edit::write(&*c, d, 0, &bytes).unwrap();
    let words = create(group, b"words", r#"{"dtype":"str","shape":[3]}"#);
    Edit::write(&*c, words, 0, b"one\n\nthree\n").unwrap();
    c.finish(words, true).unwrap();
    c.set_attribute_bytes(d, b"long", &[3; 9000]).unwrap();
    editor.set_attribute(d, b"text", b"words", crate::present::Existing::Any).unwrap();
    let t = c.create_file(c.root(), b"t").unwrap();
    c.become_datatype(t, &crate::present::parse::parse_datatype("<i4").unwrap(), b"").unwrap();
    c.use_datatype(d, None, b"/t").unwrap();
    c.link(c.root(), b"hard", d).unwrap();
    c.symlink(c.root(), b"soft", b"/nowhere").unwrap();
    let map = c.create_group(c.root(), b"map").unwrap();
    editor.set_fact(map, "map", br#"{"key":"<i8","value":"str"}"#).unwrap();
    Edit::commit(&*c).unwrap();
    {
        let mut state = c.states.next();
        let session = state.session.clone().unwrap();
        c.container.checkpoint(&mut state.snapshot, &session).unwrap();
    }
    c.create_file(c.root(), b"later").unwrap();
    c.close().unwrap();
    store
}

pub(super) fn checked(store: &MemoryStore, data: bool) -> Result<Checked> {
    let container = Arc::new(crate::iod::Container::open(Arc::new(store.clone()))?);
    let state = super::state::State::new(container.clone(), container.snapshot(None)?, None);
    let c = IodConnector::new(container, state, false, environment());
    Connector::check(&*c).unwrap().check(data, &mut |_| {})
}

pub(super) fn details(checked: &Checked) -> Vec<String> {
    checked.findings.iter().map(|f| format!("{}: {}", f.problem.name(), f.detail)).collect()
}

#[test]
fn a_sound_container_has_no_problems() {
    let store = filled();
    for data in [false, true] {
        let checked = checked(&store, data).unwrap();
        assert_eq!((details(&checked), checked.count, checked.objects), (Vec::new(), 0, 7));
        // 20,000 integers, and the exact form of three strings.
        assert_eq!(checked.decoded, if data { 80_000 + 3 * 4 + 8 } else { 0 });
        assert!(checked.space.live() > 40_000 && checked.space.dead() == 0);
    }
}

/// Each flipped bit of a record, checkpoint or pack that the version needs is found, or keeps the
/// container from being opened. Bytes of elements are found with `data` only.
#[test]
fn flipped_bits_are_found() {
    let store = filled();
    let (mut found, mut refused) = (0, 0);
    for key in store.keys().into_iter().filter(|key| key.starts_with("v/") || key.starts_with("c/") || key.starts_with("d/")) {
        let bytes = store.get(&key, 0..u64::MAX).unwrap();
        for at in (0..bytes.len()).step_by((bytes.len() / 40).max(1)) {
            let damaged = store.copied();
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            damaged.put(&key, &wrong).unwrap();
            match checked(&damaged, true) {
                Ok(checked) => {
                    let needed = checked.count > 0 || !is_needed(&store, &damaged);
                    assert!(needed, "byte {at} of {key} is read, and nothing is found");
                    found += checked.count.min(1);
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(found > 40 && refused > 10, "{found} found, {refused} refused");
}

/// True if a reader of the newest version sees another container, or an error.
fn is_needed(store: &MemoryStore, damaged: &MemoryStore) -> bool {
    let shown = |store: &MemoryStore| {
        let c = open_in(Arc::new(store.copied()), Some(newest(store))).ok()?;
        let d = c.resolve(c.root(), b"/hard").ok()??;
        Some((c.elements(d).ok()?.bytes, c.attribute(d, b"long").ok()??.bytes))
    };
    shown(store) != shown(damaged)
}

fn newest(store: &MemoryStore) -> u64 {
    store.keys().iter().filter(|key| key.starts_with("v/")).filter_map(|key| keys::version_of(key)).max().unwrap()
}

#[test]
fn missing_and_short_packs_are_found_without_data() {
    let store = filled();
    let packs: Vec<String> = store.keys().into_iter().filter(|key| key.starts_with("d/")).collect();
    for (key, text) in packs.iter().flat_map(|key| [(key, "missing"), (key, "short")]) {
        let damaged = store.copied();
        match text {
            "missing" => damaged.delete(key).unwrap(),
            _ => damaged.put(key, &store.get(key, 0..100).unwrap()).unwrap(),
        }
        let found = checked(&damaged, false);
        assert!(!found.as_ref().is_ok_and(|checked| checked.count == 0), "{key} {text}: {:?}", found.map(|c| details(&c)));
    }
}

/// Values that contradict one another, one at a time.
#[test]
fn contradictions_are_found() {
    type Change = fn(&IodConnector, ObjectId);
    let cases: [(Change, &str); 9] = [
        (|c, d| c.operate(|s| s.set_link_count(d.serial(), 5)).unwrap(), "it states 5 links, and 2 lead to it"),
        (|c, _| c.operate(|s| s.enter(0, b"x", &target(77))).unwrap(), "it leads to the object 0x4d, which does not exist"),
        (|c, d| c.operate(|s| s.put_header(d.serial(), kind::DATASPACE, &[])).unwrap(), "dataspace message"),
        (|c, d| c.operate(|s| s.put(keys::chunk(d.serial(), &[20]), &[1])).unwrap(), "the chunk at [20] is outside of the dataset"),
        (|c, d| c.operate(|s| s.put(keys::key(d.serial(), keys::ATTRIBUTE, b"x"), &[1])).unwrap(), "attribute"),
        (|c, d| c.operate(|s| s.put(keys::key(d.serial(), keys::LINK, b"x"), &[1])).unwrap(), "an object that is no group has links"),
        (|c, _| c.operate(|s| s.put(keys::key(99, keys::ATTRIBUTE, b"x"), &[1])).unwrap(), "it has values, and no type that is known"),
        (|c, d| c.operate(|s| s.put_header(d.serial(), 0x7777, &[1])).unwrap(), "metadata of the type 0x7777"),
        (|c, _| c.operate(|s| s.put(b"short".to_vec(), &[])).unwrap(), "it has 5 bytes"),
    ];
    let store = filled();
    for (change, text) in cases {
        let damaged = store.copied();
        let c = open(&damaged);
        change(&c, c.resolve(c.root(), b"/g/chunked").unwrap().unwrap());
        c.close().unwrap();
        let found = checked(&damaged, true).unwrap();
        assert!(details(&found).iter().any(|detail| detail.contains(text)), "{text}: {:?}", details(&found));
        let unknown = text.contains("0x7777");
        assert_eq!((found.count == 0, found.not_checked > 0), (unknown, unknown), "{text}: {:?}", details(&found));
    }
}

fn target(id: u64) -> crate::connector::LinkTarget {
    crate::connector::LinkTarget::Hard(ObjectId { file: 0, address: Address(id) })
}

/// An object without names, and groups that only lead to one another, lose space and nothing else.
#[test]
fn objects_without_a_path_are_listed_and_are_no_problem() {
    let store = filled();
    let c = open(&store);
    let lost = c.create_dataset(c.root(), b"lost", &spec("<i4", &[3])).unwrap();
    c.hold(lost);
    c.unlink(c.root(), b"lost", false).unwrap();
    let a = c.create_group(c.root(), b"a").unwrap();
    c.operate(|state| state.link(a.serial(), b"itself", a.serial())).unwrap();
    c.operate(|state| {
        state.remove(keys::key(0, keys::LINK, b"a"))?;
        state.set_link_count(a.serial(), 1)
    })
    .unwrap();
    Edit::commit(&*c).unwrap();
    let found = checked(&store, true).unwrap();
    let unnamed: Vec<_> = found.findings.iter().map(|f| (f.problem, f.object)).collect();
    let wanted: Vec<_> = [lost, a].map(|id| (Problem::Unnamed, Some(id.serial()))).into();
    assert_eq!((unnamed, found.count, found.unnamed), (wanted, 0, 2));
}
