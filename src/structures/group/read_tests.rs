//! Lookup and listing of groups in files of libhdf5, compared with its own lists
//! (`tests/fixtures/groups/make_groups.py` wrote both), and in damaged files.

use super::*;
use crate::format::message::attribute_info::AttributeInfo;
use crate::format::message::link::LinkTarget;
use crate::format::message::link_info::LinkInfo;
use crate::format::message::symbol_table::SymbolTable as SymbolTableMessage;
use crate::format::object_header::kind;
use crate::meta::ObjectHeader;
use crate::structures::attributes::dense as dense_attributes;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

macro_rules! fixture {
    ($name:literal) => {
        (
            &include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/groups/", $name, ".h5"))[..],
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/groups/", $name, ".json")),
        )
    };
}

/// Storage of the links of the object with this header; `None` if it is no group. Logs and skips
/// link messages that cannot be decoded. Errors: a damaged symbol table or link info message.
pub(in crate::structures::group) fn storage(store: &Store, header: &ObjectHeader) -> Result<Option<GroupStorage>> {
    let (ctx, at) = (store.ctx(), header.address);
    if let Some(m) = header.find(kind::SYMBOL_TABLE) {
        let SymbolTableMessage { btree, heap } = SymbolTableMessage::decode(&m.body, ctx, at)?;
        return Ok(Some(GroupStorage::SymbolTable { btree, heap }));
    }
    let info = header.find(kind::LINK_INFO).map(|m| LinkInfo::decode(&m.body, ctx, at)).transpose();
    if let Ok(Some(LinkInfo { fractal_heap, name_index, creation_index, .. })) = info
        && fractal_heap.is_defined()
    {
        let creation_index = creation_index.unwrap_or(Address::UNDEF);
        return Ok(Some(GroupStorage::Dense { fractal_heap, name_index, creation_index }));
    }
    let mut links = Vec::new();
    for m in header.all(kind::LINK) {
        match Link::decode(&m.body, ctx, at) {
            Ok(link) => links.push(link),
            Err(error) => tracing::warn!(%error, "skipped a link message that cannot be decoded"),
        }
    }
    match info {
        Err(e) if links.is_empty() => Err(e),
        Ok(None) if links.is_empty() => Ok(None),
        _ => Ok(Some(GroupStorage::Compact(links))),
    }
}

fn open(bytes: &[u8]) -> Result<Store> {
    Store::open(std::sync::Arc::new(crate::file::memory::MemoryFile::new(bytes)))
}

/// Header of the object `name` of the root group.
fn header(store: &Store, name: &str) -> Result<ObjectHeader> {
    let root = ObjectHeader::load(store, store.superblock().root)?;
    let storage = storage(store, &root)?.ok_or_else(|| Error::corrupt("root", root.address, "is no group"))?;
    match lookup(store, &storage, name.as_bytes())?.map(|l| l.target) {
        Some(LinkTarget::Hard(at)) => ObjectHeader::load(store, at),
        _ => Err(Error::corrupt("root", root.address, "has no such group")),
    }
}

fn unhex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

