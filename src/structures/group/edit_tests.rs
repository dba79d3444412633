//! Random changes of groups in files of libhdf5, against a model; libhdf5 reads and changes the
//! results (`tests/oracle/group_edit.py`).

use super::*;
use crate::file::memory::{GrowingFile, MemoryJournal};
use crate::format::message::link::LinkTarget;
use crate::meta::edit::testing::writable;
use crate::structures::link_count::add_reference;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A Python with h5py, which the tests need.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("PYTHON") {
        return python.into();
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    if here.exists() { here } else { "/opt/venv/bin/python".into() }
}

fn oracle(step: &str, folder: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/group_edit.py");
    let output = Command::new(python()).arg(script).arg(step).arg(folder).output().unwrap();
    assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Pseudorandom numbers, equal in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Expected contents of a group.
#[derive(Default)]
struct Model {
    at: Option<Address>,
    links: BTreeMap<Vec<u8>, Link>,
    /// Creation order of the next link, if tracked.
    next: Option<i64>,
    old: bool,
}

/// Storage of the group's links.
fn storage(store: &Store, group: Address) -> Result<Option<GroupStorage>> {
    read::tests::storage(store, &*ObjectHeader::cached(store, group)?)
}

fn listed(store: &Store, group: Address) -> Vec<Link> {
    let mut links = Vec::new();
    let storage = storage(store, group).unwrap().unwrap();
    read::list(store, &storage, 0, &mut |l, _| {
        links.push(l);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    links
}

fn find(store: &Store, group: Address, name: &str) -> Address {
    match read::lookup(store, &storage(store, group).unwrap().unwrap(), name.as_bytes()).unwrap().unwrap().target {
        LinkTarget::Hard(at) => at,
        other => panic!("{other:?}"),
    }
}

impl Model {
    /// The group's present contents.
    fn of(store: &Store, at: Address) -> Self {
        let edit = HeaderEdit::load(store, at).unwrap();
        let info = edit.find(kind::LINK_INFO).map(|i| LinkInfo::decode(edit.body(i), store.ctx(), at).unwrap());
        let links = listed(store, at).into_iter().map(|l| (l.name.clone(), l)).collect();
        Model { at: Some(at), links, old: info.is_none(), next: info.and_then(|i| i.max_creation_order) }
    }

    fn insert(&mut self, store: &Store, name: Vec<u8>, target: LinkTarget) {
        let utf8 = !self.old && !name.is_ascii() && std::str::from_utf8(&name).is_ok();
        let link = Link { name: name.clone(), utf8, creation_order: self.next, target };
        let result = insert_link(store, self.at.unwrap(), &Link { utf8: false, creation_order: Some(77), ..link.clone() });
        if self.links.contains_key(&name) {
            assert!(matches!(result, Err(Error::Io { errno: libc::EEXIST, .. })), "{result:?}");
            return;
        }
        result.unwrap();
        self.next = self.next.map(|n| n + 1);
        self.links.insert(name, link);
    }

    fn remove(&mut self, store: &Store, name: &[u8]) -> Option<Link> {
        let want = self.links.remove(name);
        assert_eq!(remove_link(store, self.at.unwrap(), name).unwrap(), want);
        if self.links.is_empty() {
            self.next = self.next.map(|_| 0);
        }
        want
    }

    fn check(&self, store: &Store) {
        let at = self.at.unwrap();
        let mut links = listed(store, at);
        links.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(links.iter().eq(self.links.values()));
        assert_eq!(is_empty(store, at).unwrap(), self.links.is_empty());
    }

    fn json(&self) -> Value {
        let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let link = |l: &Link| {
            let target = match &l.target {
                LinkTarget::Hard(a) => json!(["hard", a.0]),
                LinkTarget::Soft(path) => json!(["soft", hex(path)]),
                LinkTarget::External { file, object } => json!(["external", hex(file), hex(object)]),
                other => panic!("{other:?}"),
            };
            (hex(&l.name), json!([target, l.creation_order, i32::from(l.utf8)]))
        };
        json!({"links": self.links.values().map(link).collect::<BTreeMap<_, _>>(), "old": self.old})
    }
}

/// Makes `ops` changes; the group grows and shrinks in turns of `turn`.
fn change(store: &Store, model: &mut Model, objects: &[Address], counts: &mut [u32], random: &mut Random, ops: usize, turn: usize) {
    for k in 0..ops {
        let grow = if (k / turn).is_multiple_of(2) { 8 } else { 2 };
        if random.below(10) >= grow && !model.links.is_empty() {
            let name = model.links.keys().nth(random.below(model.links.len())).unwrap().clone();
            let link = model.remove(store, &name).unwrap();
            if let LinkTarget::Hard(a) = link.target
                && let Some(i) = objects.iter().position(|o| *o == a)
            {
                let mut header = HeaderEdit::load(store, a).unwrap();
                counts[i] = header.add_links(-1).unwrap();
                header.write(store).unwrap();
            }
            assert_eq!(remove_link(store, model.at.unwrap(), &name).unwrap(), None);
            continue;
        }
        let name = match random.below(12) {
            0 => format!("sm\u{f6}rg\u{e5}s {}", random.below(500)).into_bytes(),
            1 => format!("{}{}", "long".repeat(60), random.below(500)).into_bytes(),
            2 => [&b"no utf-8 \xff"[..], random.below(500).to_string().as_bytes()].concat(),
            _ => format!("n{}", random.below(20_000)).into_bytes(),
        };
        let target = match random.below(6) {
            0 => LinkTarget::Soft(format!("/some/where/{k}").into_bytes()),
            1 if !model.old => LinkTarget::External { file: b"other.h5".to_vec(), object: format!("/{k}").into_bytes() },
            _ => LinkTarget::Hard(objects[random.below(objects.len())]),
        };
        let hard = if let LinkTarget::Hard(a) = target { Some(a) } else { None };
        let new = !model.links.contains_key(&name);
        model.insert(store, name, target);
        if let (true, Some(a)) = (new, hard) {
            let i = objects.iter().position(|o| *o == a).unwrap();
            counts[i] = add_reference(store, a).unwrap();
        }
        if k % 97 == 0 {
            model.check(store);
        }
    }
    model.check(store);
}

/// Changes the file `name`; returns its expected contents.
fn session(store: &Store, name: &str) -> Value {
    let root = store.superblock().root;
    let folder = find(store, root, "objects");
    let objects: Vec<Address> = (0..10).map(|i| find(store, folder, &i.to_string())).collect();
    let mut counts = vec![1; 10];
    let mut random = Random(name.len() as u64);
    let mut groups = BTreeMap::new();
    for (path, ops, turn) in [("g", 400, 40), ("many", 900, 400)] {
        let mut model = Model::of(store, find(store, root, path));
        change(store, &mut model, &objects, &mut counts, &mut random, ops, turn);
        groups.insert(path.to_string(), model.json());
    }
    let default = GroupCreation::default();
    for (path, creation) in [
        ("new", default),
        ("ordered", GroupCreation { link_order: (true, true), attribute_order: (true, true), times: Some(1_000_000_000), ..default }),
        ("tracked", GroupCreation { link_order: (true, false), phase_change: Some((3, 2)), ..default }),
        ("dense", GroupCreation { attribute_order: (true, false), phase_change: Some((0, 0)), ..default }),
    ] {
        let at = create_group(store, &creation).unwrap();
        insert_link(store, root, &Link { name: path.into(), utf8: false, creation_order: None, target: LinkTarget::Hard(at) }).unwrap();
        assert!(is_empty(store, at).unwrap());
        let mut model = Model::of(store, at);
        change(store, &mut model, &objects, &mut counts, &mut random, 250, 30);
        if !model.old {
            // Too large for a message: the group becomes dense, then compact again.
            model.insert(store, b"large".to_vec(), LinkTarget::Soft(vec![b'x'; 65_530]));
            model.check(store);
            if random.below(2) == 0 {
                model.remove(store, b"large");
                model.check(store);
            }
        }
        groups.insert(path.to_string(), model.json());
    }
    if name == "earliest_plain" {
        // Old-style groups, few and many links, until a link that they cannot hold.
        for (path, n) in [("turned", 3), ("turned dense", 60)] {
            let at = create_group(store, &default).unwrap();
            insert_link(store, root, &Link { name: path.into(), utf8: false, creation_order: None, target: LinkTarget::Hard(at) }).unwrap();
            let mut model = Model::of(store, at);
            (0..n).for_each(|i| model.insert(store, format!("\u{e9}{i}").into_bytes(), LinkTarget::Soft(b"x".to_vec())));
            let external = LinkTarget::External { file: b"f".to_vec(), object: b"/o".to_vec() };
            let link = Link { name: b"e".to_vec(), utf8: false, creation_order: None, target: external };
            assert!(matches!(insert_link(store, at, &link), Err(Error::Unsupported { .. })));
            turn_new_style(store, at).unwrap();
            turn_new_style(store, at).unwrap();
            insert_link(store, at, &link).unwrap();
            model = Model::of(store, at);
            assert_eq!((model.links.len(), model.old), (n + 1, false));
            change(store, &mut model, &objects, &mut counts, &mut random, 100, 20);
            groups.insert(path.to_string(), model.json());
        }
    }
    // A group that is created and deleted.
    let at = create_group(store, &default).unwrap();
    let mut model = Model::of(store, at);
    change(store, &mut model, &objects, &mut [0; 10], &mut random, 0, 1);
    for i in 0..50 {
        model.insert(store, format!("s{i}").into_bytes(), LinkTarget::Soft(b"x".to_vec()));
    }
    delete_group_storage(store, at).unwrap();
    HeaderEdit::delete(store, at).unwrap();
    json!({"groups": groups, "references": counts})
}

#[test]
fn libhdf5_reads_and_changes_changed_groups() {
    let folder = tempfile::tempdir().unwrap();
    oracle("make", folder.path());
    let files: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    for path in &files {
        let (store, file): (Arc<Store>, Arc<GrowingFile>) = writable(std::fs::read(path).unwrap());
        let want = session(&store, path.file_stem().unwrap().to_str().unwrap());
        store.close().unwrap();
        std::fs::write(path.with_extension("out"), file.bytes()).unwrap();
        std::fs::write(path.with_extension("json"), want.to_string()).unwrap();
    }
    assert_eq!(oracle("check", folder.path()).trim(), files.len().to_string());
    assert!(files.len() >= 6);
}

#[test]
fn names_that_no_path_can_hold_are_refused() {
    let (store, _) = crate::meta::edit::testing::empty();
    let at = create_group(&store, &GroupCreation::default()).unwrap();
    let link = |name: &[u8]| Link { name: name.to_vec(), utf8: false, creation_order: None, target: LinkTarget::Hard(at) };
    for name in [&b""[..], b".", b"a/b", b"a\0"] {
        assert!(matches!(insert_link(&store, at, &link(name)), Err(Error::Io { errno: libc::EINVAL, .. })));
    }
    insert_link(&store, at, &link(b"..")).unwrap();
    let object = HeaderEdit::new(2, None, (false, false)).create(&store).unwrap();
    assert!(matches!(insert_link(&store, object, &link(b"a")), Err(Error::Io { errno: libc::ENOTDIR, .. })));
    assert!(matches!(is_empty(&store, object), Err(Error::Io { errno: libc::ENOTDIR, .. })));
}

#[test]
fn deleted_groups_are_freed() {
    for (bytes, root) in fixtures() {
        let (store, file) = writable(bytes);
        // Excludes the space of changes to the root group.
        let link = |name: &[u8]| Link { name: name.to_vec(), utf8: false, creation_order: None, target: LinkTarget::Soft(b"x".to_vec()) };
        insert_link(&store, root, &link(b"something")).unwrap();
        store.close().unwrap();
        let before = file.bytes().len();
        let (store, file) = writable(file.bytes());
        for creation in [GroupCreation::default(), GroupCreation { link_order: (true, true), ..GroupCreation::default() }] {
            let at = create_group(&store, &creation).unwrap();
            for i in 0..300 {
                insert_link(&store, at, &link(format!("link {i} {}", "x".repeat(i % 70)).as_bytes())).unwrap();
            }
            for i in 0..200 {
                remove_link(&store, at, format!("link {i} {}", "x".repeat(i % 70)).as_bytes()).unwrap().unwrap();
            }
            delete_group_storage(&store, at).unwrap();
            HeaderEdit::delete(&store, at).unwrap();
        }
        store.close().unwrap();
        assert_eq!(file.bytes().len(), before);
    }
}

/// Files with a group of each storage, and the address of their root groups.
fn fixtures() -> Vec<(Vec<u8>, Address)> {
    let all = ["old_deep", "compact", "dense"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/groups/{name}.h5"));
        let bytes = std::fs::read(path).unwrap();
        let root = writable(bytes.clone()).0.superblock().root;
        (bytes, root)
    });
    all.into()
}

#[test]
fn damaged_groups_are_changed_or_refused() {
    let mut random = Random(3);
    let (mut changed, mut refused) = (0, 0);
    for (bytes, root) in fixtures() {
        let groups: Vec<Address> = {
            let (store, _) = writable(bytes.clone());
            let hard = |l: Link| if let LinkTarget::Hard(a) = l.target { Some(a) } else { None };
            let all = listed(&store, root).into_iter().filter_map(hard).filter(|a| is_empty(&store, *a).is_ok());
            all.chain([root]).take(4).collect()
        };
        for _ in 0..250 {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = 48 + random.below(bytes.len() - 48);
                bytes[at] ^= 1 << random.below(8);
            }
            let file = Arc::new(GrowingFile::new(bytes));
            let Ok(store) = Store::open_writable(file, Box::new(MemoryJournal::default())) else { continue };
            for &at in &groups {
                let results = attempt(&store, at);
                changed += results.iter().filter(|r| **r).count();
                refused += results.iter().filter(|r| !**r).count();
            }
        }
    }
    assert!(changed > 1000 && refused > 100, "{changed} {refused}");
}

/// Changes a group that may be damaged; returns which changes succeeded.
fn attempt(store: &Store, at: Address) -> Vec<bool> {
    let mut names = Vec::new();
    if let Ok(Some(s)) = storage(store, at) {
        let _ = read::list(store, &s, 0, &mut |l, _| {
            names.push(l.name);
            Ok(if names.len() < 8 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
    }
    let link = Link { name: b"another".to_vec(), utf8: false, creation_order: None, target: LinkTarget::Hard(at) };
    let mut results = vec![insert_link(store, at, &link).is_ok()];
    results.extend(names.iter().map(|n| remove_link(store, at, n).is_ok()));
    results.push(is_empty(store, at).is_ok());
    results.push(delete_group_storage(store, at).is_ok());
    results
}
