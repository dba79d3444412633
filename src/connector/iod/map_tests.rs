//! Maps over stores in memory: compared with the reference model, and written by several sessions.

use super::access::IodConnector;
use super::tests::{conflict, empty, errno, open};
use crate::base::Result;
use crate::connector::edit::{Edit, Taken};
use crate::connector::maps::{MapTypes, Maps};
use crate::connector::memory::{MemoryConnector, MemoryObject};
use crate::connector::versions::ValueName;
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::file::store::memory::MemoryStore;
use crate::present::parse::parse_datatype;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

fn types(key: &str, value: &str) -> MapTypes {
    MapTypes { key: parse_datatype(key).unwrap(), value: parse_datatype(value).unwrap() }
}

fn keys(maps: &dyn Maps, id: ObjectId) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Each listing stops after two keys, as listings of large directories do.
    let mut start = 0;
    loop {
        let before = all.len();
        maps.keys(id, start, &mut |key, next| {
            if all.len() == before + 2 {
                return ControlFlow::Break(());
            }
            all.push(key.to_vec());
            start = next;
            ControlFlow::Continue(())
        })
        .unwrap();
        if all.len() == before {
            return all;
        }
    }
}

fn pairs(c: &dyn Connector, id: ObjectId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let maps = c.maps().unwrap();
    let all: BTreeMap<_, _> = keys(maps, id).into_iter().map(|key| (key.clone(), maps.value(id, &key).unwrap().unwrap())).collect();
    assert!(all.iter().all(|(key, value)| maps.value_len(id, key).unwrap() == Some(value.len() as u64)));
    all
}

fn put(c: &dyn Edit, id: ObjectId, key: &[u8], value: &[u8]) -> Result<()> {
    c.maps().unwrap().put(id, key, value)
}

/// A map `m` of types `key` and `value` in a new container.
fn map(key: &str, value: &str) -> (MemoryStore, ObjectId) {
    let store = empty();
    let c = open(&store);
    let id = c.create_group(c.root(), b"m").unwrap();
    Edit::maps(&*c).unwrap().become_map(id, &types(key, value)).unwrap();
    c.close().unwrap();
    (store, id)
}

#[test]
fn maps_are_those_of_the_model() {
    for (key, value) in [("<i2", "<f4"), (">u4", "S3"), ("S2", "u1"), ("str", "str"), ("<f8", "str")] {
        let (store, id) = map(key, value);
        let root = MemoryObject { links: Some(BTreeMap::new()), ..MemoryObject::default() };
        let model = MemoryConnector::writable(vec![root]).unwrap();
        let other = model.create_group(model.root(), b"m").unwrap();
        Edit::maps(&model).unwrap().become_map(other, &types(key, value)).unwrap();
        let mut c = open(&store);
        let mut random = 12345u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for step in 0..400 {
            let t = types(key, value);
            let size = |t: &crate::connector::Datatype| if t.is_vlen_string() { None } else { Some(t.size as usize) };
            let mut bytes = |len: Option<usize>| -> Vec<u8> {
                let len = len.unwrap_or(next(3) as usize);
                (0..len).map(|_| [b'a', b'b', 0xff, 0x80][next(4) as usize]).collect()
            };
            let (a, b, mut v) = (bytes(size(&t.key)), bytes(size(&t.key)), bytes(size(&t.value)));
            let what = next(6);
            if what == 5 {
                v.push(0);
            }
            let change = |edit: &dyn Edit, id: ObjectId| match what {
                0 | 1 | 5 => put(edit, id, &a, &v),
                2 => edit.maps().unwrap().remove(id, &a),
                3 => edit.maps().unwrap().rekey(id, &a, &b, false),
                _ => edit.maps().unwrap().rekey(id, &a, &b, true),
            };
            let (ours, theirs) = (change(&*c, id), change(&model, other));
            assert_eq!(errno(&ours), errno(&theirs), "{key} {value} step {step}: {ours:?}, {theirs:?}");
            if step % 50 == 49 {
                c.close().unwrap();
                c = open(&store);
            }
            assert_eq!(pairs(&*c, id), pairs(&model, other), "{key} {value} step {step}");
        }
        assert_eq!((Connector::maps(&*c).unwrap().types(id).unwrap(), c.info(id).unwrap().kind), (types(key, value), ObjectKind::Map));
    }
}