/// All links, listed in slices of `slice`.
fn all(store: &Store, storage: &GroupStorage, slice: usize) -> Result<Vec<Link>> {
    let (mut links, mut position) = (Vec::new(), 0);
    loop {
        let before = links.len();
        list(store, storage, position, &mut |link, after| {
            assert!(after > position && after < 1 << 63);
            links.push(link);
            position = after;
            Ok(if links.len() - before < slice { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if links.len() - before < slice {
            return Ok(links);
        }
    }
}

fn check_link(link: &Link, want: &Value, old: bool) {
    assert!(old || link.utf8 == want["utf8"].as_bool().unwrap(), "{link:?}");
    assert_eq!(link.creation_order, want["order"].as_i64());
    let text = |v: &Value| unhex(v.as_str().unwrap());
    match (&link.target, want["type"].as_u64().unwrap()) {
        (LinkTarget::Hard(a), 0) => assert_eq!(Some(a.0), want["value"].as_u64()),
        (LinkTarget::Soft(p), 1) => assert_eq!(*p, text(&want["value"])),
        (LinkTarget::External { file, object }, 64) => {
            assert_eq!((file, object), (&text(&want["value"][0]), &text(&want["value"][1])));
        }
        (LinkTarget::UserDefined { class, data }, kind) => assert_eq!((u64::from(*class), &data[..]), (kind, &b"user data\0\x01"[..])),
        other => panic!("{other:?}"),
    }
}

/// Compares every group of a file with its list; returns how many links there were.
fn check(bytes: &[u8], json: &str) -> usize {
    let store = open(bytes).unwrap();
    let lists: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(json).unwrap();
    let mut n = 0;
    for (name, want) in &lists {
        let storage = storage(&store, &header(&store, name).unwrap()).unwrap().unwrap();
        let old = matches!(storage, GroupStorage::SymbolTable { .. });
        let want: BTreeMap<Vec<u8>, &Value> = want.iter().map(|(k, v)| (unhex(k), v)).collect();
        for slice in if want.len() < 200 { vec![1, 2, 3, 7, usize::MAX] } else { vec![300, usize::MAX] } {
            let links = all(&store, &storage, slice).unwrap();
            assert_eq!(links.len(), want.len(), "{name} in slices of {slice}");
            let names: HashSet<&[u8]> = links.iter().map(|l| &l.name[..]).collect();
            assert!(names.len() == links.len() && want.keys().all(|k| names.contains(&k[..])));
            assert!(!old || links.windows(2).all(|w| w[0].name < w[1].name), "order");
            links.iter().for_each(|l| check_link(l, want[&l.name], old));
        }
        for (k, v) in &want {
            check_link(&lookup(&store, &storage, k).unwrap().unwrap(), v, old);
            let mut other = k.clone();
            other.push(b'~');
            assert_eq!(lookup(&store, &storage, &other).unwrap(), None);
            other.insert(0, 1);
            assert_eq!(lookup(&store, &storage, &other).unwrap(), None);
        }
        for absent in [&b""[..], b"\0", b"link00000\0", b"zzzzzzzzzzzz", b"\xff\xff\xff"] {
            assert_eq!(lookup(&store, &storage, absent).unwrap(), None);
        }
        assert_eq!(len(&store, &storage).unwrap(), (!old).then_some(want.len() as u64));
        n += want.len();
    }
    n
}

#[test]
fn symbol_tables_agree_with_libhdf5() {
    for ((bytes, json), n) in [(fixture!("old_deep"), 60), (fixture!("old_deleted"), 20), (fixture!("old_one"), 1)] {
        assert_eq!(check(bytes, json), n);
    }
}

#[test]
fn compact_and_dense_groups_agree_with_libhdf5() {
    for ((bytes, json), n) in [(fixture!("compact"), 24), (fixture!("dense"), 42), (fixture!("dense_deep"), 159)] {
        assert_eq!(check(bytes, json), n);
    }
}

/// Files of `make_groups.py DIRECTORY`, if `H5DIR_GROUP_FILES` names that directory.
#[test]
fn large_groups_agree_with_libhdf5() {
    let Ok(directory) = std::env::var("H5DIR_GROUP_FILES") else { return };
    let mut n = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "h5") {
            let (bytes, json) = (std::fs::read(&path).unwrap(), std::fs::read_to_string(path.with_extension("json")).unwrap());
            let began = std::time::Instant::now();
            n += if path.file_name().unwrap().to_str().unwrap().starts_with("attr") {
                check_attributes(&bytes, &json)
            } else {
                check(&bytes, &json)
            };
            println!("{}: {:?}", Path::new(path.file_name().unwrap()).display(), began.elapsed());
        }
    }
    assert!(n > 0);
}

fn check_attributes(bytes: &[u8], json: &str) -> usize {
    let store = open(bytes).unwrap();
    let lists: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(json).unwrap();
    let mut n = 0;
    for (group, want) in &lists {
        let header = header(&store, group).unwrap();
        let info = header.find(kind::ATTRIBUTE_INFO).unwrap();
        let info = AttributeInfo::decode(&info.body, store.ctx(), header.address).unwrap();
        assert_eq!(info.encode(store.ctx()).unwrap(), header.find(kind::ATTRIBUTE_INFO).unwrap().body);
        let mut found = Vec::new();
        dense_attributes::list(&store, info.fractal_heap, info.name_index, &mut |a| {
            found.push(a);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(found.len(), want.len());
        if let Some(index) = info.creation_index {
            let mut orders = Vec::new();
            dense_attributes::list_by(&store, info.fractal_heap, index, &dense_attributes::ATTRIBUTES.by_creation, &mut |a| {
                assert!(found.contains(&a));
                orders.push(a.creation_order);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            assert!(orders.iter().copied().eq(0..want.len() as u32));
        }
        for (name, &order) in want {
            let name = unhex(name);
            let some = dense_attributes::find(&store, info.fractal_heap, info.name_index, &name).unwrap();
            let shared = some.iter().any(|a| a.shared_heap_id.is_some());
            assert!(some.len() == 1 || shared && some.len() == 2, "{some:?}");
            assert!(some.iter().all(|a| found.contains(a)));
            if info.max_creation_order.is_some() {
                assert!(some.iter().any(|a| u64::from(a.creation_order) == order));
            }
            if !shared {
                assert!(some[0].body.windows(name.len()).any(|w| w == name));
            }
        }
        assert!(dense_attributes::find(&store, info.fractal_heap, info.name_index, b"absent").unwrap().is_empty());
        n += want.len();
    }
    n
}

#[test]
fn dense_attributes_agree_with_libhdf5() {
    let (bytes, json) = fixture!("attributes");
    assert_eq!(check_attributes(bytes, json), 39);
}

#[test]
fn shared_dense_attributes_give_their_heap_id() {
    let (bytes, json) = fixture!("shared");
    assert_eq!(check_attributes(bytes, json), 21);
    let store = open(bytes).unwrap();
    let header = header(&store, "a1").unwrap();
    let info = AttributeInfo::decode(&header.find(kind::ATTRIBUTE_INFO).unwrap().body, store.ctx(), Address(0)).unwrap();
    let found = dense_attributes::find(&store, info.fractal_heap, info.name_index, b"attr0").unwrap();
    assert!(found.len() == 1 && found[0].shared_heap_id.is_some() && found[0].flags & 2 != 0 && found[0].body.is_empty());
}

/// Lists and looks up all readable links; the work must be bounded, without a panic.
fn survive(bytes: &[u8], groups: &[&str]) {
    let Ok(store) = open(bytes) else { return };
    for group in groups {
        let Ok(header) = header(&store, group) else { continue };
        if let Ok(Some(storage)) = storage(&store, &header)
            && let Ok(links) = all(&store, &storage, 50)
        {
            assert!(links.len() < 1000);
            for link in links {
                if let Ok(found) = lookup(&store, &storage, &link.name) {
                    let old = matches!(storage, GroupStorage::SymbolTable { .. });
                    assert!(!old || found.is_some(), "lookup finds every listed link");
                }
            }
            let _ = lookup(&store, &storage, b"absent");
        }
    }
}

#[test]
fn damage_never_panics_nor_hangs() {
    let cases: [(&[u8], &[&str], usize); 4] = [
        (fixture!("old_deep").0, &["g"], 13),
        (fixture!("old_one").0, &["g"], 3),
        (fixture!("compact").0, &["g3_0", "g3_1", "g3_3"], 1),
        (fixture!("dense").0, &["g12_0", "g12_3"], 5),
    ];
    for (bytes, groups, step) in cases {
        for i in (0..bytes.len()).step_by(step) {
            let mut b = bytes.to_vec();
            b[i] ^= 1 << (i % 8);
            survive(&b, groups);
            b[i] = 0xff;
            survive(&b, groups);
        }
        for n in (0..bytes.len()).step_by(step * 7) {
            survive(&bytes[..n], groups);
        }
    }
}

/// `bytes` with `new` at `at`.
fn patched(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    b[at..at + new.len()].copy_from_slice(new);
    b
}

/// Offsets of `signature` in `bytes`.
fn signatures(bytes: &[u8], signature: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|&i| bytes[i..].starts_with(signature)).collect()
}

/// Lists group `name`; every link listed must be found.
fn readable(bytes: &[u8], name: &str) -> Result<Vec<Link>> {
    let store = open(bytes).unwrap();
    let storage = storage(&store, &header(&store, name).unwrap()).unwrap().unwrap();
    let links = all(&store, &storage, 7)?;
    assert_eq!(links, all(&store, &storage, usize::MAX)?);
    for link in &links {
        assert_eq!(lookup(&store, &storage, &link.name).unwrap().as_ref(), Some(link));
    }
    Ok(links)
}

#[test]
fn one_bad_node_hides_only_its_own_links() {
    let whole = fixture!("old_deep").0;
    let mut lost = 0;
    for at in signatures(whole, b"SNOD") {
        // Skips the node of the root group, on the path to /g.
        if at != 0x260 {
            lost += 60 - readable(&patched(whole, at, b"!"), "g").unwrap().len();
        }
    }
    assert_eq!(lost, 60);
    // A damaged B-tree node hides its subtree only.
    for at in signatures(whole, b"TREE").into_iter().filter(|&at| at > 392) {
        let n = readable(&patched(whole, at, b"!"), "g").unwrap().len();
        assert!((1..=60).contains(&n), "{n} links without the node at {at}");
    }
    // A damaged root hides all links.
    assert!(readable(&patched(whole, 392, b"!"), "g").is_err());
}

#[test]
fn one_bad_dense_node_hides_only_its_own_links() {
    let whole = fixture!("dense_deep").0;
    let lost = |signature: &[u8]| -> Vec<usize> {
        let at = signatures(whole, signature);
        at.into_iter().map(|at| 159 - readable(&patched(whole, at + 20, b"\xee\xee\xee"), "g150_0").map_or(0, |l| l.len())).collect()
    };
    // Four leaves hold all records but the three of the root.
    assert_eq!(lost(b"BTLF").iter().sum::<usize>(), 156);
    assert_eq!(lost(b"FHDB").iter().sum::<usize>(), 159);
    assert_eq!((lost(b"BTIN"), lost(b"FHIB")), (vec![159], vec![159]));
}

#[test]
fn a_bad_name_index_is_replaced_by_creation_order() {
    let whole = fixture!("dense").0;
    let trees = signatures(whole, b"BTHD");
    let store = open(whole).unwrap();
    let info = header(&store, "g12_3").unwrap().find(kind::LINK_INFO).unwrap().body.clone();
    let info = LinkInfo::decode(&info, store.ctx(), Address(0)).unwrap();
    let at = usize::try_from(info.name_index.0).unwrap();
    assert!(trees.contains(&at));
    let links = readable(&patched(whole, at, b"!"), "g12_3").unwrap();
    assert!(links.iter().map(|l| l.creation_order.unwrap()).eq(0..21));
}

/// A file where `levels` nodes lead to one symbol table node, each by `fan` equal children.
fn shared_nodes(levels: u8, fan: usize, key: impl Fn(usize) -> u64) -> (Store, GroupStorage) {
    use crate::format::btree1::{Btree1Kind, Node};
    use crate::format::symbol_table::{Entry, SymbolTableNode};
    use crate::format::{Context, Writer};
    let ctx = &Context::DEFAULT;
    let mut w = Writer::new();
    w.bytes(b"HEAP").zeros(4).length(64, ctx).length(1, ctx).addr(Address(32), ctx);
    w.bytes(b"\0a\0b\0c\0d\0e\0f\0g\0h\0").zeros(64 - 17);
    let entry = |i: u64| Entry { name_offset: 1 + 2 * i, header: Address(i), cache_type: 0, reserved: 0, scratch: [0; 16] };
    let mut child = w.position();
    w.bytes(&SymbolTableNode { entries: (0..8).map(entry).collect() }.encode(ctx, 8).unwrap());
    for level in 0..levels {
        let at = w.position();
        let mut node = Node::empty(Btree1Kind::Group, level, ctx);
        node.children = vec![Address(child as u64); fan];
        (0..=fan).for_each(|i| node.insert_key(i, &key(i).to_le_bytes()).unwrap());
        w.bytes(&node.encode(ctx, node.used(ctx) as usize).unwrap());
        child = at;
    }
    let storage = GroupStorage::SymbolTable { btree: Address(child as u64), heap: Address(0) };
    (Store::over_bytes(w.into_bytes()), storage)
}

#[test]
fn shared_nodes_do_not_repeat_names() {
    type Key = fn(usize) -> u64;
    // In order, all equal, in reverse.
    let keys: [Key; 3] = [|i| [0, 3, 7, 9, 15][i.min(4)], |_| 7, |i| [15, 9, 7, 3, 1][i.min(4)]];
    for (levels, fan) in [(1, 3), (4, 3), (40, 8), (64, 30)] {
        for key in keys {
            let (store, storage) = shared_nodes(levels, fan, key);
            let links = all(&store, &storage, 3).unwrap();
            let names: Vec<_> = links.iter().map(|l| l.name[0]).collect();
            assert!(names.windows(2).all(|w| w[0] < w[1]), "{levels} levels of {fan}");
            assert!(names == b"abcdefgh" || levels > 4);
            assert!(links.iter().all(|l| lookup(&store, &storage, &l.name).unwrap().as_ref() == Some(l)));
        }
    }
    // Deeper than any tree. Then keys past the heap, which bound nothing: the file's size bounds
    // the walk.
    let (store, storage) = shared_nodes(200, 2, |_| 0);
    assert!(all(&store, &storage, 3).is_err());
    for (levels, fan) in [(4, 3), (40, 2), (64, 8)] {
        let (store, storage) = shared_nodes(levels, fan, |i| 1000 + i as u64);
        assert!((8..40_000).contains(&all(&store, &storage, 500).unwrap().len()));
    }
}
