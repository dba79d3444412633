//! Containers over stores in memory: compared with the reference model, written by several
//! sessions, and by sessions that are killed.

use super::access::IodConnector;
use super::kind::root_entries;
use super::state::State;
use crate::base::datatype::Datatype;
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Elements, Taken};
use crate::connector::memory::{MemoryConnector, MemoryObject};
use crate::connector::{
    ChunksSpec, Connector, DatasetSpec, FillSpec, FilterSpec, Form, LinkFacts, LinkTarget, NewValue, Newlines, ObjectId, ObjectKind,
    Ownership, Shape,
};
use crate::dataset::environment::Environment;
use crate::dataset::layout::Seek;
use crate::file::store::ObjectStore;
use crate::file::store::faulty::{Fault, FaultyStore};
use crate::file::store::memory::MemoryStore;
use crate::iod::Container;
use crate::iod::rules::Rules;
use crate::present::parse::parse_datatype;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

pub(super) fn open_in(store: Arc<dyn ObjectStore>, version: Option<u64>) -> Result<Arc<IodConnector>> {
    open_with(store, version, Rules::default())
}

/// A connector that keeps only `rules`.
pub(super) fn open_with(store: Arc<dyn ObjectStore>, version: Option<u64>, rules: Rules) -> Result<Arc<IodConnector>> {
    let container = Arc::new(Container::open_with(store, rules)?);
    let mut snapshot = container.snapshot(version)?;
    let session = if version.is_none() { Some(container.begin_session(&mut snapshot)?) } else { None };
    let (writable, state) = (session.is_some(), State::new(container.clone(), snapshot, session));
    Ok(IodConnector::new(container, state, writable, environment()))
}

/// Small caches, on threads that all tests share.
pub(super) fn environment() -> Arc<Environment> {
    static THREADS: OnceLock<Arc<rayon::ThreadPool>> = OnceLock::new();
    let threads = || Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    Arc::new(Environment::with_pool(1 << 20, 256 << 20, THREADS.get_or_init(threads).clone()))
}

pub(super) fn open(store: &MemoryStore) -> Arc<IodConnector> {
    open_in(Arc::new(store.clone()), None).unwrap()
}

pub(super) fn empty() -> MemoryStore {
    let store = MemoryStore::default();
    Container::create(Arc::new(store.clone()), root_entries()).unwrap();
    store
}

pub(super) fn errno<T>(result: &Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(Error::Refused { errno, .. }) => *errno,
        Err(_) => -1,
    }
}

pub(super) fn bytes(c: &dyn Connector, id: ObjectId) -> Vec<u8> {
    let content = c.content(id, Form::Main).unwrap();
    let mut all = vec![0; content.size().unwrap() as usize];
    assert_eq!(content.read(0, &mut all).unwrap(), all.len());
    all
}

/// All that is reachable, by path.
pub(super) fn shown(c: &dyn Connector) -> BTreeMap<String, String> {
    shown_below(c, c.root())
}