#[test]
fn keys_are_listed_in_the_order_of_integers() {
    let (store, id) = map("<i4", "u1");
    let c = open(&store);
    for n in [5i32, -3, 1000, 0, -70_000] {
        put(&*c, id, &n.to_le_bytes(), &[1]).unwrap();
    }
    let listed: Vec<i32> = keys(&*c, id).iter().map(|key| i32::from_le_bytes(key.as_slice().try_into().unwrap())).collect();
    assert_eq!(listed, [-70_000, -3, 0, 5, 1000]);
}

#[test]
fn what_is_no_empty_directory_is_not_made_a_map() {
    let store = empty();
    let c = open(&store);
    let (full, file) = (c.create_group(c.root(), b"g").unwrap(), c.create_file(c.root(), b"f").unwrap());
    c.symlink(full, b"s", b"x").unwrap();
    let become_map = |id, key, value| errno(&Edit::maps(&*c).unwrap().become_map(id, &types(key, value)));
    assert_eq!(
        (become_map(full, "u1", "u1"), become_map(file, "u1", "u1"), become_map(c.root(), "u1", "u1")),
        (libc::ENOTEMPTY, libc::EINVAL, libc::EINVAL)
    );
    let m = c.create_group(c.root(), b"m").unwrap();
    let reference = r#"{"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}"#;
    assert_eq!((become_map(m, reference, "u1"), become_map(m, "u1", reference)), (libc::EOPNOTSUPP, libc::EOPNOTSUPP));
    assert_eq!((become_map(m, "S20000", "u1"), c.info(m).unwrap().kind), (libc::EINVAL, ObjectKind::Group));
    assert_eq!((become_map(m, "u1", "u1"), become_map(m, "S2", "u1")), (0, 0), "types of an empty map may change");
    put(&*c, m, b"ab", b"x").unwrap();
    assert_eq!(become_map(m, "u1", "u1"), libc::ENOTEMPTY);
    assert_eq!(errno(&put(&*c, m, b"abc", b"x")), libc::EINVAL);
    assert_eq!(errno(&put(&*c, m, b"ab", b"")), libc::EINVAL);
    for refused in [c.create_file(m, b"f").map(drop), c.create_group(m, b"f").map(drop), c.link(m, b"f", file), c.symlink(m, b"f", b"x")] {
        assert_eq!(errno(&refused), libc::EPERM, "{refused:?}");
    }
    assert_eq!(errno(&c.rename((c.root(), b"f"), (m, b"f"), Taken::Replace)), libc::EPERM);
    assert_eq!((errno(&c.unlink(c.root(), b"m", false)), errno(&c.unlink(c.root(), b"m", true))), (libc::EISDIR, libc::ENOTEMPTY));
    assert_eq!(errno(&c.rename((c.root(), b"f"), (c.root(), b"m"), Taken::Replace)), libc::EISDIR);
    c.rename((c.root(), b"m"), (full, b"moved"), Taken::Refuse).unwrap();
    Edit::maps(&*c).unwrap().remove(m, b"ab").unwrap();
    c.unlink(full, b"moved", true).unwrap();
    c.close().unwrap();
    assert!(open(&store).info(m).is_err());
}

/// Two sessions of one version.
fn two(key: &str, value: &str) -> (MemoryStore, ObjectId, Arc<IodConnector>, Arc<IodConnector>) {
    let (store, id) = map(key, value);
    let (a, b) = (open(&store), open(&store));
    (store, id, a, b)
}