/// All that is reachable from the group `root`, by path.
pub(super) fn shown_below(c: &dyn Connector, root: ObjectId) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut groups = vec![(String::new(), root)];
    while let Some((path, group)) = groups.pop() {
        let mut links = Vec::new();
        c.list(group, 0, &mut |link, _| {
            links.push(link);
            ControlFlow::Continue(())
        })
        .unwrap();
        for link in links {
            let path = format!("{path}/{}", String::from_utf8_lossy(&link.name));
            assert_eq!(c.lookup(group, &link.name).unwrap().as_ref(), Some(&link));
            let LinkTarget::Hard(id) = link.target else {
                all.insert(path, format!("{:?}", link.target));
                continue;
            };
            let info = c.info(id).unwrap();
            let attributes: Vec<_> = c
                .attributes(id)
                .unwrap()
                .iter()
                .map(|name| (String::from_utf8_lossy(name).into_owned(), c.attribute(id, name).unwrap().unwrap().bytes))
                .collect();
            let what = match info.kind {
                ObjectKind::Dataset => {
                    let d = c.dataset(id).unwrap();
                    format!("{:?} {:?} {:?}", d.datatype, d.shape, bytes(c, id))
                }
                kind => {
                    groups.push((path.clone(), id));
                    format!("{kind:?}")
                }
            };
            all.insert(path, format!("{} links, {what}, {attributes:?}", info.links));
        }
    }
    all
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A place of a name: a group and the name in it.
const GROUPS: [&[u8]; 4] = [b"/", b"/a", b"/b", b"/a/c"];
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// One random operation; the errno of its result. `None`: there is no such place.
pub(super) fn operation(c: &dyn Connector, seed: u64) -> Option<i32> {
    let mut r = Random(seed);
    r.next(2);
    let edit = c.edit().unwrap();
    let mut place = || {
        let (group, name) = (GROUPS[r.next(4) as usize], NAMES[r.next(5) as usize]);
        let id = c.resolve(c.root(), group).ok().flatten().filter(|id| c.info(*id).unwrap().kind == ObjectKind::Group)?;
        Some((id, name))
    };
    let (from, to) = (place()?, place()?);
    let target = match c.lookup(from.0, from.1).unwrap().map(|l| l.target) {
        Some(LinkTarget::Hard(id)) => Some(id),
        _ => None,
    };
    let file = target.filter(|id| c.info(*id).unwrap().kind == ObjectKind::Dataset);
    let (offset, len) = (r.next(300), r.next(200) as usize);
    let data = vec![r.next(255) as u8 + 1; len];
    let attribute = NAMES[r.next(3) as usize];
    Some(match r.next(16) {
        0..=2 => errno(&edit.create_file(from.0, from.1)),
        3 => errno(&edit.create_group(from.0, from.1)),
        4 => errno(&edit.link(to.0, to.1, file?)),
        5 => errno(&edit.symlink(from.0, from.1, b"/a/d")),
        6 => errno(&edit.unlink(from.0, from.1, r.next(2) == 0)),
        // A group is not moved into itself: the kernel refuses that.
        7 if target.is_none_or(|t| file == Some(t)) => {
            let taken = [Taken::Replace, Taken::Refuse][r.next(2) as usize];
            errno(&edit.rename(from, to, taken))
        }
        8..=10 => errno(&edit.write(file?, offset, &data)),
        11 => errno(&edit.set_size(file?, offset)),
        12 => errno(&edit.zero(file?, offset, len as u64)),
        13 => errno(&edit.set_attribute_bytes(target?, attribute, &data)),
        14 => errno(&edit.remove_attribute(target?, attribute)),
        15 => errno(&edit.rename_attribute(target?, attribute, NAMES[3], r.next(2) == 0)),
        _ => return None,
    })
}

#[test]
fn random_operations_do_what_the_reference_model_does() {
    let root = MemoryObject { links: Some(BTreeMap::new()), ..MemoryObject::default() };
    let model = MemoryConnector::writable(vec![root]).unwrap();
    let store = empty();
    let mut iod = open(&store);
    let mut random = Random(11);
    for n in 0..3000 {
        let seed = random.next(1 << 30);
        let (want, have) = (operation(&model, seed), operation(&*iod, seed));
        assert_eq!(have, want, "operation {n}");
        if n % 50 == 0 {
            assert_eq!(shown(&*iod), shown(&model), "after operation {n}");
        }
        if n % 150 == 149 {
            Edit::commit(&*iod).unwrap();
        }
        if n % 400 == 399 {
            iod.close().unwrap();
            iod = open(&store);
            assert_eq!(shown(&*iod), shown(&model), "reopened after operation {n}");
        }
    }
}

const STRING: &str = r#"{"class":"H5T_STRING","charSet":"H5T_CSET_UTF8","strPad":"H5T_STR_NULLTERM","length":"H5T_VARIABLE"}"#;

pub(super) fn spec(dtype: &str, shape: &[u64]) -> DatasetSpec {
    let dtype = parse_datatype(dtype).unwrap();
    DatasetSpec { dtype: Some(dtype), shape: Some(shape.to_vec()), ..DatasetSpec::default() }
}

#[test]
fn chunks_filters_fill_values_and_holes() {
    let store = empty();
    let c = open(&store);
    let element = Datatype::byte();
    let fill = NewValue::plain(element.clone(), Shape::Scalar, vec![7]);
    let deflate = FilterSpec { id: 1, flags: 0, name: Vec::new(), cd_values: vec![6] };
    let spec = DatasetSpec {
        dtype: Some(element),
        shape: Some(vec![10, 10]),
        maxshape: Some(vec![None, Some(10)]),
        chunks: Some(ChunksSpec::Dims(vec![4, 4])),
        filters: Some(vec![deflate]),
        fillvalue: Some(FillSpec::Value(fill)),
        ..DatasetSpec::default()
    };
    let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
    let mut model = vec![7u8; 100];
    let mut random = Random(3);
    for n in 0..200u64 {
        let at = random.next(model.len() as u64);
        let len = random.next(model.len() as u64 - at + 1) as usize;
        c.write(id, at, &vec![n as u8; len]).unwrap();
        model[at as usize..at as usize + len].fill(n as u8);
        if n % 20 == 19 {
            let rows = random.next(15) + 1;
            c.set_size(id, rows * 10).unwrap();
            model.resize(rows as usize * 10, 7);
            Edit::commit(&*c).unwrap();
        }
        assert_eq!(bytes(&*c, id), model);
    }
    c.close().unwrap();
    let again = open(&store);
    let info = again.dataset(id).unwrap();
    assert_eq!((info.chunks, info.filters.len(), info.layout), (Some(vec![4, 4]), 1, "chunked"));
    assert_eq!(bytes(&*again, id), model);
    let file = again.create_file(again.root(), b"hole").unwrap();
    again.write(file, 5 << 20, b"end").unwrap();
    let content = again.content(file, Form::Main).unwrap();
    assert_eq!((content.seek(0, Seek::Data).unwrap(), content.seek(0, Seek::Hole).unwrap()), (Some(5 << 20), Some(0)));
    assert_eq!(content.allocated_exactly().unwrap(), 3);
    again.zero(file, 4 << 20, (1 << 20) + 3).unwrap();
    assert_eq!((content.seek(0, Seek::Data).unwrap(), content.size().unwrap()), (None, (5 << 20) + 3));
}

#[test]
fn a_file_becomes_a_dataset_of_the_same_bytes() {
    let store = empty();
    let c = open(&store);
    let id = c.create_file(c.root(), b"f").unwrap();
    let data: Vec<u8> = (0..240u8).collect();
    c.write(id, 0, &data).unwrap();
    let typed = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![3, 5])), ..spec("<i4", &[6, 10]) };
    c.change_dataset(id, typed, Elements::Kept).unwrap();
    assert_eq!(bytes(&*c, id), data);
    c.change_dataset(id, DatasetSpec { chunks: Some(ChunksSpec::None), ..spec("<i2", &[120]) }, Elements::Kept).unwrap();
    c.close().unwrap();
    let c = open(&store);
    assert_eq!((bytes(&*c, id), c.dataset(id).unwrap().layout), (data, "contiguous"));
    assert_eq!(errno(&c.set_size(id, 10)), libc::EPERM);
    assert_eq!(errno(&c.write(id, 240, b"x")), libc::EFBIG);
    c.change_dataset(id, spec("<i2", &[4]), Elements::Dropped).unwrap();
    assert_eq!(bytes(&*c, id), [0; 8]);
    let sparse = DatasetSpec { layout: Some("virtual".into()), ..DatasetSpec::default() };
    assert!(c.change_dataset(id, sparse, Elements::Kept).is_err());
}