#[test]
fn other_keys_merge_and_the_same_key_is_a_conflict() {
    let (store, id, a, b) = two("<i4", "S1");
    let key = i32::to_le_bytes;
    put(&*a, id, &key(1), b"a").unwrap();
    put(&*b, id, &key(2), b"b").unwrap();
    a.close().unwrap();
    b.close().unwrap();
    let all = [(1, b"a"), (2, b"b")].map(|(n, v)| (key(n).to_vec(), v.to_vec()));
    assert_eq!(pairs(&*open(&store), id), all.into());

    type Change = fn(&IodConnector, ObjectId) -> Result<()>;
    let cases: [(&str, &str, &str, Change, Change); 6] = [
        ("S1", "both changed the key", "key \"k\" of /m", |c, id| put(c, id, b"k", b"1"), |c, id| put(c, id, b"k", b"1")),
        (
            "<i4",
            "both changed the key",
            "key -7 of /m",
            |c, id| put(c, id, &(-7i32).to_le_bytes(), b"1"),
            |c, id| put(c, id, &(-7i32).to_le_bytes(), b"2"),
        ),
        ("S4", "both changed the key", "key \"ab\" of /m", |c, id| put(c, id, b"ab\0\0", b"1"), |c, id| put(c, id, b"ab\0\0", b"2")),
        ("S1", "one removed the object", "/m", |c, id| put(c, id, b"k", b"1"), |c, _| c.unlink(c.root(), b"m", true).map(drop)),
        ("S1", "one removed the object", "/m", |c, _| c.unlink(c.root(), b"m", true).map(drop), |c, id| put(c, id, b"k", b"1")),
        (
            "S1",
            "made the group a map",
            "/m",
            |c, id| Edit::maps(c).unwrap().become_map(id, &types("S1", "S2")),
            |c, id| put(c, id, b"k", b"1"),
        ),
    ];
    for (t, reason, name, first, second) in cases {
        let (store, id, a, b) = two(t, "S1");
        first(&a, id).unwrap();
        second(&b, id).unwrap();
        a.close().unwrap();
        let text = conflict(Edit::commit(&*b));
        assert!(text.contains(reason) && text.contains(name), "{text}");
        assert!(b.close().is_err());
        open(&store);
    }
}

/// A link that one session made stayed in the map that the other made of the group.
#[test]
fn a_group_with_links_is_not_made_a_map_by_another_session() {
    let become_map = |c: &IodConnector, id| Edit::maps(c).unwrap().become_map(id, &types("S1", "S1")).unwrap();
    for map_first in [true, false] {
        let store = empty();
        let c = open(&store);
        let id = c.create_group(c.root(), b"g").unwrap();
        c.close().unwrap();
        let (a, b) = (open(&store), open(&store));
        let (first, second) = if map_first { (&a, &b) } else { (&b, &a) };
        become_map(first, id);
        second.symlink(id, b"s", b"x").unwrap();
        a.close().unwrap();
        assert!(conflict(Edit::commit(&*b)).contains("made the group a map"));
    }
}

#[test]
fn pairs_are_dumped_as_such() {
    let (store, id) = map("<i4", "S8");
    let c = open(&store);
    put(&*c, id, &(-2i32).to_le_bytes(), b"value\0\0\0").unwrap();
    let (mut values, mut is_map) = (Vec::new(), false);
    c.versions()
        .unwrap()
        .values(&mut |value| {
            is_map |= value.kind == ObjectKind::Map;
            values.push(value.what);
            ControlFlow::Continue(())
        })
        .unwrap();
    let metadata = |name: &str| ValueName::Metadata(name.to_owned());
    assert!(is_map && values.contains(&ValueName::Pair("<-2, \"value\">".into())), "{values:?}");
    assert!(values.contains(&metadata("object_datatype (keys)")) && values.contains(&metadata("object_datatype (values)")), "{values:?}");
}