#[test]
fn variable_length_strings_are_written_by_lines_and_exactly() {
    let store = empty();
    let c = open(&store);
    let strings = DatasetSpec { maxshape: Some(vec![None]), ..spec(STRING, &[0]) };
    let id = c.create_dataset(c.root(), b"s", &strings).unwrap();
    c.hold(id);
    c.write_as(id, Form::Main, 0, b"one\n\nthree\n").unwrap();
    assert_eq!(bytes(&*c, id), b"one\n\nthree\n");
    assert!(c.finish(id, true).unwrap());
    c.release(id);
    assert_eq!(c.dataset(id).unwrap().shape, Shape::Simple { dims: vec![3], max: Some(vec![u64::MAX]) });
    c.close().unwrap();
    let c = open(&store);
    assert_eq!(bytes(&*c, id), b"one\n\nthree\n");
    let exact = c.content(id, Form::Exact).unwrap();
    let mut form = vec![0; exact.size().unwrap() as usize];
    exact.read(0, &mut form).unwrap();
    assert_eq!(form, b"\x03\0\0\0one\0\0\0\0\x05\0\0\0three");
    c.set_size_as(id, Form::Main, 0).unwrap();
    assert_eq!(bytes(&*c, id), b"");
    let many: Vec<u8> = (0..5000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    c.write_as(id, Form::Main, 0, &many).unwrap();
    c.finish(id, true).unwrap();
    Edit::commit(&*c).unwrap();
    assert_eq!(bytes(&*c, id), many);
    let value = NewValue::plain(Datatype::byte(), Shape::Scalar, vec![1]);
    c.set_attribute(id, b"x", &value).unwrap();
    assert_eq!(c.attribute(id, b"x").unwrap().unwrap().exact().unwrap(), [1]);
}

/// Regression: appending to strings with newlines made each line a string.
#[test]
fn lines_are_appended_to_strings_with_newlines() {
    let store = empty();
    let c = open(&store);
    let strings = DatasetSpec { maxshape: Some(vec![None]), ..spec(STRING, &[0]) };
    let id = c.create_dataset(c.root(), b"s", &strings).unwrap();
    let newlines = Newlines::from_numbers(&[0, 1]);
    c.change_dataset(id, DatasetSpec { newlines, ..DatasetSpec::default() }, Elements::Kept).unwrap();
    c.hold(id);
    c.write_as(id, Form::Main, 0, b"a\nb\nc\n").unwrap();
    c.finish(id, true).unwrap();
    c.release(id);
    let shape = |c: &IodConnector| c.dataset(id).unwrap().shape.count();
    let kept = |c: &IodConnector| c.newlines(id).unwrap().unwrap().numbers().collect::<Vec<_>>();
    assert_eq!((shape(&c), kept(&c)), (Some(2), vec![0, 1]));
    c.close().unwrap();
    let c = open(&store);
    c.hold(id);
    assert_eq!(errno(&c.write_as(id, Form::Main, 0, b"x")), libc::EINVAL);
    assert_eq!(errno(&c.set_size_as(id, Form::Main, 3)), libc::EINVAL);
    c.write_as(id, Form::Main, 6, b"more\n").unwrap();
    c.finish(id, true).unwrap();
    assert_eq!((bytes(&*c, id), shape(&c), kept(&c)), (b"a\nb\nc\nmore\n".to_vec(), Some(3), vec![0, 1]));
    c.set_size_as(id, Form::Main, 0).unwrap();
    c.write_as(id, Form::Main, 0, b"1\n2\n").unwrap();
    c.finish(id, true).unwrap();
    c.release(id);
    assert_eq!((shape(&c), kept(&c)), (Some(2), vec![]));
}

/// Two sessions of a container with one file of 100 bytes.
fn two() -> (MemoryStore, ObjectId, Arc<IodConnector>, Arc<IodConnector>) {
    let store = empty();
    let first = open(&store);
    let id = first.create_file(first.root(), b"f").unwrap();
    first.write(id, 0, &[1; 100]).unwrap();
    first.close().unwrap();
    let (a, b) = (open(&store), open(&store));
    (store, id, a, b)
}

pub(super) fn conflict(done: Result<()>) -> String {
    match done {
        Err(Error::Refused { errno: libc::EIO, reason }) => reason.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn disjoint_writes_to_one_chunk_both_survive() {
    let (store, id, a, b) = two();
    a.write(id, 0, &[2; 40]).unwrap();
    b.write(id, 40, &[3; 40]).unwrap();
    let new = (a.create_file(a.root(), b"of-a").unwrap(), b.create_file(b.root(), b"of-b").unwrap());
    assert_ne!(new.0, new.1);
    a.close().unwrap();
    Edit::commit(&*b).unwrap();
    let merged = [[2; 40].as_slice(), &[3; 40], &[1; 20]].concat();
    assert_eq!(bytes(&*b, id), merged);
    assert!(b.lookup(b.root(), b"of-a").unwrap().is_some());
    b.close().unwrap();
    let c = open(&store);
    assert_eq!(bytes(&*c, id), merged);
    assert_eq!(shown(&*c).len(), 3);
}

#[test]
fn true_conflicts_are_refused_with_a_name() {
    type Change = fn(&IodConnector, ObjectId);
    let cases: [(&str, Change, Change); 8] = [
        ("both changed the name", |c, _| _ = c.create_file(c.root(), b"n").unwrap(), |c, _| _ = c.create_group(c.root(), b"n").unwrap()),
        ("both wrote the same elements", |c, id| c.write(id, 5, b"a").unwrap(), |c, id| c.write(id, 4, b"bb").unwrap()),
        ("one removed the object", |c, _| _ = c.unlink(c.root(), b"f", false).unwrap(), |c, id| c.write(id, 0, b"b").unwrap()),
        ("one removed the object", |c, id| c.write(id, 0, b"b").unwrap(), |c, _| _ = c.unlink(c.root(), b"f", false).unwrap()),
        (
            "both changed the attribute",
            |c, id| c.set_attribute_bytes(id, b"x", b"1").unwrap(),
            |c, id| c.set_attribute_bytes(id, b"x", b"2").unwrap(),
        ),
        // Two that count to the same number.
        (
            "both changed the attribute",
            |c, id| c.set_attribute_bytes(id, b"x", b"6").unwrap(),
            |c, id| c.set_attribute_bytes(id, b"x", b"6").unwrap(),
        ),
        ("one removed the object", |c, id| c.link(c.root(), b"h", id).unwrap(), |c, _| _ = c.unlink(c.root(), b"f", false).unwrap()),
        ("both wrote the same elements", |c, id| c.set_size(id, 10).unwrap(), |c, id| c.write(id, 50, b"b").unwrap()),
    ];
    for (reason, first, second) in cases {
        let (store, id, a, b) = two();
        first(&a, id);
        second(&b, id);
        a.close().unwrap();
        let text = conflict(Edit::commit(&*b));
        assert!(text.contains(reason) && text.contains("version"), "{text}");
        // Also of an object that the session removed.
        assert!(text.contains("/f") || text.contains("name \"n\" of / with"), "{text}");
        assert_eq!(errno(&b.write(id, 0, b"z")), libc::EIO, "nothing more is written");
        assert!(b.close().is_err());
        open(&store);
    }
}

#[test]
fn an_order_of_some_links_keeps_that_of_the_others() {
    let store = empty();
    let c = open(&store);
    let root = c.root();
    for name in [b"a", b"b", b"c", b"d", b"e"] {
        c.create_group(root, name).unwrap();
    }
    let order = |names: &str| c.set_link_order(root, names.bytes().map(|b| vec![b]).collect()).unwrap();
    let shown = || c.created_links(root, 9).unwrap().unwrap().concat();
    order("edcba");
    assert_eq!(shown(), b"edcba");
    order("bxc");
    assert_eq!(shown(), b"edbca");
    c.create_group(root, b"A").unwrap();
    assert_eq!(shown(), b"edbcaA");
    order("Ae");
    assert_eq!(shown(), b"Aedbca");
}

#[test]
fn links_of_two_sessions_are_counted() {
    let (store, id, a, b) = two();
    a.link(a.root(), b"g", id).unwrap();
    b.link(b.root(), b"h", id).unwrap();
    a.close().unwrap();
    b.close().unwrap();
    let c = open(&store);
    assert_eq!((c.info(id).unwrap().links, shown(&*c).len()), (3, 3));
}

#[test]
fn readers_stay_on_their_version() {
    let (store, id, a, b) = two();
    let version = a.states.shown().snapshot.version();
    a.write(id, 0, &[9; 100]).unwrap();
    a.close().unwrap();
    assert_eq!(bytes(&*b, id), [1; 100]);
    let old = open_in(Arc::new(store.clone()), Some(version)).unwrap();
    assert_eq!(bytes(&*old, id), [1; 100]);
    assert!(old.edit().is_none());
    assert_eq!(bytes(&*open(&store), id), [9; 100]);
}

#[test]
fn a_killed_session_leaves_the_state_before_or_after_it() {
    for number in 0.. {
        let (store, id, before, _) = two();
        let before = shown(&*before);
        let faulty = Arc::new(FaultyStore::new(store.clone(), Fault::Killed, number));
        let run = || {
            let c = open_in(faulty.clone() as Arc<dyn ObjectStore>, None)?;
            c.write(id, 50, &[5; 20_000])?;
            let group = c.create_group(c.root(), b"g")?;
            c.create_file(group, b"x")?;
            c.set_attribute_bytes(id, b"a", &[1; 10_000])?;
            c.close()
        };
        let done = run();
        let after = shown(&*open(&store));
        assert_eq!(done.is_ok(), !faulty.is_hit());
        match done {
            Ok(()) => {
                assert_eq!(after.len(), 3);
                assert!(number >= 3);
                break;
            }
            Err(_) => assert!(after == before || after.len() == 3, "{after:?}"),
        }
    }
}

#[test]
fn owners_of_links_move_with_them() {
    let store = empty();
    let c = open(&store);
    let root = c.root();
    let owner = |uid| Ownership { uid: Some(uid), ..Ownership::default() };
    let owner_of = |c: &IodConnector, name: &[u8]| c.link_facts(root, name).unwrap().ownership;
    for (name, uid) in [(b"a", 7), (b"b", 8)] {
        c.symlink(root, name, b"target").unwrap();
        c.set_link_ownership(root, name, &owner(uid)).unwrap();
    }
    c.rename((root, b"a"), (root, b"b"), Taken::Exchange).unwrap();
    assert_eq!((owner_of(&c, b"a"), owner_of(&c, b"b")), (owner(8), owner(7)));
    c.rename((root, b"a"), (root, b"b"), Taken::Replace).unwrap();
    c.close().unwrap();
    let c = open(&store);
    assert_eq!((owner_of(&c, b"a"), owner_of(&c, b"b")), (Ownership::default(), owner(8)));
    c.unlink(root, b"b", false).unwrap();
    c.symlink(root, b"b", b"target").unwrap();
    assert_eq!(owner_of(&c, b"b"), Ownership::default());
}

#[test]
fn texts_of_links_move_with_them() {
    let store = empty();
    let c = open(&store);
    let root = c.root();
    let owner = Ownership { uid: Some(7), ..Ownership::default() };
    c.symlink(root, b"a", b"target").unwrap();
    c.set_link_ownership(root, b"a", &owner).unwrap();
    c.retarget(root, b"a", b"/c", Some(b"../c")).unwrap();
    c.rename((root, b"a"), (root, b"b"), Taken::Replace).unwrap();
    c.close().unwrap();
    let c = open(&store);
    let facts = c.link_facts(root, b"b").unwrap();
    assert_eq!((facts.ownership, facts.text.unwrap().of(b"/c")), (owner, Some(b"../c".to_vec())));
    assert_eq!(c.lookup(root, b"b").unwrap().unwrap().target, LinkTarget::Soft(b"/c".to_vec()));
    c.retarget(root, b"b", b"d", None).unwrap();
    assert_eq!(c.link_facts(root, b"b").unwrap(), LinkFacts { ownership: owner, text: None });
    c.unlink(root, b"b", false).unwrap();
    assert_eq!(c.link_facts(root, b"b").unwrap(), LinkFacts::default());
    assert!(c.retarget(root, b"b", b"d", None).is_err());
}

#[test]
fn held_objects_outlive_their_names() {
    let store = empty();
    let c = open(&store);
    let id = c.create_file(c.root(), b"f").unwrap();
    c.hold(id);
    assert_eq!(c.unlink(c.root(), b"f", false).unwrap(), Some(id));
    c.write(id, 0, b"x").unwrap();
    assert_eq!(bytes(&*c, id), b"x");
    c.release(id);
    assert!(c.info(id).is_err());
    c.close().unwrap();
    assert!(shown(&*open(&store)).is_empty());
}

/// A read that failed in the middle of an operation left a part of it.
#[test]
fn an_operation_that_fails_changes_nothing() {
    let base = empty();
    let c = open(&base);
    let (a, b) = (c.create_group(c.root(), b"a").unwrap(), c.create_group(c.root(), b"b").unwrap());
    for (group, name) in [(a, b"one"), (a, b"two"), (b, b"one")] {
        let id = c.create_dataset(group, name, &spec("u1", &[9000])).unwrap();
        c.write(id, 0, &[7; 9000]).unwrap();
    }
    c.close().unwrap();
    type Operation = fn(&IodConnector, ObjectId, ObjectId) -> Result<()>;
    let operations: [(&str, Operation); 5] = [
        ("rename", |c, a, b| c.rename((a, b"one"), (b, b"one"), Taken::Replace).map(drop)),
        ("exchange", |c, a, b| c.rename((a, b"two"), (b, b"one"), Taken::Exchange).map(drop)),
        ("move", |c, a, b| c.rename((c.root(), b"b"), (a, b"b"), Taken::Refuse).map(drop).and(c.lookup(b, b"one").map(drop))),
        ("unlink", |c, a, _| c.unlink(a, b"one", false).map(drop)),
        ("change", |c, _, b| {
            let Some(LinkTarget::Hard(id)) = c.lookup(b, b"one")?.map(|l| l.target) else { return Ok(()) };
            c.change_dataset(id, spec("<u2", &[4500]), Elements::Kept)
        }),
    ];
    let mut failures = 0;
    for (what, operation) in operations {
        for number in 0.. {
            assert!(number < 1000, "{what}");
            // Another copy for each, because operations begin sessions.
            let faulty = Arc::new(FaultyStore::new(base.copied(), Fault::Unreadable, i64::MAX));
            let c = open_in(faulty.clone(), None).unwrap();
            let before = shown(&*open_in(faulty.clone(), None).unwrap());
            faulty.fail_at(number);
            let done = operation(&c, a, b);
            faulty.heal();
            if done.is_ok() {
                break;
            }
            failures += 1;
            assert_eq!(shown(&*c), before, "{what}, read {number}: {done:?}");
            c.close().unwrap();
            assert_eq!(shown(&*open_in(faulty.clone(), None).unwrap()), before, "{what}, read {number}, committed");
        }
    }
    assert!(failures > 0);
}

/// A store that failed for a moment left attributes in packs that it never got, and the next commit
/// referred to them.
#[test]
fn values_stay_in_memory_until_their_pack_is_stored() {
    let store = empty();
    let faulty = Arc::new(FaultyStore::new(store.clone(), Fault::Killed, i64::MAX));
    let c = open_in(faulty.clone(), None).unwrap();
    let id = c.create_file(c.root(), b"f").unwrap();
    c.set_attribute_bytes(id, b"long", &[7; 10_000]).unwrap();
    let other = c.create_file(c.root(), b"g").unwrap();
    faulty.fail_at(0);
    // More than four times the memory for changes.
    assert!(c.write(other, 0, &vec![1; 80 << 20]).is_err());
    faulty.heal();
    Edit::commit(&*c).unwrap();
    let c = open(&store);
    assert_eq!(c.attribute(id, b"long").unwrap().unwrap().bytes, [7; 10_000]);
}
